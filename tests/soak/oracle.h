/* SPDX-License-Identifier: Apache-2.0 */
/* What must be true of a run, looked at from outside after everything that happens to the authority: an account of
 * what the log says, kept apart from everybody's own.
 *
 *   - an entry is created once, follows the one before it, and names it by its hash; nobody forks the log;
 *   - what an entry makes live is complete at that moment, and named by the same hash for ever; one of a step;
 *   - what the newest entry holds live or shelved stays complete whatever is deleted;
 *   - the newest step goes back only on demand; a launch goes on from the newest, or from what is newer and whole;
 *   - COMMITTED is told only of what was committed, and ABORTED only of what never will be. */
#ifndef BW_SOAK_ORACLE_H
#define BW_SOAK_ORACLE_H

#include "format/history.h"
#include "store/store_memory.h"

#define ORACLE_IDS 512u

/* All that the log has ever said about one checkpoint. */
struct oracle_id {
    struct bwi_id id;
    bool committed, aborted;
    bool told_committed, told_dead; /* to a participant */
    struct bwi_sha manifest;
};

struct oracle {
    const char *run;
    struct bwi_bucket *authority;
    struct bwi_entry head; /* n == 0: none yet */
    struct bwi_sha head_sha;
    struct oracle_id ids[ORACLE_IDS];
    unsigned id_count;
    char (*needed)[512]; /* keys of all that is live and shelved */
    size_t needed_count, needed_cap;
    uint64_t entries;
    bool damaged;        /* somebody has damaged something on purpose: missing objects prove nothing any more */
    char violation[400]; /* the first one; "" */
};

void oracle_init(struct oracle *o, const char *run, struct bwi_bucket *authority);
void oracle_fini(struct oracle *o);
/* To be called after each change to the authority. */
void oracle_look(struct oracle *o, const struct bwi_store_op *op);
/* A participant was told so. `why`: of the end of a save; 0: it is committed. */
void oracle_told(struct oracle *o, const struct bwi_id *id, int status);
void oracle_violated(struct oracle *o, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
struct oracle_id *oracle_find(struct oracle *o, const struct bwi_id *id); /* NULL: the log has not named it */
/* Whether a key may lie in a tier when all is quiet and swept: it is of the log, or of something that is not dead. */
bool oracle_may_lie(const struct oracle *o, const char *key);

#endif
