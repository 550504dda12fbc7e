/* What both fuzz targets need. They run under libFuzzer, or once over the corpus by drive.c. */
#ifndef WAL_TEST_FUZZ_H
#define WAL_TEST_FUZZ_H

#include "../sim.h"

#include "wal/format.h"
#include "wal/reader.h"
#include "wal/wal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#define FUZZ_DIR "log"
#define FUZZ_K1  0x9E3779B97F4A7C15u
#define FUZZ_K2  0xC2B2AE3D27D4EB4Fu

#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static inline uint64_t fuzz_get(const unsigned char *bytes, int width)
{
    uint64_t value = 0;
    for (int i = width - 1; i >= 0; i--) {
        value = value << 8 | bytes[i];
    }
    return value;
}

static inline void fuzz_put64(unsigned char *bytes, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
}

static inline void fuzz_options(struct wal_options *options, struct sim *sim)
{
    wal_options_init(options);
    options->vfs = &sim->vfs;
    options->segment_bytes = 16384;
    options->record_max = 4000;
    options->batch_max_bytes = 4096;
}

#endif
