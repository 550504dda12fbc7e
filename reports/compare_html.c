/* compare.html: compare.md as one page that needs nothing else, with the pictures inside it.
 *
 * The page is made from the finished Markdown, so both say the same. Only the few constructs that
 * compare.md is written with are known; everything else is text, and each byte of text that could
 * mean something to a browser is escaped here, whatever the Markdown's own care. The policy in its
 * head lets nothing run or load but this very script and these style sheets, by their hashes. */
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "svg.h"

extern const char charts_css_sha256[], compare_css[], compare_css_sha256[], compare_js[],
    compare_js_sha256[];

struct page {
    const struct comparison *comparison;
    struct buf *out;
};

/* ---- inside a line ---- */

/* Bytes of a reference that text_markdown may have made; 0: it is something else. */
static size_t entity_length(const char *at, size_t left)
{
    static const char *const names[] = {"&lt;", "&gt;", "&amp;", "&quot;"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strlen(names[i]) <= left && strncmp(at, names[i], strlen(names[i])) == 0)
            return strlen(names[i]);
    size_t digits = left > 2 && at[1] == '#' ? strspn(at + 2, "0123456789") : 0;
    if (digits < 2 || digits > 3 || digits + 3 > left || at[digits + 2] != ';')
        return 0;
    return atoi(at + 2) >= 32 ? digits + 3 : 0;
}

/* A link leads to a page or to a file beside this one, never to a script. */
static bool link_is_safe(const char *target, size_t len)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-._/#";
    size_t scheme = len > 8 && strncmp(target, "https://", 8) == 0 ? 8 : 0;
    return len > scheme && strspn(target + scheme, plain) >= len - scheme &&
           strncmp(target, "//", 2) != 0;
}

static void put_inline(struct buf *out, const char *text, size_t len);

/* [words](target) at text: appends it and returns its length; 0: it is no link. */
static size_t put_link(struct buf *out, const char *text, size_t len)
{
    const char *end = memchr(text, ']', len);
    if (!end || end + 1 >= text + len || end[1] != '(')
        return 0;
    const char *target = end + 2, *close = memchr(target, ')', (size_t)(text + len - target));
    if (!close || !link_is_safe(target, (size_t)(close - target)))
        return 0;
    buf_printf(out, "<a href=\"%.*s\">", (int)(close - target), target);
    put_inline(out, text + 1, (size_t)(end - text - 1));
    buf_puts(out, "</a>");
    return (size_t)(close - text) + 1;
}

static size_t put_code(struct buf *out, const char *text, size_t len)
{
    const char *end = len > 1 ? memchr(text + 1, '`', len - 1) : NULL;
    if (!end)
        return 0;
    buf_puts(out, "<code>");
    for (const char *at = text + 1; at < end; at++)
        text_xml_char(out, *at);
    buf_puts(out, "</code>");
    return (size_t)(end - text) + 1;
}

static void put_inline(struct buf *out, const char *text, size_t len)
{
    bool strong = false;
    for (size_t i = 0; i < len;) {
        const char *at = text + i;
        size_t left = len - i, used = 0;
        if (*at == '\\' && left > 1 && strchr("\\`*_{}[]()#+-.!|~$<>=@:", at[1])) {
            text_xml_char(out, at[1]);
            used = 2;
        } else if (*at == '&' && (used = entity_length(at, left)) > 0) {
            buf_append(out, at, used);
        } else if (left > 1 && at[0] == '*' && at[1] == '*') {
            buf_puts(out, strong ? "</strong>" : "<strong>");
            strong = !strong;
            used = 2;
        } else if (*at == '`') {
            used = put_code(out, at, left);
        } else if (*at == '[') {
            used = put_link(out, at, left);
        }
        if (used == 0) {
            text_xml_char(out, *at);
            used = 1;
        }
        i += used;
    }
    if (strong)
        buf_puts(out, "</strong>");
}

/* ---- blocks ---- */

struct line {
    const char *text;
    size_t len;
};

/* The next line of *rest, without its newline; false: there is none. */
static bool next_line(const char **rest, struct line *line)
{
    if (**rest == '\0')
        return false;
    line->text = *rest;
    line->len = strcspn(*rest, "\n");
    *rest += line->len + ((*rest)[line->len] == '\n');
    return true;
}

