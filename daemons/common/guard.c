/* guard.c: how a header that trickles in is told from an idle connection.
 *
 * MHD does not say when the first byte of a request came. The kernel does (tcpi_bytes_received),
 * and it is asked only in a sweep and only for connections that have completed no request since the
 * sweep before, so a busy connection costs nothing.
 */
#include "common/guard.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

void guard_init(struct guard *guard, int64_t request_ns)
{
    memset(guard, 0, sizeof(*guard));
    guard->request_ns = request_ns;
}

void guard_add(struct guard *guard, struct guarded *connection, int fd)
{
    memset(connection, 0, sizeof(*connection));
    connection->fd = fd;
    connection->state = GUARDED_BETWEEN; /* not fresh: it has received nothing, bytes_seen = 0 */
    connection->next = guard->first;
    if (guard->first) {
        guard->first->previous = connection;
    }
    guard->first = connection;
    guard->count++;
}

void guard_remove(struct guard *guard, struct guarded *connection)
{
    if (connection->previous) {
        connection->previous->next = connection->next;
    } else {
        guard->first = connection->next;
    }
    if (connection->next) {
        connection->next->previous = connection->previous;
    }
    guard->count--;
}

void guard_between(struct guarded *connection)
{
    connection->state = GUARDED_BETWEEN;
    connection->fresh = true;
    connection->since_ns = 0;
}

void guard_body(struct guarded *connection, int64_t now_ns)
{
    connection->state = GUARDED_BODY;
    connection->since_ns = now_ns;
}

void guard_waiting(struct guarded *connection)
{
    connection->state = GUARDED_WAITING;
}

static uint64_t bytes_received(int fd)
{
    struct tcp_info info = {0};
    socklen_t info_bytes = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) < 0) {
        return 0;
    }
    return info.tcpi_bytes_received;
}

static bool is_late(struct guard *guard, struct guarded *connection, int64_t now_ns)
{
    switch (connection->state) {
    case GUARDED_WAITING:
        return false;
    case GUARDED_BODY:
        return now_ns - connection->since_ns >= guard->request_ns;
    case GUARDED_BETWEEN:
        break;
    }
    if (connection->fresh) {
        connection->fresh = false;
        connection->bytes_seen = bytes_received(connection->fd);
        return false;
    }
    if (connection->since_ns == 0) {
        if (bytes_received(connection->fd) > connection->bytes_seen) {
            connection->since_ns = now_ns;
        }
        return false;
    }
    return now_ns - connection->since_ns >= guard->request_ns;
}

size_t guard_sweep(struct guard *guard, int64_t now_ns)
{
    size_t shut = 0;
    for (struct guarded *connection = guard->first; connection; connection = connection->next) {
        if (!connection->shut && is_late(guard, connection, now_ns)) {
            connection->shut = true;
            shutdown(connection->fd, SHUT_RDWR);
            shut++;
        }
    }
    return shut;
}
