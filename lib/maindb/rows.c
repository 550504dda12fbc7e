/* rows.c: statements and binary parameters. Array format: PostgreSQL's array_recv,
 * utils/adt/arrayfuncs.c: dimensions, has-null flag, element type, length, lower bound, then length
 * and bytes of each element. */
#include "maindb/rows.h"

#include <assert.h>
#include <endian.h>
#include <stdio.h>
#include <string.h>

enum { OID_BYTEA = 17, OID_INT8 = 20, OID_TEXT = 25, OID_UUID = 2950 };
enum {
    OID_BYTEA_ARRAY = 1001,
    OID_TEXT_ARRAY = 1009,
    OID_INT8_ARRAY = 1016,
    OID_UUID_ARRAY = 2951
};
enum { ARRAY_HEADER_BYTES = 20 };

const char rows_insert_sql[] =
    "INSERT INTO task (id, accepted_us, body) "
    "SELECT n.id, n.accepted_us, n.body "
    "FROM unnest($1::uuid[], $2::bigint[], $3::bytea[]) AS n (id, accepted_us, body) "
    "WHERE NOT EXISTS (SELECT FROM task AS t WHERE t.id = n.id) "
    "AND NOT EXISTS (SELECT FROM task_dead AS d WHERE d.id = n.id AND d.body = n.body) "
    "ORDER BY n.id "
    "ON CONFLICT (id) DO NOTHING "
    "RETURNING id";

/* dead's rows are not visible to the rest of the statement, so before and now add up. Nothing goes
 * to task_dead that task holds with the same body: each task is in one place. */
const char rows_settle_sql[] =
    "WITH n AS (SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::text[], "
    "$5::text[]) "
    "AS u (id, accepted_us, body, sqlstate, detail)), "
    "judged AS (SELECT n.*, t.id IS NOT NULL AS there, coalesce(t.body = n.body, false) AS same, "
    "EXISTS (SELECT FROM task_dead AS d WHERE d.id = n.id AND d.body = n.body) AS dead_before "
    "FROM n LEFT JOIN task AS t ON t.id = n.id), "
    "dead AS (INSERT INTO task_dead (id, accepted_us, body, reason, sqlstate, detail) "
    "SELECT id, accepted_us, body, coalesce(sqlstate, 'conflict'), sqlstate, detail FROM judged "
    "WHERE NOT same AND NOT dead_before AND (there OR sqlstate IS NOT NULL) "
    "ORDER BY id, sha256(body) "
    "ON CONFLICT DO NOTHING RETURNING reason) "
    "SELECT (SELECT count(*) FROM dead), "
    "(SELECT count(*) FROM dead WHERE reason = 'conflict'), "
    "(SELECT count(*) FROM judged WHERE NOT there AND NOT dead_before AND sqlstate IS NULL)";

static void put_int32(struct buf *out, int32_t value)
{
    uint32_t wire = htobe32((uint32_t)value);
    buf_append(out, &wire, sizeof(wire));
}

static void add_element(struct buf *array, const void *bytes, size_t len)
{
    if (array->len == 0) {
        static const char header[ARRAY_HEADER_BYTES];
        buf_append(array, header, sizeof(header)); /* filled in by finish() */
    }
    if (!bytes) {
        put_int32(array, -1);
        return;
    }
    assert(len <= INT32_MAX);
    put_int32(array, (int32_t)len);
    buf_append(array, bytes, len);
}

void rows_clear(struct rows *rows)
{
    rows->count = 0;
    buf_clear(&rows->ids);
    buf_clear(&rows->accepted);
    buf_clear(&rows->bodies);
    buf_clear(&rows->sqlstates);
    buf_clear(&rows->details);
}

void rows_free(struct rows *rows)
{
    buf_free(&rows->ids);
    buf_free(&rows->accepted);
    buf_free(&rows->bodies);
    buf_free(&rows->sqlstates);
    buf_free(&rows->details);
    rows->count = 0;
}

