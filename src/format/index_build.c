/* SPDX-License-Identifier: Apache-2.0 */
/* Building an index from the layouts of all groups.
 *
 * While groups are added, a map gives each name its number, and each group keeps the numbers of its tensors (4 bytes
 * each); boxes are only counted. When all are there, tensors are sorted by name once and boxes are put in their places
 * group by group, in ascending order: so they come out sorted without ever being sorted, whatever the order of adding
 * was. */
#include "base/checked.h"
#include "base/error.h"
#include "base/map.h"
#include "base/vec.h"
#include "format/index.h"
#include "format/index_parts.h"
#include "format/limits.h"
#include "format/shape.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct named {
    const struct bwi_tensor *tensor; /* in the layout of the first group that has it */
    uint32_t rank;                   /* the first of that group: what people know */
    uint32_t boxes;                  /* in all groups */
    uint32_t place;                  /* by name; set when sorted */
};

struct part {
    uint32_t group;
    const struct bwi_layout *layout;
    uint32_t *numbers; /* of its tensors, in `named` */
};

struct bwi_index_builder {
    struct bwi_map map; /* name -> number in `named` */
    struct named *named;
    size_t named_count, named_cap;
    struct part *parts;
    size_t part_count, part_cap;
    uint64_t box_total;
    bool failed; /* an add failed half way: it can only be freed */

    /* Made on demand, dropped when a group is added. */
    struct bwi_index_tensor *tensors;
    struct bwi_index_box *boxes;
};

int bwi_index_builder_new(struct bwi_index_builder **ret, struct bw_error *err) {
    struct bwi_index_builder *b = bwi_calloc(1, sizeof *b);
    if (b == NULL) return bwi_error_nomem(err, sizeof *b, "index builder");
    *ret = b;
    return 0;
}

static void drop_result(struct bwi_index_builder *b) {
    bwi_free(b->tensors);
    bwi_free(b->boxes);
    b->tensors = NULL;
    b->boxes = NULL;
}

void bwi_index_builder_free(struct bwi_index_builder *b) {
    if (b == NULL) return;
    drop_result(b);
    for (size_t i = 0; i < b->part_count; i++) bwi_free(b->parts[i].numbers);
    bwi_free(b->parts);
    bwi_free(b->named);
    bwi_map_fini(&b->map);
    bwi_free(b);
}

/* ---- adding ---- */

static bool grow_named(struct bwi_index_builder *b) {
    void *ptr = b->named;
    if (!bwi_vec_reserve(&ptr, &b->named_cap, b->named_count + 1, sizeof *b->named)) return false;
    b->named = ptr;
    return true;
}

static int differs(const struct named *old, uint32_t rank, const struct bwi_tensor *t, struct bw_error *err) {
    const struct bwi_tensor *o = old->tensor;
    return bwi_error_set(err, BW_E_COVERAGE, "tensor %s: rank %" PRIu32 " has %s, rank %" PRIu32 " has %s",
                         bwi_shape_name_text(t->name).s, old->rank, bwi_shape_text(o->dtype, o->dims, o->shape).s, rank,
                         bwi_shape_text(t->dtype, t->dims, t->shape).s);
}

/* The number of a tensor by its name; a new one where the name is new. */
static int name_tensor(struct bwi_index_builder *b, uint32_t rank, const struct bwi_tensor *t, uint32_t *ret,
                       struct bw_error *err) {
    uint64_t number = 0;
    bool was = false;
    if (b->named_count >= UINT32_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "index: more than %" PRIu32 " tensors", UINT32_MAX);
    }
    if (!grow_named(b) || !bwi_map_put(&b->map, t->name, b->named_count, &number, &was)) {
        return bwi_error_nomem(err, b->named_count * sizeof *b->named, "tensors of an index");
    }
    if (!was) {
        number = b->named_count++;
        b->named[number] = (struct named){.tensor = t, .rank = rank};
    }
    const struct named *n = &b->named[number];
    const struct bwi_tensor *o = n->tensor;
    if (o->dtype != t->dtype || o->dims != t->dims || !bwi_shape_same(t->dims, o->shape, t->shape)) {
        return differs(n, rank, t, err);
    }
    *ret = (uint32_t)number;
    return 0;
}

