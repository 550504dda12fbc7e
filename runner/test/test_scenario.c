/* Oracle: DESIGN's table of keys, and positions counted by hand in the texts below: each mistake
 * must be reported at the line and column where it stands, with what was expected. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <cjson/cJSON.h>

#include "base/clock.h"
#include "scenario.h"

static const char good[] = "name: article\n"
                           "load:    {rps: 500, pacing: paced, connections: 100,\n"
                           "          payload_bytes: 512, timeout: 10s,\n"
                           "          phases: [{name: warm-up, for: 30s, rate: 0.5},\n"
                           "                   {name: steady, for: 300s}]}\n"
                           "main_db: {row_delay: 60ms}\n"
                           "worker:  {batch: 200, lanes: 20}\n"
                           "faults:  [{at: 180s, do: kill, who: worker, for: 30s}]\n"
                           "sla:     {api_p99: 50ms}\n";

/* Parses text; returns the error's text, or NULL. */
static int parse(struct scenario *scenario, const char *text, const char *set, struct err *err)
{
    const char *overrides[] = {set};
    *err = (struct err){0};
    return scenario_parse(scenario, text, strlen(text), "x.yaml", overrides, set ? 1 : 0, err);
}

static void expect_error(const char *text, const char *set, const char *start, const char *part)
{
    struct scenario scenario;
    struct err err;
    int rc = parse(&scenario, text, set, &err);
    if (rc >= 0) {
        fail_msg("taken, though it should fail with \"%s\":\n%s\n--set %s", start, text,
                 set ? set : "(none)");
    }
    if (strncmp(err.text, start, strlen(start)) != 0 || !strstr(err.text, part)) {
        fail_msg("expected \"%s...%s\", got \"%s\"", start, part, err.text);
    }
    scenario_free(&scenario);
}

static void reads_every_key(void **state)
{
    (void)state;
    struct scenario s;
    struct err err;
    assert_int_equal(parse(&s, good, NULL, &err), 0);
    assert_string_equal(s.name, "article");
    assert_int_equal(s.rps, 500);
    assert_int_equal(s.pacing, PACING_PACED);
    assert_int_equal(s.connections, 100);
    assert_int_equal(s.payload_bytes, 512);
    assert_int_equal(s.timeout_ns, 10 * NS_PER_S);
    assert_int_equal(s.phase_count, 2);
    assert_string_equal(s.phases[0].name, "warm-up");
    assert_int_equal(s.phases[0].duration_ns, 30 * NS_PER_S);
    assert_true(s.phases[0].rate == 0.5);
    assert_true(s.phases[1].rate == 1.0);
    assert_int_equal(s.row_delay_ns, 60 * NS_PER_MS);
    assert_int_equal(s.batch, 200);
    assert_int_equal(s.lanes, 20);
    assert_int_equal(s.fault_count, 1);
    assert_int_equal(s.faults[0].at_ns, 180 * NS_PER_S);
    assert_int_equal(s.faults[0].for_ns, 30 * NS_PER_S);
    assert_int_equal(s.faults[0].what, FAULT_KILL);
    assert_int_equal(s.faults[0].who, FAULT_WORKER);
    assert_string_equal(s.faults[0].place, "x.yaml:8:37");
    assert_int_equal(s.sla_api_p99_ns, 50 * NS_PER_MS);
    assert_int_equal(scenario_load_ns(&s), 330 * NS_PER_S);
    assert_true(scenario_tasks(&s) == 500 * 0.5 * 30 + 500 * 300);
    scenario_free(&s);
}

static void defaults_are_the_articles(void **state)
{
    (void)state;
    struct scenario s;
    struct err err;
    assert_int_equal(
        parse(&s, "{name: a, load: {rps: 1, phases: [{name: steady, for: 1s}]}}", NULL, &err), 0);
    assert_int_equal(s.connections, 100);
    assert_int_equal(s.payload_bytes, 512);
    assert_int_equal(s.row_delay_ns, 60 * NS_PER_MS);
    assert_int_equal(s.lanes, 20);
    assert_int_equal(s.fault_count, 0);
    assert_int_equal(s.sla_api_p99_ns, 50 * NS_PER_MS);
    scenario_free(&s);
}

