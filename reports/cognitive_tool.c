/* Runs while sluice is built: counts what each sink asks of people, and writes the table of
 * cognitive.h as C. A page that can't be counted ends the build with a sentence. */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "cognitive_count.h"
#include "sink/sink.h"

static void put_sink(struct buf *out, const char *sink, const struct cognitive_counts *counts)
{
    buf_puts(out, "    {");
    buf_json_string(out, sink, strlen(sink));
    buf_printf(out, ", {%u, %u, %u, %u, %u}, %u, %u, %u, %u, %u, ", counts->code,
               counts->options + counts->server_lines, counts->failure_modes,
               counts->metrics + counts->alerts, counts->runbook, counts->options,
               counts->server_lines, counts->metrics, counts->alerts, counts->services);
    const char *names = counts->service_names.data ? counts->service_names.data : "";
    buf_json_string(out, names, strlen(names));
    buf_puts(out, "},\n");
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct buf out = {0};
    int rc = 0;
    if (argc != 3) {
        fputs("usage: cognitive_tool SOURCE_DIR OUTPUT\n", stderr);
        return 2;
    }
    buf_puts(&out, "/* Made by cognitive_tool. */\n#include \"reports/cognitive.h\"\n\n"
                   "const struct cognitive_sink cognitive_sinks[] = {\n");
    for (size_t i = 0; sink_drivers[i] && rc == 0; i++) {
        const struct option_spec *const tables[] = {sink_drivers[i]->options, sink_common_options,
                                                    NULL};
        struct cognitive_counts counts;
        rc = cognitive_count(argv[1], sink_drivers[i]->name, tables, &counts, &err);
        if (rc == 0)
            put_sink(&out, sink_drivers[i]->name, &counts);
        buf_free(&counts.service_names);
    }
    buf_puts(&out, "    {.sink = NULL},\n};\n");
    if (rc == 0)
        rc = file_write(argv[2], out.data, out.len, &err);
    buf_free(&out);
    if (rc < 0)
        fprintf(stderr, "cognitive_tool: %s\n", err.text);
    return rc < 0;
}
