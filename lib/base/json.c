#include "base/json.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "base/utf8.h"

struct scan {
    const char *text;
    size_t len;
    size_t at;
    struct err *err;
};

static int fail(struct scan *s, const char *what)
{
    return err_set(s->err, -EINVAL, "not JSON at byte %zu: %s", s->at, what);
}

static int peek(const struct scan *s)
{
    return s->at < s->len ? (unsigned char)s->text[s->at] : -1;
}

static void skip_space(struct scan *s)
{
    while (s->at < s->len && strchr(" \t\r\n", s->text[s->at]) && s->text[s->at])
        s->at++;
}

static bool digit(int c)
{
    return c >= '0' && c <= '9';
}

static bool skip_digits(struct scan *s)
{
    size_t start = s->at;
    while (digit(peek(s)))
        s->at++;
    return s->at > start;
}

static int scan_number(struct scan *s)
{
    if (peek(s) == '-')
        s->at++;
    if (peek(s) == '0')
        s->at++; /* nothing but a point or an exponent may follow a leading zero */
    else if (!skip_digits(s))
        return fail(s, "a digit was expected");
    if (digit(peek(s)))
        return fail(s, "a number may not start with 0");
    if (peek(s) == '.') {
        s->at++;
        if (!skip_digits(s))
            return fail(s, "a digit was expected after the point");
    }
    if (peek(s) == 'e' || peek(s) == 'E') {
        s->at++;
        if (peek(s) == '+' || peek(s) == '-')
            s->at++;
        if (!skip_digits(s))
            return fail(s, "a digit was expected in the exponent");
    }
    return 0;
}

/* Four hexadecimal digits; -1 when they are none. */
static int scan_hex4(struct scan *s)
{
    int value = 0;
    if (s->len - s->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        int c = (unsigned char)s->text[s->at + (size_t)i];
        int low = c | 0x20;
        if (digit(c))
            value = value * 16 + c - '0';
        else if (low >= 'a' && low <= 'f')
            value = value * 16 + low - 'a' + 10;
        else
            return -1;
    }
    s->at += 4;
    return value;
}

static int scan_escape(struct scan *s)
{
    int c = peek(s);
    if (c < 0 || c == 0 || !strchr("\"\\/bfnrtu", c))
        return fail(s, "an unknown escape");
    s->at++;
    if (c != 'u')
        return 0;
    int unit = scan_hex4(s);
    if (unit < 0)
        return fail(s, "four hexadecimal digits were expected after \\u");
    if (unit == 0)
        return fail(s, "\\u0000 is not accepted, databases cannot keep it");
    if (unit >= 0xdc00 && unit <= 0xdfff)
        return fail(s, "a lone low surrogate");
    if (unit >= 0xd800 && unit <= 0xdbff) {
        if (s->len - s->at < 6 || s->text[s->at] != '\\' || s->text[s->at + 1] != 'u')
            return fail(s, "a lone high surrogate");
        s->at += 2;
        int low = scan_hex4(s);
        if (low < 0xdc00 || low > 0xdfff)
            return fail(s, "a lone high surrogate");
    }
    return 0;
}

static int scan_string(struct scan *s)
{
    s->at++; /* the quote */
    for (;;) {
        /* Plain ASCII is nearly everything: pass it without a call. */
        while (s->at < s->len) {
            unsigned char byte = (unsigned char)s->text[s->at];
            if (byte < 0x20 || byte >= 0x80 || byte == '"' || byte == '\\')
                break;
            s->at++;
        }
        int c = peek(s);
        if (c < 0)
            return fail(s, "the text ends inside a string");
        if (c == '"') {
            s->at++;
            return 0;
        }
        if (c == '\\') {
            s->at++;
            int result = scan_escape(s);
            if (result < 0)
                return result;
            continue;
        }
        if (c < 0x20)
            return fail(s, "a control byte inside a string");
        size_t step = utf8_length(s->text + s->at, s->len - s->at);
        if (step == 0)
            return fail(s, "invalid UTF-8");
        s->at += step;
    }
}

static int scan_word(struct scan *s, const char *word)
{
    size_t len = strlen(word);
    if (s->len - s->at < len || memcmp(s->text + s->at, word, len) != 0)
        return fail(s, "a value was expected");
    s->at += len;
    return 0;
}

static int scan_scalar(struct scan *s)
{
    int c = peek(s);
    switch (c) {
    case '"':
        return scan_string(s);
    case 't':
        return scan_word(s, "true");
    case 'f':
        return scan_word(s, "false");
    case 'n':
        return scan_word(s, "null");
    case -1:
        return fail(s, "the text ends where a value was expected");
    default:
        if (c == '-' || digit(c))
            return scan_number(s);
        return fail(s, "a value was expected");
    }
}

static int scan_key(struct scan *s)
{
    skip_space(s);
    if (peek(s) != '"')
        return fail(s, "a key in quotes was expected");
    int result = scan_string(s);
    if (result < 0)
        return result;
    skip_space(s);
    if (peek(s) != ':')
        return fail(s, "a colon was expected after the key");
    s->at++;
    return 0;
}

/* Not recursive: a hostile body must not choose how deep our stack goes. */
int json_check(const char *text, size_t len, struct err *err)
{
    struct scan s = {.text = text, .len = len, .err = err};
    char closer[JSON_DEPTH_MAX];
    size_t depth = 0;
    bool opened = false; /* the innermost container was just opened, so it may close at once */
    for (;;) {
        skip_space(&s);
        int c = peek(&s);
        if (opened && c == closer[depth - 1]) {
            s.at++;
            depth--;
        } else {
            if (depth > 0 && closer[depth - 1] == '}') {
                int result = scan_key(&s);
                if (result < 0)
                    return result;
                skip_space(&s);
                c = peek(&s);
            }
            if (c == '{' || c == '[') {
                if (depth == JSON_DEPTH_MAX)
                    return fail(&s, "nested too deep");
                closer[depth++] = c == '{' ? '}' : ']';
                s.at++;
                opened = true;
                continue;
            }
            int result = scan_scalar(&s);
            if (result < 0)
                return result;
        }
        opened = false;
        /* A value has ended: close what closes here, then a comma or the end. */
        for (;;) {
            skip_space(&s);
            if (depth == 0)
                return s.at == len ? 0 : fail(&s, "text after the value");
            c = peek(&s);
            if (c == ',') {
                s.at++;
                break;
            }
            if (c != closer[depth - 1])
                return fail(&s, "a comma or the end of the object or array was expected");
            s.at++;
            depth--;
        }
    }
}
