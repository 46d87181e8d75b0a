/* SPDX-License-Identifier: Apache-2.0 */
/* From damaged bytes to what people want to know: which object on which tier, and which tensors are hit. */
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/verify_private.h"
#include "format/shape.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void count(struct bwi_verify *v, enum bwi_tier tier, uint32_t group, int status) {
    v->w->found[tier]++;
    if (!bwi_is_damage(status)) return;
    v->damaged_objects++;
    if (group != UINT32_MAX) v->w->bad[tier][group] = true;
}

/* What must be there and is not is damage; the store's own words about it say less than the object's kind. */
static struct bw_error cause_of(int status, const char *text, const char *key) {
    static const char *const kinds[] = {
        [BWI_KEY_LAYOUT] = "layout",   [BWI_KEY_PACK] = "pack",           [BWI_KEY_SUMMARY] = "summary",
        [BWI_KEY_CONTENT] = "content", [BWI_KEY_PLACEMENT] = "placement", [BWI_KEY_MANIFEST] = "manifest",
        [BWI_KEY_INDEX] = "index"};
    struct bwi_key_parts parts;
    const char *kind = NULL;
    struct bw_error e = BW_ERROR_INIT;
    if (status == BW_E_NOTFOUND && bwi_key_parse(key, &parts) && (size_t)parts.kind < sizeof kinds / sizeof kinds[0])
        kind = kinds[parts.kind];
    if (kind != NULL)
        (void)bwi_error_set(&e, BW_E_CORRUPT, "%s \"%s\" is missing", kind, key);
    else
        (void)bwi_error_set(&e, status, "%s", text);
    return e;
}

void bwi_verify_report(struct bwi_verify *v, enum bwi_tier tier, uint32_t group, const char *key, int status,
                       const char *text) {
    const struct bw_error e = cause_of(status, text, key);
    count(v, tier, group, e.status);
    bwi_findings_add(v->findings, 2, e.status, bwi_tier_name(tier), &v->id, key, NULL, "%s", e.message);
}

/* ---- tensors ---- */

static int by_number(const void *left, const void *right) {
    const uint64_t a = *(const uint64_t *)left;
    const uint64_t b = *(const uint64_t *)right;
    return (a > b) - (a < b);
}

/* Whether any of the bad extents, which ascend, is the item's. */
static bool is_hit(const struct bwi_content *c, uint32_t item, const uint64_t *bad, size_t n) {
    size_t low = 0;
    size_t high = n;
    while (low < high) { /* to the first that is not before the item */
        const size_t mid = low + (high - low) / 2;
        if (bad[mid] < c->first_extent[item]) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return low < n && bad[low] < c->first_extent[item + 1];
}

static void name_text(struct bwi_span name, char *buf, size_t buf_bytes) {
    const size_t n = name.len < buf_bytes - 1 ? name.len : buf_bytes - 1;
    memcpy(buf, name.ptr, n);
    buf[n] = '\0';
}

struct hit {
    struct bwi_verify_group *g;
    const char *key;
    const struct bw_error *e;
    uint64_t named, more;
};

/* The first few are named, the rest is counted. */
static bool may_name(struct hit *h) {
    const bool may = h->named < BWI_VERIFY_NAMES;
    *(may ? &h->named : &h->more) += 1;
    return may;
}

static void name_hit(struct hit *h, const char *tensor, const char *what) {
    bwi_findings_add(h->g->v->findings, 2, h->e->status, bwi_tier_name(h->g->tier), &h->g->v->id, h->key, tensor,
                     "%s is hit: %s", what, h->e->message);
}

static void name_box(struct hit *h, uint32_t box) {
    const struct bwi_layout *l = &h->g->meta.layout;
    const struct bwi_span tensor = l->tensors[l->boxes[box].tensor].name;
    char name[256];
    char what[160];
    name_text(tensor, name, sizeof name);
    (void)bwi_format(what, sizeof what, "tensor %s", bwi_shape_name_text(tensor).s);
    name_hit(h, name, what);
}

static void name_blob(struct hit *h, uint32_t blob) {
    const struct bwi_blob *b = &h->g->meta.layout.blobs[blob];
    char what[160];
    (void)bwi_format(what, sizeof what, "blob %s of rank %" PRIu32, bwi_shape_name_text(b->name).s, b->rank);
    name_hit(h, NULL, what);
}

/* One pass over the layout, however many extents are bad. A tied box is hit with the one whose bytes it has. */
static void name_hits(struct hit *h, const uint64_t *bad, size_t n) {
    const struct bwi_layout *l = &h->g->meta.layout;
    const struct bwi_content *c = &h->g->meta.content;
    for (uint32_t i = 0; i < l->box_count; i++) {
        const uint32_t tied = l->boxes[i].tied;
        if (is_hit(c, tied == BWI_NOT_TIED ? i : tied, bad, n) && may_name(h)) name_box(h, i);
    }
    for (uint32_t i = 0; i < l->blob_count; i++) {
        if (is_hit(c, l->box_count + i, bad, n) && may_name(h)) name_blob(h, i);
    }
}

void bwi_verify_report_pack(struct bwi_verify_group *g, uint32_t pack, const struct bw_error *why, uint64_t *bad,
                            size_t n) {
    const struct bwi_key key = bwi_pack_key_of(&g->meta.placement, pack);
    const struct bw_error cause = cause_of(why->status, why->message, key.s);
    const struct bw_error *e = &cause;
    struct hit h = {g, key.s, e, 0, 0};
    count(g->v, g->tier, g->group, e->status);
    if (n > 1) qsort(bad, n, sizeof *bad, by_number);
    if (n > 0) name_hits(&h, bad, n);
    if (h.named == 0) {
        bwi_findings_add(g->v->findings, 2, e->status, bwi_tier_name(g->tier), &g->v->id, key.s, NULL, "%s",
                         e->message);
    }
    if (h.more > 0) {
        bwi_findings_add(g->v->findings, 2, e->status, bwi_tier_name(g->tier), &g->v->id, key.s, NULL,
                         "%" PRIu64 " more tensors and blobs are hit: %s", h.more, e->message);
    }
}
