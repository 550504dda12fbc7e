#include "netdiag.h"

#include <dirent.h>
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

/* After the ones above: <linux/tcp.h> and <netinet/tcp.h> both define struct tcp_info, and only the
 * kernel's has the byte counters. */
#include <linux/tcp.h>

#include "base/buf.h"

const char netdiag_note[] =
    "rx_bytes and tx_bytes are TCP payload by socket owner, sampled: a lower bound that misses "
    "what a "
    "connection carried between the last sample and its end; Unix sockets and UDP are not counted";

/* --- the kernel's side --- */

static void take_socket(const struct inet_diag_msg *message, size_t len,
                        struct netdiag_socket **sockets, size_t *count, size_t *capacity)
{
    struct netdiag_socket found = {
        .cookie = (uint64_t)message->id.idiag_cookie[1] << 32 | message->id.idiag_cookie[0],
        .inode = message->idiag_inode,
    };
    bool told = false;
    const char *at = (const char *)(message + 1), *end = (const char *)message + len;
    while ((size_t)(end - at) >= sizeof(struct nlattr)) {
        struct nlattr attribute;
        memcpy(&attribute, at, sizeof(attribute));
        if (attribute.nla_len < sizeof(attribute) || attribute.nla_len > (size_t)(end - at))
            break;
        size_t info_bytes = attribute.nla_len - sizeof(attribute);
        /* Older kernels send a shorter struct tcp_info; the counters came with Linux 4.1. */
        if (attribute.nla_type == INET_DIAG_INFO &&
            info_bytes >= offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(uint64_t)) {
            struct tcp_info info = {0};
            memcpy(&info, at + sizeof(attribute),
                   info_bytes < sizeof(info) ? info_bytes : sizeof(info));
            found.rx_bytes = info.tcpi_bytes_received;
            found.tx_bytes = info.tcpi_bytes_acked;
            told = true;
        }
        size_t step = NLMSG_ALIGN(attribute.nla_len);
        at += step < (size_t)(end - at) ? step : (size_t)(end - at);
    }
    if (!told)
        return;
    if (*count == *capacity) {
        *capacity = *capacity > 0 ? *capacity * 2 : 256;
        *sockets = xrealloc(*sockets, *capacity * sizeof(**sockets));
    }
    (*sockets)[(*count)++] = found;
}

int netdiag_parse(const void *datagram, size_t len, struct netdiag_socket **sockets, size_t *count,
                  size_t *capacity)
{
    const char *at = datagram;
    while (len >= sizeof(struct nlmsghdr)) {
        struct nlmsghdr header;
        memcpy(&header, at, sizeof(header));
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > len)
            return -EBADMSG;
        size_t payload_bytes = header.nlmsg_len - NLMSG_HDRLEN;
        if (header.nlmsg_type == NLMSG_DONE)
            return 0;
        if (header.nlmsg_type == NLMSG_ERROR) {
            struct nlmsgerr error;
            if (payload_bytes < sizeof(error.error))
                return -EBADMSG;
            memcpy(&error.error, at + NLMSG_HDRLEN, sizeof(error.error));
            return error.error < 0 ? error.error : -EPROTO;
        }
        if (header.nlmsg_type == SOCK_DIAG_BY_FAMILY &&
            payload_bytes >= sizeof(struct inet_diag_msg)) {
            /* Copied, since a datagram's messages are aligned to 4 bytes only. */
            struct inet_diag_msg *message = xmalloc(payload_bytes);
            memcpy(message, at + NLMSG_HDRLEN, payload_bytes);
            take_socket(message, payload_bytes, sockets, count, capacity);
            free(message);
        }
        size_t step = NLMSG_ALIGN(header.nlmsg_len);
        step = step < len ? step : len;
        at += step;
        len -= step;
    }
    return len == 0 ? 1 : -EBADMSG;
}

