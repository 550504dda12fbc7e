#include "text.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "lines.h"

enum { TEXT_BYTES_MAX = 400 }; /* of one text from a file */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Calls put for each well-formed character; what is none, and control characters, come as "?";
 * white space as one blank. */
static void walk_text(struct buf *out, const char *text,
                      void (*put)(struct buf *out, const char *start, const char *at, size_t len))
{
    size_t left = strlen(text);
    for (const char *at = text; left > 0;) {
        if (at - text > TEXT_BYTES_MAX) {
            buf_puts(out, "...");
            return;
        }
        size_t len = utf8_length(at, left);
        unsigned char byte = (unsigned char)*at;
        /* U+0080..9F are control characters too, and U+202A..2069 hold the bidirectional ones. */
        bool c1 = len == 2 && byte == 0xc2 && (unsigned char)at[1] < 0xa0;
        bool format = len == 3 && byte == 0xe2 &&
                      ((unsigned char)at[1] == 0x80 || (unsigned char)at[1] == 0x81) &&
                      !((unsigned char)at[1] == 0x80 && (unsigned char)at[2] >= 0x90 &&
                        (unsigned char)at[2] <= 0xa7);
        if (byte == '\n' || byte == '\r' || byte == '\t')
            buf_putc(out, ' ');
        else if (len == 0 || byte < 0x20 || byte == 0x7f || c1 || format)
            buf_putc(out, '?');
        else
            put(out, text, at, len);
        len = len ? len : 1;
        at += len;
        left -= len;
    }
}

static void put_plain(struct buf *out, const char *start, const char *at, size_t len)
{
    (void)start;
    buf_append(out, at, len);
}

void text_xml_char(struct buf *out, char c)
{
    if (c == '<')
        buf_puts(out, "&lt;");
    else if (c == '>')
        buf_puts(out, "&gt;");
    else if (c == '&')
        buf_puts(out, "&amp;");
    else if (c == '"')
        buf_puts(out, "&quot;");
    else if (c == '\'')
        buf_puts(out, "&#39;");
    else if ((unsigned char)c >= 0x20 || c == '\t')
        buf_putc(out, c);
    else
        buf_putc(out, ' ');
}

void text_plain(struct buf *out, const char *text)
{
    walk_text(out, text, put_plain);
}

static void put_markdown(struct buf *out, const char *start, const char *at, size_t len)
{
    char c = *at;
    char before = at > start ? at[-1] : ' ';
    switch (c) {
    case '<':
        buf_puts(out, "&lt;");
        return;
    case '>':
        buf_puts(out, "&gt;");
        return;
    case '&':
        buf_puts(out, "&amp;");
        return;
    case '@': /* mentions, mail addresses */
        buf_puts(out, "&#64;");
        return;
    case ':': /* GitHub makes a link of a bare http:// */
        buf_puts(out, at[1] == '/' && at[2] == '/' ? "&#58;" : ":");
        return;
    case '.': /* and of a bare www. */
        buf_puts(out, before == 'w' || before == 'W' ? "&#46;" : ".");
        return;
    case '|':
        /* An entity, not a backslash: inside a table GitHub unescapes \| before anything else. */
        buf_puts(out, "&#124;");
        return;
    case '_': /* inside a word it means nothing, and x86_64 should stay readable */
        buf_puts(out, is_word(before) && is_word(at[1]) ? "_" : "\\_");
        return;
    case '#': /* #123 would refer to an issue */
        buf_puts(out, "&#35;");
        return;
    case '\\':
    case '`':
    case '*':
    case '[':
    case ']':
    case '!':
    case '~':
    case '$': /* formulas */
        buf_putc(out, '\\');
        buf_putc(out, c);
        return;
    default:
        /* A line that starts with "-", "+" or "1." would be a list. Ours never start with foreign
         * text, but a caller may forget. */
        if (at == start && (c == '-' || c == '+' || c == '='))
            buf_putc(out, '\\');
        buf_append(out, at, len);
    }
}

void text_markdown(struct buf *out, const char *text)
{
    walk_text(out, text, put_markdown);
}

/* ---- numbers ---- */

static bool put_special(struct buf *out, double value)
{
    if (isnan(value))
        buf_puts(out, "–");
    else if (isinf(value))
        buf_puts(out, "not 202");
    else
        return false;
    return true;
}

