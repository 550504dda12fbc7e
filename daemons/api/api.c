/* api.c: the loop. One epoll holds MHD's epoll descriptor, the sink's descriptor and the stop
 * signal; see LOOP below for a pass. MHD's own polling thread is not used: it stalls when exactly
 * 128 connections are ready at once, and a hand-off between threads costs more than the request. */
#include "api/api.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "api/http.h"
#include "base/clock.h"
#include "base/log.h"
#include "common/stop.h"

#define TICK_NS        (100 * NS_PER_MS) /* backlog, gauges */
#define FLUSH_EVERY_NS (200 * NS_PER_MS) /* metrics file */
#define SWEEP_EVERY_NS (500 * NS_PER_MS) /* slow requests */
/* Of the 5 s in which a daemon must be gone: for clients and sink to finish; then the sink must
 * settle; the rest is for the last answers. */
#define SETTLE_NS     (3 * NS_PER_S)
#define SINK_CLOSE_NS (1 * NS_PER_S)

enum { MHD_TURNS_MAX = 16 };

static int watch(struct api *api, int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.fd = fd}};
    return epoll_ctl(api->epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0 ? -errno : 0;
}

int api_start(struct api *api, const struct api_settings *settings, int listen_fd,
              const struct sink_driver *driver, struct sink *sink, struct metrics *metrics,
              struct err *err)
{
    memset(api, 0, sizeof(*api));
    counters_init(&api->counters);
    api->settings = *settings;
    api->driver = driver;
    api->sink = sink;
    api->metrics = metrics;
    api->listen_fd = listen_fd;
    api->upkeep_fd = -1;
    admission_init(&api->admission, &settings->limits);
    guard_init(&api->guard, settings->request_timeout_ns);
    counter_set(&api->counters.backlog_tasks, -1);
    counter_set(&api->counters.backlog_bytes, -1);
    atomic_store(&api->counters.condition, API_STARTING);
    api->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (api->epoll_fd < 0) {
        return err_set(err, -errno, "cannot create an epoll descriptor: %s", strerror(errno));
    }
    int rc = http_start(api, err);
    if (rc < 0) {
        return rc;
    }
    const union MHD_DaemonInfo *info = MHD_get_daemon_info(api->daemon, MHD_DAEMON_INFO_EPOLL_FD);
    rc = info ? watch(api, info->epoll_fd) : -EINVAL;
    int sink_fd = driver->fd(sink);
    if (rc == 0 && sink_fd >= 0) {
        rc = watch(api, sink_fd);
    }
    if (rc < 0) {
        return err_set(err, rc, "cannot watch the server's descriptors: %s", strerror(-rc));
    }
    return 0;
}

void api_free(struct api *api)
{
    if (api->sink) {
        api->driver->close(api->sink, clock_mono_ns());
        api->sink = NULL;
    }
    if (api->daemon) {
        http_resume_decided(api);
        MHD_stop_daemon(api->daemon); /* a quiesced one leaves listen_fd to us */
        api->daemon = NULL;
        if (!api->stopping) {
            api->listen_fd = -1;
        }
        replies_stop();
    }
    if (api->listen_fd >= 0) {
        close(api->listen_fd);
    }
    if (api->epoll_fd >= 0) {
        close(api->epoll_fd);
    }
    waiters_free(&api->waiters);
    metrics_event_free(&api->event);
    counters_free(&api->counters);
}

static enum api_condition condition_of(const struct api *api)
{
    if (api->broken) {
        return API_BROKEN;
    }
    if (api->stopping) {
        return API_STOPPING;
    }
    if (!api->sink_is_ready) {
        return API_NOT_READY;
    }
    enum admission_verdict verdict = admission_check(&api->admission, 0);
    return verdict == ADMISSION_BACKLOG_TASKS || verdict == ADMISSION_BACKLOG_BYTES ? API_FULL
                                                                                    : API_OK;
}

static void publish(struct api *api)
{
    struct counters *counters = &api->counters;
    const struct admission *admission = &api->admission;
    counter_set(&counters->connections, (long long)api->guard.count);
    counter_set(&counters->in_flight_tasks, admission->tasks);
    counter_set(&counters->in_flight_bytes, admission->bytes);
    counter_set(&counters->backlog_tasks, admission->backlog_tasks);
    counter_set(&counters->backlog_bytes, admission->backlog_bytes);
}

