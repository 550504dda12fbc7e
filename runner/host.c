#include "host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "state.h"

/* The value of the first line that begins with `key`, after `separator`, quotes and blanks off. */
static void read_value(const char *path, const char *key, char separator, char *out,
                       size_t out_bytes)
{
    snprintf(out, out_bytes, "unknown");
    FILE *file = fopen(path, "re");
    if (!file) {
        return;
    }
    char line[1024];
    while (fgets(line, sizeof(line), file)) {
        char *value = strchr(line, separator);
        if (strncmp(line, key, strlen(key)) != 0 || !value) {
            continue;
        }
        value += 1 + strspn(value + 1, " \t\"");
        value[strcspn(value, "\"\n")] = '\0';
        snprintf(out, out_bytes, "%s", value);
        break;
    }
    fclose(file);
}

static void field(struct buf *out, const char *name, const char *text)
{
    buf_printf(out, "\"%s\": ", name);
    buf_json_string(out, text, strlen(text));
    buf_puts(out, ", ");
}

void host_json(const char *state_dir, struct buf *out)
{
    struct utsname names;
    char cpu[256], os[256], type[64], device[256];
    read_value("/proc/cpuinfo", "model name", ':', cpu, sizeof(cpu));
    read_value("/etc/os-release", "PRETTY_NAME", '=', os, sizeof(os));
    state_filesystem(state_dir, type, sizeof(type), device, sizeof(device));
    char *kernel = uname(&names) == 0
                       ? xasprintf("%s %s %s", names.sysname, names.release, names.machine)
                       : xstrdup("unknown");
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    buf_putc(out, '{');
    field(out, "kernel", kernel);
    field(out, "cpu", cpu);
    field(out, "filesystem", type);
    field(out, "device", device);
    field(out, "os", os);
    buf_printf(out, "\"cores\": %ld, \"memory_bytes\": %lld}", sysconf(_SC_NPROCESSORS_ONLN),
               pages > 0 ? (long long)pages * page_bytes : 0LL);
    free(kernel);
}
