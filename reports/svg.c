#include "svg.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "text.h"

enum {
    WIDTH = 560,
    LEFT = 60,
    RIGHT = 16,
    LINE = 22,        /* of text */
    HEAD = 27,        /* a panel's title, and half of the number at its axis' end */
    MARK = 6,         /* a row of marks */
    LETTER = 9,       /* a mean one */
    MARKS_A_LINE = 6, /* shapes on a line, so that it is known without its colour */
    COLUMNS_MAX = 240 /* a longer line keeps the least and the greatest of each column */
};
static const double PLOT = WIDTH - LEFT - RIGHT;

/* ---- text ---- */

void svg_text(struct buf *out, const char *text)
{
    struct buf plain = {0};
    text_plain(&plain, text);
    for (size_t i = 0; i < plain.len; i++)
        text_xml_char(out, plain.data[i]);
    buf_free(&plain);
}

/* ---- axes ---- */

/* The round number (1, 2, 5 times a power of ten) that is not below. */
static double round_up(double value)
{
    double power = pow(10, floor(log10(value)));
    static const double steps[] = {1, 2, 5, 10};
    for (size_t i = 0; i < 4; i++)
        if (steps[i] * power >= value * (1 - 1e-9))
            return steps[i] * power;
    return 10 * power;
}

static double step_of(const struct svg_axis *axis, double wanted)
{
    return round_up((axis->high - axis->low) / wanted);
}

struct svg_axis svg_linear(double high)
{
    struct svg_axis axis = {.low = 0, .high = high > 0 ? high : 1};
    double step = step_of(&axis, 4);
    axis.high = ceil(axis.high / step - 1e-9) * step;
    return axis;
}

struct svg_axis svg_logarithmic(double low, double high)
{
    if (!(low > 0) || !isfinite(low))
        low = 1;
    if (!(high > low) || !isfinite(high))
        high = low * 10;
    return (struct svg_axis){
        .low = pow(10, floor(log10(low) + 1e-9)), .high = round_up(high), .log = true};
}

static double place(const struct svg_axis *axis, double value)
{
    if (axis->log)
        return log(value / axis->low) / log(axis->high / axis->low);
    return (value - axis->low) / (axis->high - axis->low);
}

static double at_x(const struct svg_panel *panel, double x)
{
    return LEFT + PLOT * fmin(fmax(place(&panel->x, x), 0), 1);
}

static double at_y(const struct svg_panel *panel, double top, double y)
{
    return top + panel->height * (1 - fmin(fmax(place(&panel->y, y), 0), 1));
}

static bool drawable(const struct svg_panel *panel, double x, double y)
{
    return isfinite(x) && isfinite(y) && (!panel->y.log || y > 0) && (!panel->x.log || x > 0);
}

static void put_share(struct buf *out, double x)
{
    int nines = (int)lround(log10(x));
    if (nines == 0)
        buf_puts(out, "0 %");
    else
        buf_printf(out, "%.*f %%", nines > 2 ? nines - 2 : 0, 100 * (1 - 1 / x));
}

static void put_x_tick(struct buf *out, const struct svg_panel *panel, double top, double value)
{
    double x = at_x(panel, value), bottom = top + panel->height;
    buf_printf(out, "<path class=\"g\" d=\"M%.1f %.1fV%.1f\"/>", x, top, bottom);
    const char *anchor = x > WIDTH - 36 ? "end" : "middle";
    buf_printf(out, "<text class=\"n\" text-anchor=\"%s\" x=\"%.1f\" y=\"%.1f\">", anchor,
               x > WIDTH - 36 ? fmin(x + RIGHT - 2, WIDTH - 2) : x, bottom + 17);
    if (panel->x.share)
        put_share(out, value);
    else
        buf_printf(out, "%g", value);
    buf_puts(out, "</text>");
}

static void put_x_ticks(struct buf *out, const struct svg_panel *panel, double top)
{
    buf_puts(out, "<g class=\"x\">");
    if (panel->x.log) {
        int decades = (int)floor(log10(panel->x.high / panel->x.low) + 1e-9);
        for (int i = 0; i <= decades; i++)
            put_x_tick(out, panel, top, panel->x.low * pow(10, i));
    } else {
        double step = step_of(&panel->x, 6);
        for (int i = 0; panel->x.low + i * step <= panel->x.high * (1 + 1e-9); i++)
            put_x_tick(out, panel, top, panel->x.low + i * step);
    }
    buf_puts(out, "</g>");
}

