/* Oracle: a corpus written from RFC 9112, each entry with the status, body and connection state it
 * must give, or rejected. Every valid one is fed cut at every byte: each shorter prefix must ask
 * for more, and the parser must never take more than the response. A prefix is copied to memory of
 * exactly its size, so that ASan sees any read past it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "response.h"

struct good {
    const char *text;
    int status;
    const char *body;
    bool keep_alive;
    bool until_close; /* complete only when the connection has closed */
};

static const struct good good[] = {
    {"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}", 202, "{}", true, false},
    {"HTTP/1.1 202 \r\nContent-Length: 0\r\n\r\n", 202, "", true, false},
    {"HTTP/1.1 202\r\ncontent-length:3\r\n\r\nabc", 202, "abc", true, false},
    {"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nContent-Length:\t1 \r\n\r\nx", 503, "x",
     true, false},
    {"HTTP/1.1 202 A\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", 202, "x", false, false},
    {"HTTP/1.1 202 A\r\nConnection: foo, Close\r\nContent-Length: 1\r\n\r\nx", 202, "x", false,
     false},
    {"HTTP/1.0 202 A\r\nContent-Length: 1\r\n\r\nx", 202, "x", false, false},
    {"HTTP/1.0 202 A\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", 202, "x", true,
     false},
    {"HTTP/1.1 204 No Content\r\n\r\n", 204, "", true, false},
    {"HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\n\r\n", 304, "", true, false},
    {"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 A\r\nContent-Length: 1\r\n\r\nx", 202, "x", true,
     false},
    {"HTTP/1.1 103 Early\r\nA: b\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 500 E\r\nContent-Length: "
     "0\r\n\r\n",
     500, "", true, false},
    {"HTTP/1.1 202 A\r\nTransfer-Encoding: "
     "chunked\r\n\r\n2\r\nab\r\nA;x=y\r\n0123456789\r\n0\r\n\r\n",
     202, "ab0123456789", true, false},
    {"HTTP/1.1 202 A\r\nTransfer-Encoding: Chunked\r\n\r\n0\r\nTrailer: t\r\n\r\n", 202, "", true,
     false},
    {"HTTP/1.1 202 A\r\n\r\nto the end", 202, "to the end", false, true},
    {"HTTP/1.1 202 A\r\n\r\n", 202, "", false, true},
    {"HTTP/1.1 599 A\tB\xc3\xa4\r\nX-Empty:\r\nContent-Length: 0\r\n\r\n", 599, "", true, false},
};

/* Parses a copy of exactly len bytes. */
static ssize_t parse(const char *text, size_t len, bool eof, struct response *out, char *body)
{
    char *copy = malloc(len ? len : 1);
    const char *why = NULL;
    ssize_t rc;

    memcpy(copy, text, len);
    rc = response_parse(copy, len, eof, out, &why);
    if (rc > 0) {
        memcpy(body, out->body, out->body_bytes);
        body[out->body_bytes] = '\0';
    } else if (rc < 0) {
        assert_int_equal(rc, -EBADMSG);
        assert_non_null(why);
    }
    free(copy);
    return rc;
}

static void valid_cut_everywhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        const struct good *g = &good[i];
        size_t len = strlen(g->text);
        struct response response;
        char body[2048];
        ssize_t rc;

        for (size_t cut = 0; cut < len; cut++) {
            if (parse(g->text, cut, false, &response, body) != 0)
                fail_msg("entry %zu cut at %zu is not taken as incomplete", i, cut);
            // With its connection closed, what is cut short is an error, never a shorter answer;
            // but for a body that only the close ends.
            if (!g->until_close && parse(g->text, cut, true, &response, body) >= 0)
                fail_msg("entry %zu cut at %zu and closed is not refused", i, cut);
        }
        rc = parse(g->text, len, g->until_close, &response, body);
        if (rc != (ssize_t)len || response.status != g->status || strcmp(body, g->body) != 0 ||
            response.keep_alive != g->keep_alive)
            fail_msg("entry %zu: %zd, status %d, body \"%s\"", i, rc, response.status, body);
    }
}

static void leaves_what_follows(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct buf two = {0};
        struct response response;
        char body[2048];

        if (good[i].until_close)
            continue;
        buf_puts(&two, good[i].text);
        buf_puts(&two, good[i].text);
        assert_int_equal(parse(two.data, two.len, false, &response, body), strlen(good[i].text));
        assert_string_equal(body, good[i].body);
        buf_free(&two);
    }
}

