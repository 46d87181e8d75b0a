/* SPDX-License-Identifier: Apache-2.0 */
/* The manifest: encoding and decoding, building it from summaries, and the rules that bind it either way. */
#include "format/manifest.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/vec.h"
#include "format/json.h"
#include "format/rules.h"
#include <stdio.h>
#include <string.h>

#define WHAT   "manifest"
#define FORMAT "breakwater-manifest"
#define MAJOR  1
#define MINOR  0

static const char *const known_manifest[] = {"id",   "uuid",  "world",     "fan_out", "groups",
                                             "refs", "index", "raw_bytes", NULL};
static const char *const known_index[] = {"root", "bytes", "head_bytes", "tensors", "boxes", NULL};

#define ROW 6 /* [layout, its bytes, content, its bytes, raw bytes, [ranks]] */

void bwi_manifest_fini(struct bwi_manifest *m) {
    if (m == NULL) return;
    bwi_free(m->groups);
    bwi_free(m->numbers);
    *m = (struct bwi_manifest){0};
}

/* --- rules --- */

static int check_bytes(const char *of, uint64_t bytes, uint64_t max, bool writing, const char *what,
                       struct bw_error *err) {
    if (bytes == 0) return bwi_error_set(err, bwi_rule_bad(writing), "%s: its %s has no bytes", what, of);
    if (bytes <= max) return 0;
    return bwi_error_set(err, bwi_rule_over(writing), "%s: its %s has %llu bytes, at most %llu are allowed", what, of,
                         (unsigned long long)bytes, (unsigned long long)max);
}

static int check_group(const struct bwi_manifest_group *g, uint32_t number, uint32_t world, bool writing,
                       struct bw_error *err) {
    char what[40];
    (void)snprintf(what, sizeof what, WHAT ": group %u", number);
    int rc = bwi_rule_ranks(g->ranks, g->rank_count, world, writing, what, err);
    if (rc == 0) rc = check_bytes("layout", g->layout_bytes, BWI_LAYOUT_BYTES_MAX, writing, what, err);
    if (rc == 0) rc = check_bytes("content", g->content_bytes, BWI_CONTENT_BYTES_MAX, writing, what, err);
    return rc;
}

static int check_index(const struct bwi_index_info *x, bool writing, struct bw_error *err) {
    int rc = check_bytes("index", x->bytes, BWI_INDEX_BYTES_MAX, writing, WHAT, err);
    if (rc == 0) rc = check_bytes("index's head", x->head_bytes, x->bytes, writing, WHAT, err);
    if (rc == 0 && (x->tensors > BWI_INT_MAX || x->boxes > BWI_INT_MAX))
        rc = bwi_error_set(err, bwi_rule_over(writing), WHAT ": its index counts %llu tensors and %llu boxes",
                           (unsigned long long)x->tensors, (unsigned long long)x->boxes);
    return rc;
}

static int check_raw_bytes(const struct bwi_manifest *m, bool writing, struct bw_error *err) {
    uint64_t sum = 0;
    for (uint32_t g = 0; g < m->group_count; g++) {
        if (!bwi_add_u64(sum, m->groups[g].raw_bytes, &sum) || sum > BWI_INT_MAX)
            return bwi_error_set(err, bwi_rule_over(writing), WHAT ": its groups have more than %llu bytes",
                                 (unsigned long long)BWI_INT_MAX);
    }
    if (sum == m->raw_bytes) return 0;
    return bwi_error_set(err, bwi_rule_bad(writing), WHAT ": has %llu bytes, its groups together %llu",
                         (unsigned long long)m->raw_bytes, (unsigned long long)sum);
}

/* Every rank below world in exactly one group. Counting comes first, so that the table is never larger than the
 * input. */
