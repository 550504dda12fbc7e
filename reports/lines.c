#include "lines.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"

int lines_open(struct lines *lines, const char *path, struct err *err)
{
    memset(lines, 0, sizeof(*lines));
    struct stat info;
    if (stat(path, &info) < 0) {
        int code = -errno;
        return err_set(err, code, "cannot read %s: %s", path, strerror(-code));
    }
    /* A FIFO in a run folder would block us for ever. */
    if (!S_ISREG(info.st_mode))
        return err_set(err, -EINVAL, "cannot read %s: it is not a regular file", path);
    lines->file = fopen(path, "re");
    if (!lines->file) {
        int code = -errno;
        return err_set(err, code, "cannot read %s: %s", path, strerror(-code));
    }
    setvbuf(lines->file, NULL, _IOFBF, 256 * 1024);
    lines->path = xstrdup(path);
    lines->capacity = 64 * 1024;
    lines->line = xmalloc(lines->capacity);
    return 0;
}

/* Appends up to the newline; false at the end of the file. fgets is no use: NUL bytes. */
static bool read_rest_of_line(struct lines *lines)
{
    int byte;
    while ((byte = getc_unlocked(lines->file)) != EOF) {
        if (byte == '\n') {
            lines->ended = true;
            return true;
        }
        if (lines->len + 1 >= lines->capacity) {
            if (lines->capacity >= LINE_BYTES_MAX) {
                lines->too_long = true;
                continue;
            }
            lines->capacity *= 2;
            lines->line = xrealloc(lines->line, lines->capacity);
        }
        lines->line[lines->len++] = (char)byte;
    }
    return false;
}

int lines_next(struct lines *lines, struct err *err)
{
    lines->len = 0;
    lines->ended = false;
    lines->too_long = false;
    bool newline = read_rest_of_line(lines);
    lines->line[lines->len] = '\0';
    if (ferror(lines->file)) {
        int code = errno ? -errno : -EIO;
        return err_set(err, code, "cannot read on in %s after line %lld: %s", lines->path,
                       (long long)lines->number, strerror(-code));
    }
    if (!newline && lines->len == 0)
        return 0;
    lines->number++;
    return 1;
}

void lines_close(struct lines *lines)
{
    if (lines->file)
        fclose(lines->file);
    free(lines->path);
    free(lines->line);
    memset(lines, 0, sizeof(*lines));
}

size_t lines_split(struct lines *lines, char *field[], size_t max)
{
    if (memchr(lines->line, '\0', lines->len))
        return 0;
    size_t count = 0;
    for (char *at = lines->line;;) {
        if (count < max)
            field[count] = at;
        count++;
        char *tab = strchr(at, '\t');
        if (!tab)
            return count;
        *tab = '\0';
        at = tab + 1;
    }
}

void array_grow(void **items, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity)
        return;
    *capacity = *capacity ? *capacity * 2 : 16;
    *items = xrealloc(*items, *capacity * item_bytes);
}

bool parse_int64(const char *text, int64_t *value)
{
    const char *digits = *text == '-' ? text + 1 : text;
    if (*digits < '0' || *digits > '9')
        return false;
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    if (errno || *end)
        return false;
    *value = parsed;
    return true;
}
