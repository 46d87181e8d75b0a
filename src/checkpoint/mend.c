/* SPDX-License-Identifier: Apache-2.0 */
/* Mending a checkpoint. The manifest comes first, for everything else is held against it; then what verify finds, group
 * by group; what was replaced is verified again, which may bring up more; then the index; last of all the marks of
 * groups that are sound now. */
#include "checkpoint/mend.h"
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/mend_private.h"
#include "checkpoint/names.h"
#include <inttypes.h>
#include <stdlib.h>

#define ROUNDS 4u /* looks at the same groups. Metadata, then packs; once more for what damages while it is mended */

enum mend_state {
    MEND_MANIFEST,
    MEND_MANIFEST_READ,
    MEND_COUNT, /* groups, where no manifest tells */
    MEND_COUNTED,
    MEND_BUILT,
    MEND_MANIFEST_PUT,
    MEND_VERIFY,
    MEND_VERIFIED,
    MEND_GROUP,
    MEND_GROUP_DONE,
    MEND_ROUND,
    MEND_INDEX,
    MEND_INDEX_READ,
    MEND_INDEX_PUT,
    MEND_MARKS,
    MEND_MARK,
    MEND_MARK_GONE,
    MEND_END,
};

struct bwi_mend_work {
    struct bwi_call call;
    /* the manifest */
    struct bw_error manifest_why; /* what is wrong with it; status 0: nothing */
    bool manifest_set;            /* it is known what it says */
    struct bwi_manifest manifest;
    struct bwi_buf manifest_bytes;
    bool remade; /* it was damaged, so verify has not seen what follows from it */
    uint32_t groups;
    enum bwi_tier counting;
    bool building; /* for the index, or for the manifest */
    bool built;
    struct bwi_mend_build build;
    struct bw_error build_why; /* why it could not be made */
    /* groups */
    struct bwi_verify verify;
    struct bwi_findings found;
    struct bwi_mend_objects objects;
    size_t at, run;
    struct bwi_mend_group group;
    unsigned round;
    uint32_t *anew; /* to be verified again, ascending */
    size_t anew_count, anew_cap;
    /* index */
    struct bw_error index_why;
    /* marks */
    uint32_t *unsound; /* groups with damage that stays, or that could not be looked at */
    size_t unsound_count, unsound_cap;
    bool all_unsound; /* and it is not known of which group */
    struct bwi_store_names marks;
    size_t mark;
};

static enum bwi_step go(struct bwi_mend *m, enum mend_state to) {
    m->state = (int)to;
    return BWI_STEP_AGAIN;
}

static enum bwi_step fail(struct bwi_mend *m, const struct bw_error *e) {
    (void)bwi_error_copy(&m->task.error, e);
    return go(m, MEND_END);
}

static enum bwi_step nomem(struct bwi_mend *m, size_t bytes) {
    (void)bwi_error_nomem(&m->task.error, bytes, "mending a checkpoint");
    return go(m, MEND_END);
}

static bool is_fatal(int status) {
    return status == BW_E_NOMEM || status == BW_E_CANCELLED;
}

/* What cannot be looked at now may be sound: nothing more is done about this checkpoint, and others have their turn. */
static enum bwi_step leave(struct bwi_mend *m, const char *key, const struct bw_error *e) {
    if (is_fatal(e->status)) return fail(m, e);
    bwi_findings_add(m->findings, 2, e->status, bwi_tier_name(BWI_TIER_REMOTE), &m->id, key, NULL, "%s", e->message);
    return go(m, MEND_END);
}

static struct bwi_store *authority(const struct bwi_mend *m) {
    return m->ctx->tier[BWI_TIER_REMOTE];
}

/* ---- what is said ---- */

