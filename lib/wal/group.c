#include "wal/wal_group.h"

#include "wal/internal.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IDLE_STEP_NS 1000000000

struct entry {
    struct entry *next;
    wal_group_done_fn *done;
    void *arg;
    uint64_t lsn;
    size_t count;
    unsigned char bytes[];
};

struct list {
    struct entry *first;
    struct entry **end;
    uint64_t bytes;
    uint64_t records;
};

struct wal_group {
    struct wal *wal;
    struct wal_group_options options;
    uint32_t record_max;
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    /* Under the mutex. */
    struct list submitted;
    bool stopping;
    bool failed;
    uint64_t unflushed_bytes;
};

void wal_group_options_init(struct wal_group_options *options)
{
    *options = (struct wal_group_options){
        .spacing_ns = 500000,
        .queue_max_bytes = 64u * 1024 * 1024,
    };
}

static void list_init(struct list *list)
{
    list->first = NULL;
    list->end = &list->first;
    list->bytes = 0;
    list->records = 0;
}

static void list_push(struct list *list, struct entry *entry)
{
    entry->next = NULL;
    *list->end = entry;
    list->end = &entry->next;
    list->bytes += entry->count;
    list->records++;
}

static struct entry *list_pop(struct list *list)
{
    struct entry *entry = list->first;
    if (entry != NULL) {
        list->first = entry->next;
        list->bytes -= entry->count;
        list->records--;
        if (list->first == NULL) {
            list->end = &list->first;
        }
    }
    return entry;
}

static void settle(struct wal_group *group, struct entry *entry, int result)
{
    pthread_mutex_lock(&group->mutex);
    group->unflushed_bytes -= entry->count;
    group->failed = group->failed || result == -EIO;
    pthread_mutex_unlock(&group->mutex);
    entry->done(entry->arg, result, entry->lsn);
    free(entry);
}

/* Those of `waiting` that a flush has decided. */
static void settle_flushed(struct wal_group *group, struct list *waiting, int result,
                           uint64_t durable_lsn)
{
    while (waiting->first != NULL && (result < 0 || waiting->first->lsn <= durable_lsn)) {
        struct entry *entry = list_pop(waiting);
        settle(group, entry, entry->lsn <= durable_lsn ? 0 : result);
    }
}

static void flush_list(struct wal_group *group, struct list *taken)
{
    struct list waiting;
    list_init(&waiting);
    while (taken->first != NULL || waiting.first != NULL) {
        uint64_t durable_lsn = 0;
        struct entry *entry = list_pop(taken);
        int result = 0;
        if (entry != NULL) {
            result = wal_append(group->wal, entry->bytes, entry->count, &entry->lsn);
            if (result == 0) {
                list_push(&waiting, entry);
                continue;
            }
            if (result != -EAGAIN || waiting.first == NULL) {
                entry->lsn = UINT64_MAX;
                settle(group, entry, result);
                continue;
            }
        }
        /* All that fits is queued. */
        do {
            result = wal_flush(group->wal, &durable_lsn);
            settle_flushed(group, &waiting, result, durable_lsn);
        } while (result > 0);
        if (entry != NULL) {
            entry->next = taken->first;
            taken->end = taken->first == NULL ? &entry->next : taken->end;
            taken->first = entry;
            taken->bytes += entry->count;
            taken->records++;
        }
    }
}

static void until(struct timespec *at, int64_t from_now_ns)
{
    clock_gettime(CLOCK_MONOTONIC, at);
    int64_t ns = at->tv_nsec + from_now_ns % 1000000000;
    at->tv_sec += from_now_ns / 1000000000 + ns / 1000000000;
    at->tv_nsec = ns % 1000000000;
}

/* Waits, the mutex held, until there is something to do. */
static void rest(struct wal_group *group)
{
    while (group->submitted.first == NULL && !group->stopping) {
        pthread_mutex_unlock(&group->mutex);
        wal_prepare(group->wal);
        int64_t due_ns = wal_prepare_due_ns(group->wal);
        pthread_mutex_lock(&group->mutex);
        if (group->submitted.first != NULL || group->stopping || due_ns == 0) {
            continue;
        }
        if (due_ns < 0) {
            /* Only the reader's progress can give wal_prepare work, and it does not wake us. */
            due_ns = IDLE_STEP_NS;
        }
        struct timespec at;
        until(&at, due_ns);
        pthread_cond_timedwait(&group->wake, &group->mutex, &at);
    }
}

