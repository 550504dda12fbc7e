/* ingest_table.c: what the sink ingest keeps in its database, and what its promise rests on there.
 */
#include "sink/ingest_table.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "maindb/pg_call.h"
#include "sink/drivers.h"

#define STATEMENT_NS (15 * NS_PER_S)

enum { NAME_BYTES_MAX = 50 };

/* Narrow: the key of a queue that is read in order, and a task's three parts. No second index: ids
 * may repeat, which is settled in the main DB, and nothing that changes is indexed. Rows are never
 * updated, so pages are filled up. Bodies beyond a page's share are kept aside uncompressed: a
 * compression costs more than the bytes it saves, on the way in and out again.
 *
 * Rows live for seconds and die in the order in which they came. So vacuum must come after a number
 * of deletes, not after a share of the table, without sleeping on the way; it must not cut off the
 * table's end, for which it would lock out the inserts; and inserts alone are no reason for it. */
static const char create_sql[] =
    "CREATE TABLE IF NOT EXISTS %s ("
    "seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, "
    "id uuid NOT NULL, accepted_us bigint NOT NULL, body bytea NOT NULL); "
    "ALTER TABLE %s ALTER COLUMN body SET STORAGE EXTERNAL";
static const char *const table_settings[] = {
    "autovacuum_enabled=true",
    "autovacuum_vacuum_threshold=1000",
    "autovacuum_vacuum_scale_factor=0",
    "autovacuum_vacuum_insert_threshold=-1",
    "autovacuum_vacuum_cost_delay=0",
    "vacuum_truncate=false",
    "toast.autovacuum_vacuum_threshold=1000",
    "toast.autovacuum_vacuum_scale_factor=0",
    "toast.autovacuum_vacuum_insert_threshold=-1",
    "toast.autovacuum_vacuum_cost_delay=0",
    "toast.vacuum_truncate=false",
    NULL,
};
static const char columns_wanted[] = "seq bigint, id uuid, accepted_us bigint, body bytea";

/* One row: is this the main DB; columns of the table (NULL: absent), whether seq is made by the
 * server and indexed, kind, persistence, settings. */
static const char look_sql[] =
    "SELECT (SELECT count(*) >= 3 FROM pg_attribute WHERE attrelid IN (to_regclass('task_dead'), "
    "to_regclass('sluice.task_dead')) AND attname IN ('accepted_us', 'reason', 'sqlstate')), "
    "(SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ', ' ORDER BY attnum) "
    "FROM pg_attribute WHERE attrelid = t.oid AND attnum > 0 AND NOT attisdropped), "
    "EXISTS (SELECT FROM pg_attribute WHERE attrelid = t.oid AND attname = 'seq' "
    "AND attidentity <> '') AND EXISTS (SELECT FROM pg_index AS i JOIN pg_attribute AS a "
    "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] WHERE i.indrelid = t.oid "
    "AND i.indisunique AND i.indisvalid AND i.indnatts = 1 AND a.attname = 'seq'), "
    "c.relkind, c.relpersistence, "
    "coalesce(array_to_string(c.reloptions || ARRAY(SELECT 'toast.' || o "
    "FROM pg_class AS toast, unnest(toast.reloptions) AS o WHERE toast.oid = c.reltoastrelid), "
    "' '), '') "
    "FROM (SELECT to_regclass('%s') AS oid) AS t LEFT JOIN pg_class AS c ON c.oid = t.oid";
enum { LOOK_MAIN, LOOK_COLUMNS, LOOK_KEYED, LOOK_KIND, LOOK_PERSISTENCE, LOOK_SETTINGS };

struct session {
    const char *table;
    struct pg_target *target;
    struct pg_link link;
};

int ingest_table_name(const char **name, const struct options *options, struct err *err)
{
    *name = options_string(options, "ingest-table");
    size_t len = strlen(*name);
    if (strncmp(*name, "sluice", 6) != 0 || len > NAME_BYTES_MAX ||
        strspn(*name, "abcdefghijklmnopqrstuvwxyz0123456789_") != len) {
        return err_set(err, -EINVAL,
                       "--ingest-table=%s: expected a name that begins with sluice, of small "
                       "letters, digits and _, at most %d of them",
                       *name, NAME_BYTES_MAX);
    }
    return 0;
}

static int session_open(struct session *session, const struct options *options, const char *who,
                        struct err *err)
{
    const char *url = options_string(options, "sink-url");
    *session = (struct session){0};
    int rc = ingest_table_name(&session->table, options, err);
    if (rc == 0 && !url) {
        rc = err_set(err, -EINVAL, "the sink ingest needs --sink-url (or SLUICE_SINK_URL)");
    }
    if (rc == 0) {
        rc = pg_target_new(&session->target, url, who, err);
    }
    if (rc == 0) {
        /* The link's own deadline is the connect timeout. */
        rc = pg_call_connect(&session->link, session->target, INT64_MAX, err);
    }
    return rc;
}

