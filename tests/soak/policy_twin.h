/* SPDX-License-Identifier: Apache-2.0 */
/* The library's rules and their naive twin, side by side: one history, decided by many who each know some state of it,
 * the newest or an older one. */
#ifndef BW_SOAK_POLICY_TWIN_H
#define BW_SOAK_POLICY_TWIN_H

#include "policy_naive.h"
#include "soak.h"

#define HEADS_MAX   8u
#define WAITING_MAX 6u

/* A state of the history, twice. */
struct twin_head {
    struct naive naive;
    struct bwi_entry entry;
};

/* What is true of a making beside what the history says. */
struct twin_fact {
    bool complete; /* all its groups are in the authority */
    bool dead;     /* some head of this era has called it so */
    bool was_live; /* some head has made it live */
    bool aborted;  /* some head of this era has proved that it was aborted */
};

/* A launch that has looked, and will register, or somebody else will first. */
struct waiting {
    bool used;
    int job, launch;
    bool seen_set;
    uint32_t seen_number, seen_nonce;
};

struct twin {
    struct soak_run *run;
    uint64_t rng;
    struct naive_world world;
    struct twin_fact facts[MAKINGS_MAX];
    struct twin_head heads[HEADS_MAX]; /* the newest is the last; each follows the one before it */
    unsigned head_count;
    struct waiting waiting[WAITING_MAX];
    int next_launch;
    uint32_t next_nonce;
    unsigned char store, next_uuid; /* the store that decides; uuids that were given out */
    int64_t time_ms;
    uint64_t checks; /* comparisons that were made */
};

/* false: a violation has been told. */
bool twin_violated(struct twin *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void twin_tell(const struct twin *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint64_t twin_random(struct twin *t, uint64_t below);
bool twin_chance(struct twin *t, unsigned percent);

/* The newest; an empty history has none (NULL), and a naive state that has not begun. */
const struct bwi_entry *twin_entry(const struct twin *t);
const struct naive *twin_naive(const struct twin *t);

/* Texts and structs of what the twin has only numbers for. */
void twin_name(char kind, int number, char ret[BWI_NAME_BUF]); /* NOBODY: "" */
struct bwi_uuid twin_uuid(unsigned char number);
struct bwi_kept twin_kept(const struct twin *t, int m, int64_t time_ms);
struct bwi_candidate twin_candidate(const struct twin *t, int m); /* NOBODY: all zero */

/* policy_draw.c: what somebody might ask for. */
int twin_any_making(struct twin *t);                       /* one that is known; there is at least one */
int twin_draw_making(struct twin *t);                      /* one that may be new */
int twin_draw_kept(struct twin *t, const struct naive *s); /* NOBODY: nothing is live or shelved */

/* policy_compare.c: whether an entry says what the naive state says. */
bool twin_same(struct twin *t, const struct bwi_entry *e, const struct naive *s);
bool twin_same_answers(struct twin *t, const struct bwi_entry *e, const struct naive *s); /* to all questions */

/* policy_events.c: one event, asked of both; when it is granted it mostly becomes the newest. */
bool twin_event(struct twin *t);

/* policy_room.c: one disk, asked of both. */
bool twin_room(struct twin *t);

/* policy_soak.c */
bool twin_accept(struct twin *t, struct bwi_entry *next, const struct naive *after);

#endif