#define HEAD "name: a\n"
#define LOAD "load: {rps: 9, phases: [{name: steady, for: 9s}]}\n"

static void mistakes_name_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *text, *start, *part;
    } cases[] = {
        /* YAML itself */
        {"", "x.yaml:1:1: ", "expected"},
        {"name: [a\n", "x.yaml:2:1: this is not valid YAML", ""},
        {"name: a\n\tload: 3\n", "x.yaml:2:1: this is not valid YAML", ""},
        {"- a\n", "x.yaml:1:1: scenario: expected settings", "a list"},
        {"just text\n", "x.yaml:1:1: scenario: expected settings", "a value"},
        {HEAD LOAD "---\nname: b\n", "x.yaml:3:1: ", "second document"},
        {"name: &n a\n" LOAD, "x.yaml:1:7: ", "anchors"},
        {"name: !!str a\n" LOAD, "x.yaml:1:7: ", "tags"},
        {HEAD "sla: *x\n" LOAD, "x.yaml:2:6: ", "aliases"},
        /* keys */
        {HEAD LOAD "name: b\n", "x.yaml:3:1: name is there already", "x.yaml:1:1"},
        {HEAD "load: {rps: 9, rps: 10}\n", "x.yaml:2:16: rps is there already", "x.yaml:2:8"},
        {HEAD LOAD "sinks: []\n", "x.yaml:3:1: unknown setting \"sinks\"", "worker"},
        {HEAD "load:\n  rsp: 5\n", "x.yaml:3:3: unknown setting \"rsp\" in load", "rps"},
        {LOAD, "x.yaml:1:1: name is missing", ""},
        {HEAD, "x.yaml:1:1: load is missing", ""},
        {HEAD "load: {rps: 9}\n", "x.yaml:2:7: load.phases is missing", ""},
        /* values */
        {"name: A b\n" LOAD, "x.yaml:1:7: name: expected a name", "A b"},
        {"name: ''\n" LOAD, "x.yaml:1:7: name: expected a name", ""},
        {"name: ../../x\n" LOAD, "x.yaml:1:7: name: expected a name", ""},
        {HEAD "load: {rps: -5}\n", "x.yaml:2:13: load.rps: expected a whole number from 1",
         "\"-5\""},
        {HEAD "load: {rps: 0}\n", "x.yaml:2:13: load.rps: ", "\"0\""},
        {HEAD "load: {rps: 5.5}\n", "x.yaml:2:13: load.rps: ", "\"5.5\""},
        {HEAD "load: {rps: lots}\n", "x.yaml:2:13: load.rps: ", "lots"},
        {HEAD "load: {rps: 99999999999999999999}\n", "x.yaml:2:13: load.rps: ", "1000000"},
        {HEAD "load: {rps: [5]}\n", "x.yaml:2:13: load.rps: ", "a list"},
        {HEAD "load: {rps: }\n", "x.yaml:2:13: load.rps: ", "\"\""},
        {HEAD "load: 500\n", "x.yaml:2:7: load: expected settings", "a value"},
        {HEAD "load: {pacing: fast}\n", "x.yaml:2:16: load.pacing: expected one of paced, burst",
         "fast"},
        {HEAD "load: {timeout: 10}\n", "x.yaml:2:17: load.timeout: expected a duration", "\"10\""},
        {HEAD "load: {timeout: 10 s}\n", "x.yaml:2:17: load.timeout: expected a duration", ""},
        {HEAD "load: {timeout: 10sec}\n", "x.yaml:2:17: load.timeout: expected a duration", ""},
        {HEAD "load: {timeout: -1s}\n", "x.yaml:2:17: load.timeout: expected a duration", ""},
        {HEAD "load: {timeout: 0}\n", "x.yaml:2:17: load.timeout: expected a duration from 1ms",
         ""},
        {HEAD "load: {payload_bytes: 0}\n", "x.yaml:2:23: load.payload_bytes: ", ""},
        {HEAD "load: {rps: 9, phases: []}\n", "x.yaml:2:24: load.phases: expected a list", ""},
        {HEAD "load: {rps: 9, phases: [{name: steady}]}\n",
         "x.yaml:2:25: load.phases[0].for is missing", ""},
        {HEAD "load: {rps: 9, phases: [{name: steady, for: 1s, rate: -1}]}\n",
         "x.yaml:2:55: load.phases[0].rate: expected a number from 0", "-1"},
        {HEAD "load: {rps: 9, phases: [{name: steady, for: 1s, rate: nan}]}\n",
         "x.yaml:2:55: load.phases[0].rate: ", ""},
        {HEAD "load: {rps: 9, phases: [{name: steady, for: 1s}, {name: steady, for: 1s}]}\n",
         "x.yaml:2:57: load.phases: a phase named steady is there already", ""},
        {HEAD "load: {rps: 9, phases: [{name: warm, for: 1s}]}\n",
         "x.yaml:2:24: load.phases: expected one phase named steady", ""},
        {HEAD "load: {rps: 1000000, phases: [{name: steady, for: 24h}]}\n",
         "x.yaml:2:7: load makes 86400000000 tasks", "at most"},
        {HEAD "load: {rps: 9, phases: [{name: steady, for: 9s, rate: 0}]}\n",
         "x.yaml:2:7: load makes no task", ""},
        {HEAD LOAD "main_db: {row_delay: 60}\n", "x.yaml:3:22: main_db.row_delay: expected a", ""},
        {HEAD LOAD "worker: {lanes: 0}\n", "x.yaml:3:17: worker.lanes: ", ""},
        {HEAD LOAD "sla: {api_p99: fast}\n", "x.yaml:3:16: sla.api_p99: ", "fast"},
        {HEAD LOAD "sink: {wal-dir: [a]}\n", "x.yaml:3:17: sink.wal-dir: ", "a list"},
        /* faults */
        {HEAD LOAD "faults: [{at: 1s, do: explode, who: api, for: 1s}]\n",
         "x.yaml:3:23: faults[0].do: expected one of kill, term, pause", "explode"},
        {HEAD LOAD "faults:\n  - at: 1s\n    do: kill\n    who: broker\n    for: 1s\n",
         "x.yaml:6:10: faults[0].who: expected one of api, worker, sink, main-db", "broker"},
        {HEAD LOAD "faults: [{at: 1s, do: kill, who: api}]\n",
         "x.yaml:3:10: faults[0].for is missing", ""},
        {HEAD LOAD "faults: [{at: 5s, do: kill, who: api, for: 5s}]\n",
         "x.yaml:3:34: faults[0] ends 10 s after", "inside the load"},
        {HEAD LOAD "faults: [{at: 1s, do: kill, who: api, for: 3s},\n"
                   "         {at: 2s, do: pause, who: api, for: 1s}]\n",
         "x.yaml:4:35: faults[1] befalls the api while faults[0] does", ""},
        /* background */
        {HEAD LOAD "background: [{at: 1s, do: defragment, who: sink}]\n",
         "x.yaml:3:27: background[0].do: expected one of checkpoint, vacuum, aof-rewrite, "
         "raft-rollover, segment-rotation",
         "defragment"},
        {HEAD LOAD "background: [{at: 1s, do: vacuum, who: worker}]\n",
         "x.yaml:3:40: background[0].who: expected one of main-db, sink, api", "worker"},
        {HEAD LOAD "background: [{at: 1s, do: vacuum, who: sink, for: 1s}]\n",
         "x.yaml:3:46: unknown setting \"for\" in background[0]", "at, do, who"},
        {HEAD LOAD "background: [{do: vacuum, who: sink}]\n",
         "x.yaml:3:14: background[0].at is missing", ""},
        {HEAD LOAD "background: [{at: 1s, who: sink}]\n",
         "x.yaml:3:14: background[0].do is missing", ""},
        {HEAD LOAD "background: [{at: 1s, do: vacuum}]\n",
         "x.yaml:3:14: background[0].who is missing", ""},
        {HEAD LOAD "background: {at: 1s, do: vacuum, who: sink}\n",
         "x.yaml:3:13: background: expected a list", ""},
        {HEAD LOAD "background: [vacuum]\n", "x.yaml:3:14: background[0]: expected settings", ""},
        {HEAD LOAD "background: [{at: 12, do: vacuum, who: sink}]\n",
         "x.yaml:3:19: background[0].at: expected a duration", "\"12\""},
        {HEAD LOAD "background:\n  - {at: 8s, do: vacuum, who: sink}\n"
                   "  - {at: 1s, do: aof-rewrite, who: main-db}\n",
         "x.yaml:5:36: background[1].who: main-db has no aof-rewrite", "expected sink"},
        {HEAD LOAD "background: [{at: 1s, do: segment-rotation, who: sink}]\n",
         "x.yaml:3:50: background[0].who: sink has no segment-rotation", "expected api"},
        {HEAD LOAD "background: [{at: 1s, do: checkpoint, who: api}]\n",
         "x.yaml:3:44: background[0].who: api has no checkpoint", "expected main-db or sink"},
        {HEAD "background: [{at: 9s, do: vacuum, who: sink}]\n" LOAD,
         "x.yaml:2:19: background[0].at is 9 s after", "inside the load"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect_error(cases[i].text, NULL, cases[i].start, cases[i].part);
    }
}

