/* SPDX-License-Identifier: Apache-2.0 */
/* From operands to open files. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/folder.h"
#include "cli/import.h"
#include "cli/out_json.h"

enum { INDEX_MAX = 100000000 }; /* as for the header of a file */

static int add_file(struct cli_import *m, const char *path, struct bw_error *err) {
    if (m->file_count == m->file_cap) {
        m->file_cap = m->file_cap != 0 ? m->file_cap * 2 : 8;
        m->files = cli_realloc(m->files, m->file_cap, sizeof *m->files);
    }
    int rc = cli_st_open(path, &m->files[m->file_count], err);
    if (rc < 0) return rc;
    const struct cli_st_file *f = &m->files[m->file_count++];
    m->tensor_count += f->count;
    for (size_t i = 0; i < f->count; i++) m->total_bytes += f->tensors[i].end - f->tensors[i].begin;
    return 0;
}

static int add_file_in(struct cli_import *m, const char *folder, const char *name, struct bw_error *err) {
    struct cli_buf path = {0};
    cli_buf_printf(&path, "%s/%s", folder, name);
    int rc = add_file(m, path.data, err);
    cli_buf_fini(&path);
    return rc;
}

/* Opens the file of an index entry unless it is open already. A name with a slash would lead out of the folder. */
static int add_indexed(struct cli_import *m, size_t first, const char *folder, const char *tensor, const char *name,
                       struct bw_error *err) {
    if (name == NULL || name[0] == '\0' || name[0] == '.' || strchr(name, '/') != NULL)
        return cli_fail(err, BW_E_FORMAT, "\"%.160s/%s\": tensor \"%.128s\": expected the name of a file in the folder",
                        folder, CLI_INDEX_NAME, tensor);
    for (size_t i = first; i < m->file_count; i++) {
        const char *base = strrchr(m->files[i].path, '/');
        if (strcmp(base != NULL ? base + 1 : m->files[i].path, name) == 0) return 0;
    }
    return add_file_in(m, folder, name, err);
}

/* Both directions: what the index names must be there, and what is there must be named. What was found leaves the map,
 * so that the time is in proportion to what there is. */
static int check_index(const struct cli_import *m, size_t first, const char *folder, json_t *map,
                       struct bw_error *err) {
    for (size_t i = first; i < m->file_count; i++) {
        const struct cli_st_file *f = &m->files[i];
        const char *base = strrchr(f->path, '/') + 1;
        for (size_t k = 0; k < f->count; k++) {
            const char *where = json_string_value(json_object_get(map, f->tensors[k].name));
            if (where == NULL || strcmp(where, base) != 0)
                return cli_fail(err, BW_E_MISMATCH,
                                "\"%.160s\": holds tensor \"%.128s\", which the index does not expect there", f->path,
                                f->tensors[k].name);
            (void)json_object_del(map, f->tensors[k].name);
        }
    }
    void *left = json_object_iter(map);
    if (left == NULL) return 0;
    return cli_fail(err, BW_E_MISMATCH, "\"%.160s\": the index names tensor \"%.128s\", which \"%.64s\" does not hold",
                    folder, json_object_iter_key(left), json_string_value(json_object_iter_value(left)));
}

/* The index, as JSON. */
static int load_index(const char *path, json_t **ret, struct bw_error *err) {
    struct cli_mapped map = {0};
    json_error_t why;
    int rc = cli_mapped_open(AT_FDCWD, path, true, &map, err);
    if (rc == 0 && map.n > INDEX_MAX)
        rc = cli_fail(err, BW_E_FORMAT, "\"%s\": expected at most %d bytes, found %zu", path, INDEX_MAX, map.n);
    if (rc == 0) {
        *ret = json_loadb((const char *)map.bytes, map.n, JSON_REJECT_DUPLICATES, &why);
        if (*ret == NULL) rc = cli_fail(err, BW_E_FORMAT, "\"%s\": no JSON object: %.160s", path, why.text);
    }
    cli_mapped_close(&map);
    return rc;
}

static int add_index(struct cli_import *m, const char *folder, const char *path, struct bw_error *err) {
    size_t first = m->file_count;
    const char *tensor;
    json_t *value, *root = NULL;
    int rc = load_index(path, &root, err);
    if (rc < 0) return rc;
    json_t *map = json_object_get(root, "weight_map");
    if (!json_is_object(map)) rc = cli_fail(err, BW_E_FORMAT, "\"%s\": expected an object \"weight_map\"", path);
    if (rc == 0) {
        json_object_foreach(map, tensor, value) {
            rc = add_indexed(m, first, folder, tensor, json_string_value(value), err);
            if (rc < 0) break;
        }
    }
    if (rc == 0) rc = check_index(m, first, folder, map, err);
    json_decref(root);
    return rc;
}

static bool is_kind(const char *path, mode_t kind) {
    struct stat st;
    return stat(path, &st) == 0 && (st.st_mode & S_IFMT) == kind;
}

