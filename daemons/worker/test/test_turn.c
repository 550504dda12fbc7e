/* Oracle: the order in which places came, written down here; a thread that waits is seen to wake
 * only by what it was told. No time is judged. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "worker/turn.h"

enum { PLACES = TURN_WIDEST + 3 };

struct line {
    struct turn turn;
    struct turn_place places[PLACES];
};

static int setup(void **state)
{
    static struct line line;
    turn_init(&line.turn);
    for (int i = 0; i < PLACES; i++) {
        turn_place_init(&line.places[i]);
    }
    *state = &line;
    return 0;
}

static int teardown(void **state)
{
    struct line *line = *state;
    for (int i = 0; i < PLACES; i++) {
        turn_place_free(&line->places[i]);
    }
    turn_free(&line->turn);
    return 0;
}

/* Without waiting. */
static enum turn_answer ask(struct line *line, int place, bool early)
{
    return turn_take(&line->turn, &line->places[place], early, 0);
}

static void end(struct line *line, int place)
{
    turn_end(&line->turn, &line->places[place], false);
}

static void first_come_first_served(void **state)
{
    struct line *line = *state;
    assert_int_equal(ask(line, 2, false), TURN_MINE);
    static const int order[] = {4, 0, 3, 1};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(ask(line, order[i], false), TURN_LATER);
    }
    assert_int_equal(ask(line, 1, false), TURN_LATER); /* asking again gains nothing */
    int has = 2;
    for (int i = 0; i < 4; i++) {
        end(line, has);
        for (int j = i + 1; j < 4; j++) {
            assert_int_equal(ask(line, order[j], false), TURN_LATER);
        }
        has = order[i];
        assert_int_equal(ask(line, has, false), TURN_MINE);
    }
    end(line, has);
    assert_int_equal(ask(line, 0, false), TURN_MINE); /* free again */
    end(line, 0);
}

static void the_early_come_before_the_others(void **state)
{
    struct line *line = *state;
    assert_int_equal(ask(line, 0, false), TURN_MINE);
    assert_int_equal(ask(line, 1, false), TURN_LATER);
    assert_int_equal(ask(line, 2, true), TURN_LATER);
    assert_int_equal(ask(line, 3, false), TURN_LATER);
    assert_int_equal(ask(line, 4, true), TURN_LATER);
    static const int order[] = {0, 2, 4, 1, 3};
    for (int i = 0; i < 4; i++) {
        end(line, order[i]);
        assert_int_equal(ask(line, order[i + 1], false), TURN_MINE);
    }
    end(line, 3);
}

static void several_while_there_is_plenty(void **state)
{
    struct line *line = *state;
    assert_int_equal(ask(line, 0, false), TURN_MINE);
    for (int i = 1; i < PLACES; i++) {
        assert_int_equal(ask(line, i, false), TURN_LATER);
    }
    turn_end(&line->turn, &line->places[0], true);
    for (int i = 1; i <= TURN_WIDEST; i++) {
        assert_int_equal(ask(line, i, false), TURN_MINE);
    }
    assert_int_equal(ask(line, TURN_WIDEST + 1, false), TURN_LATER);
    turn_end(&line->turn, &line->places[2], true); /* in any order */
    assert_int_equal(ask(line, TURN_WIDEST + 1, false), TURN_MINE);
    end(line, 1); /* from now on one at a time, once those who have it are through */
    for (int i = 3; i <= TURN_WIDEST; i++) {
        assert_int_equal(ask(line, TURN_WIDEST + 2, false), TURN_LATER);
        end(line, i);
    }
    assert_int_equal(ask(line, TURN_WIDEST + 2, false), TURN_LATER);
    end(line, TURN_WIDEST + 1);
    assert_int_equal(ask(line, TURN_WIDEST + 2, false), TURN_MINE);
    end(line, TURN_WIDEST + 2);
}

static void after_the_end_nobody_waits(void **state)
{
    struct line *line = *state;
    assert_int_equal(ask(line, 0, false), TURN_MINE);
    assert_int_equal(ask(line, 1, false), TURN_LATER);
    assert_int_equal(ask(line, 2, false), TURN_LATER);
    turn_stop(&line->turn);
    assert_int_equal(ask(line, 2, false), TURN_OVER);
    assert_int_equal(ask(line, 3, true), TURN_OVER);
    end(line, 0); /* to lane 1, who was in line and may still go home with it */
    assert_int_equal(ask(line, 1, false), TURN_MINE);
    end(line, 1);
    assert_int_equal(ask(line, 1, false), TURN_OVER);
}

struct waiter {
    struct line *line;
    pthread_t thread;
    int place;
    _Atomic int answer; /* -1: none yet */
};

static void *wait_for_it(void *arg)
{
    struct waiter *waiter = arg;
    struct line *line = waiter->line;
    enum turn_answer answer;
    do {
        answer = turn_take(&line->turn, &line->places[waiter->place], false,
                           clock_mono_ns() + 60 * NS_PER_S);
    } while (answer == TURN_LATER);
    atomic_store(&waiter->answer, (int)answer);
    return NULL;
}

static void begin_waiting(struct waiter *waiter, struct line *line, int place)
{
    *waiter = (struct waiter){.line = line, .place = place, .answer = -1};
    assert_int_equal(pthread_create(&waiter->thread, NULL, wait_for_it, waiter), 0);
    bool waits = false;
    while (!waits) {
        pthread_mutex_lock(&line->turn.lock);
        waits = line->places[place].state == PLACE_WAITS;
        pthread_mutex_unlock(&line->turn.lock);
        clock_sleep_ns(NS_PER_MS);
    }
}

/* Threads that sleep in it; a wake-up that is lost hangs here, and the test's limit ends that. */
static void sleepers_are_woken(void **state)
{
    struct line *line = *state;
    struct waiter first;
    struct waiter second;
    assert_int_equal(ask(line, 0, false), TURN_MINE);
    begin_waiting(&first, line, 1);
    begin_waiting(&second, line, 2);
    end(line, 0);
    pthread_join(first.thread, NULL);
    assert_int_equal(first.answer, TURN_MINE);
    assert_int_equal(second.answer, -1);
    turn_stop(&line->turn);
    pthread_join(second.thread, NULL);
    assert_int_equal(second.answer, TURN_OVER);
    end(line, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(first_come_first_served, setup, teardown),
        cmocka_unit_test_setup_teardown(the_early_come_before_the_others, setup, teardown),
        cmocka_unit_test_setup_teardown(several_while_there_is_plenty, setup, teardown),
        cmocka_unit_test_setup_teardown(after_the_end_nobody_waits, setup, teardown),
        cmocka_unit_test_setup_teardown(sleepers_are_woken, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
