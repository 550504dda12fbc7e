# shellcheck shell=bash
# lib.sh: what the end-to-end tests share. SLUICE_BIN: the folder with the programs.
# Each test works in a folder of its own on a real disk, and fails when anything it started is left.
set -euo pipefail

: "${SLUICE_BIN:?is the folder with the programs: set it, or call these tests through make test}"
# shellcheck disable=SC2034 # for the scripts that read this one
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
WORK=$(mktemp -d -p /var/tmp sluice-test-XXXXXX)
chmod 755 "$WORK"
mkdir "$WORK/state" && chmod 755 "$WORK/state"
# Every process that a test starts inherits this (the runner passes no SLUICE_
# variables on), so that what is left over can be found by it.
export MARK_OF_THIS_TEST="sluice-test-$$-$RANDOM$RANDOM"

say() { printf '%s\n' "$*"; }

die() {
    printf 'FAIL: %s\n' "$*" >&2
    [ -f "$WORK/out" ] && sed 's/^/  | /' "$WORK/out" | tail -40 >&2
    exit 1
}

# Process ids that carry the mark, ourselves and our own children of the moment aside.
marked() {
    local pid
    for dir in /proc/[0-9]*; do
        pid=${dir#/proc/}
        [ "$pid" = "$$" ] || [ "$pid" = "$BASHPID" ] && continue
        if tr '\0' '\n' 2>/dev/null <"$dir/environ" | grep -qxF "MARK_OF_THIS_TEST=$MARK_OF_THIS_TEST"; then
            case "$(tr '\0' ' ' 2>/dev/null <"$dir/cmdline")" in
            *sluice* | *postgres*) printf '%s\n' "$pid" ;;
            esac
        fi
    done
}

# Nothing we started lives on, and no state folder is left. Waits: dying takes a moment.
expect_nothing_left() {
    local i left
    for ((i = 0; i < 100; i++)); do
        left=$(marked)
        [ -z "$left" ] && break
        sleep 0.1
    done
    for pid in $left; do
        say "still there: $pid $(tr '\0' ' ' <"/proc/$pid/cmdline")"
    done
    [ -z "$left" ] || die 'processes were left behind'
    [ -z "$(ls -A "$WORK/state")" ] || die "state was left behind: $(ls -A "$WORK/state")"
}

cleanup() {
    local pid
    for pid in $(marked); do kill -9 "$pid" 2>/dev/null || true; done
    rm -rf "$WORK"
}
trap cleanup EXIT

# run_sluice WANTED_EXIT_CODE ARGUMENT...: output into $WORK/out.
run_sluice() {
    local wanted=$1 code=0
    shift
    "${SLUICE:-$SLUICE_BIN/sluice}" "$@" >"$WORK/out" 2>&1 </dev/null || code=$?
    [ "$code" = "$wanted" ] || die "sluice $*: exit code $code, expected $wanted"
}

# run_scenario WANTED_EXIT_CODE FILE ARGUMENT...: into $WORK/runs; the comparison's folder in $COMPARISON.
run_scenario() {
    local wanted=$1 file=$2
    shift 2
    run_sluice "$wanted" run "$file" --runs "$WORK/runs" --state "$WORK/state" "$@"
    # shellcheck disable=SC2034
    COMPARISON=$(find "$WORK/runs" -mindepth 1 -maxdepth 1 -type d | sort | tail -1)
}

# figure FILE KEY: the number behind the first "KEY": of a JSON file.
figure() {
    local value
    value=$(grep -oE "\"$2\": *-?[0-9.]+" "$1" | head -1 | grep -oE -- '-?[0-9.]+$') || die "$1 has no \"$2\""
    printf '%s' "$value"
}

expect_figure() { # FILE KEY TEST NUMBER, as in: expect_figure audit.json lost -eq 0
    local value
    value=$(figure "$1" "$2")
    test "$value" "$3" "$4" || die "$2 is $value in $1, expected $3 $4"
}

# A run that must be above suspicion: everything acknowledged is there, once, unchanged.
expect_clean_audit() {
    local audit=$1/audit.json key
    [ -f "$audit" ] || die "$audit is missing"
    grep -q '"verdict": *"pass"' "$audit" || die "the audit did not pass: $(cat "$audit")"
    expect_figure "$audit" acknowledged -gt 100
    for key in lost unexpected corrupt refused_stored duplicated; do
        expect_figure "$audit" "$key" -eq 0
    done
}

expect_text() { # FILE TEXT
    grep -qF -- "$2" "$1" || die "\"$2\" is not in $1"
}
