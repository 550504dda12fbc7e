/* api.h: the HTTP front end: one event loop around libmicrohttpd and one sink.
 *
 * A pass of the loop reads every request that is ready and submits each to the sink, lets the sink
 * process once (which flushes or sends them together), and answers those decided. No thread but the
 * loop's touches this, except that the admin thread reads the counters.
 */
#ifndef SLUICE_API_API_H
#define SLUICE_API_API_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include "api/admission.h"
#include "api/counters.h"
#include "api/waiter.h"
#include "base/err.h"
#include "base/options.h"
#include "common/guard.h"
#include "metrics/metrics.h"
#include "sink/sink.h"

struct api_settings {
    struct admission_limits limits;
    size_t body_max_bytes;
    int64_t ack_deadline_ns;    /* from the complete request to 504 */
    int64_t request_timeout_ns; /* for a header, and again for a body */
    int64_t idle_timeout_ns;    /* of a connection without a request; whole seconds count */
    unsigned connections_max;
};

struct api {
    struct api_settings settings;
    const struct sink_driver *driver;
    struct sink *sink;       /* ingest handle, owned */
    struct metrics *metrics; /* borrowed; NULL: no events */
    struct metrics_event event;
    struct MHD_Daemon *daemon;
    struct admission admission;
    struct counters counters;
    struct waiters waiters;
    struct guard guard;
    struct connection *decided; /* suspended ones whose reply is known, to be resumed */
    uint64_t processed;         /* calls of process() */
    unsigned submitted;         /* since the last process() */
    size_t receiving;           /* requests whose body is still coming */
    size_t answering;           /* requests decided and not yet answered in full */
    int64_t now_ns;             /* as of this pass */
    int64_t process_by_ns;      /* when process() is due, as the sink last said; INT64_MAX: not */
    int64_t tick_ns, flushed_ns, swept_ns;
    int listen_fd, epoll_fd, upkeep_fd;
    bool sink_is_ready;
    int sink_why;    /* if not: as sink_why() says; the sentence is in counters.why */
    bool broken;     /* takes no task ever again */
    bool sink_ended; /* and process() has said so: it is not called any more */
    bool stopping;
};

/* Takes ownership of listen_fd and sink at once, also when it fails. */
int api_start(struct api *api, const struct api_settings *settings, int listen_fd,
              const struct sink_driver *driver, struct sink *sink, struct metrics *metrics,
              struct err *err);

/* Serves until stop_fd (stop.h) is readable, then takes no more connections, settles every task,
 * answers its client and returns the signal's number. Within 5 s. Whenever upkeep_fd (stop.h too)
 * is readable, the sink is told to do its upkeep. */
int api_run(struct api *api, int stop_fd, int upkeep_fd);

void api_free(struct api *api); /* after a failed start too */

/* The whole program, for main() and for tests that link another registry. */
int api_main(int argc, char *argv[]);

#endif
