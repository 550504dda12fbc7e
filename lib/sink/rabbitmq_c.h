/* rabbitmq_c.h: the headers of rabbitmq-c, which have another place from version 0.12 on. */
#ifndef SLUICE_SINK_RABBITMQ_C_H
#define SLUICE_SINK_RABBITMQ_C_H

#if __has_include(<rabbitmq-c/amqp.h>)
#include <rabbitmq-c/amqp.h>
#include <rabbitmq-c/framing.h>
#include <rabbitmq-c/tcp_socket.h>
#else
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#endif

#endif
