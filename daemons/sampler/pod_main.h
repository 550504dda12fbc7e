/* pod_main.h: sluice-sampler --pod=WHO: the process 1 of a pod (pod.h). One thread.
 *
 * With --metrics=DIR/ it waits until that folder is there, and when DIR is a link that comes to
 * point elsewhere, it goes on there, in a file of its own: a pod is there before its part's run,
 * and may outlive it. */
#ifndef SLUICE_SAMPLER_POD_MAIN_H
#define SLUICE_SAMPLER_POD_MAIN_H

#include "base/options.h"

/* Runs until SIGTERM or SIGINT; returns the exit status: 0, 2 for a mistake in the options, 3 when
 * something cannot be used. Says on stderr what is wrong. */
int pod_main(const struct options *options);

#endif
