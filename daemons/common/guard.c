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

enum { TCP_CLOSE_WAIT_STATE = 8 }; /* of the kernel's TCP states; linux/tcp.h does not name them */

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

static void enter(struct guarded *connection, enum guarded_state state, int64_t since_ns)
{
    connection->state = state;
    connection->since_ns = since_ns;
    connection->fresh = true;
    connection->half_closed = false;
}

void guard_between(struct guarded *connection)
{
    enter(connection, GUARDED_BETWEEN, 0);
}

void guard_body(struct guarded *connection, int64_t now_ns)
{
    enter(connection, GUARDED_BODY, now_ns);
}

void guard_waiting(struct guarded *connection)
{
    enter(connection, GUARDED_WAITING, 0);
}

enum verdict { LEAVE, LATE, GONE };

static enum verdict judge(struct guard *guard, struct guarded *connection, int64_t now_ns)
{
    struct tcp_info info = {0};
    socklen_t info_bytes = sizeof(info);
    if (connection->state == GUARDED_WAITING ||
        getsockopt(connection->fd, IPPROTO_TCP, TCP_INFO, &info, &info_bytes) < 0) {
        return LEAVE;
    }
    if (connection->since_ns > 0 && now_ns - connection->since_ns >= guard->request_ns) {
        return LATE;
    }
    if (info.tcpi_state == TCP_CLOSE_WAIT_STATE) {
        /* Seen twice, so MHD has had its time to read what came before the end. */
        if (connection->half_closed) {
            return GONE;
        }
        connection->half_closed = true;
    }
    if (connection->state == GUARDED_BETWEEN && connection->since_ns == 0) {
        if (connection->fresh) {
            connection->bytes_seen = info.tcpi_bytes_received;
        } else if (info.tcpi_bytes_received > connection->bytes_seen) {
            connection->since_ns = now_ns;
        }
        connection->fresh = false;
    }
    return LEAVE;
}

size_t guard_sweep(struct guard *guard, int64_t now_ns)
{
    size_t late = 0;
    for (struct guarded *connection = guard->first; connection; connection = connection->next) {
        enum verdict verdict = connection->shut ? LEAVE : judge(guard, connection, now_ns);
        if (verdict != LEAVE) {
            connection->shut = true;
            shutdown(connection->fd, SHUT_RDWR);
            late += verdict == LATE;
        }
    }
    return late;
}
