/* SPDX-License-Identifier: Apache-2.0 */
/* What was told must stay true, whatever the disks have forgotten since:
 *
 *   - COMMITTED survives everything: it is in the log, and the newest never goes back behind it;
 *   - LOCAL survives a crash of the process and of the node, REMOTE the loss of the node. A checkpoint of which every
 *     rank was told one of them is gone on from by the next launch, unless something newer is;
 *   - an attempt that a rank was told of, and what it was told to go on from, are not taken back;
 *   - what somebody was told is dead never comes to life. */
#include "lost.h"

#include "base/text.h"
#include "format/history.h"
#include "test.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct id_text {
    char s[BWI_ID_TEXT_BYTES];
};

static struct id_text text_of(const struct bwi_id *id) {
    struct id_text t;
    bwi_id_text(id, t.s);
    return t;
}

static struct lost_id *account_of(struct lost *x, const struct bwi_id *id) {
    struct lost_account *a = &x->account;
    for (unsigned i = 0; i < a->count; i++)
        if (bwi_id_eq(&a->ids[i].id, id)) return &a->ids[i];
    assert_true(a->count < LOST_IDS);
    a->ids[a->count] = (struct lost_id){.id = *id, .held_ns = BWI_NEVER};
    return &a->ids[a->count++];
}

/* Every rank of it has a word that binds. */
static bool is_held(const struct lost_id *a) {
    const uint32_t all = (UINT32_C(1) << a->world) - 1;
    return a->world > 0 && ((a->local | a->remote) & all) == all;
}

/* Ends that say for certain that the save will never be live. */
static bool is_certain(int status) {
    return status != BW_E_UNKNOWN && status != BW_E_LAUNCH_LOST && status != BW_E_SUPERSEDED && status != BW_E_TIMEOUT;
}

/* The worst moment: just after somebody was told. */
static void maybe_strike(struct lost *x, struct part *p, unsigned percent) {
    if (x->s.quiet || x->blows_left == 0 || !system_chance(&x->s, percent)) return;
    x->blows_left--;
    const enum blow blow = system_chance(&x->s, 40) ? BLOW_ALL : (enum blow)system_random(&x->s, BLOWS);
    lost_strike(x, blow, p->node, p);
}

void lost_told(struct system *s, struct part *p, const struct bwi_save *v, enum bw_level level, int status) {
    struct lost *x = lost_of(s);
    struct lost_id *a = account_of(x, &v->id);
    const uint32_t rank = UINT32_C(1) << v->session->cfg.rank;
    a->world = v->session->cfg.world;
    if (level != BW_LEVEL_NONE) system_tell(s, p, "is told %s of %s", bw_level_name((int)level), text_of(&v->id).s);
    x->account.levels += level > BW_CAPTURED;
    if (level == BW_LOCAL) a->local |= rank;
    if (level == BW_REMOTE) a->remote |= rank;
    if (is_held(a) && a->held_ns == BWI_NEVER) a->held_ns = s->env.now;
    if (level == BW_COMMITTED || (level == BW_LEVEL_NONE && status == 0)) a->committed = true;
    if (level == BW_LEVEL_NONE && status != 0 && is_certain(status)) {
        if (a->committed) violated(s, "%s was told both committed and %s", text_of(&v->id).s, bw_status_name(status));
        a->dead = true;
    }
    if (level > BW_CAPTURED) maybe_strike(x, p, level == BW_COMMITTED ? 40 : 6);
}

void lost_destroyed(struct lost *x, unsigned node) {
    x->destroyed_ns = x->s.env.now;
    for (unsigned i = 0; i < x->account.count; i++) {
        struct lost_id *a = &x->account.ids[i];
        for (uint32_t r = node; r < 32; r += x->s.nodes) a->local &= ~(UINT32_C(1) << r);
        a->resumed = a->resumed && (a->remote == (UINT32_C(1) << a->world) - 1 || a->committed);
    }
}

/* --- a launch has opened ---- */

/* What is told while a launch opens comes too late for it. */
static uint64_t started_ns(const struct lost *x, const struct bwi_session *o) {
    for (unsigned i = 0; i < x->s.launch_count; i++)
        if (strcmp(x->s.launches[i].launch, o->cfg.launch) == 0) return x->launch_ns[i];
    return 0;
}

static void check_attempt(struct lost *x, const struct bwi_session *o) {
    const struct lost_account *a = &x->account;
    const bool is_other = o->attempt != a->attempt || o->nonce != a->nonce;
    if (!a->opened || !is_other || started_ns(x, o) <= a->opened_ns) return;
    if (o->attempt <= a->attempt)
        violated(&x->s, "attempt %u was opened, and attempt %u of another launch comes after it", a->attempt,
                 o->attempt);
}

/* Must the launch that follows on the attempt of `a` go on from it, or from something newer? */
static bool binds(const struct lost *x, const struct lost_id *a, const struct bwi_session *o) {
    const bool is_next = x->account.opened && o->attempt == x->account.attempt + 1;
    if (a->committed) return true;
    if (a->dead || x->failing_syncs || !is_next) return false;
    if (a->resumed) return true;
    return is_held(a) && a->held_ns < started_ns(x, o) && a->id.attempt == x->account.attempt &&
           a->id.nonce == x->account.nonce;
}

