#include "cognitive.h"

#include <string.h>

#include "compare.h"
#include "text.h"

/* The greatest count that still gets the score 0 to 4; beyond the last it is 5. Each step is about
 * twice the one before: twice as much to know is one more. */
static const struct {
    const char *name, *counted;
    unsigned most[COGNITIVE_SCORE_MAX];
} parts[COGNITIVE_PARTS] = {
    {"code", "lines of own code", {250, 500, 1000, 2000, 4000}},
    {"config", "settings that must be set", {0, 2, 5, 10, 20}},
    {"failure", "failure modes", {0, 3, 6, 10, 15}},
    {"observability", "metrics and alerts", {0, 3, 6, 10, 15}},
    {"runbooks", "runbook steps", {0, 2, 4, 8, 16}},
};

/* What the article gave its own implementations of these. */
static const struct {
    const char *sink;
    unsigned scores[COGNITIVE_PARTS], devops;
} article[] = {
    {"wal", {5, 1, 3, 3, 2}, 0},
    {"ingest", {2, 2, 4, 3, 3}, 1},
    {"valkey", {2, 3, 5, 4, 4}, 2},
    {"rabbit", {1, 5, 5, 5, 5}, 4},
};
enum { ARTICLE = sizeof(article) / sizeof(article[0]) };

unsigned cognitive_score(enum cognitive_part part, unsigned count)
{
    unsigned score = 0;
    while (score < COGNITIVE_SCORE_MAX && count > parts[part].most[score])
        score++;
    return score;
}

static const struct cognitive_sink *find_sink(const char *sink)
{
    for (const struct cognitive_sink *at = cognitive_sinks; at->sink; at++)
        if (strcmp(at->sink, sink) == 0)
            return at;
    return NULL;
}

static unsigned sum_of(const struct cognitive_sink *sink)
{
    unsigned sum = 0;
    for (int part = 0; part < COGNITIVE_PARTS; part++)
        sum += cognitive_score((enum cognitive_part)part, sink->counts[part]);
    return sum;
}

void cognitive_rubric(struct buf *out)
{
    struct table table;
    table_begin(&table, COGNITIVE_SCORE_MAX + 3);
    table_text(&table, "rubric");
    table_text(&table, "counted");
    for (unsigned score = 0; score <= COGNITIVE_SCORE_MAX; score++)
        buf_printf(table_cell(&table), "%u", score);
    for (int part = 0; part < COGNITIVE_PARTS; part++) {
        const unsigned *most = parts[part].most;
        table_text(&table, parts[part].name);
        table_text(&table, parts[part].counted);
        for (unsigned score = 0; score < COGNITIVE_SCORE_MAX; score++)
            buf_printf(table_cell(&table), most[score] == 0 ? "none" : "to %u", most[score]);
        buf_puts(table_cell(&table), "more");
    }
    table_end(&table, out);
}

static void put_counts(const struct comparison *comparison, struct buf *out)
{
    struct table table;
    table_begin(&table, COGNITIVE_PARTS + 3);
    table_text(&table, "sink");
    for (int part = 0; part < COGNITIVE_PARTS; part++)
        buf_printf(table_cell(&table), "%s: %s", parts[part].name, parts[part].counted);
    table_text(&table, "sum of 25");
    table_text(&table, "services to run");
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct cognitive_sink *sink = find_sink(comparison->groups[i].sink);
        text_markdown(table_cell(&table), comparison->groups[i].sink);
        for (int part = 0; part < COGNITIVE_PARTS; part++) {
            struct buf *cell = table_cell(&table);
            if (!sink)
                buf_puts(cell, "not counted");
            else
                buf_printf(cell, "**%u** (%u)",
                           cognitive_score((enum cognitive_part)part, sink->counts[part]),
                           sink->counts[part]);
        }
        struct buf *cell = table_cell(&table);
        if (sink)
            buf_printf(cell, "**%u**", sum_of(sink));
        else
            buf_puts(cell, "–");
        cell = table_cell(&table);
        if (sink && sink->services)
            buf_printf(cell, "%u (%s)", sink->services, sink->service_names);
        else
            buf_puts(cell, sink ? "0" : "–");
    }
    table_end(&table, out);
}

static void put_details(const struct comparison *comparison, struct buf *out)
{
    for (size_t i = 0; i < comparison->group_count; i++) {
        const struct cognitive_sink *sink = find_sink(comparison->groups[i].sink);
        if (sink)
            buf_printf(out,
                       "- %s: of the settings %u %s and %u of the server's configuration as "
                       "`sluice` ships it; %u metrics, %u alerts.\n",
                       sink->sink, sink->options, sink->options == 1 ? "option" : "options",
                       sink->server_lines, sink->metrics, sink->alerts);
    }
    buf_putc(out, '\n');
}

static void put_article(const struct comparison *comparison, struct buf *out)
{
    bool any = false;
    struct table table;
    for (size_t i = 0; i < comparison->group_count; i++)
        for (size_t k = 0; k < ARTICLE; k++) {
            if (strcmp(article[k].sink, comparison->groups[i].sink) != 0)
                continue;
            if (!any) {
                buf_puts(out,
                         "What the article gave its own implementations, out of the same 25:\n\n");
                table_begin(&table, COGNITIVE_PARTS + 3);
                table_text(&table, "sink");
                for (int part = 0; part < COGNITIVE_PARTS; part++)
                    table_text(&table, parts[part].name);
                table_text(&table, "sum of 25");
                table_text(&table, "DevOps");
            }
            any = true;
            unsigned sum = 0;
            table_text(&table, article[k].sink);
            for (int part = 0; part < COGNITIVE_PARTS; part++) {
                buf_printf(table_cell(&table), "%u", article[k].scores[part]);
                sum += article[k].scores[part];
            }
            buf_printf(table_cell(&table), "%u", sum);
            buf_printf(table_cell(&table), "%u", article[k].devops);
        }
    if (any)
        table_end(&table, out);
}

void cognitive_markdown(const struct comparison *comparison, struct buf *out)
{
    buf_puts(out,
             "## Cognitive load\n\nWhat each sink asks of the people who run it: facts counted "
             "when `sluice` was built, in brackets, and mapped to 0 (little)\nto 5 (much) by the "
             "rubric below. How each is counted, and what that cannot show: "
             "docs/cognitive-load.md.\n\n");
    put_counts(comparison, out);
    put_details(comparison, out);
    put_article(comparison, out);
    cognitive_rubric(out);
}
