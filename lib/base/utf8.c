#include "base/utf8.h"

#include <stdbool.h>

static bool between(unsigned char byte, unsigned char low, unsigned char high)
{
    return byte >= low && byte <= high;
}

size_t utf8_length(const char *text, size_t len)
{
    const unsigned char *b = (const unsigned char *)text;
    if (len == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    size_t want;
    unsigned char low = 0x80, high = 0xbf; /* what the second byte may be */
    if (between(b[0], 0xc2, 0xdf)) {
        want = 2;
    } else if (between(b[0], 0xe0, 0xef)) {
        want = 3;
        if (b[0] == 0xe0)
            low = 0xa0;
        if (b[0] == 0xed)
            high = 0x9f;
    } else if (between(b[0], 0xf0, 0xf4)) {
        want = 4;
        if (b[0] == 0xf0)
            low = 0x90;
        if (b[0] == 0xf4)
            high = 0x8f;
    } else {
        return 0;
    }
    if (len < want || !between(b[1], low, high))
        return 0;
    for (size_t i = 2; i < want; i++)
        if (!between(b[i], 0x80, 0xbf))
            return 0;
    return want;
}
