#include "sink/sink_rabbit_lookup.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

/* Shared by the asker and a detached thread of its own; who lets go last frees it. Not glibc's
 * getaddrinfo_a: ThreadSanitizer cannot follow its threads. */
struct rabbit_lookup {
    pthread_mutex_t mutex;
    bool done, left; /* the thread is done; the asker has left */
    int result;
    struct addrinfo *addresses;
    char *host;
    char port[8];
};

static int ask(const char *host, const char *port, int flags, struct addrinfo **addresses)
{
    struct addrinfo hints = {
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
    *addresses = NULL;
    return getaddrinfo(host, port, &hints, addresses);
}

static void lookup_free(struct rabbit_lookup *lookup)
{
    if (lookup->addresses) {
        freeaddrinfo(lookup->addresses);
    }
    pthread_mutex_destroy(&lookup->mutex);
    free(lookup->host);
    free(lookup);
}

static void *look_up(void *arg)
{
    struct rabbit_lookup *lookup = arg;
    struct addrinfo *addresses;
    int result = ask(lookup->host, lookup->port, 0, &addresses);
    pthread_mutex_lock(&lookup->mutex);
    lookup->result = result;
    lookup->addresses = result == 0 ? addresses : NULL;
    lookup->done = true;
    bool last = lookup->left;
    pthread_mutex_unlock(&lookup->mutex);
    if (last) {
        lookup_free(lookup);
    }
    return NULL;
}

static int start_thread(struct rabbit_lookup *lookup)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all); /* signals are for the threads that expect them */
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&thread, &attributes, look_up, lookup);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return rc;
}

int rabbit_lookup_start(struct rabbit_lookup **out, const char *host, int port,
                        struct addrinfo **addresses, const char **why)
{
    char port_text[8];
    snprintf(port_text, sizeof(port_text), "%d", port);
    *out = NULL;
    if (ask(host, port_text, AI_NUMERICHOST, addresses) == 0) {
        return 0;
    }
    struct rabbit_lookup *lookup = xcalloc(1, sizeof(*lookup));
    pthread_mutex_init(&lookup->mutex, NULL);
    memcpy(lookup->port, port_text, sizeof(port_text));
    lookup->host = xstrdup(host);
    int rc = start_thread(lookup);
    if (rc != 0) {
        *why = strerror(rc);
        lookup_free(lookup);
        return -rc;
    }
    *out = lookup;
    return -EAGAIN;
}

int rabbit_lookup_poll(struct rabbit_lookup **lookup, struct addrinfo **addresses, const char **why)
{
    pthread_mutex_lock(&(*lookup)->mutex);
    bool done = (*lookup)->done;
    int result = (*lookup)->result;
    if (done) {
        *addresses = (*lookup)->addresses;
        (*lookup)->addresses = NULL;
    }
    pthread_mutex_unlock(&(*lookup)->mutex);
    if (!done) {
        return -EAGAIN;
    }
    lookup_free(*lookup);
    *lookup = NULL;
    if (result != 0) {
        *why = gai_strerror(result);
        return -EHOSTUNREACH;
    }
    return 0;
}

void rabbit_lookup_cancel(struct rabbit_lookup **lookup)
{
    if (!*lookup) {
        return;
    }
    pthread_mutex_lock(&(*lookup)->mutex);
    (*lookup)->left = true;
    bool last = (*lookup)->done;
    pthread_mutex_unlock(&(*lookup)->mutex);
    if (last) {
        lookup_free(*lookup);
    }
    *lookup = NULL;
}
