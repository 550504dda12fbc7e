#include "tables.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "lines.h"

const char *const outcome_names[OUTCOME_COUNT] = {"durable", "refused", "unknown", "unsent"};

static int damaged(const struct lines *lines, struct err *err, const char *what)
{
    return err_set(err, -EBADMSG, "%s line %" PRId64 " is damaged: %s; no figure can rest on it",
                   lines->path, lines->number, what);
}

static int cut_short(const struct lines *lines, struct err *err)
{
    return err_set(err, -EBADMSG,
                   "%s was cut short: its last line, \"#end rows=...\", is missing (%" PRId64
                   " lines read); no figure can rest on it",
                   lines->path, lines->number);
}

/* Is the current line "#end rows=N"? Then it must be right, and the last one. 1: yes and fine. */
static int check_end(struct lines *lines, int64_t rows, struct err *err)
{
    static const char mark[] = "#end rows=";
    if (lines->len < sizeof(mark) - 1 || memcmp(lines->line, mark, sizeof(mark) - 1) != 0)
        return 0;
    if (!lines->ended)
        return cut_short(lines, err);
    int64_t said;
    if (strlen(lines->line) != lines->len || !parse_int64(lines->line + sizeof(mark) - 1, &said))
        return damaged(lines, err, "\"#end rows=\" without a number");
    if (said != rows)
        return err_set(err, -EBADMSG,
                       "%s holds %" PRId64 " rows, but its last line says %" PRId64
                       "; no figure can rest on it",
                       lines->path, rows, said);
    int more = lines_next(lines, err);
    if (more < 0)
        return more;
    return more ? damaged(lines, err, "there is text after \"#end\"") : 1;
}

/* ---- the index ---- */

static uint64_t hash_id(const uint8_t id[UUID_BYTES])
{
    uint64_t high, low;
    memcpy(&high, id, 8);
    memcpy(&low, id + 8, 8);
    uint64_t mixed = (high ^ (low * 0x9e3779b97f4a7c15ULL)) * 0xbf58476d1ce4e5b9ULL;
    return mixed ^ (mixed >> 29);
}

/* The slot that holds id, or the empty one where it belongs. */
static size_t find_slot(const struct ledger *ledger, const uint8_t id[UUID_BYTES])
{
    size_t slot = (size_t)hash_id(id) & (ledger->slot_count - 1);
    while (ledger->slots[slot] &&
           memcmp(ledger->rows[ledger->slots[slot] - 1].id, id, UUID_BYTES) != 0)
        slot = (slot + 1) & (ledger->slot_count - 1);
    return slot;
}

static void grow_index(struct ledger *ledger)
{
    free(ledger->slots);
    ledger->slot_count = ledger->slot_count ? ledger->slot_count * 2 : 1024;
    ledger->slots = xcalloc(ledger->slot_count, sizeof(*ledger->slots));
    for (size_t i = 0; i < ledger->count; i++)
        ledger->slots[find_slot(ledger, ledger->rows[i].id)] = (uint32_t)(i + 1);
}

struct ledger_row *ledger_find(const struct ledger *ledger, const uint8_t id[UUID_BYTES])
{
    if (ledger->slot_count == 0)
        return NULL;
    uint32_t index = ledger->slots[find_slot(ledger, id)];
    return index ? &ledger->rows[index - 1] : NULL;
}

/* ---- ledger ---- */

static int find_phase(struct ledger *ledger, const char *name)
{
    for (size_t i = ledger->phase_count; i > 0; i--)
        if (strcmp(ledger->phases[i - 1], name) == 0)
            return (int)(i - 1);
    if (ledger->phase_count == LEDGER_PHASES_MAX)
        return -1;
    ledger->phases[ledger->phase_count] = xstrdup(name);
    return (int)ledger->phase_count++;
}

static int find_outcome(const char *name)
{
    for (int i = 0; i < OUTCOME_COUNT; i++)
        if (strcmp(outcome_names[i], name) == 0)
            return i;
    return -1;
}

/* Wall-clock microseconds up to the year 2286: what lies beyond is damage, and can't overflow sums.
 */
