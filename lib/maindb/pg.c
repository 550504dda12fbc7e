/* pg.c: connecting, the session's settings, and texts without passwords. */
#include "maindb/pg.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/options.h"
#include "maindb/maindb.h"

enum { CONNECT_S = 5, MESSAGE_BYTES = 1024, SECRET_MIN_BYTES = 4 };

struct pg_target {
    const char **keywords; /* NULL-terminated, with values: as PQconnectStartParams takes them */
    const char **values;
    size_t count;
    char **secrets; /* NULL-terminated: what no text may show */
    size_t secret_count;
    PQconninfoOption *parsed; /* owns the strings above */
    char *application_name;
    char *name;
    int64_t connect_ns;
};

/* A setting the server does not know (an old one has no connection check) is left out instead of
 * failing the session. remote_apply promises more than on, so it stays. The statement timeout is
 * behind the client's own deadline: it is for a server that lost its client without noticing. */
static const char session_sql[] =
    "SELECT set_config(s.name, w.value, false) FROM (VALUES "
    "('synchronous_commit', 'on'), "
    "('client_connection_check_interval', '500ms'), "
    "('idle_in_transaction_session_timeout', '60s'), "
    "('statement_timeout', '3660s'), "
    "('client_min_messages', 'warning')) AS w (name, value) JOIN pg_settings AS s USING (name) "
    "WHERE NOT (s.name = 'synchronous_commit' AND s.setting = 'remote_apply')";

static const struct {
    const char *keyword;
    const char *value;
} network_defaults[] = {
    {"connect_timeout", "5"},     {"keepalives", "1"},       {"keepalives_idle", "10"},
    {"keepalives_interval", "5"}, {"keepalives_count", "3"}, {"tcp_user_timeout", "15000"},
};

static void add_parameter(struct pg_target *target, const char *keyword, const char *value)
{
    target->keywords[target->count] = keyword;
    target->values[target->count] = value;
    target->count++;
}

static const char *parsed_value(const struct pg_target *target, const char *keyword)
{
    for (const PQconninfoOption *option = target->parsed; option->keyword; option++) {
        if (strcmp(option->keyword, keyword) == 0) {
            return option->val;
        }
    }
    return NULL;
}

/* libpq looks at the port only when it connects, where a typing error would pass for a server that
 * is away. One for each host, or one for all; "" is the default. */
static bool ports_are_valid(const char *ports)
{
    while (ports) {
        size_t digits = strspn(ports, "0123456789");
        long port = digits > 0 && digits <= 5 ? strtol(ports, NULL, 10) : 0;
        bool valid = digits == 0 || (port >= 1 && port <= 65535);
        if (!valid || (ports[digits] != '\0' && ports[digits] != ',')) {
            return false;
        }
        ports = ports[digits] == ',' ? ports + digits + 1 : NULL;
    }
    return true;
}

static int refuse_url(struct pg_target *target, const char *why, struct err *err)
{
    int rc = err_set(err, -EINVAL,
                     "%s is not a Postgres URL (%s); wanted: postgresql://user@host:port/database",
                     target->name, why);
    pg_target_free(target);
    return rc;
}

int pg_target_new(struct pg_target **out, const char *url, const char *application_name,
                  struct err *err)
{
    *out = NULL;
    struct pg_target *target = xcalloc(1, sizeof(*target));
    size_t name_bytes = strlen(url) + 8;
    target->name = xmalloc(name_bytes);
    url_redact(url, target->name, name_bytes);

    char *text = NULL;
    target->parsed = PQconninfoParse(url, &text);
    if (!target->parsed) {
        /* libpq quotes the part it does not like; it may be the password. */
        bool has_secret = strcmp(url, target->name) != 0;
        if (text) {
            text[strcspn(text, "\n")] = '\0';
        }
        int rc = refuse_url(target, text && !has_secret ? text : "libpq cannot read it", err);
        PQfreemem(text);
        return rc;
    }
    if (!ports_are_valid(parsed_value(target, "port"))) {
        return refuse_url(target, "its port is not a number from 1 to 65535", err);
    }

