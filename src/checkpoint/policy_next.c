/* SPDX-License-Identifier: Apache-2.0 */
/* Building the next history entry from the last one. */
#include "checkpoint/policy_next.h"

#include <string.h>

#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"

/* Room for one more element in an array that knows only its length. */
static int grow(void **list, size_t count, size_t size, struct bw_error *err) {
    size_t cap = count;
    if (!bwi_vec_reserve(list, &cap, count + 1, size)) return bwi_error_nomem(err, (count + 1) * size, "history entry");
    return 0;
}

static int begin_first(struct bwi_entry *next, const char *run, const struct bwi_uuid *uuid, struct bw_error *err) {
    next->lineage = bwi_calloc(1, sizeof *next->lineage);
    if (!next->lineage) return bwi_error_nomem(err, sizeof *next->lineage, "history entry");
    next->lineage_count = 1;
    next->lineage[0] = (struct bwi_lineage){.era = 1, .n = 1, .uuid = *uuid};
    next->era = 1;
    next->n = 1;
    bwi_format(next->run, sizeof next->run, "%s", run);
    return 0;
}

static int begin_after(struct bwi_entry *next, const struct bwi_actor *a, struct bw_error *err) {
    int rc = bwi_entry_copy(a->head, next, err);
    if (rc < 0) return rc;
    next->n++;
    next->prev = a->head_sha;
    bwi_free(next->event.ids);
    next->event = (struct bwi_event_info){0};
    return 0;
}

int bwi_next_begin(const struct bwi_actor *a, enum bwi_event type, const char *run, const struct bwi_uuid *uuid,
                   struct bwi_entry *ret, struct bw_error *err) {
    struct bwi_entry next = {0};
    int rc = a->head ? begin_after(&next, a, err) : begin_first(&next, run, uuid, err);
    if (rc < 0) return rc;
    next.store = a->store;
    next.writer = a->writer;
    next.time_ms = a->time_ms;
    bwi_format(next.host, sizeof next.host, "%s", a->host);
    next.event.type = type;
    *ret = next;
    return 0;
}

int bwi_next_subject(struct bwi_entry *e, const struct bwi_id *id, struct bw_error *err) {
    void *list = e->event.ids;
    int rc = grow(&list, e->event.id_count, sizeof *id, err);
    if (rc < 0) return rc;
    e->event.ids = list;
    e->event.ids[e->event.id_count++] = *id;
    return 0;
}

int bwi_next_name(char (**list)[BWI_NAME_BUF], size_t *count, const char *name, struct bw_error *err) {
    void *grown = *list;
    int rc = grow(&grown, *count, BWI_NAME_BUF, err);
    if (rc < 0) return rc;
    *list = grown;
    memset((*list)[*count], 0, BWI_NAME_BUF);
    bwi_format((*list)[*count], BWI_NAME_BUF, "%s", name);
    (*count)++;
    return 0;
}

void bwi_next_drop_name(char (*list)[BWI_NAME_BUF], size_t *count, const char *name) {
    for (size_t i = 0; i < *count; i++) {
        if (strcmp(list[i], name) != 0) continue;
        memmove(list + i, list + i + 1, (*count - i - 1) * BWI_NAME_BUF);
        (*count)--;
        return;
    }
}

int bwi_next_keep(struct bwi_kept **list, size_t *count, const struct bwi_kept *k, struct bw_error *err) {
    void *grown = *list;
    int rc = grow(&grown, *count, sizeof *k, err);
    if (rc < 0) return rc;
    *list = grown;
    size_t at = *count;
    while (at > 0 && bwi_id_cmp(&(*list)[at - 1].id, &k->id) > 0) at--;
    memmove(*list + at + 1, *list + at, (*count - at) * sizeof *k);
    (*list)[at] = *k;
    (*count)++;
    return 0;
}

void bwi_next_drop(struct bwi_kept *list, size_t *count, const struct bwi_id *id) {
    for (size_t i = 0; i < *count; i++) {
        if (!bwi_id_eq(&list[i].id, id)) continue;
        memmove(list + i, list + i + 1, (*count - i - 1) * sizeof *list);
        (*count)--;
        return;
    }
}

int bwi_next_shelve(struct bwi_entry *e, const uint64_t *step, struct bw_error *err) {
    size_t keep = 0;
    while (step && keep < e->live_count && e->live[keep].id.step <= *step) keep++;
    for (size_t i = keep; i < e->live_count; i++) {
        int rc = bwi_next_keep(&e->shelved, &e->shelved_count, &e->live[i], err);
        if (rc < 0) return rc;
    }
    e->live_count = keep;
    return 0;
}

int bwi_next_unshelve(struct bwi_entry *e, const struct bwi_id *id, struct bw_error *err) {
    for (size_t i = 0; i < e->shelved_count; i++) {
        if (!bwi_id_eq(&e->shelved[i].id, id)) continue;
        struct bwi_kept k = e->shelved[i];
        bwi_next_drop(e->shelved, &e->shelved_count, id);
        return bwi_next_keep(&e->live, &e->live_count, &k, err);
    }
    return bwi_error_set(err, BW_E_INTERNAL, "the checkpoint of step %llu is not shelved",
                         (unsigned long long)id->step);
}

int bwi_next_try(struct bwi_entry *e, uint64_t step, uint32_t tri, struct bw_error *err) {
    size_t at = 0;
    while (at < e->try_count && e->tries[at].step < step) at++;
    if (at < e->try_count && e->tries[at].step == step) {
        e->tries[at].tri = tri;
        return 0;
    }
    void *grown = e->tries;
    int rc = grow(&grown, e->try_count, sizeof *e->tries, err);
    if (rc < 0) return rc;
    e->tries = grown;
    memmove(e->tries + at + 1, e->tries + at, (e->try_count - at) * sizeof *e->tries);
    e->tries[at] = (struct bwi_try){step, tri};
    e->try_count++;
    return 0;
}

/* Tries of steps that are not above h any more tell nothing. */
static void trim_tries(struct bwi_entry *e) {
    size_t drop = 0;
    while (e->h_set && drop < e->try_count && e->tries[drop].step <= e->h) drop++;
    if (!drop) return;
    memmove(e->tries, e->tries + drop, (e->try_count - drop) * sizeof *e->tries);
    e->try_count -= drop;
}

int bwi_next_commit(struct bwi_entry *e, const struct bwi_kept *k, struct bw_error *err) {
    int rc = bwi_next_keep(&e->live, &e->live_count, k, err);
    if (rc < 0) return rc;
    if (!e->h_set || k->id.step > e->h) e->h = k->id.step;
    e->h_set = true;
    e->from.open = false;
    trim_tries(e);
    return 0;
}
