/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the newest history entry. */
#include "checkpoint/history_head.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"

/* A log that is trimmed under our eyes is read again this often before we give up. */
#define HEAD_RESTARTS_MAX 16u

enum head_state { HEAD_LIST, HEAD_PICK, HEAD_DECODE, HEAD_CONFIRM };

void bwi_head_fini(struct bwi_head *h) {
    bwi_entry_fini(&h->entry);
    *h = (struct bwi_head){0};
}

bool bwi_head_name(const struct bwi_store_names *names, size_t i, uint32_t *ret_era, uint64_t *ret_n) {
    return i < names->len && bwi_entry_name_parse(names->name[i], ret_era, ret_n);
}

static bool is_after(uint32_t era, uint64_t n, uint32_t than_era, uint64_t than_n) {
    return era > than_era || (era == than_era && n > than_n);
}

/* Names up to (past_era, past_n) do not count. */
static bool is_stray(const struct bwi_store_names *names, uint32_t era, uint64_t n, uint32_t past_era,
                     uint64_t past_n) {
    uint32_t other_era;
    uint64_t other_n;
    for (size_t i = 0; i < names->len; i++) {
        if (!bwi_head_name(names, i, &other_era, &other_n) || !is_after(other_era, other_n, past_era, past_n)) continue;
        if (other_era > era || (other_era == era && other_n >= n + BWI_HISTORY_KEPT)) return true;
    }
    return false;
}

bool bwi_head_is_stray(const struct bwi_store_names *names, uint32_t era, uint64_t n) {
    return is_stray(names, era, n, 0, 0);
}

bool bwi_head_is_era_end(const struct bwi_context *ctx, struct bwi_span bytes, uint32_t era, uint64_t n) {
    struct bwi_era_end e;
    return bwi_era_end_decode(bytes, &e, NULL) == 0 && e.era == era && e.n == n && strcmp(e.run, ctx->run) == 0;
}

int bwi_head_decode(const struct bwi_context *ctx, struct bwi_span bytes, uint32_t era, uint64_t n,
                    struct bwi_head *ret, struct bw_error *err) {
    struct bwi_head h = {0};
    int rc = bwi_entry_decode(bytes, &h.entry, err);
    if (rc < 0 && bwi_head_is_era_end(ctx, bytes, era, n)) {
        if (err) bw_error_clear(err);
        return bwi_error_set(err, BW_E_CORRUPT,
                             "history %06u.%020llu ends era %u: a repair was begun there and has not ended", era,
                             (unsigned long long)n, era);
    }
    if (rc < 0) {
        (void)bwi_error_wrap(err, "%06u.%020llu", era, (unsigned long long)n);
        return rc;
    }
    if (strcmp(h.entry.run, ctx->run) != 0 || h.entry.era != era || h.entry.n != n) {
        rc = bwi_error_set(err, BW_E_CORRUPT, "history entry %06u.%020llu holds entry %06u.%020llu of run \"%s\"", era,
                           (unsigned long long)n, h.entry.era, (unsigned long long)h.entry.n, h.entry.run);
        bwi_head_fini(&h);
        return rc;
    }
    h.found = true;
    h.sha = bwi_sha_of(bytes);
    *ret = h;
    return 0;
}

static struct bwi_store *store_of(struct bwi_head_read *r) {
    return r->store ? r->store : r->ctx->tier[BWI_TIER_REMOTE];
}

static enum bwi_step end(struct bwi_head_read *r) {
    bwi_call_fini(&r->list);
    bwi_call_fini(&r->get);
    bwi_head_fini(&r->next);
    return BWI_STEP_END;
}

static enum bwi_step fail(struct bwi_head_read *r, const struct bw_error *e) {
    bwi_error_copy(&r->task.error, e);
    bwi_error_wrap(&r->task.error, "read history of run \"%s\"", r->ctx->run);
    return end(r);
}

/* What is known and sound: only what came behind it is of interest. */
static const struct bwi_entry *known_entry(const struct bwi_head_read *r) {
    const struct bwi_head *k = r->known;
    return k && k->found && !k->damaged ? &k->entry : NULL;
}

/* Lists what is newer than entry (era, n). */
static enum bwi_step list(struct bwi_head_read *r, uint32_t era, uint64_t n, enum head_state then) {
    char after[64];
    struct bwi_key prefix = bwi_key_history(r->ctx->run);
    bwi_format(after, sizeof after, "%06u.%020llu.json", era, (unsigned long long)n);
    r->state = (int)then;
    bwi_call_list(&r->list, &r->task, store_of(r), prefix.s, after);
    return BWI_STEP_WAIT;
}

/* With what is known too, where something is: to see that it is still there. */
static enum bwi_step list_all(struct bwi_head_read *r) {
    const struct bwi_entry *k = known_entry(r);
    return k ? list(r, k->era, k->n - 1, HEAD_PICK) : list(r, 0, 0, HEAD_PICK);
}

static enum bwi_step restart(struct bwi_head_read *r, const struct bw_error *e) {
    if (++r->restarts > HEAD_RESTARTS_MAX) return fail(r, e);
    bwi_head_fini(&r->next);
    r->at = SIZE_MAX;
    r->state = HEAD_LIST;
    return BWI_STEP_AGAIN;
}