static bool parse_time(const char *text, int64_t *value)
{
    return parse_int64(text, value) && *value >= 0 && *value < 10000000000000000LL;
}

static int parse_row(struct ledger *ledger, struct lines *lines, struct ledger_row *row,
                     struct err *err)
{
    char *field[7];
    if (!lines->ended)
        return cut_short(lines, err);
    if (lines->too_long || lines_split(lines, field, 7) != 7)
        return damaged(lines, err, "expected 7 fields with tabs between them");
    if (uuid_parse(field[0], strlen(field[0]), row->id) < 0)
        return damaged(lines, err, "the id is not a UUID");
    int64_t code;
    if (!parse_time(field[1], &row->due_us) || !parse_time(field[2], &row->sent_us) ||
        !parse_time(field[3], &row->done_us))
        return damaged(lines, err, "a time is not a number of microseconds");
    if (!parse_int64(field[4], &code) || code < 0 || code > 999)
        return damaged(lines, err, "the code is not an HTTP status");
    int outcome = find_outcome(field[5]);
    if (outcome < 0)
        return damaged(lines, err, "the outcome is none of durable, refused, unknown, unsent");
    if (outcome == OUTCOME_DURABLE && code != 202)
        return damaged(lines, err, "durable, yet its code is not 202");
    if (outcome != OUTCOME_UNSENT && row->sent_us == 0)
        return damaged(lines, err, "it was never sent, yet its outcome is not unsent");
    int phase = find_phase(ledger, field[6]);
    if (phase < 0)
        return damaged(lines, err, "too many different phases");
    row->code = (int32_t)code;
    row->outcome = (uint8_t)outcome;
    row->phase = (uint16_t)phase;
    row->latency_ms = row->service_ms = row->durable_ms = row->age_ms = NAN;
    return 0;
}

static int add_row(struct ledger *ledger, const struct lines *lines, const struct ledger_row *row,
                   struct err *err)
{
    if ((ledger->count + 1) * 2 > ledger->slot_count)
        grow_index(ledger);
    size_t slot = find_slot(ledger, row->id);
    if (ledger->slots[slot]) {
        char text[UUID_TEXT_BYTES];
        return err_set(err, -EEXIST,
                       "%s line %" PRId64 ": the id %s is in a ledger already; no figure can rest "
                       "on it",
                       lines->path, lines->number, uuid_format(row->id, text));
    }
    if (ledger->count >= UINT32_MAX - 1)
        return err_set(err, -EFBIG, "%s: too many rows", lines->path);
    array_grow((void **)&ledger->rows, &ledger->capacity, ledger->count, sizeof(*ledger->rows));
    ledger->rows[ledger->count++] = *row;
    ledger->slots[slot] = (uint32_t)ledger->count;
    return 0;
}

/* "#sluice-ledger 1 seed=S payload_bytes=N" */
static int read_header(struct lines *lines, int64_t *payload_bytes, struct err *err)
{
    int got = lines_next(lines, err);
    if (got < 0)
        return got;
    if (got == 0)
        return err_set(err, -EBADMSG, "%s is empty; no figure can rest on it", lines->path);
    static const char mark[] = "#sluice-ledger 1 ";
    char *payload = strstr(lines->line, " payload_bytes=");
    if (!lines->ended)
        return cut_short(lines, err);
    if (strlen(lines->line) != lines->len || strncmp(lines->line, mark, sizeof(mark) - 1) != 0 ||
        !payload)
        return damaged(lines, err, "expected \"#sluice-ledger 1 seed=... payload_bytes=...\"");
    payload += strlen(" payload_bytes=");
    payload[strcspn(payload, " ")] = '\0';
    if (!parse_int64(payload, payload_bytes) || *payload_bytes < 0 || *payload_bytes > 1 << 30)
        return damaged(lines, err, "payload_bytes is not a size up to 1 GiB");
    return 0;
}

