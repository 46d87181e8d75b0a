/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/cow.h"
#include "base/checked.h"
#include "base/copy.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/transfer.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define AREA_SHARE 2u /* the part of the arena that may be taken; the rest is for the chunks */

static enum bwi_step give_up(struct bwi_cow *c, const char *why) {
    bwi_cow_end(c);
    bwi_format(c->why_not, sizeof c->why_not, "%s", why);
    return BWI_STEP_END;
}

/* ---- what is to be captured ---- */

/* Tensors that this rank writes, then blobs: under one number. */
static size_t source_count(const struct bwi_description *d) {
    return d->tensor_count + d->blob_count;
}

static const uint8_t *memory_of(const struct bwi_description *d, size_t source, uint64_t *bytes) {
    if (source < d->tensor_count) {
        *bytes = d->tensors[source].mine ? d->tensors[source].bytes : 0;
        return d->tensors[source].data;
    }
    *bytes = d->blobs[source - d->tensor_count].bytes;
    return d->blobs[source - d->tensor_count].data;
}

/* Contiguous memory that no device writes. */
static bool may_protect(const struct bwi_description *d, size_t source) {
    return source >= d->tensor_count || (!d->tensors[source].device && d->tensors[source].contiguous);
}

/* ---- tensors that are one ---- */

static int by_start(const void *left, const void *right) {
    const struct bwi_tensor_source *a = *(struct bwi_tensor_source *const *)left;
    const struct bwi_tensor_source *b = *(struct bwi_tensor_source *const *)right;
    return a->data < b->data ? -1 : a->data > b->data;
}

static bool rising(const struct bwi_cow *c) {
    for (size_t i = 1; i < c->range_count; i++)
        if (c->ranges[i].start <= c->ranges[i - 1].start) return false;
    return true;
}

/* Of tensors that see the same memory alike one alone is captured. Takes the ranges of the others out, so that each is
 * counted as often as it is copied. false: out of memory. */
static bool drop_ties(struct bwi_cow *c) {
    const struct bwi_description *d = c->description;
    if (rising(c) && c->staged_bytes == 0) return true; /* what is copied may be tied to what is not */
    const struct bwi_tensor_source **list = bwi_calloc(d->tensor_count + 1, sizeof *list);
    if (list == NULL) return false;
    size_t count = 0;
    for (size_t i = 0; i < d->tensor_count; i++)
        if (d->tensors[i].mine && d->tensors[i].bytes > 0) list[count++] = &d->tensors[i];
    qsort(list, count, sizeof *list, by_start);
    c->range_count = 0;
    for (size_t i = 0; i < count; i++) {
        bool tied = false;
        for (size_t k = i; k-- > 0 && list[k]->data == list[i]->data && !tied;) {
            tied = bwi_same_view(list[k], list[i]);
            c->tied_to_device |= list[k]->device != list[i]->device;
        }
        const uint64_t start = (uintptr_t)list[i]->data;
        if (!tied && may_protect(d, (size_t)(list[i] - d->tensors)))
            c->ranges[c->range_count++] = (struct bwi_range){start, start + list[i]->bytes};
    }
    bwi_free(list);
    for (size_t i = 0; i < d->blob_count; i++) {
        const uint64_t start = (uintptr_t)d->blobs[i].data;
        if (d->blobs[i].bytes > 0) c->ranges[c->range_count++] = (struct bwi_range){start, start + d->blobs[i].bytes};
    }
    return true;
}

/* Sorts the sources into ranges to be protected and those to be copied. Each range is copied once. */
static int collect(struct bwi_cow *c) {
    const struct bwi_description *d = c->description;
    const size_t count = source_count(d);
    c->ranges = bwi_calloc(count + 1, sizeof *c->ranges);
    c->staged = bwi_calloc(count + 1, sizeof *c->staged);
    if (c->ranges == NULL || c->staged == NULL) return BW_E_NOMEM;
    for (size_t i = 0; i < count; i++) {
        uint64_t bytes;
        const uint8_t *from = memory_of(d, i, &bytes);
        if (bytes == 0) continue;
        if (may_protect(d, i))
            c->ranges[c->range_count++] = (struct bwi_range){(uintptr_t)from, (uintptr_t)from + bytes};
        else
            c->staged_bytes += bwi_round_up(bytes, 64);
    }
    return drop_ties(c) ? 0 : BW_E_NOMEM;
}

