/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint for people. */
#include <stdio.h>
#include <string.h>

#include "cli/show.h"

static void print_head(const struct cli_show *s) {
    const struct bw_checkpoint_row *r = &s->row;
    char size[CLI_TEXT_BYTES];
    char time[CLI_TEXT_BYTES];
    char age[CLI_TEXT_BYTES];
    (void)printf("checkpoint  %s\nrun         %s\nstep        %llu\n", r->id, s->run, (unsigned long long)r->step);
    (void)printf("made by     attempt %u, try %u\n", r->attempt, r->save_try);
    (void)printf("state       %s, %s%s\n", cli_state_word(r->state), bw_level_name((int)r->level),
                 r->pinned != 0 ? ", pinned" : "");
    if (r->unix_ms != 0)
        (void)printf("committed   %s UTC (%s ago)\n", cli_time_text(r->unix_ms, time),
                     cli_age_text(r->unix_ms, cli_now_unix_ms(), age));
    (void)printf("size        %s\n", cli_bytes_or_dash(r->bytes, size));
    if (r->groups != 0) (void)printf("ranks       %u in %u group%s\n", r->world, r->groups, cli_s(r->groups));
    (void)printf("complete    %u group%s remote", r->groups_remote, cli_s(r->groups_remote));
    if (s->local != NULL)
        (void)printf(", %u local", r->groups_local);
    else
        (void)printf("; no local tier given");
    (void)printf("; %u damaged, %u failed\n", r->damaged, r->failed);
}

static int print_boxes(const struct cli_show *s, const struct bw_tensor_info *t, struct bw_error *err) {
    for (uint32_t i = 0; i < t->boxes; i++) {
        struct bw_box_info box;
        struct cli_buf b = {0};
        int rc = bw_restore_box_at(s->reader, t->name, i, &box, err);
        if (rc < 0) return rc;
        cli_buf_shape(&b, box.offset, t->dims);
        cli_buf_printf(&b, " + ");
        cli_buf_shape(&b, box.extent, t->dims);
        (void)printf("  box %u: %s, group %u, item %u\n", i, b.data, box.group, box.item);
        cli_buf_fini(&b);
    }
    return 0;
}

static void tensor_cells(struct cli_table *table, const struct bw_tensor_info *t) {
    char size[CLI_TEXT_BYTES];
    struct cli_buf shape = {0};
    cli_buf_shape(&shape, t->shape, t->dims);
    cli_table_name(table, t->name);
    cli_table_cell(table, "%s", bw_dtype_name((int)t->dtype));
    cli_table_name(table, shape.data);
    cli_table_cell(table, "%s", cli_bytes_text(t->bytes, size));
    cli_table_cell(table, "%u", t->boxes);
    cli_buf_fini(&shape);
}

static int print_tensors(const struct cli_show *s, struct bw_error *err) {
    static const char *const heads[] = {"TENSOR", "DTYPE", "SHAPE", ">SIZE", ">BOXES"};
    struct bw_tensor_info t;
    struct cli_table table;
    uint64_t shown = 0;
    int rc = 0;
    cli_table_init(&table, 5, heads);
    for (uint64_t i = 0; rc == 0 && i < s->info.tensors; i++) {
        rc = bw_restore_tensor_at(s->reader, i, &t, err);
        if (rc < 0 || !cli_tensor_chosen(s->args, t.name)) continue;
        tensor_cells(&table, &t);
        shown++;
    }
    if (rc == 0) {
        (void)printf("\ntensors: %llu of %llu\n", (unsigned long long)shown, (unsigned long long)s->info.tensors);
        if (shown > 0) cli_table_print(&table);
    }
    cli_table_fini(&table);
    for (uint64_t i = 0; rc == 0 && s->args->opt[OPT_BOXES].set && i < s->info.tensors; i++) {
        rc = bw_restore_tensor_at(s->reader, i, &t, err);
        if (rc < 0 || !cli_tensor_chosen(s->args, t.name)) continue;
        (void)printf("\nboxes of ");
        cli_print_escaped(t.name);
        (void)printf("\n");
        rc = print_boxes(s, &t, err);
    }
    return rc;
}

