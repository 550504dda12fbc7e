#include "rundir.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "task/task.h"

char *rundir_make(void)
{
    const char *base = getenv("TMPDIR");
    char *dir = xasprintf("%s/sluice-reports-XXXXXX", base ? base : "/tmp");
    assert(mkdtemp(dir));
    return dir;
}

void rundir_remove(char *dir)
{
    assert(file_remove_tree(dir, NULL) == 0);
    free(dir);
}

void rundir_write(const char *dir, const char *name, const char *bytes, size_t len)
{
    char *path = xasprintf("%s/%s", dir, name);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    assert(file_mkdirs(path, 0755, NULL) == 0);
    *slash = '/';
    assert(file_write(path, bytes, len, NULL) == 0);
    free(path);
}

void rundir_puts(const char *dir, const char *name, const char *text)
{
    rundir_write(dir, name, text, strlen(text));
}

char *rundir_read(const char *dir, const char *name)
{
    struct buf text = {0};
    char *path = xasprintf("%s/%s", dir, name);
    assert(file_read(path, 64 << 20, &text, NULL) == 0);
    free(path);
    buf_puts(&text, "");
    return text.data;
}

void rundir_id(unsigned n, uint8_t id[UUID_BYTES])
{
    task_synth_id(42, n, id);
}

const char *rundir_id_text(unsigned n)
{
    static char ring[8][UUID_TEXT_BYTES];
    static unsigned next;
    uint8_t id[UUID_BYTES];
    rundir_id(n, id);
    return uuid_format(id, ring[next++ % 8]);
}

struct buf rundir_ledger_begin(void)
{
    struct buf ledger = {0};
    buf_printf(&ledger, "#sluice-ledger 1 seed=42 payload_bytes=%d\n", RUNDIR_PAYLOAD_BYTES);
    return ledger;
}

void rundir_ledger_row(struct buf *ledger, unsigned n, int64_t due_us, int64_t sent_us,
                       int64_t done_us, int code, const char *outcome, const char *phase)
{
    buf_printf(ledger, "%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%d\t%s\t%s\n", rundir_id_text(n),
               due_us, sent_us, done_us, code, outcome, phase);
}

/* Both tables end alike: rows are the lines that are there, less the header. */
static void end_table(struct buf *table, const char *dir, const char *name)
{
    int64_t rows = -1;
    for (size_t i = 0; i < table->len; i++)
        rows += table->data[i] == '\n';
    buf_printf(table, "#end rows=%" PRId64 "\n", rows);
    rundir_write(dir, name, table->data, table->len);
    buf_free(table);
}

void rundir_ledger_end(struct buf *ledger, const char *dir, const char *name)
{
    end_table(ledger, dir, name);
}

struct buf rundir_main_begin(void)
{
    struct buf table = {0};
    buf_puts(&table, "#sluice-main 1\n");
    return table;
}

void rundir_main_row(struct buf *table, unsigned n, const char *where, bool changed,
                     const char *reason)
{
    struct buf body = {0};
    uint8_t id[UUID_BYTES];
    rundir_id(n, id);
    task_synth_body(id, RUNDIR_PAYLOAD_BYTES, &body);
    if (changed)
        body.data[body.len - 3] ^= 1;
    buf_printf(table, "%s\t%s\t%zu\t%016" PRIx64 "\t%s\n", rundir_id_text(n), where, body.len,
               task_body_hash(body.data, body.len), reason);
    buf_free(&body);
}

void rundir_main_end(struct buf *table, const char *dir)
{
    end_table(table, dir, "main.tsv");
}

static const char manifest_text[] =
    "{\"schema\": \"sluice-manifest/1\",\n"
    " \"scenario\": {\"name\": \"tiny\", \"file\": \"scenarios/tiny.yaml\",\n"
    "  \"load\": {\"rps\": 10, \"pacing\": \"paced\", \"connections\": 4, \"payload_bytes\": 24,\n"
    "   \"timeout_ms\": 1000, \"phases\": [{\"name\": \"warm-up\", \"for_ms\": 2000, \"rate\": "
    "1},\n"
    "    {\"name\": \"steady\", \"for_ms\": 8000, \"rate\": 1}]},\n"
    "  \"row_delay_ms\": 200, \"worker\": {\"lanes\": 1, \"batch\": 10},\n"
    "  \"faults\": [{\"at_ms\": 5000, \"do\": \"kill\", \"who\": \"worker\", \"for_ms\": 2000}],\n"
    "  \"sla\": {\"api_p99_ms\": 50}},\n"
    " \"sink\": \"SINK\", \"control\": CONTROL, \"flags\": [\"DRAINS\", \"BACKLOG_EXACT\"],\n"
    " \"promise\": \"survives process and OS\", \"repeat\": REPEAT, \"seed\": \"42\",\n"
    " \"payload_bytes\": 24,\n"
    " \"sluice\": {\"version\": \"0.1.0\", \"commit\": \"abc1234\", \"compiler\": \"gcc 12\",\n"
    "  \"build_type\": \"RelWithDebInfo\"},\n"
    " \"host\": {\"kernel\": \"6.1\", \"cpu\": \"some cpu\", \"cores\": 2, \"memory_bytes\": "
    "1000,\n"
    "  \"filesystem\": \"ext4\", \"device\": \"sda\", \"os\": \"Debian 12\"},\n"
    " \"servers\": [{\"role\": \"main-db\", \"name\": \"PostgreSQL\", \"version\": \"15.1\",\n"
    "  \"replicas\": 1, \"settings\": {\"fsync\": \"on\"}}],\n"
    " \"settings\": {\"api\": {}, \"worker\": {}, \"loadgen\": {}, \"sampler\": {}},\n"
    " \"state_dir\": \"/var/tmp/x\", \"start_us\": 1000000000, \"load_end_us\": 1010000000,\n"
    " \"end_us\": 1020000000, \"unsafe\": [], \"unverified\": [], \"outcome\": \"complete\",\n"
    " \"why\": \"\"}\n";

static void put_replaced(struct buf *out, const char *text, const char *old, const char *fresh)
{
    const char *at = old && *old ? strstr(text, old) : NULL;
    assert(at || !old || !*old);
    buf_append(out, text, at ? (size_t)(at - text) : strlen(text));
    if (at) {
        buf_puts(out, fresh);
        buf_puts(out, at + strlen(old));
    }
}

void rundir_manifest(const char *dir, const char *sink, bool control, int repeat,
                     const char *replace, const char *with)
{
    struct buf step[4] = {{0}};
    char number[16];
    snprintf(number, sizeof(number), "%d", repeat);
    put_replaced(&step[0], manifest_text, "CONTROL", control ? "true" : "false");
    put_replaced(&step[1], step[0].data, "\"SINK\"", sink);
    put_replaced(&step[2], step[1].data, "REPEAT", number);
    put_replaced(&step[3], step[2].data, replace, with);
    rundir_write(dir, "manifest.json", step[3].data, step[3].len);
    for (int i = 0; i < 4; i++)
        buf_free(&step[i]);
}
