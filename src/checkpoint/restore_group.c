/* SPDX-License-Identifier: Apache-2.0 */
/* Metadata of groups: fetched when it is needed, from the nearest tier first, and kept for the next call. At most
 * BWI_RESTORE_GROUPS groups are kept; the one that was used longest ago makes room. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/restore_private.h"
#include <inttypes.h>

void bwi_restore_source_forget(struct bwi_restore_source *s) {
    bwi_group_meta_fini(&s->meta);
    s->state = BWI_SOURCE_UNKNOWN;
    s->error = (struct bw_error)BW_ERROR_INIT;
}

static void group_free(struct bwi_restore_group *g) {
    for (int t = 0; t < BWI_TIERS; t++) bwi_restore_source_forget(&g->tier[t]);
    bwi_free(g);
}

void bwi_restore_groups_free(struct bwi_restore *r) {
    for (size_t i = 0; i < BWI_RESTORE_GROUPS; i++) {
        if (r->groups[i] != NULL) group_free(r->groups[i]);
        r->groups[i] = NULL;
    }
}

static bool is_fetching(const struct bwi_restore_group *g) {
    return g->tier[BWI_TIER_LOCAL].state == BWI_SOURCE_FETCHING ||
           g->tier[BWI_TIER_REMOTE].state == BWI_SOURCE_FETCHING;
}

/* The slot of the group, or one for it. */
static struct bwi_restore_group **slot_for(struct bwi_restore *r, uint32_t group) {
    struct bwi_restore_group **best = NULL;
    for (size_t i = 0; i < BWI_RESTORE_GROUPS; i++) {
        struct bwi_restore_group **slot = &r->groups[i];
        if (*slot != NULL && (*slot)->group == group) return slot;
        if (*slot != NULL && ((*slot)->pins > 0 || is_fetching(*slot))) continue;
        const bool better = best == NULL || (*best != NULL && (*slot == NULL || (*slot)->used < (*best)->used));
        if (better) best = slot;
    }
    return best;
}

struct bwi_restore_group *bwi_restore_group_pin(struct bwi_restore_call *c, uint32_t group) {
    struct bwi_restore *r = c->r;
    struct bwi_restore_group **slot = slot_for(r, group);
    if (slot == NULL) return NULL;
    if (*slot != NULL && (*slot)->group != group) {
        group_free(*slot);
        *slot = NULL;
    }
    if (*slot == NULL) {
        *slot = bwi_calloc(1, sizeof **slot);
        if (*slot == NULL) {
            bwi_restore_nomem(c, sizeof **slot, "metadata of a group");
            return NULL;
        }
        (*slot)->group = group;
    }
    (*slot)->pins++;
    (*slot)->used = ++r->clock;
    return *slot;
}

void bwi_restore_group_unpin(struct bwi_restore_group *g) {
    g->pins--;
}

/* ---- fetching ---- */

struct bwi_meta_read bwi_restore_meta_read(const struct bwi_restore *r, enum bwi_tier tier, uint32_t group,
                                           struct bwi_group_meta *meta) {
    const bool known = r->manifest_set && group < r->manifest.group_count;
    const struct bwi_manifest_group *m = known ? &r->manifest.groups[group] : NULL;
    return (struct bwi_meta_read){.ctx = r->ctx,
                                  .tier = tier,
                                  .id = r->target.id,
                                  .group = group,
                                  .want_layout = m == NULL ? NULL : &m->layout,
                                  .want_content = m == NULL ? NULL : &m->content,
                                  .want_uuid = r->target.committed ? &r->manifest.uuid : &r->target.uuid,
                                  .meta = meta};
}

static void start(struct bwi_restore_call *c, struct bwi_restore_group *g, enum bwi_tier tier) {
    struct bwi_restore *r = c->r;
    struct bwi_restore_source *s = &g->tier[tier];
    if (r->ctx->tier[tier] == NULL) {
        s->state = BWI_SOURCE_FAILED;
        (void)bwi_error_set(&s->error, BW_E_NOTFOUND, "there is no %s tier", bwi_tier_name(tier));
        return;
    }
    s->read = bwi_calloc(1, sizeof *s->read);
    if (s->read == NULL) {
        bwi_restore_nomem(c, sizeof *s->read, "reading the metadata of a group");
        return;
    }
    *s->read = bwi_restore_meta_read(r, tier, g->group, &s->meta);
    s->state = BWI_SOURCE_FETCHING;
    bwi_meta_read_start(s->read, c->task.loop, &c->task);
}

