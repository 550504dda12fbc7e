#include "response.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>

/* What the headers say about where the body ends and what comes after it. */
struct framing {
    bool has_length;
    size_t length;
    bool chunked;
    bool close;
    bool keep_alive;
};

static ssize_t bad(const char **why, const char *text)
{
    *why = text;
    return -EBADMSG;
}

static bool is_token_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool word_is(const char *word, size_t len, const char *want)
{
    return len == strlen(want) && strncasecmp(word, want, len) == 0;
}

/* "HTTP/1.x NNN [reason]"; line ends before its CRLF. */
static int parse_status_line(const char *line, size_t len, int *status, bool *http11,
                             const char **why)
{
    if (len < 12 || memcmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') ||
        line[8] != ' ' || (len > 12 && line[12] != ' '))
        return (int)bad(why, "not an HTTP/1.0 or HTTP/1.1 status line");
    if (!is_digit(line[9]) || !is_digit(line[10]) || !is_digit(line[11]) || line[9] < '1' ||
        line[9] > '5')
        return (int)bad(why, "status code is not 100 to 599");
    for (size_t i = 12; i < len; i++)
        if (((unsigned char)line[i] < ' ' && line[i] != '\t') || line[i] == 0x7f)
            return (int)bad(why, "control byte in the reason phrase");
    *status = (line[9] - '0') * 100 + (line[10] - '0') * 10 + (line[11] - '0');
    *http11 = line[7] == '1';
    return 0;
}

static int parse_length(const char *value, size_t len, struct framing *framing, const char **why)
{
    size_t number = 0;

    if (framing->has_length)
        return (int)bad(why, "Content-Length is there twice");
    if (len == 0 || len > 18)
        return (int)bad(why, "Content-Length is not a number");
    for (size_t i = 0; i < len; i++) {
        if (!is_digit(value[i]))
            return (int)bad(why, "Content-Length is not a number");
        number = number * 10 + (size_t)(value[i] - '0');
    }
    framing->has_length = true;
    framing->length = number;
    return 0;
}

/* A list of words, "keep-alive, close". */
static void parse_connection(const char *value, size_t len, struct framing *framing)
{
    const char *end = value + len;

    while (value < end) {
        const char *comma = memchr(value, ',', (size_t)(end - value));
        const char *stop = comma ? comma : end;
        const char *last = stop;

        while (value < last && (*value == ' ' || *value == '\t'))
            value++;
        while (last > value && (last[-1] == ' ' || last[-1] == '\t'))
            last--;
        framing->close |= word_is(value, (size_t)(last - value), "close");
        framing->keep_alive |= word_is(value, (size_t)(last - value), "keep-alive");
        value = stop + (comma ? 1 : 0);
    }
}

static int parse_header(const char *line, size_t len, struct framing *framing, const char **why)
{
    const char *end = line + len, *value;
    size_t name_len = 0;

    while (name_len < len && is_token_char(line[name_len]))
        name_len++;
    if (name_len == 0 || name_len == len || line[name_len] != ':')
        return (int)bad(why, "malformed header line");
    value = line + name_len + 1;
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    for (const char *c = value; c < end; c++)
        if (((unsigned char)*c < ' ' && *c != '\t') || *c == 0x7f)
            return (int)bad(why, "control byte in a header");

    if (word_is(line, name_len, "content-length"))
        return parse_length(value, (size_t)(end - value), framing, why);
    if (word_is(line, name_len, "transfer-encoding")) {
        if (framing->chunked || !word_is(value, (size_t)(end - value), "chunked"))
            return (int)bad(why, "Transfer-Encoding is not plain chunked");
        framing->chunked = true;
    }
    if (word_is(line, name_len, "connection"))
        parse_connection(value, (size_t)(end - value), framing);
    return 0;
}

/* Length of the line at in without its CRLF, -1 when it is not all there, -EBADMSG for a bare LF or
 * CR or a line that is too long. */
static ssize_t line_length(const char *in, size_t len, size_t max, const char **why)
{
    const char *lf = memchr(in, '\n', len < max ? len : max);

    if (!lf)
        return len >= max ? bad(why, "head or line is too long") : -1;
    if (lf == in || lf[-1] != '\r')
        return bad(why, "a line ends in LF without CR");
    return lf - in - 1;
}

/* One head, status line to empty line. Returns its length, 0 for more, -EBADMSG. */
static ssize_t parse_head(const char *in, size_t len, int *status, bool *http11,
                          struct framing *framing, const char **why)
{
    static const char start[] = "HTTP/1.";
    size_t at = 0, known = len < sizeof(start) - 1 ? len : sizeof(start) - 1;
    bool first = true;

