#include "scenario.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/options.h"
#include "yaml_tree.h"

const char *const pacing_names[] = {"paced", "burst", NULL};
const char *const fault_do_names[] = {"kill", "term", "pause", NULL};
const char *const fault_who_names[] = {"api", "worker", "sink", "main-db", NULL};
const char *const background_do_names[] = {"checkpoint",    "vacuum",           "aof-rewrite",
                                           "raft-rollover", "segment-rotation", NULL};
const char *const background_who_names[] = {"main-db", "sink", "api", NULL};

#define MINUTE_NS (60 * NS_PER_S)
#define HOUR_NS   (60 * MINUTE_NS)

enum key_type { KEY_INT, KEY_DECIMAL, KEY_DURATION, KEY_NAME, KEY_CHOICE, KEY_OTHER };

typedef int key_fn(void *base, const struct tree_node *node, const char *path, struct err *err);

/* One key of a map: where its value goes and what it may be. */
struct key {
    const char *name;
    enum key_type type;
    bool required;
    size_t offset;
    double min, max;
    const char *const *choices;
    key_fn *other; /* KEY_OTHER */
};

/* ---- messages ---- */

static void say_duration(struct buf *out, double duration_ns)
{
    if (duration_ns >= (double)HOUR_NS) {
        buf_printf(out, "%gh", duration_ns / (double)HOUR_NS);
    } else if (duration_ns >= (double)NS_PER_S) {
        buf_printf(out, "%gs", duration_ns / (double)NS_PER_S);
    } else if (duration_ns >= (double)NS_PER_US) {
        buf_printf(out, "%gms", duration_ns / (double)NS_PER_MS);
    } else {
        buf_printf(out, "%g", duration_ns);
    }
}

static void say_expected(const struct key *key, struct buf *out)
{
    switch (key->type) {
    case KEY_INT:
        buf_printf(out, "a whole number from %.0f to %.0f", key->min, key->max);
        break;
    case KEY_DECIMAL:
        buf_printf(out, "a number from %g to %g", key->min, key->max);
        break;
    case KEY_DURATION:
        buf_puts(out, "a duration from ");
        say_duration(out, key->min);
        buf_puts(out, " to ");
        say_duration(out, key->max);
        buf_puts(out, " with its unit, such as 30s or 60ms");
        break;
    case KEY_NAME:
        buf_puts(out, "a name of 1 to 40 characters a-z, 0-9 and -");
        break;
    case KEY_CHOICE:
        buf_puts(out, "one of ");
        for (size_t i = 0; key->choices[i]; i++) {
            buf_printf(out, "%s%s", i > 0 ? ", " : "", key->choices[i]);
        }
        break;
    case KEY_OTHER:
        buf_puts(out, "something else");
        break;
    }
}

static const char *kind_name(const struct tree_node *node)
{
    return node->kind == TREE_LIST ? "a list" : "a group of settings";
}

static int fail_value(const struct key *key, const struct tree_node *node, const char *path,
                      struct err *err)
{
    struct buf expected = {0};
    int rc;
    say_expected(key, &expected);
    if (node->kind == TREE_TEXT) {
        char *shown = url_redacted(node->text);
        rc = err_set(err, -EINVAL, "%s: %s: expected %s; found \"%.60s\"", node->place, path,
                     expected.data, shown);
        free(shown);
    } else {
        rc = err_set(err, -EINVAL, "%s: %s: expected %s; found %s", node->place, path,
                     expected.data, kind_name(node));
    }
    buf_free(&expected);
    return rc;
}

static int fail_unknown(const struct key *keys, const struct tree_node *map, size_t at,
                        const char *path, struct err *err)
{
    struct buf known = {0};
    for (size_t i = 0; keys[i].name; i++) {
        buf_printf(&known, "%s%s", i > 0 ? ", " : "", keys[i].name);
    }
    int rc = err_set(err, -EINVAL, "%s: unknown setting \"%.60s\"%s%s; expected one of %s",
                     map->key_places[at], map->keys[at], *path ? " in " : "", path, known.data);
    buf_free(&known);
    return rc;
}

/* ---- values ---- */

