/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater verify: every hash of a checkpoint or a run. */
#include <stdio.h>

#include "cli/work.h"

static int verify(struct cli_work *work, struct bw_list **ret, struct bw_error *err) {
    const char *text = cli_operand(work->args, 1);
    char id[BW_ID_BYTES];
    int rc = text != NULL ? cli_work_id(work, text, id, err) : 0;
    if (rc < 0) return rc;
    uint32_t flags = work->args->opt[OPT_FAST].set ? BW_VERIFY_FAST : 0;
    return bw_catalog_verify(work->catalog, work->run, text != NULL ? id : NULL, flags, ret, err);
}

/* Findings of at least this severity. */
static size_t count(const struct bw_list *list, uint32_t severity) {
    struct bw_finding f;
    size_t n = 0;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) n += f.severity >= severity;
    return n;
}

static void members(const struct cli_work *work, json_t *root, const struct bw_list *list) {
    cli_json_set(root, "mode", cli_json_text(work->args->opt[OPT_FAST].set ? "fast" : "full"));
    cli_json_set(root, "sound", cli_json_bool(count(list, 2) == 0));
}

static void epilogue(const struct cli_work *work, const struct bw_list *list) {
    size_t bad = count(list, 2);
    if (bad != 0)
        (void)printf("not sound: %zu finding%s of damage or failure; see: breakwater repair %s\n", bad, cli_s(bad),
                     work->run);
    else if (work->args->opt[OPT_FAST].set)
        (void)printf("complete: sizes and metadata checked; tensors were not read\n");
    else
        (void)printf("sound: every hash checked\n");
}

int cmd_verify(const struct cli_args *args, struct bw_error *err) {
    struct cli_work work = {.args = args, .call = verify, .members = members, .epilogue = epilogue};
    return cli_work_run(&work, false, err);
}
