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

-- The slowness that sinks exist for: every row costs the trigger's argument, in seconds.
CREATE OR REPLACE FUNCTION task_row_delay() RETURNS trigger LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_sleep(TG_ARGV[0]::double precision);
    RETURN NEW;
END
$body$;

CREATE OR REPLACE FUNCTION task_set_row_delay(seconds double precision) RETURNS void
LANGUAGE plpgsql AS $body$
BEGIN
    DROP TRIGGER IF EXISTS task_row_delay ON task;
    IF seconds > 0 THEN
        EXECUTE format('CREATE TRIGGER task_row_delay BEFORE INSERT ON task '
                       'FOR EACH ROW EXECUTE FUNCTION task_row_delay(%L)', seconds);
    END IF;
END
$body$;
