/* Oracle: the table of answers in docs (README, "What the front end promises") and RFC 9112: one
 * raw request a row, the real server with the sink memory, its bytes read back. After an answer
 * that keeps the connection, a good request on it must be answered 202: so the end of the one
 * before was seen where it is. The mutated requests are drawn from a seed, printed on failure
 * (CORPUS_SEED sets it). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <microhttpd.h>

#include "client.h"

static struct server server;
static const char *binary;

#define ID      "0199b4c1-7c1e-7e35-9a3c-2f2f2b6c8d11"
#define POST    "POST /task HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
#define GOOD    POST "Content-Length: 13\r\n\r\n{\"payload\":1}"
#define CHUNKED POST "Transfer-Encoding: chunked\r\n\r\n"

enum after { KEPT, CLOSED };

struct row {
    const char *what;
    const char *request;
    int code; /* 0: closed without an answer */
    enum after after;
    const char *head; /* must be in the answer's header; NULL: nothing */
    const char *body; /* the same for its body */
};

static const struct row rows[] = {
    {"the last brace missing", POST "Content-Length: 56\r\n\r\n{\"id\":\"" ID "\",\"payload\":1",
     400, KEPT, "Content-Type: application/json", "\"error\":\"bad request\""},
    {"with an id", POST "Content-Length: 60\r\n\r\n{\"id\":\"" ID "\",\"payload\":null}", 202, KEPT,
     "Content-Type: application/json", "{\"id\":\"" ID "\"}"},
    {"without an id", GOOD, 202, KEPT, "Content-Length: 46", "{\"id\":\"01"},
    {"any case of header names",
     "POST /task HTTP/1.1\r\nhOST:a\r\ncontent-TYPE:APPLICATION/JSON; charset=utf-8\r\n"
     "CONTENT-length:13\r\n\r\n{\"payload\":1}",
     202, KEPT, NULL, NULL},
    {"query string",
     "POST /task?x=1 HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
     "Content-Length: 13\r\n\r\n{\"payload\":1}",
     202, KEPT, NULL, NULL},
    {"absolute form",
     "POST http://a/task HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
     "Content-Length: 13\r\n\r\n{\"payload\":1}",
     202, KEPT, NULL, NULL},
    {"an empty line before", "\r\n" GOOD, 202, KEPT, NULL, NULL},
    {"asked to close", POST "Connection: close\r\nContent-Length: 13\r\n\r\n{\"payload\":1}", 202,
     CLOSED, "Connection: close", NULL},
    {"HTTP/1.0",
     "POST /task HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 13\r\n"
     "\r\n{\"payload\":1}",
     202, CLOSED, NULL, NULL},
    {"HTTP/1.0 kept alive",
     "POST /task HTTP/1.0\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
     "Content-Length: 13\r\n\r\n{\"payload\":1}",
     202, KEPT, "Keep-Alive", NULL},
    {"chunked", CHUNKED "5\r\n{\"pay\r\n8\r\nload\":1}\r\n0\r\n\r\n", 202, KEPT, NULL, NULL},
    {"trailer", CHUNKED "d\r\n{\"payload\":1}\r\n0\r\nX: y\r\n\r\n", 202, KEPT, NULL, NULL},
    {"length in the trailer", CHUNKED "d\r\n{\"payload\":1}\r\n0\r\nContent-Length: 1\r\n\r\n", 202,
     KEPT, NULL, NULL},

    {"empty body", POST "Content-Length: 0\r\n\r\n", 400, KEPT, NULL, "not JSON"},
    {"no length", POST "\r\n", 400, KEPT, NULL, "not JSON"},
    {"empty chunked body", CHUNKED "0\r\n\r\n", 400, KEPT, NULL, "not JSON"},
    {"no JSON", POST "Content-Length: 5\r\n\r\nhello", 400, KEPT, NULL, "not JSON"},
    {"trailing text", POST "Content-Length: 15\r\n\r\n{\"payload\":1} x", 400, KEPT, NULL, "byte"},
    {"bad UTF-8", POST "Content-Length: 16\r\n\r\n{\"payload\":\"\xc0\x80\"}", 400, KEPT, NULL,
     "\"error\""},
    {"NUL escape", POST "Content-Length: 20\r\n\r\n{\"payload\":\"\\u0000\"}", 400, KEPT, NULL,
     "\"error\""},
    {"bad id", POST "Content-Length: 22\r\n\r\n{\"id\":\"7\",\"payload\":1}", 400, KEPT, NULL,
     "id"},
    {"id is a number", POST "Content-Length: 20\r\n\r\n{\"id\":7,\"payload\":1}", 400, KEPT, NULL,
     "id"},
    {"repeated id",
     POST "Content-Length: 101\r\n\r\n{\"id\":\"" ID "\",\"id\":\"" ID "\",\"payload\":1}", 400,
     KEPT, NULL, "id"},
    {"no payload", POST "Content-Length: 2\r\n\r\n{}", 400, KEPT, NULL, "payload"},
    {"an array", POST "Content-Length: 3\r\n\r\n[1]", 400, KEPT, NULL, "object"},

    {"wrong path", "POST /tasks HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 404, KEPT,
     NULL, "not_found"},
    {"longer path", "GET /task/ HTTP/1.1\r\nHost: a\r\n\r\n", 404, KEPT, NULL, NULL},
    {"encoded path", "GET /%74ask HTTP/1.1\r\nHost: a\r\n\r\n", 405, KEPT, NULL, NULL},
    {"GET", "GET /task HTTP/1.1\r\nHost: a\r\n\r\n", 405, KEPT, "Allow: POST\r\n", "method"},
    {"PUT with a body", "PUT /task HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc", 405, KEPT,
     "Allow: POST\r\n", NULL},
    {"method in lower case", "post /task HTTP/1.1\r\nHost: a\r\n\r\n", 405, KEPT, "Allow: POST",
     NULL},
    {"no type", "POST /task HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n{\"payload\":1}", 415,
     KEPT, NULL, "media_type"},
    {"form type",
     "POST /task HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n"
     "Content-Length: 13\r\n\r\n{\"payload\":1}",
     415, KEPT, NULL, NULL},
    {"compressed", POST "Content-Encoding: gzip\r\nContent-Length: 13\r\n\r\n{\"payload\":1}", 415,
     KEPT, NULL, NULL},
    {"too large, header only", POST "Content-Length: 5000000\r\n\r\n", 413, CLOSED, NULL,
     "too_large"},
    {"far too large", POST "Content-Length: 9223372036854775807\r\n\r\n", 413, CLOSED, NULL, NULL},
    {"expected and too large", POST "Expect: 100-continue\r\nContent-Length: 2000\r\n\r\n", 413,
     CLOSED, NULL, "too_large"},
    {"expected by the wrong path",
     "PUT /x HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 20\r\n\r\n", 404,
     CLOSED, NULL, NULL},

    {"length and chunked",
     POST "Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GOOD, 400, CLOSED,
     "Connection: close", "exclude each other"},
    {"chunked and length",
     POST "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" GOOD, 400, CLOSED,
     NULL, "exclude each other"},
    {"two lengths", POST "Content-Length: 13\r\nContent-Length: 0\r\n\r\n{\"payload\":1}", 400,
     CLOSED, NULL, "more than one Content-Length"},
    {"the same length twice",
     POST "Content-Length: 13\r\ncontent-length: 13\r\n\r\n{\"payload\":1}", 400, CLOSED, NULL,
     "more than one Content-Length"},
    {"space before the colon", POST "Content-Length : 13\r\n\r\n{\"payload\":1}", 400, CLOSED, NULL,
     "white space"},
    {"signed length", POST "Content-Length: +13\r\n\r\n{\"payload\":1}", 400, CLOSED, NULL, NULL},
    {"negative length", POST "Content-Length: -1\r\n\r\n", 400, CLOSED, NULL, NULL},
    {"list of lengths", POST "Content-Length: 13, 13\r\n\r\n{\"payload\":1}", 400, CLOSED, NULL,
     NULL},
    {"hexadecimal length", POST "Content-Length: 0xd\r\n\r\n{\"payload\":1}", 400, CLOSED, NULL,
     NULL},
    {"length beyond 64 bits", POST "Content-Length: 99999999999999999999\r\n\r\n", 413, CLOSED,
     NULL, NULL},
    {"gzip, chunked", POST "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 400, CLOSED, NULL,
     "plain chunked"},
    {"identity", POST "Transfer-Encoding: identity\r\n\r\n", 400, CLOSED, NULL, "plain chunked"},
    {"chunked twice",
     POST "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, CLOSED,
     NULL, "more than one"},
    {"unknown coding", POST "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400, CLOSED, NULL,
     NULL},
    {"chunked in HTTP/1.0",
     "POST /task HTTP/1.0\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
     "0\r\n\r\n",
     400, CLOSED, NULL, NULL},
    {"bad chunk size", CHUNKED "zz\r\n", 400, CLOSED, NULL, NULL},
    {"chunk longer than it says", CHUNKED "3\r\n{\"payload\":1}\r\n0\r\n\r\n", 400, CLOSED, NULL,
     NULL},
    {"huge chunk size", CHUNKED "fffffffffffffffff\r\n", 413, CLOSED, NULL, NULL},
    {"no Host",
     "POST /task HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n"
     "{\"payload\":1}",
     400, CLOSED, NULL, "Host"},
    {"two Hosts", POST "Host: b\r\nContent-Length: 13\r\n\r\n{\"payload\":1}", 400, CLOSED, NULL,
     "Host"},
    {"line without a colon", POST "nonsense\r\n\r\n", 400, CLOSED, NULL, NULL},
    {"HTTP/2.0", "POST /task HTTP/2.0\r\nHost: a\r\n\r\n", 505, CLOSED, NULL, NULL},
    {"no version", "POST /task\r\n\r\n", 400, CLOSED, NULL, NULL},
    {"garbage", "\x16\x03\x01\x02\r\n\r\n", 0, CLOSED, NULL, NULL},
};

