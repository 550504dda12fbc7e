#!/usr/bin/env bash
# tool.sh SLUICE_WAL MAKE_LOG
# Oracle: the script makes each log, and damages it itself; it knows the exit status, the place and the
# records that are left, and that nothing was changed where nothing may be.
set -euo pipefail
export LC_ALL=C
tool=$1 make=$2
work=$(mktemp -d "${TMPDIR:-/var/tmp}/wal-tool-XXXXXX")
holder=''
cleanup() {
    if [ -n "$holder" ]; then kill -KILL "$holder" 2>/dev/null || true; fi
    rm -rf "$work"
}
trap cleanup EXIT
cd "$work"

out='' said=''
run() { # STATUS WORDS...: runs sluice-wal; $out and $said are what it wrote
    local wanted=$1 status=0
    shift
    "$tool" "$@" >out 2>err || status=$?
    out=$(cat out) said=$(cat err)
    if [ "$status" != "$wanted" ]; then
        printf 'sluice-wal %s: exit %s, not %s\n%s\n%s\n' "$*" "$status" "$wanted" "$out" "$said"
        exit 1
    fi
}
has() { # TEXT PART
    case $1 in *"$2"*) ;; *) printf 'no "%s" in:\n%s\n' "$2" "$1"; exit 1 ;; esac
}
sentence() { # what went wrong is told in one line
    if [ "$(wc -l <err)" != 1 ]; then printf 'not one sentence: %s\n' "$said"; exit 1; fi
    has "$said" "$1"
}
sums() { (cd "$1" && find . -type f -exec sha256sum {} + | sort -k2 && stat -c '%n %s %Y' ./*); }
poke() { printf '%s' "$3" | dd of="$1" bs=1 seek="$2" conv=notrunc status=none; }
segment() { printf '%s/%020d.seg' "$1" "$2"; }
at() { echo $((4096 + ($1 - 1) * 512)); } # the nth batch of a segment, 56 in each

# ---- the command line ----
run 0 --help; has "$out" 'repair'
run 2; run 2 nonsense x; sentence 'no command "nonsense"'
for command in stat verify dump repair bench; do
    run 0 $command --help; has "$out" 'Exit status'; has "$out" "usage: sluice-wal $command DIR"
    run 2 $command; sentence 'which folder?'
    run 2 $command a b; sentence 'one folder at a time'
    run 2 $command --nonsense=3 a; sentence 'no option --nonsense'
done
run 2 dump a --from=x; sentence '--from=x: must be a whole number from 1'
run 2 dump a --from=0; run 2 dump a --from=-1; run 2 dump a --from=99999999999999999999
run 2 dump a --from; sentence '--from needs a value'
run 2 verify a --json=1; sentence 'takes no value'
run 2 bench . --rounds=0

# ---- what is no log ----
mkdir empty; echo x >file; mkdir other; echo x >other/notes
for command in stat verify dump repair; do
    run 3 $command missing; sentence 'missing'
    run 3 $command file; sentence 'file'
    run 3 $command empty; run 3 $command other; sentence 'other'
done
run 3 repair other --yes; sentence 'holds no log'
[ "$(ls other empty)" = "$(printf 'empty:\n\nother:\nnotes')" ]
run 3 bench missing; sentence 'missing'

# ---- a log that is fine ----
"$make" log 150 100 32768 20
sums log >before
run 0 verify log; has "$out" 'log: fine: records 1 to 150'
run 0 verify log --json; has "$out" '"ok":true'; python3 -m json.tool <out >/dev/null
run 0 stat log; has "$out" 'lag          130 records'; has "$out" 'durable LSN  150'; has "$out" 'cursor LSN   20 '
run 0 stat log --json; python3 -m json.tool <out >/dev/null
has "$out" '"writer_open":false'; has "$out" '"lag_records":130'; has "$out" '"cursor_lsn":20'
run 0 dump log; [ "$(wc -l <out)" = 150 ]; has "$out" $'150\t100\t00000000000000000003.seg:'; has "$out" '"record 150 ...'
run 0 dump log --from=31 --to=40 --show=9; [ "$(wc -l <out)" = 10 ]; has "$out" '"record 31"...'
run 0 dump log --raw --from=7 --to=7; [ "$(wc -c <out)" = 101 ]
run 0 dump log --batches; [ "$(wc -l <out)" = 150 ]
run 0 dump log --segments; [ "$(wc -l <out)" -ge 3 ]
run 0 repair log; has "$out" 'nothing to repair'
sums log | diff before - # no command changed a byte, a size or a time
run 0 repair log --yes; has "$out" 'nothing to repair'
[ ! -e log.backup-1 ]
"$tool" dump log >/dev/full 2>err && exit 1
said=$(cat err); sentence 'cannot write to stdout'

# ---- damage: named, shown, repaired, read again ----
repaired() { # NAME KEPT LOST: what repair says, what dump shows, what the writer makes of it
    local kept
    cp -a "$1" copy; sums copy >before
    run 1 repair "$1"; has "$out" "kept: $2 records"; has "$out" "LOST: $3 records"; has "$out" 'Nothing was changed'
    sums "$1" | diff before -
    run 0 repair "$1" --yes; has "$out" "$1.backup-1"
    run 0 verify "$1"
    diff -r copy "$1.backup-1" | grep -v 'Only in .*lock' && exit 1
    run 0 dump "$1" --from=21; kept=$(wc -l <out)
    [ "$kept" = "$2" ] || { echo "$1: $kept records are left, not $2"; exit 1; }
    run 0 stat "$1"; has "$out" "lag          $2 records"
    "$make" "$1" 1 100 32768
    run 0 verify "$1"; run 0 stat "$1"; has "$out" 'durable LSN  151'
    rm -r "$1" "$1.backup-1" copy
}
cp -a log rot; poke "$(segment rot 1)" $(($(at 30) + 90)) xx
run 1 verify rot; has "$out" "file 00000000000000000001.seg, offset $(at 30), kind batch-body"
run 1 verify rot --json; has "$out" "\"kind\":\"batch-body\",\"file\":\"00000000000000000001.seg\",\"offset\":$(at 30)"
python3 -m json.tool <out >/dev/null
run 1 dump rot; [ "$(wc -l <out)" = 149 ]; sentence 'records 30 to 30 are not readable'
repaired rot 129 1

cp -a log gap; rm "$(segment gap 2)"
run 1 verify gap; has "$out" 'file 00000000000000000003.seg, offset 4096, kind records-missing'
run 1 verify gap --json; has "$out" '"first_lsn":57,"last_lsn":112'
repaired gap 74 56

cp -a log swap; mv "$(segment swap 1)" swap/x; mv "$(segment swap 2)" "$(segment swap 1)"; mv swap/x "$(segment swap 2)"
run 1 verify swap; has "$out" 'file 00000000000000000001.seg, offset 24, kind segment-of-another-number'
repaired swap 130 0

cp -a log salt; poke "$(segment salt 2)" 33 x
run 1 verify salt; has "$out" 'offset 0, kind segment-header'
repaired salt 74 56

"$make" second 150 100 32768
cp -a log mixed; cp "$(segment second 2)" "$(segment mixed 2)"
run 1 verify mixed; has "$out" 'offset 16, kind segment-of-another-log'
repaired mixed 74 56

# The page of this boot remembers what the last segment lost.
cp -a log short; poke "$(segment short 3)" $(($(at 38) + 90)) xx
run 1 verify short; has "$out" 'kind end-missing'
repaired short 129 1

# ---- what can't be repaired ----
cp -a log version; poke "$(segment version 3)" 8 2
sums version >before
run 3 verify version; sentence 'format version'
run 3 repair version --yes; sentence 'format version'
run 3 dump version; run 3 repair version
sums version | diff before -
cp -a log rot; poke "$(segment rot 1)" $(($(at 30) + 90)) xx
sums rot >before
run 3 repair rot --yes --backup=log; sentence 'is there already'
run 3 repair rot --yes --backup=no/such; sentence 'nothing was changed'
sums rot | diff before -
run 0 repair rot --yes --backup="$work/elsewhere"; [ -d elsewhere ]

# ---- a log in use: looked at, not touched ----
mkfifo pipe
"$make" used 100 100 32768 0 hold >pipe & holder=$!
read -r _ <pipe
for _ in 1 2 3 4 5 6 7 8; do
    run 0 verify used
    run 0 stat used; has "$out" 'writer       open'
    run 0 dump used
done
has "$(run 0 stat used --json; echo "$out")" '"writer_open":true'
run 3 repair used --yes; sentence 'is open in another process'
run 3 repair used
kill -KILL "$holder"; wait "$holder" 2>/dev/null || true; holder=''
run 0 verify used

# ---- no permission ----
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$work"
    chmod 700 log; chmod 755 rot
    for command in stat verify dump 'repair --yes'; do
        # shellcheck disable=SC2086
        setpriv --reuid=65534 --regid=65534 --clear-groups "$tool" $command log >out 2>err && exit 1
        said=$(cat err); sentence 'Permission denied'
    done
fi
echo ok
