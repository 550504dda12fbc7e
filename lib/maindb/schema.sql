-- The main database's schema: the one source. The build embeds it (maindb_setup sends it), and
-- psql takes it as it is: psql -v ON_ERROR_STOP=1 -f schema.sql -c "SELECT task_set_row_delay(0.06)"
-- Running it again changes nothing.

CREATE TABLE IF NOT EXISTS task (
    id           uuid        PRIMARY KEY,
    accepted_us  bigint      NOT NULL, -- wall clock when the request was complete, microseconds
    body         bytea       NOT NULL, -- the whole request body, byte for byte
    committed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Tasks that task refuses for good: reason is 'conflict' (the id is there with another body) or the
-- SQLSTATE that the insert raised.
CREATE TABLE IF NOT EXISTS task_dead (
    id          uuid        NOT NULL,
    accepted_us bigint      NOT NULL,
    body        bytea       NOT NULL,
    reason      text        NOT NULL,
    sqlstate    text,
    detail      text,
    dead_at     timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- One row for an id and body, however often the task is redelivered. A body may be longer than an index
-- entry can be, so its hash stands for it.
CREATE UNIQUE INDEX IF NOT EXISTS task_dead_once ON task_dead (id, sha256(body));

-- Counts the row delays that were paid, those of transactions that were rolled back included: what a
-- sequence has given out is never taken back. (A server that was killed may skip some.)
CREATE SEQUENCE IF NOT EXISTS task_row_sleeps CACHE 1;

-- The slowness that sinks exist for: every row costs the trigger's argument, in seconds.
CREATE OR REPLACE FUNCTION task_row_delay() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM nextval('task_row_sleeps');
    IF TG_ARGV[0]::double precision > 0 THEN
        PERFORM pg_sleep(TG_ARGV[0]::double precision);
    END IF;
    RETURN NEW;
END
$body$;

-- 0: nobody sleeps, and the rows that would are counted all the same.
CREATE OR REPLACE FUNCTION task_set_row_delay(seconds double precision) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    DROP TRIGGER IF EXISTS task_row_delay ON task;
    EXECUTE format('CREATE TRIGGER task_row_delay BEFORE INSERT ON task '
                   'FOR EACH ROW EXECUTE FUNCTION task_row_delay(%L)', greatest(seconds, 0));
END
$body$;
