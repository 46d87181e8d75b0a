/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a run's head for handles that have no session: readers and catalogs. */
#ifndef BWI_API_READER_H
#define BWI_API_READER_H

#include "api/host.h"
#include "checkpoint/history_head.h"

/* Identities of the tiers: BW_E_NOTFOUND where one is no store. Runs the host's loop, as all here. */
int bwi_reader_check_stores(struct bwi_host *h, struct bw_error *err);

/* Identities of the tiers, then the newest entry of ctx.run; BW_E_NOTFOUND when the run has none. */
int bwi_reader_read_head(struct bwi_host *h, struct bwi_head *ret, struct bw_error *err);

#endif
