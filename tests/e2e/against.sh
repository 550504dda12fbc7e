#!/usr/bin/env bash
# Oracle: what --help and docs/method.md say of the exit codes of report A B --gate, and of export. The
# comparison is the fixture of the report's tests, whose runs all count, with one thing made wrong.
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

fresh() { # a copy as $WORK/b
    rm -rf "$WORK/b"
    cp -r "$HERE/../reports/test/fixtures/tiny" "$WORK/b"
}

cp -r "$HERE/../reports/test/fixtures/tiny" "$WORK/a"
fresh
run_sluice 0 report "$WORK/a" "$WORK/b" --gate
expect_text "$WORK/out" 'settings and servers are the same'

# A task of B is lost: worse, whatever the noise. Without --gate it is only said.
sed -i -e '2d' -e 's/#end rows=20/#end rows=19/' "$WORK/b/wal/1/main.tsv"
run_sluice 1 report "$WORK/a" "$WORK/b" --gate
expect_text "$WORK/out" 'B is worse than A beyond noise: wal: audits that failed'
run_sluice 0 report "$WORK/a" "$WORK/b"
run_sluice 0 report "$WORK/b" "$WORK/a" --gate

# Every run slower than A's slowest.
fresh
sed -i -E 's/"latency_ms": ([0-9]|1[0-9])\.000/"latency_ms": 45.000/' "$WORK"/b/wal/*/loadgen.jsonl
run_sluice 1 report "$WORK/a" "$WORK/b" --gate
expect_text "$WORK/out" 'wal: api p50, steady'

# Another load is another question; a contender that is gone can't be judged.
fresh
sed -i 's/"rps": 2,/"rps": 3,/' "$WORK"/b/*/*/manifest.json
run_sluice 3 report "$WORK/a" "$WORK/b" --gate
expect_text "$WORK/out" 'did not do the same work (scenario: load)'
fresh
rm -r "$WORK/b/wal"
run_sluice 3 report "$WORK/a" "$WORK/b" --gate
expect_text "$WORK/out" "1 of A's contenders can't be judged"

run_sluice 0 export "$WORK/a/wal/1" --csv
[ "$(wc -l <"$WORK/out")" -eq 21 ] || die 'not a header and 20 tasks'
rm "$WORK/a/wal/1/ledger.tsv"
run_sluice 3 export "$WORK/a/wal/1" --csv
expect_text "$WORK/out" 'ledger.tsv'
expect_nothing_left
