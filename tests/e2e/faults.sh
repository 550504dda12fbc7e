#!/usr/bin/env bash
# Oracle: the audit. Whatever part is killed, stopped or paused in the middle of the load, the load goes
# on, and every task that was acknowledged is in the main DB once, with its own body.
# Usage: faults.sh SCENARIO SINK
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

scenario=$1 sink=$2
run_scenario 0 "$HERE/scenarios/$scenario.yaml" --sink "$sink"
run=$COMPARISON/$sink/1
expect_clean_audit "$run"
expect_nothing_left
expect_text "$run/manifest.json" '"complete"'
expect_text "$run/runner.jsonl" '"ev": "fault"'
expect_text "$run/runner.jsonl" '"ev": "recovered"'
expect_text "$run/runner.jsonl" '"ev": "drained"'
[ -s "$COMPARISON/compare.md" ] || die 'compare.md is missing'
[ -s "$COMPARISON/compare.json" ] || die 'compare.json is missing'
# The sampler saw the sink from outside, through its own handle.
case $scenario in
*-worker) grep -qE '"ev": "backlog", "tasks": [1-9]' "$run/sampler.jsonl" ||
    die 'no sample shows a backlog, though the worker was away' ;;
esac
case $scenario in
kill-api | kill-worker | term-worker)
    part=${scenario#*-}
    [ -s "$run/$part-2.jsonl" ] || die "the $part did not come back: $part-2.jsonl is missing" ;;
esac
acknowledged=$(figure "$run/audit.json" acknowledged)
say "$scenario, $sink: acknowledged $acknowledged, lost 0"
# Someone else's verdict from the files alone must be the same.
run_sluice 0 audit "$run"
expect_clean_audit "$run"
# A report that proves nothing says so, and does not return 0.
truncate -s 2000 "$run/main.tsv"
run_sluice 3 audit "$run"
run_sluice 3 report "$COMPARISON"
expect_text "$WORK/out" 'proves nothing'
mkdir -p "$WORK/other/thing/1"
run_sluice 3 report "$WORK/other"
[ ! -e "$WORK/other/compare.md" ] || die 'a report was written into a folder that holds no run'
