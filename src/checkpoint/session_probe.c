/* SPDX-License-Identifier: Apache-2.0 */
/* How many transfers are in flight to each tier: what the options say, else what a probe of the local tier finds out,
 * else the usual number. */
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/session_private.h"

void bwi_session_tell_depths(struct bwi_session *s) {
    const struct bwi_context *c = s->ctx;
    struct bw_checkpointer_stats *t = &s->stats;
    const bool local = c->tier[BWI_TIER_LOCAL] != NULL;
    t->local_io_depth = local ? bwi_context_io_depth(c, BWI_TIER_LOCAL) : 0;
    t->remote_io_depth = bwi_context_io_depth(c, BWI_TIER_REMOTE);
    const char *usual = s->cfg.probe ? "usual: this tier is not one to measure" : "usual";
    const char *why = c->io_depth[BWI_TIER_LOCAL] > 0 ? "given" : usual;
    bwi_format(t->local_io_why, sizeof t->local_io_why, "%s", local ? why : "");
}

static void ended(struct bwi_task *t) {
    const struct bwi_tier_probe *p = bwi_container_of(t, struct bwi_tier_probe, task);
    struct bwi_session *s = p->user;
    if (p->only_sweep) return;
    s->ctx->io_depth[BWI_TIER_LOCAL] = p->depth;
    s->stats.local_io_depth = p->depth;
    s->stats.local_io_bytes_per_s = p->bytes_per_s;
    bwi_format(s->stats.local_io_why, sizeof s->stats.local_io_why, "%s", p->why);
}

void bwi_session_start_probe(struct bwi_session *s) {
    const struct bwi_store *local = s->ctx->tier[BWI_TIER_LOCAL];
    const bool given = s->ctx->io_depth[BWI_TIER_LOCAL] > 0;
    if (!s->cfg.probe || !bwi_tier_probe_may(local)) return;
    s->probe = bwi_calloc(1, sizeof *s->probe);
    if (!s->probe) return; /* the usual number it is */
    *s->probe = (struct bwi_tier_probe){
        .ctx = s->ctx, .tier = BWI_TIER_LOCAL, .only_sweep = given, .user = s, .task.ended = ended};
    if (!given) bwi_format(s->stats.local_io_why, sizeof s->stats.local_io_why, "usual: not measured yet");
    bwi_tier_probe_start(s->probe, s->ctx->loop, NULL);
}

void bwi_session_stop_probe(struct bwi_session *s) {
    if (bwi_session_probes(s)) bwi_task_cancel(&s->probe->task);
}

bool bwi_session_probes(const struct bwi_session *s) {
    return s->probe != NULL && s->probe->task.running;
}
