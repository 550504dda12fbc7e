#!/bin/sh
# Oracle: what the README says the example does: both records come out, and once only.
set -eu
dir=$(mktemp -d "${TMPDIR:-/var/tmp}/wal-example-XXXXXX")
trap 'rm -rf "$dir"' EXIT
first=$("$1" "$dir/log")
second=$("$1" "$dir/log")
[ "$first" = "1: hello
2: world" ] || { echo "first run printed: $first"; exit 1; }
[ "$second" = "3: hello
4: world" ] || { echo "second run printed: $second"; exit 1; }
