/* SPDX-License-Identifier: Apache-2.0 */
/* From what was found out about a machine and its tiers to findings: what is fine, what costs speed, what must not be.
 * Pure; whoever calls it has looked and tried. */
#ifndef BWI_CHECKPOINT_DIAGNOSE_H
#define BWI_CHECKPOINT_DIAGNOSE_H

#include "checkpoint/tier_probe.h"
#include "checkpoint/verify.h"
#include "os/probe.h"

/* Stores, workers and a window of open packs, with room for the trainer's own. */
#define BWI_DIAGNOSE_DESCRIPTORS_LEAST UINT64_C(256)
/* The smallest memory budget: buffers that are registered or pinned are locked. */
#define BWI_DIAGNOSE_MEMLOCK_LEAST (UINT64_C(64) << 20)
/* Bytes; and a twentieth of the whole. */
#define BWI_DIAGNOSE_FREE_LEAST (UINT64_C(1) << 30)

void bwi_diagnose_machine(const struct bwi_probe_machine *m, struct bwi_findings *f);

struct bwi_diagnose_tier {
    enum bwi_tier tier;
    const char *url;
    bool made; /* it was not there before, and is gone again */
    struct bwi_store_caps caps;
    int dir; /* 0: `found` is valid; 1: this tier is no directory; negative errno: it could not be examined */
    struct bwi_probe_dir found;
    int store_status;         /* of reading and decoding store.json: 0, BW_E_NOTFOUND, ... */
    const char *store_error;  /* message to it */
    struct bwi_uuid store_id; /* store_status 0 */
    bool has_runs;            /* BW_E_NOTFOUND: something lies below runs/ all the same */
};
/* Everything about one tier but creating once. */
void bwi_diagnose_tier(const struct bwi_diagnose_tier *t, struct bwi_findings *f);
/* What a tier wants in flight, as a probe of it has found. */
void bwi_diagnose_depth(const struct bwi_tier_probe *p, struct bwi_findings *f);
/* What is wrong with the two together. */
void bwi_diagnose_pair(const struct bwi_diagnose_tier *local, const struct bwi_diagnose_tier *remote,
                       struct bwi_findings *f);

/* Rounds in which several handles tried to create the same key, each with other bytes. */
struct bwi_diagnose_try {
    int status; /* of the creation; BW_E_EXISTS with outcome OTHER is how one loses */
    enum bwi_store_outcome outcome;
};
struct bwi_diagnose_race {
    unsigned racers, rounds;
    const struct bwi_diagnose_try *tries; /* rounds * racers */
    const unsigned *holder;               /* per round: whose bytes the object has afterwards; `racers`: nobody's */
    uint64_t took_ns;                     /* all rounds */
    const struct bw_error *error;         /* first one of an operation; status 0: none */
};
/* One finding, "create once": it holds; it does not, and how; or the tier could not be written. */
void bwi_diagnose_race(const struct bwi_diagnose_race *r, enum bwi_tier tier, struct bwi_findings *f);

#endif
