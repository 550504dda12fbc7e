/* worlds.h: what the files with worlds share. worlds.c is the registry. */
#ifndef SLUICE_SINK_TEST_WORLDS_H
#define SLUICE_SINK_TEST_WORLDS_H

#include "contract.h"

void world_set_option(struct contract *contract, const char *name, const char *text);
void world_run_setup(struct contract *contract);

/* For the server hooks of a world whose server `sluice with` has started: sends the command
 * (server_control.h), or skips when there is no hold of it. */
void world_control(const char *server, const char *command);

extern const struct world world_ingest;
extern const struct world world_valkey;
extern const struct world world_rabbit;

#endif
