/* SPDX-License-Identifier: Apache-2.0 */
/* The rules that bind a history entry by itself, section by section of doc/format/history.md. What may follow what is
 * not decided here. */
#include "base/error.h"
#include "base/vec.h"
#include "format/history_private.h"
#include "format/rules.h"
#include <breakwater/tensor.h>
#include <stdlib.h>
#include <string.h>

#define BAD(writing, err, ...)  bwi_error_set(err, bwi_rule_bad(writing), BWI_ENTRY_WHAT ": " __VA_ARGS__)
#define OVER(writing, err, ...) bwi_error_set(err, bwi_rule_over(writing), BWI_ENTRY_WHAT ": " __VA_ARGS__)

static int check_lineage(const struct bwi_entry *e, bool w, struct bw_error *err) {
    if (e->lineage_count == 0) return BAD(w, err, "its lineage is empty");
    const struct bwi_lineage *row = e->lineage;
    if (row[0].era != 1 || row[0].n != 1)
        return BAD(w, err, "its lineage begins with era %u at n %llu, expected era 1 at n 1", row[0].era,
                   (unsigned long long)row[0].n);
    for (size_t i = 1; i < e->lineage_count; i++) {
        if (row[i].era <= row[i - 1].era || row[i].n <= row[i - 1].n)
            return BAD(w, err, "its lineage does not ascend at row %zu (era %u, n %llu)", i, row[i].era,
                       (unsigned long long)row[i].n);
    }
    const struct bwi_lineage *last = &row[e->lineage_count - 1];
    if (last->era != e->era)
        return BAD(w, err, "its lineage ends with era %u, the entry is of era %u", last->era, e->era);
    if (e->n < last->n)
        return BAD(w, err, "n %llu is below the first n %llu of its era", (unsigned long long)e->n,
                   (unsigned long long)last->n);
    return 0;
}

static int check_identity(const struct bwi_entry *e, bool w, struct bw_error *err) {
    if (!bwi_rule_name(e->run)) return BAD(w, err, "its run is no valid name");
    if (e->era == 0 || e->era > BWI_ERA_MAX) return OVER(w, err, "era %u is not from 1 to %u", e->era, BWI_ERA_MAX);
    if (e->n == 0 || e->n > BWI_INT_MAX)
        return OVER(w, err, "n %llu is not from 1 to %llu", (unsigned long long)e->n, (unsigned long long)BWI_INT_MAX);
    const int rc = check_lineage(e, w, err);
    if (rc < 0) return rc;
    const bool first = e->era == 1 && e->n == 1;
    if (first != bwi_sha_is_zero(&e->prev))
        return BAD(w, err, "%s", first ? "the first of all names an entry before it" : "names no entry before it");
    if (!bwi_rule_ascii(e->host, sizeof e->host)) return BAD(w, err, "its host is not printable ASCII");
    return 0;
}

static bool mode_is_known(const char *mode) {
    static const char *const modes[] = {"default", "rollback", "fresh", "takeover", "damage"};
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(mode, modes[i]) == 0) return true;
    }
    return false;
}

/* How many ids an event may be about. */
static bool id_count_fits(enum bwi_event type, size_t n) {
    switch (type) {
    case BWI_EVENT_REGISTER: return n <= 1;
    case BWI_EVENT_COMMIT:
    case BWI_EVENT_ABORT: return n == 1;
    case BWI_EVENT_RETIRE:
    case BWI_EVENT_PIN:
    case BWI_EVENT_UNPIN: return n >= 1;
    case BWI_EVENT_PROMOTE: return n == 0;
    case BWI_EVENT_REPAIR: break; /* about as many as were lost */
    }
    return true;
}

static int check_step(uint64_t step, bool w, struct bw_error *err) {
    if (step <= BW_STEP_MAX) return 0;
    return OVER(w, err, "step %llu is above %llu", (unsigned long long)step, (unsigned long long)BW_STEP_MAX);
}

