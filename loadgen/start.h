/* start.h: waits for the word that the load may begin, as a file that another process writes. */
#ifndef SLUICE_LOADGEN_START_H
#define SLUICE_LOADGEN_START_H

#include <stdint.h>

#include "base/err.h"

/* Waits until the file is there (whole: it must come by rename) and takes the unix time in
 * microseconds that is its only line. Returns 0; 1 when stop_fd became readable first; -ETIMEDOUT
 * and a sentence after wait_ns; -EINVAL when the file holds something else; what opening it gave.
 */
int start_file_wait(const char *path, int64_t wait_ns, int stop_fd, int64_t *start_us,
                    struct err *err);

#endif
