/* utf8.h: well-formed UTF-8 by the table of RFC 3629, section 4. Thread-safe. */
#ifndef SLUICE_BASE_UTF8_H
#define SLUICE_BASE_UTF8_H

#include <stddef.h>

/* Bytes (1..4) of the well-formed character that text starts with; 0 when it is none: an overlong
 * form, a surrogate, above U+10FFFF, cut short, or len 0. */
size_t utf8_length(const char *text, size_t len);

#endif
