/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says about this host and this process. */
#include "base/text.h"
#include "os/os.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

uint64_t bwi_os_process(void) {
    return (uint64_t)getpid();
}

static size_t page_bytes(void) {
    return (size_t)sysconf(_SC_PAGESIZE);
}

const volatile uint32_t *bwi_os_birthmark(void) {
    const size_t bytes = page_bytes();
    uint32_t *mark = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mark == MAP_FAILED) return NULL;
    /* Some emulators of a kernel agree to every advice, one that does not exist included. */
    if (madvise(mark, bytes, MADV_WIPEONFORK) == 0 && madvise(mark, bytes, -1) != 0) {
        *mark = 1;
        return mark;
    }
    (void)munmap(mark, bytes);
    return NULL;
}

void bwi_os_birthmark_free(const volatile uint32_t *mark) {
    if (mark != NULL) (void)munmap((void *)(uintptr_t)mark, page_bytes());
}

void bwi_os_hostname(char *buf, size_t buf_bytes) {
    char name[256] = "";
    /* A name that does not fit is cut without an error on some C libraries, and without a NUL on others. */
    if (gethostname(name, sizeof name - 1) != 0 || name[0] == '\0') {
        (void)bwi_format(buf, buf_bytes, "unknown");
    } else {
        (void)bwi_format(buf, buf_bytes, "%s", name);
    }
}

/* The number behind a line's key, which /proc gives in KiB; 0 when there is no such line. */
static uint64_t status_bytes(const char *status, const char *key) {
    const char *line = strstr(status, key);
    return line == NULL ? 0 : strtoull(line + strlen(key), NULL, 10) * 1024;
}

uint64_t bwi_os_rss_bytes(void) {
    const int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    char text[8192];
    size_t len = 0;
    ssize_t got;
    while (len < sizeof text - 1 && (got = read(fd, text + len, sizeof text - 1 - len)) > 0) len += (size_t)got;
    (void)close(fd);
    text[len] = '\0';
    /* Pages of hugetlbfs are not part of the resident set. */
    return status_bytes(text, "\nVmRSS:") + status_bytes(text, "\nHugetlbPages:");
}

unsigned bwi_os_cpus(void) {
    /* 16,384 CPUs: cpu_set_t ends at 1,024, and the kernel refuses a mask that is too small for the machine. */
    cpu_set_t mask[16];
    if (sched_getaffinity(0, sizeof mask, mask) == 0) {
        const int n = CPU_COUNT_S(sizeof mask, mask);
        if (n > 0) return (unsigned)n;
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (unsigned)online : 1;
}
