/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of verbs that report findings. */
#include <stdio.h>
#include <string.h>

#include "cli/work.h"

struct running {
    struct cli_work *work;
    struct bw_list *list;
};

static int run_call(void *ctx, struct bw_error *err) {
    struct running *r = ctx;
    return r->work->call(r->work, &r->list, err);
}

static void read_progress(void *ctx, struct bw_progress *ret) {
    struct running *r = ctx;
    bw_catalog_progress(r->work->catalog, ret);
}

static void print_json(const struct cli_work *work, const struct bw_list *list) {
    const struct cli_args *args = work->args;
    json_t *root = cli_json_begin(args->verb->name);
    cli_json_set(root, "run", cli_json_text(work->run));
    if (work->members != NULL) work->members(work, root, list);
    cli_json_set(root, "findings", cli_json_findings(list, &work->filter));
    cli_json_print(root);
}

static void print_text(const struct cli_work *work, const struct bw_list *list) {
    cli_findings_print(list, NULL, &work->filter);
    if (work->epilogue != NULL) work->epilogue(work, list);
}

int cli_work_run(struct cli_work *work, bool writes, struct bw_error *err) {
    struct cli_tiers tiers;
    struct running running = {work, NULL};
    struct cli_call call = {work->args->verb->name, run_call, read_progress, &running};
    if (work->args->opt[OPT_DRY_RUN].set && work->args->opt[OPT_YES].set)
        return cli_usage(err, "--dry-run: with --yes it would be done");
    work->run = cli_operand(work->args, 0);
    int rc = cli_tiers(work->args, &tiers, err);
    if (rc == 0) work->local = tiers.local;
    if (rc == 0) rc = cli_catalog_open(&tiers, writes ? 0 : BW_CATALOG_READ_ONLY, &work->catalog, err);
    if (rc == 0) rc = cli_call_long(&call, err);
    if (rc == 0) {
        if (work->args->opt[OPT_JSON].set)
            print_json(work, running.list);
        else
            print_text(work, running.list);
        (void)fflush(stdout); /* the result comes before the note about it */
        if (work->dry_run)
            (void)fprintf(stderr, "nothing was changed: this was a dry run, %s does it\n",
                          work->instead != NULL ? work->instead : "--yes");
        if (work->note != NULL) work->note(work, running.list);
        rc = cli_findings_exit(running.list, work->unmended);
    }
    bw_list_free(running.list);
    bw_catalog_close(work->catalog);
    return rc;
}

int cli_work_id(struct cli_work *work, const char *text, char ret_id[BW_ID_BYTES], struct bw_error *err) {
    struct cli_choice choice;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row;
    int rc = cli_choice_parse(text, &choice, err);
    if (rc == 0) rc = bw_catalog_checkpoints(work->catalog, work->run, &list, err);
    if (rc == 0) rc = cli_choice_row(&choice, work->run, list, &row, err);
    if (rc == 0) memcpy(ret_id, row.id, sizeof row.id);
    bw_list_free(list);
    return rc;
}