/* Groups mostly hold the same names in the same order: then the group before gives the number without a look-up. */
static bool guess(const struct bwi_index_builder *b, uint32_t i, const struct bwi_tensor *t, uint32_t *ret) {
    if (b->part_count == 0) return false;
    const struct part *before = &b->parts[b->part_count - 1];
    if (i >= before->layout->tensor_count) return false;
    const struct named *n = &b->named[before->numbers[i]];
    if (n->tensor->dtype != t->dtype || n->tensor->dims != t->dims || !bwi_span_eq(n->tensor->name, t->name))
        return false;
    if (!bwi_shape_same(t->dims, n->tensor->shape, t->shape)) return false;
    *ret = before->numbers[i];
    return true;
}

static int check_group(const struct bwi_index_builder *b, uint32_t group, struct bw_error *err) {
    if (b->failed) return bwi_error_set(err, BW_E_STATE, "index: an earlier group could not be added");
    if (group >= BWI_GROUPS_MAX) {
        return bwi_error_set(err, BW_E_INVALID, "index: group %" PRIu32 ", the limit is %u", group, BWI_GROUPS_MAX - 1);
    }
    return 0;
}

static int add_boxes(struct bwi_index_builder *b, const struct bwi_layout *l, const uint32_t *numbers,
                     struct bw_error *err) {
    if (l->box_count > BWI_INDEX_BOXES_MAX - b->box_total) {
        return bwi_error_set(err, BW_E_LIMIT, "index: %" PRIu64 " boxes and %" PRIu32 " more, the limit is %" PRIu64,
                             b->box_total, l->box_count, BWI_INDEX_BOXES_MAX);
    }
    for (uint32_t i = 0; i < l->box_count; i++) b->named[numbers[l->boxes[i].tensor]].boxes++;
    b->box_total += l->box_count;
    return 0;
}

static int add(struct bwi_index_builder *b, uint32_t group, const struct bwi_layout *l, struct bw_error *err) {
    void *ptr = b->parts;
    uint32_t *numbers = NULL;
    if (!bwi_vec_reserve(&ptr, &b->part_cap, b->part_count + 1, sizeof *b->parts)) {
        return bwi_error_nomem(err, b->part_count * sizeof *b->parts, "groups of an index");
    }
    b->parts = ptr;
    const uint32_t rank = l->rank_count > 0 ? l->ranks[0] : group;
    int rc = bwi_head_array(&BWI_INDEX_HEAD, &numbers, l->tensor_count, sizeof *numbers, err);
    for (uint32_t i = 0; i < l->tensor_count && rc == 0; i++) {
        if (!guess(b, i, &l->tensors[i], &numbers[i])) rc = name_tensor(b, rank, &l->tensors[i], &numbers[i], err);
    }
    if (rc == 0) rc = add_boxes(b, l, numbers, err);
    if (rc < 0) {
        bwi_free(numbers);
        return rc;
    }
    b->parts[b->part_count++] = (struct part){group, l, numbers};
    return 0;
}

int bwi_index_builder_add(struct bwi_index_builder *b, uint32_t group, const struct bwi_layout *l,
                          struct bw_error *err) {
    int rc = check_group(b, group, err);
    if (rc < 0) return rc;
    drop_result(b);
    rc = add(b, group, l, err);
    b->failed = rc < 0;
    return rc;
}

/* ---- sorting ---- */

static int part_order(const void *va, const void *vb) {
    const struct part *a = va;
    const struct part *b = vb;
    return (a->group > b->group) - (a->group < b->group);
}

static int name_order(const void *va, const void *vb) {
    const struct named *const *a = va;
    const struct named *const *b = vb;
    return bwi_span_cmp((*a)->tensor->name, (*b)->tensor->name);
}

static int sort_parts(struct bwi_index_builder *b, struct bw_error *err) {
    if (b->part_count > 1) qsort(b->parts, b->part_count, sizeof *b->parts, part_order);
    for (size_t i = 1; i < b->part_count; i++) {
        if (b->parts[i].group == b->parts[i - 1].group) {
            return bwi_error_set(err, BW_E_INVALID, "index: group %" PRIu32 " was added twice", b->parts[i].group);
        }
    }
    return 0;
}

/* Places of all tensors by name. */
static int sort_names(struct bwi_index_builder *b, struct bw_error *err) {
    struct named **order = NULL;
    const int rc = bwi_head_array(&BWI_INDEX_HEAD, &order, b->named_count, sizeof *order, err);
    if (rc < 0 || order == NULL) return rc;
    for (size_t i = 0; i < b->named_count; i++) order[i] = &b->named[i];
    qsort(order, b->named_count, sizeof *order, name_order);
    for (size_t i = 0; i < b->named_count; i++) order[i]->place = (uint32_t)i;
    bwi_free(order);
    return 0;
}

