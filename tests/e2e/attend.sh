#!/usr/bin/env bash
# Oracle: the audit, and the exit codes that --help documents, on runs whose parts this script starts,
# kills and starts again itself, as a person with containers would.
# Usage: attend.sh SINK [CASE]...   (without: all cases)
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

sink=$1
shift
if [ -z "${ATTEND_SERVERS:-}" ]; then
    # Once more, with a main DB and the sink's server beside.
    servers=(main-db)
    case $sink in wal | direct | memory) ;; *) servers+=("$sink") ;; esac
    rm -rf "$WORK"
    export ATTEND_SERVERS=1
    exec "$SLUICE_BIN/sluice" with "${servers[@]}" -- "$0" "$sink" "$@"
fi

export SLUICE_SINK=$sink SLUICE_SCENARIO=$HERE/scenarios/short.yaml SLUICE_RUNS=$WORK/runs SLUICE_NOW=$WORK/now
variable=SLUICE_TEST_${sink^^}_URL
[ -z "${!variable:-}" ] || export "SLUICE_SINK_URL=${!variable}"
export SLUICE_WAL_DIR=$WORK/log SLUICE_PROGRESS=1s
drains=yes
[ "$sink" = direct ] && drains=
declare -A pid

# A port of its own for each test at a time: below the range the kernel gives out.
port=$((20000 + $$ % 8000))
export SLUICE_API=127.0.0.1:$port SLUICE_API_ADMIN=127.0.0.1:$((port + 1)) SLUICE_WORKER_ADMIN=127.0.0.1:$((port + 2))

start() { # PART: as its container would
    local part=$1 own=()
    case $part in
    api) own=(env "SLUICE_LISTEN=$SLUICE_API" "SLUICE_ADMIN=$SLUICE_API_ADMIN") ;;
    worker) own=(env "SLUICE_ADMIN=$SLUICE_WORKER_ADMIN") ;;
    loadgen) own=(env "SLUICE_TARGET=$SLUICE_API" "SLUICE_START_FILE=$SLUICE_NOW/load") ;;
    esac
    SLUICE_METRICS=$SLUICE_NOW/ SLUICE_OPTIONS_FILE=$SLUICE_NOW/$part.options \
        "${own[@]}" "$SLUICE_BIN/sluice-$part" >>"$WORK/$part.log" 2>&1 </dev/null &
    pid[$part]=$!
}

stop() { # PART [SIGNAL]
    [ -n "${pid[$1]:-}" ] || return 0
    kill -"${2:-KILL}" "${pid[$1]}" 2>/dev/null || true
    wait "${pid[$1]}" 2>/dev/null || true
    unset "pid[$1]"
}

start_all() {
    start api
    [ -n "$drains" ] && start worker
    start loadgen
}

stop_all() {
    local part
    for part in "${!pid[@]}"; do stop "$part"; done
}

prepare() { # the run's folder in $run
    run_sluice 0 prepare
    run=$(readlink -f "$WORK/now")
}

attend() { # in the background; its output in $WORK/verdict
    "$SLUICE_BIN/sluice" attend "$@" >"$WORK/verdict" 2>&1 </dev/null &
    pid[verdict]=$!
}

verdict() { # WANTED_EXIT_CODE TEXT...: how it ended, and what it said
    local code=0 wanted=$1 text
    shift
    wait "${pid[verdict]}" || code=$?
    unset "pid[verdict]"
    cp "$WORK/verdict" "$WORK/out"
    [ "$code" = "$wanted" ] || die "sluice attend: exit code $code, expected $wanted"
    for text in "$@"; do expect_text "$WORK/verdict" "$text"; done
}

wait_for() { # WHAT COMMAND...
    local what=$1 i
    shift
    for ((i = 0; i < 600; i++)); do
        "$@" >/dev/null 2>&1 && return 0
        sleep 0.1
    done
    cp "$WORK/verdict" "$WORK/out" 2>/dev/null || true
    die "$what did not come"
}

load_begins() { wait_for 'the load' grep -qs api_latency "$run/loadgen-1.jsonl"; }

