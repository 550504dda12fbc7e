#include "tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"

/* Reading PSS walks page tables; it may take this share of the time. */
enum { PSS_TIME_SHARE = 100 };

enum counter { CPU, READ, WRITE, COUNTERS };

struct member {
    pid_t pid;
    pid_t parent;
    uint64_t start_ticks;
    bool alive; /* still there at this update */
    bool zombie;
    bool io_known;
    uint64_t rss_pages;
    uint64_t last[COUNTERS]; /* own and reaped together, as they were read last */
    uint64_t
        growth[COUNTERS]; /* since the update before, as far as reaped children can explain it */
    uint64_t ended[COUNTERS]; /* the last figures of descendants gone since then */
    uint64_t owed[COUNTERS];  /* of those gone before, what growth did not explain */
    uint64_t reaped_ticks;
};

struct tree {
    const char *proc_root;
    struct member *members; /* sorted by pid */
    size_t count, capacity;
    pid_t *pids;
    uint64_t total[COUNTERS];
    uint64_t generation;
    int64_t pss_read_ns, pss_due_ns;
    uint64_t pss_bytes;
    enum tree_memory_kind pss_kind;
};

struct tree *tree_new(const char *proc_root)
{
    struct tree *tree = xcalloc(1, sizeof(*tree));
    tree->proc_root = proc_root;
    return tree;
}

void tree_free(struct tree *tree)
{
    if (!tree)
        return;
    free(tree->members);
    free(tree->pids);
    free(tree);
}

static int compare_members(const void *left, const void *right)
{
    pid_t a = ((const struct member *)left)->pid, b = ((const struct member *)right)->pid;
    return (a > b) - (a < b);
}

static struct member *find_member(const struct tree *tree, pid_t pid)
{
    struct member key = {.pid = pid};
    if (tree->count == 0)
        return NULL;
    return bsearch(&key, tree->members, tree->count, sizeof(*tree->members), compare_members);
}

/* Takes what is new of one process into its member and the totals. */
static void account(struct tree *tree, struct member *member, const struct proc_stat *stat)
{
    uint64_t now[COUNTERS] = {stat->own_ticks + stat->reaped_ticks, member->last[READ],
                              member->last[WRITE]};
    struct proc_io io;
    int rc = member->zombie ? -ESRCH : proc_read_io(tree->proc_root, member->pid, &io);
    if (rc == 0) {
        now[READ] = io.read_bytes;
        now[WRITE] = io.write_bytes;
        member->io_known = true;
    }
    for (int i = 0; i < COUNTERS; i++) {
        uint64_t grown = now[i] > member->last[i] ? now[i] - member->last[i] : 0;
        tree->total[i] += grown;
        member->growth[i] = grown;
        member->last[i] = now[i] > member->last[i] ? now[i] : member->last[i];
    }
    /* For CPU the kernel tells a process's own from its children's; for disk it does not. */
    uint64_t reaped = stat->reaped_ticks, before = member->reaped_ticks;
    member->growth[CPU] = reaped > before ? reaped - before : 0;
    member->reaped_ticks = reaped;
}

static struct member *add_member(struct tree *tree, const struct proc_stat *stat)
{
    if (tree->count == tree->capacity) {
        tree->capacity = tree->capacity > 0 ? tree->capacity * 2 : 16;
        tree->members = xrealloc(tree->members, tree->capacity * sizeof(*tree->members));
        tree->pids = xrealloc(tree->pids, tree->capacity * sizeof(*tree->pids));
    }
    size_t at = tree->count;
    while (at > 0 && tree->members[at - 1].pid > stat->pid) {
        tree->members[at] = tree->members[at - 1];
        at--;
    }
    tree->members[at] = (struct member){.pid = stat->pid, .start_ticks = stat->start_ticks};
    tree->count++;
    tree->generation++;
    return &tree->members[at];
}

static void refresh(struct tree *tree, struct member *member, const struct proc_stat *stat)
{
    member->alive = true;
    member->parent = stat->parent;
    member->zombie = stat->state == 'Z' || stat->state == 'X';
    member->rss_pages = stat->rss_pages;
    account(tree, member, stat);
}

/* What heir's growth tells twice leaves the total. The table is not of one instant: heir may have
 * been read just before it waited for a child that was found gone, so what is not explained by this
 * update's growth may be by the next one's; after that nobody waited for it. */
static void settle_heir(struct tree *tree, struct member *heir)
{
    for (int c = 0; c < COUNTERS; c++) {
        uint64_t claim = heir->ended[c] + heir->owed[c];
        uint64_t twice = claim < heir->growth[c] ? claim : heir->growth[c];
        uint64_t rest = claim - twice;
        tree->total[c] -= twice;
        heir->owed[c] = rest < heir->ended[c] ? rest : heir->ended[c];
        heir->ended[c] = 0;
    }
}

/* The figures of members that are gone were counted while they lived. Where an ancestor has waited
 * for them since, they are in its figures too, and must leave the total once. */
