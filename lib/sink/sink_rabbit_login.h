/* sink_rabbit_login.h: what is said on channel 0, for sink_rabbit_link.c alone. */
#ifndef SLUICE_SINK_SINK_RABBIT_LOGIN_H
#define SLUICE_SINK_SINK_RABBIT_LOGIN_H

#include "sink/sink_rabbit_link.h"

/* A method of channel 0: the login, connection.close, blocked. 0, or negative with problem set. */
int rabbit_login_frame(struct rabbit_link *link, const amqp_frame_t *frame);

/* In sink_rabbit_link.c: writes what the socket takes now, for last words before the end. */
void rabbit_link_say(struct rabbit_link *link);

#endif
