#include "base/options.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/url_password.h"

enum { RANGE_BYTES = 80, OPTIONS_WHERE_BYTES = 400, OPTIONS_FILE_MAX_BYTES = 1 << 20 };

const struct option_spec options_file_table[] = {
    {.name = "options-file",
     .type = OPTION_STRING,
     .unit = "FILE",
     .help = "take settings from FILE, a line name=value each, # begins a comment; environment and "
             "flags win over it"},
    {.name = NULL},
};

/* Where a value comes from; a higher one wins. */
enum source { SOURCE_DEFAULT, SOURCE_FILE, SOURCE_ENVIRONMENT, SOURCE_FLAG };

struct value {
    const struct option_spec *spec;
    const char *heading;
    bool is_set;
    enum source source;
    char *text; /* as given; for an URL from a file, what the file said; NULL: none */
    int64_t number;
    double decimal;
    char **list;
    size_t list_count;
};

struct options {
    const char *program;
    const char *summary;
    struct value *values;
    size_t count;
    char **args;
    size_t args_count;
};

static int assign(struct value *value, const char *text, const char *where, struct err *err);

struct options *options_new(const char *program, const char *summary)
{
    struct options *options = xcalloc(1, sizeof(*options));
    options->program = program;
    options->summary = summary;
    return options;
}

void options_free(struct options *options)
{
    if (!options)
        return;
    for (size_t i = 0; i < options->count; i++) {
        free(options->values[i].text);
        for (size_t k = 0; k < options->values[i].list_count; k++)
            free(options->values[i].list[k]);
        free(options->values[i].list);
    }
    for (size_t i = 0; i < options->args_count; i++)
        free(options->args[i]);
    free(options->args);
    free(options->values);
    free(options);
}

static struct value *find(const struct options *options, const char *name, size_t len)
{
    for (size_t i = 0; i < options->count; i++) {
        struct value *value = &options->values[i];
        if (strlen(value->spec->name) == len && memcmp(value->spec->name, name, len) == 0)
            return value;
    }
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

void options_add(struct options *options, const char *heading, const struct option_spec *table)
{
    if (!table)
        return;
    for (const struct option_spec *spec = table; spec->name; spec++) {
        struct value *old = find(options, spec->name, strlen(spec->name));
        if (old) {
            assert(old->spec->type == spec->type);
            assert(same_text(old->spec->default_text, spec->default_text));
            continue;
        }
        options->values =
            xrealloc(options->values, (options->count + 1) * sizeof(*options->values));
        struct value *value = &options->values[options->count++];
        *value = (struct value){.spec = spec, .heading = heading};
        if (spec->default_text && spec->type != OPTION_LIST) {
            struct err err;
            int result = assign(value, spec->default_text, "default", &err);
            assert(result == 0 && "a default must be valid");
            (void)result;
        }
        value->is_set = false;
    }
}

static void keep_text(struct value *value, const char *text)
{
    char *copy = xstrdup(text);
    free(value->text);
    value->text = copy;
}

static bool has_password(const char *url)
{
    char *shown = url_redacted(url);
    bool differs = strcmp(shown, url) != 0 && strstr(shown, "***");
    free(shown);
    return differs;
}

/* Each library would cut such a URL at another place, and half of a password would be a host. */
static int check_password(const char *url, struct err *err)
{
    if (url_password_is_safe(url))
        return 0;
    return err_set(
        err, -EINVAL,
        "the password in the URL holds a character that means something else there (such "
        "as @ : / ? # %% or a blank): write it as %%40 and the like, or choose a password "
        "of letters, digits and -._~ (containers take only such a one)");
}

static int assign_url(struct value *value, const char *text, const char *where, struct err *err)
{
    if (text[0] == '\0') /* libraries would take it for a server of their own choice */
        return err_set(err, -EINVAL, "it is empty: expected a URL, or no such setting at all");
    if (text[0] != '@') {
        if (strncmp(where, "--", 2) == 0 && has_password(text))
            return err_set(err, -EINVAL,
                           "the URL holds a password, and everybody on this machine can read "
                           "command lines: give it in the environment, or as @FILE");
        if (check_password(text, err) < 0)
            return -EINVAL;
        keep_text(value, text);
        return 0;
    }
    struct buf content = {0};
    int result = file_read(text + 1, 64 * 1024, &content, err);
    if (result == 0) {
        size_t line = content.data ? strcspn(content.data, "\r\n") : 0;
        if (line == 0 || !content.data) {
            result = err_set(err, -EINVAL, "%s holds no URL in its first line", text + 1);
        } else {
            content.data[line] = '\0';
            result = check_password(content.data, err);
            if (result == 0)
                keep_text(value, content.data);
        }
    }
    buf_free(&content);
    return result;
}

static int assign_choice(struct value *value, const char *text, struct err *err)
{
    size_t len = strlen(text);
    for (const char *at = value->spec->choices; at;) {
        size_t word = strcspn(at, "|");
        if (word == len && memcmp(at, text, len) == 0) {
            keep_text(value, text);
            return 0;
        }
        at = at[word] ? at + word + 1 : NULL;
    }
    return err_set(err, -EINVAL, "\"%s\" is not one of %s", text, value->spec->choices);
}

static int assign_bool(struct value *value, const char *text, struct err *err)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(text, yes[i]) == 0 || strcasecmp(text, no[i]) == 0) {
            value->number = strcasecmp(text, yes[i]) == 0;
            keep_text(value, value->number ? "yes" : "no");
            return 0;
        }
    }
    return err_set(err, -EINVAL, "\"%s\" is neither yes nor no", text);
}

