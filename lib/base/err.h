/* err.h: what went wrong, for a person.
 *
 * Functions that can fail return 0 (or a count) on success and a negative errno otherwise; those
 * that a user can make fail also fill a struct err with one sentence: what was wrong, where, and
 * what to do about it. A struct err belongs to its caller, usually on the stack; NULL is allowed
 * everywhere and means that the text is not wanted. Threads: a struct err has no state beyond
 * itself.
 */
#ifndef SLUICE_BASE_ERR_H
#define SLUICE_BASE_ERR_H

struct err {
    int code;       /* negative errno, 0 while nothing is wrong */
    char text[512]; /* one sentence without a newline; cut with "..." when longer */
};

/* Sets code and text; returns code, so that "return err_set(err, -EINVAL, ...)" reads well. */
int err_set(struct err *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text that is there; returns the code that is there. */
int err_prefix(struct err *err, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
