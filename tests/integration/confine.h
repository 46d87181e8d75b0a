/* SPDX-License-Identifier: Apache-2.0 */
/* A narrower world for one process: system calls that are refused, limits, file systems of its own, another user. What
 * is done here lasts as long as the process: a case does it in one that it has spawned. */
#ifndef BW_TEST_CONFINE_H
#define BW_TEST_CONFINE_H

#include "job.h"
#include <sys/resource.h>

/* From now on these system calls of this process fail with the error number. */
void refuse_calls(const int *numbers, size_t count, int error);
/* The soft limit of a resource (RLIMIT_...). */
void limit(int resource, uint64_t value);
/* The number that the next descriptor of this process would get. */
int next_descriptor(void);

/* Whether this user may make file systems of its own; a case that needs them is skipped where it may not. */
bool may_mount(void);
/* Mounts of this process and its children are from now on nobody else's. */
void own_mounts(void);
void mount_tmpfs(const char *path, uint64_t bytes);
/* An overlay at `path` over the directories lower, upper and work below `under`, which are made. */
void mount_overlay(const char *path, const char *under);
/* The directory again, at `path`, so that nobody can write to it there. */
void mount_read_only(const char *path, const char *dir);

/* A user who is nobody else. */
#define STRANGER 65534u
/* Everything at and below the path is that user's from now on. */
void give_to_stranger(const char *path);
void become_stranger(void);

#endif
