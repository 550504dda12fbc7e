/* What scenario and faults alone let one expect of the backlog, to stand beside what was measured.
 *
 * The model: tasks come in at the scenario's rate; lanes take them up at lanes / row delay at most,
 * and commit them a batch's time later, which is rows times row delay. A fault of the worker, the
 * main DB or the sink throws back what is at work, and nothing is taken up until it is over; one of
 * the api or the sink lets nothing in. Stepped through in small steps of time.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "figures.h"

enum { STEPS_MAX = 1000000 };
static const double STEP_LEAST_S = 0.01;

struct model {
    const struct run *run;
    double capacity; /* tasks a second */
    double row_delay_s, batch;
    double batch_wait_s; /* NAN: not known, so batches are taken for full */
    double step_s;
    size_t steps;
};

/* "100ms", "2s", as options_json writes a duration; NAN when it is none. */
static double duration_s(const char *text)
{
    char *unit;
    double number = strtod(text, &unit);
    if (unit == text || !(number >= 0))
        return NAN;
    return strcmp(unit, "ms") == 0   ? number / 1e3
           : strcmp(unit, "us") == 0 ? number / 1e6
           : strcmp(unit, "s") == 0  ? number
                                     : NAN;
}

static double phase_rate(const struct manifest *manifest, double at_s)
{
    double end_s = 0;
    for (size_t i = 0; i < manifest->phase_count; i++) {
        end_s += manifest->phases[i].for_ms / 1e3;
        if (at_s < end_s)
            return manifest->rps * manifest->phases[i].rate;
    }
    return 0;
}

/* What the faults at a time stop. */
static void stopped(const struct model *model, double at_s, bool *in, bool *out)
{
    *in = *out = false;
    for (size_t i = 0; i < model->run->window_count; i++) {
        const struct window *window = &model->run->windows[i];
        double begin_s = (double)(window->begin_us - model->run->manifest.start_us) / 1e6;
        double end_s = (double)(window->end_us - model->run->manifest.start_us) / 1e6;
        if (at_s < begin_s || at_s >= end_s)
            continue;
        bool sink = strcmp(window->who, "sink") == 0;
        *in = *in || sink || strcmp(window->who, "api") == 0;
        *out = *out || sink || strcmp(window->who, "worker") == 0 ||
               strcmp(window->who, "main-db") == 0;
    }
}

/* How long a batch takes that is taken up now. */
static double batch_s(const struct model *model, double rate, double waiting)
{
    double rows = model->batch;
    if (waiting < rows && !isnan(model->batch_wait_s))
        rows = fmin(rows, fmax(1, rate * model->batch_wait_s));
    return rows * model->row_delay_s;
}

/* Each step: what is due leaves, what comes in waits, lanes take up what they can. */
static void step_through(const struct model *model, double *peak, double *area)
{
    double *due = xcalloc(model->steps + 1, sizeof(*due)); /* to be committed in that step */
    double waiting = 0, at_work = 0;
    *peak = *area = 0;
    for (size_t i = 0; i < model->steps; i++) {
        double at_s = (double)i * model->step_s, before = waiting + at_work;
        double rate = phase_rate(&model->run->manifest, at_s);
        bool no_in, no_out;
        stopped(model, at_s, &no_in, &no_out);
        if (no_out && at_work > 0) { /* at its begin */
            waiting += at_work;
            at_work = 0;
            memset(due + i, 0, (model->steps - i) * sizeof(*due));
        }
        at_work -= due[i];
        waiting += no_in ? 0 : rate * model->step_s;
        double taken = no_out ? 0 : fmin(waiting, model->capacity * model->step_s);
        size_t later = (size_t)fmax(1, round(batch_s(model, rate, waiting) / model->step_s));
        waiting -= taken;
        at_work += taken;
        if (i + later < model->steps)
            due[i + later] += taken;
        *area += (before + waiting + at_work) / 2 * model->step_s;
        *peak = fmax(*peak, waiting + at_work);
    }
    free(due);
}

static void model_backlog(struct figures *figures, const struct run *run, double capacity)
{
    const struct manifest *manifest = &run->manifest;
    double load_s = (double)(manifest->load_end_us - manifest->start_us) / 1e6, tasks = 0;
    double end_s = load_s;
    for (size_t i = 0; i < manifest->phase_count; i++)
        tasks += manifest->rps * manifest->phases[i].rate * manifest->phases[i].for_ms / 1e3;
    for (size_t i = 0; i < run->window_count; i++) {
        if (run->windows[i].end_us == INT64_MAX)
            return; /* it stays full */
        end_s = fmax(end_s, (double)(run->windows[i].end_us - manifest->start_us) / 1e6);
    }
    struct model model = {.run = run,
                          .capacity = capacity,
                          .row_delay_s = manifest->row_delay_ms / 1e3,
                          .batch = fmax(1, manifest->batch)};
    const cJSON *worker = json_get(json_get(manifest->json, "settings"), "worker");
    model.batch_wait_s = duration_s(json_text(worker, "batch-wait"));
    /* Until all is surely committed. */
    end_s += tasks / capacity + model.batch * model.row_delay_s + 1;
    model.step_s = fmax(STEP_LEAST_S, end_s / STEPS_MAX);
    model.steps = (size_t)ceil(end_s / model.step_s);
    double peak, area;
    step_through(&model, &peak, &area);
    figures_set(figures, peak, "backlog.theory_peak_tasks");
    figures_set(figures, area, "backlog.theory_area_task_s");
}

/* Least squares over the steady phase up to its first fault: after one, the backlog grows by what
 * was left lying, or shrinks while that is made up for. */
static double growth(const struct run *run)
{
    int64_t begin_us, end_us;
    figures_phase_span(&run->manifest, figures_steady(&run->manifest), &begin_us, &end_us);
    for (size_t i = 0; i < run->window_count; i++)
        if (run->windows[i].end_us > begin_us && run->windows[i].begin_us < end_us)
            end_us = run->windows[i].begin_us;
    double *at = xcalloc(run->backlog_count + 1, sizeof(*at));
    double *tasks = xcalloc(run->backlog_count + 1, sizeof(*tasks));
    size_t count = 0;
    for (size_t i = 0; i < run->backlog_count; i++) {
        const struct backlog_sample *sample = &run->backlog[i];
        if (sample->ts_us < begin_us || sample->ts_us > end_us || isnan(sample->tasks))
            continue;
        at[count] = (double)(sample->ts_us - begin_us) / 1e6;
        tasks[count++] = sample->tasks;
    }
    double slope = count >= 3 ? stats_slope(at, tasks, count) : NAN;
    free(at);
    free(tasks);
    return slope;
}

void figures_theory(struct figures *figures, const struct run *run)
{
    const struct manifest *manifest = &run->manifest;
    figures_set(figures, growth(run), "backlog.growth_per_s");
    if (!manifest->drains || !(manifest->row_delay_ms > 0))
        return;
    double capacity = manifest->lanes * 1e3 / manifest->row_delay_ms;
    double steady = manifest->rps * manifest->phases[figures_steady(manifest)].rate;
    figures_set(figures, fmax(0, steady - capacity), "backlog.theory_growth_per_s");
    model_backlog(figures, run, capacity);
}
