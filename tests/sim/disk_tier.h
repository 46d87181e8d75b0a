/* SPDX-License-Identifier: Apache-2.0 */
/* The tiers of a cluster's rank, on the disks "remote" and "local" that its process has. */
#ifndef BW_SIM_DISK_TIER_H
#define BW_SIM_DISK_TIER_H

#include "cluster.h"
#include "store/store.h"

static inline int disk_tier(struct cluster *c, unsigned node, enum bwi_tier tier, struct bwi_loop *loop,
                            struct bwi_store **ret, struct bw_error *err) {
    const struct bwi_store_options o = {.loop = loop, .create = true};
    (void)c;
    (void)node;
    return bwi_store_open(tier == BWI_TIER_REMOTE ? "/remote/bw" : "/local/bw", &o, ret, err);
}

#endif
