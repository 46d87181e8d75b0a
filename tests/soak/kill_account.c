/* SPDX-License-Identifier: Apache-2.0 */
/* What was told, and what follows from it. */
#include "kill_account.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void kill_violated(struct kill_account *a, const char *fmt, ...) {
    char text[sizeof a->message];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (!atomic_exchange(&a->violated, true)) memcpy(a->message, text, sizeof text);
    kill_tell(a, "VIOLATED: %s", text);
}

void kill_tell(struct kill_account *a, const char *fmt, ...) {
    char text[700];
    va_list ap;
    const int lead = snprintf(text, sizeof text, "[%d] ", (int)getpid());
    va_start(ap, fmt);
    (void)vsnprintf(text + lead, sizeof text - (size_t)lead - 1, fmt, ap);
    va_end(ap);
    const size_t n = strlen(text);
    text[n] = '\n';
    if (a->talk) {
        (void)fwrite(text, 1, n + 1, stdout);
        (void)fflush(stdout);
        return;
    }
    const unsigned at = atomic_fetch_add(&a->story_bytes, (unsigned)n + 1);
    if (at <= sizeof a->story - n - 1) memcpy(a->story + at, text, n + 1);
}

void kill_show_story(const struct kill_account *a) {
    const unsigned n = atomic_load(&a->story_bytes);
    (void)fwrite(a->story, 1, n < sizeof a->story ? n : sizeof a->story, stdout);
    (void)fflush(stdout);
}

static bool is_committed(const struct kill_told *t) {
    return atomic_load(&t->level) == BW_COMMITTED;
}

void kill_each_committed(const struct kill_account *a, unsigned launches,
                         void (*each)(void *user, const struct kill_told *t), void *user) {
    for (unsigned l = 0; l < launches; l++)
        for (unsigned r = 0; r < KILL_RANKS; r++)
            for (unsigned i = 0; i < KILL_SAVES; i++)
                if (is_committed(&a->launch[l].rank[r].told[i])) each(user, &a->launch[l].rank[r].told[i]);
}

const struct kill_launch *kill_launch_of(const struct kill_account *a, uint32_t attempt) {
    for (unsigned l = 0; l < KILL_LAUNCHES; l++)
        if (atomic_load(&a->launch[l].attempt) == attempt) return &a->launch[l];
    return NULL;
}

/* --- what a launch may go on from ---- */

struct floor {
    uint64_t step; /* meaningless while why is NULL */
    const char *id, *why;
};

static void raise_to(struct floor *f, uint64_t step, const char *id, const char *why) {
    if (f->why == NULL || step > f->step) *f = (struct floor){step, id, why};
}

static void raise_committed(void *user, const struct kill_told *t) {
    raise_to(user, t->step, t->id, "was told to be committed");
}

/* Whether all ranks were told, in time, that the i-th save of this launch is local, and nobody gave it up. */
static bool all_local(const struct kill_launch *l, unsigned i) {
    if (l->plan[i].fate != FATE_SAVED) return false;
    for (unsigned r = 0; r < KILL_RANKS; r++) {
        const struct kill_told *t = &l->rank[r].told[i];
        if (atomic_load(&t->level) < BW_LOCAL || t->late || strcmp(t->id, l->rank[0].told[i].id) != 0) return false;
    }
    return true;
}

void kill_judge_resumed(struct kill_account *a, unsigned launch, const struct bw_resumed *r) {
    struct floor f = {0, NULL, NULL};
    kill_each_committed(a, launch, raise_committed, &f);
    for (unsigned l = 0; l < launch; l++) {
        const struct kill_launch *x = &a->launch[l];
        for (unsigned i = 0; i < KILL_SAVES; i++)
            if (all_local(x, i)) raise_to(&f, x->rank[0].told[i].step, x->rank[0].told[i].id, "was local on all ranks");
        for (unsigned k = 0; k < KILL_RANKS; k++)
            if (atomic_load(&x->rank[k].opened) && x->rank[k].resumed.from_checkpoint)
                raise_to(&f, x->rank[k].resumed.step, x->rank[k].resumed.id, "was what an earlier launch went on from");
    }
    if (f.why == NULL) return;
    if (!r->from_checkpoint)
        kill_violated(a, "launch %u goes on from nothing, but %s %s", launch, f.id, f.why);
    else if (r->step < f.step || (r->step == f.step && strcmp(r->id, f.id) != 0))
        kill_violated(a, "launch %u goes on from %s, but %s %s", launch, r->id, f.id, f.why);
}
