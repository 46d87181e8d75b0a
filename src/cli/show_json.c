/* SPDX-License-Identifier: Apache-2.0 */
/* A checkpoint for programs. */
#include <string.h>

#include "cli/show.h"

static int add_boxes(const struct cli_show *s, const struct bw_tensor_info *t, json_t *tensor, struct bw_error *err) {
    json_t *array = cli_json_array();
    cli_json_set(tensor, "box_list", array);
    for (uint32_t i = 0; i < t->boxes; i++) {
        struct bw_box_info box;
        int rc = bw_restore_box_at(s->reader, t->name, i, &box, err);
        if (rc < 0) return rc;
        json_t *o = cli_json_object();
        cli_json_set(o, "offset", cli_json_shape(box.offset, t->dims));
        cli_json_set(o, "extent", cli_json_shape(box.extent, t->dims));
        cli_json_set(o, "group", cli_json_u64(box.group));
        cli_json_set(o, "item", cli_json_u64(box.item));
        cli_json_add(array, o);
    }
    return 0;
}

static int add_tensors(const struct cli_show *s, json_t *root, struct bw_error *err) {
    json_t *array = cli_json_array();
    cli_json_set(root, "tensors", array);
    for (uint64_t i = 0; i < s->info.tensors; i++) {
        struct bw_tensor_info t;
        int rc = bw_restore_tensor_at(s->reader, i, &t, err);
        if (rc < 0) return rc;
        if (!cli_tensor_chosen(s->args, t.name)) continue;
        json_t *o = cli_json_object();
        cli_json_set(o, "name", cli_json_text(t.name));
        cli_json_set(o, "dtype", cli_json_text(bw_dtype_name((int)t.dtype)));
        cli_json_set(o, "shape", cli_json_shape(t.shape, t.dims));
        cli_json_set(o, "bytes", cli_json_u64(t.bytes));
        cli_json_set(o, "boxes", cli_json_u64(t.boxes));
        cli_json_add(array, o);
        rc = s->args->opt[OPT_BOXES].set ? add_boxes(s, &t, o, err) : 0;
        if (rc < 0) return rc;
    }
    return 0;
}

static int add_blobs(const struct cli_show *s, json_t *root, struct bw_error *err) {
    json_t *array = cli_json_array();
    cli_json_set(root, "blobs", array);
    for (uint64_t i = 0; i < s->blobs_there; i++) {
        struct bw_blob_info blob;
        int rc = bw_restore_blob_at(s->reader, i, &blob, err);
        if (rc < 0) return rc;
        json_t *o = cli_json_object();
        cli_json_set(o, "rank", cli_json_u64(blob.rank));
        cli_json_set(o, "name", cli_json_text(blob.name));
        cli_json_set(o, "bytes", cli_json_u64(blob.bytes));
        cli_json_add(array, o);
    }
    return 0;
}

/* The text as it was given: every JSON reader has its own idea of numbers, and this must come back exactly. */
static int add_metadata(const struct cli_show *s, json_t *root, struct bw_error *err) {
    json_t *array = cli_json_array();
    cli_json_set(root, "metadata", array);
    for (uint32_t rank = 0; rank < s->info.world; rank++) {
        const char *json = NULL;
        int rc = bw_restore_metadata(s->reader, rank, &json, err);
        if (rc < 0) return rc;
        if (strcmp(json, "{}") == 0) continue;
        json_t *o = cli_json_object();
        cli_json_set(o, "rank", cli_json_u64(rank));
        cli_json_set(o, "json", cli_json_text(json));
        cli_json_add(array, o);
    }
    return 0;
}

static void add_objects(const struct cli_show *s, json_t *root) {
    json_t *array = cli_json_array();
    struct bw_object_row row;
    for (size_t i = 0; bw_list_object(s->objects, i, &row); i++) {
        json_t *o = cli_json_object();
        cli_json_set(o, "tier", cli_json_text(row.tier));
        cli_json_set(o, "kind", cli_json_text(row.kind));
        cli_json_set(o, "group", row.group == UINT32_MAX ? json_null() : cli_json_u64(row.group));
        cli_json_set(o, "present", cli_json_bool(row.present != 0));
        cli_json_set(o, "bytes", cli_json_u64(row.bytes));
        cli_json_set(o, "key", cli_json_text(row.key));
        cli_json_add(array, o);
    }
    cli_json_set(root, "objects", array);
}

static void add_refs(const struct cli_show *s, json_t *root) {
    json_t *to = cli_json_array();
    json_t *from = cli_json_array();
    struct bw_ref_row ref;
    for (size_t i = 0; bw_list_ref(s->refs, i, &ref); i++) {
        if (strcmp(ref.from, s->row.id) == 0)
            cli_json_add(to, cli_json_text(ref.to));
        else if (strcmp(ref.to, s->row.id) == 0)
            cli_json_add(from, cli_json_text(ref.from));
    }
    cli_json_set(root, "refers_to", to);
    cli_json_set(root, "referred_by", from);
}

int cli_show_json(const struct cli_show *show, struct bw_error *err) {
    json_t *root = cli_json_begin("show");
    int rc = 0;
    cli_json_set(root, "run", cli_json_text(show->run));
    cli_json_set(root, "checkpoint", cli_json_checkpoint(&show->row));
    if (show->reader != NULL) rc = add_tensors(show, root, err);
    if (show->reader == NULL || rc < 0) cli_json_set(root, "tensors", json_null());
    if (rc == 0 && show->reader != NULL) rc = add_blobs(show, root, err);
    if (show->reader == NULL || rc < 0) cli_json_set(root, "blobs", json_null());
    if (rc == 0 && show->reader != NULL && show->args->opt[OPT_METADATA].set) rc = add_metadata(show, root, err);
    if (rc < 0) (void)json_object_del(root, "metadata");
    add_objects(show, root);
    add_refs(show, root);
    cli_json_print(root);
    return rc;
}
