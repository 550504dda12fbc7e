/* The two servers of a run: what the sink is told about its own, what the preflight says, what the
 * manifest says. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "given.h"
#include "maindb/maindb.h"
#include "run.h"
#include "state.h"

/* ---- settings of the sink ---- */

/* A folder of its own for each that the driver must have: a sink without a server needs no more. */
static int set_folders(struct one_run *run, struct err *err)
{
    const struct account ourselves = {0};
    int rc = 0;
    for (const struct option_spec *spec = run->request->driver->options;
         rc == 0 && spec && spec->name; spec++) {
        if (spec->type != OPTION_STRING || !spec->required || !spec->unit ||
            strcmp(spec->unit, "DIR") != 0 || options_is_set(run->sink_options, spec->name)) {
            continue;
        }
        char *path;
        rc = state_subdir(run->state_dir, spec->name, &ourselves, &path, err);
        if (rc == 0) {
            rc = options_set(run->sink_options, spec->name, path, "runner", err);
        }
        free(path);
    }
    return rc;
}

static int set_own(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    int rc = options_set(run->sink_options, "sink", driver->name, "runner", err);
    if (rc == 0 && settings_find(driver->options, "main-url")) {
        rc = options_set(run->sink_options, "main-url", run->main_url, "runner", err);
    }
    if (rc == 0 && run->sink_url) {
        rc = options_set(run->sink_options, "sink-url", run->sink_url, "runner", err);
    }
    return rc == 0 ? set_folders(run, err) : rc;
}

static void add_lines(const struct options *options, const struct option_spec *table,
                      struct buf *lines)
{
    for (; table && table->name; table++) {
        if (table->type != OPTION_URL && options_is_set(options, table->name)) {
            buf_printf(lines, "%s=%s\n", table->name, options_text(options, table->name));
        }
    }
}

int servers_set_sink_options(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    const struct scenario *scenario = request->scenario;
    int rc = 0;
    if (request->sink_options) {
        run->sink_options = request->sink_options;
    } else {
        run->sink_options = options_new("sluice", "");
        sink_add_options(run->sink_options);
    }
    for (size_t i = 0; rc == 0 && i < scenario->sink_count; i++) {
        rc = options_set(run->sink_options, scenario->sink[i].name, scenario->sink[i].text,
                         scenario->sink[i].place, err);
    }
    if (rc == 0 && !request->sink_options) {
        rc = set_own(run, err);
    }
    const struct sink_driver *selected;
    if (rc == 0) {
        rc = sink_select(run->sink_options, &selected, err);
    }
    if (rc == 0) {
        add_lines(run->sink_options, sink_common_options, &run->sink_lines);
        add_lines(run->sink_options, request->driver->options, &run->sink_lines);
    }
    return rc;
}

/* ---- preflight ---- */

/* What a preflight said: 0 to go on. */
static int judge_preflight(struct one_run *run, const char *who, int rc, const struct err *found,
                           struct err *err)
{
    if (rc == 0) {
        return 0;
    }
    char *text = xasprintf("%s: %s", who, found->text);
    if (rc == -ENODATA) {
        run_say(run, "unverified: %s", text);
        json_item(&run->unverified, text);
        rc = 0;
    } else if (rc == -EPERM && run->request->allow_unsafe) {
        run_say(run, "UNSAFE, and allowed by --allow-unsafe: %s", text);
        json_item(&run->unsafe, text);
        rc = 0;
    } else {
        rc = err_set(err, rc, "%s%s", text,
                     rc == -EPERM ? " (--allow-unsafe runs it anyway, and every report says so)"
                                  : "");
    }
    free(text);
    return rc;
}

int servers_describe(struct one_run *run, enum part_id id, const char *version, struct err *err)
{
    struct server *server = &run->parts[id].server;
    struct buf settings = {0};
    int rc = server->kind->settings(server, &settings, err);
    if (rc == 0) {
        buf_printf(&run->servers, "%s\n  {\"role\": \"%s\", \"name\": \"%s\", \"version\": ",
                   run->servers.len > 0 ? "," : "", server->who, server->kind->name);
        buf_json_string(&run->servers, version, strlen(version));
        buf_printf(&run->servers, ", \"replicas\": %d, \"settings\": %s}", server->replicas,
                   settings.data);
    }
    buf_free(&settings);
    return rc;
}

int servers_check_main(struct one_run *run, struct err *err)
{
    struct err found = {0};
    int rc = maindb_preflight(run->main_url, run->main_version, sizeof(run->main_version), &found);
    return judge_preflight(run, "main-db", rc, &found, err);
}

int servers_check_sink(struct one_run *run, struct err *err)
{
    const struct sink_driver *driver = run->request->driver;
    struct err found = {0};
    int rc = driver->preflight(run->sink_options, &found);
    rc = judge_preflight(run, driver->name, rc, &found, err);
    if (rc == 0 && run->request->sink_url) {
        found = (struct err){0};
        rc = judge_preflight(run, driver->name, given_check_sink(run, &found), &found, err);
    }
    return rc;
}

void sink_read_version(const struct one_run *run, char version[96])
{
    const struct sink_driver *driver = run->request->driver;
    version[0] = '\0';
    if (driver->server_version) {
        driver->server_version(run->sink_options, version, 96, NULL);
    }
}

/* ---- starting ---- */

int servers_start_main(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    int rc;
    if (request->main_url) {
        rc = given_start_main(run, err);
    } else {
        rc = part_start_server(run, PART_MAIN_DB, &server_postgres, err);
        run->main_url = run->parts[PART_MAIN_DB].server.url;
    }
    if (rc == 0) {
        rc = maindb_setup(run->main_url, request->scenario->row_delay_ns, err);
    }
    if (rc == 0) {
        rc = servers_check_main(run, err);
    }
    if (rc == 0 && request->main_url) {
        given_describe(run, "main-db", "postgres", run->main_version, request->main_url);
    } else if (rc == 0) {
        rc = servers_describe(run, PART_MAIN_DB, run->main_version, err);
    }
    return rc;
}

int servers_start_sink(struct one_run *run, struct err *err)
{
    const struct run_request *request = run->request;
    const struct sink_driver *driver = request->driver;
    const struct server_kind *kind = server_for_sink(driver->name);
    int rc = 0;
    run->sink_url = request->sink_url;
    if (!request->sink_url && kind) {
        rc = part_start_server(run, PART_SINK, kind, err);
        run->sink_url = run->parts[PART_SINK].server.url;
    }
    if (rc == 0) {
        rc = servers_set_sink_options(run, err);
    }
    if (rc == 0 && request->sink_url) {
        rc = given_hold_sink(run, err);
    }
    if (rc == 0 && (rc = driver->setup(run->sink_options, err)) < 0) {
        err_prefix(err, "sink %s", driver->name);
    }
    if (rc == 0) {
        rc = servers_check_sink(run, err);
    }
    if (rc == 0 && request->sink_url) {
        char version[96];
        sink_read_version(run, version);
        given_describe(run, "sink", kind ? kind->name : driver->name, version, run->sink_url);
    } else if (rc == 0 && kind) {
        rc = servers_describe(run, PART_SINK, run->parts[PART_SINK].server.version, err);
    }
    return rc;
}

int servers_settle(struct one_run *run, struct err *err)
{
    static const enum part_id ids[] = {PART_MAIN_DB, PART_SINK};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        struct server *server = &run->parts[ids[i]].server;
        if (server->kind && server->kind->settle) {
            rc = server->kind->settle(server, err);
        }
    }
    return rc;
}
