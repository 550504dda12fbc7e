#include "base/err.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

/* One sentence on one line, whatever a server said that is quoted in it: no byte of it may move the
 * cursor of a terminal. */
static void make_printable(char *text)
{
    size_t left = strlen(text);
    for (size_t length; left > 0; text += length, left -= length) {
        length = utf8_length(text, left);
        bool control = (unsigned char)*text < 32 || *text == 127 ||
                       (length == 2 && text[0] == '\xc2' && (unsigned char)text[1] < 0xa0);
        if (length == 0) {
            length = 1;
            *text = '?';
        } else if (control) {
            bool blank = *text == '\n' || *text == '\r' || *text == '\t';
            memset(text, blank ? ' ' : '?', length);
        }
    }
}

__attribute__((format(printf, 3, 0))) static void put(char *text, size_t size, const char *format,
                                                      va_list args)
{
    int wanted = vsnprintf(text, size, format, args);
    if (wanted >= (int)size)
        memcpy(text + size - 4, "...", 4);
    make_printable(text);
    size_t len = strlen(text);
    while (len > 0 && text[len - 1] == ' ')
        text[--len] = '\0';
}

int err_set(struct err *err, int code, const char *format, ...)
{
    if (!err)
        return code;
    struct err fresh = {.code = code}; /* format's arguments may point into err->text */
    va_list args;
    va_start(args, format);
    put(fresh.text, sizeof(fresh.text), format, args);
    va_end(args);
    *err = fresh;
    return code;
}

int err_prefix(struct err *err, const char *format, ...)
{
    if (!err)
        return 0;
    char context[sizeof(err->text)];
    va_list args;
    va_start(args, format);
    put(context, sizeof(context), format, args);
    va_end(args);
    char old[sizeof(err->text)];
    memcpy(old, err->text, sizeof(old));
    return err_set(err, err->code, "%s: %s", context, old);
}
