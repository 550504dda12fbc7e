/* sluice-wal: looking at a log, checking it, repairing it. */
#include "wal/tool/tool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct tool_command *const commands[] = {
    &tool_stat, &tool_verify, &tool_dump, &tool_repair, &tool_bench, NULL,
};

int tool_cannot(const struct tool_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "sluice-wal %s: ", command->name);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return TOOL_CANNOT;
}

void tool_json_string(FILE *file, const char *text)
{
    fputc('"', file);
    for (const unsigned char *at = (const unsigned char *)text; *at != '\0'; at++) {
        if (*at == '"' || *at == '\\') {
            fprintf(file, "\\%c", *at);
        } else if (*at < 0x20 || *at > 0x7e) {
            fprintf(file, "\\u%04x", *at);
        } else {
            fputc(*at, file);
        }
    }
    fputc('"', file);
}

/* 1, 0, or a negative errno: can't be told. */
static int held(const char *dir, const char *name)
{
    char path[WAL_PATH_BYTES];
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    int result = wal_path(path, dir, name);
    if (result < 0) {
        return result;
    }
    int file = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (file < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    result = fcntl(file, F_OFD_GETLK, &lock) < 0 ? -errno : lock.l_type != F_UNLCK;
    close(file);
    return result;
}

struct tool_owners tool_owners(const char *dir)
{
    int writer = held(dir, WAL_WRITER_LOCK_NAME);
    int reader = held(dir, WAL_READER_LOCK_NAME);
    return (struct tool_owners){
        .writer = writer == 1, .reader = reader == 1, .perhaps = writer != 0 || reader != 0};
}

static void help(const struct tool_command *command, const struct tool_option *options)
{
    printf("usage: sluice-wal %s DIR [options]\n\n%s\n", command->name, command->text);
    for (; options->name != NULL; options++) {
        char name[64];
        snprintf(name, sizeof name, "--%s%s%s", options->name, options->argument != NULL ? "=" : "",
                 options->argument != NULL ? options->argument : "");
        printf("  %-16s %s\n", name, options->help);
    }
    printf("  %-16s this text\n", "--help");
}

static int mistake(const struct tool_command *command, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static int mistake(const struct tool_command *command, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "sluice-wal %s: ", command->name);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "; see sluice-wal %s --help\n", command->name);
    va_end(arguments);
    return TOOL_USAGE;
}

static int set_option(const struct tool_command *command, const struct tool_option *option,
                      const char *value)
{
    if (option->kind == TOOL_FLAG) {
        if (value != NULL) {
            return mistake(command, "--%s takes no value", option->name);
        }
        *(bool *)option->target = true;
        return -1;
    }
    if (value == NULL || *value == '\0') {
        return mistake(command, "--%s needs a value: --%s=%s", option->name, option->name,
                       option->argument);
    }
    if (option->kind == TOOL_TEXT) {
        *(const char **)option->target = value;
        return -1;
    }
    char *end;
    errno = 0;
    unsigned long long number = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end != '\0' || errno != 0 || number < option->min ||
        number > option->max) {
        return mistake(command, "--%s=%s: must be a whole number from %llu to %llu", option->name,
                       value, (unsigned long long)option->min, (unsigned long long)option->max);
    }
    *(uint64_t *)option->target = number;
    return -1;
}

int tool_parse(const struct tool_command *command, const struct tool_option *options, int count,
               char **words, const char **dir)
{
    bool only_words = false;
    *dir = NULL;
    for (int i = 0; i < count; i++) {
        const char *word = words[i];
        if (only_words || strncmp(word, "--", 2) != 0) {
            if (*dir != NULL) {
                return mistake(command, "one folder at a time, not also \"%s\"", word);
            }
            *dir = word;
            continue;
        }
        if (strcmp(word, "--help") == 0) {
            help(command, options);
            return TOOL_FINE;
        }
        if (word[2] == '\0') {
            only_words = true;
            continue;
        }
        const char *equals = strchr(word, '=');
        size_t length = equals != NULL ? (size_t)(equals - word - 2) : strlen(word + 2);
        const struct tool_option *option = options;
        while (option->name != NULL &&
               (strlen(option->name) != length || memcmp(option->name, word + 2, length) != 0)) {
            option++;
        }
        if (option->name == NULL) {
            return mistake(command, "there is no option %.*s", (int)length + 2, word);
        }
        int result = set_option(command, option, equals != NULL ? equals + 1 : NULL);
        if (result >= 0) {
            return result;
        }
    }
    if (*dir == NULL || **dir == '\0') {
        return mistake(command, "which folder?");
    }
    return -1;
}

static void usage(FILE *file)
{
    fprintf(
        file,
        "usage: sluice-wal COMMAND DIR [options]\n\n"
        "For the folder of a segment log, as sluice-api --wal-dir=DIR or wal_open makes it.\n\n");
    for (size_t i = 0; commands[i] != NULL; i++) {
        fprintf(file, "  %-8s %s\n", commands[i]->name, commands[i]->summary);
    }
    fprintf(file, "\n`sluice-wal COMMAND --help` tells more. Exit status of all of them: 0 fine;\n"
                  "1 damage was found; 2 a mistake in the command; 3 it could not be done.\n");
}

int main(int count, char **words)
{
    if (count < 2) {
        usage(stderr);
        return TOOL_USAGE;
    }
    if (strcmp(words[1], "--help") == 0 || strcmp(words[1], "help") == 0) {
        usage(stdout);
        return TOOL_FINE;
    }
    if (strcmp(words[1], "--version") == 0) {
        printf("sluice-wal " SLUICE_WAL_VERSION ", format %u\n", WAL_FORMAT_VERSION);
        return TOOL_FINE;
    }
    for (size_t i = 0; commands[i] != NULL; i++) {
        if (strcmp(words[1], commands[i]->name) == 0) {
            int status = commands[i]->run(commands[i], count - 2, words + 2);
            if (fflush(stdout) != 0 || ferror(stdout)) {
                return tool_cannot(commands[i], "cannot write to stdout: %s", strerror(errno));
            }
            return status;
        }
    }
    fprintf(stderr, "sluice-wal: there is no command \"%s\"; see sluice-wal --help\n", words[1]);
    return TOOL_USAGE;
}