/* An object of the whole checkpoint is mended, or would be, or is lost. */
static void say_whole(struct bwi_mend *m, const char *key, const struct bw_error *why, const struct bw_error *lost) {
    const char *tier = bwi_tier_name(BWI_TIER_REMOTE);
    char text[BWI_FINDING_TEXT_BYTES];
    if (lost != NULL) {
        m->lost++;
        bwi_finding_not_mended(key, why->message, lost->message, text);
        bwi_findings_add(m->findings, 2, why->status, tier, &m->id, key, NULL, "%s", text);
        return;
    }
    m->mended++;
    bwi_finding_about(key, why->message, text);
    bwi_findings_add(m->findings, m->dry_run ? 1 : 0, m->dry_run ? why->status : 0, tier, &m->id, key, NULL,
                     "%s from the summaries and layouts: %s", m->dry_run ? "would be made again" : "made again", text);
}

static void say_lost(struct bwi_mend *m, const struct bwi_mend_object *o) {
    m->lost++;
    for (size_t i = 0; i < o->findings; i++) {
        const struct bw_finding *f = &m->w->found.list[o->finding + i];
        char text[BWI_FINDING_TEXT_BYTES];
        bwi_finding_not_mended(f->object, f->message, o->why.message, text);
        bwi_findings_add(m->findings, 2, f->status, f->tier, &m->id, f->object, f->tensor, "%s", text);
    }
}

static void say_mended(struct bwi_mend *m, const struct bwi_mend_object *o) {
    const struct bw_finding *f = &m->w->found.list[o->finding];
    const enum bwi_tier from = o->tier == BWI_TIER_LOCAL ? BWI_TIER_REMOTE : BWI_TIER_LOCAL;
    char text[BWI_FINDING_TEXT_BYTES];
    m->mended++;
    bwi_finding_about(f->object, f->message, text);
    bwi_findings_add(m->findings, m->dry_run ? 1 : 0, m->dry_run ? f->status : 0, f->tier, &m->id, f->object, NULL,
                     "%s from the %s tier: %s", m->dry_run ? "would be mended" : "mended", bwi_tier_name(from), text);
}

static bool add_group(uint32_t **list, size_t *count, size_t *cap, uint32_t group) {
    if (*count > 0 && (*list)[*count - 1] == group) return true;
    if (!bwi_vec_reserve((void **)list, cap, *count + 1, sizeof **list)) return false;
    (*list)[(*count)++] = group;
    return true;
}

static bool set_unsound(struct bwi_mend *m, const struct bwi_id *id, uint32_t group) {
    struct bwi_mend_work *w = m->w;
    if (group == BWI_MEND_NO_GROUP || !bwi_id_eq(id, &m->id)) {
        w->all_unsound = true;
        return true;
    }
    return add_group(&w->unsound, &w->unsound_count, &w->unsound_cap, group);
}

/* ---- the manifest ---- */

static enum bwi_step mend_manifest(struct bwi_mend *m) {
    const struct bwi_key key = bwi_key_manifest(m->ctx->run, &m->id, &m->manifest);
    bwi_call_get(&m->w->call, &m->task, authority(m), key.s, BWI_MANIFEST_BYTES_MAX);
    return go(m, MEND_MANIFEST_READ);
}

/* Takes the bytes of a manifest over if they are those that the history names. */
static int take_manifest(struct bwi_mend *m, struct bwi_buf *bytes, struct bw_error *err) {
    struct bwi_mend_work *w = m->w;
    const int rc = bwi_manifest_take(bwi_buf_span(bytes), &m->manifest, &m->id, &w->manifest, err);
    if (rc < 0) return rc;
    w->manifest_set = true;
    w->manifest_bytes = *bytes;
    *bytes = (struct bwi_buf){0};
    return 0;
}

static enum bwi_step mend_manifest_read(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    struct bw_error e = w->call.op.error;
    if (e.status == 0) (void)take_manifest(m, &w->call.op.body, &e);
    if (e.status == 0) return go(m, MEND_VERIFY);
    if (!bwi_is_damage(e.status)) return leave(m, w->call.key.s, &e);
    w->manifest_why = e;
    return go(m, MEND_COUNT);
}

static enum bwi_step count_in(struct bwi_mend *m, enum bwi_tier t) {
    const struct bwi_key groups = bwi_key_groups(m->ctx->run, &m->id);
    m->w->counting = t;
    bwi_call_list(&m->w->call, &m->task, m->ctx->tier[t], groups.s, NULL);
    return go(m, MEND_COUNTED);
}

