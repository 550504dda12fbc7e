#include "valkey_server.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

const char *valkey_server_url(void)
{
    const char *url = getenv("SLUICE_TEST_VALKEY_URL");
    return url && *url ? url : NULL;
}

int valkey_server_port(void)
{
    const char *colon = strrchr(valkey_server_url(), ':');
    return colon ? (int)strtol(colon + 1, NULL, 10) : 0;
}

const char *valkey_server_password(void)
{
    static char password[80];
    const char *url = valkey_server_url();
    const char *from = strstr(url, "//:");
    const char *to = strrchr(url, '@');
    if (from && to) {
        snprintf(password, sizeof(password), "%.*s", (int)(to - from - 3), from + 3);
    }
    return password;
}

redisContext *valkey_server_connect(void)
{
    const struct timeval limit = {.tv_sec = 5};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", valkey_server_port(), limit);
    if (!context || context->err) {
        redisFree(context);
        return NULL;
    }
    redisSetTimeout(context, limit);
    redisReply *reply = redisCommand(context, "AUTH %s", valkey_server_password());
    bool welcome = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (!welcome) {
        redisFree(context);
        return NULL;
    }
    return context;
}

int valkey_server_control(const char *order, struct err *err)
{
    const char *path = getenv("SLUICE_TEST_VALKEY_CONTROL");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    if (!path || !*path) {
        return err_set(err, -ENOENT,
                       "nobody to stop the server: SLUICE_TEST_VALKEY_CONTROL is not set");
    }
    snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    char line[300] = "";
    int line_bytes = snprintf(line, sizeof(line), "%s\n", order);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ||
        write(fd, line, (size_t)line_bytes) != line_bytes) {
        int rc = err_set(err, -errno, "%s: %s", path, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return rc;
    }
    ssize_t got = read(fd, line, sizeof(line) - 1);
    close(fd);
    line[got > 0 ? got : 0] = '\0';
    line[strcspn(line, "\n")] = '\0';
    return strcmp(line, "ok") == 0 ? 0 : err_set(err, -EIO, "%s said: %s", path, line);
}