static int check_range(const struct option_spec *spec, double number, struct err *err)
{
    bool open = spec->min == 0 && spec->max == 0;
    if (open ? number >= 0 : number >= (double)spec->min && number <= (double)spec->max)
        return 0;
    if (open)
        return err_set(err, -ERANGE, "it may not be negative");
    char range[RANGE_BYTES];
    return err_set(err, -ERANGE, "it must be %s", option_range(spec, range, sizeof(range)));
}

static int assign_number(struct value *value, const char *text, struct err *err)
{
    int64_t number = 0;
    double decimal = 0;
    int result;
    switch (value->spec->type) {
    case OPTION_DECIMAL:
        result = option_parse_decimal(text, &decimal, err);
        break;
    case OPTION_DURATION:
        result = option_parse_duration(text, &number, err);
        break;
    case OPTION_SIZE:
        result = option_parse_size(text, &number, err);
        break;
    default:
        result = option_parse_int(text, &number, err);
    }
    if (value->spec->type != OPTION_DECIMAL)
        decimal = (double)number;
    if (result == 0 && check_range(value->spec, decimal, err) < 0)
        result = -EINVAL;
    if (result < 0)
        return result;
    value->number = number;
    value->decimal = decimal;
    keep_text(value, text);
    return 0;
}

static int assign(struct value *value, const char *text, const char *where, struct err *err)
{
    int result = 0;
    switch (value->spec->type) {
    case OPTION_STRING:
        keep_text(value, text);
        break;
    case OPTION_LIST:
        value->list = xrealloc(value->list, (value->list_count + 1) * sizeof(char *));
        value->list[value->list_count++] = xstrdup(text);
        break;
    case OPTION_BOOL:
        result = assign_bool(value, text, err);
        break;
    case OPTION_URL:
        result = assign_url(value, text, where, err);
        break;
    case OPTION_CHOICE:
        result = assign_choice(value, text, err);
        break;
    case OPTION_INT:
    case OPTION_DECIMAL:
    case OPTION_DURATION:
    case OPTION_SIZE:
        result = assign_number(value, text, err);
        break;
    }
    if (result < 0 && value->spec->type != OPTION_URL && strstr(text, "://")) {
        /* Somebody gave a URL for something else, and the sentence repeats it. */
        err_set(err, result, "a URL is not wanted there");
    }
    if (result < 0) {
        err_prefix(err, "%s", where);
        if (err)
            err->code = -EINVAL;
        return -EINVAL;
    }
    value->is_set = true;
    return 0;
}

static void variable_name(const char *name, char *out, size_t out_bytes)
{
    size_t at = (size_t)snprintf(out, out_bytes, "SLUICE_");
    for (; *name && at + 1 < out_bytes; name++)
        out[at++] = *name == '-' ? '_' : (char)toupper((unsigned char)*name);
    out[at] = '\0';
}

/* A list from one source replaces that of a lower one. */
static void begin_source(struct value *value, enum source source)
{
    if (value->source == source)
        return;
    for (size_t i = 0; i < value->list_count; i++)
        free(value->list[i]);
    value->list_count = 0;
    value->source = source;
}

static int read_environment(struct options *options, struct err *err)
{
    for (size_t i = 0; i < options->count; i++) {
        char name[128];
        variable_name(options->values[i].spec->name, name, sizeof(name));
        const char *text = getenv(name);
        if (!text || (!*text && options->values[i].spec->type != OPTION_URL))
            continue;
        begin_source(&options->values[i], SOURCE_ENVIRONMENT);
        int result = assign(&options->values[i], text, name, err);
        if (result < 0)
            return result;
    }
    return 0;
}

