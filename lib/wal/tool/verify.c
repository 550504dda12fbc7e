#include "wal/tool/check.h"
#include "wal/tool/tool.h"

#include <inttypes.h>

static void place_name(const struct wal_damage *damage, char name[32])
{
    name[0] = '\0';
    if (damage->in_segment) {
        snprintf(name, 32, "%020" PRIu64 WAL_SEGMENT_SUFFIX, damage->number);
    }
}

static void print_json(const char *dir, const struct wal_check *check, bool open)
{
    const struct wal_damage *damage = &check->damage;
    char name[32];
    place_name(damage, name);
    printf("{\"log\":");
    tool_json_string(stdout, dir);
    printf(",\"ok\":%s,\"open\":%s", damage->kind == WAL_DAMAGE_NONE ? "true" : "false",
           open ? "true" : "false");
    if (damage->kind != WAL_DAMAGE_NONE) {
        printf(",\"damage\":{\"kind\":\"%s\"", wal_damage_word(damage));
        if (damage->in_segment) {
            printf(",\"file\":\"%s\",\"offset\":%" PRIu64, name, damage->offset);
        }
        if (damage->last_lsn > 0) {
            printf(",\"first_lsn\":%" PRIu64 ",\"last_lsn\":%" PRIu64, damage->first_lsn,
                   damage->last_lsn);
        }
        printf(",\"text\":");
        tool_json_string(stdout, check->text.text);
        printf("}}\n");
        return;
    }
    printf(",\"segments\":%" PRIu64 ",\"first_lsn\":%" PRIu64 ",\"last_lsn\":%" PRIu64
           ",\"torn_bytes\":%" PRIu64 ",\"warning\":",
           check->segments, check->first_lsn, check->last_lsn, check->torn_bytes);
    tool_json_string(stdout, check->warning.text);
    printf("}\n");
}

static void print_text(const char *dir, const struct wal_check *check, bool open)
{
    const struct wal_damage *damage = &check->damage;
    char name[32];
    place_name(damage, name);
    if (damage->kind != WAL_DAMAGE_NONE) {
        printf("first bad place: ");
        if (damage->in_segment) {
            printf("file %s, offset %" PRIu64 ", ", name, damage->offset);
        }
        printf("kind %s\n%s\n", wal_damage_word(damage), check->text.text);
        return;
    }
    printf("%s: fine: ", dir);
    if (check->last_lsn > 0) {
        printf("records %" PRIu64 " to %" PRIu64, check->first_lsn, check->last_lsn);
    } else {
        printf("no record");
    }
    printf(" in %" PRIu64 " segments%s\n", check->segments,
           open ? ", open in another process" : "");
    if (check->torn_bytes > 0) {
        printf("behind the last record: %" PRIu64 " bytes of a write that was not finished, never "
               "acknowledged\n",
               check->torn_bytes);
    }
    if (check->warning.text[0] != '\0') {
        printf("warning: %s\n", check->warning.text);
    }
}

static int run(const struct tool_command *command, int count, char **words)
{
    bool json = false;
    const char *dir;
    const struct tool_option options[] = {
        {"json", NULL, TOOL_FLAG, &json, 0, 0, "one JSON object on stdout"},
        {0},
    };
    int status = tool_parse(command, options, count, words, &dir);
    if (status >= 0) {
        return status;
    }
    struct wal_check check;
    struct wal_err err;
    struct tool_owners owners = tool_owners(dir);
    int result = wal_check_log(&check, wal_vfs_posix(), dir, owners.perhaps, &err);
    if (result != 0 && !owners.perhaps) {
        owners = tool_owners(dir); /* opened meanwhile: then what was seen may be no damage */
        if (owners.perhaps) {
            result = wal_check_log(&check, wal_vfs_posix(), dir, true, &err);
        }
    }
    if (result < 0) {
        return tool_cannot(command, "%s", err.text);
    }
    (json ? print_json : print_text)(dir, &check, owners.writer || owners.reader);
    return result == 1 ? TOOL_DAMAGE : TOOL_FINE;
}

const struct tool_command tool_verify = {
    .name = "verify",
    .summary = "reads every record that the reader is not done with; names the first bad place",
    .text = "Reads all that opening the log would read, checks every checksum and the order of all "
            "numbers,\n"
            "and prints the first bad place: file, offset, kind. Nothing is written and no lock is "
            "taken; it\n"
            "may run beside writer and reader.\n\n"
            "Kinds: batch-zero, batch-header, batch-body, batch-order (durable records were there: "
            "zeros, a\n"
            "bad header, bad records, numbers that don't fit), records-missing (they are in no "
            "segment; the\n"
            "place is where that was noticed), segment-header, segment-of-another-number,\n"
            "segment-of-another-log, end-missing (the log ends before what was durable since the "
            "boot).\n"
            "What a write left that was never acknowledged (torn bytes) is no damage. Segments "
            "that the\n"
            "reader is done with are not read.\n\n"
            "Exit status: 0 fine; 1 damaged; 2 a mistake in the command; 3 could not be read.\n",
    .run = run,
};
