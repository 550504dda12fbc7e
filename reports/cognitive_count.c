#include "cognitive_count.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "yaml_tree.h"

enum { FILE_BYTES_MAX = 4 * 1024 * 1024 };

/* ---- sources ---- */

unsigned cognitive_lines(const char *text)
{
    enum { CODE, LINE_COMMENT, COMMENT, STRING, CHARACTER } state = CODE;
    unsigned lines = 0;
    bool any = false;
    for (const char *at = text; *at; at++) {
        if (*at == '\n') {
            lines += any;
            any = false;
            if (state == LINE_COMMENT)
                state = CODE;
        } else if (state == COMMENT) {
            if (at[0] == '*' && at[1] == '/') {
                state = CODE;
                at++;
            }
        } else if (state == STRING || state == CHARACTER) {
            any = true;
            if (*at == '\\' && at[1] && at[1] != '\n')
                at++;
            else if (*at == (state == STRING ? '"' : '\''))
                state = CODE;
        } else if (state == CODE) {
            if (at[0] == '/' && (at[1] == '*' || at[1] == '/')) {
                state = at[1] == '*' ? COMMENT : LINE_COMMENT;
                at++;
            } else {
                any = any || (*at != ' ' && *at != '\t' && *at != '\r');
                state = *at == '"' ? STRING : *at == '\'' ? CHARACTER : CODE;
            }
        }
    }
    return lines + any;
}

int cognitive_server_lines(const char *text)
{
    const char *at = strstr(text, "settings_text[] =");
    int lines = 0;
    bool inside = false;
    if (!at)
        return -1;
    for (; *at && (inside || *at != ';'); at++) {
        if (!inside && at[0] == '/' && at[1] == '*') {
            const char *end = strstr(at, "*/");
            if (!end)
                return -1;
            at = end + 1;
        } else if (inside && *at == '\\' && at[1]) {
            lines += *++at == 'n';
        } else if (*at == '"') {
            inside = !inside;
        }
    }
    return lines;
}

/* ---- a page's front matter ---- */

struct page {
    const char *root;
    char *name;       /* "docs/sinks/wal.md" */
    struct buf text;  /* the whole page */
    const char *body; /* after the front matter */
    struct tree_node *tree;
};

/* Splits the page at its "---" lines; the YAML keeps its line numbers. */
static int page_parse(struct page *page, struct err *err)
{
    const char *start = page->text.data ? page->text.data : "";
    const char *end = strncmp(start, "---\n", 4) == 0 ? strstr(start + 3, "\n---\n") : NULL;
    if (!end)
        return err_set(err, -EINVAL,
                       "%s:1: no front matter: the page must begin with a line \"---\", the lists "
                       "that docs/cognitive-load.md names, and another line \"---\"",
                       page->name);
    struct buf yaml = {0};
    buf_append(&yaml, "\n", 1);
    buf_append(&yaml, start + 4, (size_t)(end - start) - 3);
    int rc = tree_parse(yaml.data, yaml.len, page->name, &page->tree, err);
    buf_free(&yaml);
    page->body = end + 5;
    if (rc == 0 && (!page->tree || page->tree->kind != TREE_MAP))
        rc = err_set(err, -EINVAL, "%s:2: the front matter must be a map of lists", page->name);
    return rc;
}

static const char *const keys[] = {
    "code",   "server_configuration", "settings", "services", "failure_modes", "metrics", "alerts",
    "runbook"};
enum { KEYS = sizeof(keys) / sizeof(keys[0]) };

static bool known_key(const char *key)
{
    for (size_t i = 0; i < KEYS; i++)
        if (strcmp(keys[i], key) == 0)
            return true;
    return false;
}

static int check_list(const struct tree_node *list, const char *key, struct err *err)
{
    if (list->kind != TREE_LIST)
        return err_set(err, -EINVAL, "%s: \"%s\" must be a list; write [] for none", list->place,
                       key);
    for (size_t i = 0; i < list->count; i++) {
        const struct tree_node *item = list->items[i];
        if (item->kind != TREE_TEXT || item->text[strspn(item->text, " \t")] == '\0')
            return err_set(err, -EINVAL,
                           "%s: an entry of \"%s\" must be one text; put it in quotes when it "
                           "holds \": \"",
                           item->place, key);
        for (size_t k = 0; k < i; k++)
            if (strcmp(list->items[k]->text, item->text) == 0)
                return err_set(err, -EINVAL, "%s: \"%s\" stands in \"%s\" twice; remove one",
                               item->place, item->text, key);
    }
    return 0;
}

