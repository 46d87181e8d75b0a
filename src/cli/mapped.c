/* SPDX-License-Identifier: Apache-2.0 */
/* Mapping files that nothing is known about yet. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/mapped.h"

static int map(int fd, const char *name, struct cli_mapped *ret, struct bw_error *err) {
    struct stat st;
    if (fstat(fd, &st) != 0) return cli_fail_errno(err, errno, "look at \"%s\"", name);
    if (!S_ISREG(st.st_mode)) return cli_fail(err, BW_E_FORMAT, "\"%s\": expected a file", name);
    if (st.st_size == 0) {
        *ret = (struct cli_mapped){(const unsigned char *)"", 0};
        return 0;
    }
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return cli_fail_errno(err, errno, "map \"%s\"", name);
    (void)madvise(at, (size_t)st.st_size, MADV_SEQUENTIAL);
    *ret = (struct cli_mapped){at, (size_t)st.st_size};
    return 0;
}

int cli_mapped_open(int folder, const char *name, bool links, struct cli_mapped *ret, struct bw_error *err) {
    /* Without O_NONBLOCK opening a FIFO would wait for its writer, before anything can be known about it. */
    int fd = openat(folder, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (links ? 0 : O_NOFOLLOW));
    if (fd < 0 && (errno == ENXIO || (errno == ELOOP && !links)))
        return cli_fail(err, BW_E_FORMAT, "\"%s\": expected a file, found a %s", name,
                        errno == ENXIO ? "socket or a device" : "symbolic link");
    if (fd < 0) return cli_fail_errno(err, errno, "open \"%s\"", name);
    int rc = map(fd, name, ret, err);
    (void)close(fd);
    return rc;
}

void cli_mapped_close(struct cli_mapped *m) {
    if (m->n > 0) (void)munmap((void *)(uintptr_t)m->bytes, m->n);
    *m = (struct cli_mapped){0};
}
