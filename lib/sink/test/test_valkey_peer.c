/* Oracle: a peer whose every answer the test decides, so that what each outcome must be is known:
 * an id is DURABLE, an error from before execution REFUSED, what passes by is sent again, and
 * whatever was sent and not answered UNKNOWN. URLs: the parts that were put in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "sink/drivers.h"
#include "sink/sink_valkey.h"
#include "valkey_peer.h"
#include "valkey_sender.h"

/* ---- a scripted server ---- */

/* What the next XLEN and XADD are answered; "" when the script is at its end: as a server does. */
struct script {
    const char *lengths[16], *adds[16];
    atomic_uint lengths_at, adds_at; /* answered so far */
    atomic_uint added;               /* XADD answered with an id */
    bool silent[64];                 /* connections on which nothing is answered any more */
    const char *greeting;            /* NULL: +OK */
};

static const char *next_of(const char *const *list, atomic_uint *at)
{
    unsigned index = (*at)++;
    return index < 16 && list[index] ? list[index] : NULL;
}

static void play(void *arg, unsigned connection, const redisReply *command, struct buf *out,
                 bool *end)
{
    struct script *script = arg;
    const char *word = command->element[0]->str;
    const char *line = NULL;
    if (strcmp(word, "XLEN") == 0) {
        line = next_of(script->lengths, &script->lengths_at);
        line = line ? line : ":0";
    } else if (strcmp(word, "XADD") == 0) {
        line = next_of(script->adds, &script->adds_at);
        line = line ? line : "$3\r\n1-1";
        script->added += line[0] == '$';
    } else if (strcmp(word, "MEMORY") == 0) {
        line = ":100";
    } else {
        line = script->greeting ? script->greeting : "+OK";
    }
    if (strcmp(line, "end") == 0) {
        *end = true;
    }
    /* No server leaves one command out and answers the next. */
    script->silent[connection] = script->silent[connection] || strcmp(line, "silence") == 0;
    if (!*end && !script->silent[connection]) {
        buf_printf(out, "%s\r\n", line);
    }
}

static void open_to(struct sender *sender, struct peer *peer, const char *deadline)
{
    struct options *options = valkey_options(peer_port(peer), NULL, NULL);
    set_option(options, "valkey-deadline", deadline);
    set_option(options, "sink-connections", "1");
    sender_open(sender, options);
}

static struct sender sender; /* large */

static void loading_is_waited_for(void **state)
{
    struct script script = {.lengths = {"-LOADING the dataset", "-LOADING the dataset", ":3"},
                            .adds = {"-LOADING the dataset", "-BUSY a script runs", "$3\r\n1-1"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "5s");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    assert_int_equal(script.lengths_at, 3);
    struct sink_backlog backlog;
    assert_int_equal(sink_valkey.backlog(sender.sink, &backlog), 0);
    assert_int_equal(backlog.tasks, 3);
    sender_submit(&sender, 10, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_DURABLE], 1);
    assert_int_equal(script.adds_at, 3); /* sent three times on one connection */
    assert_int_equal(peer_accepted(peer), 1);
    sender_close(&sender, NS_PER_S);
    peer_end(peer);
}

static void loading_until_the_deadline(void **state)
{
    struct script script = {0};
    for (int i = 0; i < 16; i++) {
        script.lengths[i] = i == 0 ? NULL : "-LOADING the dataset";
        script.adds[i] = "-LOADING the dataset";
    }
    script.lengths[0] = ":0";
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "200ms");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    sender_submit(&sender, 10, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_REFUSED], 1); /* each answer said: not executed */
    sender_close(&sender, 0);
    peer_end(peer);
}

