#!/usr/bin/env bash
# given.sh SINK: servers that exist already, here those of `sluice with`, for the whole way: a run, a second
# one, tasks that wait, clean. Oracle: the audit of each run; the server's answers through a driver that finds
# what is left; and the password's own text, which is in no command line, output or file of a run.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

sink=$1
variable=SLUICE_TEST_${sink^^}_URL
url=${!variable:-}
main=${SLUICE_TEST_MAIN_URL:-}
if [ -z "$url" ] || [ -z "$main" ]; then
    say "SKIP: no servers: run it below \`sluice with main-db $sink --\`"
    [ "${CI:-}" != true ] || exit 1
    exit 77
fi
unset SLUICE_MAIN_URL SLUICE_SINK_URL

# The passwords, one a line, and the URL: in files, since arguments are what is looked through.
umask 077
for one in "$url" "$main"; do
    secret=${one#*://}
    secret=${secret%%@*}
    printf '%s\n' "${secret#*:}"
done >"$WORK/secrets"
printf '%s\n' "$url" >"$WORK/sink-url"
printf '%s\n' "$main" >"$WORK/main-url"
[ "$(wc -L <"$WORK/secrets")" -ge 20 ] || die 'the servers have no passwords worth looking for'
umask 022
given=(--sink "$sink" "--sink-url=@$WORK/sink-url")

watch_arguments() {
    while [ -e "$WORK/watch" ]; do
        if cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -qFf "$WORK/secrets"; then : >"$WORK/seen"; fi
        sleep 0.05
    done
}

expect_no_secret() { # FILE...
    ! grep -rlFf "$WORK/secrets" -- "$@" || die 'a password is there'
}

short_run() { # WANTED_EXIT_CODE ARGUMENT...
    local wanted=$1
    shift
    run_scenario "$wanted" "$HERE/scenarios/short.yaml" --sink "$sink" --set load.rps=100 --set load.phases.0.for=500ms \
        --set load.phases.1.for=2s --set load.phases.2.for=500ms "$@"
    expect_no_secret "$WORK/out"
}

store_tasks() { # COUNT: by an API of our own
    local port i code
    : >"$WORK/api.log"
    SLUICE_SINK_URL=$url "$SLUICE_BIN/sluice-api" --sink="$sink" --listen=127.0.0.1:0 --admin=127.0.0.1:0 \
        >"$WORK/api.log" 2>&1 &
    local api=$!
    for ((i = 0; i < 200; i++)); do
        port=$(sed -nE 's|.*listening on http://127\.0\.0\.1:([0-9]+),.*|\1|p' "$WORK/api.log")
        [ -n "$port" ] && break
        sleep 0.1
    done
    [ -n "$port" ] || die "the API does not say where it listens: $(cat "$WORK/api.log")"
    for ((i = 0; i < $1; i++)); do
        code=$(curl -s -o /dev/null -w '%{http_code}' --retry 50 --retry-delay 1 --max-time 10 \
            -H 'Content-Type: application/json' -d '{"payload": 1}' "http://127.0.0.1:$port/task")
        [ "$code" = 202 ] || die "POST /task: $code"
    done
    kill "$api"
    wait "$api" || die "the API ended with $?"
    expect_no_secret "$WORK/api.log"
}

run_sluice 0 clean "${given[@]}" --discard-tasks
run_sluice 0 clean --main-url="@$WORK/main-url"

# Twice, once by files and once by the environment: what one run leaves is not the next one's.
: >"$WORK/watch"
watch_arguments &
watcher=$!
short_run 0 --sink-url="@$WORK/sink-url"
expect_text "$WORK/out" 'which is not ours: it is not started, stopped or configured'
expect_clean_audit "$COMPARISON/$sink/1"
[ ! -e "$COMPARISON/$sink/1/logs/sink.log" ] || die 'a server was started'
SLUICE_SINK_URL=$url SLUICE_MAIN_URL=$main short_run 0
expect_clean_audit "$COMPARISON/$sink/1"
expect_figure "$COMPARISON/$sink/1/audit.json" acknowledged -lt 302 # the load's 250 to 300, and the runner's one
grep -qE '"name": "[a-z]+", "version": "[A-Za-z]+ [0-9]+\.' "$COMPARISON/$sink/1/manifest.json" ||
    die 'the manifest does not say which version the server is'
rm "$WORK/watch"
wait "$watcher"
[ ! -e "$WORK/seen" ] || die 'a password was in a command line'
expect_no_secret "$WORK/runs"

# Two at once would drain each other's tasks: the second one is refused, and so is clean, until the first is over.
"$SLUICE_BIN/sluice" run "$HERE/scenarios/short.yaml" --sink "$sink" --sink-url="@$WORK/sink-url" --runs "$WORK/first" \
    --state "$WORK/state" --set load.rps=100 --set load.phases.0.for=500ms --set load.phases.1.for=6s \
    --set load.phases.2.for=500ms >"$WORK/first.log" 2>&1 &
first=$!
for ((i = 0; i < 600; i++)); do
    ! grep -qs ': load: ' "$WORK/first.log" || break
    sleep 0.1
done
count=$(find "$WORK/runs" -mindepth 1 -maxdepth 1 | wc -l)
short_run 3 --sink-url="@$WORK/sink-url"
expect_text "$WORK/out" 'another sluice is at work'
[ "$(grep -c '^sluice: ' "$WORK/out")" -eq 1 ] || die 'not one sentence'
[ "$(find "$WORK/runs" -mindepth 1 -maxdepth 1 | wc -l)" -eq "$count" ] || die 'a folder was made for a run that was refused'
run_sluice 3 clean "${given[@]}" --discard-tasks
expect_text "$WORK/out" 'another sluice is at work'
kill -0 "$first" || die "the first run ended too soon: $(cat "$WORK/first.log")"
wait "$first" || die "the first run ended with $?: $(cat "$WORK/first.log")"
for audit in "$WORK"/first/*/"$sink"/1; do expect_clean_audit "$audit"; done

# Ctrl-C while tasks wait: how many stay, and what takes them away; then --resume works.
"$SLUICE_BIN/sluice" run "$HERE/scenarios/short.yaml" --sink "$sink" --sink-url="@$WORK/sink-url" --runs "$WORK/stopped" \
    --state "$WORK/state" --set main_db.row_delay=1s --set worker.lanes=1 >"$WORK/stopped.log" 2>&1 &
first=$!
for ((i = 0; i < 600; i++)); do
    ! grep -qs '"ev": "phase"' "$WORK"/stopped/*/"$sink"/1/loadgen.jsonl || break
    sleep 0.1
done
sleep 1
code=0
kill -INT "$first"
wait "$first" || code=$?
[ "$code" -eq 130 ] || die "exit code $code after Ctrl-C"
grep -qE "[0-9]+ tasks stay in the sink $sink" "$WORK/stopped.log" || die "it does not say what stays: $(cat "$WORK/stopped.log")"
run_sluice 0 clean "${given[@]}" --discard-tasks

# One that is killed lets go by itself.
"$SLUICE_BIN/sluice" run "$HERE/scenarios/short.yaml" --sink "$sink" --sink-url="@$WORK/sink-url" --runs "$WORK/killed" \
    --state "$WORK/state" >"$WORK/killed.log" 2>&1 &
first=$!
for ((i = 0; i < 600; i++)); do
    ! grep -qs ': load: ' "$WORK/killed.log" || break
    sleep 0.1
done
run_sluice 3 clean "${given[@]}" --discard-tasks
kill -KILL "$first"
wait "$first" || true
for ((i = 0; i < 300; i++)); do
    ! "$SLUICE_BIN/sluice" clean "${given[@]}" --discard-tasks --state "$WORK/state" >"$WORK/out" 2>&1 || break
    expect_text "$WORK/out" 'another sluice is at work'
    sleep 0.2
done
[ "$i" -lt 300 ] || die 'a killed run holds the sink for good'

# A password in an argument, and a fault of a server that is not ours, are refused before anything is done.
count=$(find "$WORK/runs" -mindepth 1 -maxdepth 1 | wc -l)
short_run 2 --sink-url="x://u:not-a-secret@127.0.0.1/"
expect_text "$WORK/out" 'the URL holds a password'
short_run 2 --sink-url="@$WORK/sink-url" --set 'faults=[{at: 1s, do: kill, who: sink, for: 1s}]'
expect_text "$WORK/out" 'nothing may befall it'

# Tasks that wait are somebody's: neither a run nor a clean takes them, until it is said.
store_tasks 3
short_run 3 --sink-url="@$WORK/sink-url"
expect_text "$WORK/out" 'it holds 3 tasks already'
[ "$(grep -c '^sluice: ' "$WORK/out")" -eq 1 ] || die 'not one sentence'
[ "$(find "$WORK/runs" -mindepth 1 -maxdepth 1 | wc -l)" -eq "$count" ] || die 'a folder was made for a run that was refused'
run_sluice 3 clean "${given[@]}"
expect_text "$WORK/out" '3 tasks wait in it'
run_sluice 0 clean "${given[@]}" --discard-tasks
expect_text "$WORK/out" 'the tasks that waited in it are gone'
expect_no_secret "$WORK/out"
run_sluice 0 clean "${given[@]}"
! grep -q 'tasks' "$WORK/out" || die 'tasks are still there'
SLUICE_MAIN_URL=$main run_sluice 0 clean
expect_text "$WORK/out" 'dropped the schema sluice'
SLUICE_MAIN_URL=$main run_sluice 0 clean
! grep -q 'dropped' "$WORK/out" || die 'the schema was still there'
expect_nothing_left
