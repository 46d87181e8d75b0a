/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater repair: damaged copies, a damaged newest entry, an archive that is to decide. */
#include <stdio.h>

#include "cli/work.h"

static uint32_t allowed(const struct cli_args *args) {
    uint32_t what = 0;
    if (args->opt[OPT_COPIES].set) what |= BW_REPAIR_COPIES;
    if (args->opt[OPT_HISTORY].set) what |= BW_REPAIR_HISTORY;
    if (args->opt[OPT_PROMOTE].set) what |= BW_REPAIR_PROMOTE;
    return what;
}

static int repair(struct cli_work *work, struct bw_list **ret, struct bw_error *err) {
    uint32_t what = work->args->opt[OPT_YES].set ? allowed(work->args) : 0;
    return bw_catalog_repair(work->catalog, work->run, what, ret, err);
}

static void members(const struct cli_work *work, json_t *root, const struct bw_list *list) {
    (void)list;
    cli_json_set(root, "dry_run", cli_json_bool(!work->args->opt[OPT_YES].set));
}

static void epilogue(const struct cli_work *work, const struct bw_list *list) {
    (void)work;
    if (bw_list_count(list) == 0) (void)printf("nothing is damaged\n");
}

int cmd_repair(const struct cli_args *args, struct bw_error *err) {
    bool yes = args->opt[OPT_YES].set;
    struct cli_work work = {.args = args, .call = repair, .members = members, .epilogue = epilogue};
    if (yes && allowed(args) == 0)
        return cli_usage(err, "--yes: expected what may be done: --copies, --history or --promote");
    work.dry_run = !yes;
    if (allowed(args) == 0) work.instead = "--yes with --copies, --history or --promote";
    work.unmended = !yes || !args->opt[OPT_COPIES].set;
    return cli_work_run(&work, yes, err);
}