/* ---- the area ---- */

static void granted(struct bwi_arena_wait *w) {
    (void)w;
}

/* At once or not at all: whoever waited here would keep the caller waiting. What is there besides what has to be copied
 * is for writers; half of what one would like is good enough, and so on. */
static bool take_area(struct bwi_cow *c, uint64_t copied, uint64_t hull_bytes) {
    const uint64_t most = bwi_arena_budget(c->ctx->arena) / AREA_SHARE;
    const uint64_t least = copied + BWI_SNAPSHOT_AREA_MIN;
    const uint64_t wish = bwi_min_u64(most, copied + hull_bytes + hull_bytes / 8 + BWI_SNAPSHOT_AREA_MIN);
    const uint64_t left = bwi_arena_largest_free(c->ctx->arena, wish + BWI_HOLD_LEAVES_BYTES);
    if (left < least + BWI_HOLD_LEAVES_BYTES) return false; /* others need a window to make room with */
    uint64_t want = bwi_min_u64(wish, left - BWI_HOLD_LEAVES_BYTES);
    for (; want >= least; want = copied + (want - copied) / 2) {
        c->area = (struct bwi_arena_wait){.bytes = (size_t)bwi_round_up(want, BWI_ARENA_ALIGN), .granted = granted};
        bwi_arena_acquire(c->ctx->arena, &c->area);
        if (c->area.ptr != NULL) return true;
        bwi_arena_cancel(c->ctx->arena, &c->area);
        if (want == least) break;
    }
    return false;
}

static uint64_t place_copies(struct bwi_cow *c) {
    uint64_t at = 0;
    for (size_t i = 0; i < source_count(c->description) && at < c->staged_bytes; i++) {
        uint64_t bytes;
        (void)memory_of(c->description, i, &bytes);
        if (bytes == 0 || may_protect(c->description, i)) continue;
        c->staged[i] = c->area.ptr + at;
        at += bwi_round_up(bytes, 64);
    }
    return bwi_round_up(at, BWI_PAGE);
}

/* ---- the work ---- */

/* On a worker. */
static void work(struct bwi_io_req *r) {
    const struct bwi_cow_part *part = r->user;
    struct bwi_cow *c = part->owner;
    r->result = bwi_snapshot_work(c->snapshots, part->number, c->parts);
    for (size_t i = part->number; c->staged_bytes > 0 && i < source_count(c->description); i += c->parts)
        if (c->staged[i] != NULL)
            bwi_gather(&c->description->tensors[i], 0, c->description->tensors[i].bytes, c->staged[i]);
}

static void worked(struct bwi_io_req *r) {
    const struct bwi_cow_part *part = r->user;
    part->owner->task.pending--;
    bwi_task_wake(&part->owner->task);
}

static enum bwi_step start_work(struct bwi_cow *c) {
    struct bwi_io *io = bwi_loop_io(c->ctx->loop);
    const uint64_t copies = place_copies(c);
    bwi_snapshot_begin(c->snapshots, c->area.ptr + copies, c->area.bytes - (size_t)copies);
    c->parts = (unsigned)bwi_min_u64(bwi_io_urgent_threads(io), BWI_COW_PARTS);
    for (unsigned i = 0; i < c->parts; i++) {
        c->part[i] = (struct bwi_cow_part){c, i, {.kind = BWI_IO_CALL, .call = work, .urgent = true, .done = worked}};
        c->part[i].req.user = &c->part[i];
        c->task.pending++;
        bwi_io_submit(io, &c->part[i].req);
    }
    return BWI_STEP_WAIT;
}

