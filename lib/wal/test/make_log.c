/*
 * make_log DIR RECORDS BYTES SEGMENT_BYTES [DONE] [hold]
 *
 * Appends records "record N ....", each flushed by itself; a reader is done with DONE of them; with
 * "hold" it prints a line and keeps the log open, writing on, until it is killed. For tool.sh.
 */
#include "wal/reader.h"
#include "wal/wal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void die(const char *text)
{
    fprintf(stderr, "make_log: %s\n", text);
    exit(3);
}

static void append(struct wal *wal, uint64_t n, size_t size)
{
    char bytes[65536];
    memset(bytes, '.', sizeof bytes);
    int count = snprintf(bytes, sizeof bytes, "record %llu ", (unsigned long long)n);
    bytes[count] = '.';
    if (wal_append(wal, bytes, size, NULL) < 0 || wal_flush(wal, NULL) < 0) {
        die(wal_problem(wal));
    }
}

static void read_some(const char *dir, uint64_t count)
{
    struct wal_reader *reader;
    struct wal_record record;
    struct wal_err err;
    if (wal_reader_open(dir, NULL, &reader, &err) < 0) {
        die(err.text);
    }
    while (count-- > 0 && wal_reader_next(reader, &record) == 1) {
        wal_reader_done(reader, record.lsn, record.lsn);
    }
    wal_reader_close(reader);
}

int main(int count, char **words)
{
    struct wal_options options;
    struct wal *wal;
    struct wal_err err;
    wal_options_init(&options);
    if (count < 5) {
        die("see its source");
    }
    uint64_t records = strtoull(words[2], NULL, 10);
    size_t size = (size_t)strtoull(words[3], NULL, 10);
    options.segment_bytes = strtoull(words[4], NULL, 10);
    options.record_max = 8000;
    options.batch_max_bytes = 8192;
    if (wal_open(words[1], &options, &wal, &err) < 0) {
        die(err.text);
    }
    for (uint64_t n = 1; n <= records; n++) {
        append(wal, n, size);
    }
    if (count > 5 && strcmp(words[5], "0") != 0) {
        read_some(words[1], strtoull(words[5], NULL, 10));
    }
    if (count > 6) {
        puts("open");
        fflush(stdout);
        for (uint64_t n = records + 1;; n++) {
            append(wal, n, size);
            wal_prepare(wal);
            if (n % 64 == 0) {
                read_some(words[1], 64); /* so that segments go while others look */
            }
            usleep(200);
        }
    }
    return wal_close(wal) < 0 ? 3 : 0;
}
