/* framing.h: is it certain where this request ends?
 *
 * libmicrohttpd 0.9.75 accepts requests whose end two parties may see at different places (request
 * smuggling): Transfer-Encoding beside Content-Length, a second Content-Length, "Content-Length :"
 * (which it ignores), unknown transfer codings. Such a request is refused and its connection closed
 * (RFC 9112, sections 3.2, 5.1, 6.1, 6.3).
 *
 * Feed every header, then ask. Pure; no allocation; any thread.
 */
#ifndef SLUICE_API_FRAMING_H
#define SLUICE_API_FRAMING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct framing {
    const char *fault; /* static sentence; NULL while nothing is wrong */
    unsigned hosts, content_lengths, transfer_encodings;
    bool chunked;
    bool expects_continue;
    bool json;          /* the Content-Type is application/json */
    bool coded;         /* a Content-Encoding other than identity */
    int64_t body_bytes; /* of Content-Length; INT64_MAX when larger; 0 without */
};

void framing_header(struct framing *framing, const char *name, size_t name_bytes, const char *value,
                    size_t value_bytes);

/* After the last header. version: "HTTP/1.1". Returns the fault, or NULL. */
const char *framing_end(struct framing *framing, const char *version);

#endif
