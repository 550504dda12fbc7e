/*
 * Cursors of any content beside a log of RECORDS records. One that fails its checksum, or is of
 * another log, counts for nothing: the log opens and all of it is read again. One that passes may
 * say what it likes: the log opens, or is refused with a sentence; what is read is in order and has
 * its bytes.
 *
 * The input:
 *     1  flags: bits 0, 1: put the slots' checksums right; bits 2, 3: and their log's id;
 *        bit 4: the writer is opened before the reader, else it has been running
 *     2  length of the first slot, little-endian; the rest is the second one
 */
#include "fuzz.h"

#define RECORDS 60u

struct image {
    char name[32];
    size_t size;
    unsigned char *bytes;
};

static struct image images[8];
static unsigned image_count;
static uint64_t log_id;

/* The log itself is always the same: written once, then put in place for every input. */
static void make_log(void)
{
    struct sim *sim = sim_new(7);
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    fuzz_options(&options, sim);
    FUZZ_CHECK(wal_open(FUZZ_DIR, &options, &wal, &err) == 0);
    for (unsigned n = 1; n <= RECORDS; n++) {
        char text[400];
        memset(text, (int)n, sizeof text);
        FUZZ_CHECK(wal_append(wal, text, 100 + n, NULL) == 0 && wal_flush(wal, NULL) == 0);
    }
    wal_close(wal);
    for (unsigned n = 1; n < 8; n++) {
        struct image *image = &images[image_count];
        snprintf(image->name, sizeof image->name, "%020u.seg", n);
        struct sim_file *file = sim_find(sim, image->name);
        if (file == NULL) {
            break;
        }
        image->size = file->size;
        image->bytes = malloc(file->size);
        FUZZ_CHECK(image->bytes != NULL);
        memcpy(image->bytes, file->cache, file->size);
        image_count++;
    }
    FUZZ_CHECK(image_count > 1);
    log_id = fuzz_get(images[0].bytes + 16, 8);
    sim_free(sim);
}

static void take_slot(unsigned char *slot, const unsigned char *data, size_t size, bool seal,
                      bool own)
{
    memcpy(slot, data, size < WAL_CURSOR_SLOT_BYTES ? size : WAL_CURSOR_SLOT_BYTES);
    if (own) {
        fuzz_put64(slot + 16, log_id);
    }
    uint64_t ranges = fuzz_get(slot + 12, 4);
    if (seal && ranges <= WAL_CURSOR_DONE_MAX) {
        uint64_t seed = XXH3_64bits_withSeed(slot, 64, FUZZ_K2);
        fuzz_put64(slot + 64,
                   XXH3_64bits_withSeed(slot + WAL_CURSOR_HEADER_BYTES, ranges * 16, seed));
    }
}

/* Whether any slot of it counts. */
static bool put_cursor(struct sim *sim, const unsigned char *data, size_t size)
{
    static unsigned char bytes[WAL_CURSOR_BYTES];
    struct wal_cursor_slot slot;
    bool counts = false;
    size_t first = (size_t)fuzz_get(data + 1, 2);
    first = first < size - 3 ? first : size - 3;
    memset(bytes, 0, sizeof bytes);
    take_slot(bytes, data + 3, first, (data[0] & 1u) != 0, (data[0] & 4u) != 0);
    take_slot(bytes + WAL_CURSOR_SLOT_BYTES, data + 3 + first, size - 3 - first,
              (data[0] & 2u) != 0, (data[0] & 8u) != 0);
    for (unsigned i = 0; i < 2; i++) {
        counts = counts || (wal_cursor_decode(&slot, bytes + (size_t)i * WAL_CURSOR_SLOT_BYTES) &&
                            slot.log_id == log_id);
    }
    sim_put(sim, WAL_CURSOR_NAME, bytes, sizeof bytes);
    return counts;
}

static void read_all(struct sim *sim, bool counts)
{
    struct wal_reader_options options;
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    uint64_t last = 0;
    unsigned read = 0;
    int result;
    wal_reader_options_init(&options);
    options.vfs = &sim->vfs;
    FUZZ_CHECK(wal_reader_open(FUZZ_DIR, &options, &reader, &err) == 0);
    while ((result = wal_reader_next(reader, &record)) == 1) {
        FUZZ_CHECK(record.lsn > last && record.lsn <= RECORDS);
        FUZZ_CHECK(record.count == 100 + record.lsn);
        FUZZ_CHECK(((const unsigned char *)record.bytes)[99] == record.lsn);
        FUZZ_CHECK(wal_reader_done(reader, record.lsn, record.lsn) == 0);
        last = record.lsn;
        read++;
    }
    FUZZ_CHECK(result == 0 || (result == -EBADMSG && wal_reader_problem(reader)[0] != '\0'));
    FUZZ_CHECK(counts || (result == 0 && read == RECORDS));
    wal_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size < 3) {
        return 0;
    }
    if (image_count == 0) {
        make_log();
    }
    struct sim *sim = sim_new(1);
    struct wal_options options;
    struct wal *wal = NULL;
    struct wal_err err = {{0}};
    bool running = (data[0] & 16u) != 0;
    int result = 0;
    sim->dir_exists = true;
    for (unsigned i = 0; i < image_count; i++) {
        sim_put(sim, images[i].name, images[i].bytes, images[i].size);
    }
    fuzz_options(&options, sim);
    if (running) {
        result = wal_open(FUZZ_DIR, &options, &wal, &err);
        FUZZ_CHECK(result == 0);
    }
    bool counts = put_cursor(sim, data, size);
    if (!running) {
        result = wal_open(FUZZ_DIR, &options, &wal, &err);
    }
    FUZZ_CHECK(result == 0 || (counts && result == -EBADMSG && err.text[0] != '\0'));
    if (result == 0) {
        read_all(sim, counts);
        wal_close(wal);
    }
    sim_free(sim);
    return 0;
}
