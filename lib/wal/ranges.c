#include "wal/ranges.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Bounds how far a walk from a range's location to a record in it can be. */
#define RANGE_RECORDS 256

static int reserve(struct wal_ranges *ranges, size_t more)
{
    if (ranges->count + more <= ranges->capacity) {
        return 0;
    }
    size_t capacity = ranges->capacity == 0 ? 64 : ranges->capacity * 2;
    struct wal_range *list = realloc(ranges->list, capacity * sizeof *list);
    if (list == NULL) {
        return -ENOMEM;
    }
    ranges->list = list;
    ranges->capacity = capacity;
    return 0;
}

static void insert(struct wal_ranges *ranges, size_t at, const struct wal_range *range)
{
    assert(ranges->count < ranges->capacity);
    memmove(ranges->list + at + 1, ranges->list + at, (ranges->count - at) * sizeof *ranges->list);
    ranges->list[at] = *range;
    ranges->count++;
}

static void erase(struct wal_ranges *ranges, size_t from, size_t count)
{
    ranges->count -= count;
    memmove(ranges->list + from, ranges->list + from + count,
            (ranges->count - from) * sizeof *ranges->list);
}

/* Not across segments: the first one may be removed when its part of the range is done. */
static bool can_grow(const struct wal_range *range, uint64_t lsn, uint64_t number)
{
    return !range->returned && range->last + 1 == lsn && range->number == number &&
           range->last - range->first + 1 < RANGE_RECORDS;
}

int wal_ranges_push(struct wal_ranges *ranges, const struct wal_range *record)
{
    struct wal_range *last = ranges->count > 0 ? &ranges->list[ranges->count - 1] : NULL;
    assert(last == NULL || last->last < record->first);
    if (last != NULL && can_grow(last, record->first, record->number)) {
        last->last = record->first;
        ranges->records++;
        return 0;
    }
    int result = reserve(ranges, 1);
    if (result < 0) {
        return result;
    }
    insert(ranges, ranges->count, record);
    ranges->records++;
    return 0;
}

/* The first range that ends at or behind lsn. */
static size_t lower_bound(const struct wal_ranges *ranges, uint64_t lsn)
{
    size_t low = 0;
    size_t high = ranges->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (ranges->list[middle].last < lsn) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Cuts the range at `at` in two, the second starting at lsn. */
static void split(struct wal_ranges *ranges, size_t at, uint64_t lsn)
{
    struct wal_range right = ranges->list[at];
    right.first = lsn;
    ranges->list[at].last = lsn - 1;
    insert(ranges, at + 1, &right);
}

int wal_ranges_change(struct wal_ranges *ranges, uint64_t first, uint64_t last,
                      enum wal_range_change change)
{
    int result = reserve(ranges, 2);
    if (result < 0) {
        return result;
    }
    size_t from = lower_bound(ranges, first);
    if (from < ranges->count && ranges->list[from].first < first) {
        split(ranges, from, first);
        from++;
    }
    size_t to = from;
    while (to < ranges->count && ranges->list[to].first <= last) {
        struct wal_range *range = &ranges->list[to];
        if (range->last > last) {
            split(ranges, to, last + 1);
            range = &ranges->list[to];
        }
        uint64_t records = range->last - range->first + 1;
        if (range->returned) {
            ranges->returned -= records;
        }
        if (change == WAL_RANGE_RETURNED) {
            range->returned = true;
            ranges->returned += records;
        } else {
            ranges->records -= records;
        }
        to++;
    }
    if (change == WAL_RANGE_DONE) {
        erase(ranges, from, to - from);
    }
    return 0;
}

struct wal_range *wal_ranges_returned(struct wal_ranges *ranges)
{
    for (size_t i = 0; ranges->returned > 0 && i < ranges->count; i++) {
        if (ranges->list[i].returned) {
            return &ranges->list[i];
        }
    }
    return NULL;
}

int wal_ranges_take(struct wal_ranges *ranges, struct wal_range *range)
{
    size_t at = (size_t)(range - ranges->list);
    uint64_t lsn = range->first;
    assert(range->returned);
    if (at > 0 && can_grow(&ranges->list[at - 1], lsn, range->number)) {
        ranges->list[at - 1].last = lsn;
    } else {
        int result = reserve(ranges, 1);
        if (result < 0) {
            return result;
        }
        struct wal_range one = ranges->list[at];
        one.last = lsn;
        one.returned = false;
        insert(ranges, at, &one);
        at++;
    }
    ranges->returned--;
    if (ranges->list[at].last == lsn) {
        erase(ranges, at, 1);
    } else {
        ranges->list[at].first++;
    }
    return 0;
}

void wal_ranges_free(struct wal_ranges *ranges)
{
    free(ranges->list);
    memset(ranges, 0, sizeof *ranges);
}
