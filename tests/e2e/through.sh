#!/usr/bin/env bash
# Oracle: the audit, the exit codes that --help documents, and the list of what docker was asked for.
# `sluice run --through compose`, with a script in the place of docker (fake-docker): what a real engine
# makes of it, tests/compose shows.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

if [ -z "${THROUGH_SERVERS:-}" ]; then
    rm -rf "$WORK"
    export THROUGH_SERVERS=1
    exec "$SLUICE_BIN/sluice" with main-db -- "$0" "$@"
fi

export FAKE=$WORK/fake SLUICE_BIN
mkdir -p "$FAKE" "$WORK/bin" "$WORK/empty" "$WORK/compose"
ln -s "$HERE/e2e/fake-docker" "$WORK/bin/docker"
touch "$WORK/compose/base.yaml" "$WORK/compose/wal.yaml"
echo $((20000 + $$ % 8000)) >"$FAKE/port"
real_path=$PATH
PATH=$WORK/bin:$PATH
main_url=$SLUICE_MAIN_URL
unset SLUICE_MAIN_URL # the project's servers are known to the containers alone

through() { # WANTED_EXIT_CODE ARGUMENT...: the comparison's folder in $COMPARISON
    local wanted=$1
    shift
    rm -f "$FAKE/calls"
    run_sluice "$wanted" run "$HERE/scenarios/kill-worker.yaml" --through compose \
        --compose-dir "$WORK/compose" --runs "$WORK/runs" --sink wal "$@"
    COMPARISON=$(find "$WORK/runs" -mindepth 1 -maxdepth 1 -type d 2>/dev/null | sort | tail -1) || true
}
called() { grep -qE -- "$1" "$FAKE/calls" || die "docker was not asked for $1: $(cat "$FAKE/calls")"; }
one_sentence() {
    [ "$(grep -c '^sluice: ' "$WORK/out")" = 1 ] || die 'not exactly one sentence'
    expect_text "$WORK/out" "$1"
}

say '-- what must be there'
printf '#!/bin/sh\nPATH=%s exec %s/sluice "$@"\n' "$WORK/empty" "$SLUICE_BIN" >"$WORK/without-docker"
chmod +x "$WORK/without-docker"
SLUICE=$WORK/without-docker through 3
one_sentence 'there is no docker in PATH'
FAKE_FAILS=plugin through 3
one_sentence 'no compose plugin'
FAKE_FAILS=old through 3
one_sentence 'version "1.29.2", wanted 2 or later'
FAKE_FAILS=engine through 3
one_sentence 'engine does not answer'
[ -z "$COMPARISON" ] || die 'a folder was made for nothing'
through 2 --state "$WORK/state"
one_sentence '--state is not for --through compose'
through 2 --sink memory
one_sentence 'memory.yaml'
through 2 --compose-dir "$WORK/empty"
one_sentence 'holds no base.yaml'

# The servers' address, as the services of the project would have it.
rm "$WORK/bin/docker"
cat >"$WORK/bin/docker" <<END
#!/bin/sh
SLUICE_MAIN_URL='$main_url' PATH='$real_path' exec '$HERE/e2e/fake-docker' "\$@"
END
chmod +x "$WORK/bin/docker"

say '-- a run whose worker is killed by schedule'
through 0 --seed 7 --set worker.lanes=3 --set worker.batch=8
run=$COMPARISON/wal/1
expect_clean_audit "$run"
expect_text "$run/manifest.json" '"complete"'
expect_text "$run/manifest.json" '"seed": "7"'
expect_text "$run/worker.options" lanes=3
expect_text "$run/worker.options" batch=8
[ -s "$run/worker-2.jsonl" ] || die 'the worker was not started again'
[ -s "$COMPARISON/compare.md" ] || die 'no compare.md'
called '--env=SLUICE_DRAIN_TIMEOUT=[0-9]+ms'
grep -q 's of 7: ' "$WORK/out" && die 'lines of progress, though nobody watches'
[ -s "$run/logs/compose.log" ] || die 'what docker said is not kept'
project=$(sed -nE 's/.* -p (sluice-wal-1-[0-9a-f]{8}) run .*/\1/p' "$FAKE/calls")
[ -n "$project" ] || die 'no project of its own'
for words in build 'run --rm -T .* verdict' 'kill worker' 'start worker' \
    'down --volumes --remove-orphans --timeout=5'; do
    called "^compose -f $WORK/compose/wal.yaml -p $project $words\$"
done
[ "$(tail -1 "$FAKE/calls" | grep -c ' down ')" = 1 ] || die 'it was not taken down at the end'
expect_text "$WORK/out" '3.0 s: kill worker'
# Kept: made once, not twice.
through 0 --seed 7 --set worker.lanes=3 --set worker.batch=8 --resume --no-build
expect_text "$WORK/out" 'complete already'

say '-- what goes wrong in the middle'
FAKE_FAILS='kill' through 3 --no-build
one_sentence 'docker compose kill worker failed: no such service: worker'
called ' down '
grep -q ' build$' "$FAKE/calls" && die 'it was built, though that was not wanted'
FAKE_FAILS=down through 0 --set 'faults=[]'
one_sentence 'containers may be left'
for part in api worker loadgen; do kill -9 "$(cat "$FAKE/$part.pid")" 2>/dev/null || true; done
sed -i "s|SLUICE_MAIN_URL='[^']*'|SLUICE_MAIN_URL='postgresql://x@127.0.0.1:1/x' SLUICE_WAIT=1s|" "$WORK/bin/docker"
through 3
one_sentence 'main-db did not answer within 1 s'
called ' down '
sed -i "s|SLUICE_MAIN_URL='[^']*' SLUICE_WAIT=1s|SLUICE_MAIN_URL='$main_url'|" "$WORK/bin/docker"

say '-- Ctrl-C'
rm -f "$FAKE/calls"
"$SLUICE_BIN/sluice" run "$HERE/scenarios/kill-worker.yaml" --through compose --sink wal \
    --compose-dir "$WORK/compose" --runs "$WORK/other" >"$WORK/out" 2>&1 </dev/null &
runner=$!
for ((i = 0; i < 300; i++)); do
    grep -qs api_latency "$WORK"/other/*/wal/1/loadgen-1.jsonl && break
    sleep 0.1
done
kill -INT "$runner"
code=0
wait "$runner" || code=$?
[ "$code" = 130 ] || die "exit code $code after Ctrl-C, expected 130"
called ' down '
grep -q '"interrupted"' "$WORK"/other/*/wal/1/manifest.json || die 'the manifest does not say interrupted'