static void errors_before_execution_refuse(void **state)
{
    static const char *const errors[] = {
        "-OOM command not allowed when used memory > 'maxmemory'.",
        "-MISCONF Errors writing to the AOF file: No space left on device",
        "-READONLY You can't write against a read only replica.",
        "-NOPERM this user has no permissions",
        "-WRONGTYPE Operation against a key holding the wrong kind of value",
        "-NOREPLICAS Not enough good replicas to write."};
    (void)state;
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        struct script script = {.adds = {errors[i]}};
        struct peer *peer = peer_fake(play, &script);
        open_to(&sender, peer, "5s");
        assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
        sender_submit(&sender, 10, 0);
        assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
        assert_int_equal(sender.outcomes[SINK_REFUSED], 1);
        /* It takes none for a moment, and tries again by itself. */
        assert_false(sink_valkey.ready(sender.sink));
        sender_submit(&sender, 10, -EAGAIN);
        assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
        sender_submit(&sender, 10, 0);
        assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
        assert_int_equal(sender.outcomes[SINK_DURABLE], 1);
        assert_int_equal(peer_accepted(peer), 1);
        sender_close(&sender, NS_PER_S);
        peer_end(peer);
    }
}

/* An error that a proxy may have made up tells nothing, and spoils nothing. */
static void an_unknown_error_is_unknown(void **state)
{
    struct script script = {.adds = {"-ERR upstream failure"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "5s");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    sender_submit(&sender, 10, 0);
    sender_submit(&sender, 10, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcome[0], SINK_UNKNOWN);
    assert_int_equal(sender.outcome[1], SINK_DURABLE);
    assert_int_equal(peer_accepted(peer), 1);
    sender_close(&sender, NS_PER_S);
    peer_end(peer);
}

/* Answers out of step with the questions: none of them may be believed. */
static void a_shifted_answer_ends_the_connection(void **state)
{
    static const char *const answers[] = {":5", "*0", "$-1", "+OK", "$3\r\n1-1\r\n$3\r\n1-2"};
    (void)state;
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        struct script script = {.adds = {answers[i]}};
        struct peer *peer = peer_fake(play, &script);
        bool one_too_many = i == 4;
        open_to(&sender, peer, "5s");
        assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
        sender_submit(&sender, 10, 0);
        assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
        assert_int_equal(sender.outcome[0], one_too_many ? SINK_DURABLE : SINK_UNKNOWN);
        assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
        assert_int_equal(peer_accepted(peer), 2);
        sender_submit(&sender, 10, 0);
        assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
        assert_int_equal(sender.outcome[1], SINK_DURABLE);
        sender_close(&sender, NS_PER_S);
        peer_end(peer);
    }
}

/* A silent answer ends the connection, with it all that was sent, and nothing else. */
static void silence_gives_the_connection_up(void **state)
{
    struct script script = {.adds = {"$3\r\n1-1", "silence"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "300ms");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int i = 0; i < 3; i++) {
        sender_submit(&sender, 10, 0);
    }
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcome[0], SINK_DURABLE);
    assert_int_equal(sender.outcomes[SINK_UNKNOWN], 2);
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    assert_int_equal(peer_accepted(peer), 2);
    sender_submit(&sender, 10, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcome[3], SINK_DURABLE);
    sender_close(&sender, NS_PER_S);
    peer_end(peer);
}

/* An idle connection to a silent server is noticed too, by what is asked for the backlog. */
static void an_idle_loss_is_noticed(void **state)
{
    struct script script = {.lengths = {":0", "silence", "silence", "silence", "silence"}};
    struct peer *peer = peer_fake(play, &script);
    struct sink_backlog backlog;
    (void)state;
    open_to(&sender, peer, "100ms");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    int64_t until_ns = clock_mono_ns() + 5 * NS_PER_S;
    while (sink_valkey.ready(sender.sink) && clock_mono_ns() < until_ns) {
        sink_valkey.backlog(sender.sink, &backlog); /* as an API's tick does */
        sender_turn(&sender, 20 * NS_PER_MS);
    }
    assert_false(sink_valkey.ready(sender.sink));
    sender_close(&sender, 0);
    peer_end(peer);
}

