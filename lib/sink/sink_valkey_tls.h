/* sink_valkey_tls.h: TLS for rediss://, where hiredis has it (1.0 and later, hiredis_ssl). */
#ifndef SLUICE_SINK_SINK_VALKEY_TLS_H
#define SLUICE_SINK_SINK_VALKEY_TLS_H

#include "sink/sink_valkey.h"

/* 0; -EINVAL and a sentence when this build has no TLS. */
int valkey_tls_available(struct err *err);
/* Begins TLS on a connected context; certificate and host name are checked. On a blocking one the
 * handshake is done when it returns, else it goes on with what is sent. */
int valkey_tls_begin(const struct valkey_target *target, redisContext *context, struct err *err);

#endif