/* Tensors in their places, each with as much room for boxes as it needs. */
static void lay_tensors(struct bwi_index_builder *b) {
    for (size_t i = 0; i < b->named_count; i++) {
        const struct named *n = &b->named[i];
        b->tensors[n->place] = (struct bwi_index_tensor){
            .name = n->tensor->name,
            .dtype = n->tensor->dtype,
            .dims = n->tensor->dims,
            .shape = n->tensor->shape,
            .box_count = n->boxes,
        };
    }
    struct bwi_index_box *next = b->boxes;
    for (size_t i = 0; i < b->named_count; i++) {
        b->tensors[i].boxes = next;
        next += b->tensors[i].box_count;
        b->tensors[i].box_count = 0; /* counts again as they are put */
    }
}

static void lay_boxes(struct bwi_index_builder *b) {
    for (size_t p = 0; p < b->part_count; p++) {
        const struct part *part = &b->parts[p];
        for (uint32_t i = 0; i < part->layout->box_count; i++) {
            const struct bwi_box *box = &part->layout->boxes[i];
            struct bwi_index_tensor *t = &b->tensors[b->named[part->numbers[box->tensor]].place];
            t->boxes[t->box_count++] = (struct bwi_index_box){part->group, i, box->offset, box->extent, box->rank};
        }
    }
}

static int sort(struct bwi_index_builder *b, struct bw_error *err) {
    if (b->failed) return bwi_error_set(err, BW_E_STATE, "index: an earlier group could not be added");
    if (b->tensors != NULL) return 0;
    int rc = sort_parts(b, err);
    if (rc == 0) rc = sort_names(b, err);
    if (rc == 0) rc = bwi_head_array(&BWI_INDEX_HEAD, &b->boxes, b->box_total, sizeof *b->boxes, err);
    /* One more than there are, so that an index of nothing is known to be done, too. */
    if (rc == 0)
        rc = bwi_head_array(&BWI_INDEX_HEAD, &b->tensors, (uint64_t)b->named_count + 1, sizeof *b->tensors, err);
    if (rc != 0) {
        drop_result(b);
        return rc;
    }
    lay_tensors(b);
    lay_boxes(b);
    return 0;
}

int bwi_index_builder_tensors(struct bwi_index_builder *b, const struct bwi_index_tensor **ret, size_t *ret_count,
                              struct bw_error *err) {
    const int rc = sort(b, err);
    if (rc < 0) return rc;
    *ret = b->tensors;
    *ret_count = b->named_count;
    return 0;
}

/* ---- encoding ---- */

static uint64_t tensor_bytes(const struct bwi_index_tensor *t) {
    const uint64_t dims = t->dims;
    return BWI_INDEX_TENSOR + t->name.len + 8 * dims + t->box_count * (BWI_INDEX_BOX_MIN + 16 * dims);
}

/* A block that is being planned or written. */
struct block {
    size_t first, count; /* tensors */
    uint64_t bytes;
};

/* The block that begins with tensor `first`: as many as fit into the size that is aimed at, and one at least. */
static struct block plan_block(const struct bwi_index_tensor *tensors, size_t count, size_t first) {
    struct block k = {first, 0, 0};
    while (first + k.count < count) {
        const uint64_t bytes = tensor_bytes(&tensors[first + k.count]);
        if (k.count > 0 && k.bytes + bytes > BWI_INDEX_BLOCK_BYTES) break;
        k.bytes += bytes;
        k.count++;
    }
    return k;
}

int bwi_index_plan(const struct bwi_index_tensor *tensors, size_t count, struct bwi_index_plan *ret,
                   struct bw_error *err) {
    struct bwi_index_plan p = {0, BWI_INDEX_FIXED, 0};
    uint64_t block_bytes = 0;
    for (size_t at = 0; at < count;) {
        const struct block k = plan_block(tensors, count, at);
        if (k.bytes > UINT32_MAX) {
            return bwi_error_set(err, BW_E_LIMIT, "index: tensor %s: its %" PRIu32 " boxes take more than 4 GiB",
                                 bwi_shape_name_text(tensors[at].name).s, tensors[at].box_count);
        }
        p.blocks++;
        p.head_bytes += BWI_INDEX_REF_BYTES + tensors[at].name.len;
        block_bytes += k.bytes;
        at += k.count;
    }
    p.bytes = p.head_bytes + block_bytes;
    if (p.bytes > BWI_INDEX_BYTES_MAX || p.blocks > UINT32_MAX) {
        return bwi_error_set(err, BW_E_LIMIT, "index: %" PRIu64 " bytes, the limit is %" PRIu64, p.bytes,
                             BWI_INDEX_BYTES_MAX);
    }
    *ret = p;
    return 0;
}

