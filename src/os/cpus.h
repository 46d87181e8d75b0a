/* SPDX-License-Identifier: Apache-2.0 */
/* Which processors threads run on, and which of them give way. */
#ifndef BWI_OS_CPUS_H
#define BWI_OS_CPUS_H

#include <sched.h>
#include <stdbool.h>

struct bwi_cpus {
    cpu_set_t mask[16]; /* 16,384 CPUs; the kernel refuses a mask that is too small for the machine */
};

/* A list as the kernel writes it: "0-3,8". -EINVAL: it is none. */
int bwi_cpus_parse(const char *list, struct bwi_cpus *ret);
/* 0: this thread may use all of them; n > 0: it may not use CPU n - 1; or a negative errno. */
int bwi_cpus_check(const struct bwi_cpus *wanted);
/* This thread runs on these CPUs, and so do those that it starts from now on, until bwi_cpus_leave. 0 or a negative
 * errno: nothing has changed. */
int bwi_cpus_enter(const struct bwi_cpus *cpus, struct bwi_cpus *before);
void bwi_cpus_leave(const struct bwi_cpus *before);
/* This thread alone, for good: at least this nice (setpriority(2)). */
void bwi_thread_give_way(int nice);

#endif