/* libmicrohttpd 1.0.1 counts the line feed behind a chunk extension as the chunk's first byte, and
 * cannot find the chunk's end then. What counts is that it says so and closes: with bare line feeds
 * taken for line ends, that one would end the last chunk's trailer, and the rest of the trailer be
 * a request. */
#if MHD_VERSION >= 0x01000000
#define EXTENDED 400, CLOSED
#else
#define EXTENDED 202, KEPT
#endif

static const struct row extensions[] = {
    {"chunk extension", CHUNKED "d;a=1\r\n{\"payload\":1}\r\n0\r\n\r\n", EXTENDED, NULL, NULL},
    {"chunk extension, data ends in LF", CHUNKED "e;a=1\r\n{\"payload\":1}\n\r\n0\r\n\r\n",
     EXTENDED, NULL, NULL},
    {"extension of the last chunk", CHUNKED "d\r\n{\"payload\":1}\r\n0;a=1\r\n\r\n", EXTENDED, NULL,
     NULL},
    {"extension of the last chunk, trailer",
     CHUNKED "d\r\n{\"payload\":1}\r\n0;a=1\r\nX: y\r\n\r\n", EXTENDED, NULL, NULL},
    {"a request as the trailer",
     CHUNKED "d\r\n{\"payload\":1}\r\n0;a=1\r\nGET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", EXTENDED,
     NULL, NULL},
};

