/* SPDX-License-Identifier: Apache-2.0 */
/* See inline_engine.h. The requests that wait are a list in the order of submission; there are never many. */
#include "inline_engine.h"

#include "base/error.h"
#include "base/vec.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>

#define WAITING_MAX 512u

struct bwi_io {
    struct bwi_os *os;
    struct bwi_env *env; /* NULL: nothing takes time */
    uint64_t max_ns;
    struct waiting {
        struct bwi_io_req *req;
        uint64_t due_ns;
    } waiting[WAITING_MAX];
    unsigned in_flight;
};

int bwi_io_open(const struct bwi_io_options *o, struct bwi_io **ret, struct bw_error *err) {
    struct bwi_io *io = bwi_calloc(1, sizeof *io);
    if (!io) return bwi_error_nomem(err, sizeof *io, "the transfer engine");
    io->os = o && o->os ? o->os : bwi_os_system();
    *ret = io;
    return 0;
}

void bwi_io_close(struct bwi_io *io) {
    assert(!io || io->in_flight == 0);
    bwi_free(io);
}

void inline_engine_delay(struct bwi_io *io, struct bwi_env *env, uint64_t max_ns) {
    io->env = env;
    io->max_ns = max_ns;
}

void bwi_io_submit(struct bwi_io *io, struct bwi_io_req *req) {
    uint64_t due_ns = 0;
    assert(io->in_flight < WAITING_MAX);
    if (io->env) due_ns = io->env->now_ns(io->env) + io->env->random_u64(io->env) % (io->max_ns + 1);
    io->waiting[io->in_flight++] = (struct waiting){req, due_ns};
}

/* Of those that are due at the same time the first one. */
static unsigned earliest(const struct bwi_io *io) {
    unsigned at = 0;
    for (unsigned i = 1; i < io->in_flight; i++)
        if (io->waiting[i].due_ns < io->waiting[at].due_ns) at = i;
    return at;
}

uint64_t inline_engine_next_ns(const struct bwi_io *io) {
    return io->in_flight > 0 ? io->waiting[earliest(io)].due_ns : BWI_NEVER;
}

unsigned bwi_io_reap(struct bwi_io *io, uint64_t deadline_ns) {
    const unsigned at = earliest(io);
    (void)deadline_ns; /* nothing finishes by itself while somebody waits for it */
    if (io->in_flight == 0 || (io->env && io->waiting[at].due_ns > io->env->now_ns(io->env))) return 0;
    struct bwi_io_req *req = io->waiting[at].req;
    io->in_flight--;
    for (unsigned i = at; i < io->in_flight; i++) io->waiting[i] = io->waiting[i + 1];
    bwi_io_execute(io->os, req);
    req->done(req);
    return 1;
}

void bwi_io_wake(struct bwi_io *io) {
    (void)io;
}

struct bwi_os *bwi_io_os(struct bwi_io *io) {
    return io->os;
}

unsigned bwi_io_threads(const struct bwi_io *io) {
    (void)io;
    return 1;
}

unsigned bwi_io_urgent_threads(const struct bwi_io *io) {
    (void)io;
    return 1;
}

unsigned bwi_io_in_flight(const struct bwi_io *io) {
    return io->in_flight;
}

const char *bwi_io_backend(const struct bwi_io *io) {
    (void)io;
    return "inline";
}

const char *bwi_io_why_not(const struct bwi_io *io) {
    (void)io;
    return "a simulated machine";
}

void bwi_io_lacks(const struct bwi_io *io, char *ret, size_t ret_bytes) {
    (void)snprintf(ret, ret_bytes, "%s", bwi_io_why_not(io));
}

void bwi_io_register(struct bwi_io *io, void *ptr, size_t bytes) {
    (void)io, (void)ptr, (void)bytes;
}
