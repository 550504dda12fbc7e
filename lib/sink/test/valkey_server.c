#include "valkey_server.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server_control.h"

const char *valkey_server_url(void)
{
    return server_url("valkey");
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
