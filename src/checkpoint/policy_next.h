/* SPDX-License-Identifier: Apache-2.0 */
/* Building the next entry: shared by policy_history.c and policy_keep.c, used by nobody else. Errors are out of memory
 * only. */
#ifndef BWI_CHECKPOINT_POLICY_NEXT_H
#define BWI_CHECKPOINT_POLICY_NEXT_H

#include "checkpoint/policy_history.h"

/* A copy of the head with n + 1, prev, writer, time and host set and an empty event of this type; without a head the
 * first entry of a run. */
int bwi_next_begin(const struct bwi_actor *a, enum bwi_event type, const char *run, const struct bwi_uuid *uuid,
                   struct bwi_entry *ret, struct bw_error *err);
int bwi_next_subject(struct bwi_entry *e, const struct bwi_id *id, struct bw_error *err); /* appends to event.ids */
int bwi_next_name(char (**list)[BWI_NAME_BUF], size_t *count, const char *name, struct bw_error *err);
void bwi_next_drop_name(char (*list)[BWI_NAME_BUF], size_t *count, const char *name);
int bwi_next_keep(struct bwi_kept **list, size_t *count, const struct bwi_kept *k,
                  struct bw_error *err); /* inserts in order of ids */
void bwi_next_drop(struct bwi_kept *list, size_t *count, const struct bwi_id *id);
/* Shelves the live ones above *step; all of them when step is NULL. */
int bwi_next_shelve(struct bwi_entry *e, const uint64_t *step, struct bw_error *err);
int bwi_next_unshelve(struct bwi_entry *e, const struct bwi_id *id, struct bw_error *err);
/* Live from now on; all lower steps and the open from are closed. */
int bwi_next_commit(struct bwi_entry *e, const struct bwi_kept *k, struct bw_error *err);
int bwi_next_try(struct bwi_entry *e, uint64_t step, uint32_t tri, struct bw_error *err);

#endif
