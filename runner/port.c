#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "state.h"

enum { PORT_LOW = 15000, PORT_HIGH = 32000, PORT_TRIES = 400, PORTS_MAX = 64 };

static struct {
    char *lock_path;
    int lock_fd;
} taken[PORTS_MAX];
static size_t taken_count;

/* Without SO_REUSEADDR, so that a port with connections in TIME_WAIT counts as taken. */
static bool port_free(uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return false;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool is_free = bind(fd, (const struct sockaddr *)&address, sizeof(address)) == 0;
    close(fd);
    return is_free;
}

/* A lock on a file that has been removed meanwhile is no lock: the next one makes a new file. */
static bool lock_is_current(int fd, const char *path)
{
    struct stat ours, there;
    return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_ino == there.st_ino &&
           ours.st_dev == there.st_dev;
}

static int low_of_outgoing(void)
{
    int low = PORT_HIGH;
    FILE *file = fopen("/proc/sys/net/ipv4/ip_local_port_range", "re");
    if (file) {
        if (fscanf(file, "%d", &low) != 1 || low > PORT_HIGH) {
            low = PORT_HIGH;
        }
        fclose(file);
    }
    return low;
}

int port_claim(const char *base, int port)
{
    if (taken_count == PORTS_MAX) {
        return -EMFILE;
    }
    char *folder = xasprintf("%s/ports", base);
    char *path = xasprintf("%s/%d", folder, port);
    mkdir(folder, 0700); /* each time: another sluice removes it when it leaves */
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    int rc = fd < 0 ? -errno : 0;
    free(folder);
    if (rc == 0 && (flock(fd, LOCK_EX | LOCK_NB) < 0 || !lock_is_current(fd, path) ||
                    !port_free((uint16_t)port))) {
        rc = -EADDRINUSE;
    }
    if (rc == 0) {
        taken[taken_count].lock_path = path;
        taken[taken_count++].lock_fd = fd;
        return 0;
    }
    if (fd >= 0) {
        close(fd);
    }
    free(path);
    return rc;
}

int port_take(const char *base, struct err *err)
{
    int high = low_of_outgoing();
    if (high < PORT_LOW + 1000) {
        high = PORT_HIGH; /* an unusual range that leaves no room below: take the risk */
    }
    int rc = -EADDRINUSE;
    for (int tries = 0; tries < PORT_TRIES; tries++) {
        unsigned random;
        if (getrandom(&random, sizeof(random), 0) != (ssize_t)sizeof(random)) {
            break;
        }
        int port = PORT_LOW + (int)(random % (unsigned)(high - PORT_LOW));
        rc = port_claim(base, port);
        if (rc == 0) {
            return port;
        }
    }
    return err_set(err, rc, "no free TCP port was found on 127.0.0.1 between %d and %d: %s",
                   PORT_LOW, high, strerror(-rc));
}

void ports_give_back(void)
{
    for (size_t i = 0; i < taken_count; i++) {
        unlink(taken[i].lock_path);
        close(taken[i].lock_fd);
        free(taken[i].lock_path);
    }
    taken_count = 0;
}

void ports_sweep(const char *base)
{
    char *folder = xasprintf("%s/ports", base);
    DIR *entries = opendir(folder);
    for (const struct dirent *entry; entries && (entry = readdir(entries));) {
        char *path = xasprintf("%s/%s", folder, entry->d_name);
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) {
            unlink(path);
        }
        if (fd >= 0) {
            close(fd);
        }
        free(path);
    }
    if (entries) {
        closedir(entries);
    }
    rmdir(folder); /* fails while somebody holds a port: as it should */
    free(folder);
}
