/* SPDX-License-Identifier: Apache-2.0 */
/* What restore, verify and mend have in common beside the metadata of groups: the manifest, the index, keys of packs,
 * and what counts as damage. Pure. */
#include "checkpoint/source.h"
#include "base/error.h"
#include <string.h>

bool bwi_is_damage(int status) {
    return status == BW_E_CORRUPT || status == BW_E_NOTFOUND || status == BW_E_FORMAT || status == BW_E_COVERAGE;
}

int bwi_sha_check(struct bwi_span bytes, const struct bwi_sha *want, const char *by, struct bw_error *err) {
    const struct bwi_sha found = bwi_sha_of(bytes);
    if (bwi_sha_eq(&found, want)) return 0;
    char want_hex[BWI_SHA_HEX_BYTES];
    char found_hex[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(want, want_hex);
    bwi_sha_hex(&found, found_hex);
    return bwi_error_set(err, BW_E_CORRUPT, "its SHA-256 is %.16s, %s names %.16s", found_hex, by, want_hex);
}

int bwi_manifest_take(struct bwi_span bytes, const struct bwi_sha *want, const struct bwi_id *id,
                      struct bwi_manifest *ret, struct bw_error *err) {
    struct bwi_manifest m = {0};
    int rc = bwi_sha_check(bytes, want, "the history", err);
    if (rc == 0) rc = bwi_manifest_decode(bytes, &m, err);
    if (rc < 0) return rc;
    if (!bwi_id_eq(&m.id, id)) {
        char found[BWI_ID_TEXT_BYTES];
        bwi_id_text(&m.id, found);
        bwi_manifest_fini(&m);
        return bwi_error_set(err, BW_E_CORRUPT, "it is the manifest of checkpoint %s", found);
    }
    *ret = m;
    return 0;
}

int bwi_index_make(const struct bwi_layout *layouts, uint32_t groups, struct bwi_buf *out, struct bwi_index_info *ret,
                   struct bw_error *err) {
    struct bwi_index_builder *b = NULL;
    const struct bwi_index_tensor *tensors = NULL;
    size_t count = 0;
    int rc = bwi_index_builder_new(&b, err);
    for (uint32_t g = 0; rc == 0 && g < groups; g++) rc = bwi_index_builder_add(b, g, &layouts[g], err);
    if (rc == 0) rc = bwi_index_builder_tensors(b, &tensors, &count, err);
    if (rc == 0) rc = bwi_coverage_check(tensors, count, err);
    if (rc == 0) rc = bwi_index_builder_encode(b, out, ret, err);
    bwi_index_builder_free(b);
    return rc;
}

/* ---- packs of a placement ---- */

struct bwi_key bwi_pack_key_of(const struct bwi_placement *p, uint32_t pack) {
    const struct bwi_span key = p->packs[pack].key;
    struct bwi_key k = {{0}};
    memcpy(k.s, key.ptr, key.len); /* a checked key of a pack: it fits */
    return k;
}

bool bwi_pack_is_own(const struct bwi_placement *p, uint32_t pack, const struct bwi_id *id, uint32_t group) {
    const struct bwi_key key = bwi_pack_key_of(p, pack);
    struct bwi_key_parts parts;
    return bwi_key_parse(key.s, &parts) && bwi_id_eq(&parts.id, id) && parts.group == group;
}

bool bwi_pack_find(const struct bwi_placement *p, const char *key, uint32_t *ret_pack) {
    for (uint32_t i = 0; i < p->pack_count; i++) {
        if (!bwi_span_eq(p->packs[i].key, bwi_span_str(key))) continue;
        *ret_pack = i;
        return true;
    }
    return false;
}
