/* Oracle: every line that comes out is parsed back by cJSON and compared with what went in. */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "base/file.h"
#include "metrics/metrics.h"

static char path[64];

static int make_path(void **state)
{
    (void)state;
    strcpy(path, "/tmp/sluice-metrics-XXXXXX");
    int fd = mkstemp(path);
    close(fd);
    return fd < 0 ? -1 : 0;
}

static int remove_path(void **state)
{
    (void)state;
    return unlink(path);
}

static void an_event_reads_back(void **state)
{
    (void)state;
    struct metrics *metrics;
    struct metrics_event event = {0};
    uint8_t id[UUID_BYTES] = {0xab};
    assert_int_equal(metrics_open(&metrics, path, NULL), 0);
    metrics_begin_at(&event, "durable", 1767182400000001);
    metrics_id(&event, "id", id);
    metrics_int(&event, "count", INT64_MIN);
    metrics_double(&event, "rate", 0.25);
    metrics_double(&event, "nothing", NAN);
    metrics_bool(&event, "exact", true);
    metrics_ms(&event, "wait_ms", 1234567);
    metrics_ms(&event, "early_ms", -500000);
    metrics_string(&event, "text", "a\"\n\x01\xff");
    metrics_string(&event, "none", NULL);
    metrics_json(&event, "raw", "{\"x\": 1}");
    metrics_array(&event, "ids");
    metrics_id(&event, NULL, id);
    metrics_int(&event, NULL, 2);
    metrics_array_end(&event);
    metrics_array(&event, "empty");
    metrics_array_end(&event);
    metrics_write(metrics, &event);
    metrics_begin(&event, "stop");
    metrics_write(metrics, &event);
    assert_int_equal(metrics_close(metrics), 0);
    metrics_event_free(&event);
    struct buf got = {0};
    assert_int_equal(file_read(path, 10000, &got, NULL), 0);
    char *second = strchr(got.data, '\n') + 1;
    assert_string_equal(strchr(second, '\n'), "\n");
    second[-1] = '\0';
    assert_string_equal(
        got.data, "{\"ts\": 1767182400.000001, \"ev\": \"durable\", "
                  "\"id\": \"ab000000-0000-0000-0000-000000000000\", "
                  "\"count\": -9223372036854775808, \"rate\": 0.25, \"nothing\": null, "
                  "\"exact\": true, \"wait_ms\": 1.234, \"early_ms\": -0.500, "
                  "\"text\": \"a\\\"\\n\\u0001\\ufffd\", \"none\": null, \"raw\": {\"x\": 1}, "
                  "\"ids\": [\"ab000000-0000-0000-0000-000000000000\", 2], \"empty\": []}");
    cJSON *line = cJSON_Parse(second);
    assert_string_equal(cJSON_GetObjectItem(line, "ev")->valuestring, "stop");
    cJSON_Delete(line);
    buf_free(&got);
}

static void *write_many(void *arg)
{
    struct metrics *metrics = arg;
    struct metrics_event event = {0};
    for (int i = 0; i < 5000; i++) {
        metrics_begin(&event, "committed");
        metrics_int(&event, "i", i);
        metrics_write(metrics, &event);
    }
    metrics_event_free(&event);
    return NULL;
}

