/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the parts of the history entry's codec. */
#ifndef BWI_FORMAT_HISTORY_PRIVATE_H
#define BWI_FORMAT_HISTORY_PRIVATE_H

#include "format/history.h"

#define BWI_ENTRY_FORMAT "breakwater-history"
#define BWI_ENTRY_WHAT   "history entry"
#define BWI_ENTRY_MAJOR  1
#define BWI_ENTRY_MINOR  0

/* Every rule that binds an entry by itself, for a writer (BW_E_INVALID, BW_E_LIMIT) or a reader (BW_E_FORMAT). */
int bwi_entry_check(const struct bwi_entry *e, bool writing, struct bw_error *err);
/* 0: no such event. */
enum bwi_event bwi_event_parse(const char *name);

#endif
