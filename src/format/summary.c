/* SPDX-License-Identifier: Apache-2.0 */
/* Summaries to bytes and back. A summary is named by no hash of another object, so it ends with its own, which is
 * looked at before anything else. */
#include "format/summary.h"
#include "base/error.h"
#include "format/head.h"
#include "format/rules.h"
#include <breakwater/tensor.h>
#include <inttypes.h>

#define TRAILER_BYTES 32u

static const struct bwi_object_head HEAD = {"BWSUMMRY", "summary"};

/* ---- the rules ---- */

static int check_id(const char *what, const struct bwi_id *id, const struct bwi_blame *b) {
    if (id->attempt > 0 && id->step <= BW_STEP_MAX) return 0;
    return bwi_error_set(b->err, b->broken, "%s: %s: step %" PRIu64 " of attempt %" PRIu32 " cannot be", b->what, what,
                         id->step, id->attempt);
}

static int check_place(const struct bwi_summary *s, const struct bwi_blame *b) {
    int rc = bwi_head_limit(b, s->groups, BWI_GROUPS_MAX, "groups");
    if (rc == 0) rc = bwi_head_limit(b, s->world, BWI_WORLD_MAX, "ranks of the world");
    if (rc == 0 && (s->group >= s->groups || s->groups > s->world)) {
        rc = bwi_error_set(b->err, b->broken,
                           "%s: group %" PRIu32 " of %" PRIu32 " in a world of %" PRIu32 " ranks cannot be", b->what,
                           s->group, s->groups, s->world);
    }
    return rc;
}

static int check_ranks(const struct bwi_summary *s, const struct bwi_blame *b) {
    if (s->rank_count == 0) return bwi_error_set(b->err, b->broken, "%s: no ranks, expected at least one", b->what);
    const int rc = bwi_head_limit(b, s->rank_count, BWI_GROUP_RANKS_MAX, "ranks");
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < s->rank_count; i++) {
        if (s->ranks[i] >= s->world || (i > 0 && s->ranks[i] <= s->ranks[i - 1])) {
            return bwi_error_set(b->err, b->broken,
                                 "%s: rank %" PRIu32 " is out of order or outside of a world of %" PRIu32, b->what,
                                 s->ranks[i], s->world);
        }
    }
    return 0;
}

static int check_refs(const struct bwi_summary *s, const struct bwi_blame *b) {
    int rc = bwi_head_limit(b, s->ref_count, BWI_REFS_MAX, "refs");
    for (uint32_t i = 0; i < s->ref_count && rc == 0; i++) {
        char text[BWI_ID_TEXT_BYTES];
        bwi_id_text(&s->refs[i], text);
        rc = check_id("ref", &s->refs[i], b);
        if (rc == 0 && bwi_id_eq(&s->refs[i], &s->id)) {
            rc = bwi_error_set(b->err, b->broken, "%s: it refers to itself, %s", b->what, text);
        }
        if (rc == 0 && i > 0 && bwi_id_cmp(&s->refs[i - 1], &s->refs[i]) >= 0) {
            rc = bwi_error_set(b->err, b->broken, "%s: refs do not ascend at %s", b->what, text);
        }
    }
    return rc;
}

static int check_sizes(const struct bwi_summary *s, const struct bwi_blame *b) {
    int rc = bwi_head_limit(b, s->layout_bytes, BWI_LAYOUT_BYTES_MAX, "bytes of layout");
    if (rc == 0) rc = bwi_head_limit(b, s->content_bytes, BWI_CONTENT_BYTES_MAX, "bytes of content");
    if (rc == 0) rc = bwi_head_limit(b, s->placement_bytes, BWI_PLACEMENT_BYTES_MAX, "bytes of placement");
    if (rc == 0) rc = bwi_head_limit(b, s->pack_count, BWI_PACKS_MAX, "packs");
    if (rc == 0) rc = bwi_head_limit(b, s->raw_bytes, BWI_INT_MAX, "raw bytes"); /* the manifest holds their sum */
    if (rc == 0) rc = bwi_head_limit(b, s->stored_bytes, BWI_INT_MAX, "stored bytes");
    if (rc == 0 && (s->layout_bytes == 0 || s->content_bytes == 0 || s->placement_bytes == 0)) {
        rc = bwi_error_set(b->err, b->broken,
                           "%s: layout of %" PRIu64 ", content of %" PRIu64 ", placement of %" PRIu64
                           " bytes: none is ever empty",
                           b->what, s->layout_bytes, s->content_bytes, s->placement_bytes);
    }
    return rc;
}

