/* SPDX-License-Identifier: Apache-2.0 */
/* A simulated disk served through FUSE. */
#ifndef BW_SIM_FORGETFUL_OPS_H
#define BW_SIM_FORGETFUL_OPS_H

#include "disk.h"
#include <stdatomic.h>

struct forgetful_view {
    struct disk *disk; /* attached to the process as "disk" */
    struct disk_process *process;
    void (*before_each)(void *user); /* request that may change something */
    void *user;
};

/* Mounts it, counts that in *mounted, and serves until it is unmounted. false: it could not be mounted. */
bool forgetful_serve(const struct forgetful_view *v, const char *at, atomic_uint *mounted);

#endif