static void tick(struct api *api)
{
    api->tick_ns = api->now_ns;
    struct sink_backlog backlog = {.tasks = -1, .bytes = -1};
    if (!api->sink || api->driver->backlog(api->sink, &backlog) < 0) {
        backlog.tasks = backlog.bytes = -1;
    }
    admission_backlog(&api->admission, backlog.tasks, backlog.bytes);
    if (api->metrics && api->now_ns - api->flushed_ns >= FLUSH_EVERY_NS) {
        api->flushed_ns = api->now_ns;
        metrics_flush(api->metrics);
    }
    if (api->now_ns - api->swept_ns >= SWEEP_EVERY_NS) {
        api->swept_ns = api->now_ns;
        size_t shut = guard_sweep(&api->guard, api->now_ns);
        counter_add(&api->counters.slow_requests, (long long)shut);
    }
    publish(api);
}

/* How long the loop may sleep. */
static int64_t sleep_ns(struct api *api)
{
    int64_t sleep = api->tick_ns + TICK_NS - api->now_ns;
    unsigned long long mhd_ms;
    if (MHD_get_timeout(api->daemon, &mhd_ms) == MHD_YES && (int64_t)mhd_ms * NS_PER_MS < sleep) {
        sleep = (int64_t)mhd_ms * NS_PER_MS;
    }
    int64_t due = api->sink && !api->sink_ended ? api->driver->due_ns(api->sink) : -1;
    api->process_by_ns = due >= 0 ? api->now_ns + due : INT64_MAX;
    if (due >= 0 && due < sleep) {
        sleep = due;
    }
    if (api->waiters.first) {
        int64_t left =
            api->waiters.first->complete_ns + api->settings.ack_deadline_ns - api->now_ns;
        sleep = left < sleep ? left : sleep;
    }
    return sleep > 0 ? sleep : 0;
}

static void upkeep(struct api *api)
{
    while (stop_signal(api->upkeep_fd) != 0) { /* several that came together are one */
    }
    if (!api->sink || api->sink_ended) {
        return;
    }
    int rc = api->driver->upkeep(api->sink);
    if (rc == -ENOTSUP) {
        log_warning("SIGUSR1 asks for upkeep, and the sink %s has none", api->driver->name);
    } else if (rc == 0) {
        log_info("SIGUSR1: the sink %s does its upkeep now", api->driver->name);
        api->process_by_ns = api->now_ns;
    }
}

/* Waits; true when the sink's descriptor is readable. *stop is set when the stop signal is. */
static bool wait_for_events(struct api *api, int64_t wait_ns, int stop_fd, bool *stop)
{
    struct epoll_event events[4];
    struct timespec timeout = {.tv_sec = wait_ns / NS_PER_S, .tv_nsec = wait_ns % NS_PER_S};
    counter_set(&api->counters.busy_since_ns, 0);
    int count = epoll_pwait2(api->epoll_fd, events, 4, &timeout, NULL);
    if (count < 0 && errno == ENOSYS) { /* Linux before 5.11 */
        count = epoll_wait(api->epoll_fd, events, 4, (int)((wait_ns + NS_PER_MS - 1) / NS_PER_MS));
    }
    api->now_ns = clock_mono_ns();
    counter_set(&api->counters.busy_since_ns, api->now_ns);
    bool sink_readable = false;
    int sink_fd = api->sink ? api->driver->fd(api->sink) : -1;
    for (int i = 0; i < count; i++) {
        *stop = *stop || events[i].data.fd == stop_fd;
        sink_readable = sink_readable || events[i].data.fd == sink_fd;
        if (events[i].data.fd == api->upkeep_fd) {
            upkeep(api);
        }
    }
    return sink_readable;
}

