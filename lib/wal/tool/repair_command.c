#include "wal/tool/repair.h"
#include "wal/tool/tool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void print_ranges(const char *what, const struct wal_repair_ranges *ranges)
{
    for (size_t i = 0; i < ranges->count; i++) {
        printf("%s%" PRIu64 "-%" PRIu64, i == 0 ? what : ", ", ranges->list[i].first,
               ranges->list[i].last);
    }
    if (ranges->count > 0) {
        putchar('\n');
    }
}

static void print_plan(const struct wal_repair *repair)
{
    printf("%s\n\n", repair->check.text.text);
    for (size_t i = 0; i < repair->salvage.count; i++) {
        const struct wal_source *source = &repair->salvage.sources[i];
        if (source->state != WAL_SOURCE_WHOLE) {
            printf("%020" PRIu64 WAL_SEGMENT_SUFFIX ": %s\n", source->file_number,
                   wal_source_text(source->state));
        }
    }
    printf("kept: %" PRIu64 " records that the reader is not done with\n", repair->kept_records);
    print_ranges("      LSN ", &repair->kept);
    printf("LOST: %" PRIu64 " records that were durable and acknowledged\n", repair->lost_records);
    print_ranges("      LSN ", &repair->lost);
    if (repair->unsure.last > 0) {
        printf("unsure: LSN %" PRIu64 "-%" PRIu64 " are in no segment; the cursor that would say "
               "whether the reader was done with them is damaged or missing\n",
               repair->unsure.first, repair->unsure.last);
    }
}

static int repair_now(const struct tool_command *command, const char *dir, const char *backup)
{
    struct wal_repair repair = {0};
    struct wal_err err;
    char made[WAL_PATH_BYTES];
    const struct wal_vfs *vfs = wal_vfs_posix();
    int status = TOOL_CANNOT;
    int reader = -1;
    int writer = wal_lock_open(vfs, dir, WAL_WRITER_LOCK_NAME, "writer", &err);
    int result = writer;
    if (result >= 0) {
        result = reader = wal_lock_open(vfs, dir, WAL_READER_LOCK_NAME, "reader", &err);
    }
    if (result >= 0) {
        /* Again: it may have changed before it was locked. */
        result = wal_repair_plan(&repair, vfs, dir, &err);
    }
    if (result < 0) {
        tool_cannot(command, "%s", err.text);
        goto out;
    }
    if (result == 0) {
        printf("%s: nothing to repair\n", dir);
        status = TOOL_FINE;
        goto out;
    }
    print_plan(&repair);
    result = tool_backup(dir, backup, repair.kept_bytes + WAL_CURSOR_BYTES, made, &err);
    if (result < 0) {
        tool_cannot(command, "%s", err.text);
        goto out;
    }
    printf("\nthe log as it was is in %s\n", made);
    fflush(stdout);
    result = wal_repair_apply(&repair, &err);
    if (result < 0) {
        tool_cannot(command, "%s; the log as it was is in %s", err.text, made);
        goto out;
    }
    printf("repaired: %" PRIu64 " records kept, %" PRIu64 " lost\n", repair.kept_records,
           repair.lost_records);
    status = TOOL_FINE;

out:
    wal_repair_free(&repair);
    if (reader >= 0) {
        vfs->close(vfs, reader);
    }
    if (writer >= 0) {
        vfs->close(vfs, writer);
    }
    return status;
}

static int run(const struct tool_command *command, int count, char **words)
{
    bool go = false;
    const char *backup = NULL;
    const char *dir;
    const struct tool_option options[] = {
        {"yes", NULL, TOOL_FLAG, &go, 0, 0, "do it; without, it is only shown"},
        {"backup", "FOLDER", TOOL_TEXT, &backup, 0, 0,
         "a new folder for the copy [DIR.backup-N, beside DIR]"},
        {0},
    };
    int status = tool_parse(command, options, count, words, &dir);
    if (status >= 0) {
        return status;
    }
    struct tool_owners owners = tool_owners(dir);
    struct wal_repair repair;
    struct wal_err err;
    if (owners.writer || owners.reader) {
        return tool_cannot(command,
                           "The log %s is open in another process (%s is locked): stop that one "
                           "first",
                           dir, owners.writer ? WAL_WRITER_LOCK_NAME : WAL_READER_LOCK_NAME);
    }
    int result = wal_repair_plan(&repair, wal_vfs_posix(), dir, &err);
    if (result < 0) {
        status = tool_cannot(command, "%s", err.text);
    } else if (result == 0) {
        printf("%s: nothing to repair\n", dir);
        status = TOOL_FINE;
    } else if (!go) {
        print_plan(&repair);
        printf("\nNothing was changed. To do it, after a copy of the whole folder is made: "
               "sluice-wal repair %s --yes\n",
               dir);
        status = TOOL_DAMAGE;
    } else {
        wal_repair_free(&repair);
        return repair_now(command, dir, backup);
    }
    wal_repair_free(&repair);
    return status;
}

const struct tool_command tool_repair = {
    .name = "repair",
    .summary = "makes a damaged log one that opens; says what is lost; copies it first",
    .text = "A log that is damaged is not opened: an acknowledged record would be lost without "
            "anybody being\n"
            "told. First try to restore the file that `verify` names from a copy, or from the disk "
            "it was on.\n"
            "If that can't be done, this shows which records can be kept and which are LOST, by "
            "number, and\n"
            "with --yes it does it:\n\n"
            "  - it copies the whole folder to DIR.backup-N and flushes the copy;\n"
            "  - it writes every record that can still be read to new segments, under its own "
            "number, also\n"
            "    those behind the damage, in segments whose names were swapped, or whose header is "
            "damaged\n"
            "    but for its salt;\n"
            "  - it points the cursor there, and removes the old segments. Lost numbers are never "
            "used again.\n\n"
            "A power cut in between leaves the damaged log, or the repaired one; then run it "
            "again. Nobody may\n"
            "have the log open. Segments of another log stay in the copy only; a log that has a "
            "segment of\n"
            "another format version is not touched.\n\n"
            "Exit status: 0 repaired, or nothing to repair; 1 damaged, and --yes was not given; 2 "
            "a mistake in\n"
            "the command; 3 could not be done: the log is open, no room for the copy, no segment "
            "can be read.\n",
    .run = run,
};
