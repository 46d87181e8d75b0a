/* SPDX-License-Identifier: Apache-2.0 */
/* Staging and publishing the files of an export. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/folder.h"

#define STAGE_NAME ".breakwater-export"

static void add_text(char ***array, size_t *count, size_t *cap, const char *text) {
    if (*count == *cap) {
        *cap = *cap != 0 ? *cap * 2 : 16;
        *array = cli_realloc(*array, *cap, sizeof **array);
    }
    (*array)[(*count)++] = cli_strdup(text);
}

static bool all_digits(const char *text, size_t n) {
    return n > 0 && strspn(text, "0123456789") >= n;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text);
    size_t m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* model.safetensors, its index, model-00001-of-00002.safetensors. */
static bool is_model_file(const char *name) {
    if (strcmp(name, CLI_SINGLE_NAME) == 0 || strcmp(name, CLI_INDEX_NAME) == 0) return true;
    return strncmp(name, "model-", 6) == 0 && strstr(name, "-of-") != NULL && ends_with(name, ".safetensors");
}

static bool is_metadata_file(const char *name) {
    return ends_with(name, ".json") && all_digits(name, strlen(name) - 5);
}

static bool is_rank(const char *name) {
    return all_digits(name, strlen(name));
}

static bool is_any(const char *name) {
    return name[0] != '.';
}

