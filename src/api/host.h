/* SPDX-License-Identifier: Apache-2.0 */
/* What every handle of the public interface stands on: an engine, a loop, an arena, two stores and a context. No thread
 * of its own. */
#ifndef BWI_API_HOST_H
#define BWI_API_HOST_H

#include "checkpoint/context.h"

struct bwi_host_options {
    const char *run;        /* NULL: none yet */
    const char *remote_url; /* required */
    const char *local_url;  /* NULL: none */
    uint64_t memory_budget_bytes;
    uint32_t io_threads;
    bool create; /* make the tiers' directories and identities */
    bool read_only;
    bool touch; /* touch the arena now */
};

struct bwi_host {
    struct bwi_io *io;
    struct bwi_loop *loop;
    struct bwi_arena *arena;
    struct bwi_context ctx;
};

int bwi_host_open(const struct bwi_host_options *o, struct bwi_host *ret, struct bw_error *err);
void bwi_host_close(struct bwi_host *h); /* nothing may be in flight; idempotent */

/* Copies a struct that begins with its size: `want` bytes of defaults, over which the caller's bytes go. BW_E_INVALID
 * for a size that is not known. */
int bwi_options_copy(void *to, size_t want, const void *from, size_t least, const char *what, struct bw_error *err);

#endif
