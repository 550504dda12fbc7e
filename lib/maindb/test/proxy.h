/* proxy.h: one connection to the test's server through a proxy that loses an answer: it hands on
 * whatever comes, the first message with the pattern too, and keeps what the server says to that
 * for itself; then both sides are cut. So the server has done what was asked, and the client cannot
 * know. */
#ifndef SLUICE_MAINDB_PROXY_H
#define SLUICE_MAINDB_PROXY_H

#include <pthread.h>
#include <stddef.h>

#include "testdb.h"

struct proxy {
    char *url; /* for the client */
    const char *pattern;
    size_t pattern_bytes;
    pthread_t thread;
    int listener;
    int server_port;
    int lost;
};

void proxy_start(struct proxy *proxy, const struct testdb *db, const char *pattern,
                 size_t pattern_bytes);
int proxy_end(struct proxy *proxy); /* after the client saw the cut; how many answers were lost */

#endif
