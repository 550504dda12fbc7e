#include "ledger.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

enum { LEDGER_FLUSH_BYTES = 64 * 1024 };

struct ledger {
    int fd;
    char *path;
    int64_t start_wall_us;
    uint64_t rows;
    struct buf pending;
    int error; /* the first, negative errno */
};

int ledger_open(struct ledger **out, const char *path, uint64_t seed, size_t payload_bytes,
                int64_t start_wall_us, struct err *err)
{
    struct ledger *ledger;
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);

    if (fd < 0 && errno == EEXIST)
        return err_set(err, -EEXIST,
                       "the ledger %s is there already and is not overwritten; name another file",
                       path);
    if (fd < 0)
        return err_set(err, -errno, "cannot create the ledger %s: %s", path, strerror(errno));
    ledger = xcalloc(1, sizeof(*ledger));
    ledger->fd = fd;
    ledger->path = xstrdup(path);
    ledger->start_wall_us = start_wall_us;
    buf_printf(&ledger->pending, "#sluice-ledger 1 seed=%" PRIu64 " payload_bytes=%zu\n", seed,
               payload_bytes);
    *out = ledger;
    return 0;
}

void ledger_row(struct ledger *ledger, const struct settled *settled, const char *phase)
{
    char id[UUID_TEXT_BYTES];
    int64_t start_us = ledger->start_wall_us;
    int64_t sent_us = settled->sent_ns == ATTACK_NEVER ? 0 : start_us + settled->sent_ns / 1000;

    buf_printf(&ledger->pending, "%s\t%" PRId64 "\t%" PRId64 "\t%" PRId64 "\t%d\t%s\t%s\n",
               uuid_format(settled->id, id), start_us + settled->due_ns / 1000, sent_us,
               start_us + settled->done_ns / 1000, settled->code, outcome_name(settled->outcome),
               phase);
    ledger->rows++;
    if (ledger->pending.len >= LEDGER_FLUSH_BYTES)
        ledger_flush(ledger);
}

int ledger_flush(struct ledger *ledger)
{
    if (ledger->error == 0 && ledger->pending.len > 0)
        ledger->error = file_write_all(ledger->fd, ledger->pending.data, ledger->pending.len);
    buf_clear(&ledger->pending);
    return ledger->error;
}

int ledger_close(struct ledger *ledger, bool complete, struct err *err)
{
    int rc;

    if (!ledger)
        return 0;
    if (complete && ledger->error == 0)
        buf_printf(&ledger->pending, "#end rows=%" PRIu64 "\n", ledger->rows);
    rc = ledger_flush(ledger);
    if (close(ledger->fd) < 0 && rc == 0)
        rc = -errno;
    if (rc < 0)
        err_set(err, rc, "cannot write the ledger %s: %s; it is incomplete", ledger->path,
                strerror(-rc));
    buf_free(&ledger->pending);
    free(ledger->path);
    free(ledger);
    return rc;
}
