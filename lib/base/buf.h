/* buf.h: a growing byte buffer.
 *
 * Zero-initialise ({0}); free with buf_free. data is always followed by a NUL byte that len does
 * not count (data is NULL while nothing was ever appended). Out of memory ends the process with a
 * message: no caller could do better. Not thread-safe.
 */
#ifndef SLUICE_BASE_BUF_H
#define SLUICE_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>

struct buf {
    char *data;
    size_t len; /* bytes in use */
    size_t cap; /* bytes allocated */
};

void buf_reserve(struct buf *buf, size_t extra_bytes); /* room for len + extra_bytes + NUL */
void buf_append(struct buf *buf, const void *bytes, size_t len);
void buf_puts(struct buf *buf, const char *text);
void buf_putc(struct buf *buf, char byte);
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *buf, const char *format, va_list args)
    __attribute__((format(printf, 2, 0)));

/* Appends text as a JSON string with its quotes. Control bytes and invalid UTF-8 come out escaped
 * (an invalid byte as \ufffd), so the result is always valid JSON on one line. */
void buf_json_string(struct buf *buf, const char *text, size_t len);

void buf_clear(struct buf *buf); /* len = 0, keeps the memory */
void buf_free(struct buf *buf);

/* Allocation that never fails: ends the process with a message instead. */
void *xmalloc(size_t bytes);
void *xcalloc(size_t count, size_t bytes);
void *xrealloc(void *old, size_t bytes);
char *xstrdup(const char *text);
char *xasprintf(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