static enum bwi_step prepare(struct bwi_cow *c) {
    struct bwi_snapshot_need need;
    struct bw_error e = BW_ERROR_INIT;
    if (c->ctx->snapshots == NULL) return give_up(c, c->ctx->snapshots_why_not);
    if (c->must_copy || bwi_snapshots_busy(c->ctx->snapshots)) return give_up(c, "another save is being captured");
    if (collect(c) < 0) return give_up(c, "out of memory");
    if (c->range_count == 0) return give_up(c, "there is nothing that can be write-protected");
    if (c->tied_to_device) return give_up(c, "a device may write to what tensors share");
    if (bwi_snapshot_prepare(c->ctx->snapshots, c->ranges, c->range_count, &need, &e) < 0) return give_up(c, e.message);
    c->snapshots = c->ctx->snapshots;
    c->copied_bytes = c->staged_bytes + need.edge_bytes;
    if (need.inside_bytes <= c->copied_bytes) return give_up(c, "most of the memory cannot be write-protected");
    if (!take_area(c, bwi_round_up(c->staged_bytes, BWI_PAGE) + need.edge_bytes, need.hull_bytes))
        return give_up(c, "the memory budget has no room for it now");
    return start_work(c);
}

static enum bwi_step frozen(struct bwi_cow *c) {
    int64_t rc = 0;
    for (unsigned i = 0; i < c->parts && rc == 0; i++) rc = c->part[i].req.result;
    if (rc == -EDOM) return give_up(c, "protecting this memory is as dear as copying it");
    if (rc < 0) {
        char why[96];
        bwi_format(why, sizeof why, "write-protecting: %s", strerror((int)-rc));
        return give_up(c, why);
    }
    c->frozen = c->ran = true;
    c->protect_ns = bwi_snapshot_protect_ns(c->snapshots);
    return BWI_STEP_END;
}

static enum bwi_step cow_step(struct bwi_task *t) {
    struct bwi_cow *c = bwi_container_of(t, struct bwi_cow, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    return c->parts == 0 ? prepare(c) : frozen(c);
}

void bwi_cow_start(struct bwi_cow *c, struct bwi_task *parent) {
    c->task.step = cow_step;
    c->task.name = "copy on write";
    bwi_task_start(c->ctx->loop, &c->task, parent);
}

void bwi_cow_copy(const struct bwi_cow *c, const struct bwi_item_source *item, uint64_t offset, uint32_t bytes,
                  uint8_t *dst, struct bwi_xxh *ret_hash) {
    struct bwi_xxh_state hash;
    const struct bwi_description *d = c->description;
    const size_t source =
        item->tensor != NULL ? (size_t)(item->tensor - d->tensors) : d->tensor_count + (size_t)(item->blob - d->blobs);
    uint64_t all;
    const uint8_t *memory = memory_of(d, source, &all);
    bwi_xxh_init(&hash);
    if (c->staged[source] != NULL) {
        bwi_copy_past_cache(dst, c->staged[source] + offset, bytes);
        bwi_xxh_update(&hash, c->staged[source] + offset, bytes);
    } else {
        bwi_snapshot_copy(c->snapshots, dst, memory + offset, bytes, &hash);
    }
    *ret_hash = bwi_xxh_final(&hash);
}

bool bwi_cow_is_wanted(const struct bwi_cow *c) {
    return c->frozen && bwi_snapshot_wanted(c->snapshots);
}

bool bwi_cow_is_lost(const struct bwi_cow *c) {
    return c->lost || (c->frozen && bwi_snapshot_lost(c->snapshots));
}

void bwi_cow_end(struct bwi_cow *c) {
    if (c->snapshots != NULL) {
        bwi_snapshot_end(c->snapshots, &c->stats);
        c->lost = c->frozen && bwi_snapshot_lost(c->snapshots);
    }
    c->snapshots = NULL;
    c->frozen = false;
    if (c->area.ptr != NULL) bwi_arena_release(c->ctx->arena, c->area.ptr, c->area.bytes);
    c->area.ptr = NULL;
    bwi_free(c->ranges);
    bwi_free(c->staged);
    c->ranges = NULL;
    c->staged = NULL;
}
