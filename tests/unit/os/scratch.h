/* SPDX-License-Identifier: Apache-2.0 */
/* A scratch directory, open as the root of a store is. */
#ifndef BW_TEST_OS_SCRATCH_H
#define BW_TEST_OS_SCRATCH_H

#include "os/os.h"
#include "test.h"

/* What a setup returns. */
static inline int scratch_open(struct bwi_os **ret_os, const char **ret_path, int *ret_dir) {
    *ret_os = bwi_os_system();
    *ret_path = test_mkdir();
    *ret_dir = (*ret_os)->open_root(*ret_os, *ret_path, false);
    return *ret_dir < 0;
}

static inline void scratch_close(struct bwi_os *os, const char *path, int dir) {
    (void)os->close(os, dir);
    test_rmdir(path);
}

#endif
