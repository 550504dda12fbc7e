#include "sink/sink_rabbit_lookup.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct rabbit_lookup {
    struct gaicb request;
    struct addrinfo hints;
    char *host;
    char port[8];
};

static void set_hints(struct addrinfo *hints, int flags)
{
    memset(hints, 0, sizeof(*hints));
    hints->ai_family = AF_UNSPEC;
    hints->ai_socktype = SOCK_STREAM;
    hints->ai_flags = flags | AI_NUMERICSERV;
}

static void lookup_free(struct rabbit_lookup *lookup)
{
    free(lookup->host);
    free(lookup);
}

int rabbit_lookup_start(struct rabbit_lookup **out, const char *host, int port,
                        struct addrinfo **addresses, const char **why)
{
    struct addrinfo hints;
    char port_text[16];
    snprintf(port_text, sizeof(port_text), "%d", port);
    set_hints(&hints, AI_NUMERICHOST);
    *out = NULL;
    if (getaddrinfo(host, port_text, &hints, addresses) == 0) {
        return 0;
    }
    struct rabbit_lookup *lookup = xcalloc(1, sizeof(*lookup));
    snprintf(lookup->port, sizeof(lookup->port), "%d", port);
    set_hints(&lookup->hints, 0);
    lookup->host = xstrdup(host);
    lookup->request.ar_name = lookup->host;
    lookup->request.ar_service = lookup->port;
    lookup->request.ar_request = &lookup->hints;
    struct gaicb *requests[1] = {&lookup->request};
    /* glibc's own thread waits for the resolver; nobody else has to. */
    int rc = getaddrinfo_a(GAI_NOWAIT, requests, 1, NULL);
    if (rc != 0) {
        *why = gai_strerror(rc);
        lookup_free(lookup);
        return -EHOSTUNREACH;
    }
    *out = lookup;
    return -EAGAIN;
}

int rabbit_lookup_poll(struct rabbit_lookup **lookup, struct addrinfo **addresses, const char **why)
{
    int rc = gai_error(&(*lookup)->request);
    if (rc == EAI_INPROGRESS) {
        return -EAGAIN;
    }
    *addresses = (*lookup)->request.ar_result;
    lookup_free(*lookup);
    *lookup = NULL;
    if (rc != 0) {
        *why = gai_strerror(rc);
        return -EHOSTUNREACH;
    }
    return 0;
}

void rabbit_lookup_cancel(struct rabbit_lookup **lookup)
{
    if (!*lookup) {
        return;
    }
    int rc = gai_cancel(&(*lookup)->request);
    if (rc == EAI_ALLDONE && (*lookup)->request.ar_result) {
        freeaddrinfo((*lookup)->request.ar_result);
    }
    /* Not to be cancelled: the resolver's thread still writes into it, so it is left to it. */
    if (rc != EAI_NOTCANCELED) {
        lookup_free(*lookup);
    }
    *lookup = NULL;
}