    // Told at once, not at the timeout: a server that speaks something else sends no CRLF, maybe.
    if (memcmp(in, start, known) != 0)
        return bad(why, "not an HTTP/1.0 or HTTP/1.1 status line");
    memset(framing, 0, sizeof(*framing));
    for (;;) {
        ssize_t line = line_length(in + at, len - at, RESPONSE_HEAD_MAX - at, why);

        if (line == -1)
            return 0;
        if (line < 0)
            return line;
        if (line == 0 && !first)
            break;
        if (first ? parse_status_line(in, (size_t)line, status, http11, why) < 0
                  : parse_header(in + at, (size_t)line, framing, why) < 0)
            return -EBADMSG;
        first = false;
        at += (size_t)line + 2;
    }
    if (framing->chunked && framing->has_length)
        return bad(why, "both Content-Length and Transfer-Encoding");
    return (ssize_t)at + 2;
}

/* The size line of a chunk, extensions ignored. */
static int parse_chunk_size(const char *line, size_t len, size_t *size, const char **why)
{
    size_t i = 0;

    *size = 0;
    for (; i < len && line[i] != ';' && line[i] != ' ' && line[i] != '\t'; i++) {
        char c = (char)(line[i] | 0x20);
        unsigned digit;

        if (is_digit(line[i]))
            digit = (unsigned)(line[i] - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (unsigned)(c - 'a') + 10;
        else
            return (int)bad(why, "chunk size is not hexadecimal");
        *size = *size * 16 + digit;
        if (*size > RESPONSE_MAX)
            return (int)bad(why, "response is too large");
    }
    return i == 0 ? (int)bad(why, "chunk size is missing") : 0;
}

/* Returns the length of the chunked body with its trailers, 0 for more, -EBADMSG. */
static ssize_t parse_chunked(const char *in, size_t len, struct response *out, const char **why)
{
    struct framing ignored = {0};
    size_t at = 0, size;

    out->body = out->chunked;
    out->body_bytes = 0;
    for (;;) {
        ssize_t line = line_length(in + at, len - at, 1024, why);
        size_t room = sizeof(out->chunked) - out->body_bytes;

        if (line < 0)
            return line == -1 ? 0 : line;
        if (parse_chunk_size(in + at, (size_t)line, &size, why) < 0)
            return -EBADMSG;
        at += (size_t)line + 2;
        if (size == 0)
            break;
        if (len - at < size + 2)
            return 0;
        if (in[at + size] != '\r' || in[at + size + 1] != '\n')
            return bad(why, "chunk does not end in CRLF");
        if (room > size)
            room = size;
        memcpy(out->chunked + out->body_bytes, in + at, room);
        out->body_bytes += room;
        at += size + 2;
    }

    for (;;) { // trailers
        ssize_t line = line_length(in + at, len - at, RESPONSE_HEAD_MAX, why);

        if (line < 0)
            return line == -1 ? 0 : line;
        if (line > 0 && parse_header(in + at, (size_t)line, &ignored, why) < 0)
            return -EBADMSG;
        at += (size_t)line + 2;
        if (line == 0)
            return (ssize_t)at;
    }
}

static ssize_t more(size_t len, bool eof, const char **why)
{
    if (eof)
        return bad(why, "connection closed in the middle of a response");
    if (len >= RESPONSE_MAX)
        return bad(why, "response is too large");
    return 0;
}

ssize_t response_parse(const char *in, size_t len, bool eof, struct response *out, const char **why)
{
    struct framing framing;
    ssize_t rc;
    size_t at = 0;
    bool http11 = false;

    do {
        rc = parse_head(in + at, len - at, &out->status, &http11, &framing, why);
        if (rc <= 0)
            return rc < 0 ? rc : more(len, eof, why);
        at += (size_t)rc;
        if (out->status == 101)
            return bad(why, "101 Switching Protocols was not asked for");
    } while (out->status < 200);

    out->keep_alive = !framing.close && (http11 || framing.keep_alive);
    out->body = in + at;
    out->body_bytes = 0;
    if (out->status == 204 || out->status == 304)
        return (ssize_t)at;
    if (framing.chunked) {
        rc = parse_chunked(in + at, len - at, out, why);
        if (rc <= 0)
            return rc < 0 ? rc : more(len, eof, why);
        return (ssize_t)at + rc;
    }
    if (framing.has_length) {
        if (framing.length > RESPONSE_MAX - at)
            return bad(why, "response is too large");
        if (len - at < framing.length)
            return more(len, eof, why);
        out->body_bytes = framing.length;
        return (ssize_t)(at + framing.length);
    }
    if (!eof) // no length: the body ends where the connection does
        return more(len, eof, why);
    out->body_bytes = len - at;
    out->keep_alive = false;
    return (ssize_t)len;
}
