#!/usr/bin/env bash
# tls.sh SINK yes|no: servers by TLS, with certificates made here. Oracle: the servers' own TLS (OpenSSL's in
# Postgres and Valkey, Erlang's in RabbitMQ). A run goes the whole way through it when the certificate's CA and
# name are right; with another CA, another name, or TLS on one side only, sluice-api, sluice run and sluice
# clean each end with exit code 3 and one sentence. no: this build has no TLS for this sink, and must say so.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

sink=$1 built=$2
variable=SLUICE_TEST_${sink^^}

make_ca() { # NAME
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=sluice $1" \
        -keyout "$1.key" -out "$1.crt" 2>openssl.log || die "openssl: $(cat openssl.log)"
}

# Outside: certificates, and servers that have them around ourselves. The name is localhost, and so 127.0.0.1 is a
# wrong one.
if [ -z "${SLUICE_TLS_DIR:-}" ]; then
    plain=${variable}_URL
    if [ -z "${!plain:-}" ] || [ -z "${SLUICE_TEST_MAIN_URL:-}" ]; then
        say "SKIP: no servers: run it below \`sluice with main-db $sink --\`"
        [ "${CI:-}" != true ] || exit 1
        exit 77
    fi
    mkdir "$WORK/tls"
    cd "$WORK/tls"
    make_ca ca
    make_ca other
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost \
        -keyout server.key -out server.csr 2>openssl.log || die "openssl: $(cat openssl.log)"
    printf 'subjectAltName=DNS:localhost\n' >names
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 -extfile names \
        -out server.crt 2>openssl.log || die "openssl: $(cat openssl.log)"
    chmod 644 ./*.crt
    cd "$HERE"
    code=0
    SLUICE_TLS_PLAIN=$SLUICE_TEST_MAIN_URL SLUICE_TLS_DIR=$WORK/tls "$SLUICE_BIN/sluice" with --state "$WORK/state" --tls "$WORK/tls" main-db "$sink" -- \
        env -u SLUICE_MAIN_URL "$HERE/tls.sh" "$@" || code=$?
    expect_nothing_left
    exit "$code"
fi

plain=${variable}_URL secure=${variable}_TLS_URL
plain=${!plain} secure=${!secure}
[ -n "$secure" ] || die 'the server has no TLS'
wrong_name=$secure
right_name=${secure/@127.0.0.1:/@localhost:}
case $sink in
ingest) setting='' ;;
valkey) setting=valkey-ca-file ;;
rabbit) setting=rabbit-tls-ca ;;
esac

# by_ca CA URL: url, flags of the daemons and keys of a scenario that trust it. libpq has it in the URL.
by_ca() {
    url=$2 flags=() keys=()
    if [ -z "$setting" ]; then
        case $url in *sslmode=verify-full*) url="$url&sslrootcert=$1" ;; esac
    else
        flags=("--$setting=$1")
        keys=(--set "sink.$setting=$1")
    fi
}

one_sentence() { # WANTED_TEXT
    [ "$(grep -c '^sluice[-a-z]*: ' "$WORK/out")" -eq 1 ] || die 'expected one sentence'
    grep -qE -- "$1" "$WORK/out" || die "expected \"$1\""
}

refused() { # WANTED_TEXT CA URL
    by_ca "$2" "$3"
    export SLUICE_SINK_URL=$url
    SLUICE=$SLUICE_BIN/sluice-api run_sluice 3 --sink="$sink" --listen=127.0.0.1:0 --admin=127.0.0.1:0 "${flags[@]}"
    one_sentence "$1"
    run_sluice 3 clean --sink "$sink" "${flags[@]}"
    one_sentence "$1"
    run_sluice 3 run "$HERE/scenarios/short.yaml" --sink "$sink" --runs "$WORK/runs" --state "$WORK/state" "${keys[@]}"
    one_sentence "$1"
    [ ! -e "$WORK/runs" ] || die 'a run was made'
    unset SLUICE_SINK_URL
}

if [ "$built" = no ]; then
    refused 'which this build lacks|this build has no TLS' "$SLUICE_TLS_DIR/ca.crt" "$right_name"
    exit 0
fi
refused 'certificate' "$SLUICE_TLS_DIR/other.crt" "$right_name"
refused 'certificate|[Hh]ostname|IP address mismatch' "$SLUICE_TLS_DIR/ca.crt" "$wrong_name"
case $sink in
ingest)
    # One port for both; the other side without TLS is that of the servers around.
    refused 'server does not support SSL' "$SLUICE_TLS_DIR/ca.crt" "$SLUICE_TLS_PLAIN?sslmode=verify-full"
    ;;
*)
    plain_place=${plain#*@}
    secure_place=${secure#*@}
    refused 'TLS' "$SLUICE_TLS_DIR/ca.crt" "${secure%@*}@$plain_place"
    refused 'TLS' "$SLUICE_TLS_DIR/ca.crt" "${plain%@*}@$secure_place"
    ;;
esac

# The whole way; the main database by TLS, too.
by_ca "$SLUICE_TLS_DIR/ca.crt" "$right_name"
main=${SLUICE_TEST_MAIN_TLS_URL/@127.0.0.1:/@localhost:}
SLUICE_SINK_URL=$url SLUICE_MAIN_URL="$main&sslrootcert=$SLUICE_TLS_DIR/ca.crt" run_scenario 0 "$HERE/scenarios/short.yaml" \
    --sink "$sink" --set load.rps=100 --set load.phases.0.for=500ms --set load.phases.1.for=2s \
    --set load.phases.2.for=500ms "${keys[@]}"
expect_clean_audit "$COMPARISON/$sink/1"
SLUICE_SINK_URL=$url SLUICE_MAIN_URL="$main&sslrootcert=$SLUICE_TLS_DIR/ca.crt" run_sluice 0 clean --sink "$sink" "${flags[@]}"
expect_text "$WORK/out" 'dropped the schema sluice'
SLUICE_MAIN_URL="$main&sslrootcert=$SLUICE_TLS_DIR/other.crt" run_sluice 3 clean
one_sentence 'certificate'
expect_nothing_left
