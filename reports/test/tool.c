/* reports_tool: the reports library from a shell, for those who work on it (users have `sluice`).
 *   reports_tool audit RUN | report COMPARISON | trace RUN ID | synth COMPARISON SINK N TASKS
 * synth makes a run of any size, to look at and to measure with. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "reports/report.h"
#include "rundir.h"

enum { RPS = 500, BATCH = 50, LOAD_S = 40 };

/* Something between 0 and 1 that depends on n alone, and looks like a latency's spread when -log'd.
 */
static double noise(unsigned n, unsigned salt)
{
    uint64_t z = (n + 1) * 0x9e3779b97f4a7c15ULL + salt * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return ((double)((z ^ (z >> 31)) >> 11) + 1) / 9007199254740994.0;
}

static void append(FILE *file, struct buf *text)
{
    fwrite(text->data, 1, text->len, file);
    buf_clear(text);
}

static FILE *create(const char *dir, const char *name)
{
    char *path = xasprintf("%s/%s", dir, name);
    FILE *file = fopen(path, "w");
    if (!file) {
        perror(path);
        exit(3);
    }
    free(path);
    return file;
}

struct synth {
    const char *dir;
    unsigned salt;   /* of this sink */
    double scale_ms; /* how slow this sink is */
    unsigned tasks;
    int64_t start_us, load_us;
};

static const char *phase_of(const struct synth *s, int64_t at_us)
{
    return at_us < s->load_us / 8 ? "warm-up" : at_us < s->load_us * 7 / 8 ? "steady" : "cool-down";
}

static void synth_tasks(const struct synth *s)
{
    struct buf ledger = rundir_ledger_begin(), table = rundir_main_begin(), line = {0};
    FILE *loadgen = create(s->dir, "loadgen.jsonl"), *api = create(s->dir, "api-1.jsonl");
    for (unsigned n = 0; n < s->tasks; n++) {
        int64_t at_us = s->load_us * n / s->tasks, due_us = s->start_us + at_us;
        double durable_ms = s->scale_ms * (0.6 - log(noise(n, 1))), ms = durable_ms + 0.3;
        int64_t done_us = due_us + llround(ms * 1e3);
        rundir_ledger_row(&ledger, n, due_us, due_us + 50, done_us, 202, "durable",
                          phase_of(s, at_us));
        rundir_main_row(&table, n, "main", false, "");
        buf_printf(&line,
                   "{\"ts\": %.6f, \"ev\": \"api_latency\", \"id\": \"%s\", \"code\": 202, "
                   "\"outcome\": \"durable\", \"latency_ms\": %.3f, \"service_ms\": %.3f, "
                   "\"phase\": \"%s\", \"due_us\": %lld}\n",
                   (double)done_us / 1e6, rundir_id_text(n), ms, ms - 0.05, phase_of(s, at_us),
                   (long long)due_us);
        append(loadgen, &line);
        buf_printf(&line,
                   "{\"ts\": %.6f, \"ev\": \"durable\", \"id\": \"%s\", \"durable_ms\": %.3f, "
                   "\"batch\": %d}\n",
                   (double)done_us / 1e6, rundir_id_text(n), durable_ms,
                   1 + (int)(noise(n / 5, s->salt) * 3));
        append(api, &line);
    }
    static const char *const phases[] = {"warm-up", "steady", "cool-down"};
    for (int i = 0; i < 3; i++)
        fprintf(
            loadgen,
            "{\"ts\": %.6f, \"ev\": \"lateness\", \"phase\": \"%s\", \"planned\": %u, \"due\": %u, "
            "\"on_time\": %u, \"sent\": %u, \"p50_ms\": 0.05, \"p99_ms\": 0.3, \"max_ms\": 1.0, "
            "\"own_p50_ms\": 0.02, \"own_p99_ms\": 0.2, \"own_max_ms\": 0.9}\n",
            (double)(s->start_us + s->load_us) / 1e6, phases[i],
            i == 1 ? s->tasks / 4 * 3 : s->tasks / 8, s->tasks,
            i == 1 ? s->tasks / 4 * 3 : s->tasks / 8, s->tasks);
    rundir_ledger_end(&ledger, s->dir, "ledger.tsv");
    rundir_main_end(&table, s->dir);
    buf_free(&line);
    fclose(loadgen);
    fclose(api);
}

