/* SPDX-License-Identifier: Apache-2.0 */
/* From the findings of verify to the objects that are damaged, in the order in which they are mended: group by group on
 * each tier, metadata before packs. */
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/mend_private.h"
#include <stdlib.h>
#include <string.h>

/* A layout's key holds its hash, not its group. */
static uint32_t group_of_layout(const struct bwi_manifest *m, const struct bwi_key_parts *parts) {
    struct bwi_sha sha;
    const size_t n = strlen(parts->hash) / 2;
    if (n > sizeof sha.b || !bwi_hex_decode(parts->hash, 2 * n, sha.b, n)) return BWI_MEND_NO_GROUP;
    for (uint32_t g = 0; m != NULL && g < m->group_count; g++) {
        if (memcmp(m->groups[g].layout.b, sha.b, n) == 0) return g;
    }
    return BWI_MEND_NO_GROUP;
}

static struct bwi_mend_object object_of(const struct bw_finding *f, const struct bwi_id *id,
                                        const struct bwi_manifest *manifest) {
    struct bwi_key_parts parts;
    const bool local = strcmp(f->tier, bwi_tier_name(BWI_TIER_LOCAL)) == 0;
    struct bwi_mend_object o = {.tier = local ? BWI_TIER_LOCAL : BWI_TIER_REMOTE,
                                .id = *id,
                                .group = BWI_MEND_NO_GROUP,
                                .kind = BWI_KEY_ENTRY,
                                .key = f->object};
    if (!bwi_key_parse(f->object, &parts)) return o;
    o.kind = parts.kind;
    if (parts.kind == BWI_KEY_LAYOUT) o.group = group_of_layout(manifest, &parts);
    const bool named = parts.kind == BWI_KEY_SUMMARY || parts.kind == BWI_KEY_CONTENT ||
                       parts.kind == BWI_KEY_PLACEMENT || parts.kind == BWI_KEY_PACK;
    if (named) {
        o.group = parts.group;
        o.id = parts.id;
    }
    return o;
}

static int by_place(const void *left, const void *right) {
    const struct bwi_mend_object *a = left;
    const struct bwi_mend_object *b = right;
    if (a->tier != b->tier) return a->tier < b->tier ? -1 : 1;
    const int order = bwi_id_cmp(&a->id, &b->id);
    if (order != 0) return order;
    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    const bool packs = a->kind == BWI_KEY_PACK;
    if (packs != (b->kind == BWI_KEY_PACK)) return packs ? 1 : -1;
    const int keys = strcmp(a->key, b->key);
    if (keys != 0) return keys;
    return a->finding < b->finding ? -1 : a->finding > b->finding;
}

static bool same(const struct bwi_mend_object *a, const struct bwi_mend_object *b) {
    return a->tier == b->tier && strcmp(a->key, b->key) == 0;
}

/* A pack that several groups refer to is found damaged by each of them. */
static void drop_repeated(struct bwi_mend_objects *o) {
    size_t n = 0;
    for (size_t i = 0; i < o->count; i++) {
        if (n > 0 && same(&o->list[n - 1], &o->list[i])) continue;
        o->list[n++] = o->list[i];
    }
    o->count = n;
}

bool bwi_mend_objects_make(struct bwi_mend_objects *o, const struct bwi_findings *found, const struct bwi_id *id,
                           const struct bwi_manifest *manifest) {
    o->count = 0;
    for (size_t i = 0; i < found->count; i++) {
        const struct bw_finding *f = &found->list[i];
        if (f->severity < 2 || !bwi_is_damage(f->status)) continue;
        struct bwi_mend_object x = object_of(f, id, manifest);
        if (o->count > 0 && same(&o->list[o->count - 1], &x) &&
            o->list[o->count - 1].finding + o->list[o->count - 1].findings == i) {
            o->list[o->count - 1].findings++;
            continue;
        }
        if (!bwi_vec_reserve((void **)&o->list, &o->cap, o->count + 1, sizeof *o->list)) return false;
        x.finding = i;
        x.findings = 1;
        o->list[o->count++] = x;
    }
    if (o->count > 1) qsort(o->list, o->count, sizeof *o->list, by_place);
    drop_repeated(o);
    return true;
}

void bwi_mend_objects_fini(struct bwi_mend_objects *o) {
    bwi_free(o->list);
    *o = (struct bwi_mend_objects){0};
}

size_t bwi_mend_objects_run(const struct bwi_mend_objects *o, size_t at) {
    const struct bwi_mend_object *first = &o->list[at];
    size_t n = 1;
    while (at + n < o->count && o->list[at + n].tier == first->tier && o->list[at + n].group == first->group &&
           bwi_id_eq(&o->list[at + n].id, &first->id)) {
        n++;
    }
    return n;
}
