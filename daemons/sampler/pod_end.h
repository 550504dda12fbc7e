/* pod_end.h: how a part ended, from what it wrote itself: a part's exit status is told to its
 * parent only, and that is the container engine. */
#ifndef SLUICE_SAMPLER_POD_END_H
#define SLUICE_SAMPLER_POD_END_H

/* Of the newest WHO-N.jsonl in folder (NULL: none), whose last line is a stop event of a process
 * that ended in order: "term" (a signal asked for it), "exit" (it gave up by itself), or NULL when
 * its work was complete, which is no fault. "kill" when there is no such file or no such line. */
const char *pod_end(const char *folder, const char *who);

#endif