/* Counters of what happens beside, one set for each kind of sink. */
static void synth_counters(const struct synth *s, FILE *sampler, double at_s)
{
    int often = (int)(at_s / (11 + 7 * noise(s->salt, 4)));
    fprintf(sampler,
            "\"rotations\": %d, \"checkpoints_timed\": %d, \"checkpoints_requested\": 0, "
            "\"autovacuums\": %d, \"aof_rewrites\": %d, \"aof_rewrite_in_progress\": 0}\n",
            often, often / 2, often, often);
}

/* The main DB takes 0.7 of the rate, and nothing between 3/8 and 4/8 of the load (the kill). */
static void synth_drain(const struct synth *s)
{
    FILE *worker = create(s->dir, "worker-1.jsonl"), *sampler = create(s->dir, "sampler.jsonl");
    double rate = (0.65 + 0.1 * noise(s->salt, 5)) * s->tasks / ((double)s->load_us / 1e6),
           load_s = (double)s->load_us / 1e6;
    double from_s = load_s * 3 / 8, to_s = load_s / 2, at_s = 0, sampled_s = 0;
    for (unsigned n = 0; n < s->tasks; n += BATCH) {
        unsigned rows = s->tasks - n < BATCH ? s->tasks - n : BATCH;
        at_s += rows / rate;
        at_s += at_s > from_s && at_s < to_s ? to_s - from_s : 0;
        fprintf(
            worker,
            "{\"ts\": %.6f, \"ev\": \"committed\", \"lane\": %u, \"rows\": %u, \"inserted\": %u, "
            "\"redelivered\": 0, \"dead\": 0, \"conflicts\": 0, \"db_ms\": 1000.0, \"ids\": [",
            (double)s->start_us / 1e6 + at_s + 1, n / BATCH % 20, rows, rows);
        for (unsigned k = 0; k < rows; k++)
            fprintf(worker, "%s\"%s\"", k ? ", " : "", rundir_id_text(n + k));
        fputs("], \"age_ms\": [", worker);
        for (unsigned k = 0; k < rows; k++)
            fprintf(worker, "%s%.3f", k ? ", " : "",
                    fmax(at_s + 1 - load_s * (n + k) / s->tasks, 0.01) * 1e3);
        fputs("]}\n", worker);
        while (sampled_s < at_s) {
            double in = fmin(sampled_s / load_s, 1) * s->tasks;
            double ts = (double)s->start_us / 1e6 + sampled_s++;
            fprintf(
                sampler,
                "{\"ts\": %.6f, \"ev\": \"backlog\", \"tasks\": %.0f, \"bytes\": %.0f, \"exact\": "
                "true, \"age_ms\": 0}\n",
                ts, fmax(in - n, 0), fmax(in - n, 0) * 512);
            fprintf(
                sampler,
                "{\"ts\": %.6f, \"ev\": \"os\", \"who\": \"api\", \"cpu_pct\": 12.5, \"cpu_s\": "
                "%.2f, \"rss_bytes\": 9000000, \"read_bytes\": 0, \"write_bytes\": %.0f, "
                "\"rx_bytes\": null, \"tx_bytes\": null, \"processes\": 1}\n",
                ts, sampled_s / 8, sampled_s * 1e6);
            fprintf(sampler,
                    "{\"ts\": %.6f, \"ev\": \"host\", \"busy_pct\": 40, \"steal_pct\": 0, "
                    "\"iowait_pct\": 3, \"ours_pct\": 37}\n",
                    ts);
            fprintf(sampler,
                    "{\"ts\": %.6f, \"ev\": \"sink_stats\", \"segments\": %.0f, \"live_bytes\": "
                    "%.0f, ",
                    ts, 1 + in / 5000, fmax(in - n, 0) * 600);
            synth_counters(s, sampler, sampled_s);
            fprintf(sampler,
                    "{\"ts\": %.6f, \"ev\": \"db_count\", \"rows\": %u, \"dead\": 0, "
                    "\"checkpoints\": %d, \"autovacuums\": 0}\n",
                    ts, n, sampled_s > load_s * 0.3);
        }
    }
    double start_s = (double)s->start_us / 1e6;
    fprintf(worker, "{\"ts\": %.6f, \"ev\": \"start\", \"role\": \"worker\"}\n", start_s - 1);
    fprintf(worker, "{\"ts\": %.6f, \"ev\": \"start\", \"role\": \"worker\"}\n",
            start_s + to_s - 0.05);
    FILE *runner = create(s->dir, "runner.jsonl");
    fputs(
        "{\"ts\": 1, \"ev\": \"main_rows\", \"state\": \"begin\", \"row_sleeps\": 1, \"rows\": 1, "
        "\"refused\": 0}\n",
        runner);
    fprintf(
        runner,
        "{\"ts\": 2, \"ev\": \"main_rows\", \"state\": \"end\", \"row_sleeps\": %.0f, \"rows\": "
        "%u, \"refused\": 0}\n",
        s->tasks * (1 + 0.02 * noise(s->salt, 6)), s->tasks + 1);
    fprintf(
        runner,
        "{\"ts\": %.6f, \"ev\": \"background\", \"what\": \"checkpoint\", \"who\": \"main-db\", "
        "\"state\": \"begin\"}\n{\"ts\": %.6f, \"ev\": \"background\", \"what\": \"checkpoint\", "
        "\"who\": \"main-db\", \"state\": \"end\"}\n",
        start_s + load_s * 0.3, start_s + load_s * 0.3 + 0.4);
    fprintf(runner, "{\"ts\": %.6f, \"ev\": \"fault\", \"what\": \"kill\", \"who\": \"worker\"}\n",
            start_s + from_s);
    fprintf(runner,
            "{\"ts\": %.6f, \"ev\": \"recovered\", \"what\": \"kill\", \"who\": \"worker\"}\n",
            start_s + to_s);
    fprintf(runner, "{\"ts\": %.6f, \"ev\": \"drained\", \"backlog\": 0, \"seconds\": %.3f}\n",
            start_s + at_s + 2, at_s + 2 - load_s);
    fclose(worker);
    fclose(sampler);
    fclose(runner);
}

