/* What the load generator sends: ids and bodies as pure functions, so that the audit can make them
 * again. The stream is splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
 * Generators, OOPSLA 2014). */
#include <string.h>

#include <xxhash.h>

#include "task/task.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
}

uint64_t task_body_hash(const void *body, size_t body_bytes)
{
    return XXH3_64bits(body, body_bytes);
}

void task_synth_id(uint64_t seed, uint64_t n, uint8_t id[UUID_BYTES])
{
    uint64_t state = seed;
    uint64_t mixed = splitmix64(&state) ^ n * 0xda942042e4dd58b5ULL;
    for (size_t word = 0; word < 2; word++) {
        uint64_t random = splitmix64(&mixed);
        memcpy(id + 8 * word, &random, 8);
    }
    /* The first 8 bytes spread, the last 6 hold n, so two ids of one seed never meet (n < 2^48). */
    for (int i = 0; i < 6; i++)
        id[10 + i] = (uint8_t)(n >> (40 - 8 * i));
    id[6] = (uint8_t)(0x80 | (id[6] & 0x0f));
    id[8] = (uint8_t)(0x80 | (id[8] & 0x3f));
}

void task_synth_body(const uint8_t id[UUID_BYTES], size_t payload_bytes, struct buf *out)
{
    /* 64 characters, so that a byte's low six bits choose one; none needs escaping in JSON. */
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[UUID_TEXT_BYTES];
    buf_reserve(out, payload_bytes + 64);
    buf_puts(out, "{\"id\":\"");
    buf_puts(out, uuid_format(id, text));
    buf_puts(out, "\",\"payload\":\"");
    uint64_t state = XXH3_64bits(id, UUID_BYTES);
    char *payload = out->data + out->len;
    for (size_t i = 0; i < payload_bytes; i += 8) {
        uint64_t random = splitmix64(&state);
        for (size_t k = i; k < payload_bytes && k < i + 8; k++, random >>= 8)
            payload[k] = letters[random & 63];
    }
    out->len += payload_bytes;
    buf_puts(out, "\"}");
}
