/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint ids and uuids as text: one canonical form, and nothing else is read. */
#include "format/id.h"
#include "base/text.h"
#include "format/limits.h"
#include <breakwater/tensor.h>
#include <inttypes.h>
#include <string.h>

void bwi_id_text(const struct bwi_id *id, char ret[BWI_ID_TEXT_BYTES]) {
    (void)bwi_format(ret, BWI_ID_TEXT_BYTES, "%020" PRIu64 ".%" PRIu32 "-%08" PRIx32 ".%" PRIu32, id->step, id->attempt,
                     id->nonce, id->tri);
}

/* Cuts `text` at the first `mark`: what is before it is returned, what is behind it stays. false: there is none. */
static bool cut(struct bwi_span *text, char mark, struct bwi_span *ret) {
    const uint8_t *at = text->len == 0 ? NULL : memchr(text->ptr, mark, text->len);
    if (at == NULL) return false;
    const size_t n = (size_t)(at - text->ptr);
    *ret = bwi_span(text->ptr, n);
    *text = bwi_span(at + 1, text->len - n - 1);
    return true;
}

static bool number(struct bwi_span text, uint64_t max, uint64_t *ret) {
    uint64_t v;
    if (!bwi_dec_u64(text, &v) || v > max) return false;
    *ret = v;
    return true;
}

bool bwi_id_parse(struct bwi_span text, struct bwi_id *ret) {
    struct bwi_span step_text, attempt_text, nonce_text;
    uint64_t step, attempt, nonce, tri;
    if (!cut(&text, '.', &step_text) || !cut(&text, '-', &attempt_text) || !cut(&text, '.', &nonce_text)) return false;
    if (step_text.len != 20 || !bwi_dec_padded_u64((const char *)step_text.ptr, 20, &step)) return false;
    if (step > BW_STEP_MAX) return false;
    if (!number(attempt_text, UINT32_MAX, &attempt) || attempt == 0) return false;
    if (nonce_text.len != 8 || !bwi_hex_u64((const char *)nonce_text.ptr, 8, &nonce)) return false;
    if (!number(text, UINT32_MAX, &tri)) return false;
    *ret = (struct bwi_id){step, (uint32_t)attempt, (uint32_t)nonce, (uint32_t)tri};
    return true;
}

int bwi_id_cmp(const struct bwi_id *a, const struct bwi_id *b) {
    if (a->step != b->step) return a->step < b->step ? -1 : 1;
    if (a->attempt != b->attempt) return a->attempt < b->attempt ? -1 : 1;
    if (a->nonce != b->nonce) return a->nonce < b->nonce ? -1 : 1;
    return (a->tri > b->tri) - (a->tri < b->tri);
}

bool bwi_id_eq(const struct bwi_id *a, const struct bwi_id *b) {
    return bwi_id_cmp(a, b) == 0;
}

bool bwi_uuid_eq(const struct bwi_uuid *a, const struct bwi_uuid *b) {
    return memcmp(a->b, b->b, sizeof a->b) == 0;
}

void bwi_uuid_text(const struct bwi_uuid *u, char ret[BWI_UUID_TEXT_BYTES]) {
    bwi_hex_encode(u->b, sizeof u->b, ret);
}

bool bwi_uuid_parse(struct bwi_span text, struct bwi_uuid *ret) {
    return bwi_hex_decode((const char *)text.ptr, text.len, ret->b, sizeof ret->b);
}
