/* SPDX-License-Identifier: Apache-2.0 */
/* Words for the numbers of lists, and how findings become lines and an exit code. */
#ifndef BW_CLI_WORDS_H
#define BW_CLI_WORDS_H

#include <breakwater/catalog.h>

/* "live", "shelved", ... of enum bw_checkpoint_state. */
const char *cli_state_word(uint32_t state);
/* "fact", "warning", "damage". */
const char *cli_severity_word(uint32_t severity);

/* Findings that are left out of what is printed. */
struct cli_filter {
    bool (*hides)(const void *ctx, const struct bw_finding *finding); /* NULL: nothing is hidden */
    const void *ctx;
};
bool cli_filter_hides(const struct cli_filter *filter, const struct bw_finding *finding);

/* Prints findings as a table. `object_head` NULL: the object goes into the message; else it is a column of that name.
 * `filter` may be NULL. */
void cli_findings_print(const struct bw_list *list, const char *object_head, const struct cli_filter *filter);
/* 0 without a finding of severity 2; 3 when one of them is damage; else the exit code of the first. `unmended`: what is
 * damaged in a checkpoint and was left so although it could be mended, a warning, counts as damage too. */
int cli_findings_exit(const struct bw_list *list, bool unmended);

#endif
