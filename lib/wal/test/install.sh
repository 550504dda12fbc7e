#!/usr/bin/env bash
# install.sh LIB_WAL EXAMPLE.c CMAKE CC
# Oracle: a copy of lib/wal with nothing around it, under another name, builds and installs; the README's
# example, compiled against what was installed and nothing else, prints what example.sh expects: found by
# pkg-config and by find_package, in a prefix and below a DESTDIR, static and shared.
set -euo pipefail
source=$(cd "$1" && pwd) example=$2 cmake=$3 cc=$4
here=$(cd "$(dirname "$0")" && pwd)
command -v pkg-config >/dev/null || { echo 'pkg-config is missing'; exit 77; }
work=$(mktemp -d "${TMPDIR:-/var/tmp}/wal-install-XXXXXX")
trap 'rm -rf "$work"' EXIT
export CC=$cc
unset DESTDIR CFLAGS LDFLAGS PKG_CONFIG_PATH CMAKE_PREFIX_PATH

quiet() { # COMMAND...: its output only if it fails
    if ! "$@" >"$work/log" 2>&1; then
        echo "failed: $*"
        cat "$work/log"
        exit 1
    fi
}

cp -r "$source" "$work/a stranger's copy"
quiet "$cmake" -S "$work/a stranger's copy" -B "$work/build" -DSLUICE_WAL_TESTS=OFF -DBUILD_SHARED_LIBS=ON \
    -DSLUICE_WERROR=ON -DCMAKE_INSTALL_LIBDIR=lib
quiet "$cmake" --build "$work/build" -j2
quiet "$cmake" --install "$work/build" --prefix "$work/usr"
DESTDIR=$work/dest quiet "$cmake" --install "$work/build" --prefix /opt/log

# What the headers declare is what the shared library exports, no more and no less.
for header in "$work"/usr/include/wal/*.h; do
    "$cc" -E -P -I"$work/usr/include" "$header"
done | grep -v '^typedef' | grep -oE '\bwal_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/declared"
nm -D --defined-only "$work/usr/lib/libsluice_wal.so" | awk '{ print $3 }' | sort -u >"$work/exported"
"$cc" -E -P -I"$work/usr/include" "$work/usr/include/wal/format.h" |
    grep -oE 'static inline .*\bwal_[a-z0-9_]+\(' | grep -oE 'wal_[a-z0-9_]+\(' | tr -d '(' | sort -u >"$work/inline"
comm -23 "$work/declared" "$work/inline" >"$work/expected"
diff "$work/expected" "$work/exported" ||
    { echo 'sluice-wal.map and the installed headers disagree (<: headers)'; exit 1; }

compile() { # NAME FLAGS...
    local name=$1
    shift
    quiet "$cc" -std=c11 -Wall -Wextra -Werror "$example" -o "$work/$name" "$@"
    "$here/example.sh" "$work/$name"
}
for place in usr dest/opt/log; do
    export PKG_CONFIG_PATH=$work/$place/lib/pkgconfig
    read -ra flags <<<"$(pkg-config --cflags --libs sluice-wal)"
    compile "shared-${place%%/*}" "${flags[@]}" "-Wl,-rpath,$work/$place/lib"
    [ "$(pkg-config --modversion sluice-wal)" = 0.1.0 ]
    quiet "$work/$place/bin/sluice-wal" --version
done
# With the shared library gone, the same words must do for the static one.
rm "$work"/dest/opt/log/lib/*.so*
read -ra flags <<<"$(pkg-config --static --cflags --libs sluice-wal)"
compile static "${flags[@]}"

mkdir "$work/user"
cp "$example" "$work/user/example.c"
cat >"$work/user/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.22)
project(user LANGUAGES C)
find_package(sluice-wal 0.1 REQUIRED)
add_executable(with_static example.c)
target_link_libraries(with_static sluice::wal)
add_executable(with_shared example.c)
target_link_libraries(with_shared sluice::wal_shared)
END
quiet "$cmake" -S "$work/user" -B "$work/user/build" -DCMAKE_PREFIX_PATH="$work/usr"
quiet "$cmake" --build "$work/user/build"
"$here/example.sh" "$work/user/build/with_static"
"$here/example.sh" "$work/user/build/with_shared"

# Static alone, as by default: no flag is needed to find xxHash.
quiet "$cmake" -S "$work/a stranger's copy" -B "$work/build" -DBUILD_SHARED_LIBS=OFF
quiet "$cmake" --build "$work/build" -j2
quiet "$cmake" --install "$work/build" --prefix "$work/only"
[ ! -e "$work/only/lib/libsluice_wal.so" ]
export PKG_CONFIG_PATH=$work/only/lib/pkgconfig
read -ra flags <<<"$(pkg-config --cflags --libs sluice-wal)"
compile only-static "${flags[@]}"
