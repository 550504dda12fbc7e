#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

__attribute__((format(printf, 3, 0))) static void put(char *text, size_t size, const char *format,
                                                      va_list args)
{
    int wanted = vsnprintf(text, size, format, args);
    if (wanted >= (int)size)
        memcpy(text + size - 4, "...", 4);
    /* One sentence on one line, also when a server's message is quoted in it. */
    for (char *c = text; *c; c++)
        if (*c == '\n' || *c == '\r' || *c == '\t')
            *c = ' ';
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
