/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the header of a safetensors file: 8 bytes of length, JSON, and tensors without holes behind it. */
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "cli/safetensors_file.h"

#define HEADER_MAX UINT64_C(100000000) /* what other readers accept */

static int bad_tensor(const struct cli_st_file *f, const char *name, const char *what, struct bw_error *err) {
    return cli_fail(err, BW_E_FORMAT, "\"%.160s\": tensor \"%.128s\": %s", f->path, name, what);
}

static int parse_dtype(const struct cli_st_file *f, json_t *value, struct cli_st_tensor *t, struct bw_error *err) {
    const char *text = json_string_value(value);
    if (text == NULL) return bad_tensor(f, t->name, "expected \"dtype\" to be a string", err);
    int dtype = bw_dtype_parse(text);
    if (dtype == 0)
        return cli_fail(err, BW_E_UNSUPPORTED, "\"%.160s\": tensor \"%.128s\": unknown dtype \"%.32s\"", f->path,
                        t->name, text);
    t->dtype = (uint32_t)dtype;
    return 0;
}

static int parse_shape(const struct cli_st_file *f, json_t *value, struct cli_st_tensor *t, struct bw_error *err) {
    if (!json_is_array(value)) return bad_tensor(f, t->name, "expected \"shape\" to be an array", err);
    if (json_array_size(value) > BW_DIMS_MAX)
        return cli_fail(err, BW_E_LIMIT, "\"%.160s\": tensor \"%.128s\": expected at most %d dimensions, found %zu",
                        f->path, t->name, BW_DIMS_MAX, json_array_size(value));
    t->dims = (uint32_t)json_array_size(value);
    for (uint32_t d = 0; d < t->dims; d++) {
        json_t *n = json_array_get(value, d);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return bad_tensor(f, t->name, "expected \"shape\" to hold numbers that are not negative", err);
        t->shape[d] = (uint64_t)json_integer_value(n);
    }
    return 0;
}

/* Bytes that dtype and shape ask for. What a save refuses is refused here, before a run knows of it: dimensions of an
 * empty tensor, too, that multiply to more than fits. */
static bool tensor_bytes(const struct cli_st_tensor *t, uint64_t *ret) {
    uint64_t bytes = bw_dtype_bytes((int)t->dtype);
    bool empty = false;
    for (uint32_t d = 0; d < t->dims; d++) {
        empty = empty || t->shape[d] == 0;
        if (t->shape[d] != 0 && __builtin_mul_overflow(bytes, t->shape[d], &bytes)) return false;
    }
    *ret = empty ? 0 : bytes;
    return true;
}

static int parse_offsets(const struct cli_st_file *f, json_t *value, uint64_t data_bytes, struct cli_st_tensor *t,
                         struct bw_error *err) {
    json_t *begin = json_array_get(value, 0);
    json_t *end = json_array_get(value, 1);
    uint64_t bytes;
    bool fits = json_array_size(value) == 2 && json_is_integer(begin) && json_is_integer(end) &&
                json_integer_value(begin) >= 0 && json_integer_value(end) >= json_integer_value(begin);
    if (!fits) return bad_tensor(f, t->name, "expected \"data_offsets\" to be [begin, end]", err);
    t->begin = (uint64_t)json_integer_value(begin);
    t->end = (uint64_t)json_integer_value(end);
    if (t->end > data_bytes) return bad_tensor(f, t->name, "\"data_offsets\" reach beyond the end of the file", err);
    if (!tensor_bytes(t, &bytes) || bytes != t->end - t->begin)
        return bad_tensor(f, t->name, "\"data_offsets\" do not fit its dtype and shape", err);
    return 0;
}

static int parse_tensor(struct cli_st_file *f, const char *name, json_t *value, uint64_t data_bytes,
                        struct bw_error *err) {
    struct cli_st_tensor *t = &f->tensors[f->count++];
    t->name = cli_strdup(name);
    if (!json_is_object(value)) return bad_tensor(f, name, "expected an object", err);
    if (name[0] == '\0' || strlen(name) > BW_TENSOR_NAME_BYTES_MAX)
        return cli_fail(err, BW_E_LIMIT, "\"%.160s\": tensor \"%.64s\": expected a name of 1 to %d bytes, found %zu",
                        f->path, name, BW_TENSOR_NAME_BYTES_MAX, strlen(name));
    int rc = parse_dtype(f, json_object_get(value, "dtype"), t, err);
    if (rc == 0) rc = parse_shape(f, json_object_get(value, "shape"), t, err);
    if (rc == 0) rc = parse_offsets(f, json_object_get(value, "data_offsets"), data_bytes, t, err);
    return rc;
}