/* Replaces one text in the manifest. */
static void swap(const char *dir, const char *old, const char *fresh)
{
    char *text = rundir_read(dir, "manifest.json"), *at = strstr(text, old);
    struct buf out = {0};
    buf_append(&out, text, (size_t)(at - text));
    buf_puts(&out, fresh);
    buf_puts(&out, at + strlen(old));
    rundir_write(dir, "manifest.json", out.data, out.len);
    buf_free(&out);
    free(text);
}

static const char *synth_server(const char *sink)
{
    static const char *const servers[][2] = {{"ingest", "\"PostgreSQL\", \"version\": \"15.14\""},
                                             {"valkey", "\"Valkey\", \"version\": \"8.1.1\""},
                                             {"rabbit", "\"RabbitMQ\", \"version\": \"3.10.8\""}};
    static char text[200];
    snprintf(text, sizeof(text), "\"servers\": [");
    for (int i = 0; i < 3; i++)
        if (strcmp(servers[i][0], sink) == 0)
            snprintf(text, sizeof(text),
                     "\"servers\": [{\"role\": \"sink\", \"name\": %s, \"replicas\": 1, "
                     "\"settings\": {}}, ",
                     servers[i][1]);
    return text;
}

static int synth(const char *comparison, const char *sink, int repeat, unsigned tasks)
{
    char *dir = xasprintf("%s/%s/%d", comparison, sink, repeat);
    struct synth s = {.dir = dir, .tasks = tasks, .start_us = 1767182400000000};
    for (const char *c = sink; *c; c++)
        s.salt = s.salt * 31 + (unsigned char)*c;
    s.load_us = (int64_t)tasks * 1000000 / RPS;
    s.scale_ms = (strcmp(sink, "direct") == 0 ? 300 : 1 + noise(s.salt, 2) * 8) *
                 (1 + 0.1 * noise((unsigned)repeat, 3));
    char *old = xasprintf("\"start_us\": 1000000000, \"load_end_us\": 1010000000,\n \"end_us\": "
                          "1020000000");
    double rate_s = (double)s.load_us / 1e6;
    int64_t load_end_us = s.start_us + s.load_us, end_us = load_end_us + s.load_us + 10000000;
    char *fresh = xasprintf("\"start_us\": %lld, \"load_end_us\": %lld,\n \"end_us\": %lld",
                            (long long)s.start_us, (long long)load_end_us, (long long)end_us);
    char *name = xasprintf("\"%s\"", sink);
    rundir_puts(dir, "x", "");
    rundir_manifest(dir, name, strcmp(sink, "direct") == 0, repeat, old, fresh);
    char *text = rundir_read(dir, "manifest.json");
    char *cut = strstr(text, "\"rps\": 10"), *rest = strstr(text, "\"row_delay_ms\"");
    char *changed = xasprintf(
        "%.*s\"rps\": %d, \"pacing\": \"paced\", \"connections\": 100, \"payload_bytes\": 24, "
        "\"timeout_ms\": 10000, \"phases\": [{\"name\": \"warm-up\", \"for_ms\": %.0f, \"rate\": "
        "1}, "
        "{\"name\": \"steady\", \"for_ms\": %.0f, \"rate\": 1}, {\"name\": \"cool-down\", "
        "\"for_ms\": "
        "%.0f, \"rate\": 1}]}, %s",
        (int)(cut - text), text, RPS, rate_s * 125, rate_s * 750, rate_s * 125, rest);
    rundir_puts(dir, "manifest.json", changed);
    char *at = xasprintf("\"at_ms\": %.0f", rate_s * 375);
    swap(dir, "\"at_ms\": 5000", at);
    free(at);
    swap(dir, "\"servers\": [", synth_server(sink));
    synth_tasks(&s);
    synth_drain(&s);
    free(changed);
    free(text);
    free(name);
    free(fresh);
    free(old);
    free(dir);
    return 0;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    if (argc == 3 && strcmp(argv[1], "audit") == 0) {
        struct audit audit;
        enum audit_verdict verdict = audit_run(argv[2], &audit, &err);
        audit_print(&audit, stdout);
        audit_free(&audit);
        return verdict == AUDIT_FAIL ? 1 : verdict == AUDIT_VOID ? 3 : 0;
    }
    if (argc == 3 && strcmp(argv[1], "report") == 0) {
        struct report_result result;
        int code = report_comparison(argv[2], &result, &err);
        if (code < 0)
            fprintf(stderr, "%s\n", err.text);
        else
            fputs(result.summary.data, stdout);
        report_result_free(&result);
        return code < 0 ? 3 : 0;
    }
    if (argc == 4 && strcmp(argv[1], "trace") == 0) {
        int code = trace_task(argv[2], argv[3], stdout, &err);
        if (code < 0)
            fprintf(stderr, "%s\n", err.text);
        return code < 0 ? 3 : 0;
    }
    if (argc == 6 && strcmp(argv[1], "synth") == 0)
        return synth(argv[2], argv[3], atoi(argv[4]), (unsigned)atoi(argv[5]));
    fputs("usage: reports_tool audit RUN | report COMPARISON | trace RUN ID | synth "
          "COMPARISON SINK N TASKS\n",
          stderr);
    return 2;
}
