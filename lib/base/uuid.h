/* uuid.h: RFC 9562 UUIDs as 16 bytes in network order and as text. Thread-safe. */
#ifndef SLUICE_BASE_UUID_H
#define SLUICE_BASE_UUID_H

#include <stddef.h>
#include <stdint.h>

enum { UUID_BYTES = 16, UUID_TEXT_BYTES = 37 /* 36 and a NUL */ };

/* Takes exactly 36 characters, 8-4-4-4-12 hexadecimal, either case; any version. -EINVAL otherwise.
 */
int uuid_parse(const char *text, size_t len, uint8_t id[UUID_BYTES]);
char *uuid_format(const uint8_t id[UUID_BYTES], char text[UUID_TEXT_BYTES]); /* lower case */

/* Version 7: 48 bits of unix milliseconds, 74 random bits (RFC 9562, section 5.7). */
void uuid_v7(uint8_t id[UUID_BYTES]);

#endif