static int check_partition(const struct bwi_manifest *m, int status, struct bw_error *err) {
    uint64_t ranks = 0;
    for (uint32_t g = 0; g < m->group_count; g++) ranks += m->groups[g].rank_count;
    if (ranks < m->world)
        return bwi_error_set(err, status, WHAT ": its groups hold %llu ranks, the world size is %u",
                             (unsigned long long)ranks, m->world);
    uint32_t *group_of = bwi_calloc(m->world, sizeof *group_of); /* group + 1; 0: none yet */
    if (group_of == NULL) return bwi_error_nomem(err, m->world * sizeof *group_of, WHAT);
    int rc = 0;
    for (uint32_t g = 0; g < m->group_count && rc == 0; g++) {
        for (uint32_t i = 0; i < m->groups[g].rank_count && rc == 0; i++) {
            const uint32_t rank = m->groups[g].ranks[i];
            if (group_of[rank] != 0)
                rc = bwi_error_set(err, status, WHAT ": rank %u is in group %u and in group %u", rank,
                                   group_of[rank] - 1, g);
            group_of[rank] = g + 1;
        }
    }
    bwi_free(group_of);
    return rc;
}

/* partition: the status when a rank is in no group or in two. */
static int check(const struct bwi_manifest *m, bool writing, int partition, struct bw_error *err) {
    int rc = bwi_rule_id(&m->id, writing, WHAT, err);
    if (rc == 0) rc = bwi_rule_world(m->world, m->group_count, writing, WHAT, err);
    for (uint32_t g = 0; g < m->group_count && rc == 0; g++) rc = check_group(&m->groups[g], g, m->world, writing, err);
    if (rc == 0) rc = check_partition(m, partition, err);
    if (rc == 0) rc = check_raw_bytes(m, writing, err);
    if (rc == 0) rc = check_index(&m->index, writing, err);
    if (rc == 0) rc = bwi_rule_refs(m->refs, m->ref_count, &m->id, writing, WHAT, err);
    return rc;
}

/* --- encoding --- */

static json_t *groups_of(const struct bwi_manifest *m, bool *failed) {
    json_t *a = json_array();
    for (uint32_t g = 0; g < m->group_count; g++) {
        const struct bwi_manifest_group *group = &m->groups[g];
        json_t *ranks = json_array(), *row = json_array();
        for (uint32_t i = 0; i < group->rank_count; i++) bwi_json_push(ranks, bwi_json_of_u64(group->ranks[i]), failed);
        bwi_json_push(row, bwi_json_of_sha(&group->layout), failed);
        bwi_json_push(row, bwi_json_of_u64(group->layout_bytes), failed);
        bwi_json_push(row, bwi_json_of_sha(&group->content), failed);
        bwi_json_push(row, bwi_json_of_u64(group->content_bytes), failed);
        bwi_json_push(row, bwi_json_of_u64(group->raw_bytes), failed);
        bwi_json_push(row, ranks, failed);
        bwi_json_push(a, row, failed);
    }
    return a;
}

static json_t *index_of(const struct bwi_index_info *x, bool *failed) {
    json_t *o = json_object();
    bwi_json_set(o, "root", bwi_json_of_sha(&x->root), failed);
    bwi_json_set(o, "bytes", bwi_json_of_u64(x->bytes), failed);
    bwi_json_set(o, "head_bytes", bwi_json_of_u64(x->head_bytes), failed);
    bwi_json_set(o, "tensors", bwi_json_of_u64(x->tensors), failed);
    bwi_json_set(o, "boxes", bwi_json_of_u64(x->boxes), failed);
    return o;
}

int bwi_manifest_encode(const struct bwi_manifest *m, struct bwi_buf *out, struct bw_error *err) {
    const int rc = check(m, true, BW_E_INVALID, err);
    if (rc < 0) return rc;
    bool failed = false;
    json_t *refs = json_array();
    for (uint32_t i = 0; i < m->ref_count; i++) bwi_json_push(refs, bwi_json_of_id(&m->refs[i]), &failed);
    json_t *o = bwi_json_start(FORMAT, MAJOR, MINOR, &failed);
    bwi_json_set(o, "id", bwi_json_of_id(&m->id), &failed);
    bwi_json_set(o, "uuid", bwi_json_of_uuid(&m->uuid), &failed);
    bwi_json_set(o, "world", bwi_json_of_u64(m->world), &failed);
    bwi_json_set(o, "fan_out", json_boolean(m->fan_out), &failed);
    bwi_json_set(o, "groups", groups_of(m, &failed), &failed);
    bwi_json_set(o, "refs", refs, &failed);
    bwi_json_set(o, "index", index_of(&m->index, &failed), &failed);
    bwi_json_set(o, "raw_bytes", bwi_json_of_u64(m->raw_bytes), &failed);
    return bwi_json_finish(o, failed, false, BWI_MANIFEST_BYTES_MAX, WHAT, out, err);
}