static int add_folder(struct cli_import *m, const char *folder, struct bw_error *err) {
    struct cli_buf path = {0};
    int rc;
    cli_buf_printf(&path, "%s/%s", folder, CLI_INDEX_NAME);
    if (is_kind(path.data, S_IFREG)) {
        rc = add_index(m, folder, path.data, err);
        cli_buf_fini(&path);
        return rc;
    }
    cli_buf_fini(&path);
    cli_buf_printf(&path, "%s/%s", folder, CLI_SINGLE_NAME);
    if (is_kind(path.data, S_IFREG))
        rc = add_file(m, path.data, err);
    else
        rc = cli_fail(err, BW_E_NOTFOUND, "folder \"%s\": expected %s or %s in it", folder, CLI_SINGLE_NAME,
                      CLI_INDEX_NAME);
    cli_buf_fini(&path);
    return rc;
}

struct owner {
    const char *name;
    const char *path;
};

static int by_name(const void *a, const void *b) {
    const struct owner *x = a;
    const struct owner *y = b;
    return strcmp(x->name, y->name);
}

static int check_twice(const struct cli_import *m, struct bw_error *err) {
    struct owner *all = cli_calloc(m->tensor_count, sizeof *all);
    size_t n = 0;
    int rc = 0;
    for (size_t i = 0; i < m->file_count; i++)
        for (size_t k = 0; k < m->files[i].count; k++)
            all[n++] = (struct owner){m->files[i].tensors[k].name, m->files[i].path};
    if (n > 0) qsort(all, n, sizeof *all, by_name);
    for (size_t i = 1; rc == 0 && i < n; i++)
        if (strcmp(all[i].name, all[i - 1].name) == 0)
            rc = cli_fail(err, BW_E_INVALID, "tensor \"%.128s\" comes twice: in \"%.128s\" and in \"%.128s\"",
                          all[i].name, all[i - 1].path, all[i].path);
    free(all);
    return rc;
}

/* The name under which a file's metadata is kept: without its folders, unless an earlier one is called the same. */
static const char *short_name(const struct cli_import *m, size_t file) {
    const char *slash = strrchr(m->files[file].path, '/');
    const char *name = slash != NULL ? slash + 1 : m->files[file].path;
    for (size_t i = 0; i < file; i++) {
        const char *other = strrchr(m->files[i].path, '/');
        if (strcmp(other != NULL ? other + 1 : m->files[i].path, name) == 0) return m->files[file].path;
    }
    return name;
}

/* What the files say about themselves becomes metadata of the checkpoint: {"safetensors": {"<file>": {...}}}. */
static int gather_metadata(struct cli_import *m, struct bw_error *err) {
    json_t *root = cli_json_object();
    json_t *files = cli_json_object();
    size_t some = 0;
    int rc = 0;
    for (size_t i = 0; i < m->file_count; i++) {
        if (m->files[i].metadata == NULL) continue;
        json_t *value = json_loads(m->files[i].metadata, JSON_DECODE_ANY, NULL);
        json_t *name = cli_json_text(short_name(m, i));
        cli_json_set(files, json_string_value(name), value);
        json_decref(name);
        some++;
    }
    cli_json_set(root, "safetensors", files);
    if (some > 0) {
        m->metadata = json_dumps(root, JSON_COMPACT);
        if (m->metadata == NULL) cli_out_of_memory();
        if (strlen(m->metadata) > CLI_METADATA_MAX)
            rc = cli_fail(err, BW_E_LIMIT, "\"__metadata__\" of all files: expected at most %d bytes, found %zu",
                          CLI_METADATA_MAX, strlen(m->metadata));
    }
    json_decref(root);
    return rc;
}

int cli_import_open(const struct cli_args *args, struct cli_import *ret, struct bw_error *err) {
    struct cli_import m = {0};
    const char *folder = NULL;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < args->operand_count; i++) {
        const char *path = args->operands[i];
        if (is_kind(path, S_IFDIR)) folder = path;
        rc = is_kind(path, S_IFDIR) ? add_folder(&m, path, err) : add_file(&m, path, err);
    }
    if (rc == 0) rc = check_twice(&m, err);
    if (rc == 0 && args->opt[OPT_WITH_BLOBS].set) {
        if (folder == NULL || args->operand_count != 1)
            rc = cli_usage(err, "--with-blobs: expected one folder to import");
        else
            rc = cli_import_blobs(&m, folder, err);
    }
    if (rc == 0 && m.metadata == NULL) rc = gather_metadata(&m, err);
    if (rc == 0)
        *ret = m;
    else
        cli_import_close(&m);
    return rc;
}

void cli_import_close(struct cli_import *m) {
    for (size_t i = 0; i < m->file_count; i++) cli_st_close(&m->files[i]);
    for (size_t i = 0; i < m->blob_count; i++) {
        free(m->blobs[i].name);
        cli_mapped_close(&m->blobs[i].map);
    }
    free(m->files);
    free(m->blobs);
    free(m->metadata);
    *m = (struct cli_import){0};
}