static void take(struct bwi_restore_call *c, struct bwi_restore_source *s) {
    c->r->stats.metadata_objects += s->read->objects;
    c->w->progress += s->read->objects + 1;
    s->error = s->read->task.error;
    s->state = s->error.status == 0 ? BWI_SOURCE_SOUND : BWI_SOURCE_FAILED;
    if (s->state == BWI_SOURCE_FAILED) bwi_group_meta_fini(&s->meta);
    bwi_free(s->read);
    s->read = NULL;
}

enum bwi_ready bwi_restore_group_find(struct bwi_restore_call *c, struct bwi_restore_group *g, enum bwi_tier from,
                                      enum bwi_tier *ret) {
    for (int t = (int)from; t < BWI_TIERS; t++) {
        struct bwi_restore_source *s = &g->tier[t];
        if (s->state == BWI_SOURCE_UNKNOWN) start(c, g, (enum bwi_tier)t);
        if (s->state == BWI_SOURCE_UNKNOWN) return BWI_WAIT; /* out of memory: the call has failed */
        if (s->state == BWI_SOURCE_FETCHING && s->read->task.running) return BWI_WAIT;
        if (s->state == BWI_SOURCE_FETCHING) take(c, s);
        if (s->state != BWI_SOURCE_SOUND) continue;
        const struct bw_error *nearer = &g->tier[BWI_TIER_LOCAL].error;
        const bool damaged = nearer->status == BW_E_CORRUPT || nearer->status == BW_E_FORMAT;
        if (t == BWI_TIER_REMOTE && damaged) bwi_restore_fix_add(c, g->group, NULL);
        *ret = (enum bwi_tier)t;
        return BWI_READY;
    }
    return BWI_NOWHERE;
}

/* ---- when no tier has it ---- */

void bwi_restore_group_nowhere(struct bwi_restore_call *c, const struct bwi_restore_group *g) {
    const struct bw_error *local = &g->tier[BWI_TIER_LOCAL].error;
    const struct bw_error *remote = &g->tier[BWI_TIER_REMOTE].error;
    for (int t = 0; t < BWI_TIERS; t++) {
        struct bw_error e = g->tier[t].error;
        if (bwi_is_damage(e.status)) continue;
        (void)bwi_error_wrap(&e, "checkpoint %s: group %" PRIu32, c->r->id_text, g->group);
        bwi_restore_fail(c, &e);
        return;
    }
    struct bw_error e = remote->status == BW_E_NOTFOUND && local->status != BW_E_NOTFOUND ? *local : *remote;
    (void)bwi_error_wrap(&e, "checkpoint %s: group %" PRIu32, c->r->id_text, g->group);
    e.status = BW_E_CORRUPT;
    bwi_restore_lost(c, g->group, &e);
}

/* ---- all of them ---- */

void bwi_restore_groups_renew(struct bwi_restore *r) {
    for (size_t i = 0; i < BWI_RESTORE_GROUPS; i++) {
        for (int t = 0; r->groups[i] != NULL && t < BWI_TIERS; t++) {
            struct bwi_restore_source *s = &r->groups[i]->tier[t];
            const bool stays = t == BWI_TIER_LOCAL && s->error.status == BW_E_NOTFOUND;
            if (s->state == BWI_SOURCE_FAILED && !stays) bwi_restore_source_forget(s);
        }
    }
}

uint64_t bwi_restore_groups_progress(const struct bwi_restore *r) {
    uint64_t objects = 0;
    for (size_t i = 0; i < BWI_RESTORE_GROUPS; i++) {
        for (int t = 0; r->groups[i] != NULL && t < BWI_TIERS; t++) {
            const struct bwi_restore_source *s = &r->groups[i]->tier[t];
            if (s->state == BWI_SOURCE_FETCHING) objects += s->read->objects;
        }
    }
    return objects;
}

bool bwi_restore_groups_settle(struct bwi_restore_call *c) {
    bool idle = true;
    for (size_t i = 0; i < BWI_RESTORE_GROUPS; i++) {
        for (int t = 0; c->r->groups[i] != NULL && t < BWI_TIERS; t++) {
            struct bwi_restore_source *s = &c->r->groups[i]->tier[t];
            if (s->state != BWI_SOURCE_FETCHING) continue;
            if (!s->read->task.running) {
                take(c, s);
            } else {
                if (!s->read->task.cancel) bwi_task_cancel(&s->read->task);
                idle = false;
            }
        }
    }
    return idle;
}
