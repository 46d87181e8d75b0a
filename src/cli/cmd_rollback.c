/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater rollback: an older checkpoint becomes the newest. */
#include <stdio.h>
#include <string.h>

#include "cli/work.h"

static int roll_back(struct cli_work *work, struct bw_list **ret, struct bw_error *err) {
    const struct cli_args *args = work->args;
    const struct cli_choice *choice = work->ctx;
    struct bw_list *list = NULL;
    struct bw_checkpoint_row row = {0};
    char label[96];
    /* Looked up first, so that a wrong name is "not found" and the label can tell the step. */
    int rc = bw_catalog_checkpoints(work->catalog, work->run, &list, err);
    if (rc == 0) rc = cli_choice_row(choice, work->run, list, &row, err);
    bw_list_free(list);
    if (rc < 0) return rc;
    (void)snprintf(label, sizeof label, "rollback-%llu-%lld", (unsigned long long)row.step,
                   (long long)cli_now_unix_ms());
    const char *wish = args->opt[OPT_LABEL].set ? args->opt[OPT_LABEL].text : label;
    return bw_catalog_rollback(work->catalog, work->run, row.step, choice->by_id ? row.id : NULL, wish,
                               !args->opt[OPT_YES].set, ret, err);
}

static void members(const struct cli_work *work, json_t *root, const struct bw_list *list) {
    (void)list;
    cli_json_set(root, "dry_run", cli_json_bool(work->dry_run));
}

static void epilogue(const struct cli_work *work, const struct bw_list *list) {
    (void)work;
    if (bw_list_count(list) == 0) (void)printf("nothing to set aside\n");
}

int cmd_rollback(const struct cli_args *args, struct bw_error *err) {
    struct cli_choice choice;
    struct cli_work work = {.args = args, .call = roll_back, .members = members, .epilogue = epilogue, .ctx = &choice};
    int rc = cli_choice_parse(cli_operand(args, 1), &choice, err);
    if (rc < 0) return rc;
    work.dry_run = !args->opt[OPT_YES].set;
    return cli_work_run(&work, !work.dry_run, err);
}
