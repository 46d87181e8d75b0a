/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater ls: runs, or the checkpoints of a run. */
#include <stdio.h>

#include "cli/out_json.h"
#include "cli/words.h"

static json_t *run_json(const struct bw_run_info *r) {
    json_t *o = cli_json_object();
    cli_json_set(o, "run", cli_json_text(r->run));
    cli_json_set(o, "status", cli_json_status(r->status));
    cli_json_set(o, "attempt", cli_json_u64(r->attempt));
    cli_json_set(o, "live", cli_json_u64(r->live));
    cli_json_set(o, "shelved", cli_json_u64(r->shelved));
    cli_json_set(o, "newest_step", r->newest_step == UINT64_MAX ? json_null() : cli_json_u64(r->newest_step));
    cli_json_set(o, "bytes", cli_json_u64(r->bytes));
    cli_json_set(o, "newest_unix_ms", cli_json_time(r->newest_unix_ms));
    cli_json_set(o, "job", cli_json_text_or_null(r->job));
    return o;
}

static void run_cells(struct cli_table *t, const struct bw_run_info *r, int64_t now) {
    char text[CLI_TEXT_BYTES];
    cli_table_name(t, r->run);
    cli_table_cell(t, "%u", r->attempt);
    cli_table_cell(t, "%llu", (unsigned long long)r->live);
    cli_table_cell(t, "%llu", (unsigned long long)r->shelved);
    if (r->newest_step == UINT64_MAX)
        cli_table_cell(t, "-");
    else
        cli_table_cell(t, "%llu", (unsigned long long)r->newest_step);
    cli_table_cell(t, "%s", cli_bytes_or_dash(r->bytes, text));
    cli_table_cell(t, "%s", cli_age_text(r->newest_unix_ms, now, text));
    cli_table_name(t, r->status != 0 ? bw_status_text(r->status) : "ok");
    cli_table_name(t, r->job);
}

/* A run whose history cannot be read is shown, and decides the exit code. */
static int list_runs(struct bw_catalog *catalog, bool json, struct bw_error *err) {
    static const char *const heads[] = {"RUN",   ">ATTEMPT", ">LIVE",  ">SHELVED", ">NEWEST",
                                        ">SIZE", ">AGE",     "STATUS", "JOB"};
    struct bw_list *list = NULL;
    struct bw_run_info r;
    int code = 0;
    int rc = bw_catalog_runs(catalog, &list, err);
    if (rc < 0) return rc;
    json_t *rows = cli_json_array();
    struct cli_table t;
    cli_table_init(&t, sizeof heads / sizeof heads[0], heads);
    for (size_t i = 0; bw_list_run(list, i, &r); i++) {
        run_cells(&t, &r, cli_now_unix_ms());
        cli_json_add(rows, run_json(&r));
        if (r.status != 0 && code == 0) code = bw_status_exit_code(r.status);
    }
    if (json) {
        json_t *root = cli_json_begin("ls");
        cli_json_set(root, "runs", json_incref(rows));
        cli_json_print(root);
    } else {
        cli_table_print(&t);
    }
    json_decref(rows);
    cli_table_fini(&t);
    bw_list_free(list);
    return code;
}

/* "2/8": how many of the groups; "2/?" when nobody knows how many there are. */
static void groups_cell(struct cli_table *t, uint32_t complete, uint32_t groups) {
    if (groups != 0)
        cli_table_cell(t, "%u/%u", complete, groups);
    else
        cli_table_cell(t, "%u/?", complete);
}

static void note_cell(struct cli_table *t, const struct bw_checkpoint_row *r) {
    struct cli_buf b = {0};
    cli_buf_add(&b, "", 0);
    if (r->pinned != 0) cli_buf_printf(&b, ", pinned");
    if (r->refs != 0) cli_buf_printf(&b, ", refers to %u", r->refs);
    if (r->damaged != 0) cli_buf_printf(&b, ", %u damaged", r->damaged);
    if (r->failed != 0) cli_buf_printf(&b, ", %u failed", r->failed);
    cli_table_cell(t, "%s", b.len > 2 ? b.data + 2 : "");
    cli_buf_fini(&b);
}

static void checkpoint_cells(struct cli_table *t, const struct bw_checkpoint_row *r, int64_t now) {
    char text[CLI_TEXT_BYTES];
    cli_table_cell(t, "%llu", (unsigned long long)r->step);
    cli_table_cell(t, "%u", r->attempt);
    cli_table_cell(t, "%u", r->save_try);
    if (r->world != 0)
        cli_table_cell(t, "%u", r->world);
    else
        cli_table_cell(t, "-");
    groups_cell(t, r->groups_remote, r->groups);
    cli_table_cell(t, "%s", cli_bytes_or_dash(r->bytes, text));
    cli_table_cell(t, "%s", bw_level_name((int)r->level));
    cli_table_cell(t, "%s", cli_state_word(r->state));
    cli_table_cell(t, "%s", cli_age_text(r->unix_ms, now, text));
    cli_table_name(t, r->id);
    note_cell(t, r);
}

static int list_checkpoints(struct bw_catalog *catalog, const char *run, bool json, struct bw_error *err) {
    static const char *const heads[] = {">STEP", ">ATTEMPT", ">TRY", ">WORLD", ">GROUPS", ">SIZE",
                                        "LEVEL", "STATE",    ">AGE", "ID",     "NOTE"};
    struct bw_list *list = NULL;
    struct bw_checkpoint_row r;
    int rc = bw_catalog_checkpoints(catalog, run, &list, err);
    if (rc < 0) return rc;
    if (json) {
        json_t *root = cli_json_begin("ls");
        json_t *rows = cli_json_array();
        for (size_t i = 0; bw_list_checkpoint(list, i, &r); i++) cli_json_add(rows, cli_json_checkpoint(&r));
        cli_json_set(root, "run", cli_json_text(run));
        cli_json_set(root, "checkpoints", rows);
        cli_json_print(root);
    } else {
        struct cli_table t;
        cli_table_init(&t, sizeof heads / sizeof heads[0], heads);
        for (size_t i = 0; bw_list_checkpoint(list, i, &r); i++) checkpoint_cells(&t, &r, cli_now_unix_ms());
        cli_table_print(&t);
        cli_table_fini(&t);
    }
    bw_list_free(list);
    return 0;
}

int cmd_ls(const struct cli_args *args, struct bw_error *err) {
    struct cli_tiers tiers;
    struct bw_catalog *catalog = NULL;
    const char *run = cli_operand(args, 0);
    bool json = args->opt[OPT_JSON].set;
    bool damaged = false;
    int rc = cli_tiers(args, &tiers, err);
    if (rc == 0) rc = cli_catalog_open(&tiers, BW_CATALOG_READ_ONLY, &catalog, err);
    if (rc == 0) rc = run != NULL ? list_checkpoints(catalog, run, json, err) : list_runs(catalog, json, err);
    if (rc == 0 && run != NULL) rc = cli_newest_damaged(catalog, run, &damaged, err);
    if (damaged) {
        cli_say_newest_damaged("ls", run);
        rc = bw_status_exit_code(BW_E_CORRUPT);
    }
    bw_catalog_close(catalog);
    return rc;
}