static void good_one(int fd, const char *what)
{
    struct response response;
    client_send(fd, GOOD, strlen(GOOD));
    client_receive(fd, &response, false);
    if (response.code != 202) {
        fail_msg("%s: the request after it got %d: %s", what, response.code,
                 response.body.data ? response.body.data : "");
    }
    response_free(&response);
}

static void check_row(const struct row *row)
{
    struct response response;
    int fd = client_connect(server.address);
    client_send(fd, row->request, strlen(row->request));
    client_receive(fd, &response, false);
    const char *head = response.head.data ? response.head.data : "";
    const char *body = response.body.data ? response.body.data : "";
    /* libmicrohttpd 1.0 refuses some malformed requests by itself, with a page of its own. */
    bool by_library = row->after == CLOSED && strncmp(body, "<html>", 6) == 0;
    const char *wanted_body = by_library ? NULL : row->body;
    if (response.code != row->code || (row->head && !strstr(head, row->head)) ||
        (wanted_body && !strstr(body, wanted_body))) {
        fail_msg("%s: %d was wanted with \"%s\" and \"%s\"; got %s%s", row->what, row->code,
                 row->head ? row->head : "", row->body ? row->body : "", head, body);
    }
    if (row->after == KEPT) {
        good_one(fd, row->what);
    } else if (!client_is_closed(fd)) {
        fail_msg("%s: the connection was not closed", row->what);
    }
    close(fd);
    response_free(&response);
}

