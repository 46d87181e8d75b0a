/* SPDX-License-Identifier: Apache-2.0 */
/* Who writes what is replicated. Every rank computes the same from what all ranks of a set describe alike: bytes and
 * names. The largest tensor that is left goes to the replica with the fewest bytes, so no replica gets more than the
 * least one plus one tensor. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/plan.h"
#include "format/shape.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct load {
    uint64_t bytes;
    uint32_t replica;
};

/* Sets together; in a set by falling bytes, then by name. Names are unique in a rank, so that there are no equals
 * whose boxes would matter. */
static int by_turn(const void *left, const void *right) {
    const struct bwi_tensor_source *a = *(struct bwi_tensor_source *const *)left;
    const struct bwi_tensor_source *b = *(struct bwi_tensor_source *const *)right;
    if (a->replica_count != b->replica_count) return a->replica_count < b->replica_count ? -1 : 1;
    if (a->replica_group != b->replica_group) return a->replica_group < b->replica_group ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes > b->bytes ? -1 : 1;
    return strcmp(a->name, b->name);
}

static bool same_set(const struct bwi_tensor_source *a, const struct bwi_tensor_source *b) {
    return a->replica_count == b->replica_count && a->replica_group == b->replica_group;
}

static bool lighter(const struct load *a, const struct load *b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->replica < b->replica;
}

/* The root has grown: moves it down to its place in the heap. */
static void sink(struct load *heap, size_t n) {
    for (size_t at = 0, child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && lighter(&heap[child + 1], &heap[child])) child++;
        if (!lighter(&heap[child], &heap[at])) return;
        const struct load t = heap[at];
        heap[at] = heap[child];
        heap[child] = t;
    }
}

/* A set of n tensors. As each goes to the lightest replica, n replicas at most get one: the first n. `heap` has room
 * for them. */
static void share_out(struct bwi_tensor_source *const *set, size_t n, struct load *heap) {
    const size_t replicas = n < set[0]->replica_count ? n : set[0]->replica_count;
    for (size_t i = 0; i < replicas; i++) heap[i] = (struct load){0, (uint32_t)i};
    for (size_t i = 0; i < n; i++) {
        set[i]->mine = heap[0].replica == set[i]->replica_index;
        heap[0].bytes += set[i]->bytes; /* the description's total does not overflow */
        sink(heap, replicas);
    }
}

static int check_places(struct bwi_tensor_source *const *sorted, size_t n, struct bw_error *err) {
    for (size_t i = 1; i < n; i++) {
        const struct bwi_tensor_source *a = sorted[i - 1];
        const struct bwi_tensor_source *b = sorted[i];
        if (!same_set(a, b) || a->replica_index == b->replica_index) continue;
        return bwi_error_set(err, BW_E_INVALID,
                             "tensor %s: replica_index is %" PRIu32 ", but %" PRIu32
                             " for tensor %s of the same replica_count %" PRIu32 " and replica_group %" PRIu64,
                             bwi_shape_name_text(bwi_span_str(b->name)).s, b->replica_index, a->replica_index,
                             bwi_shape_name_text(bwi_span_str(a->name)).s, b->replica_count, b->replica_group);
    }
    return 0;
}

static void share_out_sets(struct bwi_tensor_source *const *sorted, size_t n, struct load *heap) {
    for (size_t from = 0, to; from < n; from = to) {
        for (to = from + 1; to < n && same_set(sorted[from], sorted[to]);) to++;
        share_out(sorted + from, to - from, heap);
    }
}

static size_t count_replicated(const struct bwi_description *d) {
    size_t n = 0;
    for (size_t i = 0; i < d->tensor_count; i++) n += d->tensors[i].replica_count > 1;
    return n;
}

int bwi_description_own(struct bwi_description *d, struct bw_error *err) {
    const size_t most = count_replicated(d);
    struct bwi_tensor_source **sorted = bwi_calloc(most, sizeof(struct bwi_tensor_source *));
    struct load *heap = bwi_calloc(most, sizeof *heap);
    int rc = 0;
    size_t n = 0;
    d->version++;
    if (sorted == NULL || heap == NULL) {
        rc = bwi_error_nomem(err, most * sizeof *heap, "sharing out of replicas");
        goto out;
    }
    for (size_t i = 0; i < d->tensor_count; i++) {
        if (d->tensors[i].replica_count > 1) sorted[n++] = &d->tensors[i];
    }
    if (n > 0) qsort(sorted, n, sizeof(struct bwi_tensor_source *), by_turn);
    rc = check_places(sorted, n, err);
    if (rc < 0) goto out;
    for (size_t i = 0; i < d->tensor_count; i++) d->tensors[i].mine = true;
    share_out_sets(sorted, n, heap);
out:
    bwi_free(sorted);
    bwi_free(heap);
    return rc;
}
