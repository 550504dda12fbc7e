/* http.h: requests, one state machine for each connection. Inside of the front end: see api.h. */
#ifndef SLUICE_API_HTTP_H
#define SLUICE_API_HTTP_H

#include "api/api.h"
#include "api/reply.h"

enum request_state {
    REQUEST_NONE,
    REQUEST_BODY,    /* body coming, kept */
    REQUEST_DISCARD, /* body coming, thrown away: the reply is decided already */
    REQUEST_LINGER,  /* the same, and the reply has been written: until the client has read it */
    REQUEST_PENDING, /* the sink has the task */
    REQUEST_DECIDED, /* reply known, not queued */
    REQUEST_QUEUED,  /* reply handed to MHD */
};

struct connection {
    struct guarded guarded; /* first: see guard.h */
    struct api *api;
    struct MHD_Connection *mhd;
    struct connection *next_decided;
    struct waiter *waiter; /* while PENDING */
    enum request_state state;
    enum reply reply;
    bool suspended;
    bool close_after;
    bool sink_says;        /* the reply's detail is the sink's own sentence */
    bool entered;          /* counted by admission, not yet handed to a waiter */
    size_t entered_bytes;  /* with so many bytes */
    size_t received_bytes; /* of this body, kept or not */
    uint64_t processed;    /* api->processed when the task was submitted */
    struct buf body;
    uint8_t id[UUID_BYTES];
    struct reply_accepted accepted;
};

/* Starts MHD on api->listen_fd in external mode. */
int http_start(struct api *api, struct err *err);

/* Resumes every suspended connection whose reply is known. Answers leave in the next MHD_run. */
void http_resume_decided(struct api *api);

/* Answers 504 to every client whose deadline has passed. */
void http_expire(struct api *api);

/* A client's fate is known: its waiter is decided or given up. */
void http_decide(struct connection *connection, enum reply reply);

#endif
