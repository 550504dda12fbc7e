#!/usr/bin/env bash
# Oracle: what the controls are for. `direct` pays row_delay inside the request, so with a delay above the
# SLA it misses it on every request, and loses nothing; `memory` keeps nothing and fails no run.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

run_scenario 0 "$HERE/scenarios/short.yaml" --sink direct --sink memory \
    --set main_db.row_delay=60ms --set sla.api_p99=50ms --set load.rps=100
expect_clean_audit "$COMPARISON/direct/1"
expect_text "$COMPARISON/memory/1/audit.json" '"excused"'
expect_figure "$COMPARISON/memory/1/audit.json" acknowledged -gt 100
expect_nothing_left
grep -E '^\| *SLA' "$COMPARISON/compare.md" >"$WORK/sla" || die 'compare.md has no SLA row'
grep -qiE '\bno\b|missed' "$WORK/sla" || die "direct met an SLA that it cannot meet: $(cat "$WORK/sla")"
# The same with --require-sla is not about controls: they may miss it.
run_scenario 0 "$HERE/scenarios/short.yaml" --sink direct --require-sla \
    --set main_db.row_delay=60ms --set sla.api_p99=50ms --set load.rps=100