static void keep_spacing(struct wal_group *group, int64_t last_start_ns)
{
    int64_t end_ns = last_start_ns + group->options.spacing_ns;
    while (group->submitted.records > 1 && !group->stopping &&
           group->submitted.bytes < group->wal->options.batch_max_bytes) {
        int64_t left_ns = end_ns - group->wal->vfs->now_ns(group->wal->vfs);
        if (left_ns <= 0) {
            return;
        }
        struct timespec at;
        until(&at, left_ns);
        pthread_cond_timedwait(&group->wake, &group->mutex, &at);
    }
}

static void *flusher(void *arg)
{
    struct wal_group *group = arg;
    struct list taken;
    int64_t last_start_ns = 0;
    pthread_mutex_lock(&group->mutex);
    for (;;) {
        rest(group);
        if (group->submitted.first == NULL) {
            break; /* stopping */
        }
        keep_spacing(group, last_start_ns);
        taken = group->submitted;
        list_init(&group->submitted);
        pthread_mutex_unlock(&group->mutex);
        last_start_ns = group->wal->vfs->now_ns(group->wal->vfs);
        flush_list(group, &taken);
        wal_prepare(group->wal);
        pthread_mutex_lock(&group->mutex);
    }
    pthread_mutex_unlock(&group->mutex);
    return NULL;
}

int wal_group_start(struct wal *wal, const struct wal_group_options *options,
                    struct wal_group **started)
{
    struct wal_group *group = calloc(1, sizeof *group);
    if (group == NULL) {
        return -ENOMEM;
    }
    if (options != NULL) {
        group->options = *options;
    } else {
        wal_group_options_init(&group->options);
    }
    group->wal = wal;
    group->record_max = wal->options.record_max;
    list_init(&group->submitted);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&group->mutex, NULL);
    pthread_cond_init(&group->wake, &attributes);
    pthread_condattr_destroy(&attributes);
    int result = pthread_create(&group->thread, NULL, flusher, group);
    if (result != 0) {
        pthread_cond_destroy(&group->wake);
        pthread_mutex_destroy(&group->mutex);
        free(group);
        return -result;
    }
    *started = group;
    return 0;
}

int wal_group_submit(struct wal_group *group, const void *bytes, size_t count,
                     wal_group_done_fn *done, void *arg)
{
    int result = 0;
    if (count > group->record_max) {
        return -EMSGSIZE;
    }
    struct entry *entry = malloc(sizeof *entry + count);
    if (entry == NULL) {
        return -ENOMEM;
    }
    entry->done = done;
    entry->arg = arg;
    entry->lsn = 0;
    entry->count = count;
    if (count > 0) {
        memcpy(entry->bytes, bytes, count);
    }
    pthread_mutex_lock(&group->mutex);
    if (group->failed) {
        result = -EIO;
    } else if (group->stopping) {
        result = -ESHUTDOWN;
    } else if (group->unflushed_bytes > 0 &&
               group->unflushed_bytes + count > group->options.queue_max_bytes) {
        result = -EAGAIN;
    } else {
        list_push(&group->submitted, entry);
        group->unflushed_bytes += count;
        pthread_cond_signal(&group->wake);
    }
    pthread_mutex_unlock(&group->mutex);
    if (result < 0) {
        free(entry);
    }
    return result;
}

void wal_group_stop(struct wal_group *group)
{
    pthread_mutex_lock(&group->mutex);
    group->stopping = true;
    pthread_cond_signal(&group->wake);
    pthread_mutex_unlock(&group->mutex);
    pthread_join(group->thread, NULL);
    pthread_cond_destroy(&group->wake);
    pthread_mutex_destroy(&group->mutex);
    free(group);
}
