#include "server_control.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const char *variable(const char *name, const char *what, char out[64])
{
    snprintf(out, 64, "SLUICE_TEST_%s_%s", strcmp(name, "main-db") == 0 ? "MAIN" : name, what);
    for (char *at = out; *at; at++) {
        *at = *at == '-' ? '_' : (char)toupper((unsigned char)*at);
    }
    const char *value = getenv(out);
    return value && *value ? value : NULL;
}

const char *server_url(const char *name)
{
    char text[64];
    return variable(name, "URL", text);
}

bool server_can_be_controlled(const char *name)
{
    char text[64];
    return variable(name, "CONTROL", text) != NULL;
}

static int ask(int fd, const struct sockaddr_un *address, const char *command, struct err *err)
{
    char answer[512] = "";
    size_t len = 0;
    if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ||
        dprintf(fd, "%s\n", command) < 0) {
        return err_set(err, -EIO, "%s: %s", address->sun_path, strerror(errno));
    }
    while (len + 1 < sizeof(answer)) {
        ssize_t got = read(fd, answer + len, sizeof(answer) - 1 - len);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        len += (size_t)got;
    }
    answer[strcspn(answer, "\n")] = '\0';
    return strcmp(answer, "ok") == 0
               ? 0
               : err_set(err, -EIO, "%s: %s: \"%s\"", address->sun_path, command, answer);
}

int server_control(const char *name, const char *command, struct err *err)
{
    char text[64];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *path = variable(name, "CONTROL", text);
    if (!path || strlen(path) >= sizeof(address.sun_path)) {
        return err_set(err, -ENOENT, "%s does not name a server's control socket", text);
    }
    memcpy(address.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return err_set(err, -EIO, "no socket: %s", strerror(errno));
    }
    int rc = ask(fd, &address, command, err);
    close(fd);
    return rc;
}