/* --- decoding --- */

static int bad_group(uint32_t g, struct bw_error *err) {
    return bwi_error_set(err, BW_E_FORMAT,
                         WHAT ": group %u: expected [layout, bytes, content, bytes, raw bytes, [1 to %u ranks]]", g,
                         BWI_GROUP_RANKS_MAX);
}

/* Number of ranks in all rows; 0: a row is malformed. */
static int count_ranks(const json_t *groups, bool newer, size_t *ret, struct bw_error *err) {
    size_t sum = 0;
    for (uint32_t g = 0; g < json_array_size(groups); g++) {
        const json_t *row = json_array_get(groups, g);
        const json_t *ranks = json_array_get(row, ROW - 1);
        const size_t n = json_array_size(ranks);
        if (!bwi_json_is_row(row, ROW, newer) || n == 0 || n > BWI_GROUP_RANKS_MAX) return bad_group(g, err);
        sum += n;
    }
    *ret = sum;
    return 0;
}

static bool read_group(const json_t *row, uint32_t *numbers, struct bwi_manifest_group *ret) {
    const json_t *ranks = json_array_get(row, ROW - 1);
    ret->ranks = numbers;
    ret->rank_count = (uint32_t)json_array_size(ranks);
    for (uint32_t i = 0; i < ret->rank_count; i++) {
        if (!bwi_json_value_u32(json_array_get(ranks, i), UINT32_MAX, &numbers[i])) return false;
    }
    return bwi_json_value_sha(json_array_get(row, 0), &ret->layout) &&
           bwi_json_value_u64(json_array_get(row, 1), BWI_INT_MAX, &ret->layout_bytes) &&
           bwi_json_value_sha(json_array_get(row, 2), &ret->content) &&
           bwi_json_value_u64(json_array_get(row, 3), BWI_INT_MAX, &ret->content_bytes) &&
           bwi_json_value_u64(json_array_get(row, 4), BWI_INT_MAX, &ret->raw_bytes);
}

static int read_groups(const json_t *o, bool newer, struct bwi_manifest *m, struct bw_error *err) {
    const json_t *groups;
    size_t ranks = 0;
    int rc = bwi_json_array(o, "groups", BWI_GROUPS_MAX, &groups, WHAT, err);
    if (rc == 0) rc = count_ranks(groups, newer, &ranks, err);
    if (rc < 0) return rc;
    const size_t n = json_array_size(groups);
    m->groups = bwi_calloc(n, sizeof *m->groups);
    m->numbers = bwi_calloc(ranks, sizeof *m->numbers);
    if (m->groups == NULL || m->numbers == NULL)
        return bwi_error_nomem(err, n * sizeof *m->groups + ranks * sizeof *m->numbers, WHAT);
    uint32_t *numbers = m->numbers;
    for (uint32_t g = 0; g < n; g++) {
        if (!read_group(json_array_get(groups, g), numbers, &m->groups[g])) return bad_group(g, err);
        numbers += m->groups[g].rank_count;
    }
    m->group_count = (uint32_t)n;
    return 0;
}

static int read_index(const json_t *o, bool newer, struct bwi_index_info *x, struct bw_error *err) {
    static const char what[] = WHAT ": index";
    const json_t *index = json_object_get(o, "index");
    int rc = bwi_json_known(index, known_index, newer, what, err);
    if (rc == 0) rc = bwi_json_sha(index, "root", &x->root, what, err);
    if (rc == 0) rc = bwi_json_u64(index, "bytes", BWI_INT_MAX, &x->bytes, what, err);
    if (rc == 0) rc = bwi_json_u64(index, "head_bytes", BWI_INT_MAX, &x->head_bytes, what, err);
    if (rc == 0) rc = bwi_json_u64(index, "tensors", BWI_INT_MAX, &x->tensors, what, err);
    if (rc == 0) rc = bwi_json_u64(index, "boxes", BWI_INT_MAX, &x->boxes, what, err);
    return rc;
}