static int check(const struct bwi_summary *s, const struct bwi_blame *b) {
    int rc = check_id("its id", &s->id, b);
    if (rc == 0) rc = check_place(s, b);
    if (rc == 0) rc = check_ranks(s, b);
    if (rc == 0) rc = check_refs(s, b);
    if (rc == 0) rc = check_sizes(s, b);
    return rc;
}

/* ---- encoding ---- */

static void put_id(struct bwi_buf *out, const struct bwi_id *id) {
    bwi_buf_u64(out, id->step);
    bwi_buf_u32(out, id->attempt);
    bwi_buf_u32(out, id->nonce);
    bwi_buf_u32(out, id->tri);
}

static void put_fixed(struct bwi_buf *out, const struct bwi_summary *s) {
    bwi_buf_put(out, s->uuid.b, sizeof s->uuid.b);
    put_id(out, &s->id);
    bwi_buf_u32(out, s->group);
    bwi_buf_u32(out, s->groups);
    bwi_buf_u32(out, s->world);
    bwi_buf_u32(out, s->fan_out ? 1 : 0); /* one byte and three of padding */
    bwi_buf_u32(out, s->rank_count);
    bwi_buf_u32(out, s->ref_count);
    bwi_buf_u32(out, s->pack_count);
    bwi_buf_put(out, s->layout.b, sizeof s->layout.b);
    bwi_buf_put(out, s->content.b, sizeof s->content.b);
    bwi_buf_put(out, s->placement.b, sizeof s->placement.b);
    bwi_buf_u64(out, s->layout_bytes);
    bwi_buf_u64(out, s->content_bytes);
    bwi_buf_u64(out, s->placement_bytes);
    bwi_buf_u64(out, s->writer);
    bwi_buf_u64(out, s->raw_bytes);
    bwi_buf_u64(out, s->stored_bytes);
}

int bwi_summary_encode(const struct bwi_summary *s, struct bwi_buf *out, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_caller(&HEAD, err);
    const int rc = check(s, &b);
    if (rc < 0) return rc;
    const size_t start = out->len;
    bwi_head_write(&HEAD, out);
    put_fixed(out, s);
    for (uint32_t i = 0; i < s->rank_count; i++) bwi_buf_u32(out, s->ranks[i]);
    for (uint32_t i = 0; i < s->ref_count; i++) put_id(out, &s->refs[i]);
    if (!out->failed) {
        const struct bwi_sha sha = bwi_sha_of(bwi_span(out->ptr + start, out->len - start));
        bwi_buf_put(out, sha.b, sizeof sha.b);
    }
    return bwi_head_written(&HEAD, out, start, BWI_SUMMARY_BYTES_MAX, err);
}

/* ---- decoding ---- */

