/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing: damaged copies from a sound tier, a damaged newest entry by a new era, an archive by promotion. */
#include <string.h>

#include "api/catalog.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/commit.h"
#include "checkpoint/decide.h"
#include "checkpoint/mend.h"
#include "checkpoint/source.h"
#include "checkpoint/store_id.h"
#include "format/manifest.h"

#define DECIDE_PATIENCE_NS (60 * BWI_NS_PER_S)

/* --- copies -------------------------------------------------------------------------------------------------- */

static int mend_one(struct bw_catalog *c, const struct bwi_kept *k, bool dry, struct bwi_findings *f,
                    struct bw_error *err) {
    struct bwi_mend m = {.ctx = &c->host.ctx, .id = k->id, .manifest = k->manifest, .dry_run = dry, .findings = f};
    const size_t before = f->count;
    bwi_mend_start(&m, c->host.loop, NULL);
    int rc = bwi_block_on(&c->host, &m.task, err);
    bwi_mend_fini(&m);
    bwi_findings_sort(f, before);
    c->progress.done_items++;
    return rc;
}

static int mend_all(struct bw_catalog *c, const struct bwi_entry *e, bool dry, struct bwi_findings *f,
                    struct bw_error *err) {
    int rc = 0;
    c->progress.total_items = e->live_count + e->shelved_count;
    for (size_t i = 0; rc == 0 && i < e->live_count; i++) rc = mend_one(c, &e->live[i], dry, f, err);
    for (size_t i = 0; rc == 0 && i < e->shelved_count; i++) rc = mend_one(c, &e->shelved[i], dry, f, err);
    return rc;
}

/* --- history ------------------------------------------------------------------------------------------------- */

struct repair {
    struct bw_catalog *c;
    struct bwi_repair r;
    struct bwi_id *gone;
    struct bwi_kept *found;
    size_t found_cap;
    bool dry;
    uint32_t sound_era; /* of the entry that all this was found on */
    uint64_t sound_n;
};

static int repair_next(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct repair *p = user;
    bool moved = !a->head || a->head->era != p->sound_era || a->head->n != p->sound_n;
    return moved ? 1 : bwi_policy_repair(a, &p->r, ret, err);
}