static void every_row(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        check_row(&rows[i]);
    }
    for (size_t i = 0; i < sizeof(extensions) / sizeof(extensions[0]); i++) {
        check_row(&extensions[i]);
    }
}

static void head_has_no_body(void **state)
{
    (void)state;
    static const char request[] = "HEAD /task HTTP/1.1\r\nHost: a\r\n\r\n";
    struct response response;
    int fd = client_connect(server.address);
    client_send(fd, request, strlen(request));
    client_receive(fd, &response, true);
    assert_int_equal(response.code, 405);
    good_one(fd, "HEAD");
    response_free(&response);
    close(fd);
}

static void expect_continue(void **state)
{
    (void)state;
    static const char head[] = POST "Expect: 100-continue\r\nContent-Length: 13\r\n\r\n";
    struct response response;
    int fd = client_connect(server.address);
    client_send(fd, head, strlen(head));
    client_receive(fd, &response, true);
    assert_int_equal(response.code, 100);
    response_free(&response);
    client_send(fd, "{\"payload\":1}", 13);
    client_receive(fd, &response, false);
    assert_int_equal(response.code, 202);
    response_free(&response);
    good_one(fd, "Expect");
    close(fd);
}

/* Bodies around --body-max=1024: sized and chunked, read to their end so that the connection lives.
 */
static void body_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {13, 1023, 1024, 1025, 5000, 200000};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        for (int chunked = 0; chunked < 2; chunked++) {
            struct buf request = {0};
            struct response response;
            buf_puts(&request, chunked ? CHUNKED : POST);
            buf_printf(&request, chunked ? "%zx\r\n" : "Content-Length: %zu\r\n\r\n", sizes[i]);
            buf_puts(&request, "{\"payload\":\"");
            for (size_t x = 14; x < sizes[i]; x++) {
                buf_putc(&request, 'x');
            }
            buf_puts(&request,
                     sizes[i] == 13 ? "\xff" : "\"}"); /* 13: closing quote would not fit */
            buf_puts(&request, chunked ? "\r\n0\r\n\r\n" : "");
            int fd = client_connect(server.address);
            client_send(fd, request.data, request.len);
            client_receive(fd, &response, false);
            assert_int_equal(response.code, sizes[i] == 13 ? 400 : sizes[i] <= 1024 ? 202 : 413);
            good_one(fd, "a body");
            response_free(&response);
            buf_free(&request);
            close(fd);
        }
    }
}

static struct buf piece_of_64_kib(bool chunked)
{
    struct buf piece = {0};
    buf_puts(&piece, chunked ? "10000\r\n" : "");
    for (int i = 0; i < 0x10000; i++) {
        buf_putc(&piece, 'x');
    }
    buf_puts(&piece, chunked ? "\r\n" : "");
    return piece;
}