/* A flag and its value, as they stand in argv. */
struct flag {
    struct value *value;
    const char *text;
};

/* One flag at argv[*at]; moves *at over its value when that is a word of its own. */
static int read_flag(const struct options *options, int argc, char *const argv[], int *at,
                     struct flag *flag, struct err *err)
{
    const char *name = argv[*at] + 2;
    size_t len = strcspn(name, "=");
    const char *text = name[len] ? name + len + 1 : NULL;
    struct value *value = find(options, name, len);
    if (!value && len > 3 && strncmp(name, "no-", 3) == 0) {
        value = find(options, name + 3, len - 3);
        if (value && value->spec->type == OPTION_BOOL && !text)
            text = "no";
        else
            value = NULL;
    }
    if (!value)
        return err_set(err, -EINVAL, "unknown flag --%.*s; %s --help lists those there are",
                       (int)len, name, options->program);
    if (!text && value->spec->type == OPTION_BOOL)
        text = "yes";
    if (!text && *at + 1 < argc)
        text = argv[++*at];
    if (!text)
        return err_set(err, -EINVAL, "--%s needs a value: --%s=%s", value->spec->name,
                       value->spec->name, value->spec->unit ? value->spec->unit : "VALUE");
    *flag = (struct flag){value, text};
    return 0;
}

/* Tells flags from positional words. flags has room for argc. */
static int read_words(struct options *options, int argc, char *const argv[], struct flag *flags,
                      size_t *flag_count, struct err *err)
{
    bool more_flags = true;
    for (int i = 1; i < argc; i++) {
        if (more_flags && strcmp(argv[i], "--") == 0) {
            more_flags = false;
        } else if (more_flags && strncmp(argv[i], "--", 2) == 0) {
            int result = read_flag(options, argc, argv, &i, &flags[*flag_count], err);
            if (result < 0)
                return result;
            ++*flag_count;
        } else if (more_flags && argv[i][0] == '-' && argv[i][1]) {
            return err_set(err, -EINVAL, "unknown flag %s; flags are written --name=value",
                           argv[i]);
        } else {
            options->args =
                xrealloc(options->args, (options->args_count + 1) * sizeof(*options->args));
            options->args[options->args_count++] = xstrdup(argv[i]);
        }
    }
    return 0;
}

static int apply_flags(const struct flag *flags, size_t count, struct err *err)
{
    for (size_t i = 0; i < count; i++) {
        char where[160];
        snprintf(where, sizeof(where), "--%s", flags[i].value->spec->name);
        begin_source(flags[i].value, SOURCE_FLAG);
        int result = assign(flags[i].value, flags[i].text, where, err);
        if (result < 0)
            return result;
    }
    return 0;
}

/* Cuts white space off both ends, in place. */
static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t len = strlen(text);
    while (len > 0 && strchr(" \t\r", text[len - 1]))
        len--;
    text[len] = '\0';
    return text;
}

static int read_file_line(struct options *options, char *line, const char *where, struct err *err)
{
    line = trim(line);
    if (*line == '\0' || *line == '#')
        return 0;
    char *equals = strchr(line, '=');
    if (!equals)
        return err_set(err, -EINVAL, "%s: \"%s\" is not name=value", where, line);
    *equals = '\0';
    const char *name = trim(line);
    struct value *value = find(options, name, strlen(name));
    if (!value || strcmp(name, options_file_table[0].name) == 0)
        return err_set(err, -EINVAL,
                       "%s: there is no setting \"%s\" in such a file; %s --help lists those "
                       "there are (here without the --)",
                       where, name, options->program);
    if (value->source == SOURCE_FILE && value->spec->type != OPTION_LIST)
        return err_set(err, -EINVAL, "%s: %s is set twice; leave one of them out", where, name);
    begin_source(value, SOURCE_FILE);
    char full_where[OPTIONS_WHERE_BYTES];
    snprintf(full_where, sizeof(full_where), "%s: %s", where, name);
    return assign(value, trim(equals + 1), full_where, err);
}

static int read_options_file(struct options *options, const char *path, struct err *err)
{
    struct buf content = {0};
    int result = file_read(path, OPTIONS_FILE_MAX_BYTES, &content, err);
    if (result == 0 && content.len > 0 && memchr(content.data, '\0', content.len))
        result = err_set(err, -EINVAL, "%s holds a zero byte, so it is no file of settings", path);
    if (result < 0)
        err_prefix(err, "--%s", options_file_table[0].name);
    buf_putc(&content, '\0');
    unsigned number = 0;
    for (char *line = content.data, *next; result == 0 && line; line = next) {
        char where[OPTIONS_WHERE_BYTES - 130];
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        snprintf(where, sizeof(where), "%s:%u", path, ++number);
        result = read_file_line(options, line, where, err);
    }
    buf_free(&content);
    return result < 0 ? -EINVAL : 0;
}

