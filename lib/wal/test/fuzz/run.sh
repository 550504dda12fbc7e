#!/usr/bin/env bash
# fuzz/run.sh BUILD SECONDS: gives each fuzz target half of the time, from the committed corpus on.
# What it finds stays in BUILD/fuzz: found-NAME/ (inputs that reach new code; `run.sh BUILD merge`
# brings the corpus up to date with them) and findings/ (inputs that fail; none is a pass).
set -euo pipefail

if [ $# -ne 2 ] || [ ! -x "$1/test/wal_fuzz_segment" ] || [[ ! $2 =~ ^([0-9]+|merge)$ ]]; then
    printf 'fuzz: run.sh BUILD SECONDS|merge, BUILD as made by: make fuzz SECONDS=600\n' >&2
    exit 2
fi
build=$1
seconds=$2
corpus=$(dirname "$0")/corpus
work=$build/fuzz
mkdir -p "$work/findings"
failed=0

merge() { # the fewest inputs that reach all that is known, small ones first
    local name=$1 fresh=$work/merged-$1
    rm -rf "$fresh"
    mkdir -p "$fresh"
    "$build/test/wal_fuzz_$name" -merge=1 -max_len=4096 "$fresh" "$corpus/$name" "$work/found-$name" \
        >"$work/$name.log" 2>&1
    rm -f "$corpus/$name"/*
    cp "$fresh"/* "$corpus/$name/"
    printf '%s: %d inputs in the corpus\n' "$name" "$(find "$corpus/$name" -type f | wc -l)"
}

for name in segment cursor; do
    mkdir -p "$work/found-$name"
    if [ "$seconds" = merge ]; then
        merge "$name"
        continue
    fi
    log=$work/$name.log
    code=0
    nice "$build/test/wal_fuzz_$name" -max_total_time=$((seconds / 2)) -max_len=8192 -timeout=20 \
        -print_final_stats=1 -artifact_prefix="$work/findings/$name-" \
        "$work/found-$name" "$corpus/$name" >"$log" 2>&1 || code=$?
    runs=$(sed -nE 's/^stat::number_of_executed_units: *//p' "$log")
    rate=$(sed -nE 's/^stat::average_exec_per_sec: *//p' "$log")
    printf '%s: %s runs, %s a second, %s\n' "$name" "${runs:-?}" "${rate:-?}" \
        "$([ "$code" -eq 0 ] && echo 'nothing found' || echo "FAILED, see $log")"
    [ "$code" -eq 0 ] || failed=1
done
exit "$failed"