static int read_refs(const json_t *o, struct bwi_manifest *m, struct bw_error *err) {
    const json_t *refs;
    const int rc = bwi_json_array(o, "refs", BWI_REFS_MAX, &refs, WHAT, err);
    if (rc < 0) return rc;
    m->ref_count = (uint32_t)json_array_size(refs);
    for (uint32_t i = 0; i < m->ref_count; i++) {
        if (!bwi_json_value_id(json_array_get(refs, i), &m->refs[i]))
            return bwi_error_set(err, BW_E_FORMAT, WHAT ": ref %u: expected a checkpoint id", i);
    }
    return 0;
}

static int read_manifest(const json_t *o, struct bwi_manifest *m, struct bw_error *err) {
    const bool newer = bwi_json_newer(o, MINOR);
    int rc = bwi_json_head(o, FORMAT, MAJOR, MINOR, known_manifest, WHAT, err);
    if (rc == 0) rc = bwi_json_id(o, "id", &m->id, WHAT, err);
    if (rc == 0) rc = bwi_json_uuid(o, "uuid", &m->uuid, WHAT, err);
    if (rc == 0) rc = bwi_json_u32(o, "world", UINT32_MAX, &m->world, WHAT, err);
    if (rc == 0) rc = bwi_json_bool(o, "fan_out", &m->fan_out, WHAT, err);
    if (rc == 0) rc = read_groups(o, newer, m, err);
    if (rc == 0) rc = read_refs(o, m, err);
    if (rc == 0) rc = read_index(o, newer, &m->index, err);
    if (rc == 0) rc = bwi_json_u64(o, "raw_bytes", BWI_INT_MAX, &m->raw_bytes, WHAT, err);
    if (rc == 0) rc = check(m, false, BW_E_FORMAT, err);
    return rc;
}

int bwi_manifest_decode(struct bwi_span in, struct bwi_manifest *ret, struct bw_error *err) {
    json_t *o = NULL;
    int rc = bwi_json_size(in, BWI_MANIFEST_BYTES_MAX, WHAT, err);
    if (rc == 0) rc = bwi_json_decode(in, WHAT, &o, err);
    if (rc < 0) return rc;
    struct bwi_manifest m = {0};
    rc = read_manifest(o, &m, err);
    json_decref(o);
    if (rc < 0) {
        bwi_manifest_fini(&m);
        return rc;
    }
    *ret = m;
    return 0;
}

/* --- building --- */

static int differ(uint32_t group, const char *of, const char *its, const char *first, struct bw_error *err) {
    return bwi_error_set(err, BW_E_FORMAT, WHAT ": group %u has %s %s, group 0 has %s", group, of, its, first);
}

static int differ_u32(uint32_t group, const char *of, uint32_t its, uint32_t first, struct bw_error *err) {
    return bwi_error_set(err, BW_E_FORMAT, WHAT ": group %u has %s %u, group 0 has %u", group, of, its, first);
}

/* That summary `i` speaks of the same checkpoint as the first one. */
static int check_agreement(const struct bwi_summary *first, const struct bwi_summary *s, uint32_t i,
                           struct bw_error *err) {
    if (!bwi_id_eq(&s->id, &first->id)) {
        char its[BWI_ID_TEXT_BYTES], its_first[BWI_ID_TEXT_BYTES];
        bwi_id_text(&s->id, its);
        bwi_id_text(&first->id, its_first);
        return differ(i, "checkpoint", its, its_first, err);
    }
    if (!bwi_uuid_eq(&s->uuid, &first->uuid)) {
        char its[BWI_UUID_TEXT_BYTES], its_first[BWI_UUID_TEXT_BYTES];
        bwi_uuid_text(&s->uuid, its);
        bwi_uuid_text(&first->uuid, its_first);
        return differ(i, "uuid", its, its_first, err);
    }
    if (s->world != first->world) return differ_u32(i, "world size", s->world, first->world, err);
    if (s->fan_out != first->fan_out)
        return differ(i, "fan-out", s->fan_out ? "on" : "off", first->fan_out ? "on" : "off", err);
    return 0;
}

