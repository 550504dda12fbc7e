#!/usr/bin/env bash
# Oracle: the exit codes that --help documents, and one sentence that names the place. Nothing is started.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

bad() { # WANTED_TEXT SCENARIO_TEXT ARGUMENT...
    local wanted=$1
    printf '%s\n' "$2" >"$WORK/bad.yaml"
    shift 2
    run_sluice 2 run "$WORK/bad.yaml" --runs "$WORK/runs" --state "$WORK/state" "$@"
    expect_text "$WORK/out" "$wanted"
    [ ! -e "$WORK/runs" ] || [ -z "$(ls -A "$WORK/runs")" ] || die 'a run was started'
}

good=$(cat "$HERE/scenarios/short.yaml")
bad 'bad.yaml:' "${good/rps: 200/rpm: 200}"
bad 'bad.yaml:' "${good/rps: 200/rps: -5}"
bad 'bad.yaml:' "${good/for: 5s/for: 5}"
bad 'bad.yaml:' "${good/pacing: paced/pacing: fast}"
bad 'bad.yaml:' "${good/phases:/phases: [}"
bad 'bad.yaml:' "$good
faults: [{at: 3s, do: explode, who: worker, for: 1s}]"
bad 'bad.yaml:' "$good
faults: [{at: 3s, do: kill, who: sink, for: 1s}]" --sink wal
bad 'nosuch' "$good" --sink nosuch
bad '--set' "$good" --set load.rps=many
bad '--set' "$good" --set load.speed=5
for setting in sink.sink-url sink.main-url sink.sink-connections load.rps; do
    bad "--set $setting=" "$good" --set "$setting=amqp://user:not-to-be-seen@host/a-name-that-is-long-enough-to-be-cut-short"
    ! grep -q 'not-to-be-seen' "$WORK/out" || die "a password is shown: $(cat "$WORK/out")"
done
for name in main sink; do
    bad "--$name-url: it is empty" "$good" --sink ingest "--$name-url="
    export "SLUICE_${name^^}_URL="
    bad "SLUICE_${name^^}_URL: it is empty" "$good" --sink ingest
    unset "SLUICE_${name^^}_URL"
done
run_sluice 2 run "$WORK/absent.yaml"
expect_text "$WORK/out" 'absent.yaml'
run_sluice 2 run "$HERE/scenarios/short.yaml" --no-such-flag
run_sluice 2 frobnicate
run_sluice 3 audit "$WORK"
run_sluice 0 --help
run_sluice 0 --version
run_sluice 0 sinks
for program in sluice-api sluice-worker sluice-loadgen sluice-sampler; do
    SLUICE=$SLUICE_BIN/$program run_sluice 0 --help
    SLUICE=$SLUICE_BIN/$program run_sluice 0 --version
    SLUICE=$SLUICE_BIN/$program run_sluice 2 --no-such-flag
    expect_text "$WORK/out" '--no-such-flag'
done
# A state folder that cannot hold anything durable.
if [ -d /dev/shm ]; then
    run_sluice 3 run "$HERE/scenarios/short.yaml" --sink wal --runs "$WORK/runs" --state /dev/shm
    expect_text "$WORK/out" 'tmpfs'
    run_sluice 3 run "$HERE/scenarios/short.yaml" --sink wal --runs "$WORK/runs" --state "/dev/shm/$MARK_OF_THIS_TEST/state"
    expect_text "$WORK/out" 'tmpfs'
    [ ! -e "/dev/shm/$MARK_OF_THIS_TEST" ] || die 'a folder that was refused was made'
fi
expect_nothing_left
