#include "sink/sink_rabbit_window.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"

struct rabbit_waiter *rabbit_waiter_new(const struct task *task, sink_done_fn *done, void *arg,
                                        int64_t by_ns)
{
    struct rabbit_waiter *waiter = xmalloc(sizeof(*waiter) + task->body_bytes);
    waiter->next = NULL;
    waiter->done = done;
    waiter->arg = arg;
    memcpy(waiter->id, task->id, UUID_BYTES);
    waiter->accepted_us = task->accepted_us;
    waiter->by_ns = by_ns;
    waiter->body_bytes = task->body_bytes;
    if (task->body_bytes > 0) {
        memcpy(waiter->body, task->body, task->body_bytes);
    }
    return waiter;
}

void rabbit_waiters_push(struct rabbit_waiters *waiters, struct rabbit_waiter *waiter)
{
    waiter->next = NULL;
    if (waiters->last) {
        waiters->last->next = waiter;
    } else {
        waiters->first = waiter;
    }
    waiters->last = waiter;
    waiters->count++;
}

struct rabbit_waiter *rabbit_waiters_pop(struct rabbit_waiters *waiters)
{
    struct rabbit_waiter *waiter = waiters->first;
    if (waiter) {
        waiters->first = waiter->next;
        waiters->last = waiters->first ? waiters->last : NULL;
        waiters->count--;
        waiter->next = NULL;
    }
    return waiter;
}

void rabbit_waiters_prepend(struct rabbit_waiters *waiters, struct rabbit_waiters *front)
{
    if (!front->first) {
        return;
    }
    front->last->next = waiters->first;
    waiters->first = front->first;
    waiters->last = waiters->last ? waiters->last : front->last;
    waiters->count += front->count;
    *front = (struct rabbit_waiters){0};
}

void rabbit_verdicts_add(struct rabbit_verdicts *verdicts, struct rabbit_waiter *waiter,
                         enum sink_outcome outcome)
{
    if (verdicts->count == verdicts->room) {
        verdicts->room = verdicts->room > 0 ? 2 * verdicts->room : 128;
        verdicts->items = xrealloc(verdicts->items, verdicts->room * sizeof(*verdicts->items));
    }
    verdicts->items[verdicts->count++] =
        (struct rabbit_verdict){.done = waiter->done, .arg = waiter->arg, .outcome = outcome};
    verdicts->durable += outcome == SINK_DURABLE;
    free(waiter);
}

void rabbit_verdicts_run(struct rabbit_verdicts *verdicts)
{
    for (size_t i = 0; i < verdicts->count; i++) {
        const struct rabbit_verdict *verdict = &verdicts->items[i];
        unsigned batch = verdict->outcome == SINK_DURABLE ? verdicts->durable : 1;
        verdict->done(verdict->arg, verdict->outcome, batch);
    }
    verdicts->count = 0;
    verdicts->durable = 0;
}

void rabbit_verdicts_free(struct rabbit_verdicts *verdicts)
{
    assert(verdicts->count == 0);
    free(verdicts->items);
    *verdicts = (struct rabbit_verdicts){0};
}

/* ---- the window ---- */

static struct rabbit_slot *slot_at(const struct rabbit_window *window, size_t index)
{
    return &window->slots[(window->head + index) % window->room];
}

void rabbit_window_reset(struct rabbit_window *window)
{
    assert(window->undecided == 0);
    window->head = window->count = 0;
    window->first_tag = 1;
}

void rabbit_window_push(struct rabbit_window *window, struct rabbit_waiter *waiter, uint64_t begin)
{
    if (window->count == window->room) {
        size_t room = window->room > 0 ? 2 * window->room : 128;
        struct rabbit_slot *slots = xcalloc(room, sizeof(*slots));
        for (size_t i = 0; i < window->count; i++) {
            slots[i] = *slot_at(window, i);
        }
        free(window->slots);
        window->slots = slots;
        window->room = room;
        window->head = 0;
    }
    *slot_at(window, window->count++) = (struct rabbit_slot){.waiter = waiter, .begin = begin};
    window->undecided++;
    window->undecided_bytes += waiter->body_bytes;
}

