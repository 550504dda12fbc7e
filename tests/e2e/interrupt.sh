#!/usr/bin/env bash
# Oracle: the process table and the state folder. However a run is ended, nothing of it is left, and its
# folder says that it is no result.
# Usage: interrupt.sh INT|TERM|KILL
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

signal=$1
"$SLUICE_BIN/sluice" run "$HERE/scenarios/short.yaml" --sink wal --runs "$WORK/runs" \
    --state "$WORK/state" --set load.rps=100 >"$WORK/out" 2>&1 </dev/null &
runner=$!
for ((i = 0; i < 600; i++)); do # until the load is on
    grep -qs '"ev": "phase"' "$WORK"/runs/*/wal/1/loadgen.jsonl && break
    kill -0 "$runner" 2>/dev/null || die 'the run ended before its load began'
    sleep 0.1
done
[ "$(marked | wc -l)" -ge 5 ] || die 'there is less running than a run needs: the test sees nothing'
# What the kernel would keep of its Postgres: names in /dev/shm, ids of System V segments, as its own processes map them.
shared() {
    for pid in $(marked); do
        sed -nE 's|.* (/dev/shm/PostgreSQL[.][0-9]+)( .*)?$|\1|p; s|.* ([0-9]+) +/SYSV[0-9a-f]+.*|sysv \1|p' "/proc/$pid/maps" 2>/dev/null || true
    done | sort -u
}
shared >"$WORK/shared"
[ "$(grep -cE '^(/dev/shm/|sysv )' "$WORK/shared")" -ge 2 ] || die "no shared memory is seen: $(cat "$WORK/shared")"
code=0
kill -"$signal" "$runner"
wait "$runner" || code=$?
case $signal in
INT) [ "$code" = 130 ] || die "exit code $code after Ctrl-C, expected 130" ;;
TERM) [ "$code" = 143 ] || [ "$code" = 130 ] || die "exit code $code after SIGTERM" ;;
esac
if [ "$signal" = KILL ]; then
    # The state folder of a killed runner stays, for `sluice clean`; processes may not.
    for ((i = 0; i < 100; i++)); do
        [ -z "$(marked)" ] && break
        sleep 0.1
    done
    [ -z "$(marked)" ] || die 'processes outlived a killed runner'
    run_sluice 0 clean --state "$WORK/state"
fi
expect_nothing_left
while read -r kind id; do
    case $kind in
    sysv) ! awk -v id="$id" '$2 == id { found = 1 } END { exit !found }' /proc/sysvipc/shm || die "System V segment $id was left behind" ;;
    *) [ ! -e "$kind" ] || die "$kind was left behind" ;;
    esac
done <"$WORK/shared"
grep -q '"interrupted"' "$WORK"/runs/*/wal/1/manifest.json || die 'the manifest does not say interrupted'
