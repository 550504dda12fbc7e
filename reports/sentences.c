/* Words follow figures by rule; what the rules are stands in docs/method.md. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compare.h"
#include "text.h"

void put_text(struct buf *out, const char *text, bool markdown)
{
    if (markdown)
        text_markdown(out, text);
    else
        text_plain(out, text);
}

void put_server(struct buf *out, const struct group *group, bool markdown)
{
    const struct manifest *manifest = &group->first->run.manifest;
    const cJSON *server = manifest_server(manifest, "sink");
    if (server) {
        /* A version that is words, "PostgreSQL 15.14", names the server by itself. */
        const char *version = json_text(server, "version");
        if (*version >= '0' && *version <= '9') {
            put_text(out, json_text(server, "name"), markdown);
            buf_putc(out, ' ');
        }
        put_text(out, version, markdown);
    } else if (group->first->run.manifest_err.code == 0) {
        buf_puts(out, "sluice ");
        put_text(out, manifest->sluice_version, markdown);
    } else {
        buf_puts(out, "version unknown");
    }
}

double server_replicas(const cJSON *server)
{
    double replicas = json_number(server, "replicas");
    return replicas > 0 ? replicas : NAN; /* of a server that was given, nobody has read it */
}

double group_replicas(const struct group *group)
{
    const cJSON *server = manifest_server(&group->first->run.manifest, "sink");
    if (server)
        return server_replicas(server);
    return group->first->run.manifest_err.code == 0 ? 1 : NAN;
}

void put_version(struct buf *out, const struct group *group, bool markdown)
{
    double replicas = group_replicas(group);
    put_server(out, group, markdown);
    if (!isnan(replicas))
        buf_printf(out, ", %.0f %s", replicas, replicas == 1 ? "replica" : "replicas");
}

/* ---- one sink ---- */

static void say_sla(const struct group *group, struct buf *out, bool markdown)
{
    if (group->counting == 0) {
        buf_puts(out, "no run counts");
        if (group->first->reasons.count) {
            buf_puts(out, " (");
            put_text(out, group->first->reasons.items[0], markdown);
            buf_puts(out, ")");
        }
        buf_puts(out, ", so no verdict on the SLA");
        return;
    }
    double limit = group_spread(group, "sla.limit_ms").median;
    struct spread p99 = group_spread(group, "sla.p99_ms");
    size_t met = 0;
    for (size_t i = 0; i < group->counting; i++)
        met += figures_get(&group->shown[i]->figures, "sla.met") == 1;
    double spare = limit / p99.max; /* of the worst run */
    if (met == 0)
        buf_puts(out, "misses the SLA");
    else if (met < group->counting)
        buf_printf(out, "meets the SLA in only %zu of %zu runs", met, group->counting);
    else if (spare >= 2)
        buf_printf(out, "meets the SLA with %.*fx to spare", spare < 9.95 ? 1 : 0, spare);
    else
        buf_puts(out, spare >= 1.1 ? "meets the SLA" : "meets the SLA narrowly");
    if (p99.n == 0) {
        buf_puts(out, " (no request was due in the steady phase outside faults)");
        return;
    }
    buf_puts(out, " (api p99 ");
    if (isinf(p99.median))
        buf_puts(out, "lies among requests without a 202");
    else
        text_ms(out, p99.median);
    buf_puts(out, ", limit ");
    text_ms(out, limit);
    buf_puts(out, ")");
}

/* "through a 5 s worker kill" */
static void say_faults(const struct group *group, struct buf *out, bool markdown)
{
    const struct run *run = &group->first->run;
    if (run->window_count == 0)
        return;
    if (run->window_count > 1) {
        buf_printf(out, " through %zu faults", run->window_count);
        return;
    }
    const struct window *window = &run->windows[0];
    buf_puts(out, " through a ");
    if (window->end_us != INT64_MAX) {
        text_seconds(out, (double)(window->end_us - window->begin_us) / 1e6);
        buf_putc(out, ' ');
    }
    put_text(out, window->who, markdown);
    buf_putc(out, ' ');
    put_text(out, window->what, markdown);
}