static void session_close(struct session *session)
{
    pg_drop(&session->link);
    pg_target_free(session->target);
}

/* sql holds %s for the table's name, up to three times. */
static int session_run(struct session *session, const char *sql, PGresult **result, struct err *err)
{
    struct buf text = {0};
    for (const char *part = sql; *part;) {
        size_t len = strcspn(part, "%");
        buf_append(&text, part, len);
        part += len;
        if (*part) {
            buf_puts(&text, session->table);
            part += 2;
        }
    }
    int rc = pg_call_run(&session->link, text.data, clock_mono_ns() + STATEMENT_NS, result, err);
    buf_free(&text);
    return rc;
}

static const char *text_of(const PGresult *look, int column)
{
    return PQgetvalue(look, 0, column);
}

static bool is_there(const PGresult *look)
{
    return !PQgetisnull(look, 0, LOOK_COLUMNS);
}

static int check_shape(const struct session *session, const PGresult *look, struct err *err)
{
    const char *url = pg_target_name(session->target);
    if (*text_of(look, LOOK_MAIN) == 't') {
        return err_set(err, -EBUSY,
                       "%s is the main DB (it has its tables task and task_dead); the sink ingest "
                       "needs a Postgres of its own: name another with --sink-url",
                       url);
    }
    if (!is_there(look)) {
        return 0;
    }
    const char *found = text_of(look, LOOK_COLUMNS);
    bool right = *text_of(look, LOOK_KIND) == 'r' && *text_of(look, LOOK_KEYED) == 't';
    if (!right || strcmp(found, columns_wanted) != 0) {
        return err_set(err, -EEXIST,
                       "%s: %s is there already and is something else: found (%s)%s, wanted (%s), "
                       "a table with seq as identity and primary key; name another with "
                       "--ingest-table",
                       url, session->table, found, right ? "" : " without that key",
                       columns_wanted);
    }
    return 0;
}

/* Only what is missing: the statement takes a lock that vacuum holds, too. */
static int apply_settings(struct session *session, const PGresult *look, struct err *err)
{
    const char *found = is_there(look) ? text_of(look, LOOK_SETTINGS) : "";
    struct buf sql = {0};
    for (size_t i = 0; table_settings[i]; i++) {
        size_t len = strlen(table_settings[i]);
        bool set = false;
        for (const char *at = found; !set && (at = strstr(at, table_settings[i])); at++) {
            set = (at == found || at[-1] == ' ') && (at[len] == ' ' || at[len] == '\0');
        }
        if (!set) {
            buf_puts(&sql, sql.len > 0 ? ", " : "ALTER TABLE %s SET (");
            buf_puts(&sql, table_settings[i]);
        }
    }
    int rc = 0;
    if (sql.len > 0) {
        buf_putc(&sql, ')');
        rc = session_run(session, sql.data, NULL, err);
    }
    buf_free(&sql);
    return rc;
}

int ingest_table_setup(const struct options *options, struct err *err)
{
    struct session session;
    PGresult *look = NULL;
    int rc = session_open(&session, options, "sluice setup", err);
    if (rc == 0) {
        /* API, worker and runner may come at the same time. */
        rc = session_run(&session, "SELECT pg_advisory_lock(20260105, 2)", NULL, err);
    }
    if (rc == 0) {
        rc = session_run(&session, look_sql, &look, err);
    }
    if (rc == 0) {
        rc = check_shape(&session, look, err);
    }
    if (rc == 0 && !is_there(look)) {
        rc = session_run(&session, create_sql, NULL, err);
    }
    if (rc == 0) {
        rc = apply_settings(&session, look, err);
    }
    PQclear(look);
    session_close(&session);
    return rc;
}

static int judge_settings(const struct session *session, const PGresult *settings, struct err *err)
{
    const char *url = pg_target_name(session->target);
    for (int i = 0; i < PQntuples(settings); i++) {
        const char *name = PQgetvalue(settings, i, 0);
        const char *found = PQgetvalue(settings, i, 1);
        if (PQgetisnull(settings, i, 1)) {
            return err_set(err, -ENODATA, "%s: its setting %s cannot be read", url, name);
        }
        bool applied =
            strcmp(name, "synchronous_commit") == 0 && strcmp(found, "remote_apply") == 0;
        if (strcmp(found, "on") != 0 && !applied) {
            return err_set(err, -EPERM,
                           "%s: %s is %s, wanted on: what was acknowledged could be lost", url,
                           name, found);
        }
    }
    return 0;
}