static void a_full_window_waits_in_the_queue(void **state)
{
    struct script script = {.adds = {"silence"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    for (int i = 0; i < 16; i++) {
        script.adds[i] = "silence";
    }
    struct options *options = valkey_options(peer_port(peer), NULL, NULL);
    set_option(options, "valkey-deadline", "400ms");
    set_option(options, "sink-connections", "2");
    set_option(options, "sink-batch-max", "3");
    sender_open(&sender, options);
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int i = 0; i < 50; i++) { /* some turns, until both connections are there */
        sender_turn(&sender, 2 * NS_PER_MS);
    }
    for (int i = 0; i < 20; i++) {
        sender_submit(&sender, 10, 0);
    }
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    /* Two windows of three on the wire: unknown. The rest was never sent. */
    assert_int_equal(sender.outcomes[SINK_UNKNOWN], 6);
    assert_int_equal(sender.outcomes[SINK_REFUSED], 14);
    assert_int_equal(script.adds_at, 6);
    sender_close(&sender, 0);
    peer_end(peer);
}

static void the_end_of_a_connection_is_unknown(void **state)
{
    struct script script = {.adds = {"$3\r\n1-1", "end"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "5s");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int i = 0; i < 10; i++) {
        sender_submit(&sender, 10, 0);
    }
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcome[0], SINK_DURABLE);
    assert_int_equal(sender.outcomes[SINK_UNKNOWN], 9);
    sender_close(&sender, 0);
    peer_end(peer);
}

static void answers_in_single_bytes(void **state)
{
    struct script script = {.lengths = {":12"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    peer_by_bytes(peer);
    open_to(&sender, peer, "5s");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int i = 0; i < 30; i++) {
        sender_submit(&sender, 10, 0);
    }
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_DURABLE], 30);
    sender_close(&sender, NS_PER_S);
    peer_end(peer);
}

/* Bytes that no server says: the connection is given up, and nothing is read out of them. */
static void nonsense_ends_the_connection(void **state)
{
    struct script script = {.adds = {"?nonsense"}};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "5s");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    sender_submit(&sender, 10, 0);
    sender_submit(&sender, 10, 0);
    assert_true(sender_settled_within(&sender, 5 * NS_PER_S));
    assert_int_equal(sender.outcomes[SINK_UNKNOWN], 2);
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    assert_int_equal(peer_accepted(peer), 2);
    sender_close(&sender, 0);
    peer_end(peer);
}

/* What never left whole surely was not executed: it waits for the next connection. */
static void the_unsent_is_sent_again(void **state)
{
    struct script script = {0};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    open_to(&sender, peer, "10s");
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    peer_stall(peer, true);
    for (int i = 0; i < 40; i++) {
        sender_submit(&sender, 1 << 20, 0); /* more than all socket buffers hold */
    }
    for (int i = 0; i < 20; i++) {
        sender_turn(&sender, NS_PER_MS);
    }
    assert_int_equal(sender.settled, 0);
    peer_cut_after(peer, -1, -1);
    /* The peer answers the first ones and then ends: the script's adds are all ids, so cut by an
     * answer of "end" to the third. */
    script.adds[0] = script.adds[1] = "$3\r\n1-1";
    script.adds[2] = "end";
    peer_stall(peer, false);
    assert_true(sender_settled_within(&sender, 20 * NS_PER_S));
    assert_int_equal(peer_accepted(peer), 2);
    assert_true(sender.outcomes[SINK_DURABLE] >= 30);
    assert_true(sender.outcomes[SINK_UNKNOWN] >= 1); /* the third, at least, had left */
    assert_int_equal(sender.outcomes[SINK_REFUSED], 0);
    assert_true(script.added >= sender.outcomes[SINK_DURABLE]);
    sender_close(&sender, NS_PER_S);
    peer_end(peer);
}

static void close_tells_the_rest(void **state)
{
    struct script script = {0};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    for (int i = 0; i < 16; i++) {
        script.adds[i] = "silence";
    }
    struct options *options = valkey_options(peer_port(peer), NULL, NULL);
    set_option(options, "sink-connections", "1");
    set_option(options, "sink-batch-max", "4");
    sender_open(&sender, options);
    assert_true(sender_ready_within(&sender, 5 * NS_PER_S));
    for (int i = 0; i < 10; i++) {
        sender_submit(&sender, 10, 0);
    }
    sender_turn(&sender, 0);
    sender_close(&sender, 100 * NS_PER_MS);
    assert_int_equal(sender.outcomes[SINK_UNKNOWN], 4);
    assert_int_equal(sender.outcomes[SINK_REFUSED], 6);
    peer_end(peer);
}

