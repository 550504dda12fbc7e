#include "yaml_tree.h"

#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "base/buf.h"
#include "base/options.h"

enum { DEPTH_MAX = 16, ITEMS_MAX = 1024 };

struct reader {
    yaml_parser_t parser;
    const char *name;
    const char *fixed_place; /* all places are this, when not NULL */
    struct err *err;
};

static char *place_of(const struct reader *reader, yaml_mark_t mark)
{
    if (reader->fixed_place) {
        return xstrdup(reader->fixed_place);
    }
    return xasprintf("%s:%zu:%zu", reader->name, mark.line + 1, mark.column + 1);
}

static int fail(const struct reader *reader, yaml_mark_t mark, const char *what)
{
    char *place = place_of(reader, mark);
    int rc = err_set(reader->err, -EINVAL, "%s: %s", place, what);
    free(place);
    return rc;
}

static int next(struct reader *reader, yaml_event_t *event)
{
    if (yaml_parser_parse(&reader->parser, event)) {
        return 0;
    }
    const char *problem = reader->parser.problem ? reader->parser.problem : "cannot be read";
    const char *context = reader->parser.context;
    char *what = xasprintf("this is not valid YAML: %s%s%s", problem, context ? " " : "",
                           context ? context : "");
    int rc = fail(reader, reader->parser.problem_mark, what);
    free(what);
    return rc;
}

void tree_free(struct tree_node *node)
{
    if (!node) {
        return;
    }
    for (size_t i = 0; i < node->count; i++) {
        tree_free(node->items[i]);
        if (node->keys) {
            free(node->keys[i]);
            free(node->key_places[i]);
        }
    }
    free(node->items);
    free(node->keys);
    free(node->key_places);
    free(node->text);
    free(node->place);
    free(node);
}

static void add(struct tree_node *node, struct tree_node *item, char *key, char *key_place)
{
    node->items = xrealloc(node->items, (node->count + 1) * sizeof(struct tree_node *));
    node->items[node->count] = item;
    if (node->kind == TREE_MAP) {
        node->keys = xrealloc(node->keys, (node->count + 1) * sizeof(*node->keys));
        node->key_places =
            xrealloc(node->key_places, (node->count + 1) * sizeof(*node->key_places));
        node->keys[node->count] = key;
        node->key_places[node->count] = key_place;
    }
    node->count++;
}

static size_t find(const struct tree_node *map, const char *key)
{
    for (size_t i = 0; map->kind == TREE_MAP && i < map->count; i++) {
        if (strcmp(map->keys[i], key) == 0) {
            return i;
        }
    }
    return SIZE_MAX;
}

static int build(struct reader *reader, yaml_event_t *event, unsigned depth,
                 struct tree_node **out);

static int build_list(struct reader *reader, struct tree_node *list, unsigned depth)
{
    for (;;) {
        yaml_event_t event;
        int rc = next(reader, &event);
        if (rc < 0) {
            return rc;
        }
        if (event.type == YAML_SEQUENCE_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        struct tree_node *item = NULL;
        rc = list->count == ITEMS_MAX ? fail(reader, event.start_mark, "this list is too long")
                                      : build(reader, &event, depth, &item);
        yaml_event_delete(&event);
        if (rc < 0) {
            return rc;
        }
        add(list, item, NULL, NULL);
    }
}

static int build_map(struct reader *reader, struct tree_node *map, unsigned depth)
{
    for (;;) {
        yaml_event_t event;
        int rc = next(reader, &event);
        if (rc < 0) {
            return rc;
        }
        if (event.type == YAML_MAPPING_END_EVENT) {
            yaml_event_delete(&event);
            return 0;
        }
        if (event.type != YAML_SCALAR_EVENT || map->count == ITEMS_MAX) {
            rc = fail(reader, event.start_mark, "expected the name of a setting");
            yaml_event_delete(&event);
            return rc;
        }
        const char *key = (const char *)event.data.scalar.value;
        size_t old = find(map, key);
        if (old != SIZE_MAX) {
            char *what = xasprintf("%s is there already, at %s", key, map->key_places[old]);
            rc = fail(reader, event.start_mark, what);
            free(what);
            yaml_event_delete(&event);
            return rc;
        }
        char *key_copy = xstrdup(key), *key_place = place_of(reader, event.start_mark);
        yaml_event_delete(&event);
        struct tree_node *item = NULL;
        rc = next(reader, &event);
        if (rc == 0) {
            rc = build(reader, &event, depth, &item);
            yaml_event_delete(&event);
        }
        if (rc < 0) {
            free(key_copy);
            free(key_place);
            return rc;
        }
        add(map, item, key_copy, key_place);
    }
}

static bool tagged(const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        return event->data.scalar.anchor || event->data.scalar.tag;
    case YAML_SEQUENCE_START_EVENT:
        return event->data.sequence_start.anchor || event->data.sequence_start.tag;
    case YAML_MAPPING_START_EVENT:
        return event->data.mapping_start.anchor || event->data.mapping_start.tag;
    default:
        return event->type == YAML_ALIAS_EVENT;
    }
}