static void put_numbers(struct bwi_buf *out, const uint64_t *numbers, unsigned n) {
    for (unsigned i = 0; i < n; i++) bwi_buf_u64(out, numbers[i]);
}

static void put_tensor(struct bwi_buf *out, const struct bwi_index_tensor *t) {
    bwi_buf_u32(out, (uint32_t)t->name.len);
    bwi_buf_u8(out, t->dtype);
    bwi_buf_u8(out, t->dims);
    bwi_buf_u16(out, 0);
    bwi_buf_u32(out, t->box_count);
    bwi_buf_put(out, t->name.ptr, t->name.len);
    put_numbers(out, t->shape, t->dims);
    for (uint32_t i = 0; i < t->box_count; i++) {
        bwi_buf_u32(out, t->boxes[i].group);
        bwi_buf_u32(out, t->boxes[i].item);
        put_numbers(out, t->boxes[i].offset, t->dims);
        put_numbers(out, t->boxes[i].extent, t->dims);
    }
}

static void put_head(struct bwi_buf *head, const struct bwi_index_builder *b, const struct bwi_index_plan *p) {
    bwi_head_write(&BWI_INDEX_HEAD, head);
    bwi_buf_u32(head, (uint32_t)p->blocks);
    bwi_buf_u32(head, 0);
    bwi_buf_u64(head, b->named_count);
    bwi_buf_u64(head, b->box_total);
    bwi_buf_u64(head, p->bytes);
}

static void put_ref(struct bwi_buf *head, const struct block *k, uint64_t offset, struct bwi_span bytes,
                    struct bwi_span name) {
    const struct bwi_sha sha = bwi_sha_of(bytes);
    bwi_buf_u64(head, offset);
    bwi_buf_u32(head, (uint32_t)k->bytes);
    bwi_buf_u32(head, (uint32_t)k->count);
    bwi_buf_put(head, sha.b, sizeof sha.b);
    bwi_buf_u32(head, (uint32_t)name.len);
    bwi_buf_put(head, name.ptr, name.len);
}

/* Blocks go to `out`, behind room for the head; their references to `head`. */
static void put_blocks(const struct bwi_index_builder *b, struct bwi_buf *out, size_t start, struct bwi_buf *head) {
    for (size_t at = 0; at < b->named_count && !out->failed;) {
        const struct block k = plan_block(b->tensors, b->named_count, at);
        const size_t begin = out->len;
        for (size_t i = 0; i < k.count; i++) put_tensor(out, &b->tensors[at + i]);
        if (!out->failed) {
            put_ref(head, &k, begin - start, bwi_span(out->ptr + begin, out->len - begin), b->tensors[at].name);
        }
        at += k.count;
    }
}

int bwi_index_builder_encode(struct bwi_index_builder *b, struct bwi_buf *out, struct bwi_index_info *ret,
                             struct bw_error *err) {
    struct bwi_index_plan p = {0};
    struct bwi_buf head = {0};
    const size_t start = out->len;
    int rc = sort(b, err);
    if (rc == 0) rc = bwi_index_plan(b->tensors, b->named_count, &p, err);
    if (rc != 0) return rc;
    /* All at once: an index may have gigabytes. */
    if (p.bytes > SIZE_MAX || !bwi_buf_reserve(out, (size_t)p.bytes))
        return bwi_error_nomem(err, (size_t)p.bytes, "index");
    bwi_buf_zero(out, (size_t)p.head_bytes);
    put_head(&head, b, &p);
    put_blocks(b, out, start, &head);
    if (head.failed || out->failed) {
        bwi_buf_fini(&head);
        out->len = start;
        return bwi_error_nomem(err, (size_t)p.head_bytes, "index");
    }
    memcpy(out->ptr + start, head.ptr, head.len);
    *ret =
        (struct bwi_index_info){bwi_sha_of(bwi_buf_span(&head)), p.bytes, p.head_bytes, b->named_count, b->box_total};
    bwi_buf_fini(&head);
    return 0;
}
