/* sink_rabbit_lookup.h: a host's addresses without waiting for the resolver. One thread for each.
 */
#ifndef SLUICE_SINK_SINK_RABBIT_LOOKUP_H
#define SLUICE_SINK_SINK_RABBIT_LOOKUP_H

#include <netdb.h>

struct rabbit_lookup;

/* 0: *addresses is there (freeaddrinfo). -EAGAIN: *lookup is under way. Other: *why says why. */
int rabbit_lookup_start(struct rabbit_lookup **lookup, const char *host, int port,
                        struct addrinfo **addresses, const char **why);
/* The same; ends the lookup unless it is still under way. */
int rabbit_lookup_poll(struct rabbit_lookup **lookup, struct addrinfo **addresses,
                       const char **why);
void rabbit_lookup_cancel(struct rabbit_lookup **lookup);

#endif