static int print_blobs(const struct cli_show *s, struct bw_error *err) {
    static const char *const heads[] = {">RANK", "BLOB", ">SIZE"};
    struct cli_table table;
    int rc = 0;
    if (s->blobs_there == 0) return 0;
    cli_table_init(&table, 3, heads);
    for (uint64_t i = 0; rc == 0 && i < s->blobs_there; i++) {
        struct bw_blob_info blob;
        char size[CLI_TEXT_BYTES];
        rc = bw_restore_blob_at(s->reader, i, &blob, err);
        if (rc < 0) break;
        cli_table_cell(&table, "%u", blob.rank);
        cli_table_name(&table, blob.name);
        cli_table_cell(&table, "%s", cli_bytes_text(blob.bytes, size));
    }
    if (rc == 0) {
        (void)printf("\nblobs: %llu\n", (unsigned long long)s->blobs_there);
        cli_table_print(&table);
    }
    cli_table_fini(&table);
    return rc;
}

static int print_metadata(const struct cli_show *s, struct bw_error *err) {
    for (uint32_t rank = 0; rank < s->info.world; rank++) {
        const char *json = NULL;
        int rc = bw_restore_metadata(s->reader, rank, &json, err);
        if (rc < 0) return rc;
        if (strcmp(json, "{}") == 0) continue;
        (void)printf("\nmetadata of rank %u\n", rank);
        cli_print_escaped(json);
        (void)printf("\n");
    }
    return 0;
}

static void print_objects(const struct cli_show *s) {
    static const char *const heads[] = {"TIER", ">GROUP", "KIND", ">SIZE", "FOUND", "KEY"};
    struct bw_object_row o;
    struct cli_table table;
    char size[CLI_TEXT_BYTES];
    cli_table_init(&table, 6, heads);
    for (size_t i = 0; bw_list_object(s->objects, i, &o); i++) {
        cli_table_name(&table, o.tier);
        if (o.group == UINT32_MAX)
            cli_table_cell(&table, "all");
        else
            cli_table_cell(&table, "%u", o.group);
        cli_table_name(&table, o.kind);
        cli_table_cell(&table, "%s", cli_bytes_text(o.bytes, size));
        cli_table_cell(&table, "%s", o.present != 0 ? "yes" : "NO");
        cli_table_name(&table, o.key);
    }
    (void)printf("\nobjects: %zu\n", bw_list_count(s->objects));
    if (bw_list_count(s->objects) > 0) cli_table_print(&table);
    cli_table_fini(&table);
}

/* What a committed checkpoint lacks is damage, but what that means for its tensors only verify finds out. */
static void print_missing(const struct cli_show *s) {
    struct bw_object_row o;
    size_t missing = 0;
    for (size_t i = 0; bw_list_object(s->objects, i, &o); i++) missing += o.present == 0;
    if (missing == 0 || !cli_show_readable(s)) return;
    (void)printf("not found, or not with its size: %zu object%s; see: breakwater verify %s %s\n", missing,
                 cli_s(missing), s->run, s->row.id);
}

static void print_refs(const struct cli_show *s) {
    struct bw_ref_row ref;
    bool first = true;
    for (size_t i = 0; bw_list_ref(s->refs, i, &ref); i++) {
        bool from = strcmp(ref.from, s->row.id) == 0;
        if (!from && strcmp(ref.to, s->row.id) != 0) continue;
        if (first) (void)printf("\nreferences\n");
        first = false;
        (void)printf("%s %s\n", from ? "refers to" : "referred to by", from ? ref.to : ref.from);
    }
}

int cli_show_text(const struct cli_show *show, struct bw_error *err) {
    int rc = 0;
    print_head(show);
    if (show->reader == NULL)
        (void)printf("\n%s: its tensors cannot be read\n",
                     cli_show_readable(show) ? "damaged metadata" : "not committed");
    else
        rc = print_tensors(show, err);
    if (rc == 0 && show->reader != NULL) rc = print_blobs(show, err);
    if (rc == 0 && show->reader != NULL && show->args->opt[OPT_METADATA].set) rc = print_metadata(show, err);
    print_objects(show);
    print_missing(show);
    print_refs(show);
    return rc;
}
