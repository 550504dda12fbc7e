/* registry_plain.c: the worker's own tests need one sink that drains and no server. */
#include "sink_plain.h"

const struct sink_driver *const sink_drivers[] = {&sink_plain, NULL};
