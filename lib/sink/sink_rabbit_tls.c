#include "sink/sink_rabbit_tls.h"

#include <errno.h>

#ifdef SLUICE_HAVE_OPENSSL

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct rabbit_tls {
    SSL_CTX *context;
    SSL *ssl;
    const struct rabbit_target *target;
    bool wants_out;
};

/* The oldest thing OpenSSL has to say in this thread. */
static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_error());
    return text ? text : "the connection broke off";
}

static bool is_address(const char *host)
{
    unsigned char address[sizeof(struct in6_addr)];
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
}

static int expect_peer(struct rabbit_tls *tls, struct err *err)
{
    const struct rabbit_target *target = tls->target;
    if (!target->verify_peer) {
        SSL_CTX_set_verify(tls->context, SSL_VERIFY_NONE, NULL);
        return 0;
    }
    int loaded = target->ca_file
                     ? SSL_CTX_load_verify_locations(tls->context, target->ca_file, NULL)
                     : SSL_CTX_set_default_verify_paths(tls->context);
    if (loaded != 1) {
        return err_set(err, -EINVAL, "--rabbit-tls-ca=%s: no certificates can be read there (%s)",
                       target->ca_file ? target->ca_file : "(system)", reason());
    }
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    return 0;
}

static int expect_name(struct rabbit_tls *tls, struct err *err)
{
    const char *host = tls->target->host;
    int named;
    if (is_address(host)) {
        named = X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), host);
    } else {
        named = SSL_set1_host(tls->ssl, host) == 1 && SSL_set_tlsext_host_name(tls->ssl, host) == 1;
    }
    return named == 1 ? 0 : err_set(err, -EINVAL, "%s: no name that TLS could ask for", host);
}

int rabbit_tls_start(struct rabbit_tls **out, const struct rabbit_target *target, int fd,
                     struct err *err)
{
    struct rabbit_tls *tls = xcalloc(1, sizeof(*tls));
    *out = NULL;
    ERR_clear_error();
    tls->target = target;
    tls->context = SSL_CTX_new(TLS_client_method());
    int rc = tls->context ? expect_peer(tls, err) : err_set(err, -ENOMEM, "TLS: %s", reason());
    if (rc == 0) {
        SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
        SSL_CTX_set_mode(tls->context,
                         SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
        tls->ssl = SSL_new(tls->context);
        rc = tls->ssl && SSL_set_fd(tls->ssl, fd) == 1 ? expect_name(tls, err)
                                                       : err_set(err, -ENOMEM, "TLS: %s", reason());
    }
    if (rc < 0) {
        rabbit_tls_end(tls);
        return rc;
    }
    SSL_set_connect_state(tls->ssl);
    *out = tls;
    return 0;
}

/* What a call that did not get through asks for. */
static int again_or_error(struct rabbit_tls *tls, int result)
{
    switch (SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_WANT_WRITE:
        tls->wants_out = true;
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    case SSL_ERROR_SYSCALL:
        return errno ? -errno : -ECONNRESET;
    default:
        return -EPROTO;
    }
}

int rabbit_tls_handshake(struct rabbit_tls *tls, struct err *err)
{
    tls->wants_out = false;
    ERR_clear_error();
    errno = 0;
    int result = SSL_do_handshake(tls->ssl);
    if (result == 1) {
        return 0;
    }
    int rc = again_or_error(tls, result);
    if (rc == -EAGAIN) {
        return rc;
    }
    long verified = SSL_get_verify_result(tls->ssl);
    if (tls->target->verify_peer && verified != X509_V_OK) {
        return err_set(err, -EACCES,
                       "its certificate is not accepted (%s): name its CA with --rabbit-tls-ca",
                       X509_verify_cert_error_string(verified));
    }
    return err_set(err, -EPROTO, "no TLS can be agreed on (%s): is that its TLS port?", reason());
}

ssize_t rabbit_tls_recv(struct rabbit_tls *tls, void *bytes, size_t len)
{
    size_t got = 0;
    tls->wants_out = false;
    ERR_clear_error();
    errno = 0;
    int result = SSL_read_ex(tls->ssl, bytes, len, &got);
    return result == 1 ? (ssize_t)got : again_or_error(tls, result);
}

ssize_t rabbit_tls_send(struct rabbit_tls *tls, const void *bytes, size_t len)
{
    size_t sent = 0;
    tls->wants_out = false;
    ERR_clear_error();
    errno = 0;
    int result = SSL_write_ex(tls->ssl, bytes, len, &sent);
    if (result == 1) {
        return (ssize_t)sent;
    }
    int rc = again_or_error(tls, result);
    return rc == 0 ? -EPIPE : rc;
}

bool rabbit_tls_wants_out(const struct rabbit_tls *tls)
{
    return tls->wants_out;
}

void rabbit_tls_end(struct rabbit_tls *tls)
{
    if (!tls) {
        return;
    }
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    ERR_clear_error();
    free(tls);
}

#else

int rabbit_tls_start(struct rabbit_tls **tls, const struct rabbit_target *target, int fd,
                     struct err *err)
{
    (void)target;
    (void)fd;
    *tls = NULL;
    return err_set(err, -ENOTSUP,
                   "this build has no TLS: use amqp://, or build where libssl-dev is installed");
}

int rabbit_tls_handshake(struct rabbit_tls *tls, struct err *err)
{
    (void)tls;
    return err_set(err, -ENOTSUP, "this build has no TLS");
}

ssize_t rabbit_tls_recv(struct rabbit_tls *tls, void *bytes, size_t len)
{
    (void)tls;
    (void)bytes;
    (void)len;
    return -ENOTSUP;
}

ssize_t rabbit_tls_send(struct rabbit_tls *tls, const void *bytes, size_t len)
{
    (void)tls;
    (void)bytes;
    (void)len;
    return -ENOTSUP;
}

bool rabbit_tls_wants_out(const struct rabbit_tls *tls)
{
    (void)tls;
    return false;
}

void rabbit_tls_end(struct rabbit_tls *tls)
{
    (void)tls;
}

#endif