void rows_add(struct rows *rows, const struct task *task, const char *sqlstate, const char *detail)
{
    uint64_t accepted = htobe64((uint64_t)task->accepted_us);
    add_element(&rows->ids, task->id, sizeof(task->id));
    add_element(&rows->accepted, &accepted, sizeof(accepted));
    add_element(&rows->bodies, task->body_bytes > 0 ? task->body : "", task->body_bytes);
    add_element(&rows->sqlstates, sqlstate, sqlstate ? strlen(sqlstate) : 0);
    add_element(&rows->details, detail, detail ? strlen(detail) : 0);
    rows->count++;
}

size_t rows_bytes(const struct rows *rows)
{
    return rows->ids.len + rows->accepted.len + rows->bodies.len + rows->sqlstates.len +
           rows->details.len;
}

static void finish(struct buf *array, int32_t element_oid, size_t count)
{
    assert(count > 0 && count <= INT32_MAX);
    const int32_t header[] = {1, 1, element_oid, (int32_t)count, 1};
    for (size_t i = 0; i < sizeof(header) / sizeof(header[0]); i++) {
        uint32_t wire = htobe32((uint32_t)header[i]);
        memcpy(array->data + i * sizeof(wire), &wire, sizeof(wire));
    }
}

static int send(PGconn *conn, const char *sql, int params, struct rows *rows)
{
    static const Oid types[ROWS_SETTLE_PARAMS] = {OID_UUID_ARRAY, OID_INT8_ARRAY, OID_BYTEA_ARRAY,
                                                  OID_TEXT_ARRAY, OID_TEXT_ARRAY};
    static const int32_t elements[ROWS_SETTLE_PARAMS] = {OID_UUID, OID_INT8, OID_BYTEA, OID_TEXT,
                                                         OID_TEXT};
    static const int formats[ROWS_SETTLE_PARAMS] = {1, 1, 1, 1, 1};
    struct buf *arrays[ROWS_SETTLE_PARAMS] = {&rows->ids, &rows->accepted, &rows->bodies,
                                              &rows->sqlstates, &rows->details};
    const char *values[ROWS_SETTLE_PARAMS];
    int lengths[ROWS_SETTLE_PARAMS];
    for (int i = 0; i < params; i++) {
        finish(arrays[i], elements[i], rows->count);
        assert(arrays[i]->len <= INT32_MAX);
        values[i] = arrays[i]->data;
        lengths[i] = (int)arrays[i]->len;
    }
    return PQsendQueryParams(conn, sql, params, types, values, lengths, formats, 1);
}

int rows_send_insert(PGconn *conn, struct rows *rows)
{
    return send(conn, rows_insert_sql, ROWS_INSERT_PARAMS, rows);
}

int rows_send_settle(PGconn *conn, struct rows *rows)
{
    return send(conn, rows_settle_sql, ROWS_SETTLE_PARAMS, rows);
}

int64_t rows_read_int64(const PGresult *result, int row, int column)
{
    uint64_t wire;
    assert(PQgetlength(result, row, column) == (int)sizeof(wire));
    memcpy(&wire, PQgetvalue(result, row, column), sizeof(wire));
    return (int64_t)be64toh(wire);
}

struct rows_settled rows_read_settled(const PGresult *result)
{
    assert(PQntuples(result) == 1 && PQnfields(result) == 3);
    return (struct rows_settled){
        .dead = rows_read_int64(result, 0, 0),
        .conflicts = rows_read_int64(result, 0, 1),
        .absent = rows_read_int64(result, 0, 2),
    };
}

char *rows_detail(const PGresult *result, char out[ROWS_DETAIL_BYTES])
{
    const char *primary = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    const char *detail = PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL);
    int len = snprintf(out, ROWS_DETAIL_BYTES, "%s%s%s", primary ? primary : "", detail ? "; " : "",
                       detail ? detail : "");
    if (len >= ROWS_DETAIL_BYTES) {
        /* Cut before a character, not inside one: the server takes no broken UTF-8. */
        size_t last = ROWS_DETAIL_BYTES - 1;
        while (last > 0 && ((unsigned char)out[last - 1] & 0xc0) == 0x80) {
            last--;
        }
        if (last > 0 && (unsigned char)out[last - 1] >= 0xc0) {
            last--;
        }
        out[last] = '\0';
    }
    return out;
}