/* The file of settings that flags or environment name, if this program takes one. */
static const char *options_file_path(const struct options *options, const struct flag *flags,
                                     size_t flag_count)
{
    const char *name = options_file_table[0].name, *path = NULL;
    const struct value *value = find(options, name, strlen(name));
    if (!value)
        return NULL;
    for (size_t i = 0; i < flag_count; i++)
        if (flags[i].value == value)
            path = flags[i].text;
    if (!path) {
        char variable[128];
        variable_name(name, variable, sizeof(variable));
        path = getenv(variable);
    }
    return path && *path ? path : NULL;
}

int options_parse(struct options *options, int argc, char *const argv[], struct err *err)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return OPTIONS_HELP;
        if (strcmp(argv[i], "--version") == 0)
            return OPTIONS_VERSION;
    }
    struct flag *flags = xcalloc((size_t)argc + 1, sizeof(*flags));
    size_t flag_count = 0;
    int result = read_words(options, argc, argv, flags, &flag_count, err);
    const char *path = result == 0 ? options_file_path(options, flags, flag_count) : NULL;
    if (path)
        result = read_options_file(options, path, err);
    if (result == 0)
        result = read_environment(options, err);
    if (result == 0)
        result = apply_flags(flags, flag_count, err);
    free(flags);
    return result;
}

bool options_start(struct options *options, int argc, char *const argv[], int *exit_code)
{
    struct err err = {0};
    log_init(options->program);
    int result = options_parse(options, argc, argv, &err);
    *exit_code = 0;
    switch (result) {
    case OPTIONS_OK:
        return true;
    case OPTIONS_HELP:
        options_help(options, stdout);
        return false;
    case OPTIONS_VERSION:
        printf("%s %s\n", options->program, SLUICE_VERSION);
        return false;
    default:
        log_error("%s", err.text);
        *exit_code = 2;
        return false;
    }
}

int options_set(struct options *options, const char *name, const char *text, const char *where,
                struct err *err)
{
    struct value *value = find(options, name, strlen(name));
    if (!value)
        return err_set(err, -EINVAL, "%s: there is no setting %s", where, name);
    return assign(value, text, where, err);
}

int options_require(const struct options *options, const struct option_spec *table, struct err *err)
{
    for (const struct option_spec *spec = table; spec && spec->name; spec++) {
        const struct value *value = find(options, spec->name, strlen(spec->name));
        if (!spec->required || (value && (value->text || value->list_count)))
            continue;
        char variable[128];
        variable_name(spec->name, variable, sizeof(variable));
        return err_set(err, -EINVAL, "--%s=%s is needed (or %s): %s", spec->name,
                       spec->unit ? spec->unit : "VALUE", variable, spec->help);
    }
    return 0;
}

static const struct value *get(const struct options *options, const char *name)
{
    const struct value *value = find(options, name, strlen(name));
    assert(value && "no such setting");
    return value;
}

const char *options_string(const struct options *options, const char *name)
{
    const struct value *value = get(options, name);
    assert(value->spec->type == OPTION_STRING || value->spec->type == OPTION_URL ||
           value->spec->type == OPTION_CHOICE);
    return value->text;
}

bool options_bool(const struct options *options, const char *name)
{
    assert(get(options, name)->spec->type == OPTION_BOOL);
    return get(options, name)->number != 0;
}

int64_t options_int(const struct options *options, const char *name)
{
    assert(get(options, name)->spec->type == OPTION_INT);
    return get(options, name)->number;
}

double options_decimal(const struct options *options, const char *name)
{
    assert(get(options, name)->spec->type == OPTION_DECIMAL);
    return get(options, name)->decimal;
}

int64_t options_duration_ns(const struct options *options, const char *name)
{
    assert(get(options, name)->spec->type == OPTION_DURATION);
    return get(options, name)->number;
}

int64_t options_size_bytes(const struct options *options, const char *name)
{
    assert(get(options, name)->spec->type == OPTION_SIZE);
    return get(options, name)->number;
}

const char *const *options_list(const struct options *options, const char *name, size_t *count)
{
    const struct value *value = get(options, name);
    assert(value->spec->type == OPTION_LIST);
    *count = value->list_count;
    return (const char *const *)value->list;
}