static enum bwi_step mend_count(struct bwi_mend *m) {
    m->w->remade = true;
    return count_in(m, BWI_TIER_REMOTE);
}

static enum bwi_step start_build(struct bwi_mend *m, uint32_t groups, bool for_index) {
    struct bwi_mend_work *w = m->w;
    bwi_mend_build_fini(&w->build);
    w->build = (struct bwi_mend_build){.ctx = m->ctx, .id = m->id, .groups = groups};
    w->building = for_index;
    bwi_mend_build_start(&w->build, m->task.loop, &m->task);
    return go(m, MEND_BUILT);
}

static enum bwi_step mend_counted(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    const struct bwi_store_op *op = &w->call.op;
    if (op->error.status < 0) return leave(m, w->call.key.s, &op->error);
    const uint32_t groups = bwi_names_groups(&op->names);
    if (groups > w->groups) w->groups = groups;
    if (w->counting == BWI_TIER_REMOTE && m->ctx->tier[BWI_TIER_LOCAL] != NULL) return count_in(m, BWI_TIER_LOCAL);
    if (w->groups > 0) return start_build(m, w->groups, false);
    (void)bwi_error_set(&w->build_why, BW_E_NOTFOUND, "no tier has a summary of it");
    return go(m, MEND_VERIFY);
}

static enum bwi_step put_manifest(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    const struct bwi_key key = bwi_key_manifest(m->ctx->run, &m->id, &m->manifest);
    if (m->dry_run) {
        say_whole(m, key.s, &w->manifest_why, NULL);
        w->manifest_why = (struct bw_error)BW_ERROR_INIT;
        return go(m, MEND_VERIFY);
    }
    bwi_call_prepare(&w->call, BWI_STORE_REPLACE, key.s);
    w->call.op.data = bwi_buf_span(&w->manifest_bytes);
    bwi_call_submit(&w->call, &m->task, authority(m));
    return go(m, MEND_MANIFEST_PUT);
}

static enum bwi_step mend_built(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->build.task.running) {
        if (m->task.cancel && !w->build.task.cancel) bwi_task_cancel(&w->build.task);
        return BWI_STEP_WAIT;
    }
    struct bw_error e = w->build.task.error;
    if (is_fatal(e.status)) return fail(m, &e);
    w->built = e.status == 0;
    if (w->building) {
        w->build_why = e;
        return go(m, MEND_INDEX);
    }
    if (w->built && take_manifest(m, &w->build.manifest, &e) == 0) return put_manifest(m);
    if (is_fatal(e.status)) return fail(m, &e);
    if (w->built) (void)bwi_error_wrap(&e, "what the summaries and layouts give");
    w->built = false;
    w->build_why = e;
    return go(m, MEND_VERIFY);
}

static enum bwi_step mend_manifest_put(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    const struct bw_error e = w->call.op.error;
    const struct bwi_key key = w->call.key;
    if (e.status < 0) w->all_unsound = true;
    say_whole(m, key.s, &w->manifest_why, e.status < 0 ? &e : NULL);
    w->manifest_why = (struct bw_error)BW_ERROR_INIT;
    return go(m, MEND_VERIFY);
}

/* ---- groups ---- */

static enum bwi_step mend_verify(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    bwi_findings_fini(&w->found);
    bwi_verify_fini(&w->verify);
    w->verify = (struct bwi_verify){.ctx = m->ctx,
                                    .id = m->id,
                                    .committed = true,
                                    .manifest = m->manifest,
                                    .tiers = {m->ctx->tier[BWI_TIER_LOCAL] != NULL, true},
                                    .only_groups = w->round == 0 ? NULL : w->anew,
                                    .only_group_count = w->anew_count,
                                    .findings = &w->found};
    bwi_verify_start(&w->verify, m->task.loop, &m->task);
    return go(m, MEND_VERIFIED);
}

