/* sink_valkey_link.c: the address of a Valkey or Redis, and connections to it. hiredis formats and
 * parses; sockets are opened here, because hiredis would look names up in a way that blocks, and
 * cannot be told when to give up. */
#include "sink/sink_valkey.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "sink/sink_valkey_tls.h"

/* ---- the URL ---- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* A part of a URL with its %XX undone; NULL when one is broken or stands for a NUL. */
static char *decode(const char *text, size_t len)
{
    char *out = xmalloc(len + 1);
    size_t used = 0;
    for (size_t i = 0; i < len; i++, used++) {
        out[used] = text[i];
        if (text[i] != '%') {
            continue;
        }
        int high = len - i > 2 ? hex_digit(text[i + 1]) : -1;
        int low = high >= 0 ? hex_digit(text[i + 2]) : -1;
        if (low < 0 || high * 16 + low == 0) {
            free(out);
            return NULL;
        }
        out[used] = (char)(high * 16 + low);
        i += 2;
    }
    out[used] = '\0';
    return out;
}

/* "user:password" or ":password"; an empty user is none. */
static const char *read_credentials(struct valkey_target *target, const char *text, size_t len)
{
    const char *colon = memchr(text, ':', len);
    if (!colon) {
        return "a password stands behind a colon: redis://:PASSWORD@HOST";
    }
    if (colon > text && !(target->user = decode(text, (size_t)(colon - text)))) {
        return "its user has a wrong %XX";
    }
    if (!(target->password = decode(colon + 1, len - (size_t)(colon + 1 - text)))) {
        return "its password has a wrong %XX";
    }
    return NULL;
}

/* "host", "host:port", "[::1]:port" */
static const char *read_address(struct valkey_target *target, const char *text, size_t len)
{
    const char *end = text + len;
    const char *host_end = memchr(text, ':', len);
    if (len > 0 && text[0] == '[') {
        text++;
        host_end = memchr(text, ']', (size_t)(end - text));
        if (!host_end) {
            return "its [ has no ]";
        }
    }
    host_end = host_end ? host_end : end;
    if (host_end == text || !(target->host = decode(text, (size_t)(host_end - text)))) {
        return "it names no host";
    }
    const char *port = host_end < end && *host_end == ']' ? host_end + 1 : host_end;
    snprintf(target->port, sizeof(target->port), "6379");
    if (port < end) {
        char *port_end;
        long number =
            *port == ':' && isdigit((unsigned char)port[1]) ? strtol(port + 1, &port_end, 10) : 0;
        if (number < 1 || number > 65535 || port_end != end) {
            return "its port is not a number from 1 to 65535";
        }
        snprintf(target->port, sizeof(target->port), "%ld", number);
    }
    return NULL;
}

static const char *read_database(struct valkey_target *target, const char *text)
{
    if (text[0] == '\0' || strcmp(text, "/") == 0) {
        return NULL;
    }
    char *end;
    long number =
        text[0] == '/' && isdigit((unsigned char)text[1]) ? strtol(text + 1, &end, 10) : -1;
    if (number < 0 || number > 1000000 || *end != '\0') {
        return "behind the slash stands the number of a database, and nothing after it";
    }
    target->db = (int)number;
    return NULL;
}

static const char *read_url(struct valkey_target *target, const char *url)
{
    if (strncmp(url, "rediss://", 9) == 0) {
        target->tls = true;
    } else if (strncmp(url, "redis://", 8) != 0) {
        return "it begins neither with redis:// nor with rediss:// (TLS)";
    }
    const char *rest = strstr(url, "://") + 3;
    /* A password may hold an unescaped slash or @: the last @ before the host counts. */
    const char *at = strrchr(rest, '@');
    const char *wrong = at ? read_credentials(target, rest, (size_t)(at - rest)) : NULL;
    if (wrong) {
        return wrong;
    }
    rest = at ? at + 1 : rest;
    size_t address = strcspn(rest, "/?#");
    wrong = read_address(target, rest, address);
    return wrong ? wrong : read_database(target, rest + address);
}

