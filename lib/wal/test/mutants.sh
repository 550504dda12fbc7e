#!/usr/bin/env bash
# mutants.sh BUILD [quick | NAME...]: breaks the log's guards one by one, as mutants.txt says, and
# runs the test that must notice. BUILD is a build with its tests (sluice's, or of lib/wal alone);
# a mutant's source is compiled apart and linked before the library, nothing in BUILD changes.
# JOBS: how many at a time. Prints kills and survivors; a survivor is a failure.
set -euo pipefail

if [ $# -eq 0 ] || [ ! -d "$1" ]; then
    printf 'mutants: the first word must be a build folder, such as build/release (make build makes it)\n' >&2
    exit 2
fi
build=$(realpath "$1")
shift
here=$(dirname "$(realpath "$0")")
lib=$here/..
table=$here/mutants.txt
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
compiler=${CC:-cc}
most_s=${MUTANT_TIMEOUT:-60} # far more than any takes: a mutant that hangs is noticed by it
export LC_ALL=C

first() { # the first path that exists: the log's folder within a build has two possible names
    local path
    for path in "$@"; do
        if [ -e "$path" ]; then
            printf '%s\n' "$path"
            return
        fi
    done
    printf 'mutants: %s is not there: build the tests first\n' "$1" >&2
    exit 1
}
archive=$(first "$build/lib/wal/libsluice_wal.a" "$build/libsluice_wal.a")
objects=$(first "$build/lib/wal/test" "$build/test/CMakeFiles/..")
mkdir -p "$scratch/include"
ln -s "$(realpath "$lib")" "$scratch/include/wal"

# One mutant a folder: name, fault, file, test, old, new. What is wrong with the table is said here.
awk -v out="$scratch" '
    function finish() {
        if (name == "") return
        if (fault == "" || file == "" || test == "" || old == "") {
            print "mutants: " name " lacks fault, file, test or the lines to change" > "/dev/stderr"
            exit 1
        }
        dir = out "/m/" name
        system("mkdir -p " dir)
        printf "%s\n", fault > (dir "/fault"); printf "%s\n", file > (dir "/file")
        printf "%s\n", test > (dir "/test"); printf "%s", old > (dir "/old"); printf "%s", new > (dir "/new")
        close(dir "/fault"); close(dir "/file"); close(dir "/test"); close(dir "/old"); close(dir "/new")
        print name > (out "/names")
        name = fault = file = test = old = new = ""
    }
    /^#/ { next }
    /^[[:space:]]*$/ { finish(); next }
    /^- / { old = old substr($0, 3) "\n"; next }
    /^\+/ { new = new substr($0, 3) "\n"; next }
    { key = $1; sub(/^[a-z]+[[:space:]]+/, "") }
    key == "mutant" { name = $0; next }
    key == "fault" { fault = $0; next }
    key == "file" { file = $0; next }
    key == "test" { test = $0; next }
    { print "mutants: cannot read the line: " key " " $0 > "/dev/stderr"; exit 1 }
    END { finish() }
' "$table"

while read -r name; do
    if ! grep -qF "\`$name\`" "$lib/README.md"; then
        printf 'mutants: %s is not in the table of README.md\n' "$name" >&2
        exit 1
    fi
done <"$scratch/names"

# The source with the old lines exchanged; they must be there exactly once.
change() { # SOURCE FOLDER
    awk -v old="$2/old" -v new="$2/new" '
        function trim(text) { gsub(/^[[:space:]]+|[[:space:]]+$/, "", text); return text }
        BEGIN {
            while ((getline line < old) > 0) want[++wanted] = trim(line)
            while ((getline line < new) > 0) instead[++put] = line
        }
        { lines[NR] = $0 }
        END {
            for (i = 1; i <= NR; i++) {
                for (k = 0; k < wanted && trim(lines[i + k]) == want[k + 1]; k++);
                if (k == wanted) { at = i; found++ }
            }
            if (found != 1) exit 3
            for (i = 1; i < at; i++) print lines[i]
            for (k = 1; k <= put; k++) print instead[k]
            for (i = at + wanted; i <= NR; i++) print lines[i]
        }' "$1"
}

run_test() { # PROGRAM NAME-AND-ARGUMENTS LOG; 0: it passed
    local program=$1 log=$3 words
    read -ra words <<<"${2//@FUZZ@/$here/fuzz}"
    # In a shell of its own, which keeps "Aborted" and the like to itself.
    (timeout --kill-after=5 "$most_s" "$program" "${words[@]:1}") >"$log" 2>&1
}

# One mutant: builds, runs, writes its verdict.
try_one() {
    local name=$1 dir=$scratch/m/$1 file test program call extra=() code=0
    file=$(<"$dir/file") test=$(<"$dir/test")
    program=${test%% *}
    verdict() { printf '%s\n' "$1" >"$dir/verdict"; }
    if ! change "$lib/$file" "$dir" >"$dir/$file"; then
        verdict "STALE: the lines to change are not in $file exactly once"
        return
    fi
    local parts=("$objects/CMakeFiles/$program.dir"/*.o)
    if [ "$program" = test_wal_memory ]; then
        parts+=("$objects/CMakeFiles/wal_test_sim_apart.dir"/*.o)
        for call in malloc calloc realloc strdup free; do extra+=("-Wl,--wrap=$call"); done
    elif [ -d "$objects/CMakeFiles/$program.dir/fuzz" ]; then
        parts=("$objects/CMakeFiles/$program.dir/fuzz"/*.o "$objects/libwal_test_sim.a")
    else
        parts+=("$objects/libwal_test_sim.a")
    fi
    if ! "$compiler" -std=gnu11 -D_GNU_SOURCE -O1 -w -I "$scratch/include" -o "$dir/program" \
        "$dir/$file" "${parts[@]}" "$archive" "${extra[@]}" -lxxhash -lcmocka -pthread >"$dir/log" 2>&1; then
        verdict "BROKEN: does not build, see the lines below"
        return
    fi
    local start=$EPOCHREALTIME
    run_test "$dir/program" "$test" "$dir/log" || code=$?
    local spent_ms=$(((${EPOCHREALTIME/./} - ${start/./}) / 1000))
    rm -f "$dir/program"
    if [ "$code" -eq 0 ]; then
        verdict "SURVIVED: $test passes"
    elif [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        verdict "killed by $test, which did not end"
    else
        verdict "killed by $test, $spent_ms ms"
    fi
}

choose() {
    if [ $# -eq 0 ]; then
        cat "$scratch/names"
    elif [ "$1" = quick ]; then
        while read -r name; do
            if grep -q '^quick:' "$scratch/m/$name/fault"; then printf '%s\n' "$name"; fi
        done <"$scratch/names"
    else
        printf '%s\n' "$@"
    fi
}
mapfile -t chosen < <(choose "$@")

# Each test by itself must pass and must run: else its failing would prove nothing.
for name in "${chosen[@]}"; do
    if [ ! -d "$scratch/m/$name" ]; then
        printf 'mutants: there is no %s in mutants.txt\n' "$name" >&2
        exit 1
    fi
    cat "$scratch/m/$name/test"
done | sort -u >"$scratch/tests"
while read -r test; do
    program=$(first "$build/test/${test%% *}")
    if ! run_test "$program" "$test" "$scratch/log" </dev/null || grep -q 'Running 0 test' "$scratch/log"; then
        cat "$scratch/log" >&2
        printf 'mutants: "%s" does not pass, or is no test, without any mutant\n' "$test" >&2
        exit 1
    fi
done <"$scratch/tests"

jobs=${JOBS:-$(nproc)}
for name in "${chosen[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
    try_one "$name" &
done
wait

bad=0
for name in "${chosen[@]}"; do
    dir=$scratch/m/$name
    verdict=$(cat "$dir/verdict" 2>/dev/null || echo 'BROKEN: no verdict')
    printf '%-38s %s\n' "$name" "$verdict"
    case $verdict in
    killed*) ;;
    *)
        bad=$((bad + 1))
        printf '    the guard against: %s\n' "$(<"$dir/fault")"
        if [[ $verdict == BROKEN* ]]; then head -n 20 "$dir/log" | sed 's/^/    /'; fi
        ;;
    esac
done
printf '%d mutants, %d killed, %d not\n' "${#chosen[@]}" $((${#chosen[@]} - bad)) "$bad"
[ "$bad" -eq 0 ]
