/* url_password.h: where in a URL its password stands. */
#ifndef SLUICE_BASE_URL_PASSWORD_H
#define SLUICE_BASE_URL_PASSWORD_H

#include <stdbool.h>
#include <stddef.h>

/* The part of a URL that is its password, or may be: from the first ':' after "//" to the LAST '@',
 * since a password with a raw '/', '@' or '?' in it would go on where a parser thinks of host and
 * path. It rather takes too much than too little. Returns the length, and *begin; 0: there is none.
 */
size_t url_password(const char *url, const char **begin);

/* Does every reader take the URL's password for the same? Only without raw characters that have a
 * meaning of their own in a URL; true also when there is no password. */
bool url_password_is_safe(const char *url);

#endif