static enum bwi_step none_left(struct bwi_head_read *r) {
    if (r->next.damaged) {
        struct bw_error e = BW_ERROR_INIT;
        if (r->known) { /* what was newer is damaged: read it all, so that the damage is told */
            r->known = NULL;
            return restart(r, &e);
        }
        bwi_error_set(&e, BW_E_CORRUPT, "no entry is sound: %s", r->next.damage);
        return fail(r, &e);
    }
    if (r->known && r->known->found) {
        r->unchanged = true;
        return end(r);
    }
    bwi_head_fini(r->head);
    return end(r);
}

/* Takes the last name of the listing that has not been tried. */
static enum bwi_step pick(struct bwi_head_read *r) {
    if (r->list.op.error.status < 0) return fail(r, &r->list.op.error);
    if (r->state == HEAD_PICK && r->at == SIZE_MAX) r->at = r->list.op.names.len;
    const struct bwi_entry *k = known_entry(r);
    uint32_t era = 0;
    uint64_t n = 0;
    while (r->at > 0 && !bwi_head_name(&r->list.op.names, r->at - 1, &era, &n)) r->at--;
    r->gone = k && r->at == 0;
    if (r->at == 0 || (k && era == k->era && n == k->n)) return none_left(r);
    struct bwi_key key = bwi_key_entry(r->ctx->run, era, n);
    r->state = HEAD_DECODE;
    bwi_call_get(&r->get, &r->task, store_of(r), key.s, BWI_ENTRY_BYTES_MAX);
    return BWI_STEP_WAIT;
}

/* A damaged entry is stepped over, and remembered: the first one that we meet is the newest. */
static enum bwi_step step_over(struct bwi_head_read *r, uint32_t era, uint64_t n, const struct bw_error *e) {
    if (!r->next.damaged) {
        r->next.damaged = true;
        r->next.damaged_era = era;
        r->next.damaged_n = n;
        r->next.ended = bwi_head_is_era_end(r->ctx, bwi_buf_span(&r->get.op.body), era, n);
        bwi_format(r->next.damage, sizeof r->next.damage, "%s", e->message);
    }
    r->at--;
    r->state = HEAD_PICK;
    return BWI_STEP_AGAIN;
}

static enum bwi_step decode(struct bwi_head_read *r) {
    const struct bw_error *got = &r->get.op.error;
    uint32_t era = 0;
    uint64_t n = 0;
    bwi_head_name(&r->list.op.names, r->at - 1, &era, &n);
    if (got->status == BW_E_NOTFOUND) return restart(r, got);
    if (got->status < 0 && got->status != BW_E_FORMAT && got->status != BW_E_CORRUPT) return fail(r, got);
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_head h = {0};
    if (got->status < 0)
        e = *got;
    else if (bwi_head_decode(r->ctx, bwi_buf_span(&r->get.op.body), era, n, &h, &e) == 0) {
        h.damaged = r->next.damaged;
        h.damaged_era = r->next.damaged_era;
        h.damaged_n = r->next.damaged_n;
        h.ended = r->next.ended;
        memcpy(h.damage, r->next.damage, sizeof h.damage);
        r->next = h;
        return list(r, era, n, HEAD_CONFIRM);
    }
    /* A newer version is not damage: going on from an older entry would undo what it decided. */
    if (e.status == BW_E_VERSION || e.status == BW_E_NOMEM) return fail(r, &e);
    return step_over(r, era, n, &e);
}

/* Between the listing and the read the log may have been trimmed past this entry, and the name taken by a stray. What
 * was stepped over as damaged says nothing about that: it may have been the first entry of a later era. */
static enum bwi_step confirm(struct bwi_head_read *r) {
    struct bw_error e = BW_ERROR_INIT;
    const struct bwi_head *h = &r->next;
    if (r->list.op.error.status < 0) return fail(r, &r->list.op.error);
    if (is_stray(&r->list.op.names, h->entry.era, h->entry.n, h->damaged_era, h->damaged_n)) {
        bwi_error_set(&e, BW_E_BUSY, "entries come faster than they can be read");
        return restart(r, &e);
    }
    bwi_head_fini(r->head);
    *r->head = r->next;
    r->next = (struct bwi_head){0};
    return end(r);
}

static enum bwi_step head_step(struct bwi_task *t) {
    struct bwi_head_read *r = bwi_container_of(t, struct bwi_head_read, task);
    if (t->pending) return BWI_STEP_WAIT;
    switch ((enum head_state)r->state) {
    case HEAD_LIST: return list_all(r);
    case HEAD_PICK: return pick(r);
    case HEAD_DECODE: return decode(r);
    case HEAD_CONFIRM: break;
    }
    return confirm(r);
}

void bwi_head_read_start(struct bwi_head_read *r, struct bwi_loop *loop, struct bwi_task *parent) {
    r->task.step = head_step;
    r->task.name = "head";
    r->state = HEAD_LIST;
    r->at = SIZE_MAX;
    r->restarts = 0;
    r->unchanged = r->gone = false;
    r->next = (struct bwi_head){0};
    r->list = (struct bwi_call){0};
    r->get = (struct bwi_call){0};
    bwi_task_start(loop, &r->task, parent);
}