static int check_keys(const struct page *page, struct err *err)
{
    const struct tree_node *map = page->tree;
    for (size_t i = 0; i < map->count; i++)
        if (!known_key(map->keys[i]))
            return err_set(err, -EINVAL,
                           "%s: \"%s\" is no list of a sink's page; see docs/cognitive-load.md",
                           map->key_places[i], map->keys[i]);
    for (size_t i = 0; i < KEYS; i++) {
        const struct tree_node *list = tree_get(map, keys[i]);
        if (!list)
            return err_set(err, -EINVAL,
                           "%s:2: the list \"%s\" is missing; write \"%s: []\" for "
                           "none",
                           page->name, keys[i], keys[i]);
        int rc = check_list(list, keys[i], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* A metric is one that the page explains, so that the list can't drift away from the text. */
static int check_metrics(const struct page *page, struct err *err)
{
    const struct tree_node *metrics = tree_get(page->tree, "metrics");
    for (size_t i = 0; i < metrics->count; i++) {
        char *quoted = xasprintf("`%s`", metrics->items[i]->text);
        bool there = strstr(page->body, quoted) != NULL;
        free(quoted);
        if (!there)
            return err_set(err, -EINVAL,
                           "%s: the page does not explain the metric `%s`; do so under \"What to "
                           "watch\", or take it out",
                           metrics->items[i]->place, metrics->items[i]->text);
    }
    return 0;
}

static bool lists_text(const struct tree_node *list, const char *text)
{
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->items[i]->text, text) == 0)
            return true;
    return false;
}

static bool is_option(const struct option_spec *const *tables, const char *name)
{
    for (; *tables; tables++)
        for (const struct option_spec *option = *tables; option->name; option++)
            if (strcmp(option->name, name) == 0)
                return true;
    return false;
}

static int check_settings(const struct page *page, const struct option_spec *const *tables,
                          struct err *err)
{
    const struct tree_node *settings = tree_get(page->tree, "settings");
    for (size_t i = 0; i < settings->count; i++)
        if (!is_option(tables, settings->items[i]->text))
            return err_set(err, -EINVAL, "%s: \"%s\" is no option of this sink",
                           settings->items[i]->place, settings->items[i]->text);
    for (const struct option_spec *option = tables[0]; option && option->name; option++)
        if (option->required && !lists_text(settings, option->name))
            return err_set(err, -EINVAL, "%s: the option \"%s\" is required and is missing here",
                           settings->place, option->name);
    return 0;
}

/* ---- counting ---- */

static int read_file(const char *path, struct buf *text, struct err *err)
{
    int rc = file_read(path, FILE_BYTES_MAX, text, err);
    if (rc == 0 && !text->data)
        buf_puts(text, "");
    return rc;
}

static int count_pattern(const struct page *page, const struct tree_node *item,
                         struct cognitive_counts *counts, struct err *err)
{
    char *pattern = xasprintf("%s/%s", page->root, item->text);
    glob_t found = {0};
    int rc = 0;
    if (glob(pattern, 0, NULL, &found) != 0)
        rc = err_set(err, -EINVAL, "%s: no file is called \"%s\" (from the root of the source)",
                     item->place, item->text);
    for (size_t i = 0; rc == 0 && i < found.gl_pathc; i++) {
        struct buf text = {0};
        rc = read_file(found.gl_pathv[i], &text, err);
        if (rc == 0)
            counts->code += cognitive_lines(text.data);
        buf_free(&text);
    }
    globfree(&found);
    free(pattern);
    return rc;
}

static int count_server(const struct page *page, const struct tree_node *item,
                        struct cognitive_counts *counts, struct err *err)
{
    char *path = xasprintf("%s/%s", page->root, item->text);
    struct buf text = {0};
    int rc = read_file(path, &text, err), lines = rc == 0 ? cognitive_server_lines(text.data) : 0;
    if (rc == 0 && lines < 0)
        rc = err_set(err, -EINVAL, "%s: %s has no settings_text[] with the server's configuration",
                     item->place, item->text);
    if (rc == 0)
        counts->server_lines += (unsigned)lines;
    buf_free(&text);
    free(path);
    return rc;
}

static unsigned count_of(const struct page *page, const char *key)
{
    return (unsigned)tree_get(page->tree, key)->count;
}

static int count_page(const struct page *page, struct cognitive_counts *counts, struct err *err)
{
    const struct tree_node *code = tree_get(page->tree, "code");
    const struct tree_node *server = tree_get(page->tree, "server_configuration");
    const struct tree_node *services = tree_get(page->tree, "services");
    int rc = 0;
    for (size_t i = 0; i < code->count && rc == 0; i++)
        rc = count_pattern(page, code->items[i], counts, err);
    for (size_t i = 0; i < server->count && rc == 0; i++)
        rc = count_server(page, server->items[i], counts, err);
    for (size_t i = 0; i < services->count; i++)
        buf_printf(&counts->service_names, "%s%s", i ? ", " : "", services->items[i]->text);
    counts->options = count_of(page, "settings");
    counts->services = count_of(page, "services");
    counts->failure_modes = count_of(page, "failure_modes");
    counts->metrics = count_of(page, "metrics");
    counts->alerts = count_of(page, "alerts");
    counts->runbook = count_of(page, "runbook");
    return rc;
}

int cognitive_count(const char *root, const char *sink, const struct option_spec *const *tables,
                    struct cognitive_counts *counts, struct err *err)
{
    struct page page = {.root = root, .name = xasprintf("docs/sinks/%s.md", sink)};
    char *path = xasprintf("%s/%s", root, page.name);
    memset(counts, 0, sizeof(*counts));
    int rc = read_file(path, &page.text, err);
    if (rc == 0)
        rc = page_parse(&page, err);
    if (rc == 0)
        rc = check_keys(&page, err);
    if (rc == 0)
        rc = check_metrics(&page, err);
    if (rc == 0)
        rc = check_settings(&page, tables, err);
    if (rc == 0)
        rc = count_page(&page, counts, err);
    tree_free(page.tree);
    buf_free(&page.text);
    free(page.name);
    free(path);
    return rc;
}