/* 32 MiB, all of it sent before a byte of the answer is read. */
static void a_long_body_gets_its_answer(void **state)
{
    (void)state;
    for (int chunked = 0; chunked < 2; chunked++) {
        struct response response;
        struct buf piece = piece_of_64_kib(chunked);
        const char *head = chunked ? CHUNKED : POST "Content-Length: 33554432\r\n\r\n";
        int fd = client_connect(server.address);
        client_send(fd, head, strlen(head));
        for (int i = 0; i < 512; i++) {
            client_send(fd, piece.data, piece.len);
        }
        client_send(fd, "0\r\n\r\n", chunked ? 5 : 0);
        client_receive(fd, &response, false);
        assert_int_equal(response.code, 413);
        assert_non_null(strstr(response.head.data, "Connection: close\r\n"));
        assert_non_null(strstr(response.body.data, "too_large"));
        assert_true(client_is_closed(fd));
        close(fd);
        response_free(&response);
        buf_free(&piece);
    }
}

static void endless_chunks_end(void **state)
{
    (void)state;
    struct buf chunk = piece_of_64_kib(true);
    int fd = client_connect(server.address);
    client_send(fd, CHUNKED, strlen(CHUNKED));
    ssize_t sent = 0;
    int count = 0;
    for (; sent >= 0 && count < 16000; count++) { /* 1 GB; the server gives up at half of that */
        sent = send(fd, chunk.data, chunk.len, MSG_NOSIGNAL);
    }
    assert_int_equal(sent, -1);
    assert_in_range(count, 100, 16000); /* not where it was answered */
    close(fd);
    buf_free(&chunk);
}

static void large_header(void **state)
{
    (void)state;
    struct buf request = {0};
    struct response response;
    buf_puts(&request, POST "X: ");
    for (int i = 0; i < 100000; i++) {
        buf_putc(&request, 'x');
    }
    int fd = client_connect(server.address);
    client_send(fd, request.data, request.len);
    client_receive(fd, &response, false);
    assert_int_equal(response.code, 431);
    assert_true(client_is_closed(fd));
    close(fd);
    response_free(&response);
    buf_free(&request);
}

static void split_at_every_byte(void **state)
{
    (void)state;
    static const char *const requests[] = {GOOD,
                                           CHUNKED "5\r\n{\"pay\r\n8\r\nload\":1}\r\n0\r\n\r\n"};
    for (size_t r = 0; r < 2; r++) {
        size_t len = strlen(requests[r]);
        for (size_t cut = 1; cut < len; cut++) {
            struct response response;
            int fd = client_connect(server.address);
            client_send(fd, requests[r], cut);
            usleep(300); /* so that the server reads the first part alone; not needed to pass */
            client_send(fd, requests[r] + cut, len - cut);
            client_receive(fd, &response, false);
            if (response.code != 202) {
                fail_msg("request %zu cut at %zu: %d", r, cut, response.code);
            }
            response_free(&response);
            close(fd);
        }
    }
}

static void byte_by_byte(void **state)
{
    (void)state;
    struct response response;
    int fd = client_connect(server.address);
    for (size_t i = 0; i < strlen(GOOD); i++) {
        client_send(fd, &GOOD[i], 1);
        usleep(100);
    }
    client_receive(fd, &response, false);
    assert_int_equal(response.code, 202);
    response_free(&response);
    close(fd);
}

