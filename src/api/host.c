/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing what a handle stands on. */
#include "api/host.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

/* More threads than this do not copy memory faster. */
#define COPIERS 16u

static int open_tier(struct bwi_host *h, enum bwi_tier tier, const char *url, const struct bwi_host_options *o,
                     struct bw_error *err) {
    struct bwi_store_options so = {.loop = h->loop, .create = o->create, .read_only = o->read_only};
    int rc = bwi_store_open(url, &so, &h->ctx.tier[tier], err);
    if (rc < 0) (void)bwi_error_wrap(err, "%s tier", bwi_tier_name(tier));
    return rc;
}

/* Where it is not to be had, saves copy, and say why. */
static void open_snapshots(const struct bwi_host_options *o, struct bwi_host *h) {
    struct bw_error e = BW_ERROR_INIT;
    const uint64_t wait_ns = o->cow_wait_ms == 0 ? BWI_NEVER : bwi_ns_of_ms(o->cow_wait_ms);
    const unsigned threads = bwi_io_urgent_threads(h->io);
    const struct bwi_snapshots_options so = {.workers = threads < COPIERS ? threads : COPIERS, .wait_ns = wait_ns};
    if (bwi_snapshots_open(&so, &h->ctx.snapshots, &e) < 0)
        bwi_format(h->ctx.snapshots_why_not, sizeof h->ctx.snapshots_why_not, "%s", e.message);
}

static int open_parts(const struct bwi_host_options *o, struct bwi_host *h, struct bw_error *err) {
    if (!o->remote_url || !o->remote_url[0])
        return bwi_error_set(err, BW_E_INVALID, "remote_url is missing: expected the URL of the remote tier");
    if (o->memory_budget_bytes < BWI_ARENA_MIN_BYTES)
        return bwi_error_set(err, BW_E_INVALID, "memory_budget_bytes is %llu: expected at least %llu",
                             (unsigned long long)o->memory_budget_bytes, (unsigned long long)BWI_ARENA_MIN_BYTES);
    if (o->io_backend > BW_IO_URING)
        return bwi_error_set(err, BW_E_INVALID, "option io_backend is %u: expected %u to %u", o->io_backend, BW_IO_AUTO,
                             BW_IO_URING);
    const unsigned cpus = bwi_os_cpus();
    const unsigned capture = o->capture_threads > 0 ? o->capture_threads : cpus < COPIERS ? cpus : COPIERS;
    const struct bwi_io_options io = {.threads = o->io_threads,
                                      .urgent_threads = o->touch ? capture : 0,
                                      .nice = (int)o->nice,
                                      .backend = (enum bw_io_backend)o->io_backend};
    /* The budget comes first: it is the largest, and what is short is best told by its name. */
    int rc = bwi_arena_open(o->memory_budget_bytes, o->touch ? bwi_os_cpus() : 0, &h->arena, err);
    if (rc == 0) rc = bwi_io_open(&io, &h->io, err);
    if (rc == 0) rc = bwi_loop_open(bwi_env_system(), h->io, &h->loop, err);
    if (rc < 0) return rc;
    if (o->touch) bwi_arena_register(h->arena, h->io);
    bwi_context_init(&h->ctx, h->loop);
    h->ctx.arena = h->arena;
    if (o->cow) open_snapshots(o, h);
    if (o->run) bwi_format(h->ctx.run, sizeof h->ctx.run, "%s", o->run);
    rc = open_tier(h, BWI_TIER_REMOTE, o->remote_url, o, err);
    if (rc == 0 && o->local_url && o->local_url[0]) rc = open_tier(h, BWI_TIER_LOCAL, o->local_url, o, err);
    return rc;
}

/* Threads run where the one that starts them does. */
static int open_on(const struct bwi_cpus *cpus, const struct bwi_host_options *o, struct bwi_host *h,
                   struct bw_error *err) {
    struct bwi_cpus before;
    int rc = bwi_cpus_enter(cpus, &before);
    if (rc < 0) return bwi_error_errno(err, -rc, "option cpus: run on them");
    rc = open_parts(o, h, err);
    bwi_cpus_leave(&before);
    return rc;
}

