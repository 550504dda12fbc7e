#include "given.h"

#include <errno.h>
#include <libpq-fe.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/pg_call.h"

#define STATEMENT_NS (15 * NS_PER_S)
#define BACKLOG_NS   (10 * NS_PER_S)

struct given_main {
    char *url;
    struct pg_target *target;
    struct pg_link link; /* its session holds a lock */
};

static const char lock_sql[] = "SELECT pg_try_advisory_lock(20260105, 3)";
static const char look_sql[] = "SELECT coalesce(obj_description(oid, 'pg_namespace'), '') "
                               "LIKE 'made by sluice%' FROM pg_namespace WHERE nspname = 'sluice'";
static const char make_sql[] = "CREATE SCHEMA sluice; COMMENT ON SCHEMA sluice IS "
                               "'made by sluice run --main-url; sluice clean --main-url drops it'";
static const char settings_sql[] = "SELECT name, current_setting(name) FROM unnest(ARRAY['fsync', "
                                   "'full_page_writes']) AS s (name) "
                                   "WHERE current_setting(name) <> 'on'";
static const char empty_sql[] =
    "DO $$BEGIN IF to_regclass('sluice.task') IS NOT NULL AND to_regclass('sluice.task_dead') IS "
    "NOT NULL THEN TRUNCATE sluice.task, sluice.task_dead; END IF; END$$";

static void add_parameter(struct buf *out, const char *keyword, const char *value, const char *more)
{
    buf_printf(out, "%s%s='", out->len > 0 ? " " : "", keyword);
    for (const char *at = value; *at; at++) {
        buf_printf(out, *at == '\'' || *at == '\\' ? "\\%c" : "%c", *at);
    }
    buf_printf(out, "%s'", more);
}

/* As a keyword string, with the schema first in every session's search path. The URL can be read.
 */
static char *url_with_schema(const char *url)
{
    static const char path[] = "-csearch_path=sluice";
    struct buf out = {0};
    bool has_options = false;
    PQconninfoOption *parsed = PQconninfoParse(url, NULL);
    for (const PQconninfoOption *option = parsed; option && option->keyword; option++) {
        if (!option->val) {
            continue;
        }
        if (strcmp(option->keyword, "options") == 0) {
            has_options = true;
            add_parameter(&out, option->keyword, option->val, " -csearch_path=sluice");
        } else {
            add_parameter(&out, option->keyword, option->val, "");
        }
    }
    PQconninfoFree(parsed);
    if (!has_options) {
        add_parameter(&out, "options", path, "");
    }
    return out.data;
}

static int ask(struct given_main *main, const char *sql, PGresult **result, struct err *err)
{
    return pg_call_run(&main->link, sql, clock_mono_ns() + STATEMENT_NS, result, err);
}

/* Connects and takes the lock. */
static int open_locked(struct given_main *main, const char *url, struct err *err)
{
    PGresult *locked = NULL;
    int rc = pg_target_new(&main->target, url, "sluice", err);
    if (rc == 0) {
        rc = pg_call_connect(&main->link, main->target, INT64_MAX, err);
    }
    if (rc == 0) {
        rc = ask(main, lock_sql, &locked, err);
    }
    if (rc == 0 && *PQgetvalue(locked, 0, 0) != 't') {
        rc = err_set(err, -EBUSY, "%s: another sluice is at work in this database",
                     pg_target_name(main->target));
    }
    PQclear(locked);
    return rc < 0 ? err_prefix(err, "main DB") : 0;
}

/* Is the schema there, and ours? 1, 0; -EEXIST: it is somebody else's. */
static int look(struct given_main *main, struct err *err)
{
    PGresult *found = NULL;
    int rc = ask(main, look_sql, &found, err);
    if (rc == 0) {
        rc = PQntuples(found);
        if (rc == 1 && *PQgetvalue(found, 0, 0) != 't') {
            rc = err_set(err, -EEXIST,
                         "main DB %s: the schema sluice is there already and was not made by "
                         "sluice: name another database with --main-url",
                         pg_target_name(main->target));
        }
    }
    PQclear(found);
    return rc;
}

