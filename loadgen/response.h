/* response.h: a strict HTTP/1.1 response parser, a pure function of the bytes received so far.
 *
 * Sources: RFC 9112 (message syntax), RFC 9110. Strict means: whatever could be read in two ways is
 * an error, not a guess: bare LF, folded headers, space before a colon, Content-Length that is not
 * all digits or comes twice or beside Transfer-Encoding, any coding but plain chunked. Interim
 * answers (1xx but 101) are skipped.
 */
#ifndef SLUICE_LOADGEN_RESPONSE_H
#define SLUICE_LOADGEN_RESPONSE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

enum {
    RESPONSE_HEAD_MAX = 16 * 1024,     /* bytes of status line and headers */
    RESPONSE_MAX = 1024 * 1024,        /* bytes of a whole response */
    RESPONSE_CHUNKED_KEEP_BYTES = 1024 /* of a chunked body this much is kept */
};

struct response {
    int status;        /* 200 to 599 */
    bool keep_alive;   /* may the connection carry another request? */
    const char *body;  /* points into the input, or into chunked[] */
    size_t body_bytes; /* what body points at; of a chunked one at most the first 1024 bytes */
    char chunked[RESPONSE_CHUNKED_KEEP_BYTES];
};

/* in[0..len) is everything received since the request was sent; eof: the peer has closed.
 * Returns the length of the complete response (<= len), 0 when more bytes are needed, or -EBADMSG
 * when this is, or can become, no valid response; *why is then a static text. out is valid only
 * after a positive return, and its body only as long as in is. */
ssize_t response_parse(const char *in, size_t len, bool eof, struct response *out,
                       const char **why);

#endif