static void put_y_tick(struct buf *out, const struct svg_panel *panel, double top, double value,
                       bool named)
{
    double y = at_y(panel, top, value);
    buf_printf(out, "<path class=\"g\" d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT);
    if (named)
        buf_printf(out, "<text class=\"n\" text-anchor=\"end\" x=\"%d\" y=\"%.1f\">%g</text>",
                   LEFT - 6, y + 5, value);
}

static void put_y_ticks(struct buf *out, const struct svg_panel *panel, double top)
{
    const struct svg_axis *axis = &panel->y;
    if (!axis->log) {
        double step = step_of(axis, panel->height < 130 ? 3 : 5);
        for (int i = 0; axis->low + i * step <= axis->high * (1 + 1e-9); i++)
            put_y_tick(out, panel, top, axis->low + i * step, true);
        return;
    }
    double decades = log10(axis->high / axis->low);
    for (int decade = 0; decade <= (int)floor(decades + 1e-9); decade++) {
        double power = axis->low * pow(10, decade);
        put_y_tick(out, panel, top, power, true);
        for (int i = 2; i <= 5 && decades < 4; i += 3)
            if (i * power <= axis->high * (1 + 1e-9))
                put_y_tick(out, panel, top, i * power, panel->height / decades > 70);
    }
}

/* ---- lines ---- */

static const char *const shapes[] = {
    "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0-9 0z", /* circle */
    "M-4-4H4V4H-4z",                                /* square */
    "M0-5.5L5 4H-5z",                               /* triangle */
    "M0-6L5 0L0 6L-5 0z",                           /* diamond */
    "M-5-2H-2V-5H2V-2H5V2H2V5H-2V2H-5z",            /* plus */
    "M0 5.5L5-4H-5z",                               /* triangle, upside down */
    "M-2.5-5H2.5L5 0L2.5 5H-2.5L-5 0z",             /* hexagon */
    "M0-6L1.6-1.9L6-1.9L2.5 .9L3.8 5.2L0 2.6L-3.8 5.2L-2.5 .9L-6-1.9L-1.6-1.9z", /* star */
    "M-5-3H5V3H-5z",                                                             /* low bar */
    "M-3-5H3V5H-3z",                                                             /* high bar */
};

static const char *shape_of(unsigned style)
{
    return shapes[style % (sizeof(shapes) / sizeof(shapes[0]))];
}

struct pen {
    struct buf *out;
    const struct svg_panel *panel;
    double top;
    bool down;
};

static void pen_point(struct pen *pen, double x, double y)
{
    buf_printf(pen->out, "%c%.1f %.1f", pen->down ? 'L' : 'M', at_x(pen->panel, x),
               at_y(pen->panel, pen->top, y));
    pen->down = true;
}

/* The least and the greatest of line[from..to-1], in their order: no peak is lost. */
static void pen_column(struct pen *pen, const struct svg_line *line, size_t from, size_t to)
{
    size_t least = to, greatest = to;
    for (size_t i = from; i < to; i++) {
        if (!drawable(pen->panel, line->x[i], line->y[i]))
            continue;
        if (least == to || line->y[i] < line->y[least])
            least = i;
        if (greatest == to || line->y[i] > line->y[greatest])
            greatest = i;
    }
    if (least == to) {
        pen->down = false;
        return;
    }
    size_t first = least < greatest ? least : greatest, last = least + greatest - first;
    pen_point(pen, line->x[first], line->y[first]);
    if (last != first)
        pen_point(pen, line->x[last], line->y[last]);
}

static void put_path(struct buf *out, const struct svg_panel *panel, double top,
                     const struct svg_line *line)
{
    struct pen pen = {.out = out, .panel = panel, .top = top};
    size_t columns = line->count > 2 * COLUMNS_MAX ? COLUMNS_MAX : line->count;
    buf_printf(out, "<path class=\"l c%u\" d=\"", line->style);
    for (size_t i = 0; i < columns; i++)
        pen_column(&pen, line, i * line->count / columns, (i + 1) * line->count / columns);
    buf_puts(out, "\"/>");
}

/* The point that is nearest to a place on the x axis; count: none is near. */
static size_t nearest(const struct svg_panel *panel, const struct svg_line *line, double wanted)
{
    size_t best = line->count;
    double distance = PLOT / MARKS_A_LINE / 4;
    for (size_t i = 0; i < line->count; i++) {
        if (!drawable(panel, line->x[i], line->y[i]))
            continue;
        double off = fabs(at_x(panel, line->x[i]) - wanted);
        if (off < distance) {
            distance = off;
            best = i;
        }
    }
    return best;
}

static void put_line(struct buf *out, const struct svg_panel *panel, double top, size_t index)
{
    const struct svg_line *line = &panel->lines[index];
    buf_printf(out, "<g class=\"s s%u\">", line->group);
    put_path(out, panel, top, line);
    for (int i = 0; i < MARKS_A_LINE; i++) {
        double share = ((double)index + 0.5) / (double)panel->line_count;
        size_t at = nearest(panel, line, LEFT + PLOT * (i + share) / MARKS_A_LINE);
        if (at < line->count)
            buf_printf(out, "<path class=\"m c%u\" transform=\"translate(%.1f %.1f)\" d=\"%s\"/>",
                       line->style, at_x(panel, line->x[at]), at_y(panel, top, line->y[at]),
                       shape_of(line->style));
    }
    buf_puts(out, "</g>\n");
}

/* ---- what lies behind and above ---- */

static void put_bands(struct buf *out, const struct svg_panel *panel, double top)
{
    for (size_t i = 0; i < panel->band_count; i++) {
        const struct svg_band *band = &panel->bands[i];
        double begin = at_x(panel, band->begin), end = at_x(panel, band->end);
        buf_printf(out, "<rect class=\"%s\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                   band->hatched ? "w" : "f", begin, top, fmax(end - begin, 1.5), panel->height);
    }
}

/* Names of bands: in the row of the title, where no line is. */
static void put_band_names(struct buf *out, const struct svg_panel *panel, double y, double from)
{
    for (size_t i = 0; i < panel->band_count; i++) {
        const struct svg_band *band = &panel->bands[i];
        if (!band->label)
            continue;
        double width = 8.0 * (double)strlen(band->label);
        double x = at_x(panel, (band->begin + band->end) / 2) - width / 2;
        x = fmin(fmax(x, from), WIDTH - 2 - width);
        if (x < from)
            return; /* no room: the page says what the bands are */
        buf_printf(out, "<text class=\"b\" x=\"%.1f\" y=\"%.1f\">", x, y);
        svg_text(out, band->label);
        buf_puts(out, "</text>");
        from = x + width + 10;
    }
}

static void put_marks(struct buf *out, const struct svg_panel *panel, double top)
{
    for (size_t i = 0; i < panel->mark_count; i++) {
        const struct svg_mark *mark = &panel->marks[i];
        double begin = at_x(panel, mark->begin), end = at_x(panel, mark->end);
        buf_printf(out,
                   "<rect class=\"k c%u s%u\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" "
                   "height=\"%d\"/>",
                   mark->style, mark->group, begin, top + mark->row * MARK, fmax(end - begin, 2.5),
                   MARK - 2);
    }
}

static void put_limit(struct buf *out, const struct svg_panel *panel, double top)
{
    if (!isfinite(panel->limit.value) || !panel->limit.label)
        return;
    double y = at_y(panel, top, panel->limit.value);
    buf_printf(out, "<path class=\"q\" d=\"M%d %.1fH%d\"/>", LEFT, y, WIDTH - RIGHT);
    /* On an axis of shares the lines rise to the right, and the name must not hide them. */
    buf_printf(out, "<text class=\"b h\" text-anchor=\"%s\" x=\"%d\" y=\"%.1f\">",
               panel->x.share ? "start" : "end", panel->x.share ? LEFT + 4 : WIDTH - RIGHT - 4,
               y - 5 < top + 10 ? y + 15 : y - 5);
    svg_text(out, panel->limit.label);
    buf_puts(out, "</text>");
}

/* What a script needs to tell a place from a value. */
static void put_axis_data(struct buf *out, const struct svg_panel *panel, double top)
{
    buf_printf(out,
               " data-plot=\"%d %.1f %.0f %.1f\" data-x=\"%.9g %.9g\" data-y=\"%.9g %.9g\" "
               "data-log=\"%s%s%s\" data-unit=\"",
               LEFT, top, PLOT, panel->height, panel->x.low, panel->x.high, panel->y.low,
               panel->y.high, panel->x.log ? "x" : "", panel->y.log ? "y" : "",
               panel->x.share ? "s" : "");
    svg_text(out, panel->unit);
    buf_puts(out, "\"");
}

/* ---- a panel, the picture ---- */

static double panel_height(const struct svg_panel *panel)
{
    return HEAD + panel->mark_rows * MARK + panel->height + LINE + (panel->x_title ? LINE : 0) + 8;
}

static void put_panel(struct buf *out, const struct svg_picture *picture, size_t index, double top)
{
    const struct svg_panel *panel = &picture->panels[index];
    double plot_top = top + HEAD + panel->mark_rows * MARK;
    buf_puts(out, "<g class=\"p\"");
    put_axis_data(out, panel, plot_top);
    buf_printf(out,
               ">\n<clipPath id=\"%s-%zu\"><rect x=\"%d\" y=\"%.1f\" width=\"%.0f\" "
               "height=\"%.1f\"/></clipPath>\n",
               picture->name, index, LEFT, top + HEAD - 4, PLOT,
               plot_top - top - HEAD + 5 + panel->height);
    buf_printf(out, "<text class=\"t\" x=\"2\" y=\"%.1f\">", top + 15);
    svg_text(out, panel->title);
    buf_puts(out, "</text>");
    put_band_names(out, panel, top + 15, 2.0 + (LETTER + 1) * (double)strlen(panel->title) + 8);
    buf_printf(out, "<g clip-path=\"url(#%s-%zu)\" class=\"v\">", picture->name, index);
    put_bands(out, panel, plot_top);
    put_marks(out, panel, top + HEAD - 2);
    buf_puts(out, "</g>\n<g class=\"y\">");
    put_y_ticks(out, panel, plot_top);
    buf_puts(out, "</g>\n");
    put_x_ticks(out, panel, plot_top);
    buf_printf(out, "<rect class=\"a\" x=\"%d\" y=\"%.1f\" width=\"%.0f\" height=\"%.1f\"/>\n",
               LEFT, plot_top, PLOT, panel->height);
    buf_printf(out, "<g clip-path=\"url(#%s-%zu)\" class=\"v\">\n", picture->name, index);
    for (size_t i = 0; i < panel->line_count; i++)
        put_line(out, panel, plot_top, i);
    buf_puts(out, "</g>\n");
    put_limit(out, panel, plot_top);
    if (panel->x_title) {
        buf_printf(out, "<text class=\"n\" text-anchor=\"middle\" x=\"%.1f\" y=\"%.1f\">",
                   LEFT + PLOT / 2, plot_top + panel->height + LINE + 14);
        svg_text(out, panel->x_title);
        buf_puts(out, "</text>");
    }
    buf_puts(out, "</g>\n");
}

/* Draws the legend when out is not NULL; returns its height. */
static double put_keys(struct buf *out, const struct svg_picture *picture)
{
    double x = 2, y = 4;
    for (size_t i = 0; i < picture->key_count; i++) {
        const struct svg_key *key = &picture->keys[i];
        double width = 46 + LETTER * (double)strlen(key->label) + 12;
        if (x > 2 && x + width > WIDTH) {
            x = 2;
            y += LINE;
        }
        if (out) {
            buf_printf(out,
                       "<g class=\"s%u\"><path class=\"l c%u\" d=\"M%.0f %.0fH%.0f\"/><path "
                       "class=\"m c%u\" transform=\"translate(%.0f %.0f)\" d=\"%s\"/><text "
                       "x=\"%.0f\" y=\"%.0f\">",
                       key->group, key->style, x, y + 9, x + 40, key->style, x + 20, y + 9,
                       shape_of(key->style), x + 46, y + 15);
            svg_text(out, key->label);
            buf_puts(out, "</text></g>\n");
        }
        x += width;
    }
    return picture->key_count ? y + LINE + 4 : 0;
}

void svg_put(struct buf *out, const struct svg_picture *picture)
{
    double keys = put_keys(NULL, picture), height = keys;
    for (size_t i = 0; i < picture->panel_count; i++)
        height += panel_height(&picture->panels[i]);
    buf_printf(out,
               "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" id=\"chart-%s\" "
               "width=\"640\" height=\"%.0f\" viewBox=\"0 0 %d %.0f\" role=\"img\" "
               "aria-label=\"",
               picture->name, height * 640 / WIDTH, WIDTH, height);
    svg_text(out, picture->title);
    buf_puts(out, "\">\n<title>");
    svg_text(out, picture->title);
    buf_puts(out, "</title>\n");
    if (picture->css)
        buf_printf(out, "<style>\n%s</style>\n", picture->css);
    buf_printf(out, "<rect class=\"paper\" width=\"%d\" height=\"%.0f\"/>\n", WIDTH, height);
    put_keys(out, picture);
    double top = keys;
    for (size_t i = 0; i < picture->panel_count; i++) {
        put_panel(out, picture, i, top);
        top += panel_height(&picture->panels[i]);
    }
    buf_puts(out, "</svg>\n");
}
