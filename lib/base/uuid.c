#include "base/uuid.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int uuid_parse(const char *text, size_t len, uint8_t id[UUID_BYTES])
{
    if (len != UUID_TEXT_BYTES - 1)
        return -EINVAL;
    size_t at = 0;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            if (text[at++] != '-')
                return -EINVAL;
        int high = hex_digit(text[at]);
        int low = high < 0 ? -1 : hex_digit(text[at + 1]);
        if (low < 0)
            return -EINVAL;
        id[i] = (uint8_t)(high << 4 | low);
        at += 2;
    }
    return 0;
}

char *uuid_format(const uint8_t id[UUID_BYTES], char text[UUID_TEXT_BYTES])
{
    static const char digits[] = "0123456789abcdef";
    char *out = text;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *out++ = '-';
        *out++ = digits[id[i] >> 4];
        *out++ = digits[id[i] & 15];
    }
    *out = '\0';
    return text;
}

void uuid_v7(uint8_t id[UUID_BYTES])
{
    /* getrandom of up to 256 bytes is not interrupted once the pool is ready; a short answer during
     * early boot is filled up by asking again. */
    size_t have = 0;
    while (have < UUID_BYTES) {
        ssize_t got = getrandom(id + have, UUID_BYTES - have, 0);
        if (got > 0)
            have += (size_t)got;
    }
    uint64_t ms = (uint64_t)clock_wall_us() / 1000;
    for (int i = 0; i < 6; i++)
        id[i] = (uint8_t)(ms >> (40 - 8 * i));
    id[6] = (uint8_t)(0x70 | (id[6] & 0x0f));
    id[8] = (uint8_t)(0x80 | (id[8] & 0x3f));
}
