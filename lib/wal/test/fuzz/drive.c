/* Runs a fuzz target over the files of folders, once each: the corpus as a plain test. */
#include "fuzz.h"

#include <dirent.h>

#define INPUT_MAX (1u << 20)

static bool run_file(const char *path)
{
    static unsigned char bytes[INPUT_MAX];
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        fprintf(stderr, "drive: cannot open %s: %s\n", path, strerror(errno));
        return false;
    }
    size_t size = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    /* To the byte on the heap, so that a sanitizer sees what is read behind it. */
    unsigned char *exact = malloc(size > 0 ? size : 1);
    if (exact == NULL) {
        return false;
    }
    memcpy(exact, bytes, size);
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
    return true;
}

int main(int count, char **arguments)
{
    unsigned runs = 0;
    for (int i = 1; i < count; i++) {
        DIR *dir = opendir(arguments[i]);
        if (dir == NULL) {
            fprintf(stderr, "drive: cannot open the folder %s: %s\n", arguments[i],
                    strerror(errno));
            return 1;
        }
        for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
            char path[4096];
            if (entry->d_name[0] == '.') {
                continue;
            }
            snprintf(path, sizeof path, "%s/%s", arguments[i], entry->d_name);
            fprintf(stderr, "%s\n", entry->d_name); /* the last one, should it crash */
            if (!run_file(path)) {
                closedir(dir);
                return 1;
            }
            runs++;
        }
        closedir(dir);
    }
    printf("%u inputs\n", runs);
    return runs > 0 ? 0 : 1;
}