static int build(struct reader *reader, yaml_event_t *event, unsigned depth, struct tree_node **out)
{
    *out = NULL;
    if (tagged(event)) {
        return fail(reader, event->start_mark, "anchors, aliases and tags are not taken here");
    }
    if (depth == DEPTH_MAX) {
        return fail(reader, event->start_mark, "this is nested too deep");
    }
    struct tree_node *node = xcalloc(1, sizeof(*node));
    node->place = place_of(reader, event->start_mark);
    int rc = 0;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        node->kind = TREE_TEXT;
        node->text = xstrdup((const char *)event->data.scalar.value);
        if (strlen(node->text) != event->data.scalar.length) {
            rc = fail(reader, event->start_mark, "a NUL character is not taken here");
        }
        break;
    case YAML_SEQUENCE_START_EVENT:
        node->kind = TREE_LIST;
        rc = build_list(reader, node, depth + 1);
        break;
    case YAML_MAPPING_START_EVENT:
        node->kind = TREE_MAP;
        rc = build_map(reader, node, depth + 1);
        break;
    default:
        rc = fail(reader, event->start_mark, "expected a value");
        break;
    }
    if (rc < 0) {
        tree_free(node);
        return rc;
    }
    *out = node;
    return 0;
}

/* One document and nothing after it. */
static int build_document(struct reader *reader, struct tree_node **root)
{
    static const yaml_event_type_t before[] = {YAML_STREAM_START_EVENT, YAML_DOCUMENT_START_EVENT};
    static const yaml_event_type_t after[] = {YAML_DOCUMENT_END_EVENT, YAML_STREAM_END_EVENT};
    yaml_event_t event;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        rc = next(reader, &event);
        if (rc == 0 && event.type != before[i]) {
            rc = fail(reader, event.start_mark, "nothing is here: expected settings");
            yaml_event_delete(&event);
        } else if (rc == 0) {
            yaml_event_delete(&event);
        }
    }
    if (rc == 0) {
        rc = next(reader, &event);
    }
    if (rc == 0) {
        rc = build(reader, &event, 0, root);
        yaml_event_delete(&event);
    }
    for (size_t i = 0; rc == 0 && i < 2; i++) {
        rc = next(reader, &event);
        if (rc == 0) {
            if (event.type != after[i]) {
                rc = fail(reader, event.start_mark, "a second document is not taken here");
            }
            yaml_event_delete(&event);
        }
    }
    return rc;
}

static int parse(const char *text, size_t len, const char *name, const char *fixed_place,
                 struct tree_node **root, struct err *err)
{
    struct reader reader = {.name = name, .fixed_place = fixed_place, .err = err};
    *root = NULL;
    if (!yaml_parser_initialize(&reader.parser)) {
        return err_set(err, -ENOMEM, "%s: out of memory", name);
    }
    yaml_parser_set_input_string(&reader.parser, (const unsigned char *)text, len);
    int rc = build_document(&reader, root);
    yaml_parser_delete(&reader.parser);
    if (rc < 0) {
        tree_free(*root);
        *root = NULL;
    }
    return rc;
}

int tree_parse(const char *text, size_t len, const char *name, struct tree_node **root,
               struct err *err)
{
    return parse(text, len, name, NULL, root, err);
}

const struct tree_node *tree_get(const struct tree_node *map, const char *key)
{
    size_t at = find(map, key);
    return at == SIZE_MAX ? NULL : map->items[at];
}

/* ---- key.path=value ---- */

static size_t list_index(const struct tree_node *list, const char *text, size_t len)
{
    size_t index = 0;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)text[i]) || index > ITEMS_MAX) {
            return SIZE_MAX;
        }
        index = 10 * index + (size_t)(text[i] - '0');
    }
    return len > 0 && index < list->count ? index : SIZE_MAX;
}

/* Where the part of a path leads; in a map the key is made when it isn't there. NULL: nowhere. */
static struct tree_node **step(struct tree_node *node, const char *part, size_t len,
                               const char *place)
{
    if (node->kind == TREE_LIST) {
        size_t at = list_index(node, part, len);
        return at == SIZE_MAX ? NULL : &node->items[at];
    }
    if (node->kind != TREE_MAP) {
        return NULL;
    }
    char *key = xstrdup(part);
    key[len] = '\0';
    size_t at = find(node, key);
    if (at == SIZE_MAX) {
        struct tree_node *made = xcalloc(1, sizeof(*made));
        *made = (struct tree_node){.kind = TREE_MAP, .place = xstrdup(place)};
        add(node, made, key, xstrdup(place));
        at = node->count - 1;
    } else {
        free(key);
    }
    return &node->items[at];
}

int tree_set(struct tree_node *root, const char *assignment, struct err *err)
{
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment || equals[1] == '\0') {
        return err_set(err, -EINVAL, "--set %s: expected KEY=VALUE, such as load.rps=2000",
                       assignment);
    }
    char *shown = url_redacted(assignment); /* places are repeated in messages */
    char *place = xasprintf("--set %s", shown);
    free(shown);
    struct tree_node *value = NULL;
    int rc = parse(equals + 1, strlen(equals + 1), place, place, &value, err);
    struct tree_node *node = root, **slot = NULL;
    for (const char *part = assignment; rc == 0 && part < equals;) {
        size_t len = strcspn(part, ".=");
        slot = len > 0 ? step(node, part, len, place) : NULL;
        if (!slot) {
            rc = err_set(err, -EINVAL, "%s: \"%.*s\" leads nowhere in this scenario", place,
                         (int)(part + len - assignment), assignment);
            break;
        }
        node = *slot;
        part += len + 1;
    }
    if (rc == 0 && slot) {
        tree_free(*slot);
        *slot = value;
    } else {
        tree_free(value);
    }
    free(place);
    return rc;
}
