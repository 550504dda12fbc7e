/* turn.c: see turn.h. */
#include "worker/turn.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <time.h>

#include "base/clock.h"

void turn_init(struct turn *turn)
{
    *turn = (struct turn){.width = 1};
    pthread_mutex_init(&turn->lock, NULL);
}

void turn_free(struct turn *turn)
{
    assert(!turn->first);
    pthread_mutex_destroy(&turn->lock);
}

void turn_place_init(struct turn_place *place)
{
    pthread_condattr_t attributes;
    *place = (struct turn_place){0};
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&place->given, &attributes);
    pthread_condattr_destroy(&attributes);
}

void turn_place_free(struct turn_place *place)
{
    assert(place->state == PLACE_NONE);
    pthread_cond_destroy(&place->given);
}

/* With the lock held, as all that follow. */
static void go_in(struct turn *turn, struct turn_place *place, bool early)
{
    struct turn_place **at = &turn->first;
    while (*at && (!early || (*at)->early)) {
        at = &(*at)->next;
    }
    place->early = early;
    place->state = PLACE_WAITS;
    place->next = *at;
    *at = place;
}

static void go_out(struct turn *turn, struct turn_place *place)
{
    struct turn_place **at = &turn->first;
    while (*at != place) {
        at = &(*at)->next;
    }
    *at = place->next;
    place->next = NULL;
    place->state = PLACE_NONE;
}

static void give_away(struct turn *turn)
{
    while (turn->first && turn->taken < turn->width) {
        struct turn_place *place = turn->first;
        go_out(turn, place);
        place->state = PLACE_HAS;
        turn->taken++;
        pthread_cond_signal(&place->given);
    }
}

enum turn_answer turn_take(struct turn *turn, struct turn_place *place, bool early,
                           int64_t until_ns)
{
    struct timespec until = {.tv_sec = until_ns / NS_PER_S, .tv_nsec = until_ns % NS_PER_S};
    enum turn_answer answer = TURN_LATER;
    pthread_mutex_lock(&turn->lock);
    if (place->state == PLACE_NONE && !turn->over) {
        go_in(turn, place, early);
        give_away(turn);
    }
    while (place->state == PLACE_WAITS && !turn->over &&
           pthread_cond_timedwait(&place->given, &turn->lock, &until) != ETIMEDOUT) {
    }
    if (place->state == PLACE_HAS) {
        answer = TURN_MINE;
    } else if (turn->over) {
        if (place->state == PLACE_WAITS) {
            go_out(turn, place);
        }
        answer = TURN_OVER;
    }
    pthread_mutex_unlock(&turn->lock);
    return answer;
}

void turn_end(struct turn *turn, struct turn_place *place, bool plenty)
{
    pthread_mutex_lock(&turn->lock);
    assert(place->state == PLACE_HAS);
    place->state = PLACE_NONE;
    turn->taken--;
    turn->width = plenty ? TURN_WIDEST : 1;
    give_away(turn);
    pthread_mutex_unlock(&turn->lock);
}

void turn_stop(struct turn *turn)
{
    pthread_mutex_lock(&turn->lock);
    turn->over = true;
    for (struct turn_place *place = turn->first; place; place = place->next) {
        pthread_cond_signal(&place->given);
    }
    pthread_mutex_unlock(&turn->lock);
}
