#!/bin/sh
# A stand-in for the official image's entry point, as far as compose/ uses it. See ../README.md.
set -eu
case $1 in -* | *.conf) set -- valkey-server "$@" ;; esac
if [ "$1" = valkey-server ] && [ "$(id -u)" = 0 ]; then
    find . ! -user valkey -exec chown valkey {} +
    exec setpriv --reuid=valkey --regid=valkey --clear-groups -- "$0" "$@"
fi
umask 0077
exec "$@"
