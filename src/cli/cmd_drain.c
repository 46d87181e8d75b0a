/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater drain: finishes what a dead process left. */
#include <stdio.h>

#include "cli/work.h"

static int drain(struct cli_work *work, struct bw_list **ret, struct bw_error *err) {
    return bw_catalog_drain(work->catalog, work->run, ret, err);
}

static void epilogue(const struct cli_work *work, const struct bw_list *list) {
    (void)work;
    if (bw_list_count(list) == 0) (void)printf("nothing was left to drain\n");
}

static void note(const struct cli_work *work, const struct bw_list *list) {
    (void)list;
    if (work->local == NULL)
        (void)fprintf(stderr, "only the remote tier was looked at: give --local URL to bring what lies on a node\n");
}

int cmd_drain(const struct cli_args *args, struct bw_error *err) {
    struct cli_work work = {.args = args, .call = drain, .epilogue = epilogue, .note = note};
    return cli_work_run(&work, true, err);
}