int bwi_host_open(const struct bwi_host_options *o, struct bwi_host *ret, struct bw_error *err) {
    *ret = (struct bwi_host){.process = bwi_os_process(), .birthmark = bwi_os_birthmark()};
    int rc = o->cpus ? open_on(o->cpus, o, ret, err) : open_parts(o, ret, err);
    if (rc < 0) bwi_host_close(ret);
    return rc;
}

void bwi_host_close(struct bwi_host *h) {
    for (int t = 0; t < BWI_TIERS; t++)
        if (h->ctx.tier[t]) h->ctx.tier[t]->close(h->ctx.tier[t]);
    bwi_snapshots_close(h->ctx.snapshots);
    bwi_arena_close(h->arena);
    bwi_loop_close(h->loop);
    bwi_io_close(h->io);
    bwi_os_birthmark_free(h->birthmark);
    *h = (struct bwi_host){0};
}

bool bwi_host_is_here(const struct bwi_host *h) {
    if (h->birthmark != NULL) return *h->birthmark != 0;
    return h->process == 0 || h->process == bwi_os_process();
}

int bwi_host_check(const struct bwi_host *h, struct bw_error *err) {
    if (bwi_host_is_here(h)) return 0;
    return bwi_error_set(err, BW_E_STATE,
                         "this handle was opened by process %llu; process %llu is a child of it: expected one that it "
                         "opens itself",
                         (unsigned long long)h->process, (unsigned long long)bwi_os_process());
}

/* ---- opening with a deadline ---- */

struct opening {
    struct bwi_job job;
    struct bwi_host_options options; /* its strings are copies */
    char *run, *remote_url, *local_url;
    struct bwi_cpus cpus;
    struct bwi_host host;
};

static void opening_free(struct opening *o) {
    bwi_host_close(&o->host);
    bwi_free(o->run);
    bwi_free(o->remote_url);
    bwi_free(o->local_url);
    bwi_free(o);
}

static int run_opening(struct bwi_job *job, struct bw_error *err) {
    struct opening *o = bwi_container_of(job, struct opening, job);
    return bwi_host_open(&o->options, &o->host, err);
}

static void discard_opening(struct bwi_job *job) {
    opening_free(bwi_container_of(job, struct opening, job));
}

static bool copy_text(const char *from, char **ret) {
    *ret = from ? bwi_strdup(from) : NULL;
    return !from || *ret;
}

int bwi_host_open_within(const struct bwi_host_options *o, uint64_t patience_ms, struct bwi_host *ret,
                         struct bw_error *err) {
    struct opening *x = bwi_calloc(1, sizeof *x);
    if (!x) return bwi_error_nomem(err, sizeof *x, "opening");
    x->job = (struct bwi_job){run_opening, discard_opening};
    x->options = *o;
    const bool copied = copy_text(o->run, &x->run) && copy_text(o->remote_url, &x->remote_url) &&
                        copy_text(o->local_url, &x->local_url);
    x->options.run = x->run;
    x->options.remote_url = x->remote_url;
    x->options.local_url = x->local_url;
    if (o->cpus) x->cpus = *o->cpus;
    if (o->cpus) x->options.cpus = &x->cpus;
    bool gone = false;
    int rc = copied ? bwi_guard(&x->job, patience_ms, NULL, &gone, err) : bwi_error_nomem(err, 1, "opening");
    if (gone) {
        (void)bwi_error_wrap(err, "open the tiers of \"%.200s\"", o->remote_url ? o->remote_url : "");
        return rc;
    }
    if (rc == 0) {
        *ret = x->host;
        x->host = (struct bwi_host){0};
    }
    opening_free(x);
    return rc;
}

/* ---- options ---- */

int bwi_options_copy(void *to, const void *from, struct bwi_options_sizes known, struct bw_error *err) {
    uint32_t size = 0;
    if (!from) return bwi_error_set(err, BW_E_INVALID, "options is null");
    memcpy(&size, from, sizeof size);
    for (size_t i = 0; i < known.count; i++) {
        if (size != known.sizes[i]) continue;
        memcpy(to, from, size);
        return 0;
    }
    return bwi_error_set(err, BW_E_INVALID,
                         "options: struct_size is %u, expected %u; initialise them with their _INIT macro", size,
                         known.sizes[known.count - 1]);
}