static void nesting_and_size_are_bounded(void **state)
{
    (void)state;
    char deep[4096] = "name: ";
    memset(deep + 6, '[', 2000);
    expect_error(deep, NULL, "x.yaml:1:", "nested too deep");
}

static void set_overrides_any_key(void **state)
{
    (void)state;
    static const char *const overrides[] = {
        "load.rps=2000",    "load.phases.1.for=12s", "faults=[]",         "worker.lanes=48",
        "sla.api_p99=10ms", "sink.sink-batch-max=1", "load.pacing=burst", "load.rps=3000",
    };
    struct scenario s;
    struct err err;
    assert_int_equal(scenario_parse(&s, good, strlen(good), "x.yaml", overrides, 8, &err), 0);
    assert_int_equal(s.rps, 3000); /* the later one wins */
    assert_int_equal(s.phases[1].duration_ns, 12 * NS_PER_S);
    assert_int_equal(s.fault_count, 0);
    assert_int_equal(s.lanes, 48);
    assert_int_equal(s.sla_api_p99_ns, 10 * NS_PER_MS);
    assert_int_equal(s.pacing, PACING_BURST);
    assert_int_equal(s.sink_count, 1);
    assert_string_equal(s.sink[0].name, "sink-batch-max");
    assert_string_equal(s.sink[0].text, "1");
    scenario_free(&s);
}