/* 1: the authority has a summary of it; 0: none, so it was swept, or has begun to be. */
static int has_summaries(struct repair *p, const struct bwi_id *id, struct bw_error *err) {
    struct bwi_store_names names = {0};
    struct bwi_key prefix = bwi_key_groups(p->c->host.ctx.run, id);
    int rc = bwi_block_list(&p->c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    if (rc == 0) rc = names.len > 0;
    bwi_store_names_fini(&names);
    return rc;
}

/* 1: all that it refers to is there; 0: the first that is not is *ret. */
static int has_refs(struct repair *p, const struct bwi_kept *k, struct bwi_id *ret, struct bw_error *err) {
    int rc = 1;
    for (uint32_t i = 0; rc == 1 && i < k->ref_count; i++) {
        rc = has_summaries(p, &k->refs[i], err);
        if (rc == 0) *ret = k->refs[i];
    }
    return rc;
}

static int has_manifest(struct repair *p, const struct bwi_kept *k, struct bw_error *err) {
    struct bwi_key key = bwi_key_manifest(p->c->host.ctx.run, &k->id, &k->manifest);
    uint64_t bytes;
    struct bw_error e = BW_ERROR_INIT;
    int rc = bwi_block_head(&p->c->host, BWI_TIER_REMOTE, key.s, &bytes, &e);
    if (rc == 0 || rc == BW_E_NOTFOUND || rc == BW_E_CORRUPT) return rc != BW_E_NOTFOUND;
    return bwi_error_copy(err, &e);
}

/* A sweep takes the summaries first and the manifest last, so both are asked for. 0: it is there; 1: gone, and why. */
static int is_gone(struct repair *p, const struct bwi_kept *k, char why[96], struct bw_error *err) {
    struct bwi_id ref;
    char text[BWI_ID_TEXT_BYTES];
    int rc = has_manifest(p, k, err);
    if (rc == 0) bwi_format(why, 96, "its manifest is gone");
    if (rc == 1) {
        rc = has_summaries(p, &k->id, err);
        if (rc == 0) bwi_format(why, 96, "its summaries are gone");
    }
    if (rc == 1) {
        rc = has_refs(p, k, &ref, err);
        if (rc == 0) {
            bwi_id_text(&ref, text);
            bwi_format(why, 96, "it refers to %s, which is gone", text);
        }
    }
    return rc < 0 ? rc : rc == 0;
}

/* A live or shelved checkpoint that cannot be restored leaves the lists. Damage deeper down is left to verify and to
 * readers. */
static int find_gone(struct repair *p, const struct bwi_kept *list, size_t count, struct bwi_findings *f,
                     struct bw_error *err) {
    for (size_t i = 0; i < count; i++) {
        char why[96];
        int rc = is_gone(p, &list[i], why, err);
        if (rc < 0) return rc;
        if (rc == 0) continue;
        struct bwi_key key = bwi_key_manifest(p->c->host.ctx.run, &list[i].id, &list[i].manifest);
        p->gone[p->r.gone_count++] = list[i].id;
        bwi_findings_add(f, 2, BW_E_CORRUPT, "remote", &list[i].id, key.s, "", "lost: %s", why);
    }
    return 0;
}

static int keep_found(struct repair *p, const struct bwi_kept *k, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_id ref;
    char text[BWI_ID_TEXT_BYTES];
    int rc = has_refs(p, k, &ref, err);
    if (rc < 0) return rc;
    if (rc == 0) {
        bwi_id_text(&ref, text);
        bwi_findings_add(f, 1, BW_E_CORRUPT, "remote", &k->id, "checkpoint", "",
                         "not taken up: it refers to %s, which is gone", text);
        return 0;
    }
    void *grown = p->found;
    if (!bwi_vec_reserve(&grown, &p->found_cap, p->r.found_count + 1, sizeof *p->found))
        rc = bwi_error_nomem(err, sizeof *p->found, "repair");
    p->found = grown;
    if (rc < 0) return rc;
    p->found[p->r.found_count++] = *k;
    return 0;
}

/* Nobody can have committed that. Any other failure says nothing about it. */
static bool never_committed(int status) {
    return bwi_is_damage(status) || status == BW_E_FOREIGN || status == BW_E_LIMIT;
}

/* Whatever the sound entry lets be committed, and is complete, is found: the damaged entry may have committed it. Its
 * manifest is what a commit would build. Where that cannot be found out no era begins: it would be without it for ever.
 */
static int add_found(struct repair *p, const struct bwi_entry *e, const struct bwi_id *id, struct bwi_findings *f,
                     struct bw_error *err) {
    struct bwi_commit m = {.ctx = &p->c->host.ctx,
                           .id = *id,
                           .groups = e->attempt.groups,
                           .world = e->attempt.world,
                           .lineage_of = e,
                           .prepare_only = true,
                           .dry_run = p->dry,
                           .deadline_ns = BWI_NEVER};
    bool from = e->from.set && e->from.open && bwi_id_eq(&e->from.id, id);
    if (from) {
        m.groups = e->from.groups;
        m.world = e->from.world;
    }
    struct bw_error me = BW_ERROR_INIT;
    bwi_commit_start(&m, p->c->host.loop, NULL);
    int rc = bwi_block_on(&p->c->host, &m.task, &me);
    if (rc < 0 && !never_committed(rc)) {
        bwi_commit_fini(&m);
        (void)bwi_error_wrap(&me, "the damaged entry may have committed it");
        return bwi_error_copy(err, &me);
    }
    if (rc < 0) bwi_findings_add(f, 1, rc, "remote", id, "checkpoint", "", "not taken up: %s", me.message);
    rc = rc == 0 && m.result == BWI_COMMIT_DONE ? keep_found(p, &m.kept, f, err) : 0;
    bwi_commit_fini(&m);
    return rc;
}

/* What became of all that is complete, by the next era's first entry. */
static void tell_found(const struct repair *p, const struct bwi_entry *next, struct bwi_findings *f) {
    for (size_t i = 0; i < p->r.found_count; i++) {
        const struct bwi_id *id = &p->found[i].id;
        if (!bwi_policy_find_kept(next, id))
            bwi_findings_add(f, 1, BW_E_ABORTED, "remote", id, "checkpoint", "",
                             "not taken up: it refers to a checkpoint that was retired or is lost");
        else
            bwi_findings_add(f, 0, 0, "remote", id, "checkpoint", "",
                             p->dry ? "complete: it would become live" : "complete: it becomes live");
    }
}

static int find_complete(struct repair *p, const struct bwi_entry *e, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_store_names names = {0};
    struct bwi_key prefix = bwi_key_checkpoints(p->c->host.ctx.run);
    int rc = bwi_block_list(&p->c->host, BWI_TIER_REMOTE, prefix.s, &names, err);
    for (size_t i = 0; rc == 0 && i < names.len; i++) {
        struct bwi_id id;
        size_t n = strlen(names.name[i]);
        if (n < 2 || names.name[i][n - 1] != '/' || !bwi_id_parse(bwi_span(names.name[i], n - 1), &id)) continue;
        if (bwi_policy_fate(e, &id) == BWI_FATE_COMMITTABLE) rc = add_found(p, e, &id, f, err);
    }
    bwi_store_names_fini(&names);
    return rc;
}

/* Whoever read the log before its newest entry was damaged would create the next one in the old era, and tell others of
 * a decision that the new era does not know. So that name is taken first: 1 if it was not free. From here on nothing in
 * the old era is decided any more, so what is complete now is all that can have been committed in it. */
static int end_era(struct bw_catalog *c, const struct bwi_head *head, struct bw_error *err) {
    struct bwi_era_end end = {.era = head->damaged_era, .n = head->damaged_n + 1};
    struct bwi_buf bytes = {0};
    bwi_format(end.run, sizeof end.run, "%s", c->host.ctx.run);
    struct bwi_key key = bwi_key_entry(end.run, end.era, end.n);
    int rc = bwi_era_end_encode(&end, &bytes, err);
    if (rc == 0) rc = bwi_block_do(&c->host, BWI_TIER_REMOTE, BWI_STORE_CREATE, key.s, bwi_buf_span(&bytes), NULL, err);
    bwi_buf_fini(&bytes);
    if (rc != BW_E_EXISTS) return rc;
    bw_error_clear(err);
    return 1;
}

static int begin(struct repair *p, const struct bwi_entry *e, const char *damaged, struct bwi_findings *f,
                 struct bw_error *err) {
    struct bwi_env *env = p->c->host.ctx.env;
    struct bwi_decide d = {.ctx = &p->c->host.ctx,
                           .next = repair_next,
                           .user = p,
                           .over_damage = true,
                           .deadline_ns = env->now_ns(env) + DECIDE_PATIENCE_NS};
    bwi_decide_start(&d, p->c->host.loop, NULL);
    int rc = bwi_block_on(&p->c->host, &d.task, err);
    if (rc == 0 && !d.created)
        bwi_findings_add(f, 1, 0, "remote", NULL, damaged, "", "the history has moved meanwhile: nothing was done");
    if (rc == 0 && d.created) {
        tell_found(p, &d.head.entry, f);
        bwi_findings_add(f, 0, 0, "remote", NULL, d.key.s, "", "era %u has begun from entry %06u.%020llu",
                         d.head.entry.era, e->era, (unsigned long long)e->n);
    }
    bwi_decide_fini(&d);
    return rc;
}

static int would_begin(struct repair *p, const struct bwi_entry *e, const char *damaged, struct bwi_findings *f,
                       struct bw_error *err) {
    const struct bwi_actor a = {.head = e, .host = p->c->host.ctx.host};
    struct bwi_entry next = {0};
    int rc = bwi_policy_repair(&a, &p->r, &next, err);
    if (rc < 0) return rc;
    tell_found(p, &next, f);
    bwi_findings_add(f, 0, 0, "remote", NULL, damaged, "", "era %u would begin from entry %06u.%020llu", next.era,
                     e->era, (unsigned long long)e->n);
    bwi_entry_fini(&next);
    return 0;
}

/* `found` is the head as it was found, before this repair ended the era. */
static int repair_era(struct bw_catalog *c, const struct bwi_head *found, const struct bwi_head *head, bool dry,
                      struct bwi_findings *f, struct bw_error *err) {
    struct bwi_env *env = c->host.ctx.env;
    const struct bwi_entry *e = &head->entry;
    struct repair p = {.c = c,
                       .dry = dry,
                       .sound_era = e->era,
                       .sound_n = e->n,
                       .r = {.era = head->damaged_era,
                             .n = head->damaged_n,
                             .damaged_n = found->damaged_n,
                             .uuid = bwi_uuid_random(env),
                             .nonce = (uint32_t)env->random_u64(env)}};
    struct bwi_key key = bwi_key_entry(c->host.ctx.run, found->damaged_era, found->damaged_n);
    bwi_findings_add(f, dry ? 2 : 1, BW_E_CORRUPT, "remote", NULL, key.s, "", "the newest entry is damaged: %s",
                     found->damage);
    p.gone = bwi_calloc(e->live_count + e->shelved_count + 1, sizeof *p.gone);
    int rc = p.gone ? 0 : bwi_error_nomem(err, e->live_count * sizeof *p.gone, "repair");
    if (rc == 0) rc = find_gone(&p, e->live, e->live_count, f, err);
    if (rc == 0) rc = find_gone(&p, e->shelved, e->shelved_count, f, err);
    if (rc == 0) rc = find_complete(&p, e, f, err);
    p.r.gone = p.gone;
    p.r.found = p.found;
    if (rc == 0) rc = dry ? would_begin(&p, e, key.s, f, err) : begin(&p, e, key.s, f, err);
    bwi_free(p.gone);
    bwi_free(p.found);
    return rc;
}

/* In two parts: the era ends, and then, on the head as it is with that end, the next one begins. A repair that died
 * between them is gone on with by the next one. */
static int repair_history(struct bw_catalog *c, const struct bwi_head *head, bool dry, struct bwi_findings *f,
                          struct bw_error *err) {
    if (dry || head->ended) return repair_era(c, head, head, dry, f, err);
    struct bwi_head now = {0};
    int rc = end_era(c, head, err);
    if (rc == 0) rc = bwi_catalog_head(c, &now, err);
    if (rc == 0 && now.ended) rc = repair_era(c, head, &now, false, f, err);
    bwi_head_fini(&now);
    if (rc != 1) return rc;
    struct bwi_key key = bwi_key_entry(c->host.ctx.run, head->damaged_era, head->damaged_n + 1);
    bwi_findings_add(f, 1, 0, "remote", NULL, key.s, "", "the history has moved meanwhile: nothing was done");
    return 0;
}

/* --- promotion ----------------------------------------------------------------------------------------------- */

static int promote_next(void *user, const struct bwi_actor *a, struct bwi_entry *ret, struct bw_error *err) {
    struct bw_catalog *c = user;
    struct bwi_env *env = c->host.ctx.env;
    struct bwi_uuid uuid = bwi_uuid_random(env);
    if (!a->head) return 1;
    return bwi_policy_promote(a, &uuid, (uint32_t)env->random_u64(env), ret, err);
}

static int promote(struct bw_catalog *c, bool dry, struct bwi_findings *f, struct bw_error *err) {
    struct bwi_env *env = c->host.ctx.env;
    if (dry) {
        bwi_findings_add(f, 0, 0, "remote", NULL, "history", "",
                         "this store is an archive; it would decide from now on");
        return 0;
    }
    struct bwi_decide d = {.ctx = &c->host.ctx,
                           .next = promote_next,
                           .user = c,
                           .over_archive = true,
                           .deadline_ns = env->now_ns(env) + DECIDE_PATIENCE_NS};
    bwi_decide_start(&d, c->host.loop, NULL);
    int rc = bwi_block_on(&c->host, &d.task, err);
    if (rc == 0 && d.created)
        bwi_findings_add(f, 0, 0, "remote", NULL, d.key.s, "", "this store decides from now on, in era %u",
                         d.head.entry.era);
    bwi_decide_fini(&d);
    return rc;
}

/* --- what stays -------------------------------------------------------------------------------------------------- */

/* An archive decides nothing, so it begins no era either; and what it holds is a copy. */
static void say_archive(struct bw_catalog *c, const struct bwi_head *head, struct bwi_findings *f) {
    const struct bwi_key key = bwi_key_entry(c->host.ctx.run, head->damaged_era, head->damaged_n);
    bwi_findings_add(f, 2, BW_E_CORRUPT, "remote", NULL, key.s, "",
                     "the newest entry of this archive is damaged: copy it again from the store that decides; if there "
                     "is none any more, remove it here and promote: %s",
                     head->damage);
}

static const char *why_it_stays(uint32_t severity, bool archive) {
    if (severity == 1) return "a sweep takes it";
    return archive ? "copy it again from the store that decides" : "no other copy; newer entries say all that counts";
}

/* Damage of the log and of launches that nothing here mends; that of the newest entry has been told. */
static int say_not(struct bw_catalog *c, const struct bwi_head *head, struct bwi_findings *f, struct bw_error *err) {
    const bool archive = bwi_catalog_is_archive(c, head);
    const struct bwi_key newest = bwi_key_entry(c->host.ctx.run, head->damaged_era, head->damaged_n);
    struct bwi_findings found = {0};
    int rc = bwi_catalog_verify_log(c, head, &found, err);
    if (rc == 0) rc = bwi_catalog_verify_launches(c, &found, err);
    for (size_t i = 0; rc == 0 && i < found.count; i++) {
        const struct bw_finding *x = &found.list[i];
        const bool entry = strstr(x->object, "/history/") != NULL;
        if (x->severity == 0 || (entry && x->severity == 1)) continue; /* an era was begun without that one */
        if (head->damaged && strcmp(x->object, newest.s) == 0) continue;
        char text[BWI_FINDING_TEXT_BYTES];
        bwi_finding_not_mended(x->object, x->message, why_it_stays(x->severity, archive), text);
        bwi_findings_add(f, x->severity, x->status, x->tier, NULL, x->object, "", "%s", text);
    }
    if (found.failed) rc = bwi_error_nomem(err, sizeof *found.list, "list of findings");
    bwi_findings_fini(&found);
    return rc;
}

static int repair(struct bw_catalog *c, const struct bwi_catalog_args *a, struct bw_list **ret_list,
                  struct bw_error *err) {
    const uint32_t what = a->flags;
    struct bwi_head head = {0}, now = {0};
    struct bwi_findings f = {0};
    int rc = bwi_catalog_head(c, &head, err);
    if (rc < 0) return rc;
    const bool archive = bwi_catalog_is_archive(c, &head);
    if (head.damaged && archive) say_archive(c, &head, &f);
    if (head.damaged && !archive) rc = repair_history(c, &head, !(what & BW_REPAIR_HISTORY), &f, err);
    if (!head.damaged && archive) rc = promote(c, !(what & BW_REPAIR_PROMOTE), &f, err);
    if (rc == 0) rc = bwi_catalog_head(c, &now, err); /* which a new era may have changed */
    if (rc == 0) rc = say_not(c, &now, &f, err);
    if (rc == 0) rc = mend_all(c, &now.entry, !(what & BW_REPAIR_COPIES), &f, err);
    if (rc == 0 && f.count == 0) bwi_findings_add(&f, 0, 0, "remote", NULL, "history", "", "nothing is to be repaired");
    bwi_head_fini(&head);
    bwi_head_fini(&now);
    if (rc == 0) return bwi_list_of_findings(&f, ret_list, err);
    bwi_findings_fini(&f);
    return rc;
}

int bw_catalog_repair(struct bw_catalog *catalog, const char *run, uint32_t what, struct bw_list **ret_list,
                      struct bw_error *err) {
    const uint32_t known = BW_REPAIR_COPIES | BW_REPAIR_HISTORY | BW_REPAIR_PROMOTE;
    const struct bwi_catalog_args a = {.run = run, .flags = what, .changes = what != 0};
    int rc = bwi_catalog_check(catalog, run, ret_list, err);
    if (rc == 0 && (what & ~known)) rc = bwi_error_set(err, BW_E_INVALID, "what has unknown bits: %#x", what & ~known);
    return rc == 0 ? bwi_catalog_call(catalog, repair, &a, ret_list, err) : rc;
}
