/* Oracle: bytes that the test itself sent over loopback; made-up dumps added up by hand. */
#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/file.h"
#include "fake_proc.h"
#include "netdiag.h"

static struct netdiag_totals totals_of(const struct netdiag *netdiag, size_t owner)
{
    return *netdiag_totals(netdiag, owner);
}

static void test_books(void **state)
{
    (void)state;
    char *proc_root = fake_proc_new();
    fake_proc_put(proc_root, &(struct fake_process){.pid = 10, .parent = 1, .socket_inode = 1000});
    fake_proc_put(proc_root, &(struct fake_process){.pid = 20, .parent = 1, .socket_inode = 2000});
    fake_proc_put(proc_root, &(struct fake_process){.pid = 30, .parent = 1, .socket_inode = 3000});
    pid_t first[] = {10}, second[] = {20, 30};
    struct netdiag_owner owners[] = {{first, 1, 1}, {second, 1, 1}};
    struct netdiag *netdiag = netdiag_new(proc_root, 2);

    struct netdiag_socket one[] = {
        {.cookie = 9, .inode = 1000, .rx_bytes = 5, .tx_bytes = 50},
        {.cookie = 8, .inode = 2000, .rx_bytes = 7, .tx_bytes = 70},
        {.cookie = 7, .inode = 3000, .rx_bytes = 1, .tx_bytes = 2},  /* nobody's yet */
        {.cookie = 6, .inode = 0, .rx_bytes = 400, .tx_bytes = 400}, /* not accepted yet */
    };
    netdiag_update(netdiag, one, 4, owners);
    assert_int_equal(totals_of(netdiag, 0).rx_bytes, 5);
    assert_int_equal(totals_of(netdiag, 0).tx_bytes, 50);
    assert_int_equal(totals_of(netdiag, 1).rx_bytes, 7);
    assert_int_equal(totals_of(netdiag, 1).tx_bytes, 70);

    /* 10 has accepted 6: it counts from its beginning, though no process has joined. */
    fake_proc_put(proc_root, &(struct fake_process){.pid = 10, .parent = 1, .socket_inode = 1001});
    one[3] = (struct netdiag_socket){.cookie = 6, .inode = 1001, .rx_bytes = 400, .tx_bytes = 400};
    netdiag_update(netdiag, one, 4, owners);
    assert_int_equal(totals_of(netdiag, 0).rx_bytes, 405);

    /* Grown; 30 has joined the second, so its socket counts from its beginning; 8
     * is closing and has lost its inode, and is still the second's. */
    fake_proc_put(proc_root, &(struct fake_process){.pid = 10, .parent = 1, .socket_inode = 1001});
    owners[1] = (struct netdiag_owner){second, 2, 2};
    struct netdiag_socket two[] = {
        {.cookie = 6, .inode = 1001, .rx_bytes = 500, .tx_bytes = 500},
        {.cookie = 7, .inode = 3000, .rx_bytes = 10, .tx_bytes = 20},
        {.cookie = 8, .inode = 0, .rx_bytes = 8, .tx_bytes = 80},
        {.cookie = 9, .inode = 1000, .rx_bytes = 6, .tx_bytes = 60},
    };
    netdiag_update(netdiag, two, 4, owners);
    assert_int_equal(totals_of(netdiag, 0).rx_bytes, 506);
    assert_int_equal(totals_of(netdiag, 0).tx_bytes, 560);
    assert_int_equal(totals_of(netdiag, 1).rx_bytes, 18);
    assert_int_equal(totals_of(netdiag, 1).tx_bytes, 100);

    /* Closed ones stay in the totals; an inode used again is another socket by its cookie. */
    struct netdiag_socket three[] = {
        {.cookie = 99, .inode = 3000, .rx_bytes = 1000, .tx_bytes = 1}};
    netdiag_update(netdiag, three, 1, owners);
    assert_int_equal(totals_of(netdiag, 0).rx_bytes, 506);
    assert_int_equal(totals_of(netdiag, 1).rx_bytes, 1018);
    assert_int_equal(totals_of(netdiag, 1).tx_bytes, 101);
    netdiag_update(netdiag, NULL, 0, owners);
    assert_int_equal(totals_of(netdiag, 1).rx_bytes, 1018);
    netdiag_free(netdiag);
    fake_proc_free(proc_root);
}

