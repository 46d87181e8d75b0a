/* SPDX-License-Identifier: Apache-2.0 */
/* Which processors threads run on, and which of them give way. */
#include "os/cpus.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#define CPUS_MAX (8 * sizeof(struct bwi_cpus))

/* A number, and where it ends; false: there is none, or one that no machine has. */
static bool read_cpu(const char **at, unsigned long *ret) {
    char *end;
    if (**at < '0' || **at > '9') return false;
    errno = 0;
    *ret = strtoul(*at, &end, 10);
    *at = end;
    return errno == 0 && *ret < CPUS_MAX;
}

int bwi_cpus_parse(const char *list, struct bwi_cpus *ret) {
    *ret = (struct bwi_cpus){0};
    for (const char *at = list;; at++) {
        unsigned long first, last;
        if (!read_cpu(&at, &first)) return -EINVAL;
        last = first;
        if (*at == '-' && (at++, !read_cpu(&at, &last) || last < first)) return -EINVAL;
        for (unsigned long i = first; i <= last; i++) CPU_SET_S(i, sizeof ret->mask, ret->mask);
        if (*at == '\0') return 0;
        if (*at != ',') return -EINVAL;
    }
}

static int here(struct bwi_cpus *ret) {
    *ret = (struct bwi_cpus){0};
    return sched_getaffinity(0, sizeof ret->mask, ret->mask) == 0 ? 0 : -errno;
}

int bwi_cpus_check(const struct bwi_cpus *wanted) {
    struct bwi_cpus allowed;
    const int rc = here(&allowed);
    if (rc < 0) return rc;
    for (size_t i = 0; i < CPUS_MAX; i++)
        if (CPU_ISSET_S(i, sizeof wanted->mask, wanted->mask) && !CPU_ISSET_S(i, sizeof allowed.mask, allowed.mask))
            return (int)i + 1;
    return 0;
}

int bwi_cpus_enter(const struct bwi_cpus *cpus, struct bwi_cpus *before) {
    const int rc = here(before);
    if (rc < 0) return rc;
    return sched_setaffinity(0, sizeof cpus->mask, cpus->mask) == 0 ? 0 : -errno;
}

void bwi_cpus_leave(const struct bwi_cpus *before) {
    (void)sched_setaffinity(0, sizeof before->mask, before->mask);
}

void bwi_thread_give_way(int nice) {
    const int now = getpriority(PRIO_PROCESS, (id_t)gettid());
    if (nice > now) (void)setpriority(PRIO_PROCESS, (id_t)gettid(), nice); /* raising it is never refused */
}