int valkey_target_new(struct valkey_target *target, const struct options *options, struct err *err)
{
    const char *url = options_string(options, "sink-url");
    const char *stream = options_string(options, "valkey-stream");
    const char *ca_file = options_string(options, "valkey-ca-file");
    *target = (struct valkey_target){0};
    if (!url) {
        return err_set(err, -EINVAL,
                       "the sink valkey needs --sink-url (or SLUICE_SINK_URL), "
                       "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE]");
    }
    const char *wrong = read_url(target, url);
    int rc = 0;
    if (wrong) {
        rc =
            err_set(err, -EINVAL,
                    "sink-url is not redis[s]://[USER:PASSWORD@]HOST[:PORT][/DATABASE]: %s", wrong);
    } else if (strncmp(stream, "sluice", 6) != 0) {
        rc = err_set(
            err, -EINVAL,
            "--valkey-stream=%s: only names that begin with \"sluice\" are made on a server",
            stream);
    } else if (target->tls) {
        rc = valkey_tls_available(err);
    }
    if (rc < 0) {
        valkey_target_free(target);
        return rc;
    }
    target->stream = xstrdup(stream);
    target->ca_file = ca_file ? xstrdup(ca_file) : NULL;
    target->shown =
        xasprintf(strchr(target->host, ':') ? "%s://[%s]:%s/%d" : "%s://%s:%s/%d",
                  target->tls ? "rediss" : "redis", target->host, target->port, target->db);
    return 0;
}

void valkey_target_free(struct valkey_target *target)
{
    if (target->password) {
        explicit_bzero(target->password, strlen(target->password));
    }
    free(target->host);
    free(target->user);
    free(target->password);
    free(target->ca_file);
    free(target->shown);
    free(target->stream);
    *target = (struct valkey_target){0};
}

/* ---- the socket ---- */

int valkey_socket(const struct addrinfo *address)
{
    const int on = 1;
    const int idle_s = 10;
    const unsigned unacknowledged_ms = 20000; /* a host that is gone without a word */
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return -errno;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms, sizeof(unacknowledged_ms));
    if (connect(fd, address->ai_addr, address->ai_addrlen) < 0 && errno != EINPROGRESS) {
        int rc = -errno;
        close(fd);
        return rc;
    }
    return fd;
}

redisContext *valkey_adopt(const struct valkey_target *target, int fd, bool blocking,
                           struct err *err)
{
    redisContext *context = redisConnectFd(fd);
    if (!context) {
        err_set(err, -ENOMEM, "%s: no memory for a connection", target->shown);
        close(fd);
        return NULL;
    }
    if (!blocking) {
        context->flags &= ~REDIS_BLOCK;
    }
    if (target->tls && valkey_tls_begin(target, context, err) < 0) {
        redisFree(context);
        return NULL;
    }
    return context;
}

/* Waits until the socket is connected. 0 or negative errno. */
static int await_connected(int fd, int64_t deadline_ns)
{
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    int code = 0;
    socklen_t len = sizeof(code);
    int ready;
    do {
        int64_t left_ns = deadline_ns - clock_mono_ns();
        ready = poll(&polled, 1, left_ns > 0 ? (int)(left_ns / NS_PER_MS) + 1 : 0);
    } while (ready < 0 && errno == EINTR);
    if (ready <= 0) {
        return ready == 0 ? -ETIMEDOUT : -errno;
    }
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) < 0 ? -errno : -code;
}

/* A connected, blocking socket to one of these, or negative errno and a sentence. */
static int dial_socket(const struct valkey_target *target, const struct addrinfo *addresses,
                       int64_t deadline_ns, struct err *err)
{
    int rc = -EHOSTUNREACH;
    for (const struct addrinfo *at = addresses; at; at = at->ai_next) {
        int fd = rc = valkey_socket(at);
        if (fd < 0) {
            continue;
        }
        rc = await_connected(fd, deadline_ns);
        if (rc == 0) {
            fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
            return fd;
        }
        close(fd);
    }
    return err_set(err, rc, "%s: no connection: %s", target->shown, strerror(-rc));
}

/* ---- greeting ---- */

int valkey_greet(const struct valkey_target *target, redisContext *context, const char *name)
{
    struct valkey_command command = {0};
    char number[16];
    int replies = 1;
    if (target->password) {
        valkey_begin(&command, "AUTH");
        if (target->user) {
            valkey_word(&command, target->user);
        }
        valkey_word(&command, target->password);
        valkey_append(context, &command);
        replies++;
    }
    if (target->db > 0) {
        snprintf(number, sizeof(number), "%d", target->db);
        valkey_begin(&command, "SELECT");
        valkey_word(&command, number);
        valkey_append(context, &command);
        replies++;
    }
    valkey_begin(&command, "CLIENT");
    valkey_word(&command, "SETNAME");
    valkey_word(&command, name);
    valkey_append(context, &command);
    valkey_command_free(&command);
    return replies;
}