/* What could not be looked at is passed on, and nobody may say that its group is sound. */
static bool pass_failures(struct bwi_mend *m) {
    for (size_t i = 0; i < m->w->found.count; i++) {
        const struct bw_finding *f = &m->w->found.list[i];
        struct bwi_key_parts parts;
        if (f->severity < 2 || bwi_is_damage(f->status)) continue;
        const bool named = bwi_key_parse(f->object, &parts) && parts.kind != BWI_KEY_LAYOUT &&
                           parts.kind != BWI_KEY_MANIFEST && parts.kind != BWI_KEY_INDEX;
        bwi_findings_add(m->findings, 2, f->status, f->tier, &m->id, f->object, f->tensor, "%s", f->message);
        if (!set_unsound(m, &parts.id, named ? parts.group : BWI_MEND_NO_GROUP)) return false;
    }
    return true;
}

static enum bwi_step mend_verified(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->verify.task.running) {
        if (m->task.cancel && !w->verify.task.cancel) bwi_task_cancel(&w->verify.task);
        return BWI_STEP_WAIT;
    }
    if (w->verify.task.error.status < 0) return fail(m, &w->verify.task.error);
    w->at = w->anew_count = 0;
    const bool ok = pass_failures(m) &&
                    bwi_mend_objects_make(&w->objects, &w->found, &m->id, w->manifest_set ? &w->manifest : NULL);
    return ok ? go(m, MEND_GROUP) : nomem(m, w->found.count * sizeof *w->objects.list);
}

/* An object that belongs to no group: manifest and index have a turn of their own. */
static enum bwi_step pass_whole(struct bwi_mend *m, struct bwi_mend_object *o) {
    struct bwi_mend_work *w = m->w;
    const struct bw_finding *f = &w->found.list[o->finding];
    w->at++;
    if (o->kind == BWI_KEY_MANIFEST) return BWI_STEP_AGAIN;
    if (o->kind == BWI_KEY_INDEX) {
        if (w->index_why.status == 0) (void)bwi_error_set(&w->index_why, f->status, "%s", f->message);
        return BWI_STEP_AGAIN;
    }
    (void)bwi_error_set(&o->why, f->status, "no tier's copy can put it right");
    w->all_unsound = true;
    say_lost(m, o);
    return BWI_STEP_AGAIN;
}

/* Whether the group itself was found damaged. Another one may have named its pack, nobody knows which. */
static bool is_bad(const struct bwi_mend_work *w, enum bwi_tier tier, uint32_t group) {
    for (size_t i = 0; i < w->verify.bad_count[tier]; i++) {
        if (w->verify.bad_groups[tier][i] == group) return true;
    }
    return false;
}

static enum bwi_step end_run(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    for (size_t i = w->at; i < w->at + w->run; i++) {
        const struct bwi_mend_object *o = &w->objects.list[i];
        if (o->outcome == BWI_MEND_DONE) say_mended(m, o);
        if (o->outcome != BWI_MEND_LOST) continue;
        say_lost(m, o);
        if (!set_unsound(m, &o->id, is_bad(w, o->tier, o->group) ? o->group : BWI_MEND_NO_GROUP))
            return nomem(m, sizeof *w->unsound);
    }
    w->at += w->run;
    return go(m, MEND_GROUP);
}

/* Whoever named what is gone is looked at once more: after an eviction nobody names it any more. */
static bool look_again(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    const enum bwi_tier t = w->objects.list[w->at].tier;
    bool gone = false;
    for (size_t i = w->at; i < w->at + w->run; i++) {
        struct bwi_mend_object *o = &w->objects.list[i];
        if (o->outcome != BWI_MEND_GONE) continue;
        gone = true;
        if (!m->dry_run) continue;
        o->outcome = BWI_MEND_LOST;
        (void)bwi_error_set(&o->why, BW_E_NOTFOUND, "its group is not on this tier");
    }
    for (size_t i = 0; gone && !m->dry_run && i < w->verify.bad_count[t]; i++) {
        if (!add_group(&w->anew, &w->anew_count, &w->anew_cap, w->verify.bad_groups[t][i])) return false;
    }
    return true;
}