static void check_resume(struct lost *x, const struct bwi_session *o) {
    const struct bwi_resume *m = &o->resume;
    for (unsigned i = 0; i < x->account.count; i++) {
        const struct lost_id *a = &x->account.ids[i];
        if (!binds(x, a, o)) continue;
        const char *what = a->committed ? "committed"
                           : a->resumed ? "what a launch went on from"
                                        : "held by every rank";
        if (!m->from_checkpoint || m->id.step < a->id.step)
            violated(&x->s, "%s was %s, and attempt %u goes on from %s", text_of(&a->id).s, what, o->attempt,
                     m->from_checkpoint ? text_of(&m->id).s : "nothing");
        else if (m->id.step == a->id.step && a->committed && !bwi_id_eq(&m->id, &a->id))
            violated(&x->s, "%s was committed, and attempt %u goes on from %s", text_of(&a->id).s, o->attempt,
                     text_of(&m->id).s);
    }
}

void lost_opened(struct system *s, struct part *p, const struct bwi_session *o) {
    struct lost *x = lost_of(s);
    struct lost_account *a = &x->account;
    check_attempt(x, o);
    if (a->opened && o->attempt <= a->attempt) return; /* another rank of it has, or the launch has been beaten */
    check_resume(x, o);
    a->opened = true;
    a->opened_ns = s->env.now;
    a->attempt = o->attempt;
    a->nonce = o->nonce;
    for (unsigned i = 0; i < a->count; i++) a->ids[i].resumed = false;
    if (!o->resume.from_checkpoint) {
        maybe_strike(x, p, 3);
        return;
    }
    struct lost_id *from = account_of(x, &o->resume.id);
    if (from->dead) violated(s, "%s was told dead, and attempt %u goes on from it", text_of(&from->id).s, o->attempt);
    from->world = o->resume.world;
    from->resumed = x->destroyed_ns < started_ns(x, o); /* what it chose may have been on that node */
    if (o->resume.committed) from->committed = true;
    maybe_strike(x, p, 15);
}

/* --- the log ---- */

struct newest {
    char name[64];
};

static void look_for_newest(void *user, const char *path, uint64_t bytes) {
    struct newest *n = user;
    static const char history[] = "bw/runs/" LOST_RUN "/history/";
    (void)bytes;
    if (strncmp(path, history, sizeof history - 1) != 0) return;
    const char *name = path + sizeof history - 1;
    if (name[0] != '.' && strcmp(name, n->name) > 0) bwi_format(n->name, sizeof n->name, "%s", name);
}

bool lost_read_head(struct lost *x) {
    struct oracle *o = &x->s.oracle;
    struct newest newest = {""};
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_entry e = {0};
    char path[256];
    size_t bytes = 0;
    disk_each(x->remote, look_for_newest, &newest);
    if (newest.name[0] == '\0') return false;
    bwi_format(path, sizeof path, "bw/runs/" LOST_RUN "/history/%s", newest.name);
    const uint8_t *text = disk_peek(x->remote, path, &bytes);
    if (bwi_entry_decode(bwi_span(text, bytes), &e, &err) < 0) {
        violated(&x->s, "the newest entry %s cannot be read: %s", newest.name, err.message);
        return false;
    }
    bwi_entry_fini(&o->head);
    o->head = e;
    return true;
}

static const struct bwi_kept *live_in(const struct bwi_entry *e, const struct bwi_id *id) {
    for (size_t i = 0; i < e->live_count; i++)
        if (bwi_id_eq(&e->live[i].id, id)) return &e->live[i];
    return NULL;
}

void lost_check_history(struct lost *x) {
    const struct bwi_entry *e = &x->s.oracle.head;
    const bool there = lost_read_head(x);
    for (unsigned i = 0; i < x->account.count; i++) {
        const struct lost_id *a = &x->account.ids[i];
        const bool live = there && live_in(e, &a->id) != NULL;
        const bool newer = there && e->live_count > 0 && e->live[e->live_count - 1].id.step > a->id.step;
        if (a->committed && !live && !newer) violated(&x->s, "%s was committed and is lost", text_of(&a->id).s);
        if (a->committed && !live && x->s.retention.keep_last == 0 && !x->s.retires)
            violated(&x->s, "%s was committed and nobody retired it, but it is gone", text_of(&a->id).s);
        if (a->dead && live) violated(&x->s, "%s was told dead and is live", text_of(&a->id).s);
    }
}

/* --- what lies around ---- */

static void check_file(void *user, const char *path, uint64_t bytes) {
    struct lost *x = user;
    const char *name = strrchr(path, '/');
    (void)bytes;
    if (strncmp(path, "bw/", 3) != 0 || path[strlen(path) - 1] == '/') return; /* an empty directory costs nothing */
    if (name[1] == '.') {
        x->hidden += strcmp(name, "/.lock") != 0;
        return;
    }
    if (!oracle_may_lie(&x->s.oracle, path + 3)) violated(&x->s, "left over after all: %s", path + 3);
}

void lost_check_leftovers(struct lost *x) {
    disk_each(x->remote, check_file, x);
    for (unsigned n = 0; n < x->s.nodes; n++) disk_each(x->local[n], check_file, x);
}
