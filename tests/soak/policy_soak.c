/* SPDX-License-Identifier: Apache-2.0 */
/* One run: a random history, and after each step of it the same questions to the library's rules and to the naive ones,
 * about what anybody may have heard of. */
#include "policy_twin.h"

#include "base/vec.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STEPS_FEWEST 60u
#define STEPS_MORE   140u
#define LONG_EVERY   4000u /* one run in so many registers until launch ids are forgotten */

static bool step(struct twin *t) {
    if (!twin_event(t) || !twin_same_answers(t, twin_entry(t), twin_naive(t))) return false;
    return !twin_chance(t, 40) || twin_room(t);
}

/* More launches than are remembered, each with its own id. */
static bool launch_often(struct twin *t) {
    for (int i = 0; i < (int)BWI_LAUNCHES_KEPT + 40; i++) {
        struct naive after = *twin_naive(t);
        char launch[BWI_NAME_BUF];
        struct bwi_entry next = {0};
        const struct naive_ask a = {.launch = t->next_launch++,
                                    .label = NOBODY,
                                    .target = NOBODY,
                                    .newer = NOBODY,
                                    .seen_set = after.attempt.set,
                                    .seen_number = after.attempt.number,
                                    .seen_nonce = after.attempt.nonce,
                                    .nonce = ++t->next_nonce,
                                    .world = 1,
                                    .groups = 1,
                                    .uuid = t->next_uuid};
        twin_name('l', a.launch, launch);
        const struct bwi_register r = {.run = "run",
                                       .job = "j0",
                                       .launch = launch,
                                       .label = "",
                                       .world = 1,
                                       .groups = 1,
                                       .nonce = a.nonce,
                                       .uuid = twin_uuid(a.uuid),
                                       .seen_set = a.seen_set,
                                       .seen_number = a.seen_number,
                                       .seen_nonce = a.seen_nonce};
        struct bwi_actor actor = {.head = twin_entry(t), .store = twin_uuid(t->store), .host = "node"};
        actor.head_sha.b[0] = actor.head != NULL;
        after.store = t->store;
        if (naive_register(&t->world, &after, &a) != bwi_policy_register(&actor, &r, &next, NULL))
            return twin_violated(t, "launch %d may not register, or may", i);
        if (!twin_same(t, &next, &after) || !twin_accept(t, &next, &after)) return false;
    }
    t->next_uuid++;
    return true;
}

static bool play(struct twin *t) {
    if (t->run->index % LONG_EVERY == 11 && !launch_often(t)) return false;
    const unsigned steps = STEPS_FEWEST + (unsigned)twin_random(t, STEPS_MORE);
    for (unsigned i = 0; i < steps; i++)
        if (!step(t)) return false;
    return true;
}

static bool run(struct soak_run *r, void **state) {
    struct twin *t = *state;
    if (t == NULL) *state = t = malloc(sizeof *t);
    if (t == NULL) return false;
    memset(t, 0, sizeof *t);
    t->run = r;
    t->rng = r->seed;
    t->store = 1;
    const bool held = play(t);
    for (unsigned i = 0; i < t->head_count; i++) bwi_entry_fini(&t->heads[i].entry);
    if (held && bwi_alloc_live() != 0) return twin_violated(t, "%zu allocations are left", (size_t)bwi_alloc_live());
    twin_tell(t, "%" PRIu64 " comparisons", t->checks);
    return held;
}

static void end(void *state) {
    free(state);
}

int main(int argc, char **argv) {
    const struct soak soak = {.name = "policy", .run = run, .end = end, .run_s_max = 60};
    return soak_main(&soak, argc, argv);
}