static void send_all(int from, int to, size_t bytes)
{
    char chunk[4096] = {0};
    for (size_t done = 0; done < bytes;) {
        size_t want = bytes - done < sizeof(chunk) ? bytes - done : sizeof(chunk);
        ssize_t sent = send(from, chunk, want, 0);
        assert_true(sent > 0);
        for (ssize_t got = 0; got < sent;) {
            ssize_t part = recv(to, chunk, (size_t)(sent - got), 0);
            assert_true(part > 0);
            got += part;
        }
        done += (size_t)sent;
    }
}

/* The kernel itself: a connection of this process with both ends here. */
static void test_real_connection(void **state)
{
    (void)state;
    struct netdiag_socket *sockets;
    size_t count;
    struct err err = {0};
    if (netdiag_dump(&sockets, &count, &err) < 0) {
        print_message("SKIP: %s\n", err.text);
        skip();
    }
    free(sockets);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t address_bytes = sizeof(address);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &address_bytes), 0);
    int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, sizeof(address)), 0);
    int server = accept(listener, NULL, NULL);
    assert_true(server >= 0);

    pid_t self[] = {getpid()};
    struct netdiag_owner owner = {self, 1, 1};
    struct netdiag *netdiag = netdiag_new("/proc", 1);
    assert_int_equal(netdiag_dump(&sockets, &count, &err), 0);
    netdiag_update(netdiag, sockets, count, &owner);
    free(sockets);
    struct netdiag_totals before = totals_of(netdiag, 0);

    send_all(client, server, 300000);
    send_all(server, client, 70000);
    assert_int_equal(netdiag_dump(&sockets, &count, &err), 0);
    netdiag_update(netdiag, sockets, count, &owner);
    free(sockets);
    assert_int_equal(totals_of(netdiag, 0).rx_bytes - before.rx_bytes, 370000);
    assert_int_equal(totals_of(netdiag, 0).tx_bytes - before.tx_bytes, 370000);
    close(client);
    close(server);
    close(listener);
    netdiag_free(netdiag);
}

static int parse(const void *bytes, size_t len, size_t *count)
{
    struct netdiag_socket *sockets = NULL;
    size_t capacity = 0;
    *count = 0;
    char *copy = malloc(len + 1); /* so that a sanitizer sees a read past the end */
    memcpy(copy, bytes, len);
    char *exact = realloc(copy, len > 0 ? len : 1);
    int rc = netdiag_parse(exact, len, &sockets, count, &capacity);
    free(exact);
    free(sockets);
    return rc;
}

static void test_damaged_datagrams(void **state)
{
    (void)state;
    struct {
        struct nlmsghdr header;
        struct inet_diag_msg message;
        struct nlattr attribute;
        uint8_t info[256];
    } datagram = {
        .header = {.nlmsg_len = sizeof(datagram), .nlmsg_type = SOCK_DIAG_BY_FAMILY},
        .attribute = {.nla_len = sizeof(struct nlattr) + 256, .nla_type = INET_DIAG_INFO},
    };
    size_t count;
    assert_int_equal(parse(&datagram, sizeof(datagram), &count), 1);
    assert_int_equal(count, 1);
    for (size_t len = 1; len < sizeof(datagram); len++) {
        assert_int_equal(parse(&datagram, len, &count), -EBADMSG);
        assert_int_equal(count, 0);
    }
    for (unsigned bytes = 0; bytes < 400; bytes++) {
        datagram.attribute.nla_len = (uint16_t)bytes;
        int rc = parse(&datagram, sizeof(datagram), &count);
        assert_int_equal(rc, 1); /* a bad attribute hides that socket, no more */
        assert_true(count <= 1);
    }
    /* An attribute that claims more than its message holds. */
    datagram.attribute.nla_len = sizeof(struct nlattr) + 256;
    for (unsigned cut = 4; cut <= 256; cut += 4) {
        datagram.header.nlmsg_len = (uint32_t)(sizeof(datagram) - cut);
        assert_int_equal(parse(&datagram, sizeof(datagram) - cut, &count), 1);
        assert_int_equal(count, 0);
    }
    datagram.header.nlmsg_len = 3;
    assert_int_equal(parse(&datagram, sizeof(datagram), &count), -EBADMSG);

    struct {
        struct nlmsghdr header;
        struct nlmsgerr error;
    } refused = {.header = {.nlmsg_len = sizeof(refused), .nlmsg_type = NLMSG_ERROR},
                 .error = {.error = -EPERM}};
    assert_int_equal(parse(&refused, sizeof(refused), &count), -EPERM);
    struct nlmsghdr done = {.nlmsg_len = sizeof(done), .nlmsg_type = NLMSG_DONE};
    assert_int_equal(parse(&done, sizeof(done), &count), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_books),
        cmocka_unit_test(test_real_connection),
        cmocka_unit_test(test_damaged_datagrams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