static int check_trailer(struct bwi_span in, struct bw_error *err) {
    if (in.len > BWI_SUMMARY_BYTES_MAX) {
        return bwi_error_set(err, BW_E_FORMAT, "summary: %zu bytes, the limit is %u", in.len, BWI_SUMMARY_BYTES_MAX);
    }
    if (in.len < BWI_HEAD_BYTES + TRAILER_BYTES) {
        return bwi_error_set(err, BW_E_CORRUPT, "summary: cut short: %zu bytes, head and hash alone have %u", in.len,
                             BWI_HEAD_BYTES + TRAILER_BYTES);
    }
    const size_t body = in.len - TRAILER_BYTES;
    struct bwi_reader r = bwi_reader(bwi_span(in.ptr + body, TRAILER_BYTES));
    struct bwi_sha found;
    bwi_read_into(&r, found.b, sizeof found.b);
    const struct bwi_sha want = bwi_sha_of(bwi_span(in.ptr, body));
    if (bwi_sha_eq(&found, &want)) return 0;
    char found_hex[BWI_SHA_HEX_BYTES];
    char want_hex[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(&found, found_hex);
    bwi_sha_hex(&want, want_hex);
    return bwi_error_set(err, BW_E_CORRUPT, "summary: its bytes have the hash %.16s..., it ends with %.16s...",
                         want_hex, found_hex);
}

static struct bwi_id read_id(struct bwi_reader *r) {
    struct bwi_id id;
    id.step = bwi_read_u64(r);
    id.attempt = bwi_read_u32(r);
    id.nonce = bwi_read_u32(r);
    id.tri = bwi_read_u32(r);
    return id;
}

static uint32_t read_fixed(struct bwi_reader *r, struct bwi_summary *s) {
    bwi_read_into(r, s->uuid.b, sizeof s->uuid.b);
    s->id = read_id(r);
    s->group = bwi_read_u32(r);
    s->groups = bwi_read_u32(r);
    s->world = bwi_read_u32(r);
    const uint32_t fan_out = bwi_read_u32(r);
    s->fan_out = fan_out == 1;
    s->rank_count = bwi_read_u32(r);
    s->ref_count = bwi_read_u32(r);
    s->pack_count = bwi_read_u32(r);
    bwi_read_into(r, s->layout.b, sizeof s->layout.b);
    bwi_read_into(r, s->content.b, sizeof s->content.b);
    bwi_read_into(r, s->placement.b, sizeof s->placement.b);
    s->layout_bytes = bwi_read_u64(r);
    s->content_bytes = bwi_read_u64(r);
    s->placement_bytes = bwi_read_u64(r);
    s->writer = bwi_read_u64(r);
    s->raw_bytes = bwi_read_u64(r);
    s->stored_bytes = bwi_read_u64(r);
    return fan_out;
}

static int read_records(struct bwi_reader *r, struct bwi_summary *s, const struct bwi_blame *b) {
    const uint32_t fan_out = read_fixed(r, s);
    int rc = bwi_head_whole(&HEAD, r, b->err);
    if (rc == 0 && fan_out > 1) {
        rc = bwi_error_set(b->err, BW_E_FORMAT, "summary: fan-out is %" PRIu32 ", expected 0 or 1", fan_out);
    }
    if (rc == 0) rc = bwi_head_limit(b, s->rank_count, BWI_GROUP_RANKS_MAX, "ranks");
    if (rc == 0) rc = bwi_head_limit(b, s->ref_count, BWI_REFS_MAX, "refs");
    if (rc < 0) return rc;
    for (uint32_t i = 0; i < s->rank_count; i++) s->ranks[i] = bwi_read_u32(r);
    for (uint32_t i = 0; i < s->ref_count; i++) s->refs[i] = read_id(r);
    return 0;
}

int bwi_summary_decode(struct bwi_span in, struct bwi_summary *ret, struct bw_error *err) {
    const struct bwi_blame b = bwi_blame_object(&HEAD, err);
    struct bwi_summary s = {0};
    bool newer = false;
    int rc = check_trailer(in, err);
    if (rc < 0) return rc;
    struct bwi_reader r = bwi_reader(bwi_span(in.ptr, in.len - TRAILER_BYTES));
    rc = bwi_head_read(&HEAD, &r, &newer, err);
    if (rc == 0) rc = read_records(&r, &s, &b);
    if (rc == 0) rc = bwi_head_end(&HEAD, &r, newer, err);
    if (rc == 0) rc = check(&s, &b);
    if (rc == 0) *ret = s;
    return rc;
}
