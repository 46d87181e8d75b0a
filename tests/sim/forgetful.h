/* SPDX-License-Identifier: Apache-2.0 */
/* A mounted file system that forgets what was not synced: a simulated disk (disk.h) behind FUSE, so that real processes
 * use it through the kernel. It is served by a process of its own, one request after the other. */
#ifndef BW_SIM_FORGETFUL_H
#define BW_SIM_FORGETFUL_H

#include <stdbool.h>
#include <stdint.h>

struct forgetful;

bool forgetful_is_possible(void); /* there is a /dev/fuse that may be used */
/* Mounts an empty disk at a directory. NULL: it could not. */
struct forgetful *forgetful_start(const char *at);
/* Unmounts, and ends the process. */
void forgetful_stop(struct forgetful *f);

/* Before the n-th fsync of a directory of this name ("": before the n-th change of anything) from now on, the disk
 *  stands still: whoever asks it for something waits, and cannot even be killed before the next call. n == 0: never. */
void forgetful_aim(struct forgetful *f, const char *name, uint64_t n);
bool forgetful_stands_still(const struct forgetful *f);
/* All who use it have been killed, and end by this. The power fails, what was not synced is lost, and it is mounted
 * again. */
bool forgetful_crash(struct forgetful *f, uint64_t seed);
/* Likewise, but nothing is lost. */
bool forgetful_go_on(struct forgetful *f);
uint64_t forgetful_changes(const struct forgetful *f); /* so far */

#endif
