/* SPDX-License-Identifier: Apache-2.0 */
/* Stores that behave as badly as a network and a server may: answers come late, in another order, or never; what was
 * sent once happens twice, the second time long after; some calls fail, before or after they had their effect.
 *
 * The server's side lives apart from the participants: what was sent has its effect at its time, whether the sender
 * runs, sleeps or has died meanwhile. All of it in one thread, on virtual time, by seed. */
#ifndef BW_SOAK_UNRULY_H
#define BW_SOAK_UNRULY_H

#include "base/env.h"
#include "store/store_memory.h"

/* How often something happens, in 65,536 calls. */
struct unruly_model {
    uint32_t fail;     /* no effect; answers BW_E_IO, BW_E_NOSPACE or BW_E_TIMEOUT */
    uint32_t drop;     /* no effect, no answer: BW_E_UNKNOWN after a while */
    uint32_t lose;     /* it has its effect, but the answer is lost: BW_E_UNKNOWN after a while */
    uint32_t again;    /* a CREATE, REPLACE, DELETE or DELETE_PREFIX that succeeded arrives once more, later */
    uint32_t slow;     /* the call, its answer or its second coming takes up to slow_ns */
    uint64_t delay_ns; /* all others take up to so long, each way */
    uint64_t slow_ns;
};

struct unruly_net;
struct unruly_store;

/* After a call has had its effect, or may have had it. */
typedef void (*unruly_look)(void *user, struct bwi_bucket *b, const struct bwi_store_op *op);

struct unruly_net *unruly_net_new(struct bwi_env_virtual *env, uint64_t seed, unruly_look look, void *user);
void unruly_net_free(struct unruly_net *n); /* all stores are closed; what was to come again is forgotten */
struct unruly_model *unruly_model_of(struct unruly_net *n); /* may be changed at any time */
/* Lets happen what is due; true if there was something. */
bool unruly_net_turn(struct unruly_net *n);
uint64_t unruly_net_next_ns(const struct unruly_net *n); /* of the next thing to happen; BWI_NEVER */
uint64_t unruly_net_calls(const struct unruly_net *n);   /* that had their turn */

int unruly_open(struct unruly_net *n, struct bwi_bucket *b, struct bwi_loop *loop, const char *name,
                struct bwi_store **ret, struct bw_error *err);
/* The process that uses it has died: its locks are gone, what it had sent may still happen, nothing that it sends from
 * now on does. What remains of it in memory is told that every call fails, so that it can be freed. */
void unruly_died(struct bwi_store *s);

/* Which call the participant stops at. `calls` counts down through all stores that share it. */
struct unruly_stop {
    uint64_t calls; /* 0: never; 1: at the next one */
    bool after;     /* when its answer would come; else before it is sent: it waits until the participant goes on */
    bool reached;   /* somebody has to stop the participant now, and to clear this */
    enum bwi_store_verb verb;
    char key[512]; /* of the call, for people and for counting */
};
void unruly_stop_at(struct bwi_store *s, struct unruly_stop *stop);

#endif
