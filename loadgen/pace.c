#include "pace.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/options.h"

__extension__ typedef unsigned __int128 wide;

/* Nanoseconds a second times millionths a request: k * SCALE / rate_micro is k requests in ns. */
static const wide scale = (wide)1000000000 * 1000000;

int pace_init(struct pace *pace, double rps, enum pacing pacing, struct err *err)
{
    memset(pace, 0, sizeof(*pace));
    if (!(rps >= 0 && rps <= PACE_RATE_MAX)) // also catches NaN
        return err_set(err, -EINVAL, "a rate of %g requests a second is out of range (0 to %.0f)",
                       rps, PACE_RATE_MAX);
    pace->rps = rps;
    pace->pacing = pacing;
    return 0;
}

static int check_name(const struct pace *pace, const char *name, struct err *err)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
    size_t len = strlen(name);

    if (len == 0 || len >= PACE_NAME_BYTES || strspn(name, allowed) != len)
        return err_set(err, -EINVAL,
                       "phase name \"%s\" must be 1 to %d letters, digits, \"-\", \"_\" or \".\"",
                       name, PACE_NAME_BYTES - 1);
    for (size_t i = 0; i < pace->phase_count; i++)
        if (strcmp(pace->phases[i].name, name) == 0)
            return err_set(
                err, -EINVAL,
                "phase \"%s\" is there twice; figures are kept by name, give each its own", name);
    return 0;
}

int pace_add(struct pace *pace, const char *name, int64_t duration_ns, double factor,
             struct err *err)
{
    struct pace_phase *phase = &pace->phases[pace->phase_count];
    wide product;
    double rate;

    if (pace->phase_count == PACE_PHASES_MAX)
        return err_set(err, -EINVAL, "more than %d phases", PACE_PHASES_MAX);
    if (check_name(pace, name, err) < 0)
        return err ? err->code : -EINVAL;
    if (duration_ns <= 0 || duration_ns > PACE_DURATION_MAX_NS)
        return err_set(err, -EINVAL, "phase \"%s\" must last longer than 0 and at most a year",
                       name);
    rate = pace->rps * factor;
    if (!(factor >= 0 && rate <= PACE_RATE_MAX))
        return err_set(err, -EINVAL,
                       "phase \"%s\": rate factor %g gives %g requests a second (0 to %.0f)", name,
                       factor, rate, PACE_RATE_MAX);

    memset(phase, 0, sizeof(*phase));
    memcpy(phase->name, name, strlen(name));
    phase->rate_micro = llround(rate * 1e6);
    phase->begin_ns = pace_end_ns(pace);
    phase->end_ns = phase->begin_ns + duration_ns;
    phase->first = pace_count(pace);
    product = (wide)duration_ns * (wide)phase->rate_micro;
    phase->count = (uint64_t)((product + scale - 1) / scale);
    pace->phase_count++;
    return 0;
}

int pace_add_text(struct pace *pace, const char *text, struct err *err)
{
    static const char form[] = "a phase is name:duration:rate, as in steady:300s:1";
    const char *colon = strchr(text, ':');
    const char *second = colon ? strchr(colon + 1, ':') : NULL;
    char name[PACE_NAME_BYTES], duration_text[64];
    int64_t duration_ns;
    double factor;
    int rc;

    if (!second)
        return err_set(err, -EINVAL, "\"%s\": %s", text, form);
    if ((size_t)(colon - text) >= sizeof(name) ||
        (size_t)(second - colon - 1) >= sizeof(duration_text))
        return err_set(err, -EINVAL, "\"%s\": name or duration is too long; %s", text, form);
    memset(name, 0, sizeof(name));
    memcpy(name, text, (size_t)(colon - text));
    memset(duration_text, 0, sizeof(duration_text));
    memcpy(duration_text, colon + 1, (size_t)(second - colon - 1));

    rc = option_parse_duration(duration_text, &duration_ns, err);
    if (rc < 0) {
        err_prefix(err, "phase \"%s\", duration", text);
        return rc;
    }
    rc = option_parse_decimal(second + 1, &factor, err);
    if (rc < 0) {
        err_prefix(err, "phase \"%s\", rate", text);
        return rc;
    }
    return pace_add(pace, name, duration_ns, factor, err);
}

uint64_t pace_count(const struct pace *pace)
{
    const struct pace_phase *last;

    if (pace->phase_count == 0)
        return 0;
    last = &pace->phases[pace->phase_count - 1];
    return last->first + last->count;
}

int64_t pace_end_ns(const struct pace *pace)
{
    return pace->phase_count == 0 ? 0 : pace->phases[pace->phase_count - 1].end_ns;
}

int64_t pace_due_ns(const struct pace *pace, uint64_t n, size_t *phase)
{
    const struct pace_phase *p;
    int64_t offset_ns;
    size_t i = 0;

    assert(n < pace_count(pace));
    while (n >= pace->phases[i].first + pace->phases[i].count)
        i++;
    p = &pace->phases[i];
    offset_ns = (int64_t)((wide)(n - p->first) * scale / (wide)p->rate_micro);
    if (pace->pacing == PACING_BURST)
        offset_ns -= offset_ns % NS_PER_S;
    if (phase)
        *phase = i;
    return p->begin_ns + offset_ns;
}
