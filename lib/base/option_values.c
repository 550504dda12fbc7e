/* The parsers behind the types, and the redaction of URLs. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/options.h"
#include "base/url_password.h"

struct unit {
    const char *name;
    int64_t factor;
};

int option_parse_decimal(const char *text, double *value, struct err *err)
{
    char *end;
    /* strtod alone would take "inf", "nan", "0x1p3" and leading blanks */
    if (text[0] == '\0' || text[strspn(text, "0123456789.eE+-")] != '\0')
        return err_set(err, -EINVAL, "\"%s\" is not a number", text);
    errno = 0;
    *value = strtod(text, &end);
    if (*end != '\0' || errno == ERANGE || !isfinite(*value))
        return err_set(err, -EINVAL, "\"%s\" is not a number", text);
    return 0;
}

int option_parse_int(const char *text, int64_t *value, struct err *err)
{
    const char *digits = text[0] == '-' ? text + 1 : text;
    if (digits[0] == '\0' || digits[strspn(digits, "0123456789")] != '\0')
        return err_set(err, -EINVAL, "\"%s\" is not a whole number", text);
    errno = 0;
    *value = strtoll(text, NULL, 10);
    if (errno == ERANGE)
        return err_set(err, -EINVAL, "\"%s\" is too large", text);
    return 0;
}

static int parse_with_unit(const char *text, const struct unit *units, const char *kind,
                           const char *example, int64_t *value, struct err *err)
{
    size_t digits = strspn(text, "0123456789.");
    const char *suffix = text + digits;
    const struct unit *unit = units;
    while (unit->name && strcmp(unit->name, suffix) != 0)
        unit++;
    double number = 0;
    char copy[64];
    if (digits == 0 || digits >= sizeof(copy) || !unit->name)
        return err_set(err, -EINVAL, "\"%s\" is not a %s; write it like %s", text, kind, example);
    memcpy(copy, text, digits);
    copy[digits] = '\0';
    if (option_parse_decimal(copy, &number, NULL) < 0)
        return err_set(err, -EINVAL, "\"%s\" is not a %s; write it like %s", text, kind, example);
    double scaled = number * (double)unit->factor;
    if (scaled > 9.2e18)
        return err_set(err, -EINVAL, "\"%s\" is too large", text);
    *value = llround(scaled);
    return 0;
}

static const struct unit duration_units[] = {
    {"ns", 1},       {"us", NS_PER_US},    {"ms", NS_PER_MS},
    {"s", NS_PER_S}, {"m", 60 * NS_PER_S}, {"h", 3600 * NS_PER_S},
    {NULL, 0},
};

static const struct unit size_units[] = {
    {"", 1},          {"B", 1},           {"KiB", 1 << 10},
    {"MiB", 1 << 20}, {"GiB", 1LL << 30}, {"TiB", 1LL << 40},
    {"kB", 1000},     {"MB", 1000000},    {"GB", 1000000000},
    {NULL, 0},
};

/* In the largest unit that needs no fraction, so that it reads back as the same number. */
static void with_unit(int64_t value, const struct unit *units, char *out, size_t out_bytes)
{
    const struct unit *best = NULL;
    for (const struct unit *unit = units; unit->name && value != 0; unit++) {
        if (value % unit->factor == 0 && (!best || unit->factor >= best->factor))
            best = unit;
    }
    snprintf(out, out_bytes, "%lld%s", (long long)(best ? value / best->factor : value),
             best ? best->name : "");
}

char *option_range(const struct option_spec *spec, char *out, size_t out_bytes)
{
    char ends[2][32];
    const struct unit *units = spec->type == OPTION_DURATION ? duration_units
                               : spec->type == OPTION_SIZE   ? size_units
                                                             : NULL;
    bool number = units || spec->type == OPTION_INT || spec->type == OPTION_DECIMAL;
    out[0] = '\0';
    if (!number || (spec->min == 0 && spec->max == 0))
        return out;
    for (int i = 0; i < 2; i++) {
        int64_t value = i == 0 ? spec->min : spec->max;
        if (units)
            with_unit(value, units, ends[i], sizeof(ends[i]));
        else
            snprintf(ends[i], sizeof(ends[i]), "%lld", (long long)value);
    }
    if (spec->max == INT64_MAX)
        snprintf(out, out_bytes, "at least %s", ends[0]);
    else
        snprintf(out, out_bytes, "%s to %s", ends[0], ends[1]);
    return out;
}

