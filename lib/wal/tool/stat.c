#include "wal/probe.h"
#include "wal/tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct figures {
    const char *dir;
    struct wal_probe_stats probe;
    struct tool_owners owners;
    struct wal_cursor_slot cursor;
    int cursor_slots;
};

static const char *yes(bool value)
{
    return value ? "true" : "false";
}

static void print_json(const struct figures *figures)
{
    const struct wal_probe_stats *probe = &figures->probe;
    printf("{\"log\":");
    tool_json_string(stdout, figures->dir);
    printf(",\"writer_open\":%s,\"reader_open\":%s,\"scanned\":%s,\"segments\":%" PRIu64
           ",\"allocated_bytes\":%" PRIu64 ",\"live_bytes\":%" PRIu64 ",\"durable_lsn\":%" PRIu64
           ",\"done_lsn\":%" PRIu64 ",\"cursor_lsn\":",
           yes(figures->owners.writer), yes(figures->owners.reader), yes(probe->scanned),
           probe->segments, probe->allocated_bytes, probe->lag_bytes, probe->durable_lsn,
           probe->done_lsn);
    if (figures->cursor_slots > 0) {
        printf("%" PRIu64, figures->cursor.lsn);
    } else {
        printf("null");
    }
    printf(",\"lag_records\":%" PRIu64 ",\"flushes\":%" PRIu64 ",\"rotations\":%" PRIu64
           ",\"failed\":%d}\n",
           probe->lag_records, probe->flushes, probe->rotations, probe->failed);
}

static void print_text(const struct figures *figures)
{
    const struct wal_probe_stats *probe = &figures->probe;
    printf("writer       %s\n", figures->owners.writer ? "open" : "not open");
    printf("reader       %s\n", figures->owners.reader ? "open" : "not open");
    printf("segments     %" PRIu64 "\n", probe->segments);
    printf("allocated    %" PRIu64 " bytes\n", probe->allocated_bytes);
    printf("live         %" PRIu64 " bytes, from the oldest record that is not done\n",
           probe->lag_bytes);
    printf("durable LSN  %" PRIu64 "\n", probe->durable_lsn);
    printf("done LSN     %" PRIu64 "\n", probe->done_lsn);
    if (figures->cursor_slots > 0) {
        printf("cursor LSN   %" PRIu64 " on disk, %" PRIu32 " ranges done beyond it\n",
               figures->cursor.lsn, figures->cursor.done_count);
    } else {
        printf("cursor LSN   none on disk\n");
    }
    printf("lag          %" PRIu64 " records\n", probe->lag_records);
    if (!probe->scanned) {
        printf("flushes      %" PRIu64 " since it was opened\n", probe->flushes);
    }
    if (probe->failed != 0) {
        printf("failed       %s; the writer must be restarted\n", strerror(probe->failed));
    }
}

static int run(const struct tool_command *command, int count, char **words)
{
    bool json = false;
    struct figures figures = {0};
    struct wal_probe *probe;
    struct wal_err err;
    bool exists;
    const struct tool_option options[] = {
        {"json", NULL, TOOL_FLAG, &json, 0, 0, "one JSON object on stdout"},
        {0},
    };
    int status = tool_parse(command, options, count, words, &figures.dir);
    if (status >= 0) {
        return status;
    }
    int result = wal_probe_open(figures.dir, NULL, &probe, &err);
    if (result < 0) {
        return tool_cannot(command, "%s", err.text);
    }
    figures.owners = tool_owners(figures.dir);
    result = wal_probe_read(probe, &figures.probe, &err);
    if (result == -EBADMSG && figures.owners.perhaps) {
        result = wal_probe_read(probe, &figures.probe, &err); /* the writer was just opening it */
    }
    wal_probe_close(probe);
    if (result == -EBADMSG) {
        fprintf(stderr, "sluice-wal stat: %s\n", err.text);
        return TOOL_DAMAGE;
    }
    if (result < 0) {
        return tool_cannot(command, "%s", err.text);
    }
    figures.cursor_slots = wal_cursor_read(wal_vfs_posix(), figures.dir, &figures.cursor, &exists);
    if (figures.cursor_slots < 0) {
        return tool_cannot(command, "Cannot read %s/" WAL_CURSOR_NAME ": %s", figures.dir,
                           strerror(-figures.cursor_slots));
    }
    (json ? print_json : print_text)(&figures);
    return TOOL_FINE;
}

const struct tool_command tool_stat = {
    .name = "stat",
    .summary = "segments, bytes, durable LSN, cursor, lag",
    .text =
        "Prints the log's figures. If a writer has opened it since the boot, they come from the "
        "page that\n"
        "writer and reader share, at no cost; else everything that the reader is not done with is "
        "read.\n"
        "Nothing is written and no lock is taken; it may run beside writer and reader.\n\n"
        "live: bytes from the oldest record that is not done to the end, record headers included.\n"
        "allocated: the sizes of all segments' files. done LSN: the reader is done with all up to "
        "it.\n"
        "cursor LSN: the same, as far as it is on disk. lag: records durable and not done.\n\n"
        "Exit status: 0 fine; 1 the log had to be read, and is damaged (see verify); 2 a mistake "
        "in the\n"
        "command; 3 could not be read.\n",
    .run = run,
};
