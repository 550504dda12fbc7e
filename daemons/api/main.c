/* main.c: alone in its file, so that builds broken on purpose link the rest with another registry.
 */
#include "api/api.h"

int main(int argc, char *argv[])
{
    return api_main(argc, argv);
}
