/* main.c: alone in its file, so that builds broken on purpose link the rest with another registry.
 */
#include "worker/worker.h"

int main(int argc, char *argv[])
{
    return worker_main(argc, argv);
}
