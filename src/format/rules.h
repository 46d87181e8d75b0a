/* SPDX-License-Identifier: Apache-2.0 */
/* Rules that several formats share. Readers and writers are bound by the same ones; only the code differs: what a
 * reader refuses as malformed is a caller's mistake in a writer. */
#ifndef BWI_FORMAT_RULES_H
#define BWI_FORMAT_RULES_H

#include "format/id.h"
#include <breakwater/error.h>

/* The greatest integer of our JSON. */
#define BWI_INT_MAX ((uint64_t)INT64_MAX)

static inline int bwi_rule_bad(bool writing) {
    return writing ? BW_E_INVALID : BW_E_FORMAT;
}
static inline int bwi_rule_over(bool writing) {
    return writing ? BW_E_LIMIT : BW_E_FORMAT;
}

/* A NUL within `bytes`, and before it one line of UTF-8 without control characters (C0, DEL, C1); may be empty. */
bool bwi_rule_line(const char *s, size_t bytes);
/* As above, printable ASCII. */
bool bwi_rule_ascii(const char *s, size_t bytes);
/* A NUL within BWI_NAME_BUF and a valid name before it. */
bool bwi_rule_name(const char s[]);
/* The same, or empty. */
bool bwi_rule_name_or_none(const char s[]);
/* A step up to BW_STEP_MAX, an attempt from 1. `what` names the object. */
int bwi_rule_id(const struct bwi_id *id, bool writing, const char *what, struct bw_error *err);
/* The ids that a checkpoint refers to: at most BWI_REFS_MAX, ascending, without doubles, itself not among them. */
int bwi_rule_refs(const struct bwi_id *refs, uint32_t count, const struct bwi_id *own, bool writing, const char *what,
                  struct bw_error *err);
/* Ranks of a group: 1 .. BWI_GROUP_RANKS_MAX, ascending without doubles, below world. */
int bwi_rule_ranks(const uint32_t *ranks, uint32_t count, uint32_t world, bool writing, const char *what,
                   struct bw_error *err);
/* 1 <= groups <= world, both within their limits. */
int bwi_rule_world(uint32_t world, uint32_t groups, bool writing, const char *what, struct bw_error *err);

#endif