static void invalid(void **state)
{
    static const char *const bad[] = {
        "SSH-2.0-OpenSSH_9.2\r\n",
        "<html>",
        "X",
        "http/1.1 202 A\r\n\r\n",
        "HTTP/2 202 A\r\n\r\n",
        "HTTP/1.2 202 A\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.1  202 A\r\n\r\n",
        "HTTP/1.1 20 A\r\n\r\n",
        "HTTP/1.1 2020 A\r\n\r\n",
        "HTTP/1.1 099 A\r\n\r\n",
        "HTTP/1.1 600 A\r\n\r\n",
        "HTTP/1.1 2x2 A\r\n\r\n",
        "HTTP/1.1 202 A\x01\r\n\r\n",
        "HTTP/1.1 202 A\nContent-Length: 0\n\n",
        "HTTP/1.1 202 A\r\nContent-Length: 0\n\r\n",
        "HTTP/1.1 202 AB\nContent-Length: 00\r\n\r\n",
        "HTTP/1.1 202 A\r\nContent-Length: 00\n\r\n",
        "HTTP/1.1 202 A\r\nContent-Length : 0\r\n\r\n",
        "HTTP/1.1 202 A\r\n Content-Length: 0\r\n\r\n",
        "HTTP/1.1 202 A\r\nX: a\r\n b\r\n\r\n",
        "HTTP/1.1 202 A\r\n: x\r\n\r\n",
        "HTTP/1.1 202 A\r\nno colon\r\n\r\n",
        "HTTP/1.1 202 A\r\nX: a\x01\r\n\r\n",
        "HTTP/1.1 202 A\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 202 A\r\nContent-Length: +1\r\n\r\nx",
        "HTTP/1.1 202 A\r\nContent-Length: 0x1\r\n\r\nx",
        "HTTP/1.1 202 A\r\nContent-Length: 1, 1\r\n\r\nx",
        "HTTP/1.1 202 A\r\nContent-Length:\r\n\r\n",
        "HTTP/1.1 202 A\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        "HTTP/1.1 202 A\r\nContent-Length: 18446744073709551617\r\n\r\nx",
        "HTTP/1.1 202 A\r\nContent-Length: 99999999\r\n\r\n",
        "HTTP/1.1 202 A\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: identity\r\n\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\n0\n\n",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct response response;
        char body[2048];

        if (parse(bad[i], strlen(bad[i]), false, &response, body) >= 0)
            fail_msg("entry %zu is not refused: %s", i, bad[i]);
    }
}

/* What never ends is refused once it is too long, not kept for ever. */
static void endless(void **state)
{
    static const char *const starts[] = {
        "HTTP/1.1 202 ",
        "HTTP/1.1 202 A\r\nX: ",
        "HTTP/1.1 202 A\r\n\r\n",
        "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    };

    (void)state;
    for (size_t i = 0; i < sizeof(starts) / sizeof(starts[0]); i++) {
        struct response response;
        struct buf text = {0};
        const char *why;

        buf_puts(&text, starts[i]);
        while (text.len < RESPONSE_MAX)
            buf_puts(&text, "aaaaaaaaaaaaaaaa");
        assert_int_equal(response_parse(text.data, text.len, false, &response, &why), -EBADMSG);
        buf_free(&text);
    }
}

/* Long chunked bodies are walked to their end, only their start is kept. */
static void long_chunked(void **state)
{
    struct response response;
    struct buf text = {0};
    const char *why;

    (void)state;
    buf_puts(&text, "HTTP/1.1 202 A\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (int i = 0; i < 30; i++)
        buf_puts(&text,
                 "64\r\n0123456789012345678901234567890123456789012345678901234567890123456789"
                 "012345678901234567890123456789\r\n");
    buf_puts(&text, "0\r\n\r\n");
    assert_int_equal(response_parse(text.data, text.len, false, &response, &why), text.len);
    assert_int_equal(response.body_bytes, RESPONSE_CHUNKED_KEEP_BYTES);
    assert_memory_equal(response.body + 1020, "0123", 4);
    buf_free(&text);
}

/* Any single byte changed: no crash, and nothing but 0, -EBADMSG, or a length within the input. */
static void flipped_bytes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        size_t len = strlen(good[i].text);
        char *text = strdup(good[i].text), body[2048];

        for (size_t at = 0; at < len; at++) {
            for (int byte = 0; byte < 256; byte++) {
                struct response response;
                ssize_t rc;

                text[at] = (char)byte;
                rc = parse(text, len, true, &response, body);
                assert_true(rc < 0 || (rc > 0 && (size_t)rc <= len));
            }
            text[at] = good[i].text[at];
        }
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_cut_everywhere),
        cmocka_unit_test(leaves_what_follows),
        cmocka_unit_test(invalid),
        cmocka_unit_test(endless),
        cmocka_unit_test(long_chunked),
        cmocka_unit_test(flipped_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