int ingest_table_preflight(const struct options *options, struct err *err)
{
    /* synchronous_commit as the API's sessions have it: this one was set up alike (pg.c). */
    static const char settings_sql[] =
        "SELECT name, current_setting(name, true) "
        "FROM unnest(ARRAY['fsync', 'full_page_writes', 'synchronous_commit']) AS s (name)";
    struct session session;
    PGresult *look = NULL;
    PGresult *settings = NULL;
    int rc = session_open(&session, options, "sluice preflight", err);
    if (rc == 0) {
        rc = session_run(&session, look_sql, &look, err);
    }
    if (rc == 0) {
        rc = check_shape(&session, look, err);
    }
    if (rc == 0 && !is_there(look)) {
        rc = err_set(err, -ENOENT, "%s: there is no table %s: run the set-up first",
                     pg_target_name(session.target), session.table);
    }
    if (rc == 0 && *text_of(look, LOOK_PERSISTENCE) != 'p') {
        rc = err_set(err, -EPERM, "%s: table %s is unlogged, wanted logged: a crash empties it",
                     pg_target_name(session.target), session.table);
    }
    if (rc == 0) {
        rc = session_run(&session, settings_sql, &settings, err);
    }
    if (rc == 0) {
        rc = judge_settings(&session, settings, err);
    }
    PQclear(look);
    PQclear(settings);
    session_close(&session);
    return rc;
}

int ingest_table_remove(const struct options *options, struct err *err)
{
    struct session session;
    PGresult *look = NULL;
    int rc = session_open(&session, options, "sluice clean", err);
    if (rc == 0) {
        rc = session_run(&session, look_sql, &look, err);
    }
    if (rc == 0 && is_there(look)) {
        rc = check_shape(&session, look, err); /* what is not ours is left alone */
    }
    if (rc == 0) {
        rc = session_run(&session, "DROP TABLE IF EXISTS %s", NULL, err);
    }
    PQclear(look);
    session_close(&session);
    return rc;
}

/* ---- against a second run ---- */

/* Got it? And the backend that has it, 0: unknown. */
static const char hold_sql[] =
    "SELECT pg_try_advisory_lock(20260106, hashtext('%s')), coalesce((SELECT pid FROM pg_locks "
    "WHERE locktype = 'advisory' AND granted AND classid = 20260106 "
    "AND objid::bigint = hashtext('%s')::bigint & 4294967295 AND objsubid = 2 AND database = "
    "(SELECT oid FROM pg_database WHERE datname = current_database()) LIMIT 1), 0)";

struct table_hold {
    struct sink_hold base;
    struct session session;
    int backend; /* of the session that took it */
};

/* -EAGAIN: its last holder is this one, in a session that the server has not ended yet. */
static int take_hold(struct table_hold *hold, struct err *err)
{
    struct session *session = &hold->session;
    PGresult *result = NULL;
    int rc = session_run(session, hold_sql, &result, err);
    if (rc == 0 && *text_of(result, 0) == 't') {
        hold->backend = PQbackendPID(session->link.conn);
    } else if (rc == 0) {
        bool own = hold->backend > 0 && strtol(text_of(result, 1), NULL, 10) == hold->backend;
        rc = err_set(err, own ? -EAGAIN : -EBUSY,
                     "%s: another sluice is at work with the table %s: wait for its end, or name "
                     "another table with --ingest-table",
                     pg_target_name(session->target), session->table);
        pg_drop(&session->link);
    }
    PQclear(result);
    return rc;
}

int ingest_table_hold(struct sink_hold **out, const struct options *options, struct err *err)
{
    struct table_hold *hold = xcalloc(1, sizeof(*hold));
    hold->base.driver = &sink_ingest;
    *out = NULL;
    int rc = session_open(&hold->session, options, "sluice hold", err);
    if (rc == 0) {
        rc = take_hold(hold, err);
    }
    if (rc < 0) {
        ingest_table_hold_end(&hold->base);
        return rc;
    }
    *out = &hold->base;
    return 0;
}

int ingest_table_hold_keep(struct sink_hold *base, struct err *err)
{
    struct table_hold *hold = (struct table_hold *)base;
    struct session *session = &hold->session;
    if (session->link.state == PG_READY &&
        session_run(session, "SELECT", NULL, NULL) == 0) { /* answered by the session that has it */
        return 0;
    }
    int rc = pg_call_connect(&session->link, session->target, clock_mono_ns() + STATEMENT_NS, err);
    return rc == 0 ? take_hold(hold, err) : rc;
}

void ingest_table_hold_end(struct sink_hold *base)
{
    struct table_hold *hold = (struct table_hold *)base;
    session_close(&hold->session);
    free(hold);
}

int ingest_table_version(const struct options *options, char *out, size_t out_bytes,
                         struct err *err)
{
    struct session session;
    int rc = session_open(&session, options, "sluice setup", err);
    if (rc == 0) {
        const char *found = PQparameterStatus(session.link.conn, "server_version");
        found = found ? found : "of unknown version";
        snprintf(out, out_bytes, "PostgreSQL %.*s", (int)strcspn(found, " "), found);
    }
    session_close(&session);
    return rc;
}
