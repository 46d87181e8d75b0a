/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that several formats share. */
#include "format/rules.h"
#include "base/error.h"
#include "base/text.h"
#include "format/limits.h"
#include <breakwater/tensor.h>
#include <string.h>

bool bwi_rule_line(const char *s, size_t bytes) {
    const size_t len = strnlen(s, bytes);
    if (len == bytes) return false;
    for (size_t at = 0; at < len;) {
        uint32_t code = 0;
        const size_t n = bwi_utf8_next(bwi_span(s + at, len - at), &code);
        if (n == 0 || code < 0x20 || (code >= 0x7f && code < 0xa0)) return false;
        at += n;
    }
    return true;
}

bool bwi_rule_ascii(const char *s, size_t bytes) {
    const size_t len = strnlen(s, bytes);
    for (size_t i = 0; i < len; i++) {
        if (s[i] < 0x20 || s[i] > 0x7e) return false;
    }
    return len < bytes;
}

bool bwi_rule_name(const char s[]) {
    return strnlen(s, BWI_NAME_BUF) < BWI_NAME_BUF && bwi_name_valid(s);
}

bool bwi_rule_name_or_none(const char s[]) {
    return s[0] == '\0' || bwi_rule_name(s);
}

int bwi_rule_id(const struct bwi_id *id, bool writing, const char *what, struct bw_error *err) {
    if (id->step > BW_STEP_MAX)
        return bwi_error_set(err, bwi_rule_over(writing), "%s: step %llu is above %llu", what,
                             (unsigned long long)id->step, (unsigned long long)BW_STEP_MAX);
    if (id->attempt == 0)
        return bwi_error_set(err, bwi_rule_bad(writing), "%s: step %llu is of attempt 0, they count from 1", what,
                             (unsigned long long)id->step);
    return 0;
}

int bwi_rule_refs(const struct bwi_id *refs, uint32_t count, const struct bwi_id *own, bool writing, const char *what,
                  struct bw_error *err) {
    if (count > BWI_REFS_MAX)
        return bwi_error_set(err, bwi_rule_over(writing), "%s: refers to %u checkpoints, at most %d are allowed", what,
                             count, BWI_REFS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        const int rc = bwi_rule_id(&refs[i], writing, what, err);
        if (rc < 0) return rc;
        char text[BWI_ID_TEXT_BYTES];
        bwi_id_text(&refs[i], text);
        if (i > 0 && bwi_id_cmp(&refs[i - 1], &refs[i]) >= 0)
            return bwi_error_set(err, bwi_rule_bad(writing), "%s: its refs do not ascend at %s", what, text);
        if (bwi_id_eq(&refs[i], own))
            return bwi_error_set(err, bwi_rule_bad(writing), "%s: %s refers to itself", what, text);
    }
    return 0;
}

int bwi_rule_ranks(const uint32_t *ranks, uint32_t count, uint32_t world, bool writing, const char *what,
                   struct bw_error *err) {
    if (count == 0) return bwi_error_set(err, bwi_rule_bad(writing), "%s: expected at least one rank", what);
    if (count > BWI_GROUP_RANKS_MAX)
        return bwi_error_set(err, bwi_rule_over(writing), "%s: has %u ranks, at most %u are allowed", what, count,
                             BWI_GROUP_RANKS_MAX);
    for (uint32_t i = 0; i < count; i++) {
        if (ranks[i] >= world)
            return bwi_error_set(err, bwi_rule_bad(writing), "%s: rank %u is not below the world size %u", what,
                                 ranks[i], world);
        if (i > 0 && ranks[i - 1] >= ranks[i])
            return bwi_error_set(err, bwi_rule_bad(writing), "%s: its ranks do not ascend: %u before %u", what,
                                 ranks[i - 1], ranks[i]);
    }
    return 0;
}

int bwi_rule_world(uint32_t world, uint32_t groups, bool writing, const char *what, struct bw_error *err) {
    if (world > BWI_WORLD_MAX)
        return bwi_error_set(err, bwi_rule_over(writing), "%s: world size %u is above %u", what, world, BWI_WORLD_MAX);
    if (groups > BWI_GROUPS_MAX)
        return bwi_error_set(err, bwi_rule_over(writing), "%s: %u groups are above %u", what, groups, BWI_GROUPS_MAX);
    if (groups == 0 || groups > world)
        return bwi_error_set(err, bwi_rule_bad(writing), "%s: %u groups do not fit a world size of %u", what, groups,
                             world);
    return 0;
}
