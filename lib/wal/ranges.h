/* The records that are out (delivered or handed back, not done), as ranges of numbers. */
#ifndef WAL_RANGES_H
#define WAL_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wal_range {
    uint64_t first;
    uint64_t last;
    uint64_t number;   /* segment and offset of a batch, */
    uint64_t offset;   /* at or before that of `first` */
    uint64_t position; /* body bytes before `first`, or before a record a little earlier */
    bool returned;     /* to be delivered again */
};

struct wal_ranges {
    struct wal_range *list; /* ascending, disjoint */
    size_t count;
    size_t capacity;
    uint64_t records;
    uint64_t returned;
};

enum wal_range_change { WAL_RANGE_DONE, WAL_RANGE_RETURNED };

/* A newly delivered record, higher than all others. -ENOMEM. */
int wal_ranges_push(struct wal_ranges *ranges, const struct wal_range *record);
/* Changes whatever of first..last is in a range. -ENOMEM: nothing was changed. */
int wal_ranges_change(struct wal_ranges *ranges, uint64_t first, uint64_t last,
                      enum wal_range_change change);
/* The lowest returned range, or NULL. */
struct wal_range *wal_ranges_returned(struct wal_ranges *ranges);
/* The first record of a returned range is out again. -ENOMEM. */
int wal_ranges_take(struct wal_ranges *ranges, struct wal_range *range);
void wal_ranges_free(struct wal_ranges *ranges);

#endif