/* Three significant digits, never an exponent; whole numbers as they are. */
static void put_digits(struct buf *out, double value)
{
    double size = fabs(value);
    if (value == floor(value)) {
        buf_printf(out, "%.0f", value);
        return;
    }
    int decimals = size >= 99.95 || size == 0 ? 0 : size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 3;
    if (size > 0 && size < 0.0995)
        decimals = size < 0.00995 ? 5 : 4;
    buf_printf(out, "%.*f", decimals, value);
}

void text_number(struct buf *out, double value)
{
    if (!put_special(out, value))
        put_digits(out, value);
}

void text_count(struct buf *out, double count)
{
    if (!put_special(out, count))
        buf_printf(out, "%.0f", count);
}

void text_seconds(struct buf *out, double s)
{
    if (!put_special(out, s)) {
        put_digits(out, s);
        buf_puts(out, " s");
    }
}

void text_ms(struct buf *out, double ms)
{
    if (put_special(out, ms))
        return;
    if (ms >= 9999.5) {
        text_seconds(out, ms / 1000);
        return;
    }
    put_digits(out, ms);
    buf_puts(out, " ms");
}

void text_bytes(struct buf *out, double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    if (put_special(out, bytes))
        return;
    size_t unit = 0;
    while (fabs(bytes) >= 1023.5 && unit < 4) {
        bytes /= 1024;
        unit++;
    }
    if (unit == 0)
        buf_printf(out, "%.0f", bytes);
    else
        put_digits(out, bytes);
    buf_printf(out, " %s", units[unit]);
}

/* ---- tables ---- */

void table_begin(struct table *table, size_t columns)
{
    *table = (struct table){.columns = columns};
}

struct buf *table_cell(struct table *table)
{
    array_grow((void **)&table->cells, &table->capacity, table->count, sizeof(*table->cells));
    table->cells[table->count] = (struct buf){0};
    return &table->cells[table->count++];
}

void table_text(struct table *table, const char *markdown)
{
    buf_puts(table_cell(table), markdown);
}

static size_t width(const struct buf *cell)
{
    size_t count = 0;
    for (size_t i = 0; i < cell->len; i++)
        count += ((unsigned char)cell->data[i] & 0xc0) != 0x80;
    return count;
}

static void put_blanks(struct buf *out, size_t count, char c)
{
    while (count-- > 0)
        buf_putc(out, c);
}

static void put_row(struct buf *out, const struct table *table, size_t row, const size_t *widths)
{
    buf_putc(out, '|');
    for (size_t column = 0; column < table->columns; column++) {
        const struct buf *cell = &table->cells[row * table->columns + column];
        size_t pad = widths[column] - width(cell);
        buf_putc(out, ' ');
        bool left = column == 0 || table->all_left;
        put_blanks(out, left ? 0 : pad, ' ');
        buf_append(out, cell->data ? cell->data : "", cell->len);
        put_blanks(out, left ? pad : 0, ' ');
        buf_puts(out, " |");
    }
    buf_putc(out, '\n');
}

void table_end(struct table *table, struct buf *out)
{
    while (table->count % table->columns != 0)
        table_cell(table);
    size_t *widths = xcalloc(table->columns, sizeof(*widths));
    for (size_t i = 0; i < table->count; i++) {
        size_t wide = width(&table->cells[i]), *widest = &widths[i % table->columns];
        *widest = wide > *widest ? wide : *widest;
    }
    for (size_t column = 0; column < table->columns; column++)
        widths[column] = widths[column] < 3 ? 3 : widths[column];
    for (size_t row = 0; row < table->count / table->columns; row++) {
        put_row(out, table, row, widths);
        if (row > 0)
            continue;
        buf_putc(out, '|');
        for (size_t column = 0; column < table->columns; column++) {
            buf_putc(out, ' ');
            bool left = column == 0 || table->all_left;
            put_blanks(out, widths[column] - !left, '-');
            buf_puts(out, left ? " |" : ": |");
        }
        buf_putc(out, '\n');
    }
    buf_putc(out, '\n');
    for (size_t i = 0; i < table->count; i++)
        buf_free(&table->cells[i]);
    free(table->cells);
    free(widths);
    memset(table, 0, sizeof(*table));
}
