/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater show: finds the checkpoint and reads its metadata; show_text.c and show_json.c print. */
#include "cli/show.h"

static bool readable(const struct bw_checkpoint_row *row) {
    return row->state == BW_CKPT_LIVE || row->state == BW_CKPT_SHELVED;
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
    if (!readable(&show->row)) return 0;
    for (size_t i = 0; i < sizeof choice.id; i++) choice.id[i] = show->row.id[i];
    int rc = cli_reader_open(tiers, show->run, &choice, tiers->memory_bytes, &show->reader, err);
    if (rc == 0) rc = bw_restore_info(show->reader, &show->info, err);
    return rc == 0 ? bw_restore_blob_count(show->reader, &show->blobs_there, err) : rc;
}

int cmd_show(const struct cli_args *args, struct bw_error *err) {
    struct cli_tiers tiers;
    struct bw_catalog *catalog = NULL;
    struct cli_show show = {.args = args, .run = cli_operand(args, 0)};
    int rc = cli_tiers(args, &tiers, err);
    if (rc == 0) rc = cli_catalog_open(&tiers, BW_CATALOG_READ_ONLY, &catalog, err);
    if (rc == 0) rc = find(&show, catalog, err);
    bw_catalog_close(catalog);
    if (rc == 0) rc = open_reader(&show, &tiers, err);
    if (rc == 0) rc = args->opt[OPT_JSON].set ? cli_show_json(&show, err) : cli_show_text(&show, err);
    bw_restore_close(show.reader);
    bw_list_free(show.refs);
    bw_list_free(show.objects);
    return rc;
}