/* Adds files of the folder DIR/sub ("" is DIR) that `fits` accepts. A folder that does not exist has none. */
static int scan(struct cli_folder *f, const char *sub, bool (*fits)(const char *name), struct bw_error *err) {
    int fd = openat(f->fd, sub[0] != '\0' ? sub : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT || errno == ENOTDIR ? 0 : cli_fail_errno(err, errno, "open \"%s/%s\"", f->path, sub);
    DIR *dir = fdopendir(fd);
    if (dir == NULL) {
        (void)close(fd);
        return cli_fail(err, BW_E_NOMEM, "read \"%s/%s\": out of memory", f->path, sub);
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        struct cli_buf name = {0};
        if (!fits(e->d_name)) continue;
        cli_buf_printf(&name, "%s%s%s", sub, sub[0] != '\0' ? "/" : "", e->d_name);
        add_text(&f->earlier, &f->earlier_count, &f->earlier_cap, name.data);
        cli_buf_fini(&name);
    }
    (void)closedir(dir);
    return 0;
}

/* Blobs lie one folder deeper: the folders of ranks are found first, and replaced by what they hold. */
static int scan_blobs(struct cli_folder *f, struct bw_error *err) {
    size_t first = f->earlier_count;
    int rc = scan(f, "blobs", is_rank, err);
    size_t end = f->earlier_count;
    for (size_t i = first; rc == 0 && i < end; i++) rc = scan(f, f->earlier[i], is_any, err);
    for (size_t i = first; i < end; i++) free(f->earlier[i]);
    memmove(f->earlier + first, f->earlier + end, (f->earlier_count - end) * sizeof *f->earlier);
    f->earlier_count -= end - first;
    return rc;
}

static int find_earlier(struct cli_folder *f, bool force, struct bw_error *err) {
    add_text(&f->earlier, &f->earlier_count, &f->earlier_cap, ""); /* so that the array exists */
    free(f->earlier[--f->earlier_count]);
    int rc = scan(f, "", is_model_file, err);
    if (rc == 0) rc = scan(f, "metadata", is_metadata_file, err);
    if (rc == 0) rc = scan_blobs(f, err);
    if (rc < 0 || force || f->earlier_count == 0) return rc;
    return cli_fail(err, BW_E_EXISTS,
                    "folder \"%s\" holds an earlier export (\"%s\"): expected an empty folder or --force", f->path,
                    f->earlier[0]);
}

static int make_folders(const char *path, struct bw_error *err) {
    char *copy = cli_strdup(path);
    int rc = 0;
    for (char *c = copy + 1; rc == 0 && *c != '\0'; c++) {
        if (*c != '/') continue;
        *c = '\0';
        if (mkdir(copy, 0777) != 0 && errno != EEXIST) rc = cli_fail_errno(err, errno, "make folder \"%s\"", copy);
        *c = '/';
    }
    if (rc == 0 && mkdir(path, 0777) != 0 && errno != EEXIST)
        rc = cli_fail_errno(err, errno, "make folder \"%s\"", path);
    free(copy);
    return rc;
}

/* A link in its place would lead to a folder of somebody else's, whose files may have numbers for names as well. */
static int open_stage_itself(const struct cli_folder *f) {
    return openat(f->fd, STAGE_NAME, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
}

/* Staged files have numbers for names; whatever else lies there is somebody else's. */
static void empty_stage(const struct cli_folder *f) {
    int fd = open_stage_itself(f);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (dir == NULL) {
        if (fd >= 0) (void)close(fd);
        return;
    }
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        if (is_rank(e->d_name)) (void)unlinkat(dirfd(dir), e->d_name, 0);
    (void)closedir(dir);
}

static int open_stage(struct cli_folder *f, struct bw_error *err) {
    empty_stage(f);
    if (mkdirat(f->fd, STAGE_NAME, 0777) != 0 && errno != EEXIST)
        return cli_fail_errno(err, errno, "make folder \"%s/%s\"", f->path, STAGE_NAME);
    f->stage = open_stage_itself(f);
    if (f->stage < 0) return cli_fail_errno(err, errno, "open folder \"%s/%s\"", f->path, STAGE_NAME);
    return 0;
}

int cli_folder_open(const char *path, bool force, struct cli_folder *ret, struct bw_error *err) {
    struct cli_folder f = {.path = path, .fd = -1, .stage = -1};
    int rc = make_folders(path, err);
    if (rc < 0) return rc;
    f.fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (f.fd < 0) return cli_fail_errno(err, errno, "open folder \"%s\"", path);
    if (flock(f.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
        rc = cli_fail(err, BW_E_BUSY, "folder \"%s\": another export is being written to it", path);
    if (rc == 0) rc = find_earlier(&f, force, err);
    if (rc == 0) rc = open_stage(&f, err);
    if (rc == 0)
        *ret = f;
    else
        cli_folder_close(&f);
    return rc;
}

int cli_folder_create(struct cli_folder *f, const char *name, int *ret_fd, struct bw_error *err) {
    char staged[32];
    (void)snprintf(staged, sizeof staged, "%zu", f->file_count);
    int fd = openat(f->stage, staged, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) return cli_fail_errno(err, errno, "create \"%s/%s\"", f->path, name);
    add_text(&f->files, &f->file_count, &f->file_cap, name);
    *ret_fd = fd;
    return 0;
}

int cli_folder_finish(struct cli_folder *f, int fd, const char *name, struct bw_error *err) {
    int rc = 0;
    if (fsync(fd) != 0) rc = cli_fail_errno(err, errno, "sync \"%s/%s\"", f->path, name);
    if (close(fd) != 0 && rc == 0) rc = cli_fail_errno(err, errno, "close \"%s/%s\"", f->path, name);
    return rc;
}

int cli_write_at(int fd, const void *bytes, size_t n, uint64_t offset, const char *name, struct bw_error *err) {
    const unsigned char *p = bytes;
    while (n > 0) {
        ssize_t written = pwrite(fd, p, n, (off_t)offset);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return cli_fail_errno(err, written < 0 ? errno : EIO, "write \"%s\"", name);
        p += written;
        n -= (size_t)written;
        offset += (uint64_t)written;
    }
    return 0;
}

static int sync_folder(const struct cli_folder *f, const char *name, struct bw_error *err) {
    int fd = openat(f->fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int rc = 0;
    if (fd < 0) return cli_fail_errno(err, errno, "open folder \"%s/%s\"", f->path, name);
    if (fsync(fd) != 0) rc = cli_fail_errno(err, errno, "sync folder \"%s/%s\"", f->path, name);
    (void)close(fd);
    return rc;
}

/* Makes the folders above `name`, relative to DIR, and syncs their parents; ret_parent is the last one, "." for DIR. */
static int make_parents(const struct cli_folder *f, const char *name, struct cli_buf *ret_parent,
                        struct bw_error *err) {
    struct cli_buf parent = {0};
    cli_buf_add(&parent, ".", 1);
    for (const char *c = strchr(name, '/'); c != NULL; c = strchr(c + 1, '/')) {
        struct cli_buf sub = {0};
        cli_buf_add(&sub, name, (size_t)(c - name));
        int rc = 0;
        if (mkdirat(f->fd, sub.data, 0777) == 0)
            rc = sync_folder(f, parent.data, err);
        else if (errno != EEXIST)
            rc = cli_fail_errno(err, errno, "make folder \"%s/%s\"", f->path, sub.data);
        cli_buf_fini(&parent);
        parent = sub;
        if (rc < 0) {
            cli_buf_fini(&parent);
            return rc;
        }
    }
    *ret_parent = parent;
    return 0;
}

/* Nobody else's file is replaced: what was in the way has been taken away by name before. */
static int place(const struct cli_folder *f, size_t i, struct bw_error *err) {
    char staged[32];
    (void)snprintf(staged, sizeof staged, "%zu", i);
    int rc = renameat2(f->stage, staged, f->fd, f->files[i], RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) {
        if (faccessat(f->fd, f->files[i], F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            errno = EEXIST;
        else
            rc = renameat(f->stage, staged, f->fd, f->files[i]);
    }
    return rc == 0 ? 0 : cli_fail_errno(err, errno, "create \"%s/%s\"", f->path, f->files[i]);
}

static int place_file(const struct cli_folder *f, size_t i, struct bw_error *err) {
    struct cli_buf parent = {0};
    int rc = make_parents(f, f->files[i], &parent, err);
    if (rc == 0) rc = place(f, i, err);
    if (rc == 0 && strcmp(parent.data, ".") != 0) rc = sync_folder(f, parent.data, err);
    cli_buf_fini(&parent);
    return rc;
}

/* The index goes first: without it a reader finds no model, rather than a mix of two. */
static int remove_earlier(const struct cli_folder *f, struct bw_error *err) {
    if (f->earlier_count == 0) return 0;
    if (unlinkat(f->fd, CLI_INDEX_NAME, 0) == 0) {
        int rc = sync_folder(f, ".", err);
        if (rc < 0) return rc;
    }
    for (size_t i = 0; i < f->earlier_count; i++)
        if (unlinkat(f->fd, f->earlier[i], 0) != 0 && errno != ENOENT)
            return cli_fail_errno(err, errno, "remove \"%s/%s\"", f->path, f->earlier[i]);
    return sync_folder(f, ".", err);
}

int cli_folder_publish(struct cli_folder *f, struct bw_error *err) {
    size_t index = f->file_count;
    int rc = remove_earlier(f, err);
    for (size_t i = 0; rc == 0 && i < f->file_count; i++) {
        if (strcmp(f->files[i], CLI_INDEX_NAME) == 0)
            index = i;
        else
            rc = place_file(f, i, err);
    }
    if (rc == 0) rc = sync_folder(f, ".", err);
    if (rc == 0 && index < f->file_count) {
        rc = place(f, index, err);
        if (rc == 0) rc = sync_folder(f, ".", err);
    }
    return rc;
}

void cli_folder_close(struct cli_folder *f) {
    if (f->stage >= 0) {
        empty_stage(f);
        (void)close(f->stage);
        (void)unlinkat(f->fd, STAGE_NAME, AT_REMOVEDIR);
    }
    if (f->fd >= 0) (void)close(f->fd);
    for (size_t i = 0; i < f->file_count; i++) free(f->files[i]);
    for (size_t i = 0; i < f->earlier_count; i++) free(f->earlier[i]);
    free(f->files);
    free(f->earlier);
    *f = (struct cli_folder){.fd = -1, .stage = -1};
}