# The worker is killed in the middle and started again: nothing is lost, and the verdict says so.
case_kill_worker() {
    prepare
    start_all
    attend --parts 'api=sluice,1.5,512m; sink=some/where:1,0,2g'
    load_begins
    if [ -n "$drains" ]; then
        sleep 1
        stop worker
        sleep 1
        start worker
    fi
    verdict 0 'audit: pass' 'answers' compare.md '| lost  '
    expect_clean_audit "$run"
    expect_text "$run/manifest.json" '"complete"'
    expect_text "$run/manifest.json" '"through": "compose"'
    expect_text "$run/manifest.json" '"sink": {"image": "some/where:1", "cpus": 0, "memory_bytes": 2147483648}'
    [ -z "$drains" ] || [ -s "$run/worker-2.jsonl" ] || die 'no second record of the worker'
    [ -s "$run/sampler.jsonl" ] || die 'no samples of sink and main DB'
    [ -e "$run/over" ] || die 'the end of the run is not told'
    [ -s "$run/../../compare.md" ] || die 'no compare.md'
    [ "$(stat -c %a "$run")" = 777 ] || die 'the folder of the run is not for all'
    kill -0 "${pid[api]}" || die 'the verdict ended a part that others had started'
    # The earlier run's parts are still there: nothing is taken from under them.
    run_sluice 3 prepare
    expect_text "$WORK/out" 'an earlier run is not over'
    [ "$(readlink -f "$WORK/now")" = "$run" ] || die 'the link was moved'
    run_sluice 3 attend
    expect_text "$WORK/out" 'is over already'
    run_sluice 0 audit "$run"
    stop_all
}

# What the last run left is gone from the servers, the log's folder included.
case_again() {
    local first=$run
    prepare
    [ "$run" != "$first" ] || die 'the same folder twice'
    start_all
    attend --no-report
    verdict 0 'audit: pass'
    expect_clean_audit "$run"
    [ ! -e "$run/../../compare.md" ] || die 'a report, though none was wanted'
    stop_all
}

case_kill_loadgen() {
    prepare
    start_all
    attend
    load_begins
    stop loadgen
    verdict 3 'the run is void' 'it was killed'
    expect_text "$run/manifest.json" '"failed"'
    expect_text "$run/../../compare.md" 'the run is void'
    # Another verdict tells of that, and changes nothing.
    run_sluice 3 attend
    expect_text "$WORK/out" 'it has failed: the load generator ended before the load was over'
    expect_text "$run/manifest.json" '"failed"'
    expect_text "$run/../../compare.md" 'the load generator ended before the load was over'
    stop_all
}

