#include "wal/tool/check.h"
#include "wal/tool/salvage.h"
#include "wal/tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct dump {
    uint64_t from;
    uint64_t to;
    uint64_t show_bytes;
    bool raw;
    bool batches;
    bool live;
    uint64_t last_lsn;
    bool missing;
};

static void print_payload(const unsigned char *bytes, uint64_t length, uint64_t show)
{
    uint64_t count = length < show ? length : show;
    putchar('"');
    for (uint64_t i = 0; i < count; i++) {
        if (bytes[i] == '"' || bytes[i] == '\\') {
            printf("\\%c", bytes[i]);
        } else if (bytes[i] < 0x20 || bytes[i] > 0x7e) {
            printf("\\x%02x", bytes[i]);
        } else {
            putchar(bytes[i]);
        }
    }
    printf("\"%s", count < length ? "..." : "");
}

static void print_record(const struct dump *dump, const struct wal_salvaged *salvaged, uint64_t lsn,
                         uint64_t offset, const unsigned char *bytes, uint32_t length)
{
    if (dump->raw) {
        fwrite(bytes, 1, length, stdout);
        putchar('\n');
        return;
    }
    printf("%" PRIu64 "\t%" PRIu32 "\t%020" PRIu64 WAL_SEGMENT_SUFFIX ":%" PRIu64, lsn, length,
           salvaged->source->file_number, offset);
    if (dump->show_bytes > 0) {
        putchar('\t');
        print_payload(bytes, length, dump->show_bytes);
    }
    putchar('\n');
}

static void note_missing(struct dump *dump, const struct wal_salvaged *salvaged)
{
    uint64_t durable = salvaged->batch->durable_lsn;
    if (dump->last_lsn == 0 || durable <= dump->last_lsn || dump->last_lsn < dump->from) {
        return;
    }
    fflush(stdout);
    fprintf(stderr, "sluice-wal dump: records %" PRIu64 " to %" PRIu64 " are not readable%s\n",
            dump->last_lsn + 1, salvaged->first_lsn - 1,
            dump->live ? " (the log is in use: the reader may just have been done with them)" : "");
    dump->missing = true;
}

static int dump_batch(void *arg, const struct wal_salvaged *salvaged)
{
    struct dump *dump = arg;
    uint64_t last = salvaged->first_lsn + salvaged->record_count - 1;
    if (salvaged->first_lsn > dump->to) {
        return -ECANCELED;
    }
    note_missing(dump, salvaged);
    dump->last_lsn = last;
    if (last < dump->from) {
        return 0;
    }
    if (dump->batches) {
        printf("%" PRIu64 "-%" PRIu64 "\t%" PRIu32 "\t%020" PRIu64 WAL_SEGMENT_SUFFIX ":%" PRIu64
               "\tdurable before: %" PRIu64 "%s\n",
               salvaged->batch->first_lsn, last, salvaged->batch->body_bytes,
               salvaged->source->file_number, salvaged->offset, salvaged->batch->durable_lsn,
               (salvaged->batch->flags & WAL_BATCH_COPY) != 0 ? ", copy" : "");
        return 0;
    }
    uint64_t offset = salvaged->offset + WAL_BATCH_HEADER_BYTES + salvaged->batch->body_bytes -
                      salvaged->body_bytes;
    const unsigned char *at = salvaged->body;
    for (uint64_t lsn = salvaged->first_lsn; lsn <= last && lsn <= dump->to; lsn++) {
        uint32_t length = wal_record_length(at);
        if (lsn >= dump->from) {
            print_record(dump, salvaged, lsn, offset, at + WAL_RECORD_HEADER_BYTES, length);
        }
        at += WAL_RECORD_HEADER_BYTES + length;
        offset += WAL_RECORD_HEADER_BYTES + (uint64_t)length;
    }
    return ferror(stdout) ? -EIO : 0;
}

