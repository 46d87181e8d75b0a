/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing what a handle stands on. */
#include "api/host.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

static int open_tier(struct bwi_host *h, enum bwi_tier tier, const char *url, const struct bwi_host_options *o,
                     struct bw_error *err) {
    struct bwi_store_options so = {.loop = h->loop, .create = o->create, .read_only = o->read_only};
    int rc = bwi_store_open(url, &so, &h->ctx.tier[tier], err);
    if (rc < 0) (void)bwi_error_wrap(err, "%s tier", bwi_tier_name(tier));
    return rc;
}

static int open_parts(const struct bwi_host_options *o, struct bwi_host *h, struct bw_error *err) {
    struct bwi_io_options io = {.threads = o->io_threads};
    if (!o->remote_url || !o->remote_url[0])
        return bwi_error_set(err, BW_E_INVALID, "remote_url is missing: expected the URL of the remote tier");
    if (o->memory_budget_bytes < BWI_ARENA_MIN_BYTES)
        return bwi_error_set(err, BW_E_INVALID, "memory_budget_bytes is %llu: expected at least %llu",
                             (unsigned long long)o->memory_budget_bytes, (unsigned long long)BWI_ARENA_MIN_BYTES);
    int rc = bwi_io_open(&io, &h->io, err);
    if (rc == 0) rc = bwi_loop_open(bwi_env_system(), h->io, &h->loop, err);
    if (rc == 0) rc = bwi_arena_open(o->memory_budget_bytes, o->touch ? bwi_os_cpus() : 0, &h->arena, err);
    if (rc < 0) return rc;
    bwi_context_init(&h->ctx, h->loop);
    h->ctx.arena = h->arena;
    if (o->run) bwi_format(h->ctx.run, sizeof h->ctx.run, "%s", o->run);
    rc = open_tier(h, BWI_TIER_REMOTE, o->remote_url, o, err);
    if (rc == 0 && o->local_url && o->local_url[0]) rc = open_tier(h, BWI_TIER_LOCAL, o->local_url, o, err);
    return rc;
}

int bwi_host_open(const struct bwi_host_options *o, struct bwi_host *ret, struct bw_error *err) {
    *ret = (struct bwi_host){0};
    int rc = open_parts(o, ret, err);
    if (rc < 0) bwi_host_close(ret);
    return rc;
}

void bwi_host_close(struct bwi_host *h) {
    for (int t = 0; t < BWI_TIERS; t++)
        if (h->ctx.tier[t]) h->ctx.tier[t]->close(h->ctx.tier[t]);
    bwi_arena_close(h->arena);
    bwi_loop_close(h->loop);
    bwi_io_close(h->io);
    *h = (struct bwi_host){0};
}

int bwi_options_copy(void *to, size_t want, const void *from, size_t least, const char *what, struct bw_error *err) {
    uint32_t size = 0;
    if (!from) return bwi_error_set(err, BW_E_INVALID, "%s is null", what);
    memcpy(&size, from, sizeof size);
    if (size < least || size > want)
        return bwi_error_set(err, BW_E_INVALID,
                             "%s: struct_size is %u, expected %zu; initialise it with its _INIT macro", what, size,
                             want);
    memcpy(to, from, size);
    return 0;
}