static void settle_ended(struct tree *tree)
{
    for (size_t i = 0; i < tree->count; i++) {
        struct member *gone = &tree->members[i];
        if (gone->alive)
            continue;
        struct member *heir = find_member(tree, gone->parent);
        for (size_t depth = 0; heir && !heir->alive && depth < tree->count; depth++)
            heir = find_member(tree, heir->parent);
        if (!heir || !heir->alive)
            continue;
        for (int c = 0; c < COUNTERS; c++)
            heir->ended[c] += gone->last[c];
    }
    size_t kept = 0;
    for (size_t i = 0; i < tree->count; i++) {
        struct member *member = &tree->members[i];
        if (!member->alive)
            continue;
        settle_heir(tree, member);
        tree->members[kept++] = *member;
    }
    tree->count = kept;
}

/* A pid that is used again is another process: its old member is gone, but is kept (and so keeps
 * the new one out) until the next update. */
static void refresh_known(struct tree *tree, const struct proc_table *table)
{
    for (size_t i = 0; i < tree->count; i++) {
        struct member *member = &tree->members[i];
        const struct proc_stat *stat = proc_table_find(table, member->pid);
        member->alive = false;
        if (stat && stat->start_ticks == member->start_ticks)
            refresh(tree, member, stat);
    }
}

static void join_new(struct tree *tree, const struct proc_table *table, pid_t root)
{
    /* A child may have a lower pid than its parent (pids wrap), so until nobody joins any more. */
    for (bool joined = true; joined;) {
        joined = false;
        for (size_t i = 0; i < table->count; i++) {
            const struct proc_stat *stat = &table->items[i];
            if (find_member(tree, stat->pid))
                continue;
            const struct member *parent = find_member(tree, stat->parent);
            if (root != TREE_ALL && stat->pid != root && !(parent && parent->alive))
                continue;
            refresh(tree, add_member(tree, stat), stat);
            joined = true;
        }
    }
}

/* Sum of PSS, or of RSS where one of them may not be read. */
static void read_shared_memory(struct tree *tree, int64_t now_ns)
{
    uint64_t page_bytes = (uint64_t)sysconf(_SC_PAGESIZE), pss = 0, rss = 0;
    bool readable = true;
    int64_t began_ns = clock_mono_ns();
    for (size_t i = 0; i < tree->count; i++) {
        const struct member *member = &tree->members[i];
        if (member->zombie)
            continue;
        uint64_t bytes = 0;
        int rc = readable ? proc_read_pss(tree->proc_root, member->pid, &bytes) : 0;
        if (rc < 0 && rc != -ENOENT && rc != -ESRCH)
            readable = false;
        pss += bytes;
        rss += member->rss_pages * page_bytes;
    }
    tree->pss_kind = readable ? TREE_MEMORY_PSS : TREE_MEMORY_BOUND;
    tree->pss_bytes = readable ? pss : rss;
    tree->pss_read_ns = now_ns;
    tree->pss_due_ns = now_ns + (clock_mono_ns() - began_ns) * PSS_TIME_SHARE;
}

static void measure_memory(struct tree *tree, int64_t now_ns, struct tree_sample *sample)
{
    if (sample->processes == 0) {
        tree->pss_due_ns = 0;
        sample->memory_kind = TREE_MEMORY_NONE;
        return;
    }
    if (sample->processes == 1) {
        tree->pss_due_ns = 0;
        sample->memory_kind = TREE_MEMORY_RSS;
        for (size_t i = 0; i < tree->count; i++)
            if (!tree->members[i].zombie)
                sample->memory_bytes = tree->members[i].rss_pages * (uint64_t)sysconf(_SC_PAGESIZE);
        return;
    }
    if (now_ns >= tree->pss_due_ns)
        read_shared_memory(tree, now_ns);
    sample->memory_kind = tree->pss_kind;
    sample->memory_bytes = tree->pss_bytes;
    sample->memory_age_ns = now_ns - tree->pss_read_ns;
}

void tree_update(struct tree *tree, const struct proc_table *table, pid_t root, int64_t now_ns,
                 struct tree_sample *sample)
{
    refresh_known(tree, table);
    join_new(tree, table, root);
    settle_ended(tree);
    *sample = (struct tree_sample){.io_known = true};
    for (size_t i = 0; i < tree->count; i++) {
        const struct member *member = &tree->members[i];
        tree->pids[i] = member->pid;
        if (member->zombie)
            continue;
        sample->processes++;
        if (!member->io_known)
            sample->io_known = false;
    }
    sample->cpu_ticks = tree->total[CPU];
    sample->read_bytes = tree->total[READ];
    sample->write_bytes = tree->total[WRITE];
    measure_memory(tree, now_ns, sample);
}

const pid_t *tree_pids(const struct tree *tree, size_t *count)
{
    *count = tree->count;
    return tree->pids;
}

uint64_t tree_generation(const struct tree *tree)
{
    return tree->generation;
}