    size_t options = 0;
    for (const PQconninfoOption *option = target->parsed; option->keyword; option++) {
        options++;
    }
    size_t room = options + sizeof(network_defaults) / sizeof(network_defaults[0]) + 4;
    target->keywords = xcalloc(room, sizeof(*target->keywords));
    target->values = xcalloc(room, sizeof(*target->values));
    target->secrets = xcalloc(options + 1, sizeof(*target->secrets));
    for (const PQconninfoOption *option = target->parsed; option->keyword; option++) {
        if (!option->val) {
            continue;
        }
        add_parameter(target, option->keyword, option->val);
        if (strchr(option->dispchar, '*') && option->val[0] != '\0') {
            target->secrets[target->secret_count++] = option->val;
        }
    }
    for (size_t i = 0; i < sizeof(network_defaults) / sizeof(network_defaults[0]); i++) {
        if (!parsed_value(target, network_defaults[i].keyword)) {
            add_parameter(target, network_defaults[i].keyword, network_defaults[i].value);
        }
    }
    target->application_name = xstrdup(application_name);
    if (!parsed_value(target, "application_name")) {
        add_parameter(target, "fallback_application_name", target->application_name);
    }
    if (!parsed_value(target, "client_encoding")) {
        add_parameter(target, "client_encoding", "UTF8");
    }

    const char *timeout = parsed_value(target, "connect_timeout");
    long seconds = timeout ? strtol(timeout, NULL, 10) : CONNECT_S;
    target->connect_ns = (seconds > 0 && seconds < 600 ? seconds : CONNECT_S) * NS_PER_S;
    *out = target;
    return 0;
}

void pg_target_free(struct pg_target *target)
{
    if (!target) {
        return;
    }
    free(target->keywords);
    free(target->values);
    free(target->secrets);
    PQconninfoFree(target->parsed);
    free(target->application_name);
    free(target->name);
    free(target);
}

const char *pg_target_name(const struct pg_target *target)
{
    return target->name;
}

const char *pg_sqlstate(const PGresult *result)
{
    const char *sqlstate = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    return sqlstate ? sqlstate : "";
}

int pg_ends_session(const PGresult *result)
{
    const char *severity = PQresultErrorField(result, PG_DIAG_SEVERITY_NONLOCALIZED);
    return severity && (strcmp(severity, "FATAL") == 0 || strcmp(severity, "PANIC") == 0);
}

/* Only as a word of its own: of a short one, or of a part of a word, nobody learns that it is the
 * password, unless stars say so. Returns its length, or 0. */
static size_t secret_at(const struct pg_target *target, const char *begin, const char *text)
{
    if (text > begin && isalnum((unsigned char)text[-1])) {
        return 0;
    }
    for (size_t i = 0; i < target->secret_count; i++) {
        size_t len = strlen(target->secrets[i]);
        if (len >= SECRET_MIN_BYTES && strncmp(text, target->secrets[i], len) == 0 &&
            !isalnum((unsigned char)text[len])) {
            return len;
        }
    }
    return 0;
}

/* Appends text as one line, a secret in it as ***. */
static void append_redacted(struct buf *out, const struct pg_target *target, const char *text)
{
    const char *begin = text;
    while (*text) {
        size_t secret_bytes = secret_at(target, begin, text);
        if (secret_bytes > 0) {
            buf_puts(out, "***");
            text += secret_bytes;
        } else if (isspace((unsigned char)*text)) {
            text += strspn(text, " \t\r\n\v\f");
            if (*text) {
                buf_putc(out, ' ');
            }
        } else {
            buf_putc(out, *text++);
        }
    }
}

char *pg_message(const struct pg_link *link, const PGresult *result, char *out, size_t out_bytes)
{
    struct buf text = {0};
    const char *primary = result ? PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY) : NULL;
    if (primary) {
        append_redacted(&text, link->target, primary);
        buf_printf(&text, " (%s)", pg_sqlstate(result));
    } else {
        const char *bare = result ? PQresultErrorMessage(result) : "";
        if (!*bare && link->conn) {
            bare = PQerrorMessage(link->conn);
        }
        /* While connecting errors are verbose; where in the server's source they arose is no news.
         */
        const char *end = strstr(bare, "\nLOCATION:");
        char *copy = xstrdup(*bare ? bare : "the connection was lost");
        if (end) {
            copy[end - bare] = '\0';
        }
        append_redacted(&text, link->target, copy);
        free(copy);
    }
    snprintf(out, out_bytes, "%s", text.data ? text.data : "");
    buf_free(&text);
    return out;
}

/* libpq keeps no SQLSTATE of a refused connection, but says it in verbose messages, whatever their
 * language: "FATAL:  28P01: ...". */
