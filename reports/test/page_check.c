/* Knows nothing of how the pages are made: only what may be in them. */
#include "page_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const elements[] = {
    "html", "head", "meta", "title",    "style", "body",       "main",   "h1",    "h2",
    "h3",   "h4",   "p",    "ul",       "li",    "div",        "table",  "thead", "tbody",
    "tr",   "th",   "td",   "strong",   "code",  "blockquote", "figure", "svg",   "g",
    "path", "rect", "text", "clipPath", "a",     "script",     NULL};
static const char *const attributes[] = {
    "lang",   "charset", "http-equiv", "content",   "name",        "class",     "href",
    "xmlns",  "id",      "width",      "height",    "viewBox",     "role",      "aria-label",
    "d",      "x",       "y",          "transform", "text-anchor", "clip-path", "data-plot",
    "data-x", "data-y",  "data-log",   "data-unit", NULL};
static const char *const entities[] = {"&lt;", "&gt;", "&amp;", "&quot;", NULL};

enum { DEPTH_MAX = 32, NAME_MAX_BYTES = 24 };
struct check {
    const char *page, *at;
    char open[DEPTH_MAX][NAME_MAX_BYTES];
    unsigned depth;
    char *why;
    size_t why_bytes;
};

static bool fail(struct check *check, const char *what)
{
    size_t line = 1;
    for (const char *at = check->page; at < check->at; at++)
        line += *at == '\n';
    snprintf(check->why, check->why_bytes, "line %zu: %s: %.80s", line, what, check->at);
    return false;
}

static bool listed(const char *const *list, const char *name)
{
    for (; *list; list++)
        if (strcmp(*list, name) == 0)
            return true;
    return false;
}

static size_t entity_bytes(const char *at)
{
    for (size_t i = 0; entities[i]; i++)
        if (strncmp(at, entities[i], strlen(entities[i])) == 0)
            return strlen(entities[i]);
    size_t digits = at[1] == '#' ? strspn(at + 2, "0123456789") : 0;
    bool fine = digits > 0 && digits < 4 && at[digits + 2] == ';' && atoi(at + 2) >= 32;
    return fine ? digits + 3 : 0;
}

/* One character of text. */
static bool take_text(struct check *check)
{
    unsigned char c = (unsigned char)*check->at;
    if (c == '&') {
        size_t bytes = entity_bytes(check->at);
        if (bytes == 0)
            return fail(check, "an unknown entity");
        check->at += bytes;
        return true;
    }
    if (c == '>' || (c < 0x20 && c != '\n' && c != '\t') || c == 0x7f)
        return fail(check, "a character that text must not have");
    check->at++;
    return true;
}

static bool take_name(struct check *check, char name[NAME_MAX_BYTES])
{
    size_t len =
        strspn(check->at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
    if (len == 0 || len >= NAME_MAX_BYTES)
        return fail(check, "no name");
    memcpy(name, check->at, len);
    name[len] = '\0';
    check->at += len;
    return true;
}

static bool take_attribute(struct check *check)
{
    char name[NAME_MAX_BYTES];
    check->at += strspn(check->at, " \n");
    if (!take_name(check, name))
        return false;
    if (!listed(attributes, name))
        return fail(check, "an attribute that no report has");
    if (strncmp(check->at, "=\"", 2) != 0)
        return fail(check, "an attribute without a quoted value");
    check->at += 2;
    const char *value = check->at;
    while (*check->at && *check->at != '"') {
        if (*check->at == '<')
            return fail(check, "\"<\" in an attribute");
        if (!take_text(check))
            return false;
    }
    size_t len = (size_t)(check->at - value);
    if (*check->at != '"')
        return fail(check, "an attribute that does not end");
    if (strcmp(name, "href") == 0 && strncmp(value, "https://", 8) != 0 &&
        (memchr(value, ':', len) || strncmp(value, "//", 2) == 0))
        return fail(check, "a link to something else");
    check->at++;
    return true;
}

/* Their contents are no markup. */
static bool skip_raw(struct check *check, const char *name)
{
    char end[NAME_MAX_BYTES + 4];
    snprintf(end, sizeof(end), "</%s>", name);
    const char *close = strstr(check->at, end);
    const char *any = strstr(check->at, "</");
    if (!close || any != close)
        return fail(check, "a script or style sheet that does not end where it should");
    check->at = close;
    return true;
}

static bool take_opening(struct check *check)
{
    char name[NAME_MAX_BYTES];
    if (!take_name(check, name))
        return false;
    if (!listed(elements, name))
        return fail(check, "an element that no report has");
    while (*check->at == ' ' || *check->at == '\n')
        if (!take_attribute(check))
            return false;
    if (strncmp(check->at, "/>", 2) == 0) {
        check->at += 2;
        return true;
    }
    if (*check->at != '>')
        return fail(check, "a tag that does not end");
    check->at++;
    if (check->depth == DEPTH_MAX)
        return fail(check, "too deep");
    memcpy(check->open[check->depth++], name, NAME_MAX_BYTES);
    bool raw = strcmp(name, "style") == 0 || strcmp(name, "script") == 0;
    return !raw || skip_raw(check, name);
}

static bool take_closing(struct check *check)
{
    char name[NAME_MAX_BYTES];
    if (!take_name(check, name))
        return false;
    if (check->depth == 0 || strcmp(check->open[check->depth - 1], name) != 0)
        return fail(check, "this was not opened last");
    check->depth--;
    if (*check->at++ != '>')
        return fail(check, "a tag that does not end");
    return true;
}

bool page_check(const char *page, char *why, size_t why_bytes)
{
    struct check check = {.page = page, .at = page, .why = why, .why_bytes = why_bytes};
    if (strncmp(page, "<!DOCTYPE html>\n", 16) == 0)
        check.at += 16;
    while (*check.at) {
        bool fine;
        if (strncmp(check.at, "</", 2) == 0) {
            check.at += 2;
            fine = take_closing(&check);
        } else if (*check.at == '<') {
            check.at++;
            fine = take_opening(&check);
        } else {
            fine = take_text(&check);
        }
        if (!fine)
            return false;
    }
    return check.depth == 0 || fail(&check, "something was not closed");
}
