/* Oracle: the server itself, asked through hiredis, and the kernel: who runs, as whom, with which
 * command line; what was answered before a SIGKILL is there after it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <hiredis/hiredis.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "prefix.h"
#include "server.h"
#include "state.h"

static char scratch[] = "/var/tmp/sluice-test-valkey-XXXXXX";
static char *base, *log_path;

static redisContext *connect_as(const struct server *server, const char *password)
{
    const struct timeval limit = {.tv_sec = 5};
    redisContext *context = redisConnectWithTimeout("127.0.0.1", server->port, limit);
    assert_non_null(context);
    assert_int_equal(context->err, 0);
    redisReply *reply = redisCommand(context, "AUTH %s", password);
    bool welcome = reply && reply->type == REDIS_REPLY_STATUS;
    freeReplyObject(reply);
    if (!welcome) {
        redisFree(context);
        return NULL;
    }
    return context;
}

static void wait_ready(struct server *server)
{
    struct err err = {0};
    int rc = -EAGAIN;
    for (int tries = 0; tries < 1500 && rc == -EAGAIN; tries++) {
        rc = server_poll_ready(server, &err);
        poll(NULL, 0, 20);
    }
    if (rc != 0) {
        fail_msg("not ready: %s", err.text);
    }
}

static void check_process(const struct server *server)
{
    char path[64];
    struct stat facts;
    struct buf text = {0};
    snprintf(path, sizeof(path), "/proc/%d", (int)server->process.pid);
    assert_int_equal(stat(path, &facts), 0);
    assert_true(facts.st_uid != 0);
    snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)server->process.pid);
    assert_int_equal(file_read(path, 4096, &text, NULL), 0);
    assert_null(memmem(text.data, text.len, server->password, strlen(server->password)));
    buf_free(&text);
    /* The one file with the password is its account's alone. */
    char *config = xasprintf("%s/valkey.conf", server->dir);
    assert_int_equal(stat(config, &facts), 0);
    assert_int_equal(facts.st_mode & 0777, 0600);
    free(config);
}

static void check_settings(struct server *server)
{
    static const char *const wanted[][2] = {{"save", ""},
                                            {"appendonly", "yes"},
                                            {"appendfsync", "always"},
                                            {"no-appendfsync-on-rewrite", "no"},
                                            {"maxmemory-policy", "noeviction"},
                                            {"bind", "127.0.0.1"},
                                            {"protected-mode", "yes"}};
    struct buf text = {0};
    struct err err = {0};
    assert_int_equal(server->kind->settings(server, &text, &err), 0);
    cJSON *json = cJSON_Parse(text.data);
    assert_non_null(json);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const cJSON *value = cJSON_GetObjectItem(json, wanted[i][0]);
        assert_non_null(value);
        assert_string_equal(value->valuestring, wanted[i][1]);
    }
    const cJSON *most = cJSON_GetObjectItem(json, "maxmemory");
    assert_true(most && strtoll(most->valuestring, NULL, 10) >= 64 << 20);
    cJSON_Delete(json);
    buf_free(&text);
    assert_int_equal(server->kind->settle(server, &err), 0);
}

static void lives_and_survives(void **state)
{
    struct account ourselves = {0};
    struct server server;
    struct err err = {0};
    char *dir;
    (void)state;
    assert_int_equal(state_subdir(base, "good", &ourselves, &dir, &err), 0);
    chmod(dir, 0711);
    struct server_place place = {
        .who = "sink", .state_dir = dir, .base = base, .log_path = log_path, .clients = 20};
    if (server_start(&server, &server_valkey, &place, &err) < 0) {
        fail_msg("%s", err.text);
    }
    assert_true(strncmp(server.version, "Valkey ", 7) == 0 ||
                strstr(server.version, "(in place of valkey)"));
    check_process(&server);
    check_settings(&server);
    assert_null(connect_as(&server, "wrong"));
    redisContext *context = connect_as(&server, server.password);
    assert_non_null(context);
    for (int i = 0; i < 500; i++) {
        redisAppendCommand(context, "XADD kept * n %d", i);
    }
    for (int i = 0; i < 500; i++) {
        redisReply *reply = NULL;
        assert_int_equal(redisGetReply(context, (void **)&reply), REDIS_OK);
        assert_int_equal(reply->type, REDIS_REPLY_STRING);
        freeReplyObject(reply);
    }
    redisFree(context);

    server_kill(&server);
    assert_int_equal(server_poll_ready(&server, &err), -ECHILD);
    assert_int_equal(server_relaunch(&server, &err), 0);
    wait_ready(&server);
    context = connect_as(&server, server.password);
    assert_non_null(context);
    redisReply *reply = redisCommand(context, "XLEN kept");
    assert_int_equal(reply->integer, 500);
    freeReplyObject(reply);
    redisFree(context);
    assert_true(server_stop(&server));
    server_free(&server);
    free(dir);
}

static int set_up(void **state)
{
    struct account account;
    struct err err = {0};
    (void)state;
    signal(SIGPIPE, SIG_IGN);
    if (!mkdtemp(scratch) || chmod(scratch, 0755) < 0) {
        return -1;
    }
    log_path = xasprintf("%s/server.log", scratch);
    char *inner = xasprintf("%s/base", scratch);
    int rc = account_for_servers(&account, &err);
    rc = rc < 0 ? rc : state_base(inner, &account, &base, &err);
    if (rc < 0) {
        print_error("%s\n", err.text);
    }
    free(inner);
    return rc;
}

static int tear_down(void **state)
{
    (void)state;
    free(base);
    free(log_path);
    return file_remove_tree(scratch, NULL);
}

int main(void)
{
    char *program;
    struct err err = {0};
    if (prefix_find_valkey(&program, &err) < 0) {
        const char *ci = getenv("CI");
        printf("SKIP: %s\n", err.text);
        return ci && strcmp(ci, "true") == 0 ? 1 : 77;
    }
    free(program);
    const struct CMUnitTest tests[] = {cmocka_unit_test(lives_and_survives)};
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
