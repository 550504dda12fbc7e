/*
 * Segments of any content: opening refuses with a sentence and changes nothing, or opens; then what
 * it says is durable can be read, and is there again at the next open. No content crashes, hangs,
 * or makes it read what is not there.
 *
 * The input is up to SEGMENTS of them, each as
 *     1  flags: which checksums are put right before use, so that numbers that lie get past them
 *     2  length of what follows the header, little-endian
 *   128  the header's bytes that have a meaning
 *        what lies from offset 4096 on
 */
#include "fuzz.h"

#include "wal/probe.h"

#define SEGMENTS     3
#define PIECE_BYTES  (3 + 128)
#define CONTENT_MAX  12288
#define HOLDS_MAX    100000u /* records read; a batch of empty ones has a thousand at most */
#define SEAL_HEADER  1u
#define SEAL_BATCHES 2u
#define SEAL_RECORDS 4u
#define BATCH_MAGIC  0x42575331u

struct piece {
    unsigned flags;
    size_t size;
    unsigned char bytes[WAL_HEADER_BYTES + CONTENT_MAX];
};

static struct piece pieces[SEGMENTS];

/* The records' checksums, as far as their lengths fit; returns the chain over them. */
static uint64_t seal_records(unsigned char *body, uint64_t body_bytes, uint64_t count, uint64_t lsn,
                             uint64_t salt)
{
    uint64_t chain = FUZZ_K2;
    for (uint64_t i = 0; i < count && body_bytes >= WAL_RECORD_HEADER_BYTES; i++) {
        uint64_t length = fuzz_get(body, 4);
        body_bytes -= WAL_RECORD_HEADER_BYTES;
        if (length > body_bytes) {
            break;
        }
        fuzz_put64(body + 8, XXH3_64bits_withSeed(body + WAL_RECORD_HEADER_BYTES, length,
                                                  salt + (lsn + i) * FUZZ_K1 + length * FUZZ_K2));
        chain = XXH3_64bits_withSeed(body + 8, 8, chain);
        body += WAL_RECORD_HEADER_BYTES + length;
        body_bytes -= length;
    }
    return chain;
}

static void seal(struct piece *piece)
{
    unsigned char *bytes = piece->bytes;
    uint64_t salt = fuzz_get(bytes + 32, 8);
    uint64_t block = fuzz_get(bytes + 56, 4);
    if ((piece->flags & SEAL_HEADER) != 0) {
        fuzz_put64(bytes + 120, XXH3_64bits_withSeed(bytes, 120, FUZZ_K1));
    }
    if ((piece->flags & SEAL_BATCHES) == 0 || block < 512 || block > 4096) {
        return;
    }
    for (size_t at = WAL_HEADER_BYTES; at + WAL_BATCH_HEADER_BYTES <= piece->size;) {
        unsigned char *batch = bytes + at;
        uint64_t body_bytes = fuzz_get(batch + 32, 4);
        uint64_t left = piece->size - at - WAL_BATCH_HEADER_BYTES;
        if (fuzz_get(batch, 4) == BATCH_MAGIC) {
            if ((piece->flags & SEAL_RECORDS) != 0) {
                uint64_t chain = seal_records(batch + WAL_BATCH_HEADER_BYTES,
                                              body_bytes < left ? body_bytes : left,
                                              fuzz_get(batch + 4, 4), fuzz_get(batch + 8, 8), salt);
                fuzz_put64(batch + 40, chain);
            }
            fuzz_put64(batch + 56, XXH3_64bits_withSeed(batch, 56, salt + at * FUZZ_K1));
        }
        uint64_t step = (WAL_BATCH_HEADER_BYTES + body_bytes + block - 1) / block * block;
        at = step > left ? piece->size : at + step;
    }
}

static unsigned take_pieces(const unsigned char *data, size_t size)
{
    unsigned count = 0;
    while (count < SEGMENTS && size >= PIECE_BYTES) {
        struct piece *piece = &pieces[count++];
        size_t content = (size_t)fuzz_get(data + 1, 2);
        content = content < size - PIECE_BYTES ? content : size - PIECE_BYTES;
        content = content < CONTENT_MAX ? content : CONTENT_MAX;
        memset(piece, 0, sizeof *piece);
        piece->flags = data[0];
        piece->size = WAL_HEADER_BYTES + content;
        memcpy(piece->bytes, data + 3, 128);
        memcpy(piece->bytes + WAL_HEADER_BYTES, data + PIECE_BYTES, content);
        seal(piece);
        data += PIECE_BYTES + content;
        size -= PIECE_BYTES + content;
    }
    return count;
}

static void name_of(char name[32], unsigned piece)
{
    snprintf(name, 32, "%020u.seg", piece + 1);
}

static void check_unchanged(struct sim *sim, unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        name_of(name, i);
        struct sim_file *file = sim_find(sim, name);
        FUZZ_CHECK(file != NULL && file->size == pieces[i].size);
        FUZZ_CHECK(memcmp(file->cache, pieces[i].bytes, pieces[i].size) == 0);
    }
}

static void read_all(struct sim *sim, uint64_t durable_lsn)
{
    struct wal_reader_options options;
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    uint64_t last = 0;
    int result;
    wal_reader_options_init(&options);
    options.vfs = &sim->vfs;
    FUZZ_CHECK(wal_reader_open(FUZZ_DIR, &options, &reader, &err) == 0);
    for (unsigned i = 0; (result = wal_reader_next(reader, &record)) == 1; i++) {
        FUZZ_CHECK(i < HOLDS_MAX && record.lsn > last && record.lsn <= durable_lsn);
        (void)XXH3_64bits(record.bytes, record.count); /* all of it is there to be read */
        last = record.lsn;
    }
    FUZZ_CHECK(result == 0 || (result == -EBADMSG && wal_reader_problem(reader)[0] != '\0'));
    FUZZ_CHECK(result < 0 || last == durable_lsn || last == 0);
    wal_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    struct sim *sim = sim_new(1);
    struct wal_options options;
    struct wal *wal;
    struct wal_err err = {{0}};
    struct wal_probe *probe;
    struct wal_probe_stats probed;
    unsigned count = take_pieces(data, size);
    for (unsigned i = 0; i < count; i++) {
        char name[32];
        name_of(name, i);
        sim_put(sim, name, pieces[i].bytes, pieces[i].size);
    }
    sim->dir_exists = true;
    fuzz_options(&options, sim);
    if (wal_probe_open(FUZZ_DIR, &sim->vfs, &probe, &err) == 0) {
        wal_probe_read(probe, &probed, &err);
        wal_probe_close(probe);
    }
    for (int life = 0; life < 2; life++) {
        struct wal_stats stats;
        int result = wal_open(FUZZ_DIR, &options, &wal, &err);
        if (result < 0) {
            FUZZ_CHECK(life == 0 && (result == -EBADMSG || result == -ENOTSUP));
            FUZZ_CHECK(err.text[0] != '\0');
            check_unchanged(sim, count);
            break;
        }
        wal_stats(wal, &stats);
        uint64_t lsn = stats.durable_lsn;
        result = wal_append(wal, "x", 1, NULL);
        FUZZ_CHECK(result == 0 || result == -EOVERFLOW);
        FUZZ_CHECK(wal_flush(wal, &lsn) == 0);
        read_all(sim, lsn);
        FUZZ_CHECK(wal_close(wal) == 0);
    }
    sim_free(sim);
    return 0;
}