/* In the last round nothing is tried any more. */
static enum bwi_step give_up(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    for (size_t i = w->at; i < w->at + w->run; i++) {
        w->objects.list[i].outcome = BWI_MEND_LOST;
        (void)bwi_error_set(&w->objects.list[i].why, BW_E_CORRUPT, "it is damaged still: what was tried did not help");
    }
    return end_run(m);
}

static enum bwi_step mend_group(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->at == w->objects.count) return go(m, MEND_ROUND);
    struct bwi_mend_object *o = &w->objects.list[w->at];
    if (o->group == BWI_MEND_NO_GROUP) return pass_whole(m, o);
    w->run = bwi_mend_objects_run(&w->objects, w->at);
    if (w->round + 1 == ROUNDS) return give_up(m);
    const bool guest = !bwi_id_eq(&o->id, &m->id);
    const struct bwi_manifest_group *want =
        !guest && w->manifest_set && o->group < w->manifest.group_count ? &w->manifest.groups[o->group] : NULL;
    bwi_mend_group_fini(&w->group);
    w->group = (struct bwi_mend_group){.ctx = m->ctx,
                                       .tier = o->tier,
                                       .id = o->id,
                                       .group = o->group,
                                       .guest = guest,
                                       .dry_run = m->dry_run,
                                       .want_layout = want == NULL ? NULL : &want->layout,
                                       .want_content = want == NULL ? NULL : &want->content,
                                       .want_uuid = want == NULL ? NULL : &w->manifest.uuid,
                                       .want_whole = want == NULL ? NULL : &w->manifest,
                                       .objects = o,
                                       .count = w->run};
    bwi_mend_group_start(&w->group, m->task.loop, &m->task);
    return go(m, MEND_GROUP_DONE);
}

static enum bwi_step mend_group_done(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->group.task.running) {
        if (m->task.cancel && !w->group.task.cancel) bwi_task_cancel(&w->group.task);
        return BWI_STEP_WAIT;
    }
    if (w->group.task.error.status < 0) return fail(m, &w->group.task.error);
    const bool added =
        !w->group.anew || m->dry_run || add_group(&w->anew, &w->anew_count, &w->anew_cap, w->group.group);
    if (!added || !look_again(m)) return nomem(m, sizeof *w->anew);
    return end_run(m);
}

static int by_number(const void *left, const void *right) {
    const uint32_t a = *(const uint32_t *)left;
    const uint32_t b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

/* A group that was mended on both tiers is looked at once. */
static void sort_anew(struct bwi_mend_work *w) {
    size_t n = 0;
    if (w->anew_count > 1) qsort(w->anew, w->anew_count, sizeof *w->anew, by_number);
    for (size_t i = 0; i < w->anew_count; i++) {
        if (n == 0 || w->anew[n - 1] != w->anew[i]) w->anew[n++] = w->anew[i];
    }
    w->anew_count = n;
}

/* Without a manifest the copies of groups have been mended all the same: where a group is on another node's local tier,
 * a mend over there can make the manifest at last. */
static enum bwi_step mend_round(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->anew_count > 0) {
        sort_anew(w);
        w->round++;
        return go(m, MEND_VERIFY);
    }
    if (w->manifest_set) return go(m, MEND_INDEX);
    const struct bwi_key key = bwi_key_manifest(m->ctx->run, &m->id, &m->manifest);
    say_whole(m, key.s, &w->manifest_why, &w->build_why);
    return go(m, MEND_MARKS);
}

/* ---- the index ---- */

static enum bwi_step lose_index(struct bwi_mend *m, const struct bw_error *why) {
    const struct bwi_key key = bwi_key_index(m->ctx->run, &m->id, &m->w->manifest.index.root);
    say_whole(m, key.s, &m->w->index_why, why);
    return go(m, MEND_MARKS);
}

/* A manifest that names the root may lie about the rest; then no index is the one that it names. */
static bool is_named(const struct bwi_index_info *index, const struct bwi_manifest *m) {
    const struct bwi_index_info *named = &m->index;
    return bwi_sha_eq(&index->root, &named->root) && index->bytes == named->bytes &&
           index->head_bytes == named->head_bytes && index->tensors == named->tensors && index->boxes == named->boxes;
}

