#!/usr/bin/env bash
# A stand-in for the official image's entry point, as far as compose/ uses it. See ../README.md.
set -euo pipefail

if [ "${1:-}" = postgres ] && [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chmod 0700 "$PGDATA"
    find "$PGDATA" ! -user postgres -exec chown postgres {} +
    exec setpriv --reuid=postgres --regid=postgres --clear-groups -- "$0" "$@"
fi

if [ "${1:-}" = postgres ] && [ ! -s "$PGDATA/PG_VERSION" ]; then
    user=${POSTGRES_USER:-postgres} database=${POSTGRES_DB:-${POSTGRES_USER:-postgres}}
    if [ -z "${POSTGRES_PASSWORD:-}" ]; then
        echo 'POSTGRES_PASSWORD is not set' >&2
        exit 1
    fi
    # shellcheck disable=SC2086 # a list of words
    initdb --username="$user" --pwfile=<(printf '%s\n' "$POSTGRES_PASSWORD") ${POSTGRES_INITDB_ARGS:-}
    printf '\nhost all all all %s\n' "${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}" >>"$PGDATA/pg_hba.conf"
    # Init scripts see a server without a TCP port, so nobody takes it for the one to come.
    PGPASSWORD=$POSTGRES_PASSWORD
    export PGPASSWORD
    pg_ctl -D "$PGDATA" -o "-c listen_addresses='' -p 5432" -w start
    if [ "$database" != postgres ]; then
        psql -v ON_ERROR_STOP=1 --no-psqlrc -U "$user" -d postgres -v db="$database" <<<'CREATE DATABASE :"db";'
    fi
    for file in /docker-entrypoint-initdb.d/*; do
        case $file in
        *.sh) # shellcheck disable=SC1090
            . "$file" ;;
        *.sql) psql -v ON_ERROR_STOP=1 --no-psqlrc -U "$user" -d "$database" -f "$file" ;;
        esac
    done
    pg_ctl -D "$PGDATA" -m fast -w stop
    unset PGPASSWORD
fi
exec "$@"
