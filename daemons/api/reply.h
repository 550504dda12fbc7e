/* reply.h: every answer that the front end gives, as one table. */
#ifndef SLUICE_API_REPLY_H
#define SLUICE_API_REPLY_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/uuid.h"

enum reply {
    REPLY_NONE,
    REPLY_ACCEPTED,
    REPLY_BAD_REQUEST, /* with a detail of its own */
    REPLY_NOT_FOUND,
    REPLY_METHOD,
    REPLY_TOO_LARGE,
    REPLY_MEDIA_TYPE,
    /* Surely not stored. */
    REPLY_IN_FLIGHT_TASKS,
    REPLY_IN_FLIGHT_BYTES,
    REPLY_BACKLOG_TASKS,
    REPLY_BACKLOG_BYTES,
    REPLY_SINK_REFUSED,
    REPLY_SINK_BUSY,
    REPLY_NOT_CONNECTED,
    REPLY_SINK_BROKEN,
    REPLY_STOPPING,
    /* Nobody can tell. */
    REPLY_UNKNOWN_DEADLINE,
    REPLY_UNKNOWN_SINK,
    REPLY_COUNT,
};

unsigned reply_code(enum reply reply);      /* the HTTP status */
const char *reply_reason(enum reply reply); /* the word for JSON and metrics: "backlog_tasks" */

/* Builds what never changes; replies_stop frees it. One thread. */
void replies_start(void);
void replies_stop(void);

/* Queues a reply. detail: for REPLY_BAD_REQUEST (copied). id: for REPLY_UNKNOWN_*. close: say so
 * and end the connection. */
enum MHD_Result reply_queue(struct MHD_Connection *connection, enum reply reply, const char *detail,
                            const uint8_t id[UUID_BYTES], bool close);

/* Past libmicrohttpd, which answers no request in the midst of its body: writes a reply (one
 * without an id) that ends the connection, and then says that no more will come. Nothing else may
 * be under way on fd. Never blocks; false: it could not be written whole. */
bool reply_write(int fd, enum reply reply, const char *detail);

/* The 202. It belongs to one connection, which has one answer under way at a time, so object and
 * text are made once and used again: an allocation less for each request. */
struct reply_accepted {
    struct MHD_Response *response;
    char text[64];
};
enum MHD_Result reply_queue_accepted(struct MHD_Connection *connection,
                                     struct reply_accepted *accepted, const uint8_t id[UUID_BYTES],
                                     bool close);
void reply_accepted_free(struct reply_accepted *accepted);

#endif
