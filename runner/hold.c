#include "hold.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"

struct hold {
    const struct sink_driver *driver;
    struct sink_hold *inner; /* the thread's, while there is one */
    pthread_t thread;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t change;
    bool ending;
    struct err lost; /* code 0: it is not */
};

static void nap(struct hold *hold)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    while (!hold->ending && pthread_cond_clockwait(&hold->change, &hold->mutex, CLOCK_MONOTONIC,
                                                   &until) != ETIMEDOUT) {
    }
}

static void *keep(void *arg)
{
    struct hold *hold = arg;
    pthread_mutex_lock(&hold->mutex);
    while (!hold->ending && hold->lost.code == 0) {
        struct err err = {0};
        nap(hold);
        pthread_mutex_unlock(&hold->mutex);
        int rc = hold->driver->hold_keep(hold->inner, &err);
        pthread_mutex_lock(&hold->mutex);
        if (rc == -EBUSY) {
            hold->lost = err;
        }
    }
    pthread_mutex_unlock(&hold->mutex);
    return NULL;
}

int hold_take(struct hold **out, const struct sink_driver *driver, const struct options *options,
              struct err *err)
{
    *out = NULL;
    if (!driver->hold) {
        return 0;
    }
    struct hold *hold = xcalloc(1, sizeof(*hold));
    hold->driver = driver;
    int rc = driver->hold(&hold->inner, options, err);
    if (rc < 0) {
        free(hold);
        return rc;
    }
    pthread_mutex_init(&hold->mutex, NULL);
    pthread_cond_init(&hold->change, NULL);
    sigset_t all, old; /* signals are for the thread that sleeps until they come */
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    rc = pthread_create(&hold->thread, NULL, keep, hold);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (rc > 0) {
        driver->hold_end(hold->inner);
        free(hold);
        return err_set(err, -rc, "no thread can be started: %s", strerror(rc));
    }
    *out = hold;
    return 0;
}

int hold_check(struct hold *hold, struct err *err)
{
    if (!hold) {
        return 0;
    }
    pthread_mutex_lock(&hold->mutex);
    struct err lost = hold->lost;
    pthread_mutex_unlock(&hold->mutex);
    return lost.code == 0 ? 0
                          : err_set(err, lost.code,
                                    "sink %s: its server was away, and another sluice has taken it "
                                    "since: the run is void (%s)",
                                    hold->driver->name, lost.text);
}

void hold_release(struct hold *hold)
{
    if (!hold) {
        return;
    }
    pthread_mutex_lock(&hold->mutex);
    hold->ending = true;
    pthread_cond_signal(&hold->change);
    pthread_mutex_unlock(&hold->mutex);
    pthread_join(hold->thread, NULL);
    hold->driver->hold_end(hold->inner);
    pthread_mutex_destroy(&hold->mutex);
    pthread_cond_destroy(&hold->change);
    free(hold);
}
