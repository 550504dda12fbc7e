/* hostport.h: "127.0.0.1:8080", "[::1]:8080", "localhost:8080" -> a listening socket. */
#ifndef SLUICE_COMMON_HOSTPORT_H
#define SLUICE_COMMON_HOSTPORT_H

#include <sys/socket.h>

#include "base/err.h"

struct hostport {
    struct sockaddr_storage address;
    socklen_t address_bytes;
    char text[96]; /* as numbers: "127.0.0.1:8080" */
};

/* Host and port are both required; port 0 lets the kernel choose. A name is looked up, and its
 * first address counts. -EINVAL and a sentence that quotes the text. */
int hostport_parse(const char *text, struct hostport *hostport, struct err *err);

/* A non-blocking listening socket. hostport is updated with the port that was really taken. flag
 * names the setting in the sentence ("listen": use another --listen). Negative errno otherwise. */
int hostport_listen(struct hostport *hostport, const char *flag, struct err *err);

#endif
