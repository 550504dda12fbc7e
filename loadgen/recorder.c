#include "recorder.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "hist.h"

enum { WAKE_RECORDS = 4096, RECORDS_MAX = 4 * 1024 * 1024 };
#define TICK_NS      (200 * NS_PER_MS)
#define RATE_OVER_NS NS_PER_S /* the live line's rate is that of the last second */

struct records {
    struct settled *items;
    size_t count, cap;
};

struct phase_stats {
    bool begun, ended, told;
    uint64_t settled;
    uint64_t by_outcome[OUTCOMES];
    uint64_t on_time;      /* the loop came to them before the phase's end */
    struct hist *lateness; /* sent - due */
    struct hist *own;      /* this program's fault */
    struct hist *latency;  /* done - due, of the durable ones */
};

struct recorder {
    struct recorder_config config;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t wake; /* for the thread */
    pthread_cond_t room; /* for recorder_add */
    struct records in;   /* under lock */
    bool stopping;       /* under lock */
    struct records out;  /* the thread's */
    struct phase_stats phases[PACE_PHASES_MAX];
    struct metrics_event event;
    int ledger_error;
    int64_t rate_ns;       /* when rate_handled was read */
    uint64_t rate_handled; /* requests handled by then */
    double rate;
    bool line_shown;
};

static int64_t wall_us(const struct recorder *r, int64_t since_start_ns)
{
    return r->config.start_wall_us + since_start_ns / 1000;
}

static void write_latency(struct recorder *r, const struct settled *s, const char *phase)
{
    struct metrics_event *event = &r->event;

    metrics_begin_at(event, "api_latency", wall_us(r, s->done_ns));
    metrics_id(event, "id", s->id);
    metrics_int(event, "code", s->code);
    metrics_string(event, "outcome", outcome_name(s->outcome));
    metrics_ms(event, "latency_ms", s->done_ns - s->due_ns);
    if (s->sent_ns == ATTACK_NEVER)
        metrics_json(event, "service_ms", "null");
    else
        metrics_ms(event, "service_ms", s->done_ns - s->sent_ns);
    metrics_string(event, "phase", phase);
    metrics_int(event, "due_us", wall_us(r, s->due_ns));
    metrics_write(r->config.metrics, event);
}

static void record(struct recorder *r, const struct settled *s)
{
    const struct pace_phase *phase = &r->config.pace->phases[s->phase];
    struct phase_stats *stats = &r->phases[s->phase];

    if (r->config.ledger)
        ledger_row(r->config.ledger, s, phase->name);
    write_latency(r, s, phase->name);

    if (!stats->own) {
        stats->lateness = hist_new();
        stats->own = hist_new();
        stats->latency = hist_new();
    }
    stats->settled++;
    stats->by_outcome[s->outcome]++;
    stats->on_time += s->handled_ns < phase->end_ns ? 1 : 0;
    hist_add(stats->own, s->own_ns);
    if (s->sent_ns != ATTACK_NEVER)
        hist_add(stats->lateness, s->sent_ns - s->due_ns);
    if (s->outcome == OUTCOME_DURABLE)
        hist_add(stats->latency, s->done_ns - s->due_ns);
}

static void write_phase(struct recorder *r, const struct pace_phase *phase, const char *state,
                        int64_t at_ns)
{
    struct metrics_event *event = &r->event;

    metrics_begin_at(event, "phase", wall_us(r, at_ns));
    metrics_string(event, "what", phase->name);
    metrics_string(event, "state", state);
    metrics_double(event, "rps", (double)phase->rate_micro / 1e6);
    metrics_int(event, "due_us", wall_us(r, at_ns));
    metrics_write(r->config.metrics, event);
}

