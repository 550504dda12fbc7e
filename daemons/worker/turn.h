/* turn.h: who of many lanes may do a thing that one does at a time, or a few while there is
 * plenty. First come, first served, unless somebody comes early; nobody is woken but the next, and
 * all at the end.
 *
 * A place belongs to one thread and outlives its stay in the line. Memory is the caller's.
 */
#ifndef SLUICE_WORKER_TURN_H
#define SLUICE_WORKER_TURN_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct turn_place {
    pthread_cond_t given;
    enum { PLACE_NONE, PLACE_WAITS, PLACE_HAS } state;
    bool early;
    struct turn_place *next; /* behind this one */
};

struct turn {
    pthread_mutex_t lock;  /* of what follows, and of all places */
    unsigned taken, width; /* by how many, and by how many it may be: 1 or TURN_WIDEST */
    bool over;
    struct turn_place *first; /* those who wait */
};

enum { TURN_WIDEST = 4 };

enum turn_answer {
    TURN_MINE,  /* until turn_end */
    TURN_LATER, /* not by until_ns; the place in the line is kept */
    TURN_OVER,  /* never again; the place is out of the line */
};

void turn_init(struct turn *turn);
void turn_free(struct turn *turn); /* nobody waits any more */
void turn_place_init(struct turn_place *place);
void turn_place_free(struct turn_place *place);

/* Goes into the line, unless it stands there, and waits until until_ns (clock_mono_ns) at most.
 * early: before those who came without; counts when it goes in. */
enum turn_answer turn_take(struct turn *turn, struct turn_place *place, bool early,
                           int64_t until_ns);
/* Gives it to the next. By whoever has it. plenty: there is enough for TURN_WIDEST; else for one,
 * from now on. */
void turn_end(struct turn *turn, struct turn_place *place, bool plenty);
/* Sends all home: whoever waits, or comes, is told TURN_OVER. Returns at once; any thread. */
void turn_stop(struct turn *turn);

#endif
