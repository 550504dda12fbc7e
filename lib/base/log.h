/* log.h: what a program says of itself, on standard error, one line a message:
 *   2026-01-31T12:00:00.123Z sluice-api warning: text
 * Thread-safe; a line is written with one write(2). No passwords: callers pass URLs through
 * url_redact (options.h) first. */
#ifndef SLUICE_BASE_LOG_H
#define SLUICE_BASE_LOG_H

enum log_level { LOG_LEVEL_ERROR, LOG_LEVEL_WARNING, LOG_LEVEL_INFO, LOG_LEVEL_DEBUG };

void log_init(const char *program);       /* keeps the pointer; default "sluice" */
void log_set_level(enum log_level level); /* default LOG_LEVEL_INFO */
void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warning(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
