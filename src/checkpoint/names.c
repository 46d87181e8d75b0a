/* SPDX-License-Identifier: Apache-2.0 */
/* Names of listings. */
#include "checkpoint/names.h"
#include "base/text.h"
#include "format/limits.h"
#include <string.h>

#define MISSING_MAX  1024u /* groups without a summary, besides as many as have one */
#define GROUP_DIGITS 6u
#define NONCE_DIGITS 8u

/* The i-th name without its slash. false: an object. */
static bool directory_name(const struct bwi_store_names *names, size_t i, struct bwi_span *ret) {
    const char *name = names->name[i];
    const size_t len = strlen(name);
    if (len < 2 || name[len - 1] != '/') return false;
    *ret = bwi_span(name, len - 1);
    return true;
}

bool bwi_names_id(const struct bwi_store_names *names, size_t i, struct bwi_id *ret) {
    struct bwi_span name;
    return directory_name(names, i, &name) && bwi_id_parse(name, ret);
}

bool bwi_names_group(const struct bwi_store_names *names, size_t i, bool directory, uint32_t *ret) {
    struct bwi_span name = bwi_span_str(names->name[i]);
    uint64_t group;
    if (directory && !directory_name(names, i, &name)) return false;
    if (name.len != GROUP_DIGITS || !bwi_dec_padded_u64(names->name[i], GROUP_DIGITS, &group)) return false;
    if (group >= BWI_GROUPS_MAX) return false;
    *ret = (uint32_t)group;
    return true;
}

uint32_t bwi_names_groups(const struct bwi_store_names *names) {
    uint32_t group, named = 0, groups = 0;
    for (size_t i = 0; i < names->len; i++) named += bwi_names_group(names, i, false, &group);
    for (size_t i = 0; i < names->len; i++) {
        const bool counts = bwi_names_group(names, i, false, &group) && group < 2 * named + MISSING_MAX;
        if (counts && group >= groups) groups = group + 1;
    }
    return groups;
}

bool bwi_names_attempt(const struct bwi_store_names *names, size_t i, uint32_t *ret_attempt, uint32_t *ret_nonce) {
    struct bwi_span name;
    uint64_t attempt, nonce;
    if (!directory_name(names, i, &name) || name.len < NONCE_DIGITS + 2) return false;
    const size_t dash = name.len - NONCE_DIGITS - 1;
    if (name.ptr[dash] != '-' || !bwi_dec_u64(bwi_span(name.ptr, dash), &attempt)) return false;
    if (attempt == 0 || attempt > UINT32_MAX) return false;
    if (!bwi_hex_u64(names->name[i] + dash + 1, NONCE_DIGITS, &nonce)) return false;
    *ret_attempt = (uint32_t)attempt;
    *ret_nonce = (uint32_t)nonce;
    return true;
}

bool bwi_names_launch(const struct bwi_store_names *names, size_t i, char ret[BWI_NAME_BUF]) {
    struct bwi_span name;
    if (!directory_name(names, i, &name) || name.len >= BWI_NAME_BUF) return false;
    memcpy(ret, name.ptr, name.len);
    ret[name.len] = '\0';
    return bwi_name_valid(ret);
}

bool bwi_names_have_attempt(const struct bwi_store_names *names, uint32_t attempt, uint32_t nonce) {
    struct bwi_id id;
    for (size_t i = 0; i < names->len; i++)
        if (bwi_names_id(names, i, &id) && id.attempt == attempt && id.nonce == nonce) return true;
    return false;
}