static int ask(int fd, uint8_t family)
{
    struct {
        struct nlmsghdr header;
        struct inet_diag_req_v2 request;
    } message = {
        .header = {.nlmsg_len = sizeof(message),
                   .nlmsg_type = SOCK_DIAG_BY_FAMILY,
                   .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP},
        .request = {.sdiag_family = family,
                    .sdiag_protocol = IPPROTO_TCP,
                    .idiag_ext = 1 << (INET_DIAG_INFO - 1),
                    .idiag_states = ~0U},
    };
    return send(fd, &message, sizeof(message), 0) < 0 ? -errno : 0;
}

static int dump_family(int fd, uint8_t family, struct netdiag_socket **sockets, size_t *count,
                       size_t *capacity)
{
    enum { DATAGRAM_BYTES = 64 * 1024 }; /* the kernel fills at most 32 KiB */
    int rc = ask(fd, family);
    char *datagram = xmalloc(DATAGRAM_BYTES);
    while (rc == 0 || rc == 1) {
        ssize_t got = recv(fd, datagram, DATAGRAM_BYTES, 0);
        if (got < 0 && errno == EINTR)
            continue;
        rc = got < 0 ? -errno : netdiag_parse(datagram, (size_t)got, sockets, count, capacity);
        if (rc == 0)
            break;
    }
    free(datagram);
    return rc;
}

int netdiag_dump(struct netdiag_socket **sockets, size_t *count, struct err *err)
{
    size_t capacity = 0;
    *sockets = NULL;
    *count = 0;
    int rc = 0;
    int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
    if (fd < 0) {
        rc = -errno;
    } else {
        struct timeval second = {.tv_sec = 1};
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &second, sizeof(second));
        rc = dump_family(fd, AF_INET, sockets, count, &capacity);
        if (rc == 0) {
            int six = dump_family(fd, AF_INET6, sockets, count, &capacity);
            rc = six == -ENOENT || six == -EAFNOSUPPORT ? 0 : six; /* a kernel without IPv6 */
        }
        close(fd);
    }
    if (rc == 0)
        return 0;
    free(*sockets);
    *sockets = NULL;
    *count = 0;
    return err_set(
        err, rc,
        "the kernel does not tell socket figures (sock_diag: %s), so rx_bytes and tx_bytes "
        "are null; its module tcp_diag may be missing",
        strerror(-rc));
}

/* --- the books --- */

enum { FOREIGN = -1 };

struct entry {
    uint64_t cookie;
    int owner;          /* index, or FOREIGN: of no part when it was last looked for */
    uint64_t looked_at; /* the sum of generations at that time */
    uint64_t rx_bytes, tx_bytes;
};

struct link { /* one socket in some part's /proc/PID/fd */
    uint64_t inode;
    int owner;
};

struct netdiag {
    const char *proc_root;
    size_t owners;
    struct netdiag_totals *totals;
    struct entry *entries; /* sorted by cookie: the sockets of the last dump */
    size_t count;
    struct link *links; /* sorted by inode; empty until needed in an update */
    size_t link_count, link_capacity;
};

struct netdiag *netdiag_new(const char *proc_root, size_t owners)
{
    struct netdiag *netdiag = xcalloc(1, sizeof(*netdiag));
    netdiag->proc_root = proc_root;
    netdiag->owners = owners;
    netdiag->totals = xcalloc(owners > 0 ? owners : 1, sizeof(*netdiag->totals));
    return netdiag;
}

void netdiag_free(struct netdiag *netdiag)
{
    if (!netdiag)
        return;
    free(netdiag->totals);
    free(netdiag->entries);
    free(netdiag->links);
    free(netdiag);
}

static int compare_entries(const void *left, const void *right)
{
    uint64_t a = ((const struct entry *)left)->cookie, b = ((const struct entry *)right)->cookie;
    return (a > b) - (a < b);
}

static int compare_links(const void *left, const void *right)
{
    uint64_t a = ((const struct link *)left)->inode, b = ((const struct link *)right)->inode;
    return (a > b) - (a < b);
}

