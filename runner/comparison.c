#include "comparison.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <time.h>

#include <cjson/cJSON.h>

#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"

enum { MANIFEST_MAX = 4 * 1024 * 1024, SAME_SECOND_MAX = 100 };

int comparison_create(const char *runs, const char *scenario_name, char **dir, struct err *err)
{
    *dir = NULL;
    int rc = file_mkdirs(runs, 0755, err);
    if (rc < 0) {
        return rc;
    }
    char stamp[32];
    time_t now = time(NULL);
    struct tm parts;
    strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", gmtime_r(&now, &parts));
    for (int i = 1; i < SAME_SECOND_MAX; i++) {
        char *path = i == 1 ? xasprintf("%s/%s-%s", runs, scenario_name, stamp)
                            : xasprintf("%s/%s-%s-%d", runs, scenario_name, stamp, i);
        if (mkdir(path, 0755) == 0) {
            *dir = realpath(path, NULL);
            free(path);
            return *dir ? 0 : err_set(err, -errno, "%s: %s", runs, strerror(errno));
        }
        rc = errno == EEXIST ? 0
                             : err_set(err, -errno, "%s cannot be made: %s", path, strerror(errno));
        free(path);
        if (rc < 0) {
            return rc;
        }
    }
    return err_set(err, -EEXIST, "%s holds too many runs of this second", runs);
}

int comparison_share(const char *dir, struct err *err)
{
    /* Where there is such a list, the group's bits are the most that it grants (acl(5)). */
    bool listed = getxattr(dir, "system.posix_acl_default", NULL, 0) > 0;
    return chmod(dir, listed ? 0770 : 0777) < 0
               ? err_set(err, -errno, "%s: %s", dir, strerror(errno))
               : 0;
}

static cJSON *read_json(const char *path)
{
    struct buf text = {0};
    cJSON *json = NULL;
    if (file_read(path, MANIFEST_MAX, &text, NULL) == 0 && text.len > 0 &&
        json_check(text.data, text.len, NULL) == 0) {
        json = cJSON_ParseWithLength(text.data, text.len);
    }
    buf_free(&text);
    return json;
}

static cJSON *read_manifest(const char *run_dir)
{
    char *path = xasprintf("%s/manifest.json", run_dir);
    cJSON *manifest = read_json(path);
    free(path);
    return manifest;
}

static const char *text_of(const cJSON *object, const char *name)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, name));
    return text ? text : "";
}

/* Equal but for the path by which the file was found. `faults` false: they may differ too. */
static bool same_scenario(const cJSON *manifest, const struct scenario *scenario,
                          uint32_t fault_bits, bool faults)
{
    struct buf text = {0};
    scenario_json(scenario, fault_bits, &text);
    cJSON *ours = cJSON_Parse(text.data);
    cJSON *theirs = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(manifest, "scenario"), true);
    cJSON_DeleteItemFromObjectCaseSensitive(ours, "file");
    cJSON_DeleteItemFromObjectCaseSensitive(theirs, "file");
    if (!faults) {
        cJSON_DeleteItemFromObjectCaseSensitive(ours, "faults");
        cJSON_DeleteItemFromObjectCaseSensitive(theirs, "faults");
    }
    bool same = cJSON_Compare(ours, theirs, true);
    cJSON_Delete(ours);
    cJSON_Delete(theirs);
    buf_free(&text);
    return same;
}

enum comparison_run comparison_look(const char *run_dir, const struct scenario *scenario,
                                    uint32_t fault_bits)
{
    if (!file_exists(run_dir)) {
        return COMPARISON_RUN_ABSENT;
    }
    cJSON *manifest = read_manifest(run_dir);
    bool complete = strcmp(text_of(manifest, "outcome"), "complete") == 0 &&
                    same_scenario(manifest, scenario, fault_bits, true);
    cJSON_Delete(manifest);
    return complete ? COMPARISON_RUN_COMPLETE : COMPARISON_RUN_OTHER;
}

/* Calls use(run_dir, arg) for each <sink>/<n> below dir, until it returns true; was it so? */
static bool each_run(const char *dir, bool (*use)(const char *run_dir, void *arg), void *arg)
{
    bool found = false;
    DIR *sinks = opendir(dir);
    for (const struct dirent *sink; sinks && !found && (sink = readdir(sinks));) {
        char *sink_dir = xasprintf("%s/%s", dir, sink->d_name);
        DIR *numbers = sink->d_name[0] == '.' ? NULL : opendir(sink_dir);
        for (const struct dirent *number; numbers && !found && (number = readdir(numbers));) {
            if (isdigit((unsigned char)number->d_name[0])) {
                char *run_dir = xasprintf("%s/%s", sink_dir, number->d_name);
                found = use(run_dir, arg);
                free(run_dir);
            }
        }
        if (numbers) {
            closedir(numbers);
        }
        free(sink_dir);
    }
    if (sinks) {
        closedir(sinks);
    }
    return found;
}

static bool is_same(const char *run_dir, void *arg)
{
    cJSON *manifest = read_manifest(run_dir);
    bool same = manifest && same_scenario(manifest, arg, 0, false);
    cJSON_Delete(manifest);
    return same;
}

static const char signature_name[] = "run.json";

