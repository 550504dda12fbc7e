/* Oracle: DESIGN's table of what POST /task takes, the layout in task.h written out by hand, and
 * frozen values of the synthetic load: ledgers of old runs must stay auditable. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "task/task.h"

#define ID "00112233-4455-6677-8899-aabbccddeeff"

static int parse(const char *body, struct task *task, struct err *err)
{
    return task_parse(body, strlen(body), task, err);
}

static void good_bodies_are_taken_as_they_are(void **state)
{
    (void)state;
    static const char *const good[] = {
        "{\"id\":\"" ID "\",\"payload\":1}",
        "{\"payload\":null,\"id\":\"" ID "\"}",
        " {\"id\":\"00112233-4455-6677-8899-AABBCCDDEEFF\", \"payload\":{\"id\":1}, \"more\":[]} ",
        "{\"ID\":5,\"Payload\":6,\"id\":\"" ID "\",\"payload\":[]}",
    };
    uint8_t want[UUID_BYTES];
    uuid_parse(ID, 36, want);
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        struct task task = {.accepted_us = 7};
        assert_int_equal(parse(good[i], &task, NULL), 0);
        assert_memory_equal(task.id, want, UUID_BYTES);
        assert_ptr_equal(task.body, good[i]);
        assert_int_equal(task.body_bytes, strlen(good[i]));
        assert_int_equal(task.accepted_us, 7);
    }
}

static void an_absent_id_is_made(void **state)
{
    (void)state;
    struct task one, two;
    assert_int_equal(parse("{\"payload\":0}", &one, NULL), 0);
    assert_int_equal(parse("{\"payload\":0}", &two, NULL), 0);
    assert_int_equal(one.id[6] >> 4, 7);
    assert_memory_not_equal(one.id, two.id, UUID_BYTES);
}

static void bad_bodies_are_refused_with_a_reason(void **state)
{
    (void)state;
    static const struct {
        const char *body, *says;
    } bad[] = {
        {"", "not JSON"},
        {"[]", "object"},
        {"\"payload\"", "object"},
        {"{}", "\"payload\" is missing"},
        {"{\"id\":\"" ID "\"}", "\"payload\" is missing"},
        {"{\"Payload\":1}", "\"payload\" is missing"},
        {"{\"payload\":1,\"payload\":2}", "more than once"},
        {"{\"id\":\"" ID "\",\"payload\":1,\"id\":\"" ID "\"}", "more than once"},
        {"{\"id\":\"" ID "\",\"payload\":1,\"\\u0069d\":\"" ID "\"}", "more than once"},
        {"{\"id\":5,\"payload\":1}", "UUID"},
        {"{\"id\":null,\"payload\":1}", "UUID"},
        {"{\"id\":\"\",\"payload\":1}", "UUID"},
        {"{\"id\":\"00112233-4455-6677-8899-aabbccddeef\",\"payload\":1}", "UUID"},
        {"{\"payload\":1} x", "not JSON"},
        {"{\"payload\":\"\\u0000\"}", "u0000"},
        {"{\"payload\":\"\xff\"}", "UTF-8"},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct task task;
        struct err err = {0};
        assert_int_equal(parse(bad[i].body, &task, &err), -EINVAL);
        if (!strstr(err.text, bad[i].says))
            fail_msg("%s: \"%s\" does not say \"%s\"", bad[i].body, err.text, bad[i].says);
    }
}

static void flat_form_is_as_documented(void **state)
{
    (void)state;
    struct task task = {.accepted_us = 0x0102030405060708, .body = "xy", .body_bytes = 2};
    uuid_parse(ID, 36, task.id);
    uint8_t flat[TASK_HEADER_BYTES + 2];
    task_encode_header(&task, flat);
    memcpy(flat + TASK_HEADER_BYTES, task.body, 2);
    static const uint8_t want[] = {0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
                                   0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff, 8,    7,
                                   6,    5,    4,    3,    2,    1,    'x',  'y'};
    assert_int_equal(sizeof(want), sizeof(flat));
    assert_memory_equal(flat, want, sizeof(want));
    struct task back;
    assert_int_equal(task_decode(flat, sizeof(flat), &back), 0);
    assert_memory_equal(back.id, task.id, UUID_BYTES);
    assert_int_equal(back.accepted_us, task.accepted_us);
    assert_int_equal(back.body_bytes, 2);
    assert_memory_equal(back.body, "xy", 2);
    assert_int_equal(task_decode(flat, TASK_HEADER_BYTES, &back), 0);
    assert_int_equal(back.body_bytes, 0);
    assert_int_equal(task_decode(flat, TASK_HEADER_BYTES - 1, &back), -EBADMSG);
}

static void synthetic_load_is_frozen_and_valid(void **state)
{
    (void)state;
    uint8_t id[UUID_BYTES];
    char text[UUID_TEXT_BYTES];
    task_synth_id(1, 0, id);
    assert_string_equal(uuid_format(id, text), "1e613974-08ab-815e-aef1-000000000000");
    struct buf body = {0};
    task_synth_body(id, 20, &body);
    assert_string_equal(body.data, "{\"id\":\"1e613974-08ab-815e-aef1-000000000000\","
                                   "\"payload\":\"6Dj2qXxlz21Ikpxt2dN2\"}");
    assert_int_equal(task_body_hash("abc", 3), 0x78af5f94892f3950ULL); /* XXH3's own test value */
    for (size_t payload = 0; payload < 40; payload++) {
        buf_clear(&body);
        task_synth_body(id, payload, &body);
        struct task task;
        assert_int_equal(task_parse(body.data, body.len, &task, NULL), 0);
        assert_memory_equal(task.id, id, UUID_BYTES);
        assert_int_equal(body.len, strlen("{\"id\":\"" ID "\",\"payload\":\"\"}") + payload);
    }
    buf_free(&body);
}

static int compare_ids(const void *a, const void *b)
{
    return memcmp(a, b, UUID_BYTES);
}

static void synthetic_ids_never_repeat(void **state)
{
    (void)state;
    enum { COUNT = 100000 };
    uint8_t(*ids)[UUID_BYTES] = malloc(2 * COUNT * sizeof(*ids));
    for (uint64_t i = 0; i < COUNT; i++) {
        task_synth_id(1, i, ids[i]);
        task_synth_id(2, i, ids[COUNT + i]);
    }
    qsort(ids, 2 * COUNT, sizeof(*ids), compare_ids);
    for (size_t i = 1; i < 2 * COUNT; i++)
        assert_memory_not_equal(ids[i - 1], ids[i], UUID_BYTES);
    free(ids);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_bodies_are_taken_as_they_are),
        cmocka_unit_test(an_absent_id_is_made),
        cmocka_unit_test(bad_bodies_are_refused_with_a_reason),
        cmocka_unit_test(flat_form_is_as_documented),
        cmocka_unit_test(synthetic_load_is_frozen_and_valid),
        cmocka_unit_test(synthetic_ids_never_repeat),
    };
    return cmocka_run_group_tests_name("task", tests, NULL, NULL);
}