static bool starts(const struct line *line, const char *with)
{
    return line->len >= strlen(with) && strncmp(line->text, with, strlen(with)) == 0;
}

/* Does the line begin a block of its own? */
static bool is_block(const struct line *line)
{
    return line->len == 0 || starts(line, "#") || starts(line, "|") || starts(line, "- ") ||
           starts(line, ">") || starts(line, "![");
}

static void put_row(struct buf *out, const struct line *line, const char *tag, const bool *right,
                    size_t columns)
{
    const char *at = line->text + 1, *end = line->text + line->len;
    buf_puts(out, "<tr>");
    for (size_t column = 0; at < end; column++) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        size_t len = bar ? (size_t)(bar - at) : (size_t)(end - at);
        if (!bar && strspn(at, " ") >= len)
            break;
        while (len > 0 && *at == ' ') {
            at++;
            len--;
        }
        size_t trimmed = len;
        while (trimmed > 0 && at[trimmed - 1] == ' ')
            trimmed--;
        buf_printf(out, "<%s%s>", tag, column < columns && right[column] ? " class=\"r\"" : "");
        put_inline(out, at, trimmed);
        buf_printf(out, "</%s>", tag);
        at += len + 1;
    }
    buf_puts(out, "</tr>\n");
}

enum { COLUMNS_MAX = 64 };

/* "| --- | ---: |": which columns stand to the right. */
static size_t read_alignment(const struct line *line, bool right[COLUMNS_MAX])
{
    size_t columns = 0;
    for (size_t i = 1; i < line->len && columns < COLUMNS_MAX; i++)
        if (line->text[i] == '|')
            right[columns++] = line->text[i - 1] == ':' ||
                               (i > 1 && line->text[i - 1] == ' ' && line->text[i - 2] == ':');
    return columns;
}

static void put_table(struct buf *out, const struct line *first, const char **rest)
{
    bool right[COLUMNS_MAX] = {false};
    struct line line;
    const char *ahead = *rest;
    size_t columns = 0;
    if (next_line(&ahead, &line) && starts(&line, "|") && strspn(line.text, "|-: ") >= line.len) {
        columns = read_alignment(&line, right);
        *rest = ahead;
    }
    buf_puts(out, "<div class=\"table\"><table>\n<thead>");
    put_row(out, first, "th", right, columns);
    buf_puts(out, "</thead>\n<tbody>\n");
    for (ahead = *rest; next_line(&ahead, &line) && starts(&line, "|"); *rest = ahead)
        put_row(out, &line, "td", right, columns);
    buf_puts(out, "</tbody></table></div>\n");
}

/* A line and those that go on with it, as one text. */
static void put_flow(struct buf *out, const char *text, size_t len, const char **rest)
{
    struct buf whole = {0};
    struct line line;
    buf_append(&whole, text, len);
    for (const char *ahead = *rest; next_line(&ahead, &line) && !is_block(&line); *rest = ahead) {
        buf_putc(&whole, ' ');
        buf_append(&whole, line.text, line.len);
    }
    put_inline(out, whole.data, whole.len);
    buf_free(&whole);
}

static void put_list(struct buf *out, const struct line *first, const char **rest)
{
    struct line line = *first;
    buf_puts(out, "<ul>\n");
    for (;;) {
        buf_puts(out, "<li>");
        put_flow(out, line.text + 2, line.len - 2, rest);
        buf_puts(out, "</li>\n");
        const char *ahead = *rest;
        if (!next_line(&ahead, &line) || !starts(&line, "- "))
            break;
        *rest = ahead;
    }
    buf_puts(out, "</ul>\n");
}

static void put_blocks(const struct page *page, const char *markdown, unsigned depth);

