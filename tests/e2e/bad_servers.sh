#!/usr/bin/env bash
# bad_servers.sh SINK: servers that cannot be used, for sluice-api, sluice run and sluice clean. Oracle, for each
# row of the table below and each program: exit code 3, one line, which names what the row wants and holds no
# password, and nothing made. Whoever hangs is ended by `timeout`, whose exit code is another.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

sink=$1
for name in MAIN VALKEY RABBIT INGEST; do
    variable=SLUICE_TEST_${name}_URL
    if [ -z "${!variable:-}" ]; then
        say "SKIP: no servers: run it below \`sluice with all --\`"
        [ "${CI:-}" != true ] || exit 1
        exit 77
    fi
done
unset SLUICE_MAIN_URL SLUICE_SINK_URL

place_of() { # URL: host and port
    local rest=${1#*@}
    printf '%s' "${rest%%/*}"
}

# An HTTP server, and one that is paused: the kernel takes connections, and not a word ever comes.
listen() { # LOG
    : >"$1"
    "$SLUICE_BIN/sluice-api" --sink=memory --listen=127.0.0.1:0 --admin=127.0.0.1:0 >"$1" 2>&1 &
    local i
    for ((i = 0; i < 200; i++)); do
        place=$(sed -nE 's|.*listening on http://([0-9.:]+),.*|\1|p' "$1")
        [ -z "$place" ] || return 0
        sleep 0.1
    done
    die "no server: $(cat "$1")"
}
listen "$WORK/http.log"
http=$place
listen "$WORK/silent.log"
silent=$place
kill -STOP $!

# The name of a setting becomes a flag of the daemons, and a key of a scenario.
settings=() keys=()
add_setting() { # NAME=VALUE
    settings+=("--$1")
    keys+=(--set "sink.$1")
}

case $sink in
ingest)
    own=$SLUICE_TEST_INGEST_URL scheme=postgresql tail='/postgres?connect_timeout=2' base=/no-such-base
    others=("$SLUICE_TEST_VALKEY_URL" "$SLUICE_TEST_RABBIT_URL")
    ;;
valkey)
    own=$SLUICE_TEST_VALKEY_URL scheme=redis tail=/0 base=/4711
    others=("$SLUICE_TEST_INGEST_URL" "$SLUICE_TEST_RABBIT_URL")
    ;;
rabbit)
    own=$SLUICE_TEST_RABBIT_URL scheme=amqp tail=/%2f base=/no-such-base
    others=("$SLUICE_TEST_INGEST_URL" "$SLUICE_TEST_VALKEY_URL")
    add_setting rabbit-connect-timeout=2s
    ;;
esac
right=${own#*:*:}
right=${right%%@*}
[ "${#right}" -ge 20 ] || die 'the server has no password worth looking for'
user=${own#*://}
user=${user%%:*}
printf '%s\nopen-sesame\n' "$right" >"$WORK/secrets"

check_one() { # PROGRAM WANTED_TEXT
    local out=$WORK/$1.out code
    code=$(cat "$WORK/$1.code")
    [ "$code" = 3 ] || die "$row: $1: exit code $code, expected 3: $(cat "$out")"
    ! grep -qFf "$WORK/secrets" "$out" || die "$row: $1: a password is there: $(cat "$out")"
    # What sluice clean finds beside the servers that were given is another matter.
    grep -v '^left alone, in use' "$out" >"$out.own" || true
    [ "$(wc -l <"$out.own")" -eq 1 ] || die "$row: $1: expected one line: $(cat "$out.own")"
    grep -qE -- "$2" "$out.own" || die "$row: $1: expected \"$2\": $(cat "$out.own")"
}

start_one() { # PROGRAM COMMAND...
    local program=$1 code=0
    shift
    timeout -s KILL 30 "$@" >"$WORK/$program.out" 2>&1 </dev/null || code=$?
    printf '%s\n' "$code" >"$WORK/$program.code"
}

rows=0
bad() { # ROW URL WANTED_TEXT
    row=$1
    export SLUICE_SINK_URL=$2
    start_one api "$SLUICE_BIN/sluice-api" --sink="$sink" --listen=127.0.0.1:0 --admin=127.0.0.1:0 "${settings[@]}" &
    local api=$!
    start_one run "$SLUICE_BIN/sluice" run "$HERE/scenarios/short.yaml" --sink "$sink" --runs "$WORK/runs" \
        --state "$WORK/state" "${keys[@]}" &
    wait "$api" "$!"
    # Not beside the run, which holds the sink while it looks at it.
    start_one clean "$SLUICE_BIN/sluice" clean --sink "$sink" --runs "$WORK/runs" --discard-tasks "${settings[@]}"
    unset SLUICE_SINK_URL
    for program in api run clean; do
        check_one "$program" "$3"
    done
    [ ! -e "$WORK/runs" ] || die "$row: a folder was made"
    [ -z "$(ls -A "$WORK/state")" ] || die "$row: something was started"
    rows=$((rows + 1))
}

secret=open-sesame
bad 'no scheme' "nonsense://u:$secret@127.0.0.1/" 'URL|begins neither with'
bad 'no port' "$scheme://u:$secret@127.0.0.1:99999$tail" 'URL|its port is not'
bad 'wrong password' "$scheme://$user:$secret@$(place_of "$own")$tail" 'password'
bad 'no such database' "$scheme://$user:$right@$(place_of "$own")$base" "${base#/}"
bad 'nobody listens' "$scheme://u:$secret@127.0.0.1:1$tail" 'Connection refused'
bad 'no such host' "$scheme://u:$secret@no-such-host.invalid:1$tail" 'no-such-host\.invalid.*not known|no-such-host\.invalid.*resolution'
bad 'silence' "$scheme://u:$secret@$silent$tail" ' within | in time'
bad 'an HTTP server' "$scheme://u:$secret@$http$tail" 'is it|does a Postgres listen there'
for other in "${others[@]}"; do
    bad "the server of ${other%%://*}://" "$scheme://u:$secret@$(place_of "$other")$tail" 'is it|does a Postgres listen there'
done
[ "$rows" -eq 10 ] || die "$rows rows, expected 10"

if [ "$sink" = valkey ]; then
    # A key of that name with something else in it, put there by hand.
    place=$(place_of "$own")
    exec {redis}<>"/dev/tcp/${place%:*}/${place#*:}"
    printf 'AUTH %s\r\nSELECT 0\r\nDEL sluice:other\r\nRPUSH sluice:other mine\r\nQUIT\r\n' "$right" >&"$redis"
    cat <&"$redis" >"$WORK/redis"
    exec {redis}>&-
    add_setting valkey-stream=sluice:other
    bad 'a key of another type' "$own" 'sluice:other is there already and is a list, not a stream'
    exec {redis}<>"/dev/tcp/${place%:*}/${place#*:}"
    printf 'AUTH %s\r\nLLEN sluice:other\r\nDEL sluice:other\r\nQUIT\r\n' "$right" >&"$redis"
    [ "$(tr -d '\r' <&"$redis" | paste -sd ' ')" = '+OK :1 :1 +OK' ] || die 'what is not ours was touched'
fi
for pid in $(jobs -p); do kill -CONT "$pid" && kill "$pid"; done
wait
expect_nothing_left