static enum maindb_verdict judge_refusal(const char *message)
{
    for (const char *at = strchr(message, ':'); at; at = strchr(at + 1, ':')) {
        const char *code = at + 1 + strspn(at + 1, " ");
        size_t len = strspn(code, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ");
        bool has_digit = strcspn(code, "0123456789") < 5; /* unlike "FATAL:" */
        if (code > at + 1 && len == 5 && code[5] == ':' && has_digit) {
            char sqlstate[6] = {0};
            memcpy(sqlstate, code, 5);
            return maindb_judge(sqlstate);
        }
    }
    return MAINDB_TRANSIENT;
}

static void ignore_notice(void *arg, const char *message)
{
    (void)arg;
    (void)message;
}

static int fail(struct pg_link *link, int code, const PGresult *result, struct err *err)
{
    char message[MESSAGE_BYTES];
    pg_message(link, result, message, sizeof(message));
    err_set(err, code, "%s: %s", link->target->name, message);
    pg_drop(link);
    return code;
}

int pg_start(struct pg_link *link, const struct pg_target *target, struct err *err)
{
    pg_drop(link);
    link->target = target;
    link->conn = PQconnectStartParams(target->keywords, target->values, 0);
    if (!link->conn) {
        return err_set(err, -EAGAIN, "%s: out of memory", target->name);
    }
    if (PQstatus(link->conn) == CONNECTION_BAD) {
        return fail(link, -EAGAIN, NULL, err);
    }
    PQsetNoticeProcessor(link->conn, ignore_notice, NULL);
    PQsetErrorVerbosity(link->conn, PQERRORS_VERBOSE);
    link->state = PG_CONNECTING;
    link->wants = POLLOUT;
    link->deadline_ns = clock_mono_ns() + target->connect_ns;
    return 0;
}

static int step_connecting(struct pg_link *link, struct err *err)
{
    switch (PQconnectPoll(link->conn)) {
    case PGRES_POLLING_READING:
        link->wants = POLLIN;
        return 0;
    case PGRES_POLLING_WRITING:
        link->wants = POLLOUT;
        return 0;
    case PGRES_POLLING_OK:
        break;
    default: {
        const char *message = PQerrorMessage(link->conn);
        bool fatal = judge_refusal(message) == MAINDB_FATAL;
        bool foreign = strstr(message, "invalid response to") || strstr(message, "but received");
        int rc = fail(link, fatal ? -EPERM : -EAGAIN, NULL, err);
        return foreign ? err_set(err, rc, "%s: is it a Postgres?", err ? err->text : "") : rc;
    }
    }
    PQsetErrorVerbosity(link->conn, PQERRORS_DEFAULT);
    if (PQsetnonblocking(link->conn, 1) != 0 || PQsendQuery(link->conn, session_sql) != 1) {
        return fail(link, -EAGAIN, NULL, err);
    }
    link->state = PG_SETTING;
    link->wants = POLLIN | POLLOUT;
    return 0;
}

static int step_setting(struct pg_link *link, struct err *err)
{
    int unsent = PQflush(link->conn);
    if (unsent < 0 || PQconsumeInput(link->conn) != 1) {
        return fail(link, -EAGAIN, NULL, err);
    }
    link->wants = (short)(POLLIN | (unsent ? POLLOUT : 0));
    while (!PQisBusy(link->conn)) {
        PGresult *result = PQgetResult(link->conn);
        if (!result) {
            link->state = PG_READY;
            return 1;
        }
        if (PQresultStatus(result) != PGRES_TUPLES_OK) {
            bool fatal = maindb_judge(pg_sqlstate(result)) != MAINDB_TRANSIENT;
            int rc = fail(link, fatal ? -EPERM : -EAGAIN, result, err);
            PQclear(result);
            return rc;
        }
        PQclear(result);
    }
    return 0;
}

int pg_step(struct pg_link *link, struct err *err)
{
    int rc = -EAGAIN;
    switch (link->state) {
    case PG_DOWN:
        return err_set(err, -EAGAIN, "not connected");
    case PG_READY:
        return 1;
    case PG_CONNECTING:
        rc = step_connecting(link, err);
        break;
    case PG_SETTING:
        rc = step_setting(link, err);
        break;
    }
    if (rc == 0 && clock_mono_ns() >= link->deadline_ns) {
        rc = err_set(err, -EAGAIN, "%s: no connection within %lld s: does a Postgres listen there?",
                     link->target->name, (long long)(link->target->connect_ns / NS_PER_S));
        pg_drop(link);
    }
    return rc;
}

void pg_drop(struct pg_link *link)
{
    if (link->conn) {
        PQfinish(link->conn);
        link->conn = NULL;
    }
    link->state = PG_DOWN;
    link->wants = 0;
}