static void set_goes_through_the_same_checks(void **state)
{
    (void)state;
    expect_error(good, "load.rps=-1", "--set load.rps=-1: load.rps: expected a whole number", "");
    expect_error(good, "load.rpz=1", "--set load.rpz=1: unknown setting \"rpz\" in load", "rps");
    expect_error(good, "lod.rps=1", "--set lod.rps=1: unknown setting \"lod\"", "load");
    expect_error(good, "load.timeout=30", "--set load.timeout=30: load.timeout: expected a dur",
                 "");
    expect_error(good, "faults.1.at=3s", "--set faults.1.at=3s: \"faults.1\" leads nowhere", "");
    expect_error(good, "load.rps.x=3", "--set load.rps.x=3: \"load.rps.x\" leads nowhere", "");
    expect_error(good, "load..rps=3", "--set load..rps=3: \"load.\" leads nowhere", "");
    expect_error(good, "load.rps=", "--set load.rps=: expected KEY=VALUE", "");
    expect_error(good, "load.rps", "--set load.rps: expected KEY=VALUE", "");
    expect_error(good, "faults.0.who=broker", "--set faults.0.who=broker: faults[0].who: ", "");
    expect_error(good, "faults=[", "--set faults=[: this is not valid YAML", "");
    expect_error(good, "name=UP", "--set name=UP: name: expected a name", "");
}

