#!/usr/bin/env bash
# Two comparisons on one machine, of which the short one is over before the long one ends: both are marked,
# and do not count. Oracle: their manifests and what compare.json gives as the reason.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

run_beside() { # NAME SECONDS
    "$SLUICE_BIN/sluice" run "$HERE/scenarios/short.yaml" --sink memory --runs "$WORK/$1" --state "$WORK/state" \
        --set 'faults=[]' --set load.rps=50 --set load.phases.0.for=500ms --set "load.phases.1.for=$2" \
        --set load.phases.2.for=500ms >"$WORK/$1.log" 2>&1
}
expect_neighbours() { # NAME true|false
    grep -q "\"neighbours\": $2" "$WORK/$1"/*/memory/1/manifest.json || die "$1: expected neighbours to be $2"
    if grep -q 'another sluice ran on this machine meanwhile' "$WORK/$1"/*/compare.json; then seen=true; else seen=false; fi
    [ "$seen" = "$2" ] || die "$1: compare.json speaks of another sluice: $seen, expected $2"
}

run_beside long 12s &
long=$!
for ((i = 0; i < 600; i++)); do
    ! grep -qs ': load: ' "$WORK/long.log" || break
    sleep 0.1
done
run_beside brief 1s || die "the short one ended with $?: $(cat "$WORK/brief.log")"
kill -0 "$long" || die 'the long one ended first: the test sees nothing'
wait "$long" || die "the long one ended with $?: $(cat "$WORK/long.log")"
expect_neighbours long true
expect_neighbours brief true
run_beside alone 1s || die "the last one ended with $?: $(cat "$WORK/alone.log")"
expect_neighbours alone false
expect_nothing_left
