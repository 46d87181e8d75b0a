/* SPDX-License-Identifier: Apache-2.0 */
/* Blobs and metadata that `breakwater export --with-blobs` has left in a folder. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli/import.h"

static int hex(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

/* The name that cli_percent_encode made this of; false when it is none of those. */
static bool decode(const char *file, struct cli_buf *name) {
    cli_buf_add(name, "", 0);
    for (size_t i = 0; file[i] != '\0'; i++) {
        char byte = file[i];
        if (byte == '%') {
            int high = hex(file[i + 1]);
            int low = high >= 0 ? hex(file[i + 2]) : -1;
            if (low < 0 || (high == 0 && low == 0)) return false;
            byte = (char)(unsigned char)(high << 4 | low);
            i += 2;
        }
        cli_buf_add(name, &byte, 1);
    }
    return name->len > 0;
}

static int add_blob(struct cli_import *m, int folder, const char *file, struct bw_error *err) {
    struct cli_buf name = {0};
    struct cli_import_blob blob = {0};
    int rc = 0;
    if (!decode(file, &name))
        rc = cli_fail(err, BW_E_FORMAT, "blob \"%.200s\": bad escape in the name of the file", file);
    if (rc == 0) rc = cli_mapped_open(folder, file, false, &blob.map, err);
    if (rc == 0) {
        if (m->blob_count == m->blob_cap) {
            m->blob_cap = m->blob_cap != 0 ? m->blob_cap * 2 : 8;
            m->blobs = cli_realloc(m->blobs, m->blob_cap, sizeof *m->blobs);
        }
        blob.name = cli_strdup(name.data);
        m->total_bytes += blob.map.n;
        m->blobs[m->blob_count++] = blob;
    }
    cli_buf_fini(&name);
    return rc;
}

/* Calls `each` for the names in folder/sub that do not begin with a dot. A folder that is not there has none. */
static int walk(struct cli_import *m, const char *folder, const char *sub,
                int (*each)(struct cli_import *m, int fd, const char *name, struct bw_error *err),
                struct bw_error *err) {
    struct cli_buf path = {0};
    int rc = 0;
    cli_buf_printf(&path, "%s/%s", folder, sub);
    int fd = open(path.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
    int os_errno = errno;
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (fd < 0 && os_errno != ENOENT)
        rc = cli_fail_errno(err, os_errno, "open folder \"%s\"", path.data);
    else if (fd >= 0 && dir == NULL)
        rc = cli_fail(err, BW_E_NOMEM, "read folder \"%s\": out of memory", path.data);
    for (struct dirent *e = dir != NULL ? readdir(dir) : NULL; rc == 0 && e != NULL; e = readdir(dir))
        if (e->d_name[0] != '.') rc = each(m, dirfd(dir), e->d_name, err);
    if (dir != NULL)
        (void)closedir(dir);
    else if (fd >= 0)
        (void)close(fd);
    cli_buf_fini(&path);
    return rc;
}

static int other_rank(const char *name, struct bw_error *err) {
    return cli_fail(err, BW_E_UNSUPPORTED,
                    "--with-blobs: found blobs or metadata of rank \"%.64s\": an import is a checkpoint of "
                    "rank 0 alone; leave out --with-blobs",
                    name);
}

static int check_rank(struct cli_import *m, int fd, const char *name, struct bw_error *err) {
    (void)m;
    (void)fd;
    return strcmp(name, "0") == 0 ? 0 : other_rank(name, err);
}

static bool is_object(const struct cli_mapped *map) {
    json_t *root = json_loadb((const char *)map->bytes, map->n, JSON_REJECT_DUPLICATES, NULL);
    const bool is = json_is_object(root);
    json_decref(root);
    return is;
}

static int add_metadata(struct cli_import *m, int fd, const char *name, struct bw_error *err) {
    struct cli_mapped map = {0};
    struct cli_buf text = {0};
    if (strcmp(name, "0.json") != 0) return other_rank(name, err);
    int rc = cli_mapped_open(fd, name, false, &map, err);
    if (rc == 0 && map.n > CLI_METADATA_MAX)
        rc = cli_fail(err, BW_E_LIMIT, "metadata \"%s\": expected at most %d bytes, found %zu", name, CLI_METADATA_MAX,
                      map.n);
    else if (rc == 0 && memchr(map.bytes, 0, map.n) != NULL)
        rc = cli_fail(err, BW_E_FORMAT, "metadata \"%s\": expected text, found a NUL byte", name);
    else if (rc == 0 && !is_object(&map))
        rc = cli_fail(err, BW_E_FORMAT, "metadata \"%s\": no JSON object", name);
    if (rc == 0) cli_buf_add(&text, (const char *)map.bytes, map.n);
    m->metadata = text.data;
    cli_mapped_close(&map);
    return rc;
}

int cli_import_blobs(struct cli_import *m, const char *folder, struct bw_error *err) {
    int rc = walk(m, folder, "blobs", check_rank, err);
    if (rc == 0) rc = walk(m, folder, "blobs/0", add_blob, err);
    if (rc == 0) rc = walk(m, folder, "metadata", add_metadata, err);
    return rc;
}
