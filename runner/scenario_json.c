/* A scenario as it stands in a manifest: read by reports/ and by `--resume`. */
#include <string.h>

#include "base/clock.h"
#include "scenario.h"

static void json_ms(struct buf *out, const char *name, int64_t duration_ns)
{
    buf_printf(out, "\"%s\": %lld", name, (long long)(duration_ns / NS_PER_MS));
    if (duration_ns % NS_PER_MS != 0) {
        buf_printf(out, ".%06lld", (long long)(duration_ns % NS_PER_MS));
    }
}

static void json_text(struct buf *out, const char *name, const char *text)
{
    buf_printf(out, "\"%s\": ", name);
    buf_json_string(out, text, strlen(text));
}

static void json_faults(const struct scenario *scenario, uint32_t fault_bits, struct buf *out)
{
    bool first = true;
    buf_puts(out, ", \"faults\": [");
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        if (!(fault_bits >> i & 1)) {
            continue;
        }
        buf_puts(out, first ? "{" : ", {");
        json_ms(out, "at_ms", fault->at_ns);
        buf_printf(out, ", \"do\": \"%s\", \"who\": \"%s\", ", fault_do_names[fault->what],
                   fault_who_names[fault->who]);
        json_ms(out, "for_ms", fault->for_ns);
        buf_putc(out, '}');
        first = false;
    }
    buf_putc(out, ']');
}

void scenario_background_json(const struct scenario *scenario, uint32_t bits, struct buf *out)
{
    bool first = true;
    buf_putc(out, '[');
    for (size_t i = 0; i < scenario->background_count; i++) {
        const struct scenario_background *item = &scenario->background[i];
        if (!(bits >> i & 1)) {
            continue;
        }
        buf_puts(out, first ? "{" : ", {");
        json_ms(out, "at_ms", item->at_ns);
        buf_printf(out, ", \"do\": \"%s\", \"who\": \"%s\"}", background_do_names[item->what],
                   background_who_names[item->who]);
        first = false;
    }
    buf_putc(out, ']');
}

void scenario_json(const struct scenario *scenario, uint32_t fault_bits, struct buf *out)
{
    buf_putc(out, '{');
    json_text(out, "name", scenario->name);
    buf_puts(out, ", ");
    json_text(out, "file", scenario->file);
    buf_printf(out,
               ", \"load\": {\"rps\": %lld, \"pacing\": \"%s\", \"connections\": %lld, "
               "\"payload_bytes\": %lld, ",
               (long long)scenario->rps, pacing_names[scenario->pacing],
               (long long)scenario->connections, (long long)scenario->payload_bytes);
    json_ms(out, "timeout_ms", scenario->timeout_ns);
    buf_puts(out, ", \"phases\": [");
    for (size_t i = 0; i < scenario->phase_count; i++) {
        const struct scenario_phase *phase = &scenario->phases[i];
        buf_puts(out, i > 0 ? ", {" : "{");
        json_text(out, "name", phase->name);
        buf_puts(out, ", ");
        json_ms(out, "for_ms", phase->duration_ns);
        buf_printf(out, ", \"rate\": %.12g}", phase->rate);
    }
    buf_puts(out, "]}, ");
    json_ms(out, "row_delay_ms", scenario->row_delay_ns);
    buf_printf(out, ", \"worker\": {\"lanes\": %lld, \"batch\": %lld}", (long long)scenario->lanes,
               (long long)scenario->batch);
    json_faults(scenario, fault_bits, out);
    buf_puts(out, ", \"background\": ");
    scenario_background_json(scenario, UINT32_MAX, out);
    buf_puts(out, ", \"sink_options\": {");
    for (size_t i = 0; i < scenario->sink_count; i++) {
        buf_puts(out, i > 0 ? ", " : "");
        json_text(out, scenario->sink[i].name, scenario->sink[i].text);
    }
    buf_puts(out, "}, \"sla\": {");
    json_ms(out, "api_p99_ms", scenario->sla_api_p99_ns);
    buf_puts(out, "}}");
}
