/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater show: finds the checkpoint and reads its metadata; show_text.c and show_json.c print. */
#include <stdio.h>

#include "cli/show.h"

bool cli_show_readable(const struct cli_show *show) {
    return show->row.state == BW_CKPT_LIVE || show->row.state == BW_CKPT_SHELVED;
}

static int find(struct cli_show *show, struct bw_catalog *catalog, struct bw_error *err) {
    struct cli_choice choice;
    struct bw_list *list = NULL;
    int rc = cli_choice_parse(cli_operand(show->args, 1), &choice, err);
    if (rc == 0) rc = bw_catalog_checkpoints(catalog, show->run, &list, err);
    if (rc == 0) rc = cli_choice_row(&choice, show->run, list, &show->row, err);
    if (rc == 0) rc = bw_catalog_objects(catalog, show->run, show->row.id, &show->objects, err);
    if (rc == 0) rc = bw_catalog_refs(catalog, show->run, &show->refs, err);
    bw_list_free(list);
    return rc;
}

static int open_reader(struct cli_show *show, const struct cli_tiers *tiers, struct bw_error *err) {
    struct cli_choice choice = {.by_id = true};
    if (!cli_show_readable(show)) return 0;
    for (size_t i = 0; i < sizeof choice.id; i++) choice.id[i] = show->row.id[i];
    int rc = cli_reader_open(tiers, show->run, &choice, tiers->memory_bytes, &show->reader, err);
    if (rc == 0) rc = bw_restore_info(show->reader, &show->info, err);
    if (rc == 0) rc = bw_restore_blob_count(show->reader, &show->blobs_there, err);
    if (rc == 0) return 0;
    bw_restore_close(show->reader);
    show->reader = NULL;
    return rc;
}

/* The checkpoint is there, so an object of it that is missing is damage. */
static int damage(int status) {
    return status == BW_E_NOTFOUND ? BW_E_CORRUPT : status;
}

/* Prints what can be known, also when the metadata cannot be read, and gives the first failure. */
static int print(struct cli_show *show, const struct cli_tiers *tiers, struct bw_error *err) {
    struct bw_error second = BW_ERROR_INIT;
    int opened = open_reader(show, tiers, err);
    struct bw_error *why = opened == 0 ? err : &second;
    int rc = show->args->opt[OPT_JSON].set ? cli_show_json(show, why) : cli_show_text(show, why);
    (void)fflush(stdout); /* what is known comes before what is wrong */
    return damage(opened == 0 ? rc : opened);
}

int cmd_show(const struct cli_args *args, struct bw_error *err) {
    struct cli_tiers tiers;
    struct bw_catalog *catalog = NULL;
    struct cli_show show = {.args = args, .run = cli_operand(args, 0)};
    bool damaged = false;
    int rc = cli_tiers(args, &tiers, err);
    if (rc == 0) rc = cli_catalog_open(&tiers, BW_CATALOG_READ_ONLY, &catalog, err);
    if (rc == 0) rc = find(&show, catalog, err);
    if (rc == 0) rc = cli_newest_damaged(catalog, show.run, &damaged, err);
    bw_catalog_close(catalog);
    if (rc == 0) show.local = tiers.local;
    if (rc == 0) rc = print(&show, &tiers, err);
    if (damaged) cli_say_newest_damaged("show", show.run);
    if (damaged && rc == 0) rc = bw_status_exit_code(BW_E_CORRUPT);
    bw_restore_close(show.reader);
    bw_list_free(show.refs);
    bw_list_free(show.objects);
    return rc;
}
