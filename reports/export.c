/* sluice export: a run's tasks as CSV. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "report.h"
#include "run.h"

/* Texts of files: quoted where they must be, and never a formula for a spreadsheet. */
static void put_cell(FILE *out, const char *text)
{
    bool formula = strchr("=+-@\t\r", *text) && *text;
    bool quoted = formula || strpbrk(text, ",\"\r\n");
    if (quoted)
        fputc('"', out);
    if (formula)
        fputc('\'', out);
    for (; *text; text++) {
        if (*text == '"')
            fputc('"', out);
        fputc(*text, out);
    }
    if (quoted)
        fputc('"', out);
}

static void put_seconds(FILE *out, const struct run *run, int64_t ts_us)
{
    fputc(',', out);
    if (ts_us != 0)
        fprintf(out, "%.6f", (double)(ts_us - run->manifest.start_us) / 1e6);
}

static void put_ms(FILE *out, double ms)
{
    fputc(',', out);
    if (!isnan(ms))
        fprintf(out, "%.3f", ms);
}

static void put_row(FILE *out, const struct run *run, const struct ledger_row *row)
{
    char id[UUID_TEXT_BYTES];
    fprintf(out, "%s,", uuid_format(row->id, id));
    put_cell(out, run->ledger.phases[row->phase]);
    fprintf(out, ",%d,%" PRId32 ",%s", run_in_fault(run, row->due_us), row->code,
            outcome_names[row->outcome]);
    put_seconds(out, run, row->due_us);
    put_seconds(out, run, row->sent_us);
    put_seconds(out, run, row->done_us);
    put_seconds(out, run, row->committed_us);
    double api_ms =
        isnan(row->latency_ms) ? (double)(row->done_us - row->due_us) / 1e3 : row->latency_ms;
    double service_ms = row->sent_us == 0        ? NAN
                        : isnan(row->service_ms) ? (double)(row->done_us - row->sent_us) / 1e3
                                                 : row->service_ms;
    put_ms(out, api_ms);
    put_ms(out, service_ms);
    put_ms(out, row->durable_ms);
    put_ms(out, row->age_ms);
    fputc('\n', out);
}

int export_csv(const char *run_dir, FILE *out, struct err *err)
{
    struct run run;
    int code = 0;
    run_load(&run, run_dir, false);
    if (run.manifest_err.code)
        code = err_set(err, -EBADMSG, "%s", run.manifest_err.text);
    else if (run.ledger_err.code)
        code = err_set(err, -EBADMSG, "%s", run.ledger_err.text);
    if (code == 0) {
        fputs("id,phase,in_fault,code,outcome,due_s,sent_s,done_s,committed_s,api_ms,service_ms,"
              "durable_ms,age_ms\n",
              out);
        for (size_t i = 0; i < run.ledger.count; i++)
            if (run.ledger.rows[i].source == 0) /* the runner's own probes are no load */
                put_row(out, &run, &run.ledger.rows[i]);
        if (fflush(out) != 0 || ferror(out))
            code = err_set(err, -EIO, "the table could not be written: %s", strerror(errno));
    }
    run_free(&run);
    return code;
}