static void list_links_of(struct netdiag *netdiag, pid_t pid, int owner)
{
    char path[512], target[64];
    int len = snprintf(path, sizeof(path), "%s/%d/fd", netdiag->proc_root, (int)pid);
    if (len < 0 || (size_t)len >= sizeof(path))
        return;
    DIR *folder = opendir(path);
    if (!folder)
        return; /* it has ended, or may not be looked into */
    const struct dirent *entry;
    while ((entry = readdir(folder))) {
        ssize_t got = readlinkat(dirfd(folder), entry->d_name, target, sizeof(target) - 1);
        if (got <= 0)
            continue;
        target[got] = '\0';
        static const char prefix[] = "socket:[";
        if (strncmp(target, prefix, sizeof(prefix) - 1) != 0)
            continue;
        uint64_t inode = strtoull(target + sizeof(prefix) - 1, NULL, 10);
        if (netdiag->link_count == netdiag->link_capacity) {
            netdiag->link_capacity = netdiag->link_capacity > 0 ? netdiag->link_capacity * 2 : 256;
            netdiag->links =
                xrealloc(netdiag->links, netdiag->link_capacity * sizeof(*netdiag->links));
        }
        netdiag->links[netdiag->link_count++] = (struct link){inode, owner};
    }
    closedir(folder);
}

static int find_owner(struct netdiag *netdiag, const struct netdiag_owner *owners, uint64_t inode,
                      bool *listed)
{
    if (!*listed) {
        *listed = true;
        netdiag->link_count = 0;
        for (size_t i = 0; i < netdiag->owners; i++)
            for (size_t p = 0; p < owners[i].count; p++)
                list_links_of(netdiag, owners[i].pids[p], (int)i);
        if (netdiag->link_count > 0)
            qsort(netdiag->links, netdiag->link_count, sizeof(*netdiag->links), compare_links);
    }
    struct link key = {.inode = inode};
    const struct link *found = netdiag->link_count == 0
                                   ? NULL
                                   : bsearch(&key, netdiag->links, netdiag->link_count,
                                             sizeof(*netdiag->links), compare_links);
    return found ? found->owner : FOREIGN;
}

void netdiag_update(struct netdiag *netdiag, const struct netdiag_socket *sockets, size_t count,
                    const struct netdiag_owner *owners)
{
    uint64_t generation = 0;
    for (size_t i = 0; i < netdiag->owners; i++)
        generation += owners[i].generation;
    struct entry *fresh = xcalloc(count > 0 ? count : 1, sizeof(*fresh));
    size_t kept = 0;
    bool listed = false;
    for (size_t i = 0; i < count; i++) {
        const struct netdiag_socket *socket = &sockets[i];
        struct entry entry = {.cookie = socket->cookie, .owner = FOREIGN, .looked_at = UINT64_MAX};
        const struct entry *before = netdiag->count == 0
                                         ? NULL
                                         : bsearch(&entry, netdiag->entries, netdiag->count,
                                                   sizeof(*netdiag->entries), compare_entries);
        if (before)
            entry = *before;
        /* A socket stays with its first owner (a server's child takes over what its parent
         * accepted, both of one part). One that is nobody's is looked for again only when a process
         * joined. */
        if (entry.owner == FOREIGN && socket->inode != 0 && entry.looked_at != generation) {
            entry.owner = find_owner(netdiag, owners, socket->inode, &listed);
            entry.looked_at = generation;
        }
        if (entry.owner != FOREIGN) {
            struct netdiag_totals *totals = &netdiag->totals[entry.owner];
            if (socket->rx_bytes > entry.rx_bytes)
                totals->rx_bytes += socket->rx_bytes - entry.rx_bytes;
            if (socket->tx_bytes > entry.tx_bytes)
                totals->tx_bytes += socket->tx_bytes - entry.tx_bytes;
            entry.rx_bytes = socket->rx_bytes;
            entry.tx_bytes = socket->tx_bytes;
        }
        fresh[kept++] = entry;
    }
    if (kept > 0)
        qsort(fresh, kept, sizeof(*fresh), compare_entries);
    free(netdiag->entries);
    netdiag->entries = fresh;
    netdiag->count = kept;
}

const struct netdiag_totals *netdiag_totals(const struct netdiag *netdiag, size_t owner)
{
    return &netdiag->totals[owner];
}