/* ---- what setup says of peers that are no server ---- */

static void greet_as_http(void *arg, unsigned connection, const redisReply *command,
                          struct buf *out, bool *end)
{
    (void)arg;
    (void)connection;
    (void)command;
    buf_puts(out, "HTTP/1.1 400 Bad Request\r\n\r\n");
    *end = true;
}

static void end_at_once(void *arg, unsigned connection, const redisReply *command, struct buf *out,
                        bool *end)
{
    (void)arg;
    (void)connection;
    (void)command;
    (void)out;
    *end = true;
}

static void greet_with(void *arg, unsigned connection, const redisReply *command, struct buf *out,
                       bool *end)
{
    (void)connection;
    (void)command;
    (void)end;
    buf_printf(out, "%s\r\n", (const char *)arg);
}

static void expect_setup(int port, int code, const char *says)
{
    struct err err = {0};
    struct options *options = valkey_options(port, "top-secret", NULL);
    int64_t began_ns = clock_mono_ns();
    int rc = sink_valkey.setup(options, &err);
    int64_t took_ns = clock_mono_ns() - began_ns;
    if (rc != code || !strstr(err.text, says)) {
        fail_msg("%d (%s), wanted %d with \"%s\"", rc, err.text, code, says);
    }
    assert_null(strstr(err.text, "top-secret"));
    assert_null(strchr(err.text, '\n'));
    assert_true(took_ns < 8 * NS_PER_S); /* 5 s, and a busy machine */
    options_free(options);
}

static void other_servers_are_recognised(void **state)
{
    static const struct {
        const char *line;
        int code;
        const char *says;
    } answers[] = {
        {"-WRONGPASS invalid username-password pair", -EACCES, "refuses the user or the password"},
        {"-ERR invalid password", -EACCES, "refuses the user or the password"},
        {"-ERR AUTH <password> called without any password configured for the default user.",
         -EACCES, "has no password set"},
        {"-DENIED Redis is running in protected mode", -EACCES, "DENIED"},
        {"-LOADING Redis is loading the dataset in memory", -EAGAIN, "LOADING"},
    };
    (void)state;
    struct peer *peer = peer_fake(greet_as_http, NULL);
    expect_setup(peer_port(peer), -EPROTO, "is it another server");
    peer_end(peer);
    peer = peer_fake(end_at_once, NULL);
    int port = peer_port(peer);
    expect_setup(port, -ENOTCONN, "is it a Valkey or Redis");
    peer_end(peer);
    expect_setup(port, -ECONNREFUSED, "no connection");
    for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
        union {
            const char *in;
            void *out;
        } line = {.in = answers[i].line};
        peer = peer_fake(greet_with, line.out);
        expect_setup(peer_port(peer), answers[i].code, answers[i].says);
        peer_end(peer);
    }
}

static void a_silent_peer_is_left_in_time(void **state)
{
    struct script script = {.greeting = "silence"};
    struct peer *peer = peer_fake(play, &script);
    (void)state;
    expect_setup(peer_port(peer), -ETIMEDOUT, "no answer in time");
    peer_end(peer);
}

/* ---- URLs ---- */

