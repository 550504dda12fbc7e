/* Oracle: broken.c's faults, each with the case that must notice it; and the control, the same
 * decorator without a fault, which must pass every case. The suite runs as the program it is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/buf.h"

static const char *program;

static int run(const char *arguments, struct buf *output)
{
    char *command = xasprintf("%s --sink=plain %s 2>/dev/null", program, arguments);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    char bytes[4096];
    size_t len;
    while ((len = fread(bytes, 1, sizeof(bytes), pipe)) > 0) {
        buf_append(output, bytes, len);
    }
    int status = pclose(pipe);
    free(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void every_fault_is_noticed(void **state)
{
    (void)state;
    static const struct {
        const char *fault;
        const char *noticed_by;
    } faults[] = {
        {"double-done", "one-outcome-each"},
        {"never-done", "one-outcome-each"},
        {"done-in-submit", "one-outcome-each"},
        {"batch-of-nothing", "one-outcome-each"},
        {"silent", "one-outcome-each"},
        {"never-ready", "ready-tells-the-truth"},
        {"drop-task", "stored-and-identical"},
        {"store-twice", "stored-and-identical"},
        {"other-id", "stored-and-identical"},
        {"refused-stored", "close-with-work"},
        {"keep-body", "stored-and-identical"},
        {"early-durable", "producer-killed"},
        {"early-durable", "both-killed-repeatedly"},
        {"close-forgets", "close-with-work"},
        {"close-guesses", "close-with-work"},
        {"change-byte", "bodies-of-every-size"},
        {"change-byte", "stored-and-identical"},
        {"change-time", "stored-and-identical"},
        {"ack-ignored", "ack-removes"},
        {"release-acks", "release-redelivers"},
        {"ack-on-fetch", "consumer-killed"},
        {"ack-on-fetch", "release-redelivers"},
        {"close-acks", "lane-close-releases"},
        {"ack-others", "acks-out-of-order"},
        {"restart-skips", "consumer-killed"},
        {"batch-too-large", "batches-fill-by-one-rule"},
        {"batch-never-full", "batches-fill-by-one-rule"},
        {"keep-takes", "idle-lanes-take-nothing"},
        {"backlog-without-flight", "backlog-is-exact"},
    };
    for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++) {
        struct buf output = {0};
        char *arguments = xasprintf("--patience=700ms --broken=%s --case=%s", faults[i].fault,
                                    faults[i].noticed_by);
        char *line = xasprintf("FAIL     plain: %s", faults[i].noticed_by);
        int status = run(arguments, &output);
        if (status != 1 || !output.data || !strstr(output.data, line)) {
            fail_msg("%s is not noticed by %s (exit %d):\n%s", faults[i].fault,
                     faults[i].noticed_by, status, output.data ? output.data : "");
        }
        free(arguments);
        free(line);
        buf_free(&output);
    }
}

static void the_decorator_itself_changes_nothing(void **state)
{
    (void)state;
    struct buf output = {0};
    int status = run("--broken=none", &output);
    if (status != 0) {
        fail_msg("exit %d:\n%s", status, output.data);
    }
    buf_free(&output);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    struct buf output = {0};
    assert_int_equal(run("--broken=no-such-fault", &output), 2);
    assert_int_equal(run("--case=no-such-case", &output), 2); /* and not: all well */
    buf_free(&output);
}

int main(int argc, char *argv[])
{
    if (argc != 2) {
        fprintf(stderr, "usage: %s PATH-OF-CONTRACT\n", argv[0]);
        return 2;
    }
    program = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fault_is_noticed),
        cmocka_unit_test(the_decorator_itself_changes_nothing),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
