/* valkey_server.h: the real server that tests of the sink valkey use: where it is, a plain
 * connection to it, and orders to whoever started it. */
#ifndef SLUICE_SINK_TEST_VALKEY_SERVER_H
#define SLUICE_SINK_TEST_VALKEY_SERVER_H

#include <hiredis/hiredis.h>

/* SLUICE_TEST_VALKEY_URL, NULL when it is not set. The URL is redis://:PASSWORD@127.0.0.1:PORT/0.
 */
const char *valkey_server_url(void);
int valkey_server_port(void);
const char *valkey_server_password(void);  /* static */
redisContext *valkey_server_connect(void); /* authenticated; NULL when it is not there */

#endif
