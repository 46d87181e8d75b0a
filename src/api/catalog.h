/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a catalog: shared by catalog*.c. */
#ifndef BWI_API_CATALOG_H
#define BWI_API_CATALOG_H

#include <breakwater/catalog.h>

#include "api/blocking.h"
#include "checkpoint/history_head.h"
#include "checkpoint/room.h"
#include "checkpoint/verify.h"
#include "os/thread.h"

struct bw_catalog {
    struct bwi_host host;   /* of the call that runs */
    struct bwi_pulse pulse; /* of it */
    struct bwi_progress progress;
    uint32_t flags;
    uint64_t io_timeout_ms;
    struct bwi_mutex mutex;
    struct bwi_cond cond;
    /* guarded by the mutex */
    bool busy;   /* a call runs, maybe one whose caller has gone */
    bool closed; /* by the caller: the call that runs frees all of this when it comes back */
};

/* What a call was asked for. On its thread these are copies. */
struct bwi_catalog_args {
    const char *run; /* NULL: the call is about all of them */
    const char *id;  /* as text, not checked; NULL: none */
    const char *label;
    uint64_t step;
    uint32_t flags;
    bool changes; /* BW_E_ACCESS on a read-only catalog */
    bool dry_run, pinned;
    struct bw_prune_options prune;
};

/* The work of a call, on a thread of its own with the host to itself. *ret_list is written on success; verbs that give
 * no list leave it alone. */
typedef int bwi_catalog_verb(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                             struct bw_error *err);

/* How every public call begins: clears *err, checks the handle, the run's name and the place for the result. */
int bwi_catalog_check(struct bw_catalog *c, const char *run, const void *ret, struct bw_error *err);
/* Runs the verb, no longer than the catalog's deadline allows; BW_E_ACCESS where a read-only one is to change things.
 * ret_list NULL: the verb gives none. */
int bwi_catalog_call(struct bw_catalog *c, bwi_catalog_verb *verb, const struct bwi_catalog_args *a,
                     struct bw_list **ret_list, struct bw_error *err);

enum bwi_list_kind {
    BWI_LIST_RUN,
    BWI_LIST_CHECKPOINT,
    BWI_LIST_OBJECT,
    BWI_LIST_REF,
    BWI_LIST_HISTORY,
    BWI_LIST_FINDING
};

struct bw_list {
    enum bwi_list_kind kind;
    size_t row_bytes, count, cap;
    void *rows;
};

int bwi_list_new(enum bwi_list_kind kind, size_t row_bytes, struct bw_list **ret, struct bw_error *err);
int bwi_list_add(struct bw_list *l, const void *row, struct bw_error *err); /* copies row_bytes */
/* Makes a list of the findings, which are empty afterwards. */
int bwi_list_of_findings(struct bwi_findings *f, struct bw_list **ret, struct bw_error *err);
/* Sorts the findings from the n-th on by tier, object and tensor: what ran at the same time was reported in any order.
 */
void bwi_findings_sort(struct bwi_findings *f, size_t n);

/* The head of the context's run. BW_E_NOTFOUND when there is none. */
int bwi_catalog_head(struct bw_catalog *c, struct bwi_head *ret, struct bw_error *err);
/* A checkpoint id that the caller gave. */
int bwi_catalog_id(const char *text, struct bwi_id *ret, struct bw_error *err);
bool bwi_catalog_has(const struct bw_catalog *c, enum bwi_tier tier);
/* Whether another store has decided the newest entry. */
bool bwi_catalog_is_archive(const struct bw_catalog *c, const struct bwi_head *head);

/* catalog_log.c. Damage is a finding. */
/* Every entry's seal, and that each names the bytes of the one before. */
int bwi_catalog_verify_log(struct bw_catalog *c, const struct bwi_head *head, struct bwi_findings *f,
                           struct bw_error *err);
/* Inventories and refusals. A damaged one is a warning: nobody asks for it any more once its launch has begun. */
int bwi_catalog_verify_launches(struct bw_catalog *c, struct bwi_findings *f, struct bw_error *err);

#endif