static int check_event(const struct bwi_event_info *v, bool w, struct bw_error *err) {
    if (v->type < BWI_EVENT_REGISTER || v->type > BWI_EVENT_PROMOTE)
        return BAD(w, err, "there is no event %d", (int)v->type);
    const char *name = bwi_event_name(v->type);
    if (!id_count_fits(v->type, v->id_count))
        return BAD(w, err, "event \"%s\" cannot be about %zu checkpoints", name, v->id_count);
    for (size_t i = 0; i < v->id_count; i++) {
        const int rc = bwi_rule_id(&v->ids[i], w, BWI_ENTRY_WHAT, err);
        if (rc < 0) return rc;
    }
    if (!bwi_rule_name_or_none(v->label)) return BAD(w, err, "the event's label is no valid name");
    if (memchr(v->mode, '\0', sizeof v->mode) == NULL) return BAD(w, err, "the event's mode has no end");
    const bool is_register = v->type == BWI_EVENT_REGISTER;
    if (is_register && !mode_is_known(v->mode)) return BAD(w, err, "there is no mode \"%s\" of register", v->mode);
    if (!is_register && (v->label[0] != '\0' || v->mode[0] != '\0'))
        return BAD(w, err, "event \"%s\" has a label or a mode, which only register has", name);
    if (!bwi_rule_line(v->note, sizeof v->note)) return BAD(w, err, "the event's note is not one line of UTF-8");
    return 0;
}

static int check_attempt(const struct bwi_attempt *a, bool w, struct bw_error *err) {
    if (!a->set) return 0;
    if (a->number == 0) return BAD(w, err, "attempts count from 1, found 0");
    if (!bwi_rule_name_or_none(a->job)) return BAD(w, err, "the attempt's job is no valid name");
    if (!bwi_rule_name_or_none(a->launch)) return BAD(w, err, "the attempt's launch is no valid name");
    if ((a->job[0] == '\0') != (a->launch[0] == '\0'))
        return BAD(w, err, "an attempt has a job and a launch, or neither");
    /* An attempt of no job (repair, promote) only fences; nobody saves in it. */
    if (a->job[0] == '\0' && a->world == 0 && a->groups == 0) return 0;
    return bwi_rule_world(a->world, a->groups, w, BWI_ENTRY_WHAT ": attempt", err);
}

static int check_from(const struct bwi_from *f, bool w, struct bw_error *err) {
    if (!f->set) return 0;
    int rc = bwi_rule_id(&f->id, w, BWI_ENTRY_WHAT ": from", err);
    if (rc == 0) rc = bwi_rule_world(f->world, f->groups, w, BWI_ENTRY_WHAT ": from", err);
    if (rc == 0) rc = bwi_rule_refs(f->refs, f->ref_count, &f->id, w, BWI_ENTRY_WHAT ": from", err);
    return rc;
}

static int check_tries(const struct bwi_entry *e, bool w, struct bw_error *err) {
    if (e->h_set && e->h > BW_STEP_MAX) return check_step(e->h, w, err);
    for (size_t i = 0; i < e->try_count; i++) {
        const struct bwi_try *t = &e->tries[i];
        const unsigned long long step = t->step;
        const int rc = check_step(t->step, w, err);
        if (rc < 0) return rc;
        if (t->tri == 0) return BAD(w, err, "try 0 of step %llu is listed, which is the default", step);
        if (i > 0 && e->tries[i - 1].step >= t->step) return BAD(w, err, "its tries do not ascend at step %llu", step);
        if (e->h_set && t->step <= e->h)
            return BAD(w, err, "a try of step %llu is listed, which is not above h %llu", step,
                       (unsigned long long)e->h);
    }
    return 0;
}

