/* ref_valkey: the yardstick for the sink valkey: what a plain client of hiredis reaches, pipelining
 * XADD with so many on the wire and nothing else: no outcomes, deadlines, reconnection.
 *
 *   SLUICE_SINK_URL=redis://:PASSWORD@HOST:PORT/0 ref_valkey SECONDS WINDOW BYTES
 *
 * Prints rate and the time from sending to reply. The stream sluice:bench:ref is removed before and
 * after. */
#include <hiredis/hiredis.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "hist.h"
#include "task/task.h"

static const char stream[] = "sluice:bench:ref";

static redisContext *context;
static char *body;
static size_t body_bytes;
static int64_t sent, received;
static int64_t *began_ns; /* a ring */
static int64_t window;

static void fail(const char *what)
{
    fprintf(stderr, "ref_valkey: %s: %s\n", what, context ? context->errstr : "no memory");
    exit(3);
}

static void check(redisReply *reply, const char *what)
{
    if (!reply) {
        fail(what);
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        fprintf(stderr, "ref_valkey: %s: %s\n", what, reply->str);
        exit(3);
    }
    freeReplyObject(reply);
}

static void connect_to(const char *url)
{
    char host[128], password[128];
    int port;
    if (!url || sscanf(url, "redis://:%127[^@]@%127[^:]:%d", password, host, &port) != 3) {
        fprintf(stderr, "ref_valkey: SLUICE_SINK_URL must be redis://:PASSWORD@HOST:PORT/0\n");
        exit(2);
    }
    context = redisConnect(host, port);
    if (!context || context->err) {
        fail("connecting");
    }
    check(redisCommand(context, "AUTH %s", password), "AUTH");
}

static void send_one(void)
{
    uint8_t id[UUID_BYTES];
    char accepted[24];
    task_synth_id(1, (uint64_t)sent, id);
    size_t accepted_bytes = (size_t)snprintf(accepted, sizeof(accepted), "%lld", (long long)sent);
    const char *words[] = {"XADD", stream, "*", "id", (const char *)id, "t", accepted, "b", body};
    const size_t lengths[] = {4, sizeof(stream) - 1, 1, 2,         UUID_BYTES,
                              1, accepted_bytes,     1, body_bytes};
    if (redisAppendCommandArgv(context, 9, words, lengths) != REDIS_OK) {
        fail("sending");
    }
    began_ns[sent++ % window] = clock_mono_ns();
}

static void receive_one(struct hist *latency)
{
    void *reply = NULL;
    if (redisGetReply(context, &reply) != REDIS_OK) {
        fail("receiving");
    }
    check(reply, "XADD");
    hist_add(latency, clock_mono_ns() - began_ns[received++ % window]);
}

int main(int argc, char **argv)
{
    double seconds = argc == 4 ? atof(argv[1]) : 0;
    window = argc == 4 ? atoll(argv[2]) : 0;
    body_bytes = argc == 4 ? strtoul(argv[3], NULL, 10) : 0;
    if (seconds <= 0 || window <= 0 || body_bytes == 0) {
        fprintf(stderr, "usage: SLUICE_SINK_URL=URL ref_valkey SECONDS WINDOW BYTES\n");
        return 2;
    }
    body = malloc(body_bytes);
    began_ns = calloc((size_t)window, sizeof(*began_ns));
    struct hist *latency = hist_new();
    memset(body, 'x', body_bytes);
    connect_to(getenv("SLUICE_SINK_URL"));
    check(redisCommand(context, "DEL %s", stream), "DEL");
    int64_t start_ns = clock_mono_ns();
    int64_t end_ns = start_ns + (int64_t)(seconds * 1e9);
    while (clock_mono_ns() < end_ns) {
        while (sent - received < window) {
            send_one();
        }
        /* All that came with one read: the first may wait, the others are there already. */
        do {
            receive_one(latency);
        } while (received < sent && context->reader->pos < context->reader->len);
    }
    double took_s = (double)(clock_mono_ns() - start_ns) / 1e9;
    printf("rate %.0f\np50_ms %.3f\np99_ms %.3f\n", (double)received / took_s,
           (double)hist_percentile_ns(latency, 0.5) / 1e6,
           (double)hist_percentile_ns(latency, 0.99) / 1e6);
    while (received < sent) {
        receive_one(latency);
    }
    check(redisCommand(context, "DEL %s", stream), "DEL");
    redisFree(context);
    hist_free(latency);
    free(began_ns);
    free(body);
    return 0;
}
