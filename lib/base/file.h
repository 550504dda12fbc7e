/* file.h: the few file operations everybody needs. Errors: negative errno, text names the path. */
#ifndef SLUICE_BASE_FILE_H
#define SLUICE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"

int file_read(const char *path, size_t max_bytes, struct buf *out, struct err *err); /* -EFBIG */
int file_write(const char *path, const void *bytes, size_t len, struct err *err); /* tmp + rename */
int file_mkdirs(const char *path, mode_t mode, struct err *err); /* like mkdir -p */
int file_remove_tree(const char *path, struct err *err);         /* never follows symbolic links */
int file_write_all(int fd, const void *bytes, size_t len); /* goes on after short writes, EINTR */
bool file_exists(const char *path);

#endif