static void say_audit(const struct group *group, struct buf *out, bool markdown)
{
    static const struct {
        const char *before, *after;
    } words[AUDIT_BAD_COUNT] = {
        [AUDIT_LOST] = {"lost", " acknowledged tasks"},
        [AUDIT_UNEXPECTED] = {"invented", ""},
        [AUDIT_CORRUPT] = {"changed", ""},
        [AUDIT_REFUSED_STORED] = {"stored", " that it had refused"},
        [AUDIT_DUPLICATED] = {"doubled", ""},
    };
    size_t voided = 0;
    bool bad = false;
    for (size_t i = 0; i < group->count; i++)
        voided += group->entries[i]->audit.verdict == AUDIT_VOID;
    for (int kind = 0; kind < AUDIT_BAD_COUNT; kind++) {
        int64_t count = 0;
        /* What a void audit misses may be in the sink still: it accuses nobody. */
        for (size_t i = 0; i < group->count; i++)
            if (group->entries[i]->audit.verdict != AUDIT_VOID)
                count += group->entries[i]->audit.bad[kind].count;
        if (count == 0)
            continue;
        buf_printf(out, ", %s %" PRId64 "%s", words[kind].before, count, words[kind].after);
        bad = true;
    }
    if (bad && group->control)
        buf_puts(out, " (a control: excused)");
    if (voided)
        buf_printf(out, ", proves nothing about losses in %zu of %zu runs (audit void)", voided,
                   group->count);
    if (!bad && voided < group->count) {
        buf_puts(out, voided ? ", lost nothing in the others" : ", lost nothing");
        say_faults(group, out, markdown);
    }
}

static void say_drain(const struct group *group, struct buf *out)
{
    if (group->shown_count == 0 || !group->first->run.manifest.drains)
        return;
    struct spread drain = group_spread(group, "drain.s");
    if (drain.n < group->shown_count) {
        buf_puts(out, ", was not seen to drain");
        return;
    }
    buf_puts(out, ", drained in ");
    text_seconds(out, drain.median);
}

void sentence_of(const struct group *group, struct buf *out, bool markdown)
{
    buf_puts(out, markdown ? "**" : "");
    put_text(out, group->sink, markdown);
    buf_puts(out, markdown ? "**" : "");
    buf_puts(out, group->control ? " (control): " : ": ");
    say_sla(group, out, markdown);
    say_audit(group, out, markdown);
    say_drain(group, out);
    if (group->counting == 1)
        buf_puts(out, "; one run, so indicative");
    else if (group->counting > 1)
        buf_printf(out, "; median of %zu runs", group->counting);
    buf_putc(out, '.');
}

/* ---- their order ---- */

struct place {
    const struct group *group;
    struct spread p99;
};

static int compare_places(const void *left, const void *right)
{
    const struct place *a = left, *b = right;
    return (a->p99.median > b->p99.median) - (a->p99.median < b->p99.median);
}

static void put_place(struct buf *out, const struct place *place, bool markdown)
{
    put_text(out, place->group->sink, markdown);
    buf_puts(out, " (");
    text_ms(out, place->p99.median);
    buf_puts(out, ")");
}

void sentence_of_order(const struct comparison *comparison, struct buf *out, bool markdown)
{
    struct place *places = xcalloc(comparison->group_count + 1, sizeof(*places));
    size_t count = 0, fewest = SIZE_MAX;
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct group *group = &comparison->groups[i];
        if (group->control || group->counting == 0)
            continue;
        places[count].group = group;
        places[count].p99 = group_spread(group, "sla.p99_ms");
        if (!isfinite(places[count].p99.median)) /* nothing to rank by */
            continue;
        fewest = places[count].p99.n < fewest ? places[count].p99.n : fewest;
        count++;
    }
    if (count < 2)
        goto out;
    qsort(places, count, sizeof(*places), compare_places);
    if (fewest < 2) {
        buf_puts(out, "By api p99, lowest first: ");
        for (size_t i = 0; i < count; i++) {
            buf_puts(out, i ? ", " : "");
            put_place(out, &places[i], markdown);
        }
        buf_puts(out, "; with one run of a sink the order is indicative.\n");
    } else if (places[0].p99.max < places[1].p99.min) {
        buf_puts(out, "Lowest api p99: ");
        put_place(out, &places[0], markdown);
        buf_puts(out, ", ahead of ");
        put_place(out, &places[1], markdown);
        buf_puts(out, " in every run.\n");
    } else {
        buf_puts(out, "No clear winner by api p99: ");
        put_place(out, &places[0], markdown);
        buf_puts(out, " and ");
        put_place(out, &places[1], markdown);
        buf_puts(out, " tie, since the ranges of their runs overlap.\n");
    }
out:
    free(places);
}