static void the_manifest_holds_all(void **state)
{
    (void)state;
    struct scenario s;
    struct err err;
    struct buf json = {0};
    assert_int_equal(parse(&s, good, "load.timeout=1500us", &err), 0);
    scenario_json(&s, 1, &json);
    cJSON *root = cJSON_Parse(json.data);
    assert_non_null(root);
    const cJSON *load = cJSON_GetObjectItem(root, "load");
    assert_true(cJSON_GetObjectItem(load, "rps")->valuedouble == 500);
    assert_true(cJSON_GetObjectItem(load, "timeout_ms")->valuedouble == 1.5);
    const cJSON *phase = cJSON_GetArrayItem(cJSON_GetObjectItem(load, "phases"), 0);
    assert_true(cJSON_GetObjectItem(phase, "for_ms")->valuedouble == 30000);
    assert_true(cJSON_GetObjectItem(phase, "rate")->valuedouble == 0.5);
    const cJSON *fault = cJSON_GetArrayItem(cJSON_GetObjectItem(root, "faults"), 0);
    assert_string_equal(cJSON_GetObjectItem(fault, "who")->valuestring, "worker");
    assert_true(cJSON_GetObjectItem(fault, "at_ms")->valuedouble == 180000);
    cJSON_Delete(root);
    buf_clear(&json);
    scenario_json(&s, 0, &json);
    assert_non_null(strstr(json.data, "\"faults\": []"));
    buf_free(&json);
    scenario_free(&s);
}

static void a_background_schedule_is_read(void **state)
{
    (void)state;
    static const char text[] = "name: a\n"
                               "background:\n"
                               "  - {at: 2s, do: checkpoint, who: main-db}\n"
                               "  - {at: 1500us, do: raft-rollover, who: sink}\n"
                               "  - {who: api, do: segment-rotation, at: 1s}\n" LOAD;
    struct scenario s;
    struct err err;
    struct buf json = {0};
    assert_int_equal(parse(&s, text, "background.0.at=3s", &err), 0);
    assert_int_equal(s.background_count, 3);
    assert_int_equal(s.background[0].at_ns, 3 * NS_PER_S);
    assert_int_equal(s.background[0].what, BACKGROUND_CHECKPOINT);
    assert_int_equal(s.background[0].who, BACKGROUND_MAIN_DB);
    assert_int_equal(s.background[2].what, BACKGROUND_SEGMENT_ROTATION);
    assert_int_equal(s.background[2].who, BACKGROUND_API);
    scenario_background_json(&s, 2 | 4, &json);
    assert_string_equal(json.data,
                        "[{\"at_ms\": 1.500000, \"do\": \"raft-rollover\", \"who\": \"sink\"}, "
                        "{\"at_ms\": 1000, \"do\": \"segment-rotation\", \"who\": \"api\"}]");
    buf_clear(&json);
    scenario_json(&s, 0, &json);
    cJSON *root = cJSON_Parse(json.data);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(root, "background")), 3);
    cJSON_Delete(root);
    buf_free(&json);
    scenario_free(&s);
    assert_int_equal(parse(&s, text, "background=[]", &err), 0);
    assert_int_equal(s.background_count, 0);
    scenario_free(&s);
    assert_int_equal(parse(&s, HEAD LOAD "background:\n", NULL, &err), 0);
    assert_int_equal(s.background_count, 0);
    scenario_free(&s);
}

static void shipped_scenarios_are_valid(void **state)
{
    (void)state;
    static const char *const names[] = {"article", "quick", "headroom",
                                        "burst",   "naive", "background"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        char *path = scenario_find(names[i]);
        struct scenario s;
        struct err err = {0};
        assert_non_null(path);
        if (scenario_load(&s, path, NULL, 0, &err) < 0) {
            fail_msg("%s", err.text);
        }
        assert_string_equal(s.name, names[i]);
        scenario_free(&s);
        free(path);
    }
    assert_null(scenario_find("no-such"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_key),
        cmocka_unit_test(defaults_are_the_articles),
        cmocka_unit_test(mistakes_name_their_place),
        cmocka_unit_test(nesting_and_size_are_bounded),
        cmocka_unit_test(set_overrides_any_key),
        cmocka_unit_test(set_goes_through_the_same_checks),
        cmocka_unit_test(the_manifest_holds_all),
        cmocka_unit_test(a_background_schedule_is_read),
        cmocka_unit_test(shipped_scenarios_are_valid),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
