#include "load_watch.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "metrics/metrics.h"

/* Is it PART-N.jsonl? */
static bool is_record_of(const char *name, const char *part)
{
    static const char end[] = ".jsonl";
    size_t len = strlen(name), part_len = strlen(part);
    return len > part_len + sizeof(end) && strncmp(name, part, part_len) == 0 &&
           name[part_len] == '-' &&
           strspn(name + part_len + 1, "0123456789") == len - part_len - sizeof(end) &&
           strcmp(name + len - (sizeof(end) - 1), end) == 0;
}

char *live_record(const char *dir, const char *part)
{
    DIR *folder = opendir(dir);
    char *found = NULL;
    for (const struct dirent *entry; folder && !found && (entry = readdir(folder));) {
        if (is_record_of(entry->d_name, part)) {
            char *path = xasprintf("%s/%s", dir, entry->d_name);
            if (metrics_alive(path, NULL) == 1) {
                found = path;
            } else {
                free(path);
            }
        }
    }
    if (folder) {
        closedir(folder);
    }
    return found;
}

bool records_are_dead(const char *dir, const char *part)
{
    DIR *folder = opendir(dir);
    bool lived = false, lives = false;
    for (const struct dirent *entry; folder && !lives && (entry = readdir(folder));) {
        if (is_record_of(entry->d_name, part)) {
            char *path = xasprintf("%s/%s", dir, entry->d_name);
            lived = true;
            lives = metrics_alive(path, NULL) != 0; /* where files have no locks, nobody knows */
            free(path);
        }
    }
    if (folder) {
        closedir(folder);
    }
    return lived && !lives;
}

int load_watch_open(struct load_watch *watch, const char *path, struct err *err)
{
    watch->file = fopen(path, "re");
    if (!watch->file) {
        return err_set(err, -errno, "%s: %s", path, strerror(errno));
    }
    watch->path = xstrdup(path);
    return 0;
}

/* The text behind "name": in a line that our own generator wrote; NULL. */
static const char *value_of(const char *line, const char *name)
{
    const char *at = strstr(line, name);
    return at ? at + strlen(name) : NULL;
}

/* Thousands a second may come, so no tree is made of each; the verdict reads them with care. */
static void take_line(struct load_watch *watch)
{
    const char *line = watch->line;
    if (strstr(line, "\"ev\": \"api_latency\"")) {
        const char *code = value_of(line, "\"code\": ");
        const char *latency = value_of(line, "\"latency_ms\": ");
        double latency_ms = latency ? strtod(latency, NULL) : 0;
        watch->answers++;
        watch->durable += code && strncmp(code, "202", 3) == 0;
        watch->worst_ms = latency_ms > watch->worst_ms ? latency_ms : watch->worst_ms;
    } else if (strstr(line, "\"ev\": \"stop\"")) {
        const char *complete = value_of(line, "\"complete\": ");
        const char *why = value_of(line, "\"why\": \"");
        watch->stopped = true;
        watch->complete = complete && strncmp(complete, "true", 4) == 0;
        snprintf(watch->why, sizeof(watch->why), "%.*s", why ? (int)strcspn(why, "\"") : 0,
                 why ? why : "");
    }
}

void load_watch_read(struct load_watch *watch, bool anew)
{
    if (anew) {
        watch->worst_ms = 0;
    }
    if (!watch->file) {
        return;
    }
    clearerr(watch->file);
    for (;;) {
        long begin = ftell(watch->file);
        ssize_t got = getline(&watch->line, &watch->line_bytes, watch->file);
        if (got <= 0) {
            break;
        }
        if (watch->line[got - 1] != '\n') {
            fseek(watch->file, begin, SEEK_SET); /* the rest of it comes later */
            break;
        }
        take_line(watch);
    }
}

bool load_watch_alive(const struct load_watch *watch)
{
    int alive = metrics_alive(watch->path, NULL);
    /* Where files have no locks, its last word must do. */
    return alive < 0 ? !watch->stopped : alive == 1;
}

void load_watch_close(struct load_watch *watch)
{
    if (watch->file) {
        fclose(watch->file);
    }
    free(watch->path);
    free(watch->line);
    *watch = (struct load_watch){0};
}