/* Verify has not looked at it where it had no manifest, as in a dry run without one. */
static enum bwi_step mend_index(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->index_why.status == 0 && !w->remade) return go(m, MEND_MARKS);
    if (w->build_why.status < 0) return lose_index(m, &w->build_why);
    if (!w->built) return start_build(m, w->manifest.group_count, true);
    if (!is_named(&w->build.info, &w->manifest)) {
        (void)bwi_error_set(&w->build_why, BW_E_CORRUPT, "the layouts give another index than the manifest names");
        return lose_index(m, &w->build_why);
    }
    const struct bwi_key key = bwi_key_index(m->ctx->run, &m->id, &w->build.info.root);
    bwi_call_get(&w->call, &m->task, authority(m), key.s, w->build.index.len);
    return go(m, MEND_INDEX_READ);
}

static enum bwi_step mend_index_read(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    struct bw_error e = w->call.op.error;
    const struct bwi_key key = w->call.key;
    if (e.status == 0 && bwi_span_eq(bwi_buf_span(&w->call.op.body), bwi_buf_span(&w->build.index))) {
        return go(m, MEND_MARKS);
    }
    if (e.status < 0 && !bwi_is_damage(e.status)) return leave(m, key.s, &e);
    (void)bwi_error_copy(&w->index_why, &e);
    (void)bwi_error_set(&w->index_why, BW_E_CORRUPT, "it is not the index that the layouts give");
    if (m->dry_run) {
        say_whole(m, key.s, &w->index_why, NULL);
        return go(m, MEND_MARKS);
    }
    bwi_call_prepare(&w->call, BWI_STORE_REPLACE, key.s);
    w->call.op.data = bwi_buf_span(&w->build.index);
    bwi_call_submit(&w->call, &m->task, authority(m));
    return go(m, MEND_INDEX_PUT);
}

static enum bwi_step mend_index_put(struct bwi_mend *m) {
    const struct bw_error e = m->w->call.op.error;
    const struct bwi_key key = m->w->call.key;
    say_whole(m, key.s, &m->w->index_why, e.status < 0 ? &e : NULL);
    return go(m, MEND_MARKS);
}

/* ---- marks ---- */

static enum bwi_step mend_marks(struct bwi_mend *m) {
    const struct bwi_key dir = bwi_key_damaged_dir(m->ctx->run, &m->id);
    if (m->w->all_unsound || !m->w->manifest_set) return go(m, MEND_END);
    bwi_call_list(&m->w->call, &m->task, authority(m), dir.s, NULL);
    return go(m, MEND_MARK);
}

static bool is_unsound(const struct bwi_mend_work *w, uint32_t group) {
    for (size_t i = 0; i < w->unsound_count; i++) {
        if (w->unsound[i] == group) return true;
    }
    return false;
}

static void say_mark(struct bwi_mend *m, const char *key, const struct bw_error *e) {
    const char *tier = bwi_tier_name(BWI_TIER_REMOTE);
    if (e->status < 0) {
        bwi_findings_add(m->findings, 2, e->status, tier, &m->id, key, NULL, "the mark stays: %s", e->message);
    } else {
        bwi_findings_add(m->findings, m->dry_run ? 1 : 0, 0, tier, &m->id, key, NULL,
                         m->dry_run ? "the group would be sound: its mark would be removed"
                                    : "the group is sound: its mark was removed");
    }
}

/* The call holds the listing at first. */
static enum bwi_step mend_mark(struct bwi_mend *m) {
    struct bwi_mend_work *w = m->w;
    if (w->call.op.verb == BWI_STORE_LIST) {
        if (w->call.op.error.status < 0) return leave(m, w->call.key.s, &w->call.op.error);
        w->marks = w->call.op.names;
        w->call.op.names = (struct bwi_store_names){0};
    }
    for (; w->mark < w->marks.len; w->mark++) {
        uint32_t group;
        if (!bwi_names_group(&w->marks, w->mark, false, &group) || is_unsound(w, group)) continue;
        const struct bwi_key key = bwi_key_damaged(m->ctx->run, &m->id, group);
        const struct bw_error none = BW_ERROR_INIT;
        if (m->dry_run) {
            say_mark(m, key.s, &none);
            continue;
        }
        bwi_call_prepare(&w->call, BWI_STORE_DELETE, key.s);
        bwi_call_submit(&w->call, &m->task, authority(m));
        return go(m, MEND_MARK_GONE);
    }
    return go(m, MEND_END);
}

