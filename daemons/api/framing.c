#include "api/framing.h"

#include <string.h>
#include <strings.h>

/* A token of RFC 9110, section 5.6.2: no white space, no separators, no control bytes. */
static bool is_token(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c <= ' ' || c >= 0x7f || strchr("\"(),/:;<=>?@[\\]{}", c)) {
            return false;
        }
    }
    return len > 0;
}

static bool is(const char *text, size_t len, const char *word)
{
    return len == strlen(word) && strncasecmp(text, word, len) == 0;
}

static void trim(const char **text, size_t *len)
{
    while (*len > 0 && (**text == ' ' || **text == '\t')) {
        (*text)++;
        (*len)--;
    }
    while (*len > 0 && ((*text)[*len - 1] == ' ' || (*text)[*len - 1] == '\t')) {
        (*len)--;
    }
}

static void content_length(struct framing *framing, const char *value, size_t len)
{
    framing->content_lengths++;
    int64_t bytes = 0;
    for (size_t i = 0; i < len; i++) {
        if (value[i] < '0' || value[i] > '9') {
            framing->fault = "Content-Length is not a decimal number";
            return;
        }
        int digit = value[i] - '0';
        bytes = bytes > (INT64_MAX - digit) / 10 ? INT64_MAX : 10 * bytes + digit;
    }
    if (len == 0) {
        framing->fault = "Content-Length is empty";
    }
    framing->body_bytes = bytes;
}

/* "application/json", with or without parameters. */
static bool is_json(const char *value, size_t len)
{
    const char *semicolon = memchr(value, ';', len);
    size_t type_bytes = semicolon ? (size_t)(semicolon - value) : len;
    trim(&value, &type_bytes);
    return is(value, type_bytes, "application/json");
}

void framing_header(struct framing *framing, const char *name, size_t name_bytes, const char *value,
                    size_t value_bytes)
{
    if (!is_token(name, name_bytes)) {
        framing->fault = "a header's name holds white space or another byte that it must not";
        return;
    }
    if (!value) {
        value = "";
        value_bytes = 0;
    }
    for (size_t i = 0; i < value_bytes; i++) {
        if (value[i] == '\0' || value[i] == '\r' || value[i] == '\n') {
            framing->fault = "a header's value holds a line break or a NUL byte";
            return;
        }
    }
    trim(&value, &value_bytes);
    if (is(name, name_bytes, "content-length")) {
        content_length(framing, value, value_bytes);
    } else if (is(name, name_bytes, "transfer-encoding")) {
        framing->transfer_encodings++;
        framing->chunked = is(value, value_bytes, "chunked");
        if (!framing->chunked) {
            framing->fault = "a Transfer-Encoding other than plain chunked is not taken";
        }
    } else if (is(name, name_bytes, "host")) {
        framing->hosts++;
    } else if (is(name, name_bytes, "content-type")) {
        framing->json = is_json(value, value_bytes);
    } else if (is(name, name_bytes, "content-encoding")) {
        framing->coded = !is(value, value_bytes, "identity");
    } else if (is(name, name_bytes, "expect")) {
        framing->expects_continue = is(value, value_bytes, "100-continue");
    }
}

const char *framing_end(struct framing *framing, const char *version)
{
    if (framing->fault) {
        return framing->fault;
    }
    bool is_1_1 = strcmp(version, "HTTP/1.1") == 0;
    if (!is_1_1 && strcmp(version, "HTTP/1.0") != 0) {
        framing->fault = "only HTTP/1.1 and HTTP/1.0 are spoken here";
    } else if (framing->content_lengths > 1) {
        framing->fault = "there is more than one Content-Length";
    } else if (framing->transfer_encodings > 1) {
        framing->fault = "there is more than one Transfer-Encoding";
    } else if (framing->content_lengths > 0 && framing->transfer_encodings > 0) {
        framing->fault = "Content-Length and Transfer-Encoding exclude each other";
    } else if (framing->transfer_encodings > 0 && !is_1_1) {
        framing->fault = "HTTP/1.0 has no Transfer-Encoding";
    } else if (framing->hosts > 1 || (is_1_1 && framing->hosts == 0)) {
        framing->fault = "there must be exactly one Host header";
    }
    return framing->fault;
}
