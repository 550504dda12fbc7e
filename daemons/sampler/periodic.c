#include "periodic.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"

struct periodic {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping;
    bool ended;
    periodic_work_fn *work;
    void *arg;
};

static struct timespec timespec_of(int64_t mono_ns)
{
    return (struct timespec){.tv_sec = mono_ns / NS_PER_S, .tv_nsec = mono_ns % NS_PER_S};
}

static void *run(void *arg)
{
    struct periodic *periodic = arg;
    bool last = false;
    for (;;) {
        int64_t wait_ns = periodic->work(periodic->arg);
        if (last)
            break;
        struct timespec until = timespec_of(clock_mono_ns() + (wait_ns > 0 ? wait_ns : 0));
        pthread_mutex_lock(&periodic->lock);
        int rc = 0;
        while (!periodic->stopping && rc == 0)
            rc = pthread_cond_timedwait(&periodic->changed, &periodic->lock, &until);
        last = periodic->stopping;
        pthread_mutex_unlock(&periodic->lock);
    }
    pthread_mutex_lock(&periodic->lock);
    periodic->ended = true;
    pthread_cond_broadcast(&periodic->changed);
    pthread_mutex_unlock(&periodic->lock);
    return NULL;
}

int periodic_start(struct periodic **periodic, periodic_work_fn *work, void *arg, struct err *err)
{
    struct periodic *made = xcalloc(1, sizeof(*made));
    made->work = work;
    made->arg = arg;
    pthread_mutex_init(&made->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&made->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    int rc = pthread_create(&made->thread, NULL, run, made);
    if (rc != 0) {
        free(made);
        return err_set(err, -rc, "cannot start a thread: %s", strerror(rc));
    }
    *periodic = made;
    return 0;
}

bool periodic_stop(struct periodic *periodic, int64_t deadline_ns)
{
    if (!periodic)
        return true;
    struct timespec until = timespec_of(deadline_ns);
    pthread_mutex_lock(&periodic->lock);
    periodic->stopping = true;
    pthread_cond_broadcast(&periodic->changed);
    int rc = 0;
    while (!periodic->ended && rc == 0)
        rc = pthread_cond_timedwait(&periodic->changed, &periodic->lock, &until);
    bool ended = periodic->ended;
    pthread_mutex_unlock(&periodic->lock);
    if (!ended)
        return false;
    pthread_join(periodic->thread, NULL);
    pthread_cond_destroy(&periodic->changed);
    pthread_mutex_destroy(&periodic->lock);
    free(periodic);
    return true;
}
