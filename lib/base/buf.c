#include "base/buf.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static _Noreturn void out_of_memory(size_t bytes)
{
    fprintf(stderr, "out of memory: %zu bytes could not be had; give the process more\n", bytes);
    abort();
}

void *xmalloc(size_t bytes)
{
    void *memory = malloc(bytes ? bytes : 1);
    if (!memory)
        out_of_memory(bytes);
    return memory;
}

void *xcalloc(size_t count, size_t bytes)
{
    void *memory = calloc(count ? count : 1, bytes ? bytes : 1);
    if (!memory)
        out_of_memory(count * bytes);
    return memory;
}

void *xrealloc(void *old, size_t bytes)
{
    void *memory = realloc(old, bytes ? bytes : 1);
    if (!memory)
        out_of_memory(bytes);
    return memory;
}

char *xstrdup(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(xmalloc(bytes), text, bytes);
}

char *xasprintf(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int len = vasprintf(&text, format, args);
    va_end(args);
    if (len < 0)
        out_of_memory(0);
    return text;
}

void buf_reserve(struct buf *buf, size_t extra_bytes)
{
    if (extra_bytes > SIZE_MAX / 4 || buf->len > SIZE_MAX / 4)
        out_of_memory(extra_bytes);
    size_t wanted = buf->len + extra_bytes + 1;
    if (wanted <= buf->cap)
        return;
    size_t cap = buf->cap ? buf->cap : 64;
    while (cap < wanted)
        cap *= 2;
    buf->data = xrealloc(buf->data, cap);
    buf->cap = cap;
}

void buf_append(struct buf *buf, const void *bytes, size_t len)
{
    buf_reserve(buf, len);
    if (len)
        memcpy(buf->data + buf->len, bytes, len);
    buf->len += len;
    buf->data[buf->len] = '\0';
}

void buf_puts(struct buf *buf, const char *text)
{
    buf_append(buf, text, strlen(text));
}

void buf_putc(struct buf *buf, char byte)
{
    buf_append(buf, &byte, 1);
}

void buf_vprintf(struct buf *buf, const char *format, va_list args)
{
    va_list again;
    va_copy(again, args);
    buf_reserve(buf, 0);
    size_t room = buf->cap - buf->len;
    int len = vsnprintf(buf->data + buf->len, room, format, args);
    if (len < 0)
        out_of_memory(0);
    if ((size_t)len >= room) {
        buf_reserve(buf, (size_t)len);
        vsnprintf(buf->data + buf->len, (size_t)len + 1, format, again);
    }
    va_end(again);
    buf->len += (size_t)len;
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    buf_vprintf(buf, format, args);
    va_end(args);
}

static void json_byte(struct buf *buf, unsigned char byte)
{
    switch (byte) {
    case '"':
        buf_puts(buf, "\\\"");
        break;
    case '\\':
        buf_puts(buf, "\\\\");
        break;
    case '\n':
        buf_puts(buf, "\\n");
        break;
    case '\r':
        buf_puts(buf, "\\r");
        break;
    case '\t':
        buf_puts(buf, "\\t");
        break;
    default:
        buf_printf(buf, "\\u%04x", byte);
    }
}

void buf_json_string(struct buf *buf, const char *text, size_t len)
{
    buf_reserve(buf, len + 2);
    buf_putc(buf, '"');
    size_t plain = 0; /* start of the run that needs no escaping */
    size_t i = 0;
    while (i < len) {
        unsigned char byte = (unsigned char)text[i];
        size_t step = byte < 0x80 ? 1 : utf8_length(text + i, len - i);
        if (step > 0 && byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f) {
            i += step;
            continue;
        }
        buf_append(buf, text + plain, i - plain);
        if (step == 0)
            buf_puts(buf, "\\ufffd");
        else
            json_byte(buf, byte);
        plain = ++i;
    }
    buf_append(buf, text + plain, len - plain);
    buf_putc(buf, '"');
}

void buf_clear(struct buf *buf)
{
    buf->len = 0;
    if (buf->data)
        buf->data[0] = '\0';
}

void buf_free(struct buf *buf)
{
    free(buf->data);
    *buf = (struct buf){0};
}