const char *options_text(const struct options *options, const char *name)
{
    assert(get(options, name)->spec->type != OPTION_LIST);
    return get(options, name)->text;
}

bool options_is_set(const struct options *options, const char *name)
{
    return get(options, name)->is_set;
}

const char *const *options_args(const struct options *options, size_t *count)
{
    *count = options->args_count;
    return (const char *const *)options->args;
}

static void json_text(struct buf *out, const struct value *value, const char *text)
{
    assert(text);
    if (value->spec->type != OPTION_URL) {
        buf_json_string(out, text, strlen(text));
        return;
    }
    size_t room = strlen(text) + 32;
    char *shown = xmalloc(room);
    url_redact(text, shown, room);
    buf_json_string(out, shown, strlen(shown));
    free(shown);
}

void options_json(const struct options *options, struct buf *out)
{
    const char *separator = "";
    buf_putc(out, '{');
    for (size_t i = 0; i < options->count; i++) {
        const struct value *value = &options->values[i];
        if (!value->text && value->list_count == 0)
            continue;
        buf_puts(out, separator);
        separator = ", ";
        buf_json_string(out, value->spec->name, strlen(value->spec->name));
        buf_puts(out, ": ");
        if (value->spec->type != OPTION_LIST) {
            json_text(out, value, value->text);
            continue;
        }
        for (size_t k = 0; k < value->list_count; k++) {
            buf_puts(out, k ? ", " : "[");
            json_text(out, value, value->list[k]);
        }
        buf_putc(out, ']');
    }
    buf_putc(out, '}');
}

static void help_value(const struct value *value, FILE *out)
{
    const struct option_spec *spec = value->spec;
    char flag[200];
    if (spec->type == OPTION_BOOL)
        snprintf(flag, sizeof(flag), "--%s", spec->name);
    else
        snprintf(flag, sizeof(flag), "--%s=%s", spec->name,
                 spec->choices ? spec->choices : (spec->unit ? spec->unit : "VALUE"));
    if (strlen(flag) > 30)
        fprintf(out, "  %s\n  %30s  %s", flag, "", spec->help);
    else
        fprintf(out, "  %-30s  %s", flag, spec->help);
    if (spec->type == OPTION_LIST)
        fputs("; may be repeated", out);
    char range[RANGE_BYTES];
    if (option_range(spec, range, sizeof(range))[0] != '\0')
        fprintf(out, "; %s", range);
    if (spec->required)
        fputs(" (needed)", out);
    if (spec->default_text && *spec->default_text)
        fprintf(out, " [%s]", spec->default_text);
    fputc('\n', out);
}

void options_help(const struct options *options, FILE *out)
{
    fprintf(out, "%s\n", options->summary);
    const char *heading = NULL;
    for (size_t i = 0; i < options->count; i++) {
        if (heading != options->values[i].heading) {
            heading = options->values[i].heading;
            fprintf(out, "\n%s:\n", heading);
        }
        help_value(&options->values[i], out);
    }
    fprintf(out,
            "\n  %-30s  %s\n  %-30s  %s\n\n"
            "Every flag has an environment variable: --%s is %s. In [brackets]: the default.\n",
            "--help", "show this", "--version", "show the version",
            options->count ? options->values[0].spec->name : "name",
            options->count ? "SLUICE_ and the name in capitals, with _ for -" : "SLUICE_NAME");
}

void options_markdown(const struct options *options, FILE *out)
{
    fputs("| flag | variable | takes | default | what it does |\n|---|---|---|---|---|\n", out);
    for (size_t i = 0; i < options->count; i++) {
        const struct option_spec *spec = options->values[i].spec;
        char variable[128];
        variable_name(spec->name, variable, sizeof(variable));
        const char *takes = spec->type == OPTION_BOOL ? "yes or no"
                            : spec->unit              ? spec->unit
                                                      : "VALUE";
        fprintf(out, "| `--%s` | `%s` | ", spec->name, variable);
        if (spec->choices) /* a bar inside a table cell has to be escaped */
            for (const char *c = spec->choices; *c; c++)
                fprintf(out, *c == '|' ? ", " : "%c", *c);
        else
            fputs(takes, out);
        char range[RANGE_BYTES];
        if (option_range(spec, range, sizeof(range))[0] != '\0')
            fprintf(out, ", %s", range);
        fprintf(out, " | %s | %s%s |\n", spec->default_text ? spec->default_text : "", spec->help,
                spec->required ? " (needed)" : "");
    }
}