int comparison_sign(const char *dir, const char *sinks, const char *through, struct err *err)
{
    char *path = xasprintf("%s/%s", dir, signature_name);
    cJSON *signature = cJSON_CreateObject();
    cJSON_AddStringToObject(signature, "schema", "sluice-run/1");
    cJSON_AddStringToObject(signature, "sinks", sinks);
    cJSON_AddStringToObject(signature, "through", through);
    char *text = cJSON_Print(signature);
    int rc = file_write(path, text, strlen(text), err);
    free(text);
    cJSON_Delete(signature);
    free(path);
    return rc;
}

/* Is it signed alike? Else why says what it is. */
static bool is_signed(const char *dir, const char *sinks, const char *through, struct buf *why)
{
    char *path = xasprintf("%s/%s", dir, signature_name);
    cJSON *signature = read_json(path);
    const char *their_sinks = text_of(signature, "sinks");
    const char *their_through = text_of(signature, "through");
    bool same = strcmp(their_sinks, sinks) == 0 && strcmp(their_through, through) == 0;
    if (!*their_sinks) {
        buf_puts(why, "was not made by sluice run");
    } else if (!same) {
        buf_printf(why, "was made of the sinks %s through %s, not of %s through %s", their_sinks,
                   their_through, sinks, through);
    }
    cJSON_Delete(signature);
    free(path);
    return same;
}

int comparison_find(const char *runs, const struct scenario *scenario, const char *sinks,
                    const char *through, char **dir, struct err *err)
{
    struct dirent **entries;
    int count = scandir(runs, &entries, NULL, alphasort), rc = 0;
    size_t name_len = strlen(scenario->name);
    struct scenario copy = *scenario; /* each_run's argument is not const */
    *dir = NULL;
    for (int i = count - 1; i >= 0; i--) {
        const char *name = entries[i]->d_name;
        if (!*dir && strncmp(name, scenario->name, name_len) == 0 && name[name_len] == '-' &&
            isdigit((unsigned char)name[name_len + 1])) {
            char *path = xasprintf("%s/%s", runs, name);
            struct buf why = {0};
            if (!each_run(path, is_same, &copy)) {
                /* another scenario of that name */
            } else if (is_signed(path, sinks, through, &why)) {
                *dir = realpath(path, NULL);
            } else if (rc == 0) {
                rc = err_set(err, -EINVAL,
                             "--resume: the newest comparison of this scenario, %s, %s: name the "
                             "same sinks and --through, or leave --resume out",
                             path, why.data);
            }
            buf_free(&why);
            free(path);
        }
        free(entries[i]);
    }
    if (count >= 0) {
        free(entries);
    }
    return *dir ? 0 : rc;
}

/* Of a manifest; false: it names none. */
static bool read_seed(const cJSON *manifest, uint64_t *seed)
{
    char *end = NULL;
    *seed = strtoull(text_of(manifest, "seed"), &end, 10);
    return *text_of(manifest, "seed") != '\0' && *end == '\0';
}

struct seed_search {
    unsigned repeat;
    uint64_t seed;
};

static bool has_seed(const char *run_dir, void *arg)
{
    struct seed_search *search = arg;
    cJSON *manifest = read_manifest(run_dir);
    const cJSON *repeat = cJSON_GetObjectItemCaseSensitive(manifest, "repeat");
    bool found = read_seed(manifest, &search->seed) && cJSON_IsNumber(repeat) &&
                 repeat->valuedouble == (double)search->repeat;
    cJSON_Delete(manifest);
    return found;
}

bool comparison_seed(const char *dir, unsigned repeat, uint64_t *seed)
{
    struct seed_search search = {.repeat = repeat};
    if (!each_run(dir, has_seed, &search)) {
        return false;
    }
    *seed = search.seed;
    return true;
}

int comparison_manifest_read(const char *run_dir, const struct scenario *scenario,
                             struct comparison_manifest *out, struct err *err)
{
    cJSON *manifest = read_manifest(run_dir);
    const cJSON *repeat = cJSON_GetObjectItemCaseSensitive(manifest, "repeat");
    int rc = 0;
    if (!read_seed(manifest, &out->seed) || !cJSON_IsNumber(repeat)) {
        rc = err_set(err, -ENOENT, "%s holds no manifest.json of a run", run_dir);
    } else {
        out->repeat = (unsigned)repeat->valuedouble;
        out->same = same_scenario(manifest, scenario, 0, false);
        snprintf(out->outcome, sizeof(out->outcome), "%s", text_of(manifest, "outcome"));
        snprintf(out->why, sizeof(out->why), "%s", text_of(manifest, "why"));
    }
    cJSON_Delete(manifest);
    return rc;
}

int comparison_manifest_void(const char *run_dir, const char *why, struct err *err)
{
    cJSON *manifest = read_manifest(run_dir);
    char *path = xasprintf("%s/manifest.json", run_dir);
    int rc = manifest ? 0 : err_set(err, -ENOENT, "%s cannot be read", path);
    if (rc == 0) {
        cJSON_ReplaceItemInObjectCaseSensitive(manifest, "outcome",
                                               cJSON_CreateString("interrupted"));
        cJSON_ReplaceItemInObjectCaseSensitive(manifest, "why", cJSON_CreateString(why));
        char *text = cJSON_Print(manifest);
        rc = file_write(path, text, strlen(text), err);
        free(text);
    }
    free(path);
    cJSON_Delete(manifest);
    return rc;
}
