/* sink_valkey_tls.c: hiredis wraps the connection; what is trusted is decided here, because hiredis
 * does not compare the certificate with the host's name. */
#include "sink/sink_valkey_tls.h"

#include <errno.h>
#include <string.h>

#ifdef SLUICE_HAVE_HIREDIS_SSL

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

int valkey_tls_available(struct err *err)
{
    (void)err;
    return 0;
}

static SSL_CTX *make_context(const struct valkey_target *target)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (!context) {
        return NULL;
    }
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    int trusted = target->ca_file ? SSL_CTX_load_verify_locations(context, target->ca_file, NULL)
                                  : SSL_CTX_set_default_verify_paths(context);
    if (trusted != 1) {
        SSL_CTX_free(context);
        return NULL;
    }
    return context;
}

/* The certificate must be for this host, by name or by address. */
static bool want_host(SSL *ssl, const char *host)
{
    unsigned char address[16];
    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1) {
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    }
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

int valkey_tls_begin(const struct valkey_target *target, redisContext *context, struct err *err)
{
    SSL_CTX *tls = make_context(target);
    if (!tls) {
        return err_set(err, -EINVAL, "%s: cannot read the trusted certificates (%s)", target->shown,
                       target->ca_file ? target->ca_file : "the system's");
    }
    SSL *ssl = SSL_new(tls);
    SSL_CTX_free(tls); /* ssl holds on to it */
    if (!ssl || !want_host(ssl, target->host) || redisInitiateSSL(context, ssl) != REDIS_OK) {
        const char *why = context->err ? context->errstr : "no TLS for this host";
        long verdict = ssl ? SSL_get_verify_result(ssl) : X509_V_OK;
        if (verdict != X509_V_OK) {
            why = X509_verify_cert_error_string(verdict);
        }
        int rc = err_set(err, -EACCES, "%s: TLS failed: %s", target->shown, why);
        if (ssl && !context->privctx) {
            SSL_free(ssl);
        }
        return rc;
    }
    return 0;
}

#else

int valkey_tls_available(struct err *err)
{
    return err_set(
        err, -EINVAL,
        "rediss:// asks for TLS, which this build lacks (its hiredis is older than 1.0): "
        "use redis://, through a TLS tunnel if need be");
}

int valkey_tls_begin(const struct valkey_target *target, redisContext *context, struct err *err)
{
    (void)target;
    (void)context;
    return valkey_tls_available(err);
}

#endif
