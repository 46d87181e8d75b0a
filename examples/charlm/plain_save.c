/* SPDX-License-Identifier: Apache-2.0 */
/* One file per rank: raw bytes, no names, no hashes; just what it costs to have them on the disk. */
#include "plain_save.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int write_all(int fd, const void *bytes, size_t n) {
    const char *at = bytes;
    while (n > 0) {
        const ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return -1;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}

static int write_part(int fd, const struct part *part, uint32_t rank, uint32_t world, uint64_t *bytes) {
    uint64_t row0 = 0, rows = part->extent[0];
    if (part->replicas > 1) {
        row0 = rows * rank / world;
        rows = part->extent[0] * (rank + 1) / world - row0;
    }
    const size_t n = rows * part->extent[1] * sizeof(float);
    *bytes += n;
    return write_all(fd, part->data + row0 * part->extent[1], n);
}

static int sync_directory(const char *path) {
    char copy[4096];
    snprintf(copy, sizeof copy, "%s", path);
    const int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return -1;
    const int rc = fsync(fd);
    close(fd);
    return rc;
}

int plain_save(const struct state *s, uint32_t rank, uint32_t world, const char *path, uint64_t *ret_bytes) {
    char part_path[4096];
    uint64_t bytes = sizeof s->now;
    snprintf(part_path, sizeof part_path, "%s.part", path);
    const int fd = open(part_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    int rc = fd < 0 ? -1 : write_all(fd, &s->now, sizeof s->now);
    for (size_t i = 0; i < s->part_count && rc == 0; i++) rc = write_part(fd, &s->parts[i], rank, world, &bytes);
    if (rc == 0) rc = fsync(fd);
    if (fd >= 0 && close(fd) < 0) rc = -1;
    if (rc == 0) rc = rename(part_path, path);
    if (rc == 0) rc = sync_directory(path);
    if (rc < 0) return fprintf(stderr, "%s: %s\n", path, strerror(errno)), -1;
    *ret_bytes = bytes;
    return 0;
}