static void urls_are_read(void **state)
{
    static const struct {
        const char *url, *host, *port, *user, *password;
        int db;
    } good[] = {
        {"redis://h", "h", "6379", NULL, NULL, 0},
        {"redis://h:1/", "h", "1", NULL, NULL, 0},
        {"redis://:p@h:65535/15", "h", "65535", NULL, "p", 15},
        {"redis://u:p@[::1]:7/2", "::1", "7", "u", "p", 2},
        {"redis://u%40x:p%3a%2F@1.2.3.4", "1.2.3.4", "6379", "u@x", "p:/", 0},
        {"redis://u:a%40b%3Ac%2Fd@h:9", "h", "9", "u", "a@b:c/d", 0},
        {"redis://:%70@h", "h", "6379", NULL, "p", 0},
    };
    static const char *const bad[] = {
        "http://h",      "redis:/h",         "redis://",         "redis://h:0",
        "redis://h:x",   "redis://h:65536",  "redis://h:12x",    "redis://h/x",
        "redis://h/1/2", "redis://h?db=1",   "redis://secret@h", "redis://:secret%zz@h",
        "redis://[::1",  "redis://:secret@", "redis://u%00:p@h", "redis://:secret%4@h",
        "redis://h:",    "redis://[::1]x:3", "redis://h:1/-1",   "redis://u:secret@b:c/d@h:9",
    };
    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct options *options = valkey_options(1, NULL, NULL);
        struct valkey_target target;
        struct err err = {0};
        set_option(options, "sink-url", good[i].url);
        if (valkey_target_new(&target, options, &err) != 0) {
            fail_msg("%s: %s", good[i].url, err.text);
        }
        assert_string_equal(target.host, good[i].host);
        assert_string_equal(target.port, good[i].port);
        assert_int_equal(target.db, good[i].db);
        assert_string_equal(target.user ? target.user : "-", good[i].user ? good[i].user : "-");
        assert_string_equal(target.password ? target.password : "-",
                            good[i].password ? good[i].password : "-");
        assert_true(!target.password || strlen(target.password) < 3 ||
                    !strstr(target.shown, target.password));
        valkey_target_free(&target);
        options_free(options);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct options *options = valkey_options(1, NULL, NULL);
        struct valkey_target target;
        struct err err = {0};
        /* A password that others may read in another way is refused before it comes here. */
        if (options_set(options, "sink-url", bad[i], "test", &err) != -EINVAL &&
            valkey_target_new(&target, options, &err) != -EINVAL) {
            fail_msg("%s was taken", bad[i]);
        }
        assert_true(strlen(err.text) > 20);
        assert_null(strstr(err.text, "secret"));
        options_free(options);
    }
}

static void only_our_names_are_made(void **state)
{
    struct options *options = valkey_options(1, NULL, "tasks");
    struct err err = {0};
    (void)state;
    assert_int_equal(sink_valkey.setup(options, &err), -EINVAL);
    assert_non_null(strstr(err.text, "--valkey-stream=tasks"));
    options_free(options);
}

static void an_unknown_host_is_told(void **state)
{
    struct options *options = valkey_options(1, NULL, NULL);
    struct err err = {0};
    (void)state;
    set_option(options, "sink-url", "redis://no-such-host.invalid:6379");
    int rc = sink_valkey.setup(options, &err);
    assert_true(rc == -EHOSTUNREACH || rc == -ETIMEDOUT);
    assert_non_null(strstr(err.text, "no-such-host.invalid"));
    /* The API's loop doesn't wait for the lookup, and its end does not trip over it. */
    sender_open(&sender, options);
    for (int i = 0; i < 10; i++) {
        sender_turn(&sender, 5 * NS_PER_MS);
    }
    assert_false(sink_valkey.ready(sender.sink));
    sender_submit(&sender, 1, -EAGAIN);
    sender_close(&sender, 0);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    log_init("test_valkey_peer");
    log_set_level(LOG_LEVEL_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(urls_are_read),
        cmocka_unit_test(only_our_names_are_made),
        cmocka_unit_test(an_unknown_host_is_told),
        cmocka_unit_test(other_servers_are_recognised),
        cmocka_unit_test(a_silent_peer_is_left_in_time),
        cmocka_unit_test(loading_is_waited_for),
        cmocka_unit_test(loading_until_the_deadline),
        cmocka_unit_test(errors_before_execution_refuse),
        cmocka_unit_test(an_unknown_error_is_unknown),
        cmocka_unit_test(a_shifted_answer_ends_the_connection),
        cmocka_unit_test(silence_gives_the_connection_up),
        cmocka_unit_test(an_idle_loss_is_noticed),
        cmocka_unit_test(a_full_window_waits_in_the_queue),
        cmocka_unit_test(the_end_of_a_connection_is_unknown),
        cmocka_unit_test(answers_in_single_bytes),
        cmocka_unit_test(nonsense_ends_the_connection),
        cmocka_unit_test(the_unsent_is_sent_again),
        cmocka_unit_test(close_tells_the_rest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