static int check_kept(const struct bwi_kept *k, const struct bwi_kept *before, bool by_step, bool w,
                      struct bw_error *err) {
    const int rc = bwi_rule_id(&k->id, w, BWI_ENTRY_WHAT, err);
    if (rc < 0) return rc;
    char text[BWI_ID_TEXT_BYTES];
    bwi_id_text(&k->id, text);
    if (k->bytes > BWI_INT_MAX)
        return OVER(w, err, "checkpoint %s has %llu bytes, at most %llu are allowed", text,
                    (unsigned long long)k->bytes, (unsigned long long)BWI_INT_MAX);
    if (before != NULL && by_step && before->id.step >= k->id.step)
        return BAD(w, err, "the steps of its live checkpoints do not ascend at %s", text);
    if (before != NULL && bwi_id_cmp(&before->id, &k->id) >= 0)
        return BAD(w, err, "the ids of its shelved checkpoints do not ascend at %s", text);
    return bwi_rule_refs(k->refs, k->ref_count, &k->id, w, BWI_ENTRY_WHAT, err);
}

/* Live ascend by step, shelved by id, so both ascend by id and one walk finds an id that is in both. */
static int check_all_kept(const struct bwi_entry *e, bool w, struct bw_error *err) {
    int rc = 0;
    for (size_t i = 0; i < e->live_count && rc == 0; i++)
        rc = check_kept(&e->live[i], i > 0 ? &e->live[i - 1] : NULL, true, w, err);
    for (size_t i = 0; i < e->shelved_count && rc == 0; i++)
        rc = check_kept(&e->shelved[i], i > 0 ? &e->shelved[i - 1] : NULL, false, w, err);
    for (size_t l = 0, s = 0; rc == 0 && l < e->live_count && s < e->shelved_count;) {
        const int order = bwi_id_cmp(&e->live[l].id, &e->shelved[s].id);
        if (order == 0) {
            char text[BWI_ID_TEXT_BYTES];
            bwi_id_text(&e->live[l].id, text);
            return BAD(w, err, "checkpoint %s is both live and shelved", text);
        }
        l += order < 0;
        s += order > 0;
    }
    return rc;
}

static int by_text(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Names keep their order of use, so doubles are looked for in a sorted copy. */
static int check_names(char (*names)[BWI_NAME_BUF], size_t count, const char *of, bool w, struct bw_error *err) {
    if (count == 0) return 0;
    for (size_t i = 0; i < count; i++) {
        if (!bwi_rule_name(names[i])) return BAD(w, err, "%s %zu is no valid name", of, i);
    }
    const char **sorted = bwi_calloc(count, sizeof *sorted);
    if (sorted == NULL) return bwi_error_nomem(err, count * sizeof *sorted, BWI_ENTRY_WHAT);
    for (size_t i = 0; i < count; i++) sorted[i] = names[i];
    qsort(sorted, count, sizeof *sorted, by_text);
    int rc = 0;
    for (size_t i = 1; i < count && rc == 0; i++) {
        if (strcmp(sorted[i - 1], sorted[i]) == 0) rc = BAD(w, err, "%s \"%s\" is listed twice", of, sorted[i]);
    }
    bwi_free(sorted);
    return rc;
}

int bwi_entry_check(const struct bwi_entry *e, bool writing, struct bw_error *err) {
    if (e->launch_count > BWI_LAUNCHES_KEPT)
        return OVER(writing, err, "%zu launches are listed, at most %u are kept", e->launch_count, BWI_LAUNCHES_KEPT);
    int rc = check_identity(e, writing, err);
    if (rc == 0) rc = check_event(&e->event, writing, err);
    if (rc == 0) rc = check_attempt(&e->attempt, writing, err);
    if (rc == 0) rc = check_from(&e->from, writing, err);
    if (rc == 0) rc = check_tries(e, writing, err);
    if (rc == 0) rc = check_all_kept(e, writing, err);
    if (rc == 0) rc = check_names(e->labels, e->label_count, "label", writing, err);
    if (rc == 0) rc = check_names(e->launches, e->launch_count, "launch", writing, err);
    if (rc == 0) rc = check_names(e->superseded, e->superseded_count, "superseded job", writing, err);
    return rc;
}
