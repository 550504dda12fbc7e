/* netdiag.h: bytes that each part sent and received over TCP, by the owners of its sockets.
 *
 * Linux keeps no such figure for a process, but one for each socket (sock_diag(7), INET_DIAG_INFO:
 * tcpi_bytes_acked, tcpi_bytes_received); a process's sockets are those in /proc/PID/fd. Looked at
 * from time to time, so these are lower bounds: what a connection carried after the last look
 * before it was closed is not seen, nor is one that was opened and closed between two looks. Unix
 * sockets and UDP are not counted. Loopback counts at both ends.
 *
 * One thread.
 */
#ifndef SLUICE_SAMPLER_NETDIAG_H
#define SLUICE_SAMPLER_NETDIAG_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

/* For the start event: what the figures mean. */
extern const char netdiag_note[];

struct netdiag_socket {
    uint64_t cookie;             /* the kernel's name for a socket, never used twice in a boot */
    uint64_t inode;              /* 0: belongs to no process (not accepted yet, or closed) */
    uint64_t rx_bytes, tx_bytes; /* so far */
};

struct netdiag_totals {
    uint64_t rx_bytes, tx_bytes;
};

struct netdiag_owner { /* one part, as it is now */
    const pid_t *pids;
    size_t count;
    uint64_t generation; /* changes when a process joins */
};

/* --- the kernel's side --- */

/* All TCP sockets, IPv4 and IPv6; *sockets is the caller's to free. Negative errno and a sentence
 * when the kernel does not tell. */
int netdiag_dump(struct netdiag_socket **sockets, size_t *count, struct err *err);

/* Reads one netlink datagram of an answer. 1: more to come, 0: it was the last, negative errno. */
int netdiag_parse(const void *datagram, size_t len, struct netdiag_socket **sockets, size_t *count,
                  size_t *capacity);

/* --- the books --- */

struct netdiag;
struct netdiag *netdiag_new(const char *proc_root, size_t owners); /* keeps the pointer */
void netdiag_free(struct netdiag *netdiag);

/* Takes a dump into the totals of each owner. */
void netdiag_update(struct netdiag *netdiag, const struct netdiag_socket *sockets, size_t count,
                    const struct netdiag_owner *owners);
const struct netdiag_totals *netdiag_totals(const struct netdiag *netdiag, size_t owner);

#endif
