/* sluice sinks: which there are, what they promise, what can be set. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "command.h"
#include "server.h"
#include "sink/sink.h"

static void print_sink(const struct sink_driver *driver)
{
    const struct server_kind *kind = server_for_sink(driver->name);
    printf("%s%s\n  promise  %s\n", driver->name,
           driver->flags & SINK_CONTROL ? " (control: a yardstick, not a contender)" : "",
           driver->promise);
    printf("  server   %s\n", kind                              ? kind->name
                              : driver->flags & SINK_NEEDS_MAIN ? "the main database itself"
                                                                : "none");
    printf("  drained by the worker: %s; backlog: %s; survives SIGKILL of every process: %s\n",
           driver->flags & SINK_DRAINS ? "yes" : "no",
           driver->flags & SINK_BACKLOG_EXACT ? "counted" : "estimated, or none",
           driver->flags & SINK_DURABLE_KILL ? "yes" : "no");
    for (const struct option_spec *spec = driver->options; spec && spec->name; spec++) {
        printf("  --%s=%s  %s%s%s%s\n", spec->name, spec->unit ? spec->unit : "yes|no", spec->help,
               spec->default_text ? " (default " : "", spec->default_text ? spec->default_text : "",
               spec->default_text ? ")" : "");
    }
    putchar('\n');
}

static int sinks_main(int argc, char *argv[])
{
    struct options *options =
        options_new("sluice sinks", "the sinks there are, what each promises, what can be set");
    int code;
    if (command_start(options, argc, argv, "[NAME]...", NULL, &code)) {
        size_t count;
        const char *const *names = options_args(options, &count);
        for (size_t i = 0; count == 0 && sink_drivers[i]; i++) {
            print_sink(sink_drivers[i]);
        }
        for (size_t i = 0; i < count; i++) {
            const struct sink_driver *driver = sink_find(names[i]);
            if (driver) {
                print_sink(driver);
            } else {
                fprintf(stderr, "sluice: there is no sink %s; sluice sinks lists those there are\n",
                        names[i]);
                code = EXIT_MISTAKE;
            }
        }
        if (count == 0) {
            printf("In a scenario such settings stand below `sink:`, without the dashes; on the "
                   "command line: --set sink.NAME=VALUE\n");
        }
    }
    options_free(options);
    return code;
}

const struct command command_sinks = {
    .name = "sinks",
    .summary = "list the sinks, their promises and settings",
    .run = sinks_main,
};
