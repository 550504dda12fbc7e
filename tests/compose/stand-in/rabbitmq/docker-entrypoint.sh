#!/usr/bin/env bash
# A stand-in for the official image's entry point, as far as compose/ uses it. See ../README.md.
set -eu
if [[ "$1" == rabbitmq* ]] && [ "$(id -u)" = 0 ]; then
    if [ "$1" = rabbitmq-server ]; then find /var/lib/rabbitmq ! -user rabbitmq -exec chown rabbitmq {} +; fi
    exec setpriv --reuid=rabbitmq --regid=rabbitmq --clear-groups -- "$0" "$@"
fi
exec "$@"
