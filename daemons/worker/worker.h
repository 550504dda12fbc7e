/* worker.h: the whole program, for main() and for builds that link another registry of sinks. */
#ifndef SLUICE_WORKER_WORKER_H
#define SLUICE_WORKER_WORKER_H

int worker_main(int argc, char *argv[]);

#endif
