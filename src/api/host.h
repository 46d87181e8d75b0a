/* SPDX-License-Identifier: Apache-2.0 */
/* What every handle of the public interface stands on: an engine, a loop, an arena, two stores and a context. No thread
 * of its own. */
#ifndef BWI_API_HOST_H
#define BWI_API_HOST_H

#include "api/guard.h"
#include "checkpoint/context.h"
#include "os/cpus.h"

struct bwi_host_options {
    const char *run;        /* NULL: none yet */
    const char *remote_url; /* required */
    const char *local_url;  /* NULL: none */
    uint64_t memory_budget_bytes;
    uint32_t io_threads, io_backend;
    uint32_t capture_threads;    /* 0: by the number of CPUs; of no use without `touch` */
    uint32_t nice;               /* of threads for which nobody waits */
    const struct bwi_cpus *cpus; /* for all threads; NULL: those of the opener */
    bool cow;                    /* tries to be able to write-protect memory */
    uint64_t cow_wait_ms;
    bool create; /* make the tiers' directories and identities */
    bool read_only;
    bool touch; /* touch the arena now */
};

struct bwi_host {
    struct bwi_io *io;
    struct bwi_loop *loop;
    struct bwi_arena *arena;
    struct bwi_context ctx;
    uint64_t process;                   /* that opened it; 0: none did */
    const volatile uint32_t *birthmark; /* of that process; NULL: it is asked for its number */
    struct bwi_pulse *pulse; /* of what bwi_block_on runs; NULL: nobody asks. It lies outside, for others read it */
};

int bwi_host_open(const struct bwi_host_options *o, struct bwi_host *ret, struct bw_error *err);
/* The same, but BW_E_TIMEOUT after `patience_ms` (0: never): opening a directory on a mount that does not answer hangs,
 * and whoever hangs is a thread that clears up behind itself. */
int bwi_host_open_within(const struct bwi_host_options *o, uint64_t patience_ms, struct bwi_host *ret,
                         struct bw_error *err);
void bwi_host_close(struct bwi_host *h); /* nothing may be in flight; idempotent */

/* Whether this is the process that opened the host. A child made by fork() has a copy of the memory, locks that others
 * may have held included, and none of the threads: whoever waited there would wait for ever, and what it let go of
 * would be its parent's. So every public function asks before it takes a lock; check: BW_E_STATE, which names both. */
bool bwi_host_is_here(const struct bwi_host *h);
int bwi_host_check(const struct bwi_host *h, struct bw_error *err);

/* The option structs of callers that were compiled against older headers: the sizes that the struct has had, which are
 * the places at which a member ends. The last one is its size. */
struct bwi_options_sizes {
    const uint16_t *sizes;
    size_t count;
};
#define BWI_OPTIONS_SIZES(...)                                                                                         \
    (const struct bwi_options_sizes) {                                                                                 \
        (const uint16_t[]){__VA_ARGS__}, sizeof((const uint16_t[]){__VA_ARGS__}) / sizeof(uint16_t)                    \
    }

/* Copies a struct that begins with its size over `to`, which holds the defaults. BW_E_INVALID for a size that is none
 * of those, so that no member is taken by half. */
int bwi_options_copy(void *to, const void *from, struct bwi_options_sizes known, struct bw_error *err);

#endif