int valkey_greeted(const struct valkey_target *target, const redisReply *reply, struct err *err)
{
    if (!valkey_is_error(reply, NULL)) {
        return 0;
    }
    if (valkey_is_error(reply, "NOAUTH")) {
        return err_set(err, -EACCES, "%s asks for a password, and the URL has %s", target->shown,
                       target->password ? "another one" : "none");
    }
    if (valkey_is_error(reply, "WRONGPASS") || strstr(reply->str, "invalid password")) {
        return err_set(err, -EACCES, "%s refuses the user or the password of the URL",
                       target->shown);
    }
    if (strstr(reply->str, "without any password") || strstr(reply->str, "no password is set")) {
        return err_set(err, -EACCES,
                       "%s has no password set, and the URL has one: is it another server?",
                       target->shown);
    }
    if (strstr(reply->str, "DB index") || strstr(reply->str, "invalid DB")) {
        return err_set(err, -EINVAL, "%s: the server has no database %d", target->shown,
                       target->db);
    }
    /* A name is a comfort: whoever may not set one may do all else. */
    if (valkey_is_error(reply, "NOPERM") || valkey_is_error(reply, "ERR")) {
        return target->db > 0 && strstr(reply->str, "select")
                   ? valkey_judge(target, "SELECT", reply, err)
                   : 0;
    }
    return valkey_judge(target, "greeting", reply, err);
}

/* So that a silent peer can't hold up the start of TLS either. */
static void limit_waits(int fd, int64_t deadline_ns)
{
    int64_t left_ns = deadline_ns - clock_mono_ns();
    left_ns = left_ns > NS_PER_MS ? left_ns : NS_PER_MS;
    const struct timeval limit = {.tv_sec = left_ns / NS_PER_S,
                                  .tv_usec = left_ns % NS_PER_S / NS_PER_US};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

static int dial(const struct valkey_target *target, const struct addrinfo *addresses,
                const char *name, int64_t deadline_ns, redisContext **out, struct err *err)
{
    int fd = dial_socket(target, addresses, deadline_ns, err);
    if (fd < 0) {
        return fd;
    }
    limit_waits(fd, deadline_ns);
    struct err local = {0};
    redisContext *context = valkey_adopt(target, fd, true, &local);
    if (!context) {
        return err_set(err, local.code, "%s", local.text);
    }
    int rc = 0;
    for (int left = valkey_greet(target, context, name); rc == 0 && left > 0; left--) {
        redisReply *reply = valkey_reply(target, context, deadline_ns, &local);
        rc = reply ? valkey_greeted(target, reply, &local) : local.code;
        freeReplyObject(reply);
    }
    if (rc == -ENOTCONN) { /* an end right away is what servers of other kinds do */
        rc = err_set(&local, -ENOTCONN,
                     "%s ended the connection at the first words: is it a Valkey or Redis%s?",
                     target->shown, target->tls ? "" : ", and without TLS");
    }
    if (rc < 0) {
        redisFree(context);
        return err_set(err, rc, "%s", local.text);
    }
    *out = context;
    return 0;
}

int valkey_dial(const struct valkey_target *target, const char *name, int64_t deadline_ns,
                redisContext **out, struct err *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *addresses = NULL;
    *out = NULL;
    int found = getaddrinfo(target->host, target->port, &hints, &addresses);
    if (found != 0) {
        return err_set(err, found == EAI_AGAIN ? -ETIMEDOUT : -EHOSTUNREACH,
                       "%s: the host's name cannot be looked up: %s", target->shown,
                       gai_strerror(found));
    }
    int rc = dial(target, addresses, name, deadline_ns, out, err);
    freeaddrinfo(addresses);
    return rc;
}

int valkey_dial_again(const struct valkey_target *target, const struct valkey_peer *peer,
                      const char *name, int64_t deadline_ns, redisContext **out, struct err *err)
{
    struct sockaddr_storage address = peer->address;
    const struct addrinfo one = {.ai_family = address.ss_family,
                                 .ai_socktype = SOCK_STREAM,
                                 .ai_addr = (struct sockaddr *)&address,
                                 .ai_addrlen = peer->bytes};
    *out = NULL;
    return dial(target, &one, name, deadline_ns, out, err);
}

void valkey_peer_of(const redisContext *context, struct valkey_peer *peer)
{
    *peer = (struct valkey_peer){.bytes = sizeof(peer->address)};
    if (getpeername(context->fd, (struct sockaddr *)&peer->address, &peer->bytes) < 0) {
        peer->bytes = 0;
    }
}

bool valkey_ended(const redisContext *context)
{
    struct pollfd polled = {.fd = context->fd, .events = POLLRDHUP};
    return poll(&polled, 1, 0) > 0;
}