static enum bwi_step mend_mark_gone(struct bwi_mend *m) {
    say_mark(m, m->w->call.key.s, &m->w->call.op.error);
    m->w->mark++;
    return go(m, MEND_MARK);
}

/* ---- the task ---- */

void bwi_mend_fini(struct bwi_mend *m) {
    struct bwi_mend_work *w = m == NULL ? NULL : m->w;
    if (w == NULL) return;
    bwi_call_fini(&w->call);
    bwi_manifest_fini(&w->manifest);
    bwi_buf_fini(&w->manifest_bytes);
    bwi_mend_build_fini(&w->build);
    bwi_verify_fini(&w->verify);
    bwi_findings_fini(&w->found);
    bwi_mend_objects_fini(&w->objects);
    bwi_mend_group_fini(&w->group);
    bwi_free(w->anew);
    bwi_free(w->unsound);
    bwi_store_names_fini(&w->marks);
    bwi_free(w);
    m->w = NULL;
}

static enum bwi_step mend_end(struct bwi_mend *m) {
    char id[BWI_ID_TEXT_BYTES];
    if (m->findings->failed) (void)bwi_error_nomem(&m->task.error, sizeof *m->findings->list, "list of findings");
    bwi_id_text(&m->id, id);
    (void)bwi_error_wrap(&m->task.error, "mend %s", id);
    bwi_error_stage(&m->task.error, BW_STAGE_VERIFY);
    return BWI_STEP_END;
}

/* States in which nothing works for us. */
static bool is_between(const struct bwi_mend *m) {
    const struct bwi_mend_work *w = m->w;
    return !w->build.task.running && !w->verify.task.running && !w->group.task.running;
}

static enum bwi_step mend_step(struct bwi_task *t) {
    struct bwi_mend *m = bwi_container_of(t, struct bwi_mend, task);
    if (t->pending > 0) return BWI_STEP_WAIT;
    if (m->w == NULL) return mend_end(m);
    if (t->cancel && is_between(m)) {
        (void)bwi_error_set(&t->error, BW_E_CANCELLED, "cancelled");
        return mend_end(m);
    }
    switch ((enum mend_state)m->state) {
    case MEND_MANIFEST: return mend_manifest(m);
    case MEND_MANIFEST_READ: return mend_manifest_read(m);
    case MEND_COUNT: return mend_count(m);
    case MEND_COUNTED: return mend_counted(m);
    case MEND_BUILT: return mend_built(m);
    case MEND_MANIFEST_PUT: return mend_manifest_put(m);
    case MEND_VERIFY: return mend_verify(m);
    case MEND_VERIFIED: return mend_verified(m);
    case MEND_GROUP: return mend_group(m);
    case MEND_GROUP_DONE: return mend_group_done(m);
    case MEND_ROUND: return mend_round(m);
    case MEND_INDEX: return mend_index(m);
    case MEND_INDEX_READ: return mend_index_read(m);
    case MEND_INDEX_PUT: return mend_index_put(m);
    case MEND_MARKS: return mend_marks(m);
    case MEND_MARK: return mend_mark(m);
    case MEND_MARK_GONE: return mend_mark_gone(m);
    case MEND_END: break;
    }
    return mend_end(m);
}

void bwi_mend_start(struct bwi_mend *m, struct bwi_loop *loop, struct bwi_task *parent) {
    bwi_mend_fini(m);
    m->task.step = mend_step;
    m->task.name = "mend";
    m->state = MEND_MANIFEST;
    m->mended = m->lost = 0;
    bwi_task_start(loop, &m->task, parent);
    m->w = bwi_calloc(1, sizeof *m->w);
    if (m->w == NULL) (void)bwi_error_nomem(&m->task.error, sizeof *m->w, "mending a checkpoint");
}