static int by_begin(const void *a, const void *b) {
    const struct cli_st_tensor *x = a;
    const struct cli_st_tensor *y = b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

static int check_holes(struct cli_st_file *f, uint64_t data_bytes, struct bw_error *err) {
    uint64_t at = 0;
    if (f->count > 0) qsort(f->tensors, f->count, sizeof *f->tensors, by_begin);
    for (size_t i = 0; i < f->count; i++) {
        if (f->tensors[i].begin != at)
            return bad_tensor(f, f->tensors[i].name, "its bytes leave a hole or overlap those before", err);
        f->tensors[i].data = f->map.bytes + (f->map.n - data_bytes) + at;
        at = f->tensors[i].end;
    }
    if (at == data_bytes) return 0;
    return cli_fail(err, BW_E_FORMAT, "\"%s\": expected %llu bytes of tensors, found %llu", f->path,
                    (unsigned long long)at, (unsigned long long)data_bytes);
}

static int parse_metadata(struct cli_st_file *f, json_t *value, struct bw_error *err) {
    const char *key;
    json_t *text;
    bool fits = json_is_object(value);
    json_object_foreach(value, key, text) fits = fits && json_is_string(text);
    if (!fits)
        return cli_fail(err, BW_E_FORMAT, "\"%s\": expected \"__metadata__\" to be an object of strings", f->path);
    f->metadata = json_dumps(value, JSON_COMPACT);
    if (f->metadata == NULL) cli_out_of_memory();
    return 0;
}

static int parse_entries(struct cli_st_file *f, json_t *root, uint64_t data_bytes, struct bw_error *err) {
    const char *name;
    json_t *value;
    f->tensors = cli_calloc(json_object_size(root), sizeof *f->tensors);
    json_object_foreach(root, name, value) {
        bool facts = strcmp(name, "__metadata__") == 0;
        int rc = facts ? parse_metadata(f, value, err) : parse_tensor(f, name, value, data_bytes, err);
        if (rc < 0) return rc;
    }
    return check_holes(f, data_bytes, err);
}

int cli_st_parse(struct cli_st_file *f, struct bw_error *err) {
    uint64_t n = 0;
    json_error_t why;
    if (f->map.n < 10)
        return cli_fail(err, BW_E_FORMAT, "\"%s\" is no safetensors file: expected 10 bytes at least, found %zu",
                        f->path, f->map.n);
    for (size_t i = 0; i < 8; i++) n |= (uint64_t)f->map.bytes[i] << (8 * i);
    if (n > HEADER_MAX || n > f->map.n - 8)
        return cli_fail(
            err, BW_E_FORMAT,
            "\"%s\" is no safetensors file: expected a header of at most %llu bytes, found a length of %llu", f->path,
            (unsigned long long)(f->map.n - 8 < HEADER_MAX ? f->map.n - 8 : HEADER_MAX), (unsigned long long)n);
    if (f->map.bytes[8] != '{')
        return cli_fail(err, BW_E_FORMAT, "\"%s\" is no safetensors file: expected the header to begin with {",
                        f->path);
    json_t *root = json_loadb((const char *)f->map.bytes + 8, (size_t)n, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL)
        return cli_fail(err, BW_E_FORMAT, "\"%s\" is no safetensors file: its header is no JSON object: %.160s",
                        f->path, why.text);
    int rc = parse_entries(f, root, f->map.n - 8 - n, err);
    json_decref(root);
    return rc;
}

int cli_st_open(const char *path, struct cli_st_file *ret, struct bw_error *err) {
    struct cli_st_file f = {.path = cli_strdup(path)};
    int rc = cli_mapped_open(AT_FDCWD, path, true, &f.map, err);
    if (rc == 0) rc = cli_st_parse(&f, err);
    if (rc == 0)
        *ret = f;
    else
        cli_st_close(&f);
    return rc;
}

void cli_st_close(struct cli_st_file *f) {
    for (size_t i = 0; i < f->count; i++) free(f->tensors[i].name);
    free(f->tensors);
    free(f->metadata);
    free(f->path);
    cli_mapped_close(&f->map);
    *f = (struct cli_st_file){0};
}
