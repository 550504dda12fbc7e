/* sluice clean: what a killed sluice could not tidy up. Kept evidence (runs/) is not touched. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "command.h"
#include "state.h"

static const struct option_spec clean_options[] = {
    {.name = "runs",
     .type = OPTION_STRING,
     .unit = "DIR",
     .default_text = "runs",
     .help = "look through the runs there for state that was left elsewhere (--state)"},
    {.name = "state", .type = OPTION_STRING, .unit = "DIR", .help = "clean there, too"},
    {.name = NULL},
};

static const char clean_more[] =
    "\nRemoves the folders with server data that sluice left when it was killed, in\n"
    "/var/tmp/sluice-state-<uid>, in --state DIR, and where the manifests in --runs say. A folder\n"
    "whose sluice is alive is left alone; so are all runs.\n";

/* The state folder that a run's manifest names, when the run did not end well. */
static int clean_run(const char *run_dir, struct err *err)
{
    struct buf text = {0};
    char *path = xasprintf("%s/manifest.json", run_dir);
    int removed = 0;
    if (file_read(path, 4 * 1024 * 1024, &text, NULL) == 0 && text.len > 0) {
        cJSON *manifest = cJSON_ParseWithLength(text.data, text.len);
        const char *dir =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(manifest, "state_dir"));
        if (dir && dir[0] == '/') {
            int rc = state_clean_one(dir, stdout, err);
            removed = rc == -ENOENT || rc == -EINVAL ? 0 : rc;
        }
        cJSON_Delete(manifest);
    }
    free(path);
    buf_free(&text);
    return removed;
}

/* Run folders lie three levels down: comparison, sink, number. */
static int clean_below(const char *dir, int levels, struct err *err)
{
    if (levels == 0) {
        return clean_run(dir, err);
    }
    int removed = 0;
    DIR *folder = opendir(dir);
    if (!folder) {
        return 0;
    }
    for (const struct dirent *entry; removed >= 0 && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.' || entry->d_type == DT_LNK) {
            continue;
        }
        char *path = xasprintf("%s/%s", dir, entry->d_name);
        int rc = clean_below(path, levels - 1, err);
        removed = rc < 0 ? rc : removed + rc;
        free(path);
    }
    closedir(folder);
    return removed;
}

static int clean(const struct options *options, struct err *err)
{
    char *base = state_default_base();
    const char *state = options_string(options, "state");
    int total = state_clean(base, stdout, err);
    int rc = total >= 0 && state ? state_clean(state, stdout, err) : 0;
    if (total >= 0 && rc >= 0) {
        total += rc;
        rc = clean_below(options_string(options, "runs"), 3, err);
    }
    if (total >= 0) {
        total = rc < 0 ? rc : total + rc;
        state_leave(base); /* with nobody in it, the base itself goes too */
    } else {
        free(base);
    }
    return total;
}

static int clean_main(int argc, char *argv[])
{
    struct options *options = options_new("sluice clean", "removes what a killed sluice left");
    options_add(options, "Settings", clean_options);
    int code;
    if (command_start(options, argc, argv, "[--runs DIR] [--state DIR]", clean_more, &code)) {
        struct err err = {0};
        size_t count;
        options_args(options, &count);
        if (count > 0) {
            code = command_fail(EXIT_MISTAKE, "clean takes no words, only --runs and --state");
        } else {
            int removed = clean(options, &err);
            if (removed < 0) {
                code = command_fail(EXIT_UNUSABLE, err.text);
            } else if (removed == 0) {
                printf("nothing to clean\n");
            }
        }
    }
    options_free(options);
    return code;
}

const struct command command_clean = {
    .name = "clean",
    .summary = "remove what a killed sluice left behind",
    .run = clean_main,
};
