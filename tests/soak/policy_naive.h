/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a run's history once more, written from doc/flows/ and the headers as plainly as they can be said: sets
 * and counts in place of sorted lists, numbers in place of names, and nothing that has to be fast. Whatever the
 * library's own functions answer must be the same. */
#ifndef BW_SOAK_POLICY_NAIVE_H
#define BW_SOAK_POLICY_NAIVE_H

#include "checkpoint/policy_history.h"
#include "checkpoint/room.h"

#define MAKINGS_MAX  192u
#define LAUNCHES_MAX 1300u
#define NAMES_MAX    64u
#define STEPS_MAX    512u
#define ERAS_MAX     24u
#define NOBODY       (-1)

/* One making of a checkpoint: what is true of it wherever it is named. Its number is its place in the world. */
struct making {
    struct bwi_id id;
    unsigned ref_count;
    unsigned short refs[BWI_REFS_MAX]; /* numbers of makings, in the order of their ids */
    uint64_t bytes;
    unsigned char manifest; /* first byte of its hash */
    uint32_t world, groups;
    bool fan_out;
};

struct naive_world {
    struct making makings[MAKINGS_MAX];
    unsigned count;
};

enum place { NOWHERE, IS_LIVE, IS_SHELVED };

/* Numbers in order of use. */
struct names {
    int list[NAMES_MAX];
    unsigned count;
};

struct naive_event {
    enum bwi_event type;
    int ids[MAKINGS_MAX];
    unsigned id_count;
    int label; /* NOBODY: none */
    char mode[16], note[256];
};

/* The decided state. */
struct naive {
    bool begun; /* false: the run has no history */
    uint32_t era;
    uint64_t n;
    struct naive_era {
        uint32_t era;
        uint64_t n;
        unsigned char uuid;
    } eras[ERAS_MAX];
    unsigned era_count;
    unsigned char store;

    struct {
        bool set;
        uint32_t number, nonce, world, groups;
        bool fan_out;
        int job, launch; /* NOBODY: an attempt of no job */
    } attempt;
    int from; /* NOBODY: from nothing */
    bool from_open;

    uint64_t past[STEPS_MAX]; /* steps of this attempt's from, and of all that was committed in it */
    unsigned past_count;
    uint64_t aborted[STEPS_MAX]; /* steps, once for each abort in this attempt */
    unsigned aborted_count;

    struct {
        enum place place;
        bool pinned;
        int64_t time_ms; /* of its commit */
    } kept[MAKINGS_MAX];

    struct names labels, superseded;
    int launches[LAUNCHES_MAX]; /* all there ever were */
    unsigned launch_count;
    struct naive_event event;
};

struct naive_ask {
    int job, launch, label; /* label NOBODY: none */
    enum bwi_register_mode mode;
    bool takeover;
    int target, newer; /* NOBODY: none */
    bool seen_set;
    uint32_t seen_number, seen_nonce;
    uint32_t nonce, world, groups;
    bool fan_out;
    unsigned char uuid;
    const char *note; /* NULL: none */
};

struct naive_repair {
    uint32_t era;
    uint64_t n, damaged_n;
    int64_t time_ms; /* of what is found */
    unsigned char uuid;
    uint32_t nonce;
    int gone[MAKINGS_MAX], found[MAKINGS_MAX];
    unsigned gone_count, found_count;
};

/* Looking. m: the number of a making. */
bool naive_is_kept(const struct naive *s, int m);
bool naive_refers(const struct naive_world *w, int m, int to);
int naive_newest(const struct naive_world *w, const struct naive *s); /* NOBODY: nothing is live */
int naive_live_of(const struct naive_world *w, const struct naive *s, uint64_t step);
int naive_of_step(const struct naive_world *w, const struct naive *s, uint64_t step);
bool naive_floor(const struct naive *s, uint64_t *ret); /* h; false: null */
uint32_t naive_try(const struct naive *s, uint64_t step);
bool naive_is_current(const struct naive *s, uint32_t number, uint32_t nonce);
bool naive_has(const struct names *n, int name);
bool naive_committable(const struct naive_world *w, const struct naive *s, int m);
bool naive_from_needs(const struct naive_world *w, const struct naive *s, int m);
enum bwi_fate naive_fate(const struct naive_world *w, const struct naive *s, int m);
bool naive_was_aborted(const struct naive_world *w, const struct naive *s, int m);
bool naive_layouts_dead(const struct naive_world *w, const struct naive *s, uint32_t number, uint32_t nonce);
int naive_attempt_status(const struct naive *s, uint32_t number, uint32_t nonce, int job);
bool naive_is_beaten(const struct naive *s, bool seen_set, uint32_t seen_number);
enum bwi_register_mode naive_mode(const struct naive *s, const struct naive_ask *a);
int naive_may_register(const struct naive *s, const struct naive_ask *a);

/* Deciding: 0, and the state is the next one; else the status, and it is what it was. */
int naive_register(const struct naive_world *w, struct naive *s, const struct naive_ask *a);
int naive_commit(const struct naive_world *w, struct naive *s, int m, int64_t time_ms);
int naive_abort(const struct naive_world *w, struct naive *s, int m, const char *reason);
int naive_retire(const struct naive_world *w, struct naive *s, const int *list, unsigned count);
int naive_pin(struct naive *s, int m, bool pinned);
int naive_repair(const struct naive_world *w, struct naive *s, const struct naive_repair *r);
int naive_promote(const struct naive_world *w, struct naive *s, unsigned char store, unsigned char uuid,
                  uint32_t nonce);

/* Keeping house (policy_naive_house.c). */
bool naive_lets_go(const struct naive_world *w, const struct naive *s, int m, const struct bw_retention *r,
                   uint32_t in_flight, int64_t now_ms);
bool naive_evict(const struct bwi_local_copy *copies, size_t count, const struct bwi_id *busy, size_t busy_count,
                 uint64_t need, uint64_t quota, uint64_t free_bytes, bool *ret);

#endif