int given_main_open(struct given_main **out, const char *url, struct err *err)
{
    struct given_main *main = xcalloc(1, sizeof(*main));
    *out = NULL;
    int rc = open_locked(main, url, err);
    if (rc == 0) {
        rc = look(main, err);
    }
    if (rc >= 0) {
        rc = ask(main, rc == 0 ? make_sql : empty_sql, NULL, err);
    }
    if (rc < 0) {
        given_main_close(main);
        return rc;
    }
    main->url = url_with_schema(url);
    *out = main;
    return 0;
}

const char *given_main_url(const struct given_main *main)
{
    return main->url;
}

void given_main_close(struct given_main *main)
{
    if (!main) {
        return;
    }
    pg_drop(&main->link);
    pg_target_free(main->target);
    if (main->url) {
        explicit_bzero(main->url, strlen(main->url));
    }
    free(main->url);
    free(main);
}

/* As the preflight will find them: said before anything is started. */
static int check_settings(struct given_main *main, struct err *err)
{
    PGresult *wrong = NULL;
    int rc = ask(main, settings_sql, &wrong, err);
    if (rc == 0 && PQntuples(wrong) > 0) {
        rc =
            err_set(err, -EPERM, "main DB %s: %s is %s, wanted on: a commit would not be durable",
                    pg_target_name(main->target), PQgetvalue(wrong, 0, 0), PQgetvalue(wrong, 0, 1));
    }
    PQclear(wrong);
    return rc;
}

int given_main_try(const char *url, struct err *err)
{
    struct given_main *main = xcalloc(1, sizeof(*main));
    int rc = open_locked(main, url, err);
    if (rc == 0) {
        rc = look(main, err);
    }
    if (rc >= 0) {
        rc = check_settings(main, err);
    }
    given_main_close(main);
    return rc;
}

int given_main_remove(const char *url, struct err *err)
{
    struct given_main *main = xcalloc(1, sizeof(*main));
    int rc = open_locked(main, url, err);
    if (rc == 0) {
        rc = look(main, err);
    }
    if (rc == 1) {
        rc = ask(main, "DROP SCHEMA sluice CASCADE", NULL, err);
        rc = rc == 0 ? 1 : rc;
    }
    given_main_close(main);
    return rc;
}

/* Every server was made with a number of its own. */
static int read_identity(const char *url, char out[32], struct err *err)
{
    struct pg_target *target = NULL;
    struct pg_link link = {0};
    PGresult *result = NULL;
    int rc = pg_target_new(&target, url, "sluice", err);
    if (rc == 0) {
        rc = pg_call_connect(&link, target, INT64_MAX, err);
    }
    if (rc == 0) {
        rc = pg_call_run(&link, "SELECT system_identifier FROM pg_control_system()",
                         clock_mono_ns() + STATEMENT_NS, &result, err);
    }
    if (rc == 0) {
        snprintf(out, 32, "%s", PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    pg_drop(&link);
    pg_target_free(target);
    return rc;
}

int given_same_server(const char *url, const char *other_url, struct err *err)
{
    char one[32], other[32];
    int rc = read_identity(url, one, err);
    if (rc == 0) {
        rc = read_identity(other_url, other, err);
    }
    return rc < 0 ? rc : strcmp(one, other) == 0;
}

/* ---- what waits in a sink ---- */

int given_count_tasks(const struct sink_driver *driver, const struct options *options,
                      int64_t *tasks, struct err *err)
{
    struct sink_backlog backlog = {.tasks = -1};
    struct sink *probe;
    int rc = driver->open(&probe, SINK_PROBE, options, err);
    if (rc < 0) {
        return rc;
    }
    int64_t until_ns = clock_mono_ns() + BACKLOG_NS;
    do {
        rc = driver->backlog(probe, &backlog);
        clock_sleep_ns(50 * NS_PER_MS);
    } while ((rc < 0 || backlog.tasks < 0) && clock_mono_ns() < until_ns);
    driver->close(probe, clock_mono_ns() + NS_PER_S);
    if (rc < 0 || backlog.tasks < 0) {
        return err_set(err, -ENOMSG, "it does not tell how many tasks it holds already");
    }
    *tasks = backlog.tasks;
    return 0;
}