static void give_up(struct rabbit_window *window, struct rabbit_slot *slot,
                    enum sink_outcome outcome, struct rabbit_verdicts *verdicts)
{
    if (slot->waiter) {
        window->undecided_bytes -= slot->waiter->body_bytes;
        rabbit_verdicts_add(verdicts, slot->waiter, outcome);
        slot->waiter = NULL;
    }
}

static void decide(struct rabbit_window *window, struct rabbit_slot *slot,
                   enum sink_outcome outcome, struct rabbit_verdicts *verdicts)
{
    if (slot->decided) {
        return;
    }
    outcome = slot->ambiguous ? SINK_UNKNOWN : outcome;
    give_up(window, slot, slot->returned ? SINK_REFUSED : outcome, verdicts);
    slot->decided = true;
    window->undecided--;
}

static void drop_decided(struct rabbit_window *window)
{
    while (window->count > 0 && slot_at(window, 0)->decided) {
        window->head = (window->head + 1) % window->room;
        window->count--;
        window->first_tag++;
    }
}

int rabbit_window_confirm(struct rabbit_window *window, uint64_t tag, bool multiple,
                          enum sink_outcome outcome, struct rabbit_verdicts *verdicts)
{
    uint64_t end_tag = window->first_tag + window->count;
    if (tag >= end_tag || (tag == 0 && !multiple)) {
        return -EPROTO;
    }
    tag = tag == 0 ? end_tag - 1 : tag;
    if (multiple) {
        for (uint64_t at = window->first_tag; at <= tag; at++) {
            decide(window, slot_at(window, (size_t)(at - window->first_tag)), outcome, verdicts);
        }
    } else if (tag >= window->first_tag) {
        decide(window, slot_at(window, (size_t)(tag - window->first_tag)), outcome, verdicts);
    }
    drop_decided(window);
    return 0;
}

size_t rabbit_window_return(struct rabbit_window *window, const uint8_t id[UUID_BYTES],
                            int64_t accepted_us, size_t body_bytes)
{
    struct rabbit_slot *match = NULL;
    size_t matches = 0;
    for (size_t i = 0; i < window->count; i++) {
        struct rabbit_slot *slot = slot_at(window, i);
        const struct rabbit_waiter *waiter = slot->waiter;
        if (!waiter || slot->decided || slot->returned || waiter->accepted_us != accepted_us ||
            waiter->body_bytes != body_bytes || memcmp(waiter->id, id, UUID_BYTES) != 0) {
            continue;
        }
        if (match) {
            match->ambiguous = slot->ambiguous = true;
        }
        match = slot;
        matches++;
    }
    if (matches == 1 && !match->ambiguous) {
        match->returned = true;
    }
    return matches;
}

size_t rabbit_window_expire(struct rabbit_window *window, int64_t now_ns,
                            struct rabbit_verdicts *verdicts)
{
    size_t expired = 0;
    /* In the order of their deadlines, but for those that were sent a second time. */
    for (size_t i = 0; i < window->count; i++) {
        struct rabbit_slot *slot = slot_at(window, i);
        if (!slot->waiter) {
            continue;
        }
        if (slot->waiter->by_ns > now_ns) {
            break;
        }
        give_up(window, slot, slot->returned ? SINK_REFUSED : SINK_UNKNOWN, verdicts);
        expired++;
    }
    return expired;
}

int64_t rabbit_window_due_ns(const struct rabbit_window *window)
{
    for (size_t i = 0; i < window->count; i++) {
        const struct rabbit_waiter *waiter = slot_at(window, i)->waiter;
        if (waiter) {
            return waiter->by_ns;
        }
    }
    return -1;
}

void rabbit_window_fail(struct rabbit_window *window, uint64_t given,
                        struct rabbit_verdicts *verdicts, struct rabbit_waiters *unsent)
{
    for (size_t i = 0; i < window->count; i++) {
        struct rabbit_slot *slot = slot_at(window, i);
        if (slot->decided) {
            continue;
        }
        if (slot->waiter && slot->begin >= given) {
            window->undecided_bytes -= slot->waiter->body_bytes;
            rabbit_waiters_push(unsent, slot->waiter);
            slot->waiter = NULL;
        }
        decide(window, slot, SINK_UNKNOWN, verdicts);
    }
    rabbit_window_reset(window);
}

void rabbit_window_free(struct rabbit_window *window)
{
    assert(window->undecided == 0);
    free(window->slots);
    *window = (struct rabbit_window){0};
}