/* Joins the refs of one summary, in order; doubles once. */
static int join_refs(struct bwi_manifest *m, const struct bwi_summary *s, struct bw_error *err) {
    if (s->ref_count > BWI_REFS_MAX)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": group %u refers to %u checkpoints, at most %d are allowed",
                             s->group, s->ref_count, BWI_REFS_MAX);
    for (uint32_t r = 0; r < s->ref_count; r++) {
        const struct bwi_id *ref = &s->refs[r];
        uint32_t at = 0;
        while (at < m->ref_count && bwi_id_cmp(&m->refs[at], ref) < 0) at++;
        if (at < m->ref_count && bwi_id_eq(&m->refs[at], ref)) continue;
        if (m->ref_count == BWI_REFS_MAX)
            return bwi_error_set(err, BW_E_LIMIT, WHAT ": group %u is one too many: all refer to more than %d others",
                                 s->group, BWI_REFS_MAX);
        memmove(&m->refs[at + 1], &m->refs[at], (m->ref_count - at) * sizeof *ref);
        m->refs[at] = *ref;
        m->ref_count++;
    }
    return 0;
}

static int add_group(struct bwi_manifest *m, const struct bwi_summary *all, uint32_t i, uint32_t groups,
                     struct bw_error *err) {
    const struct bwi_summary *s = &all[i];
    if (s->group != i)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": the summary of group %u says that it is group %u", i, s->group);
    if (s->groups != groups)
        return bwi_error_set(err, BW_E_FORMAT, WHAT ": group %u knows of %u groups, there are %u", i, s->groups,
                             groups);
    int rc = check_agreement(&all[0], s, i, err);
    if (rc == 0) rc = join_refs(m, s, err);
    if (rc == 0 && !bwi_add_u64(m->raw_bytes, s->raw_bytes, &m->raw_bytes))
        rc = bwi_error_set(err, BW_E_LIMIT, WHAT ": the bytes of groups 0 to %u do not fit 64 bits", i);
    m->groups[i] = (struct bwi_manifest_group){
        .layout = s->layout,
        .content = s->content,
        .layout_bytes = s->layout_bytes,
        .content_bytes = s->content_bytes,
        .raw_bytes = s->raw_bytes,
        .ranks = s->ranks,
        .rank_count = s->rank_count,
    };
    return rc;
}

int bwi_manifest_build(const struct bwi_summary *summaries, uint32_t groups, const struct bwi_index_info *index,
                       struct bwi_manifest *ret, struct bw_error *err) {
    if (groups == 0 || groups > BWI_GROUPS_MAX)
        return bwi_error_set(err, BW_E_INVALID, WHAT ": expected 1 to %u groups, found %u", BWI_GROUPS_MAX, groups);
    struct bwi_manifest m = {
        .id = summaries[0].id,
        .uuid = summaries[0].uuid,
        .world = summaries[0].world,
        .fan_out = summaries[0].fan_out,
        .groups = bwi_calloc(groups, sizeof *m.groups),
        .group_count = groups,
        .index = *index,
    };
    if (m.groups == NULL) return bwi_error_nomem(err, groups * sizeof *m.groups, WHAT);
    int rc = 0;
    for (uint32_t i = 0; i < groups && rc == 0; i++) rc = add_group(&m, summaries, i, groups, err);
    if (rc == 0) rc = check(&m, false, BW_E_COVERAGE, err);
    if (rc < 0) {
        bwi_manifest_fini(&m);
        return rc;
    }
    *ret = m;
    return 0;
}

bool bwi_manifest_group_of_rank(const struct bwi_manifest *m, uint32_t rank, uint32_t *ret_group) {
    for (uint32_t g = 0; g < m->group_count; g++) {
        const struct bwi_manifest_group *group = &m->groups[g];
        if (group->rank_count == 0 || rank < group->ranks[0] || rank > group->ranks[group->rank_count - 1]) continue;
        for (uint32_t i = 0; i < group->rank_count; i++) {
            if (group->ranks[i] == rank) {
                *ret_group = g;
                return true;
            }
        }
    }
    return false;
}
