/* exchange.h: what goes out as a request, and what an answer means. */
#ifndef SLUICE_LOADGEN_EXCHANGE_H
#define SLUICE_LOADGEN_EXCHANGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/uuid.h"
#include "response.h"

enum outcome {
    OUTCOME_DURABLE, /* 202 with the id that was sent */
    OUTCOME_REFUSED, /* 4xx, 503: surely not stored */
    OUTCOME_UNKNOWN, /* sent, and whether it was stored can't be told */
    OUTCOME_UNSENT,  /* not one byte was sent */
    OUTCOMES
};

const char *outcome_name(enum outcome outcome); /* as the ledger has it */

/* Where to send: "127.0.0.1:8080", "[::1]:8080", "api:8080". */
struct target {
    struct sockaddr_storage address;
    socklen_t address_len;
    char host[256]; /* for the Host header */
};

/* Resolves the name (may ask a name server). -EINVAL: malformed; -ENOENT: no such host. */
int target_parse(const char *text, struct target *target, struct err *err);

/* Requests that differ in their id only; all are of one length. */
struct request_form {
    struct buf bytes; /* the head, then the latest body */
    size_t head_bytes;
    size_t payload_bytes;
};

void request_form_init(struct request_form *form, const struct target *target, const char *path,
                       size_t payload_bytes);
void request_form_free(struct request_form *form);
/* form->bytes becomes the whole request for this id. */
void request_form_fill(struct request_form *form, const uint8_t id[UUID_BYTES]);

/* What an answer says about the task with this id. *wrong_id becomes true for a 202 that does not
 * carry exactly this id: such an answer vouches for nothing, so its outcome is unknown. */
enum outcome exchange_outcome(const struct response *response, const uint8_t id[UUID_BYTES],
                              bool *wrong_id);

#endif