static void put_quote(const struct page *page, const struct line *first, const char **rest,
                      unsigned depth)
{
    struct buf inner = {0};
    struct line line = *first;
    for (;;) {
        size_t skip = starts(&line, "> ") ? 2 : 1;
        buf_append(&inner, line.text + skip, line.len - skip);
        buf_putc(&inner, '\n');
        const char *ahead = *rest;
        if (!next_line(&ahead, &line) || !starts(&line, ">"))
            break;
        *rest = ahead;
    }
    buf_puts(page->out, "<blockquote>\n");
    put_blocks(page, inner.data, depth + 1);
    buf_puts(page->out, "</blockquote>\n");
    buf_free(&inner);
}

/* ![name](charts/name.svg): the picture itself. Another image is none of ours: nothing is shown. */
static void put_picture(const struct page *page, const struct line *line)
{
    size_t len = strcspn(line->text + 2, "]\n");
    char *name = xasprintf("%.*s", len < 40 ? (int)len : 40, line->text + 2);
    struct buf picture = {0};
    if (charts_put(page->comparison, name, true, &picture)) {
        buf_puts(page->out, "<figure>\n");
        buf_append(page->out, picture.data, picture.len);
        buf_puts(page->out, "</figure>\n");
    }
    buf_free(&picture);
    free(name);
}

static void put_heading(struct buf *out, const struct line *line)
{
    size_t level = strspn(line->text, "#");
    size_t skip = level + (line->len > level && line->text[level] == ' ');
    level = level > 4 ? 4 : level;
    buf_printf(out, "<h%zu>", level);
    put_inline(out, line->text + skip, line->len - skip);
    buf_printf(out, "</h%zu>\n", level);
}

static void put_blocks(const struct page *page, const char *markdown, unsigned depth)
{
    const char *rest = markdown;
    struct line line;
    while (next_line(&rest, &line)) {
        if (line.len == 0)
            continue;
        if (starts(&line, "#")) {
            put_heading(page->out, &line);
        } else if (starts(&line, "|")) {
            put_table(page->out, &line, &rest);
        } else if (starts(&line, "- ")) {
            put_list(page->out, &line, &rest);
        } else if (starts(&line, ">") && depth < 4) {
            put_quote(page, &line, &rest, depth);
        } else if (starts(&line, "![")) {
            put_picture(page, &line);
        } else {
            buf_puts(page->out, "<p>");
            put_flow(page->out, line.text, line.len, &rest);
            buf_puts(page->out, "</p>\n");
        }
    }
}

/* ---- the page ---- */

static unsigned nibble(char c)
{
    return (unsigned)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* 'sha256-...', as a policy wants it, of 64 hexadecimal digits. */
static void put_hash(struct buf *out, const char *hex)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    buf_puts(out, "'sha256-");
    for (size_t i = 0; i < 32; i += 3) {
        unsigned bits = 0;
        for (size_t k = i; k < i + 3; k++)
            bits = bits << 8 | (k < 32 ? nibble(hex[2 * k]) << 4 | nibble(hex[2 * k + 1]) : 0);
        for (unsigned k = 0; k < 4; k++)
            buf_putc(out, i + k > 32 ? '=' : letters[bits >> (18 - 6 * k) & 63]);
    }
    buf_putc(out, '\'');
}

static void put_head(const struct page *page)
{
    struct buf *out = page->out;
    const struct manifest *reference = page->comparison->reference;
    buf_puts(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                  "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                  "script-src ");
    put_hash(out, compare_js_sha256);
    buf_puts(out, "; style-src ");
    put_hash(out, charts_css_sha256);
    buf_putc(out, ' ');
    put_hash(out, compare_css_sha256);
    buf_puts(out, "; base-uri 'none'; form-action 'none'\"/>\n"
                  "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
                  "<meta name=\"color-scheme\" content=\"light dark\"/>\n<title>sluice: ");
    svg_text(out, reference ? reference->scenario : "a comparison");
    buf_printf(out, "</title>\n<style>%s</style>\n<style>%s</style>\n</head>\n<body>\n<main>\n",
               charts_css, compare_css);
}

void compare_html(const struct comparison *comparison, const char *markdown, struct buf *out)
{
    struct page page = {comparison, out};
    put_head(&page);
    put_blocks(&page, markdown, 0);
    buf_printf(out, "</main>\n<script>%s</script>\n</body>\n</html>\n", compare_js);
}
