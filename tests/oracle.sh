#!/usr/bin/env bash
# Oracle: a fault put in on purpose must be called by its name; the same run without one must pass. If
# any of these passes where it should fail, no "lost 0" of this project means anything.
# Usage: oracle.sh FAULT (see broken/broken.c)
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

fault=$1
scenario=$HERE/scenarios/kill-worker.yaml
kind=lost wanted=1
case $fault in
none) wanted=0 ;;
early-ack) scenario=$HERE/scenarios/kill-api.yaml ;;
skip-id | ack-first | cursor-ahead) ;;
change-byte) kind=corrupt ;;
other-id) kind=unexpected ;;
refused-stored) kind=refused_stored ;;
*) die "unknown fault $fault" ;;
esac
FAULT_ON_PURPOSE=$fault run_scenario "$wanted" "$scenario" --sink wal --daemons "$SLUICE_BIN/broken"
run=$COMPARISON/wal/1
expect_nothing_left
if [ "$fault" = none ]; then
    expect_clean_audit "$run"
    say 'none: the broken build without a fault passes the audit'
    exit 0
fi
audit=$run/audit.json
grep -q '"verdict": *"fail"' "$audit" || die "the audit did not fail: $(cat "$audit")"
expect_figure "$audit" "$kind" -gt 0
for other in lost unexpected corrupt refused_stored duplicated; do
    # ... and nothing else is accused
    [ "$other" = "$kind" ] || expect_figure "$audit" "$other" -eq 0
done
grep -qE "\"$kind(_ids)?\"" "$audit" || die "no ids of $kind"
say "$fault: caught, $kind $(figure "$audit" "$kind") of $(figure "$audit" acknowledged) acknowledged"
