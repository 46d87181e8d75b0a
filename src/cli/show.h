/* SPDX-License-Identifier: Apache-2.0 */
/* What `breakwater show` knows about a checkpoint, and its two forms. */
#ifndef BW_CLI_SHOW_H
#define BW_CLI_SHOW_H

#include "cli/out_json.h"

struct cli_show {
    const struct cli_args *args;
    const char *run;
    struct bw_checkpoint_row row;
    struct bw_list *objects;
    struct bw_list *refs;
    const char *local;              /* URL of the local tier, NULL: none was given */
    struct bw_restore *reader;      /* NULL: its tensors cannot be read */
    struct bw_checkpoint_info info; /* zero without a reader */
    uint64_t blobs_there;
};

/* False for a checkpoint that was never committed, or is retired: there is nothing to open. */
bool cli_show_readable(const struct cli_show *show);
/* Both walk through tensors and blobs, so they can fail; what can be known without them is printed all the same. */
int cli_show_text(const struct cli_show *show, struct bw_error *err);
int cli_show_json(const struct cli_show *show, struct bw_error *err);

#endif
