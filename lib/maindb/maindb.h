/* maindb.h: the slow main database (Postgres): idempotent batch insert, dead letters, SQLSTATE
 * policy.
 *
 * Tables (schema.sql beside this file is the one source): task (id uuid primary key, accepted_us
 * bigint, body bytea, committed_at timestamptz), task_dead (id, accepted_us, body, reason,
 * sqlstate, detail, dead_at; one row for an id and body). A BEFORE INSERT FOR EACH ROW trigger on
 * task sleeps row_delay.
 *
 * Threads: a struct maindb belongs to one thread (one lane). URLs are libpq connection URIs; texts
 * of errors never hold their password.
 */
#ifndef SLUICE_MAINDB_MAINDB_H
#define SLUICE_MAINDB_MAINDB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "task/task.h"

struct maindb;

struct maindb_result {
    unsigned inserted;    /* rows new in task */
    unsigned redelivered; /* already there with the same body */
    unsigned dead;        /* written to task_dead now, conflicts included */
    unsigned conflicts;   /* same id, another body: the first wins, this one is dead */
    int64_t db_ns;        /* from the first statement to COMMIT's answer */
};

/* What commit does with its waiting time and how it is stopped. */
struct maindb_wait {
    int (*keep)(void *arg); /* called about every keep_every_ns while waiting; NULL: not */
    void *arg;
    int64_t keep_every_ns;
    int cancel_fd; /* readable: cancel the statement in the server and return -ECANCELED; -1: none
                    */
    int64_t deadline_ns; /* longest wait for one answer, then -EAGAIN; 0: 1 hour */
};

/* What a failed statement means (DESIGN: SQLSTATE policy). */
enum maindb_verdict {
    MAINDB_ROW,       /* 22, 23, 54: this row never will; dead letter */
    MAINDB_FATAL,     /* 28, 3D, 42: schema or credentials; stop and shout */
    MAINDB_TRANSIENT, /* all others, unknown ones included: back off, try again */
};
enum maindb_verdict maindb_judge(const char *sqlstate); /* NULL or "": a lost connection */

/* Creates the object; connects at the first use and again after a loss. */
int maindb_open(struct maindb **db, const char *url, const char *application_name, struct err *err);
void maindb_close(struct maindb *db); /* NULL is allowed */

/* Commits tasks (any order, repeats allowed) in one transaction, so that afterwards each is in task
 * or task_dead. 0 and result; -EAGAIN: transient, nothing certain, call again with the same tasks;
 * -EPERM: fatal, a person must act; -ECANCELED. */
int maindb_commit(struct maindb *db, const struct task *tasks, size_t count,
                  const struct maindb_wait *wait, struct maindb_result *result, struct err *err);

/* Is the server there, with the schema? 0, -EAGAIN, -EPERM. */
int maindb_check(struct maindb *db, struct err *err);

/* Makes or updates tables, sequence and trigger; idempotent. row_delay_ns 0: no sleep. */
int maindb_setup(const char *url, int64_t row_delay_ns, struct err *err);
/* Throws away what lies in task and task_dead. */
int maindb_empty(const char *url, struct err *err);
/* Reads fsync, synchronous_commit, full_page_writes back; -EPERM names setting, found, wanted.
 * Version text ("PostgreSQL 15.18") into version. */
int maindb_preflight(const char *url, char *version, size_t version_bytes, struct err *err);

struct maindb_counts {
    int64_t tasks;      /* rows in task */
    int64_t dead;       /* rows in task_dead */
    int64_t refused;    /* of those, rows with an SQLSTATE: all but the conflicts */
    int64_t row_sleeps; /* how often the trigger ran, for rows that were rolled back or not */
    /* Work that the server does beside, since its statistics began (its crash resets them). */
    int64_t checkpoints; /* timed and requested */
    int64_t autovacuums; /* of both tables */
    int64_t wal_bytes;   /* of its log, since the server was made */
    int64_t wal_flushes; /* of its log; -1: a server before 14 does not tell */
};
int maindb_count(struct maindb *db, struct maindb_counts *counts, struct err *err);

/* Writes main.tsv: see docs/metrics.md. Streams; memory does not grow with the table. */
int maindb_export(const char *url, FILE *out, struct err *err);

#endif
