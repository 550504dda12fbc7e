#!/usr/bin/env bash
# Oracle: the events, the servers' own figures as the sampler saw them, and the audit. What is forced is done
# during the load, once for each item that the sink has; what it has not is left out, and said; what cannot be
# done because its part is away is given up. Nothing acknowledged is lost by any of it.
# Usage: background.sh SINK
# shellcheck source=../lib.sh
. "$(dirname "$0")/../lib.sh"

sink=$1
run_scenario 0 "$HERE/scenarios/background.yaml" --sink "$sink"
run=$COMPARISON/$sink/1
record=$run/runner.jsonl
expect_clean_audit "$run"
expect_nothing_left

events() { # WHAT WHO STATE
    grep -F '"ev": "background"' "$record" |
        grep -cF "\"what\": \"$1\", \"who\": \"$2\", \"state\": \"$3\"" || true
}

expect_done() { # WHAT WHO: once, and not given up
    [ "$(events "$1" "$2" begin)" = 1 ] || die "$1 of $2 did not begin once: $(cat "$record")"
    grep -F "\"what\": \"$1\", \"who\": \"$2\", \"state\": \"end\"" "$record" | grep -qE '"took_ms": [0-9.]+' ||
        die "$1 of $2 was not done: $(cat "$record")"
    grep -F '"background": [' "$run/manifest.json" | grep -v '^"scenario"' |
        grep -qF "\"do\": \"$1\", \"who\": \"$2\"" || die "the manifest does not list $1 of $2"
}

expect_left_out() { # WHAT WHO
    [ "$(events "$1" "$2" begin)" = 0 ] || die "$sink has no $1 of $2, yet it began"
    grep -F 'left out' "$WORK/out" | grep -qF "$1 of $2" || die "nothing says that $1 of $2 is left out"
}

sampled() { # FIGURE: its largest value
    grep -F '"ev": "sink_stats"' "$run/sampler.jsonl" | grep -oE "\"$1\": *[0-9.]+" | grep -oE '[0-9.]+$' |
        sort -g | tail -1
}

expect_done checkpoint main-db
# Its end is in its server's own log, beside the one with which the run begins.
[ "$(grep -c 'checkpoint starting: .*force' "$run/logs/main-db.log")" -ge 2 ] ||
    die 'the main DB logged no forced checkpoint'
# The main DB is away when the vacuum is due.
[ "$(events vacuum main-db begin)" = 1 ] || die 'the vacuum of main-db did not begin'
grep -F '"what": "vacuum", "who": "main-db", "state": "end"' "$record" | grep -qF '"gave_up": true' ||
    die 'the vacuum of a main DB that was away was not given up'
has=
case $sink in
wal) has='segment-rotation:api' ;;
ingest) has='checkpoint:sink vacuum:sink' ;;
valkey) has='aof-rewrite:sink' ;;
rabbit) has='raft-rollover:sink' ;;
esac
for item in checkpoint:sink vacuum:sink aof-rewrite:sink raft-rollover:sink segment-rotation:api; do
    case " $has " in
    *" $item "*) expect_done "${item%:*}" "${item#*:}" ;;
    *) expect_left_out "${item%:*}" "${item#*:}" ;;
    esac
done
case $sink in
wal) # so few tasks would never fill a segment
    [ "$(sampled rotations)" -ge 2 ] || die 'the sampler saw no segment begin but the first' ;;
ingest)
    [ "$(grep -c 'checkpoint starting: .*force' "$run/logs/sink.log")" -ge 2 ] ||
        die 'the sink logged no forced checkpoint' ;;
valkey)
    expect_text "$run/logs/sink.log" 'Background AOF rewrite finished successfully' ;;
esac