static void write_lateness(struct recorder *r, const struct pace_phase *phase,
                           const struct phase_stats *stats)
{
    struct metrics_event *event = &r->event;

    metrics_begin(event, "lateness");
    metrics_string(event, "phase", phase->name);
    metrics_int(event, "planned", (int64_t)phase->count);
    metrics_int(event, "due", (int64_t)stats->settled);
    metrics_int(event, "on_time", (int64_t)stats->on_time);
    metrics_int(event, "sent", (int64_t)hist_count(stats->lateness));
    metrics_ms(event, "p50_ms", hist_percentile_ns(stats->lateness, 0.5));
    metrics_ms(event, "p99_ms", hist_percentile_ns(stats->lateness, 0.99));
    metrics_ms(event, "max_ms", hist_max_ns(stats->lateness));
    metrics_ms(event, "own_p50_ms", hist_percentile_ns(stats->own, 0.5));
    metrics_ms(event, "own_p99_ms", hist_percentile_ns(stats->own, 0.99));
    metrics_ms(event, "own_max_ms", hist_max_ns(stats->own));
    metrics_write(r->config.metrics, event);
}

static double ms(int64_t duration_ns)
{
    return (double)duration_ns / (double)NS_PER_MS;
}

static void clear_line(struct recorder *r)
{
    if (r->line_shown)
        fputs("\r\033[K", stderr);
    r->line_shown = false;
}

static void tell_phase(struct recorder *r, const struct pace_phase *phase,
                       const struct phase_stats *stats)
{
    const uint64_t *by = stats->by_outcome;
    double seconds = (double)(phase->end_ns - phase->begin_ns) / (double)NS_PER_S;

    clear_line(r);
    log_info("phase %s: %" PRIu64 " of %" PRIu64 " requests, %.1f/s; durable %" PRIu64
             " (p50 %.3f ms, p99 %.3f ms), refused %" PRIu64 ", unknown %" PRIu64
             ", unsent %" PRIu64 "; own lateness p99 %.3f ms",
             phase->name, stats->settled, phase->count, (double)stats->on_time / seconds,
             by[OUTCOME_DURABLE], ms(hist_percentile_ns(stats->latency, 0.5)),
             ms(hist_percentile_ns(stats->latency, 0.99)), by[OUTCOME_REFUSED], by[OUTCOME_UNKNOWN],
             by[OUTCOME_UNSENT], ms(hist_percentile_ns(stats->own, 0.99)));
}

/* Phases begin and end by the clock; a phase is told when all its requests are settled. At the end
 * of an interrupted load (`last`), those that began are ended and told as they stand. */
static void advance_phases(struct recorder *r, int64_t now_ns, bool last)
{
    for (size_t i = 0; i < r->config.pace->phase_count; i++) {
        const struct pace_phase *phase = &r->config.pace->phases[i];
        struct phase_stats *stats = &r->phases[i];
        bool over = now_ns >= phase->end_ns;

        if (!stats->begun && now_ns >= phase->begin_ns) {
            stats->begun = true;
            write_phase(r, phase, "begin", phase->begin_ns);
        }
        if (stats->begun && !stats->ended && (over || last)) {
            stats->ended = true;
            write_phase(r, phase, "end", over ? phase->end_ns : now_ns);
        }
        if (stats->ended && !stats->told && (stats->settled == phase->count || last)) {
            stats->told = true;
            if (stats->settled > 0)
                write_lateness(r, phase, stats);
            tell_phase(r, phase, stats);
        }
    }
}

static void show_line(struct recorder *r, int64_t now_ns)
{
    const struct attack_progress *progress = r->config.progress;
    uint64_t handled = atomic_load_explicit(&progress->handled, memory_order_relaxed);
    const struct pace *pace = r->config.pace;
    const struct pace_phase *phase;
    const struct phase_stats *stats;
    size_t i = 0;

    if (now_ns - r->rate_ns >= RATE_OVER_NS) {
        r->rate = (double)(handled - r->rate_handled) * 1e9 / (double)(now_ns - r->rate_ns);
        r->rate_ns = now_ns;
        r->rate_handled = handled;
    }
    while (i + 1 < pace->phase_count && now_ns >= pace->phases[i].end_ns)
        i++;
    phase = &pace->phases[i];
    stats = &r->phases[i];
    if (now_ns < 0 || !stats->own)
        return;
    fprintf(stderr,
            "\r\033[K%s %.0f/%.0f s  %.0f/s  p50 %.2f p99 %.2f ms  durable %" PRIu64
            " refused %" PRIu64 " unknown %" PRIu64 " unsent %" PRIu64 "  in flight %u waiting %u",
            phase->name, (double)(now_ns - phase->begin_ns) / 1e9,
            (double)(phase->end_ns - phase->begin_ns) / 1e9, r->rate,
            ms(hist_percentile_ns(stats->latency, 0.5)),
            ms(hist_percentile_ns(stats->latency, 0.99)), stats->by_outcome[OUTCOME_DURABLE],
            stats->by_outcome[OUTCOME_REFUSED], stats->by_outcome[OUTCOME_UNKNOWN],
            stats->by_outcome[OUTCOME_UNSENT],
            atomic_load_explicit(&progress->in_flight, memory_order_relaxed),
            atomic_load_explicit(&progress->waiting, memory_order_relaxed));
    fflush(stderr);
    r->line_shown = true;
}

