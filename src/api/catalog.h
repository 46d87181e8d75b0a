/* SPDX-License-Identifier: Apache-2.0 */
/* Inside a catalog: shared by catalog*.c. */
#ifndef BWI_API_CATALOG_H
#define BWI_API_CATALOG_H

#include <breakwater/catalog.h>

#include "api/blocking.h"
#include "checkpoint/history_head.h"
#include "checkpoint/room.h"
#include "checkpoint/verify.h"

struct bw_catalog {
    struct bwi_host host;
    struct bwi_progress progress;
    uint32_t flags;
};

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

/* Checks the arguments, makes `run` the context's, resets the progress. */
int bwi_catalog_begin(struct bw_catalog *c, const char *run, const void *ret, struct bw_error *err);
/* As above, and the verb changes things: BW_E_ACCESS on a read-only catalog. */
int bwi_catalog_begin_change(struct bw_catalog *c, const char *run, struct bw_error *err);
/* The head of the context's run. BW_E_NOTFOUND when there is none. */
int bwi_catalog_head(struct bw_catalog *c, struct bwi_head *ret, struct bw_error *err);
bool bwi_catalog_has(const struct bw_catalog *c, enum bwi_tier tier);

#endif
