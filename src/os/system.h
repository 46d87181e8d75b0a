/* SPDX-License-Identifier: Apache-2.0 */
/* Inside os/ only: the parts of the kernel's table that have a file of their own, and what they share. */
#ifndef BWI_OS_SYSTEM_H
#define BWI_OS_SYSTEM_H

#include "os/os.h"
#include <sys/stat.h>

#define BWI_OS_FILE_MODE 0600
#define BWI_OS_DIR_MODE  0700

enum bwi_os_type bwi_os_type_of(mode_t mode);
/* 0 or a negative errno, from the -1 that a system call returns. */
int bwi_os_result(int rc);
/* The same of a call that made a descriptor, which is moved above the standard streams' (closed if it cannot be). */
int bwi_os_descriptor(int fd);
/* mkdir with exactly the mode BWI_OS_DIR_MODE. */
int bwi_os_mkdir_at(int dirfd, const char *path);

/* os_dir.c */
int bwi_os_system_open_root(struct bwi_os *os, const char *path, bool create);
int bwi_os_system_dir_open(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_dir **ret);
int bwi_os_system_dir_next(struct bwi_os *os, struct bwi_os_dir *d, struct bwi_os_dirent *ret);
void bwi_os_system_dir_close(struct bwi_os *os, struct bwi_os_dir *d);

/* os_cache.c */
int bwi_os_system_open_direct(struct bwi_os *os, int fd, bool write);
unsigned bwi_os_system_direct_memory(struct bwi_os *os, int fd);
int64_t bwi_os_system_cached(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes);
int bwi_os_system_write_behind(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes);
int bwi_os_system_advise_done(struct bwi_os *os, int fd, uint64_t offset, uint64_t bytes);

#endif
