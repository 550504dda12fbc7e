/* json.h: a strict check to run before a lenient parser (cJSON takes trailing text, raw control
 * bytes and bad UTF-8, and cuts strings at \u0000). Source: RFC 8259, RFC 3629. Thread-safe. */
#ifndef SLUICE_BASE_JSON_H
#define SLUICE_BASE_JSON_H

#include <stddef.h>

#include "base/err.h"

enum { JSON_DEPTH_MAX = 64 };

/* 0 when text is exactly one RFC 8259 value (white space around it allowed), in valid UTF-8 (no
 * surrogates, no overlong forms), with no \u0000 and no lone surrogate escape, nested at most
 * JSON_DEPTH_MAX deep. Otherwise -EINVAL and a sentence with the byte offset. No allocation. */
int json_check(const char *text, size_t len, struct err *err);

#endif