main_db() { # kill | start
    [ "$(perl -MIO::Socket::UNIX -e '$s = IO::Socket::UNIX->new(Peer => $ENV{SLUICE_TEST_MAIN_CONTROL}) or die;
        print $s "$ARGV[0]\n"; $s->flush; print scalar <$s>' "$1")" = ok ] || die "main-db: no $1"
}

# The main DB holds the evidence: one that is down when the load ends may be started again.
case_main_down_at_the_end() {
    prepare
    start_all
    attend
    load_begins
    main_db kill
    wait "${pid[loadgen]}" || die 'the load generator failed'
    unset "pid[loadgen]"
    wait_for 'a word on main-db' grep -Eq 'waiting for main-db|draining' "$WORK/verdict"
    main_db start
    verdict 0 'audit: '
    expect_text "$run/manifest.json" '"complete"'
    stop_all
    # But not for ever.
    prepare
    start_all
    attend --drain-timeout=3s
    load_begins
    main_db kill
    [ -n "$drains" ] || verdict 3 'main-db did not come back within 3 s after the load'
    [ -z "$drains" ] || verdict 3 '3 s after the load'
    main_db start
    stop_all
}

case_kill_verdict() {
    prepare
    start_all
    attend
    load_begins
    stop verdict
    attend
    verdict 3 'void' 'its verdict was ended in the middle'
    expect_text "$run/manifest.json" '"interrupted"'
    expect_text "$run/../../compare.md" 'the verdict was ended in the middle'
    grep -q 'load generator was killed' "$run/../../compare.md" && die 'the load generator lives'
    attend
    verdict 3 void
    stop_all
}

case_api_never_ready() {
    local begin=$SECONDS
    prepare
    [ -z "$drains" ] || start worker
    start loadgen
    attend --ready-wait=2s
    verdict 3 'api is not ready after 2 s' 'docker compose logs api'
    [ $((SECONDS - begin)) -lt 60 ] || die 'that took too long'
    stop_all
}

# It was there and has ended: that is told at once, not when all of the time to be ready is over.
case_part_has_ended() {
    local part
    for part in api loadgen; do
        prepare
        start_all
        wait_for "a record of $part" test -e "$run/$part-1.jsonl"
        stop "$part"
        attend --ready-wait=900s
        verdict 3 "$part has ended before the load began" "docker compose logs $part"
        stop_all
    done
}

case_api_of_an_earlier_run() {
    prepare
    local first=$run
    start api
    wait_for 'a record of the api' test -s "$first/api-1.jsonl"
    if [ "$sink" = wal ]; then
        # A log that somebody writes is not thrown away, even when nothing else tells of him.
        rm "$WORK/now"
        run_sluice 3 prepare
        expect_text "$WORK/out" 'already has a writer'
    fi
    # As a prepare in between would have left it.
    run=${first%/*}/99
    cp -r "$first" "$run"
    rm "$run"/api-1.jsonl
    ln -sfn "$run" "$WORK/now"
    start loadgen
    [ -z "$drains" ] || start worker
    attend
    verdict 3 'does not write into' 'docker compose restart api'
    stop_all
}

# Those whom the access list of runs/ names may write in the run's folders, and nobody else.
case_shared_by_list() {
    mkdir "$WORK/listed"
    if ! command -v setfacl >/dev/null || ! setfacl -m d:u::rwx,d:u:10001:rwx,d:g::rx,d:m::rwx,d:o::- "$WORK/listed"; then
        say 'no setfacl, or no access lists on this file system: left out'
        return 0
    fi
    run_sluice 0 prepare --runs "$WORK/listed"
    run=$(readlink -f "$WORK/now")
    [ "$(stat -c %a "$run" "$run/.." "$run/../.." "$run/logs" | sort -u)" = 770 ] || die 'the folders are not 770'
    getfacl -n "$run" 2>/dev/null | grep -qx 'user:10001:rwx' || die 'user 10001 may not write there'
}

case_folder_not_writable() {
    local place begin=$SECONDS
    mkdir "$WORK/locked"
    chmod 555 "$WORK/locked"
    # Root may write anywhere, but not make folders in /proc.
    for place in "$WORK/locked/runs" /proc/runs; do
        [ "$(id -u)" = 0 ] && [ "$place" != /proc/runs ] && continue
        run_sluice 3 prepare --runs "$place"
        [ "$(wc -l <"$WORK/out")" = 1 ] || die 'more than one sentence'
        expect_text "$WORK/out" "$place"
        expect_text "$WORK/out" 'must be able to write there'
    done
    run_sluice 3 prepare --runs /proc --run name
    [ "$(wc -l <"$WORK/out")" = 1 ] || die 'more than one sentence'
    expect_text "$WORK/out" "must be able to write there"
    [ $((SECONDS - begin)) -lt 60 ] || die 'that took too long'
    rm -f "$WORK/now.why"
    run_sluice 3 attend --now "$WORK/nothing"
    expect_text "$WORK/out" 'sluice prepare makes it'
}

# By environment alone: which variable, and what it takes.
case_mistakes() {
    local name
    bad() { # VARIABLE VALUE TEXT...
        local variable=$1 value=$2 command
        shift 2
        for command in prepare attend; do
            (
                export "$variable=$value"
                run_sluice 2 $command
                [ "$(wc -l <"$WORK/out")" = 1 ] || die "$command: more than one sentence"
                expect_text "$WORK/out" "$variable"
                for text in "$@"; do expect_text "$WORK/out" "$text"; done
            )
        done
    }
    bad SLUICE_SINK nosuch 'use one of: '
    bad SLUICE_SCENARIO nosuch 'there is no such scenario'
    bad SLUICE_SINK_CONNECTIONS many 'SLUICE_SINK_CONNECTIONS'
    bad SLUICE_FAULTS perhaps 'neither yes nor no'
    # Those of the api and the worker: prepare says it, and the verdict says it after it.
    local setting
    for setting in IN_FLIGHT_MAX=-5 BODY_MAX=lots ACK_DEADLINE=1 BATCH_WAIT=soon BACK_OFF_MAX=0s; do
        (
            export "SLUICE_$setting"
            run_sluice 2 prepare
            [ "$(wc -l <"$WORK/out")" = 1 ] || die 'more than one sentence'
            expect_text "$WORK/out" "SLUICE_${setting%=*}"
            unset "SLUICE_${setting%=*}"
            run_sluice 2 attend
            expect_text "$WORK/out" "SLUICE_${setting%=*}"
        )
    done
    for name in SLUICE_API SLUICE_API_ADMIN SLUICE_WORKER_ADMIN; do
        (
            export "$name=api"
            run_sluice 2 attend
            expect_text "$WORK/out" "$name"
            expect_text "$WORK/out" HOST:PORT
        )
    done
    (
        export SLUICE_PROGRESS=often
        run_sluice 2 attend
        expect_text "$WORK/out" SLUICE_PROGRESS
    )
    for name in api api=sluice api=sluice,1 api=sluice,1,lots api=sluice,x,1g; do
        SLUICE_PARTS=$name run_sluice 2 attend
        expect_text "$WORK/out" SLUICE_PARTS
    done
    (
        export SLUICE_RUN=../x
        run_sluice 2 prepare
        expect_text "$WORK/out" SLUICE_RUN
    )
    (
        export SLUICE_SET='load.rps=50; load.speed=3'
        run_sluice 2 prepare
        expect_text "$WORK/out" 'SLUICE_SET: --set load.speed=3'
    )
    (
        unset SLUICE_MAIN_URL
        run_sluice 2 prepare
        expect_text "$WORK/out" SLUICE_MAIN_URL
    )
    # A server that does not answer, and one that is somebody else's and not empty.
    (
        export SLUICE_MAIN_URL=postgresql://sluice:secret@127.0.0.1:1/postgres
        run_sluice 3 prepare --wait=1s
        expect_text "$WORK/out" 'main-db did not answer within 1 s'
        grep -q secret "$WORK/out" && die 'the password is shown'
        [ "$(wc -l <"$WORK/out")" = 1 ] || die 'more than one sentence'
    )
    # The verdict, which others start all the same, says the same sentence.
    SLUICE_MAIN_URL=postgresql://sluice:secret@127.0.0.1:1/postgres run_sluice 3 prepare --wait=1s
    run_sluice 3 attend
    expect_text "$WORK/out" 'main-db did not answer within 1 s'
    SLUICE_RUN=a/b run_sluice 2 prepare
    run_sluice 2 attend
    expect_text "$WORK/out" SLUICE_RUN
    prepare
    run_sluice 2 attend --set load.rps=7
    expect_text "$WORK/out" 'prepared for another scenario'
}

# A server that is not the project's own is never emptied.
case_given() {
    prepare
    start_all
    attend --no-report
    verdict 0 'audit: pass'
    stop_all
    run_sluice 3 prepare --main-given
    expect_text "$WORK/out" 'the server is not ours'
}

run=
cases=("$@")
[ ${#cases[@]} -gt 0 ] || cases=(kill_worker again kill_loadgen main_down_at_the_end kill_verdict api_never_ready part_has_ended
    api_of_an_earlier_run shared_by_list folder_not_writable mistakes given)
for one in "${cases[@]}"; do
    say "-- $one"
    "case_$one"
done
stop_all