int ledger_read(struct ledger *ledger, const char *run_dir, const char *name, struct err *err)
{
    struct lines lines;
    char *path = xasprintf("%s/%s", run_dir, name);
    int result = lines_open(&lines, path, err);
    if (result < 0)
        goto out;
    if (ledger->source_count == LEDGER_SOURCES_MAX) {
        result = err_set(err, -E2BIG, "%s: more than %d ledgers", path, LEDGER_SOURCES_MAX);
        goto out;
    }
    struct ledger_source *source = &ledger->sources[ledger->source_count];
    result = read_header(&lines, &source->payload_bytes, err);
    if (result < 0)
        goto out;
    source->name = xstrdup(name);
    ledger->source_count++;
    while ((result = lines_next(&lines, err)) > 0) {
        result = check_end(&lines, source->rows, err);
        if (result != 0)
            break;
        struct ledger_row row = {.source = (uint8_t)(ledger->source_count - 1)};
        result = parse_row(ledger, &lines, &row, err);
        if (result == 0)
            result = add_row(ledger, &lines, &row, err);
        if (result < 0)
            break;
        source->rows++;
    }
    if (result == 0)
        result = cut_short(&lines, err);
    else if (result > 0)
        result = 0;
out:
    lines_close(&lines);
    free(path);
    return result;
}

void ledger_free(struct ledger *ledger)
{
    for (size_t i = 0; i < ledger->source_count; i++)
        free(ledger->sources[i].name);
    for (size_t i = 0; i < ledger->phase_count; i++)
        free(ledger->phases[i]);
    free(ledger->rows);
    free(ledger->slots);
    memset(ledger, 0, sizeof(*ledger));
}

/* ---- main.tsv ---- */

static bool parse_hash(const char *text, uint64_t *hash)
{
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return false;
    *hash = strtoull(text, NULL, 16);
    return true;
}

static int parse_main_row(struct lines *lines, struct main_row *row, struct err *err)
{
    char *field[5];
    if (!lines->ended)
        return cut_short(lines, err);
    if (lines->too_long || lines_split(lines, field, 5) != 5)
        return damaged(lines, err, "expected 5 fields with tabs between them");
    if (uuid_parse(field[0], strlen(field[0]), row->id) < 0)
        return damaged(lines, err, "the id is not a UUID");
    row->dead = strcmp(field[1], "dead") == 0;
    if (!row->dead && strcmp(field[1], "main") != 0)
        return damaged(lines, err, "\"where\" is neither main nor dead");
    if (!parse_int64(field[2], &row->body_bytes) || row->body_bytes < 0)
        return damaged(lines, err, "body_bytes is not a size");
    if (!parse_hash(field[3], &row->body_hash))
        return damaged(lines, err, "body_hash is not 16 hexadecimal digits");
    if ((*field[4] != '\0') != row->dead)
        return damaged(lines, err, "a dead letter has a reason, a row of main has none");
    snprintf(row->reason, sizeof(row->reason), "%s", field[4]);
    return 0;
}

int64_t main_read(const char *run_dir, void (*each)(void *arg, const struct main_row *row),
                  void *arg, struct err *err)
{
    struct lines lines;
    char *path = xasprintf("%s/main.tsv", run_dir);
    int64_t rows = 0;
    int result = lines_open(&lines, path, err);
    if (result < 0)
        goto out;
    result = lines_next(&lines, err);
    if (result == 0)
        result = err_set(err, -EBADMSG, "%s is empty; no figure can rest on it", path);
    else if (result > 0 && !lines.ended)
        result = cut_short(&lines, err);
    else if (result > 0 && (strcmp(lines.line, "#sluice-main 1") != 0 || lines.len != 14))
        result = damaged(&lines, err, "expected \"#sluice-main 1\"");
    if (result < 0)
        goto out;
    while ((result = lines_next(&lines, err)) > 0) {
        result = check_end(&lines, rows, err);
        if (result != 0)
            break;
        struct main_row row = {0};
        result = parse_main_row(&lines, &row, err);
        if (result < 0)
            break;
        each(arg, &row);
        rows++;
    }
    if (result == 0)
        result = cut_short(&lines, err);
out:
    lines_close(&lines);
    free(path);
    return result < 0 ? result : rows;
}