static void threads_never_mix_their_lines(void **state)
{
    (void)state;
    struct metrics *metrics;
    pthread_t threads[4];
    assert_int_equal(metrics_open(&metrics, path, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, write_many, metrics), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(metrics_close(metrics), 0);
    struct buf got = {0};
    assert_int_equal(file_read(path, 10 << 20, &got, NULL), 0);
    size_t lines = 0;
    char *rest = got.data;
    for (char *text; (text = strsep(&rest, "\n")) && *text; lines++) {
        cJSON *line = cJSON_Parse(text);
        assert_non_null(line);
        assert_string_equal(cJSON_GetObjectItem(line, "ev")->valuestring, "committed");
        cJSON_Delete(line);
    }
    assert_int_equal(lines, 20000);
    buf_free(&got);
}

static void no_path_drops_and_a_bad_path_says_so(void **state)
{
    (void)state;
    struct metrics *metrics;
    struct metrics_event event = {0};
    struct err err = {0};
    assert_int_equal(metrics_open(&metrics, NULL, &err), 0);
    metrics_begin(&event, "x");
    metrics_write(metrics, &event);
    assert_int_equal(metrics_close(metrics), 0);
    assert_true(metrics_open(&metrics, "/nonexistent/m.jsonl", &err) < 0);
    assert_non_null(strstr(err.text, "/nonexistent/m.jsonl"));
    assert_int_equal(metrics_open(&metrics, "/dev/full", &err), 0);
    metrics_begin(&event, "x");
    metrics_write(metrics, &event);
    assert_true(metrics_flush(metrics) < 0);
    assert_true(metrics_close(metrics) < 0);
    metrics_event_free(&event);
}

/* Each opening of a folder takes a file of its own, after those that are there. */
static void a_folder_gets_the_first_free_name(void **state)
{
    (void)state;
    struct metrics *first, *second;
    struct err err = {0};
    char folder[] = "/tmp/sluice-metrics-XXXXXX", with_slash[64], name[96];
    assert_non_null(mkdtemp(folder));
    snprintf(with_slash, sizeof(with_slash), "%s/", folder);
    snprintf(name, sizeof(name), "%s/api-1.jsonl", folder);
    assert_int_equal(file_write(name, "old\n", 4, NULL), 0);
    assert_int_equal(metrics_open_as(&first, with_slash, "api", &err), 0);
    snprintf(name, sizeof(name), "%s/api-2.jsonl", folder);
    assert_string_equal(metrics_path(first), name);
    assert_int_equal(metrics_close(first), 0);
    assert_int_equal(metrics_open_as(&first, with_slash, "api", &err), 0);
    assert_int_equal(metrics_open_as(&second, with_slash, "worker", &err), 0);
    snprintf(name, sizeof(name), "%s/api-3.jsonl", folder);
    assert_string_equal(metrics_path(first), name);
    snprintf(name, sizeof(name), "%s/worker-1.jsonl", folder);
    assert_string_equal(metrics_path(second), name);
    assert_int_equal(metrics_close(first), 0);
    assert_int_equal(metrics_close(second), 0);
    file_remove_tree(folder, NULL);
    assert_int_equal(metrics_open_as(&first, with_slash, "api", &err), -ENOENT);
    assert_non_null(strstr(err.text, folder));
    assert_non_null(strstr(err.text, "api-N.jsonl"));
}

static void who_writes_a_file_is_told_from_a_dead_one(void **state)
{
    (void)state;
    struct err err = {0};
    struct metrics *metrics;
    int ready[2];
    char byte;
    assert_int_equal(metrics_alive(path, &err), 0);
    assert_int_equal(pipe(ready), 0);
    pid_t child = fork();
    if (child == 0) {
        if (metrics_open(&metrics, path, NULL) < 0 || write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(metrics_alive(path, &err), 1);
    assert_int_equal(metrics_open(&metrics, path, &err), 0); /* warned of, but both may append */
    assert_int_equal(metrics_close(metrics), 0);
    assert_int_equal(metrics_alive(path, &err), 1); /* asking takes nothing away */
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(metrics_alive(path, &err), 0);
    assert_int_equal(metrics_open(&metrics, path, &err), 0);
    assert_int_equal(metrics_alive(path, &err), 1); /* also from the process itself */
    assert_int_equal(metrics_close(metrics), 0);
    assert_int_equal(metrics_alive(path, &err), 0);
    assert_int_equal(metrics_alive("/nonexistent/m.jsonl", &err), -ENOENT);
    close(ready[0]);
    close(ready[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(an_event_reads_back, make_path, remove_path),
        cmocka_unit_test_setup_teardown(threads_never_mix_their_lines, make_path, remove_path),
        cmocka_unit_test(no_path_drops_and_a_bad_path_says_so),
        cmocka_unit_test(a_folder_gets_the_first_free_name),
        cmocka_unit_test_setup_teardown(who_writes_a_file_is_told_from_a_dead_one, make_path,
                                        remove_path),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