static void print_segments(const struct wal_salvage *salvage)
{
    for (size_t i = 0; i < salvage->count; i++) {
        const struct wal_source *source = &salvage->sources[i];
        printf("%020" PRIu64 WAL_SEGMENT_SUFFIX "\t%" PRIu64 " bytes\t%s", source->file_number,
               source->size, wal_source_text(source->state));
        if (source->state == WAL_SOURCE_WHOLE || source->state == WAL_SOURCE_RENAMED) {
            printf("\tnumber %" PRIu64 ", epoch %" PRIu64 ", durable before: %" PRIu64,
                   source->header.number, source->header.epoch, source->header.base_lsn);
        }
        putchar('\n');
    }
}

/* Of a log in use, nothing is shown before the writer has said that it is durable. */
static int limit(struct dump *dump, const char *dir, struct wal_err *err)
{
    struct wal_shared *shared = NULL;
    int file = -1;
    int result = wal_check_shared(wal_vfs_posix(), dir, &shared, &file, err);
    if (result == 0 && shared != NULL && dump->live) {
        uint64_t durable = atomic_load(&shared->durable_lsn);
        dump->to = durable < dump->to ? durable : dump->to;
    }
    wal_shared_close(wal_vfs_posix(), shared, file);
    return result;
}

static int run(const struct tool_command *command, int count, char **words)
{
    struct dump dump = {.from = 1, .to = WAL_LSN_MAX, .show_bytes = 64};
    struct wal_salvage salvage = {0};
    struct wal_err err;
    bool segments = false;
    const char *dir;
    const struct tool_option options[] = {
        {"from", "LSN", TOOL_NUMBER, &dump.from, 1, WAL_LSN_MAX, "the first record to show [1]"},
        {"to", "LSN", TOOL_NUMBER, &dump.to, 1, WAL_LSN_MAX, "the last one [the log's end]"},
        {"show", "BYTES", TOOL_NUMBER, &dump.show_bytes, 0, INT32_MAX,
         "how much of each payload to show [64]"},
        {"raw", NULL, TOOL_FLAG, &dump.raw, 0, 0,
         "the payloads alone, as they are, a newline behind each"},
        {"batches", NULL, TOOL_FLAG, &dump.batches, 0, 0, "a line for each batch, not each record"},
        {"segments", NULL, TOOL_FLAG, &segments, 0, 0, "a line for each segment"},
        {0},
    };
    int status = tool_parse(command, options, count, words, &dir);
    if (status >= 0) {
        return status;
    }
    struct tool_owners owners = tool_owners(dir);
    dump.live = owners.perhaps;
    int result = limit(&dump, dir, &err);
    if (result == 0) {
        result = wal_salvage_open(&salvage, wal_vfs_posix(), dir, &err);
    }
    if (result < 0) {
        return tool_cannot(command, "%s", err.text);
    }
    if (segments) {
        print_segments(&salvage);
    } else {
        result = wal_salvage_each(&salvage, dump_batch, &dump, &err);
    }
    wal_salvage_close(&salvage);
    if (result < 0 && result != -ECANCELED && !ferror(stdout)) {
        return tool_cannot(command, "%s", err.text);
    }
    return dump.missing && !dump.live ? TOOL_DAMAGE : TOOL_FINE;
}

const struct tool_command tool_dump = {
    .name = "dump",
    .summary = "every readable record: number, length, place, payload",
    .text = "Prints every record that can be read, in order, also those that the reader is done "
            "with while\n"
            "they are still there, and those behind a damaged place: what `repair` would keep. "
            "Tabs between\n"
            "number, length in bytes, file:offset, payload. Nothing is written and no lock is "
            "taken; of a log\n"
            "in use it shows what is durable.\n\n"
            "Exit status: 0 fine; 1 there are records missing between those shown (named on "
            "stderr); 2 a\n"
            "mistake in the command; 3 could not be read.\n",
    .run = run,
};