static bool is_name(const char *text)
{
    size_t len = strlen(text);
    return len >= 1 && len < SCENARIO_NAME_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

static int decode_value(void *base, const struct key *key, const struct tree_node *node,
                        const char *path, struct err *err)
{
    if (key->type == KEY_OTHER) {
        return key->other(base, node, path, err);
    }
    if (node->kind != TREE_TEXT) {
        return fail_value(key, node, path, err);
    }
    char *field = (char *)base + key->offset;
    int64_t number = 0;
    double decimal = 0;
    int rc = 0;
    switch (key->type) {
    case KEY_INT:
        rc = option_parse_int(node->text, &number, NULL);
        decimal = (double)number;
        memcpy(field, &number, sizeof(number));
        break;
    case KEY_DURATION:
        rc = option_parse_duration(node->text, &number, NULL);
        decimal = (double)number;
        memcpy(field, &number, sizeof(number));
        break;
    case KEY_DECIMAL:
        rc = option_parse_decimal(node->text, &decimal, NULL);
        memcpy(field, &decimal, sizeof(decimal));
        break;
    case KEY_NAME:
        if (!is_name(node->text)) {
            return fail_value(key, node, path, err);
        }
        memcpy(field, node->text, strlen(node->text) + 1);
        return 0;
    case KEY_CHOICE:
        for (int i = 0; key->choices[i]; i++) {
            if (strcmp(key->choices[i], node->text) == 0) {
                memcpy(field, &i, sizeof(i));
                return 0;
            }
        }
        return fail_value(key, node, path, err);
    case KEY_OTHER:
        break;
    }
    if (rc < 0 || !(decimal >= key->min && decimal <= key->max)) {
        return fail_value(key, node, path, err);
    }
    return 0;
}

/* Decodes a map by its table; path is "" at the top. */
static int decode_map(void *base, const struct key *keys, const struct tree_node *map,
                      const char *path, struct err *err)
{
    if (map->kind != TREE_MAP) {
        return err_set(err, -EINVAL, "%s: %s: expected settings (key: value); found %s", map->place,
                       *path ? path : "scenario", map->kind == TREE_LIST ? "a list" : "a value");
    }
    for (size_t i = 0; i < map->count; i++) {
        const struct key *key = keys;
        while (key->name && strcmp(key->name, map->keys[i]) != 0) {
            key++;
        }
        if (!key->name) {
            return fail_unknown(keys, map, i, path, err);
        }
        char *key_path = xasprintf("%s%s%s", path, *path ? "." : "", key->name);
        int rc = decode_value(base, key, map->items[i], key_path, err);
        free(key_path);
        if (rc < 0) {
            return rc;
        }
    }
    for (const struct key *key = keys; key->name; key++) {
        if (key->required && !tree_get(map, key->name)) {
            return err_set(err, -EINVAL, "%s: %s%s%s is missing", map->place, path,
                           *path ? "." : "", key->name);
        }
    }
    return 0;
}

/* ---- the parts ---- */

static int decode_phases(void *base, const struct tree_node *node, const char *path,
                         struct err *err)
{
    static const struct key keys[] = {
        {"name", KEY_NAME, true, offsetof(struct scenario_phase, name), 0, 0, NULL, NULL},
        {"for", KEY_DURATION, true, offsetof(struct scenario_phase, duration_ns),
         100 * (double)NS_PER_MS, 24 * (double)HOUR_NS, NULL, NULL},
        {"rate", KEY_DECIMAL, false, offsetof(struct scenario_phase, rate), 0, 1000, NULL, NULL},
        {0},
    };
    struct scenario *scenario = base;
    scenario->phase_count = 0;
    if (node->kind != TREE_LIST || node->count == 0 || node->count > SCENARIO_PHASES_MAX) {
        return err_set(err, -EINVAL,
                       "%s: %s: expected a list of 1 to %d phases, such as [{name: steady, for: "
                       "30s}]",
                       node->place, path, SCENARIO_PHASES_MAX);
    }
    bool steady = false;
    for (size_t i = 0; i < node->count; i++) {
        struct scenario_phase *phase = &scenario->phases[i];
        *phase = (struct scenario_phase){.rate = 1};
        char *item_path = xasprintf("%s[%zu]", path, i);
        int rc = decode_map(phase, keys, node->items[i], item_path, err);
        free(item_path);
        if (rc < 0) {
            return rc;
        }
        for (size_t k = 0; k < i; k++) {
            if (strcmp(scenario->phases[k].name, phase->name) == 0) {
                return err_set(err, -EINVAL,
                               "%s: %s: a phase named %s is there already; expected another name",
                               tree_get(node->items[i], "name")->place, path, phase->name);
            }
        }
        steady = steady || strcmp(phase->name, "steady") == 0;
        scenario->phase_count = i + 1;
    }
    if (!steady) {
        return err_set(err, -EINVAL,
                       "%s: %s: expected one phase named steady: the target is judged by it",
                       node->place, path);
    }
    return 0;
}

static int decode_load(void *base, const struct tree_node *node, const char *path, struct err *err)
{
    static const struct key keys[] = {
        {"rps", KEY_INT, true, offsetof(struct scenario, rps), 1, 1000000, NULL, NULL},
        {"pacing", KEY_CHOICE, false, offsetof(struct scenario, pacing), 0, 0, pacing_names, NULL},
        {"connections", KEY_INT, false, offsetof(struct scenario, connections), 1, 10000, NULL,
         NULL},
        {"payload_bytes", KEY_INT, false, offsetof(struct scenario, payload_bytes), 1, 1000000,
         NULL, NULL},
        {"timeout", KEY_DURATION, false, offsetof(struct scenario, timeout_ns), (double)NS_PER_MS,
         10 * (double)MINUTE_NS, NULL, NULL},
        {"phases", KEY_OTHER, true, 0, 0, 0, NULL, decode_phases},
        {0},
    };
    return decode_map(base, keys, node, path, err);
}

static int decode_main_db(void *base, const struct tree_node *node, const char *path,
                          struct err *err)
{
    static const struct key keys[] = {
        {"row_delay", KEY_DURATION, false, offsetof(struct scenario, row_delay_ns), 0,
         (double)MINUTE_NS, NULL, NULL},
        {0},
    };
    return decode_map(base, keys, node, path, err);
}

static int decode_worker(void *base, const struct tree_node *node, const char *path,
                         struct err *err)
{
    static const struct key keys[] = {
        {"batch", KEY_INT, false, offsetof(struct scenario, batch), 1, 10000, NULL, NULL},
        {"lanes", KEY_INT, false, offsetof(struct scenario, lanes), 1, 500, NULL, NULL},
        {0},
    };
    return decode_map(base, keys, node, path, err);
}

static int decode_sla(void *base, const struct tree_node *node, const char *path, struct err *err)
{
    static const struct key keys[] = {
        {"api_p99", KEY_DURATION, false, offsetof(struct scenario, sla_api_p99_ns),
         (double)NS_PER_US, (double)HOUR_NS, NULL, NULL},
        {0},
    };
    return decode_map(base, keys, node, path, err);
}

static int decode_sink(void *base, const struct tree_node *node, const char *path, struct err *err)
{
    struct scenario *scenario = base;
    if (node->kind != TREE_MAP || node->count > SCENARIO_SINK_MAX) {
        return err_set(err, -EINVAL,
                       "%s: %s: expected settings of sinks, such as {sink-batch-max: 1}",
                       node->place, path);
    }
    for (size_t i = 0; i < node->count; i++) {
        if (node->items[i]->kind != TREE_TEXT) {
            return err_set(err, -EINVAL, "%s: %s.%s: expected a value; found %s",
                           node->items[i]->place, path, node->keys[i], kind_name(node->items[i]));
        }
        scenario->sink[scenario->sink_count++] = (struct scenario_sink_option){
            xstrdup(node->keys[i]), xstrdup(node->items[i]->text), xstrdup(node->items[i]->place)};
    }
    return 0;
}

static int decode_faults(void *base, const struct tree_node *node, const char *path,
                         struct err *err)
{
    static const struct key keys[] = {
        {"at", KEY_DURATION, true, offsetof(struct scenario_fault, at_ns), 0, 24 * (double)HOUR_NS,
         NULL, NULL},
        {"do", KEY_CHOICE, true, offsetof(struct scenario_fault, what), 0, 0, fault_do_names, NULL},
        {"who", KEY_CHOICE, true, offsetof(struct scenario_fault, who), 0, 0, fault_who_names,
         NULL},
        {"for", KEY_DURATION, true, offsetof(struct scenario_fault, for_ns),
         100 * (double)NS_PER_MS, (double)HOUR_NS, NULL, NULL},
        {0},
    };
    struct scenario *scenario = base;
    if (node->kind == TREE_TEXT && node->text[0] == '\0') {
        return 0; /* "faults:" with nothing after it: none */
    }
    if (node->kind != TREE_LIST || node->count > SCENARIO_FAULTS_MAX) {
        return err_set(err, -EINVAL,
                       "%s: %s: expected a list of at most %d faults, such as [{at: 15s, do: kill, "
                       "who: worker, for: 5s}]",
                       node->place, path, SCENARIO_FAULTS_MAX);
    }
    for (size_t i = 0; i < node->count; i++) {
        struct scenario_fault *fault = &scenario->faults[i];
        char *item_path = xasprintf("%s[%zu]", path, i);
        int rc = decode_map(fault, keys, node->items[i], item_path, err);
        free(item_path);
        if (rc < 0) {
            return rc;
        }
        fault->place = xstrdup(tree_get(node->items[i], "who")->place);
        scenario->fault_count = i + 1;
    }
    return 0;
}

/* Where each kind of housekeeping is done, whatever the sink. */
static bool background_fits(const struct scenario_background *item)
{
    switch (item->what) {
    case BACKGROUND_CHECKPOINT:
    case BACKGROUND_VACUUM:
        return item->who == BACKGROUND_MAIN_DB || item->who == BACKGROUND_SINK;
    case BACKGROUND_AOF_REWRITE:
    case BACKGROUND_RAFT_ROLLOVER:
        return item->who == BACKGROUND_SINK;
    case BACKGROUND_SEGMENT_ROTATION:
        return item->who == BACKGROUND_API;
    }
    return false;
}

static int fail_background(const struct scenario_background *item, const struct tree_node *node,
                           const char *path, struct err *err)
{
    struct buf fitting = {0};
    struct scenario_background other = *item;
    for (int i = 0; background_who_names[i]; i++) {
        other.who = (enum background_who)i;
        if (background_fits(&other)) {
            buf_printf(&fitting, "%s%s", fitting.len > 0 ? " or " : "", background_who_names[i]);
        }
    }
    int rc = err_set(err, -EINVAL, "%s: %s.who: %s has no %s: expected %s",
                     tree_get(node, "who")->place, path, background_who_names[item->who],
                     background_do_names[item->what], fitting.data);
    buf_free(&fitting);
    return rc;
}

static int decode_background(void *base, const struct tree_node *node, const char *path,
                             struct err *err)
{
    static const struct key keys[] = {
        {"at", KEY_DURATION, true, offsetof(struct scenario_background, at_ns), 0,
         24 * (double)HOUR_NS, NULL, NULL},
        {"do", KEY_CHOICE, true, offsetof(struct scenario_background, what), 0, 0,
         background_do_names, NULL},
        {"who", KEY_CHOICE, true, offsetof(struct scenario_background, who), 0, 0,
         background_who_names, NULL},
        {0},
    };
    struct scenario *scenario = base;
    if (node->kind == TREE_TEXT && node->text[0] == '\0') {
        return 0; /* "background:" with nothing after it: none */
    }
    if (node->kind != TREE_LIST || node->count > SCENARIO_BACKGROUND_MAX) {
        return err_set(err, -EINVAL,
                       "%s: %s: expected a list of at most %d items, such as [{at: 12s, do: "
                       "checkpoint, who: main-db}]",
                       node->place, path, SCENARIO_BACKGROUND_MAX);
    }
    for (size_t i = 0; i < node->count; i++) {
        struct scenario_background *item = &scenario->background[i];
        const struct tree_node *map = node->items[i];
        char *item_path = xasprintf("%s[%zu]", path, i);
        int rc = decode_map(item, keys, map, item_path, err);
        if (rc == 0 && !background_fits(item)) {
            rc = fail_background(item, map, item_path, err);
        }
        free(item_path);
        if (rc < 0) {
            return rc;
        }
        scenario->background_count = i + 1;
    }
    return 0;
}

static const struct key top_keys[] = {
    {"name", KEY_NAME, true, offsetof(struct scenario, name), 0, 0, NULL, NULL},
    {"load", KEY_OTHER, true, 0, 0, 0, NULL, decode_load},
    {"main_db", KEY_OTHER, false, 0, 0, 0, NULL, decode_main_db},
    {"worker", KEY_OTHER, false, 0, 0, 0, NULL, decode_worker},
    {"sink", KEY_OTHER, false, 0, 0, 0, NULL, decode_sink},
    {"faults", KEY_OTHER, false, 0, 0, 0, NULL, decode_faults},
    {"background", KEY_OTHER, false, 0, 0, 0, NULL, decode_background},
    {"sla", KEY_OTHER, false, 0, 0, 0, NULL, decode_sla},
    {0},
};

/* ---- what one key alone can't show ---- */

static int check_faults(const struct scenario *scenario, struct err *err)
{
    int64_t load_ns = scenario_load_ns(scenario);
    for (size_t i = 0; i < scenario->fault_count; i++) {
        const struct scenario_fault *fault = &scenario->faults[i];
        if (fault->at_ns + fault->for_ns > load_ns) {
            return err_set(err, -EINVAL,
                           "%s: faults[%zu] ends %g s after the load began, which lasts %g s: "
                           "expected the end of a fault inside the load",
                           fault->place, i, (double)(fault->at_ns + fault->for_ns) / 1e9,
                           (double)load_ns / 1e9);
        }
        for (size_t k = 0; k < i; k++) {
            const struct scenario_fault *other = &scenario->faults[k];
            if (other->who == fault->who && fault->at_ns <= other->at_ns + other->for_ns &&
                other->at_ns <= fault->at_ns + fault->for_ns) {
                return err_set(err, -EINVAL,
                               "%s: faults[%zu] befalls the %s while faults[%zu] does: expected "
                               "one after the other",
                               fault->place, i, fault_who_names[fault->who], k);
            }
        }
    }
    return 0;
}

/* Load and background may stand in the file in any order, so this comes after both. */
static int check_background(const struct scenario *scenario, const struct tree_node *root,
                            struct err *err)
{
    int64_t load_ns = scenario_load_ns(scenario);
    for (size_t i = 0; i < scenario->background_count; i++) {
        int64_t at_ns = scenario->background[i].at_ns;
        if (at_ns >= load_ns) {
            const struct tree_node *item = tree_get(root, "background")->items[i];
            return err_set(err, -EINVAL,
                           "%s: background[%zu].at is %g s after the load began, which lasts %g "
                           "s: expected a time inside the load",
                           tree_get(item, "at")->place, i, (double)at_ns / 1e9,
                           (double)load_ns / 1e9);
        }
    }
    return 0;
}

static int check_load(const struct scenario *scenario, const struct tree_node *root,
                      struct err *err)
{
    static const double tasks_max = 50e6; /* a ledger of some gigabytes */
    if (scenario_tasks(scenario) > tasks_max) {
        return err_set(err, -EINVAL,
                       "%s: load makes %.0f tasks: expected at most %.0f (rps times the length of "
                       "the phases)",
                       tree_get(root, "load")->place, scenario_tasks(scenario), tasks_max);
    }
    if (scenario_tasks(scenario) < 1) {
        return err_set(err, -EINVAL, "%s: load makes no task at all: expected a rate above 0",
                       tree_get(root, "load")->place);
    }
    return 0;
}

int scenario_parse(struct scenario *scenario, const char *text, size_t len, const char *name,
                   const char *const *overrides, size_t override_count, struct err *err)
{
    *scenario = (struct scenario){
        .file = xstrdup(name),
        .pacing = PACING_PACED,
        .connections = 100,
        .payload_bytes = 512,
        .timeout_ns = 10 * NS_PER_S,
        .row_delay_ns = 60 * NS_PER_MS,
        .batch = 200,
        .lanes = 20,
        .sla_api_p99_ns = 50 * NS_PER_MS,
    };
    struct tree_node *root;
    int rc = tree_parse(text, len, name, &root, err);
    for (size_t i = 0; rc == 0 && i < override_count; i++) {
        rc = tree_set(root, overrides[i], err);
    }
    if (rc == 0) {
        rc = decode_map(scenario, top_keys, root, "", err);
    }
    if (rc == 0) {
        rc = check_load(scenario, root, err);
    }
    if (rc == 0) {
        rc = check_faults(scenario, err);
    }
    if (rc == 0) {
        rc = check_background(scenario, root, err);
    }
    tree_free(root);
    return rc;
}

int scenario_load(struct scenario *scenario, const char *file, const char *const *overrides,
                  size_t override_count, struct err *err)
{
    struct buf text = {0};
    *scenario = (struct scenario){0};
    int rc = file_read(file, 1024 * 1024, &text, err);
    if (rc == 0) {
        rc = scenario_parse(scenario, text.data ? text.data : "", text.len, file, overrides,
                            override_count, err);
    }
    buf_free(&text);
    return rc;
}

void scenario_free(struct scenario *scenario)
{
    for (size_t i = 0; i < SCENARIO_FAULTS_MAX; i++) {
        free(scenario->faults[i].place);
    }
    for (size_t i = 0; i < scenario->sink_count; i++) {
        free(scenario->sink[i].name);
        free(scenario->sink[i].text);
        free(scenario->sink[i].place);
    }
    free(scenario->file);
    *scenario = (struct scenario){0};
}

/* ---- questions ---- */

static char *readable(char *path)
{
    if (access(path, R_OK) == 0) {
        return path;
    }
    free(path);
    return NULL;
}

char *scenario_find(const char *name)
{
    size_t len = strlen(name);
    if (strchr(name, '/') || (len > 5 && strcmp(name + len - 5, ".yaml") == 0)) {
        return readable(xstrdup(name));
    }
    char *found = readable(xasprintf("scenarios/%s.yaml", name));
    char self[4096];
    ssize_t self_len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (!found && self_len > 0) {
        self[self_len] = '\0';
        *strrchr(self, '/') = '\0';
        found = readable(xasprintf("%s/../share/sluice/scenarios/%s.yaml", self, name));
    }
    if (!found) {
        found = readable(xasprintf("%s/%s.yaml", SLUICE_SCENARIOS, name));
    }
    return found;
}

int scenario_open(struct scenario *scenario, const char *name, const char *const *overrides,
                  size_t override_count, struct err *err)
{
    char *file = scenario_find(name);
    if (!file) {
        return err_set(err, -EINVAL,
                       "%s: there is no such scenario: expected the path of a file, or "
                       "a name such as quick, article, headroom, burst, naive, background",
                       name);
    }
    struct buf joined = {0};
    const char **sets = NULL;
    size_t count = 0;
    for (size_t i = 0; i < override_count; i++) {
        buf_printf(&joined, "%s;", overrides[i]);
    }
    char *rest = joined.data;
    for (const char *one; rest && (one = strsep(&rest, ";"));) {
        one += strspn(one, " \t\n");
        if (*one) {
            sets = xrealloc(sets, (count + 1) * sizeof(*sets));
            sets[count++] = one;
        }
    }
    int rc = scenario_load(scenario, file, sets, count, err);
    free(sets);
    buf_free(&joined);
    free(file);
    return rc;
}

int64_t scenario_load_ns(const struct scenario *scenario)
{
    int64_t total_ns = 0;
    for (size_t i = 0; i < scenario->phase_count; i++) {
        total_ns += scenario->phases[i].duration_ns;
    }
    return total_ns;
}

double scenario_tasks(const struct scenario *scenario)
{
    double tasks = 0;
    for (size_t i = 0; i < scenario->phase_count; i++) {
        tasks += (double)scenario->rps * scenario->phases[i].rate *
                 (double)scenario->phases[i].duration_ns / 1e9;
    }
    return tasks;
}

int64_t scenario_drain_timeout_ns(const struct scenario *scenario)
{
    /* As if nothing were drained during the load, at half the speed that lanes and delay allow, and
     * one batch more in each lane that was just begun; a minute for what cannot be foreseen. */
    double rows = scenario_tasks(scenario);
    double row_s = (double)scenario->row_delay_ns / 1e9 + 0.0005;
    double drain_s = 2 * rows * row_s / (double)scenario->lanes;
    double batch_s = 2 * (double)scenario->batch * row_s;
    return (int64_t)((drain_s + batch_s + 60) * 1e9);
}
