/* task.h: the unit of work. Every sink carries all three parts; the body byte for byte. */
#ifndef SLUICE_TASK_TASK_H
#define SLUICE_TASK_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/uuid.h"

struct task {
    uint8_t id[UUID_BYTES];
    int64_t accepted_us; /* wall clock when the request was complete */
    const void *body;    /* the whole request body; borrowed from whoever filled the struct */
    size_t body_bytes;
};

/* Checks a request body: strict JSON (base/json.h), an object, "payload" present, "id" absent or
 * one canonical UUID string, neither key repeated. Fills id (a fresh UUIDv7 when absent), body and
 * body_bytes (borrowed); leaves accepted_us alone. -EINVAL and a sentence fit for the client. */
int task_parse(const char *body, size_t body_bytes, struct task *task, struct err *err);

/* The flat form, for sinks that store bytes: id (16), accepted_us (8, little-endian), body (rest).
 */
enum { TASK_HEADER_BYTES = UUID_BYTES + 8 };
void task_encode_header(const struct task *task, uint8_t header[TASK_HEADER_BYTES]);
/* body points into bytes. -EBADMSG when shorter than the header. */
int task_decode(const void *bytes, size_t len, struct task *task);

/* The 64-bit XXH3 of a body, as ledger and main.tsv carry it (16 hexadecimal digits). */
uint64_t task_body_hash(const void *body, size_t body_bytes);

/* The load generator's body: a pure function of (id, payload_bytes), so that the audit can make it
 * again. {"id":"<uuid>","payload":"<payload_bytes printable characters drawn from the id>"} */
void task_synth_body(const uint8_t id[UUID_BYTES], size_t payload_bytes, struct buf *out);
/* The nth id of a load: a pure function of (seed, n), valid as UUID version 8 (RFC 9562, 5.8). */
void task_synth_id(uint64_t seed, uint64_t n, uint8_t id[UUID_BYTES]);

#endif
