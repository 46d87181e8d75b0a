/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs and metadata of an export: DIR/blobs/RANK/NAME and DIR/metadata/RANK.json. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/export.h"

enum { FILE_NAME_MAX = 255 };

void cli_percent_encode(struct cli_buf *b, const char *name) {
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-";
    cli_buf_add(b, "", 0);
    for (size_t i = 0; name[i] != '\0'; i++) {
        bool keep = strchr(plain, name[i]) != NULL || (name[i] == '.' && i > 0);
        if (keep)
            cli_buf_add(b, &name[i], 1);
        else
            cli_buf_printf(b, "%%%02X", (unsigned)(unsigned char)name[i]);
    }
}

static int write_file(struct cli_export *x, const char *name, const void *bytes, size_t n, struct bw_error *err) {
    int fd = -1;
    int rc = cli_folder_create(&x->folder, name, &fd, err);
    if (rc == 0) rc = cli_write_at(fd, bytes, n, 0, name, err);
    if (rc == 0)
        rc = cli_folder_finish(&x->folder, fd, name, err);
    else if (fd >= 0)
        (void)close(fd);
    return rc;
}

static int write_blob(struct cli_export *x, const struct bw_blob_info *blob, struct bw_error *err) {
    struct cli_buf encoded = {0};
    struct cli_buf name = {0};
    size_t got = 0;
    int rc = 0;
    cli_percent_encode(&encoded, blob->name);
    cli_buf_printf(&name, "blobs/%u/%s", blob->rank, encoded.data);
    if (encoded.len > FILE_NAME_MAX)
        rc = cli_fail(err, BW_E_LIMIT,
                      "blob \"%.128s\" of rank %u: its name takes %zu bytes as a file name, at most %d fit", blob->name,
                      blob->rank, encoded.len, (int)FILE_NAME_MAX);
    if (rc == 0) {
        unsigned char *bytes = cli_calloc((size_t)blob->bytes, 1);
        rc = bw_restore_blob(x->reader, blob->rank, blob->name, bytes, (size_t)blob->bytes, &got, err);
        if (rc == 0) rc = write_file(x, name.data, bytes, (size_t)blob->bytes, err);
        free(bytes);
    }
    cli_buf_fini(&encoded);
    cli_buf_fini(&name);
    return rc;
}

static int write_metadata(struct cli_export *x, uint32_t rank, struct bw_error *err) {
    const char *json = NULL;
    struct cli_buf name = {0};
    int rc = bw_restore_metadata(x->reader, rank, &json, err);
    if (rc < 0 || strcmp(json, "{}") == 0) return rc;
    cli_buf_printf(&name, "metadata/%u.json", rank);
    rc = write_file(x, name.data, json, strlen(json), err);
    cli_buf_fini(&name);
    return rc;
}

int cli_export_blobs(struct cli_export *x, struct bw_error *err) {
    int rc = bw_restore_blob_count(x->reader, &x->blobs_there, err);
    for (uint64_t i = 0; rc == 0 && i < x->blobs_there; i++) {
        struct bw_blob_info blob;
        rc = bw_restore_blob_at(x->reader, i, &blob, err);
        if (rc == 0) rc = write_blob(x, &blob, err);
        if (rc == 0) x->blob_count++;
    }
    for (uint32_t rank = 0; rc == 0 && rank < x->info.world; rank++) rc = write_metadata(x, rank, err);
    return rc;
}
