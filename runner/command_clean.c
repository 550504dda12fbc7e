/* sluice clean: what a killed sluice could not tidy up, and what runs left on servers that were
 * given to them. Kept evidence (runs/) is not touched. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "base/file.h"
#include "command.h"
#include "given.h"
#include "hold.h"
#include "sink/sink.h"
#include "state.h"

static const struct option_spec clean_options[] = {
    {.name = "runs",
     .type = OPTION_STRING,
     .unit = "DIR",
     .default_text = "runs",
     .help = "look through the runs there for state that was left elsewhere (--state)"},
    {.name = "state", .type = OPTION_STRING, .unit = "DIR", .help = "clean there, too"},
    {.name = "discard-tasks",
     .type = OPTION_BOOL,
     .help = "remove a sink from its server even while tasks wait in it"},
    {.name = NULL},
};

static const char clean_more[] =
    "\nRemoves the folders with server data that sluice left when it was killed, in\n"
    "/var/tmp/sluice-state-<uid>, in --state DIR, and where the manifests in --runs say. A folder\n"
    "whose sluice is alive is left alone; so are all runs.\n"
    "\n"
    "On servers that were given to a run: with --sink NAME and --sink-url what that sink made "
    "there\n"
    "(its table, stream or queue), with --main-url the schema sluice. Nothing else is touched.\n";

/* Folders whose content was looked through already. */
struct scanned {
    const char *base, *state; /* state may be NULL */
};

static bool is_in(const char *dir, const char *base)
{
    char *above = base ? xasprintf("%s/..", dir) : NULL;
    char *real_above = above ? realpath(above, NULL) : NULL, *real = NULL;
    bool in = real_above && (real = realpath(base, NULL)) && strcmp(real, real_above) == 0;
    free(above);
    free(real_above);
    free(real);
    return in;
}

/* The state folder that a run's manifest names, when the run did not end well. */
static int clean_run(const char *run_dir, const struct scanned *scanned, struct err *err)
{
    struct buf text = {0};
    char *path = xasprintf("%s/manifest.json", run_dir);
    int removed = 0;
    if (file_read(path, 4 * 1024 * 1024, &text, NULL) == 0 && text.len > 0) {
        cJSON *manifest = cJSON_ParseWithLength(text.data, text.len);
        const char *dir =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(manifest, "state_dir"));
        if (dir && dir[0] == '/' && !is_in(dir, scanned->base) && !is_in(dir, scanned->state)) {
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
static int clean_below(const char *dir, int levels, const struct scanned *scanned, struct err *err)
{
    if (levels == 0) {
        return clean_run(dir, scanned, err);
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
        int rc = clean_below(path, levels - 1, scanned, err);
        removed = rc < 0 ? rc : removed + rc;
        free(path);
    }
    closedir(folder);
    return removed;
}

/* ---- servers that were given ---- */

static int clean_sink(const struct options *options, struct err *err)
{
    const struct sink_driver *driver = sink_find(options_string(options, "sink"));
    int64_t tasks = 0;
    int rc = 0;
    if (!driver || driver->remove) {
        rc = sink_select(options, &driver, err); /* is there such a sink, with all that it needs? */
    }
    if (rc < 0) {
        return rc;
    }
    if (!driver->remove) {
        return err_set(err, -EINVAL, "the sink %s leaves nothing behind", driver->name);
    }
    struct hold *hold = NULL;
    rc = hold_take(&hold, driver, options, err);
    /* Also tells whether what is there is ours, and makes the question below one that has an
     * answer. */
    rc = rc == 0 ? driver->setup(options, err) : rc;
    if (rc == 0) {
        rc = given_count_tasks(driver, options, &tasks, err);
    }
    if (rc == -ENOMSG) {
        tasks = -1;
        rc = 0;
    }
    if (rc == 0 && tasks != 0 && !options_bool(options, "discard-tasks")) {
        rc = tasks > 0 ? err_set(err, -EBUSY,
                                 "%lld tasks wait in it: let a worker drain it first, or add "
                                 "--discard-tasks",
                                 (long long)tasks)
                       : err_set(err, -EBUSY,
                                 "it does not tell how many tasks wait in it; --discard-tasks "
                                 "removes it whatever it holds");
    }
    if (rc == 0) {
        rc = driver->remove(options, err);
    }
    hold_release(hold);
    if (rc < 0) {
        /* A URL that leads nowhere is no mistake in the command: the daemons take it the same way.
         */
        err_prefix(err, "sink %s", driver->name);
        return rc == -EINVAL ? -ENOTCONN : rc;
    }
    const char *url = options_string(options, "sink-url");
    char shown[512];
    printf("nothing that the sink %s makes is left%s%s%s\n", driver->name, url ? " at " : "",
           url ? url_redact(url, shown, sizeof(shown)) : "",
           tasks > 0 ? ": the tasks that waited in it are gone" : "");
    return 1;
}

static int clean_main_db(const char *url, struct err *err)
{
    char shown[512];
    int rc = given_main_remove(url, err);
    if (rc == 1) {
        printf("dropped the schema sluice at %s\n", url_redact(url, shown, sizeof(shown)));
    }
    return rc == -EINVAL ? -ENOTCONN : rc;
}

/* How many places were cleaned. */
static int clean_given(const struct options *options, struct err *err)
{
    const char *main_url = options_string(options, "main-url");
    int sink = 0, main = 0;
    if (options_is_set(options, "sink")) {
        sink = clean_sink(options, err);
    } else if (options_is_set(options, "sink-url")) {
        printf("what a sink made at --sink-url stays: name it, as in --sink rabbit\n");
    }
    if (sink >= 0 && main_url) {
        main = clean_main_db(main_url, err);
    }
    return sink < 0 ? sink : main < 0 ? main : sink + main;
}

static int clean(const struct options *options, struct err *err)
{
    char *base = state_default_base();
    const char *state = options_string(options, "state");
    int total = state_clean(base, stdout, err);
    char *real_base = realpath(base, NULL), *real_state = state ? realpath(state, NULL) : NULL;
    bool twice = real_base && real_state && strcmp(real_base, real_state) == 0;
    int rc = total >= 0 && state && !twice ? state_clean(state, stdout, err) : 0;
    free(real_base);
    free(real_state);
    if (total >= 0 && rc >= 0) {
        total += rc;
        rc = clean_below(options_string(options, "runs"), 3,
                         &(struct scanned){.base = base, .state = state}, err);
    }
    if (total >= 0) {
        total = rc < 0 ? rc : total + rc;
        state_leave(base); /* with nobody in it, the base itself goes too */
    } else {
        free(base);
    }
    if (total >= 0) {
        rc = clean_given(options, err);
        total = rc < 0 ? rc : total + rc;
    }
    return total;
}

static int clean_main(int argc, char *argv[])
{
    struct options *options = options_new("sluice clean", "removes what a killed sluice left");
    options_add(options, "Settings", clean_options);
    sink_add_options(options);
    int code;
    if (command_start(options, argc, argv,
                      "[--runs DIR] [--state DIR] [--sink NAME --sink-url URL] [--main-url URL]",
                      clean_more, &code)) {
        struct err err = {0};
        size_t count;
        options_args(options, &count);
        if (count > 0) {
            code = command_fail(EXIT_MISTAKE, "clean takes no words, only flags");
        } else {
            int removed = clean(options, &err);
            if (removed < 0) {
                code = command_fail(removed == -EINVAL ? EXIT_MISTAKE : EXIT_UNUSABLE, err.text);
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
