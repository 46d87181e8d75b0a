/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater history: the log of a run. */
#include <stdio.h>

#include "cli/out_json.h"

static json_t *row_json(const struct bw_history_row *r) {
    json_t *o = cli_json_object();
    cli_json_set(o, "era", cli_json_u64(r->era));
    cli_json_set(o, "n", cli_json_u64(r->n));
    cli_json_set(o, "status", cli_json_status(r->status));
    cli_json_set(o, "unix_ms", cli_json_time(r->unix_ms));
    cli_json_set(o, "event", cli_json_text_or_null(r->event));
    cli_json_set(o, "mode", cli_json_text_or_null(r->mode));
    cli_json_set(o, "attempt", cli_json_u64(r->attempt));
    cli_json_set(o, "subject", cli_json_text_or_null(r->subject));
    cli_json_set(o, "subjects", cli_json_u64(r->subjects));
    cli_json_set(o, "live", cli_json_u64(r->live));
    cli_json_set(o, "shelved", cli_json_u64(r->shelved));
    cli_json_set(o, "job", cli_json_text_or_null(r->job));
    cli_json_set(o, "launch", cli_json_text_or_null(r->launch));
    cli_json_set(o, "label", cli_json_text_or_null(r->label));
    cli_json_set(o, "host", cli_json_text_or_null(r->host));
    cli_json_set(o, "note", cli_json_text_or_null(r->note));
    return o;
}

/* What the entry is about: "<id>", "<id> and 3 more". */
static void subject_cell(struct cli_table *t, const struct bw_history_row *r) {
    struct cli_buf b = {0};
    cli_buf_printf(&b, "%s", r->subject);
    if (r->subjects > 1) cli_buf_printf(&b, " and %u more", r->subjects - 1);
    cli_table_name(t, b.data);
    cli_buf_fini(&b);
}

static void row_cells(struct cli_table *t, const struct bw_history_row *r) {
    char text[CLI_TEXT_BYTES];
    struct cli_buf event = {0};
    cli_buf_printf(&event, "%s%s%s", r->event, r->mode[0] != '\0' ? " " : "", r->mode);
    cli_table_cell(t, "%u", r->era);
    cli_table_cell(t, "%llu", (unsigned long long)r->n);
    cli_table_cell(t, "%s", cli_time_text(r->unix_ms, text));
    cli_table_name(t, r->status != 0 ? bw_status_text(r->status) : event.data);
    cli_table_cell(t, "%u", r->attempt);
    subject_cell(t, r);
    cli_table_cell(t, "%llu", (unsigned long long)r->live);
    cli_table_cell(t, "%llu", (unsigned long long)r->shelved);
    cli_table_name(t, r->job);
    cli_table_name(t, r->label);
    cli_table_name(t, r->host);
    cli_table_name(t, r->note);
    cli_buf_fini(&event);
}

static void print_table(const struct bw_list *list) {
    static const char *const heads[] = {">ERA",  ">N",       "TIME (UTC)", "EVENT", ">ATTEMPT", "CHECKPOINT",
                                        ">LIVE", ">SHELVED", "JOB",        "LABEL", "HOST",     "NOTE"};
    struct cli_table t;
    struct bw_history_row r;
    cli_table_init(&t, sizeof heads / sizeof heads[0], heads);
    for (size_t i = 0; bw_list_history(list, i, &r); i++) row_cells(&t, &r);
    cli_table_print(&t);
    cli_table_fini(&t);
}

static void print_json(const struct bw_list *list, const char *run) {
    json_t *root = cli_json_begin("history");
    json_t *rows = cli_json_array();
    struct bw_history_row r;
    for (size_t i = 0; bw_list_history(list, i, &r); i++) cli_json_add(rows, row_json(&r));
    cli_json_set(root, "run", cli_json_text(run));
    cli_json_set(root, "entries", rows);
    cli_json_print(root);
}

int cmd_history(const struct cli_args *args, struct bw_error *err) {
    struct cli_tiers tiers;
    struct bw_catalog *catalog = NULL;
    struct bw_list *list = NULL;
    struct bw_history_row r;
    const char *run = cli_operand(args, 0);
    int rc = cli_tiers(args, &tiers, err);
    if (rc == 0) rc = cli_catalog_open(&tiers, BW_CATALOG_READ_ONLY, &catalog, err);
    if (rc == 0) rc = bw_catalog_history(catalog, run, &list, err);
    if (rc == 0) {
        if (args->opt[OPT_JSON].set)
            print_json(list, run);
        else
            print_table(list);
        size_t count = bw_list_count(list);
        if (count > 0 && bw_list_history(list, count - 1, &r) && r.status == BW_E_CORRUPT)
            cli_say_newest_damaged("history", run);
        for (size_t i = 0; rc == 0 && bw_list_history(list, i, &r); i++)
            if (r.status != 0) rc = bw_status_exit_code(r.status);
    }
    bw_list_free(list);
    bw_catalog_close(catalog);
    return rc;
}
