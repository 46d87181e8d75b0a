/* SPDX-License-Identifier: Apache-2.0 */
/* Directories of the kernel's table: opening (and making) the root of a tier, and listings. */
#include "base/vec.h"
#include "os/system.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>

struct bwi_os_dir {
    DIR *stream;
};

static int open_at(int dirfd, const char *path, int flags) {
    int fd;
    do {
        fd = openat(dirfd, path, flags | O_DIRECTORY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return bwi_os_descriptor(fd);
}

/* Syncs the directory `path`. 0 or a negative errno. */
static int sync_dir(int dirfd, const char *path) {
    const int fd = open_at(dirfd, path, O_RDONLY);
    if (fd < 0) return fd;
    int rc;
    do {
        rc = bwi_os_result(fsync(fd));
    } while (rc == -EINTR);
    (void)close(fd);
    return rc;
}

/* Whoever made `dirfd` may have died between making it and syncing the directory above. So the deepest directory that
 * is found is treated like one that was made, except that a directory above it that may not be read, or is read-only,
 * was set up by somebody else long ago. */
static int sync_above_found(int dirfd) {
    const int rc = sync_dir(dirfd, "..");
    return rc == -EACCES || rc == -EPERM || rc == -EROFS || rc == -EINVAL ? 0 : rc;
}

/* Makes `name` and its entry in `dirfd` durable. It is no error if another process makes it at the same time. */
static int make_durable(int dirfd, const char *name) {
    int rc = bwi_os_mkdir_at(dirfd, name);
    if (rc != 0 && rc != -EEXIST) return rc;
    rc = sync_dir(dirfd, ".");
    if (rc != -EACCES) return rc;
    /* A directory that one may write but not read cannot be synced by itself: its whole file system can. */
    const int fd = open_at(dirfd, name, O_RDONLY);
    if (fd < 0) return fd;
    rc = bwi_os_result(syncfs(fd));
    (void)close(fd);
    return rc;
}

/* Copies the next component of *path to `name` and moves *path behind it: 1, 0 at the end, or -ENAMETOOLONG. */
static int next_component(const char **path, char name[NAME_MAX + 1]) {
    *path += strspn(*path, "/");
    const size_t len = strcspn(*path, "/");
    if (len > NAME_MAX) return -ENAMETOOLONG;
    memcpy(name, *path, len);
    name[len] = '\0';
    *path += len;
    return len > 0;
}

/* Replaces *dirfd by the directory `name` in it, made when it is missing. */
static int step_into(int *dirfd, const char *name, bool *made) {
    int next = open_at(*dirfd, name, O_PATH);
    if (next == -ENOENT) {
        int rc = *made ? 0 : sync_above_found(*dirfd);
        if (rc == 0) rc = make_durable(*dirfd, name);
        if (rc != 0) return rc;
        *made = true;
        next = open_at(*dirfd, name, O_PATH);
    }
    if (next < 0) return next;
    (void)close(*dirfd);
    *dirfd = next;
    return 0;
}

/* Makes what is missing of the path and opens its end. */
static int make_path(const char *path) {
    int dirfd = open_at(AT_FDCWD, path[0] == '/' ? "/" : ".", O_PATH);
    if (dirfd < 0) return dirfd;
    char name[NAME_MAX + 1];
    bool made = false;
    int rc;
    while ((rc = next_component(&path, name)) > 0) {
        rc = step_into(&dirfd, name, &made);
        if (rc < 0) break;
    }
    if (rc == 0) rc = open_at(dirfd, ".", O_RDONLY);
    (void)close(dirfd);
    return rc;
}

int bwi_os_system_open_root(struct bwi_os *os, const char *path, bool create) {
    (void)os;
    const int fd = open_at(AT_FDCWD, path, O_RDONLY);
    if (!create || path[0] == '\0') return fd;
    if (fd == -ENOENT) return make_path(path);
    if (fd < 0) return fd;
    const int rc = sync_above_found(fd);
    if (rc == 0) return fd;
    (void)close(fd);
    return rc;
}

int bwi_os_system_dir_open(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_dir **ret) {
    (void)os;
    struct bwi_os_dir *d = bwi_calloc(1, sizeof *d);
    if (d == NULL) return -ENOMEM;
    const int fd = open_at(dirfd, path, O_RDONLY | O_NOFOLLOW);
    int rc = fd < 0 ? fd : 0;
    if (rc == 0) {
        d->stream = fdopendir(fd);
        if (d->stream == NULL) {
            rc = -errno;
            (void)close(fd);
        }
    }
    if (rc != 0) {
        bwi_free(d);
        return rc;
    }
    *ret = d;
    return 0;
}

static bool is_dot(const char *name) {
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

/* Type of an entry: some file systems only tell when asked again. -ENOENT when it is gone by then. */
static int type_of(DIR *stream, const struct dirent *e, enum bwi_os_type *ret) {
    if (e->d_type != DT_UNKNOWN) {
        *ret = bwi_os_type_of((mode_t)DTTOIF(e->d_type));
        return 0;
    }
    struct stat st;
    if (fstatat(dirfd(stream), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) return -errno;
    *ret = bwi_os_type_of(st.st_mode);
    return 0;
}

int bwi_os_system_dir_next(struct bwi_os *os, struct bwi_os_dir *d, struct bwi_os_dirent *ret) {
    (void)os;
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d->stream);
        if (e == NULL && errno == EINTR) continue;
        if (e == NULL) return -errno;
        if (is_dot(e->d_name)) continue;
        const size_t len = strlen(e->d_name);
        if (len >= sizeof ret->name) return -ENAMETOOLONG;
        enum bwi_os_type type = BWI_OS_OTHER;
        const int rc = type_of(d->stream, e, &type);
        if (rc == -ENOENT) continue;
        if (rc != 0) return rc;
        memcpy(ret->name, e->d_name, len + 1);
        ret->type = type;
        return 1;
    }
}

void bwi_os_system_dir_close(struct bwi_os *os, struct bwi_os_dir *d) {
    (void)os;
    if (d == NULL) return;
    (void)closedir(d->stream);
    bwi_free(d);
}