int option_parse_duration(const char *text, int64_t *duration_ns, struct err *err)
{
    if (strcmp(text, "0") == 0) {
        *duration_ns = 0;
        return 0;
    }
    return parse_with_unit(text, duration_units, "duration", "500us, 60ms, 1.5s, 5m or 1h",
                           duration_ns, err);
}

int option_parse_size(const char *text, int64_t *bytes, struct err *err)
{
    return parse_with_unit(text, size_units, "size", "4096, 256KiB, 64MiB or 2GiB", bytes, err);
}

static void append(char *out, size_t out_bytes, size_t *at, const char *text, size_t len)
{
    if (out_bytes == 0)
        return;
    size_t room = out_bytes - 1 - *at;
    if (len > room)
        len = room;
    memcpy(out + *at, text, len);
    *at += len;
    out[*at] = '\0';
}

/* Copies text, replacing the value after every "password=" (a query parameter or a libpq keyword).
 */
static void append_without_keyword(char *out, size_t out_bytes, size_t *at, const char *text)
{
    static const char key[] = "password=";
    for (;;) {
        const char *found = strcasestr(text, key);
        if (!found) {
            append(out, out_bytes, at, text, strlen(text));
            return;
        }
        const char *value = found + strlen(key);
        append(out, out_bytes, at, text, (size_t)(value - text));
        append(out, out_bytes, at, "***", 3);
        if (*value == '\'') { /* libpq quotes with ', and escapes with a backslash */
            value++;
            while (*value && *value != '\'')
                value += value[0] == '\\' && value[1] ? 2 : 1;
            text = *value ? value + 1 : value;
        } else {
            text = value + strcspn(value, "& ");
        }
    }
}

/* ":5432/db": after a user's name that holds a raw '@', a port looks as a password would. */
static bool is_port(const char *colon)
{
    size_t digits = strspn(colon + 1, "0123456789");
    return digits > 0 && strchr("/?#", colon[1 + digits]);
}

size_t url_password(const char *url, const char **begin)
{
    const char *scheme_end = strstr(url, "://");
    const char *authority = scheme_end ? scheme_end + 3 : NULL;
    const char *colon = authority ? strchr(authority, ':') : NULL;
    const char *host = colon ? strrchr(colon, '@') : NULL;
    if (!host) {
        return 0;
    }
    /* What lies before may be a path, or a user with a raw '@'. */
    const char *path = strpbrk(authority, "/?#"), *at = strchr(authority, '@');
    if ((path && path < colon && at > path) || (at < colon && is_port(colon))) {
        return 0;
    }
    *begin = colon + 1;
    return (size_t)(host - *begin);
}

bool url_password_is_safe(const char *url)
{
    static const char unreserved[] = "-._~!$&'()*+,;=";
    const char *at = NULL, *end;
    size_t len = url_password(url, &at);
    if (len == 0) {
        return true;
    }
    end = at + len;
    /* host:port/path?user=a@b has none, though redaction takes no chances with it. */
    const char *question = memchr(at, '?', len);
    if (is_port(at - 1) && question && memchr(question, '=', (size_t)(end - question))) {
        return true;
    }
    while (at < end) {
        bool escape = at[0] == '%' && end - at > 2 && isxdigit((unsigned char)at[1]) &&
                      isxdigit((unsigned char)at[2]);
        if (!escape && !isalnum((unsigned char)*at) && !strchr(unreserved, *at)) {
            return false;
        }
        at += escape ? 3 : 1;
    }
    return true;
}

char *url_redact(const char *url, char *out, size_t out_bytes)
{
    size_t at = 0;
    if (out_bytes > 0)
        out[0] = '\0';
    const char *password = NULL, *rest = url;
    size_t len = url_password(url, &password);
    if (password) {
        append(out, out_bytes, &at, url, (size_t)(password - url));
        append(out, out_bytes, &at, "***", 3);
        rest = password + len;
    }
    append_without_keyword(out, out_bytes, &at, rest);
    return out;
}

char *url_redacted(const char *text)
{
    size_t room = 4 * strlen(text) + 32; /* what is hidden may be shorter than what stands for it */
    char *shown = xmalloc(room);
    return url_redact(text, shown, room);
}