static void process(struct api *api, bool sink_readable)
{
    if (!api->sink || api->sink_ended) {
        return;
    }
    if (!sink_readable && api->submitted == 0 && api->now_ns < api->process_by_ns) {
        return;
    }
    api->submitted = 0;
    api->process_by_ns = INT64_MAX;
    int rc = api->driver->process(api->sink);
    api->processed++;
    if (rc < 0) {
        api->broken = api->sink_ended = true;
        int sink_fd = api->driver->fd(api->sink);
        if (sink_fd >= 0) { /* nobody will read it again */
            epoll_ctl(api->epoll_fd, EPOLL_CTL_DEL, sink_fd, NULL);
        }
    }
}

static void look_at_sink(struct api *api)
{
    bool was_broken = atomic_load(&api->counters.condition) == API_BROKEN;
    api->sink_is_ready = api->sink && !api->broken && api->driver->ready(api->sink);
    if (!api->sink_is_ready && api->sink && !api->broken) {
        const char *sentence = "";
        api->sink_why = sink_why(api->driver, api->sink, &sentence);
        counters_why(&api->counters, sentence);
    }
    enum api_condition condition = condition_of(api);
    atomic_store_explicit(&api->counters.condition, (int)condition, memory_order_relaxed);
    if (condition == API_BROKEN && !was_broken) {
        log_error("the sink %s has failed for good: every request is answered 503 from now on; "
                  "restart the server when the cause is gone",
                  api->driver->name);
    }
}

/* LOOP: one pass. The order is the point: read all, process once, answer all. */
static void pass(struct api *api, int64_t wait_ns, int stop_fd, bool *stop)
{
    bool sink_readable = wait_for_events(api, wait_ns, stop_fd, stop);
    counter_add(&api->counters.passes, 1);
    MHD_run(api->daemon);
    process(api, sink_readable);
    api->now_ns = clock_mono_ns();
    http_expire(api);
    http_resume_decided(api);
    look_at_sink(api);
    MHD_run(api->daemon);
    if (api->now_ns - api->tick_ns >= TICK_NS) {
        tick(api);
    }
}

/* After the sink is closed: every task is decided, and answers only need to leave. */
static void send_last_answers(struct api *api, int64_t until_ns)
{
    bool ignored = false;
    for (int turn = 0; turn < MHD_TURNS_MAX || api->answering > 0; turn++) {
        if (clock_mono_ns() >= until_ns) {
            break;
        }
        http_resume_decided(api);
        pass(api, turn < MHD_TURNS_MAX ? 0 : 10 * NS_PER_MS, -1, &ignored);
    }
}

static void settle(struct api *api)
{
    int64_t start_ns = api->now_ns;
    bool ignored = false;
    api->stopping = true;
    look_at_sink(api);
    MHD_socket quiesced = MHD_quiesce_daemon(api->daemon);
    if (quiesced != MHD_INVALID_SOCKET) {
        /* Not closed yet: what waits in the accept queue is reset only when we are done. */
        api->listen_fd = quiesced;
    }
    while ((api->waiters.taken > 0 || api->receiving > 0 || api->answering > 0) &&
           api->now_ns - start_ns < SETTLE_NS) {
        int64_t wait_ns = sleep_ns(api);
        pass(api, wait_ns, -1, &ignored);
    }
    api->driver->close(api->sink, clock_mono_ns() + SINK_CLOSE_NS);
    api->sink = NULL;
    assert(api->waiters.taken == 0);
    send_last_answers(api, clock_mono_ns() + NS_PER_S / 2);
}

int api_run(struct api *api, int stop_fd, int upkeep_fd)
{
    bool stop = false;
    api->now_ns = api->flushed_ns = api->swept_ns = clock_mono_ns();
    api->upkeep_fd = upkeep_fd;
    if (watch(api, stop_fd) < 0 || watch(api, upkeep_fd) < 0) {
        log_error("cannot watch for signals, so the server stops at once");
        return 0;
    }
    tick(api);
    process(api, true); /* lets a remote sink begin to connect */
    look_at_sink(api);
    while (!stop) {
        pass(api, sleep_ns(api), stop_fd, &stop);
    }
    int signal = stop_signal(stop_fd);
    epoll_ctl(api->epoll_fd, EPOLL_CTL_DEL, stop_fd, NULL);
    settle(api);
    return signal;
}