static void pipelined(void **state)
{
    (void)state;
    enum { REQUESTS = 300 };
    struct buf all = {0};
    for (int i = 0; i < REQUESTS; i++) {
        buf_printf(&all,
                   POST "Content-Length: 57\r\n\r\n"
                        "{\"id\":\"00000000-0000-8000-8000-%012d\",\"payload\":1}",
                   i);
        if (i % 10 == 3) {
            buf_puts(&all, "GET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
        }
    }
    int fd = client_connect(server.address);
    client_send(fd, all.data, all.len);
    for (int i = 0; i < REQUESTS; i++) { /* answers come in order */
        struct response response;
        char id[64];
        snprintf(id, sizeof(id), "00000000-0000-8000-8000-%012d", i);
        client_receive(fd, &response, false);
        assert_int_equal(response.code, 202);
        assert_non_null(strstr(response.body.data, id));
        response_free(&response);
        if (i % 10 == 3) {
            client_receive(fd, &response, false);
            assert_int_equal(response.code, 404);
            response_free(&response);
        }
    }
    close(fd);
    buf_free(&all);
}

static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void mutate(struct buf *request, uint64_t *random)
{
    static const char *const pieces[] = {"\r\n",
                                         "\n",
                                         ":",
                                         " ",
                                         "Content-Length: 7\r\n",
                                         "0",
                                         "\t",
                                         "Transfer-Encoding: chunked\r\n",
                                         "\xff",
                                         "{",
                                         "chunked"};
    for (unsigned n = 1 + (unsigned)(draw(random) % 4); n > 0 && request->len > 0; n--) {
        size_t at = (size_t)(draw(random) % request->len);
        switch (draw(random) % 4) {
        case 0:
            request->data[at] = (char)draw(random);
            break;
        case 1:
            memmove(request->data + at, request->data + at + 1, request->len - at - 1);
            request->len--;
            break;
        case 2:
            request->len = at + 1;
            break;
        default: {
            const char *piece = pieces[draw(random) % (sizeof(pieces) / sizeof(pieces[0]))];
            struct buf grown = {0};
            buf_append(&grown, request->data, at);
            buf_puts(&grown, piece);
            buf_append(&grown, request->data + at, request->len - at);
            buf_free(request);
            *request = grown;
        }
        }
    }
}

/* Whatever comes: the server answers with HTTP or closes, and goes on serving. */
static void mutated_requests(void **state)
{
    (void)state;
    enum { BATCHES = 5, BATCH = 200 };
    const char *given = getenv("CORPUS_SEED");
    uint64_t seed = given ? strtoull(given, NULL, 0) : (uint64_t)time(NULL) * 2654435761u + 1;
    uint64_t random = seed;
    for (int batch = 0; batch < BATCHES; batch++) {
        int fds[BATCH];
        struct buf requests[BATCH] = {{0}};
        for (int i = 0; i < BATCH; i++) {
            buf_puts(&requests[i], rows[draw(&random) % (sizeof(rows) / sizeof(rows[0]))].request);
            mutate(&requests[i], &random);
            fds[i] = client_connect(server.address);
            if (fds[i] < 0) {
                fail_msg("seed %llu: the server is gone", (unsigned long long)seed);
            }
            client_send(fds[i], requests[i].data, requests[i].len);
            shutdown(fds[i], SHUT_WR);
        }
        for (int i = 0; i < BATCH; i++) {
            if (!client_is_closed(fds[i])) {
                fail_msg("seed %llu: neither answered nor closed: %.*s", (unsigned long long)seed,
                         (int)requests[i].len, requests[i].data);
            }
            close(fds[i]);
            buf_free(&requests[i]);
        }
        int fd = client_connect(server.address);
        good_one(fd, "the mutated ones");
        close(fd);
    }
}

/* As `printf ... | nc -N` does it: the answer comes, and then the end. */
static void half_closed(void **state)
{
    (void)state;
    struct response response;
    int fd = client_connect(server.address);
    client_send(fd, GOOD, strlen(GOOD));
    shutdown(fd, SHUT_WR);
    client_receive(fd, &response, false);
    assert_int_equal(response.code, 202);
    assert_true(client_is_closed(fd));
    response_free(&response);
    close(fd);
}

static int start(void **state)
{
    (void)state;
    static const char *const arguments[] = {"--sink=memory", "--body-max=1024", NULL};
    server_start(&server, binary, arguments);
    return 0;
}

static int stop(void **state)
{
    (void)state;
    server_stop(&server);
    return 0;
}

int main(int argc, char *argv[])
{
    if (argc < 2) {
        return 2;
    }
    binary = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row),
        cmocka_unit_test(head_has_no_body),
        cmocka_unit_test(expect_continue),
        cmocka_unit_test(body_sizes),
        cmocka_unit_test(a_long_body_gets_its_answer),
        cmocka_unit_test(endless_chunks_end),
        cmocka_unit_test(large_header),
        cmocka_unit_test(split_at_every_byte),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(pipelined),
        cmocka_unit_test(mutated_requests),
        cmocka_unit_test(half_closed),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
