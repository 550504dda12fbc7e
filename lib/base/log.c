#include "base/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

static const char *log_program = "sluice";
static atomic_int log_level = LOG_LEVEL_INFO;

void log_init(const char *program)
{
    log_program = program;
}

void log_set_level(enum log_level level)
{
    log_level = (int)level;
}

__attribute__((format(printf, 2, 0))) static void put(enum log_level level, const char *format,
                                                      va_list args)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    if ((int)level > log_level)
        return;
    char line[1200];
    int64_t now_us = clock_wall_us();
    time_t now_s = (time_t)(now_us / US_PER_S);
    struct tm utc;
    gmtime_r(&now_s, &utc);
    size_t len = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    len += (size_t)snprintf(line + len, sizeof(line) - len,
                            ".%03dZ %s %s: ", (int)(now_us % US_PER_S / 1000), log_program,
                            names[level]);
    int text = vsnprintf(line + len, sizeof(line) - len - 1, format, args);
    if (text > 0) {
        size_t room = sizeof(line) - len - 2;
        len += (size_t)text < room ? (size_t)text : room;
    }
    line[len++] = '\n';
    ssize_t ignored = write(STDERR_FILENO, line, len); /* nowhere left to complain */
    (void)ignored;
}

void log_error(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(LOG_LEVEL_ERROR, format, args);
    va_end(args);
}

void log_warning(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(LOG_LEVEL_WARNING, format, args);
    va_end(args);
}

void log_info(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(LOG_LEVEL_INFO, format, args);
    va_end(args);
}

void log_debug(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    put(LOG_LEVEL_DEBUG, format, args);
    va_end(args);
}