/* Takes what has come, waiting for at most one tick. Returns whether the end was asked for. */
static bool take(struct recorder *r)
{
    int64_t until_ns = clock_mono_ns() + TICK_NS;
    struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    struct records taken;
    bool stopping;
    int rc = 0;

    pthread_mutex_lock(&r->lock);
    while (!r->stopping && r->in.count < WAKE_RECORDS && rc != ETIMEDOUT)
        rc = pthread_cond_timedwait(&r->wake, &r->lock, &until);
    taken = r->in;
    r->in = r->out;
    r->in.count = 0;
    stopping = r->stopping;
    pthread_cond_signal(&r->room);
    pthread_mutex_unlock(&r->lock);
    r->out = taken;
    return stopping;
}

static void *recorder_main(void *arg)
{
    struct recorder *r = arg;
    int64_t flush_ns = 0;
    bool stopping;

    do {
        int64_t now_ns;

        stopping = take(r);
        for (size_t i = 0; i < r->out.count; i++)
            record(r, &r->out.items[i]);
        now_ns = clock_mono_ns() - r->config.start_ns;
        advance_phases(r, now_ns, stopping);
        if (now_ns >= flush_ns || stopping) {
            flush_ns = now_ns + TICK_NS / 2;
            metrics_flush(r->config.metrics);
            if (r->config.ledger && r->ledger_error == 0) {
                r->ledger_error = ledger_flush(r->config.ledger);
                if (r->ledger_error < 0) // a load without its ledger proves nothing
                    atomic_store(&r->config.progress->stop, true);
            }
            if (r->config.live && !stopping)
                show_line(r, now_ns);
        }
    } while (!stopping);
    clear_line(r);
    return NULL;
}

struct recorder *recorder_start(const struct recorder_config *config)
{
    struct recorder *r = xcalloc(1, sizeof(*r));
    pthread_condattr_t attributes;
    int rc;

    r->config = *config;
    pthread_mutex_init(&r->lock, NULL);
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&r->wake, &attributes);
    pthread_cond_init(&r->room, NULL);
    pthread_condattr_destroy(&attributes);
    rc = pthread_create(&r->thread, NULL, recorder_main, r);
    if (rc != 0) {
        log_error("cannot start a thread: %s", strerror(rc));
        exit(3);
    }
    return r;
}

void recorder_add(struct recorder *r, const struct settled *settled)
{
    pthread_mutex_lock(&r->lock);
    while (r->in.count >= RECORDS_MAX)
        pthread_cond_wait(&r->room, &r->lock);
    if (r->in.count == r->in.cap) {
        r->in.cap = r->in.cap ? r->in.cap * 2 : WAKE_RECORDS;
        r->in.items = xrealloc(r->in.items, r->in.cap * sizeof(*r->in.items));
    }
    r->in.items[r->in.count++] = *settled;
    if (r->in.count == WAKE_RECORDS)
        pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
}

int recorder_stop(struct recorder *r)
{
    int rc;

    pthread_mutex_lock(&r->lock);
    r->stopping = true;
    pthread_cond_signal(&r->wake);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
    rc = r->ledger_error < 0 ? r->ledger_error : metrics_flush(r->config.metrics);

    for (size_t i = 0; i < PACE_PHASES_MAX; i++) {
        hist_free(r->phases[i].lateness);
        hist_free(r->phases[i].own);
        hist_free(r->phases[i].latency);
    }
    metrics_event_free(&r->event);
    free(r->in.items);
    free(r->out.items);
    pthread_cond_destroy(&r->wake);
    pthread_cond_destroy(&r->room);
    pthread_mutex_destroy(&r->lock);
    free(r);
    return rc;
}
