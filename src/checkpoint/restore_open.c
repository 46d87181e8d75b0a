/* SPDX-License-Identifier: Apache-2.0 */
/* Packs that are kept open while a call reads from them. Extents come in the order of packs, so few suffice; where
 * all are in use, a pack is opened for each read. */
#include "checkpoint/restore_private.h"

static struct bwi_restore_open *find(struct bwi_restore_work *w, uint32_t group, enum bwi_tier tier, uint32_t pack) {
    for (size_t i = 0; i < BWI_RESTORE_OPEN; i++) {
        struct bwi_restore_open *o = &w->open[i];
        if (o->taken && o->group == group && o->tier == tier && o->pack == pack && !o->release.busy) return o;
    }
    return NULL;
}

static void release(struct bwi_restore_call *c, struct bwi_restore_open *o) {
    o->taken = false;
    if (o->handle == NULL) return;
    bwi_call_prepare(&o->release, BWI_STORE_RELEASE, "pack");
    o->release.op.handle = &o->handle;
    bwi_call_submit(&o->release, &c->task, c->r->ctx->tier[o->tier]);
}

/* A free one; if there is none, one that nobody uses begins to become free. */
static struct bwi_restore_open *free_one(struct bwi_restore_call *c) {
    struct bwi_restore_open *idle = NULL;
    for (size_t i = 0; i < BWI_RESTORE_OPEN; i++) {
        struct bwi_restore_open *o = &c->w->open[i];
        if (!o->taken && !o->release.busy) return o;
        if (o->taken && o->users == 0) idle = o;
    }
    if (idle == NULL) return NULL;
    release(c, idle);
    return idle->release.busy ? NULL : idle;
}

struct bwi_restore_open *bwi_restore_open_take(struct bwi_restore_call *c, uint32_t group, enum bwi_tier tier,
                                               uint32_t pack) {
    struct bwi_restore_open *o = find(c->w, group, tier, pack);
    if (o == NULL) {
        o = free_one(c);
        if (o == NULL) return NULL;
        o->group = group;
        o->tier = tier;
        o->pack = pack;
        o->handle = NULL;
        o->taken = true;
    }
    o->users++;
    return o;
}

void bwi_restore_open_leave(struct bwi_restore_open *o) {
    if (o != NULL) o->users--;
}

void bwi_restore_open_release(struct bwi_restore_call *c) {
    for (size_t i = 0; i < BWI_RESTORE_OPEN; i++) {
        struct bwi_restore_open *o = &c->w->open[i];
        if (o->taken && o->users == 0) release(c, o);
    }
}
