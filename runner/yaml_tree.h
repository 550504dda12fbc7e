/* yaml_tree.h: a YAML document as a small tree that remembers where everything stood.
 *
 * libyaml gives events with lines and columns; this keeps them, refuses what a settings file has no
 * use for (anchors, tags, several documents, a key twice), and lets "key.path=value" replace a
 * value. Nodes belong to their tree; tree_free releases all. Not thread-safe.
 */
#ifndef SLUICE_RUNNER_YAML_TREE_H
#define SLUICE_RUNNER_YAML_TREE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

enum tree_kind { TREE_TEXT, TREE_LIST, TREE_MAP };

struct tree_node {
    enum tree_kind kind;
    char *place; /* "quick.yaml:3:5" (line and column from 1), or "--set load.rps=2000" */
    char *text;  /* of a scalar */
    size_t count;
    struct tree_node **items; /* of a list or map */
    char **keys;              /* of a map */
    char **key_places;
};

/* `name` stands for the text in messages. -EINVAL and "name:line:column: what is wrong". */
int tree_parse(const char *text, size_t len, const char *name, struct tree_node **root,
               struct err *err);

/* Applies "load.rps=2000" (lists by number from 0: "faults.0.at=5s"; the value may be YAML of one
 * line: "faults=[]"). Maps grow a key that was not there; whether it is known is seen later. */
int tree_set(struct tree_node *root, const char *assignment, struct err *err);

const struct tree_node *tree_get(const struct tree_node *map, const char *key); /* or NULL */
void tree_free(struct tree_node *node); /* NULL is allowed */

#endif
