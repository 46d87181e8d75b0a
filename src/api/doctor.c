/* SPDX-License-Identifier: Apache-2.0 */
/* bw_doctor: examines the machine and the tiers, and races the creation of objects, on as many threads as there are
 * racers, each with a store, a loop and an engine of its own: as different processes would meet in a store. */
#include <string.h>

#include "api/catalog.h"
#include "api/guard.h"
#include "base/error.h"
#include "base/text.h"
#include "base/vec.h"
#include "checkpoint/diagnose.h"
#include "os/thread.h"

#define RACERS     4u
#define ROUNDS     48u
#define RACE_NS    (10 * BWI_NS_PER_S) /* no new round begins after this: a slow store needs fewer */
#define BYTES      128u                /* of a racer's object */
#define PATH_BYTES 4096u
#define STORE_KEY  "store.json"

/* ---- racing ---- */

struct race {
    enum bwi_tier tier;
    char prefix[40]; /* scratch, of this examination alone */
    struct bwi_diagnose_try tries[ROUNDS * RACERS];
    unsigned holder[ROUNDS], judged;
    /* guarded */
    struct bwi_mutex mutex;
    struct bwi_cond cond;
    unsigned racers, arrived, round;
    bool stop;
    uint64_t end_ns;
    struct bw_error error; /* the first one */
};

struct racer {
    struct race *race;
    unsigned number;
    struct bwi_thread thread;
    struct bwi_host host;
};

static int open_host(struct bwi_host *h, enum bwi_tier tier, const char *url, bool create, struct bw_error *err) {
    const struct bwi_io_options io = {.threads = 1};
    *h = (struct bwi_host){0};
    int rc = bwi_io_open(&io, &h->io, err);
    if (rc == 0) rc = bwi_loop_open(bwi_env_system(), h->io, &h->loop, err);
    if (rc == 0) {
        const struct bwi_store_options so = {.loop = h->loop, .create = create};
        bwi_context_init(&h->ctx, h->loop);
        rc = bwi_store_open(url, &so, &h->ctx.tier[tier], err);
    }
    if (rc < 0) bwi_host_close(h);
    return rc;
}

/* Key and bytes of a racer in a round. */
static void object_of(const struct race *r, unsigned racer, unsigned round, char key[64], char data[BYTES]) {
    (void)bwi_format(key, 64, "%sr%02u", r->prefix, round);
    memset(data, '.', BYTES);
    (void)bwi_format(data, BYTES, "%s round %u racer %u", r->prefix, round, racer);
}

static bool is_hard(int status) {
    return status < 0 && status != BW_E_EXISTS && status != BW_E_UNKNOWN;
}

/* All racers begin a round together. false: there is no further one. */
static bool meet(struct race *r) {
    bwi_mutex_lock(&r->mutex);
    const unsigned round = r->round;
    r->arrived++;
    if (r->arrived == r->racers) {
        r->arrived = 0;
        r->round++;
        struct bwi_env *env = bwi_env_system();
        r->stop = r->stop || r->round > ROUNDS || r->error.status != 0 || env->now_ns(env) > r->end_ns;
        bwi_cond_broadcast(&r->cond);
    }
    while (round == r->round) (void)bwi_cond_wait(&r->cond, &r->mutex, UINT64_MAX);
    const bool go = !r->stop;
    bwi_mutex_unlock(&r->mutex);
    return go;
}

static void *run_racer(void *arg) {
    struct racer *x = arg;
    struct race *r = x->race;
    for (unsigned round = 0; meet(r); round++) {
        char key[64];
        char data[BYTES];
        struct bw_error e = BW_ERROR_INIT;
        struct bwi_diagnose_try *t = &r->tries[round * RACERS + x->number];
        object_of(r, x->number, round, key, data);
        t->status = bwi_block_do(&x->host, r->tier, BWI_STORE_CREATE, key, bwi_span(data, BYTES), &t->outcome, &e);
        if (t->status == BW_E_EXISTS) t->outcome = BWI_STORE_OTHER;
        if (!is_hard(t->status)) continue;
        bwi_mutex_lock(&r->mutex);
        (void)bwi_error_copy(&r->error, &e);
        bwi_mutex_unlock(&r->mutex);
    }
    return NULL;
}

/* Starts all of them with the lock held, so that none goes before it is known how many there are. */
static void run_racers(struct race *r, struct racer *racers) {
    unsigned started = 0;
    int rc = 0;
    bwi_mutex_lock(&r->mutex);
    while (started < RACERS && rc == 0) {
        rc = bwi_thread_start(&racers[started].thread, "bw-doctor", run_racer, &racers[started]);
        started += rc == 0;
    }
    r->racers = started;
    r->stop = rc < 0;
    if (rc < 0) (void)bwi_error_errno(&r->error, rc, "start a thread");
    bwi_mutex_unlock(&r->mutex);
    for (unsigned i = 0; i < started; i++) bwi_thread_join(&racers[i].thread);
}

/* Whose bytes each object has, read through a handle that took no part. */
static void look(struct race *r, struct bwi_host *h) {
    const unsigned begun = r->round > 0 ? r->round - 1 : 0;
    for (r->judged = 0; r->judged < begun; r->judged++) {
        char key[64];
        char data[BYTES];
        struct bwi_buf body = {0};
        struct bw_error e = BW_ERROR_INIT;
        r->holder[r->judged] = RACERS;
        object_of(r, 0, r->judged, key, data);
        const int rc = bwi_block_get(h, r->tier, key, BYTES, &body, &e);
        for (unsigned i = 0; rc == 0 && i < RACERS; i++) {
            object_of(r, i, r->judged, key, data);
            if (bwi_span_eq(bwi_buf_span(&body), bwi_span(data, BYTES))) r->holder[r->judged] = i;
        }
        bwi_buf_fini(&body);
        if (rc == 0 || rc == BW_E_NOTFOUND || rc == BW_E_FORMAT) continue;
        (void)bwi_error_copy(&r->error, &e);
        return;
    }
}

static void report(struct race *r, uint64_t took_ns, struct bwi_findings *f) {
    const struct bwi_diagnose_race d = {.racers = RACERS,
                                        .rounds = r->judged,
                                        .tries = r->tries,
                                        .holder = r->holder,
                                        .took_ns = took_ns,
                                        .error = &r->error};
    bwi_diagnose_race(&d, r->tier, f);
}

static void race_with(struct race *r, const char *url, struct bwi_host *h, struct bwi_findings *f) {
    struct racer racers[RACERS] = {0};
    struct bwi_env *env = bwi_env_system();
    const uint64_t begin = env->now_ns(env);
    (void)bwi_format(r->prefix, sizeof r->prefix, "doctor-%016llx/", (unsigned long long)env->random_u64(env));
    r->end_ns = begin + RACE_NS;
    for (unsigned i = 0; i < RACERS && r->error.status == 0; i++) {
        racers[i].race = r;
        racers[i].number = i;
        (void)open_host(&racers[i].host, r->tier, url, false, &r->error);
    }
    if (r->error.status == 0) run_racers(r, racers);
    const uint64_t took = env->now_ns(env) - begin;
    for (unsigned i = 0; i < RACERS; i++) bwi_host_close(&racers[i].host);
    look(r, h);
    report(r, took, f);
    struct bw_error e = BW_ERROR_INIT;
    if (bwi_block_do(h, r->tier, BWI_STORE_DELETE_PREFIX, r->prefix, BWI_SPAN_NONE, NULL, &e) < 0 &&
        r->error.status == 0)
        bwi_findings_add(f, 2, e.status, bwi_tier_name(r->tier), NULL, r->prefix, NULL,
                         "what was written for the examination is left behind: %s", e.message);
}

static int race_tier(enum bwi_tier tier, const char *url, struct bwi_host *h, struct bwi_findings *f,
                     struct bw_error *err) {
    struct race *r = bwi_calloc(1, sizeof *r);
    if (!r) return bwi_error_nomem(err, sizeof *r, "a race");
    r->tier = tier;
    int rc = bwi_mutex_init(&r->mutex);
    if (rc == 0) {
        rc = bwi_cond_init(&r->cond);
        if (rc == 0) {
            race_with(r, url, h, f);
            bwi_cond_fini(&r->cond);
        }
        bwi_mutex_fini(&r->mutex);
    }
    bwi_free(r);
    return rc < 0 ? bwi_error_errno(err, rc, "doctor: a lock") : 0;
}

/* ---- directories that are there only for the examination ---- */

static bool decode_byte(const char *text, char *ret) {
    char hex[2] = {text[0], '\0'};
    if (text[0] != '\0') hex[1] = text[1];
    for (int i = 0; i < 2; i++)
        if (hex[i] >= 'A' && hex[i] <= 'F') hex[i] = "abcdef"[hex[i] - 'A'];
    return bwi_hex_decode(hex, 2, ret, 1);
}

/* Where a tier lies, if it is a directory; the URL has been understood by a store before. */
static bool path_of(const char *url, char path[PATH_BYTES]) {
    size_t n = 0;
    if (strncmp(url, "file://", 7) == 0) url += 7;
    if (*url != '/') return false;
    for (; *url && n < PATH_BYTES - 1; url++) {
        char byte = *url;
        if (byte == '%' && decode_byte(url + 1, &byte)) url += 2;
        path[n++] = byte;
    }
    while (n > 1 && path[n - 1] == '/') n--;
    path[n] = '\0';
    return *url == '\0';
}

static bool is_missing(const char *path) {
    struct bwi_os *os = bwi_os_system();
    const int fd = os->open_root(os, path, false);
    if (fd >= 0) (void)os->close(os, fd);
    return fd < 0 && bwi_status_of_errno(-fd) == BW_E_NOTFOUND;
}

/* Cuts the last component off. false: there is none. */
static bool go_up(char *path) {
    char *slash = strrchr(path, '/');
    while (slash && slash > path && slash[-1] == '/') slash--;
    if (!slash || slash == path) return false;
    *slash = '\0';
    return true;
}

/* How much of a path is there. */
static size_t length_there(const char *path) {
    char p[PATH_BYTES];
    (void)bwi_format(p, sizeof p, "%s", path);
    while (is_missing(p) && go_up(p)) continue;
    return is_missing(p) ? 1 : strlen(p);
}

/* false: there is nothing more to remove, or it is not empty, and somebody's by now. */
static bool remove_leaf(const char *above, const char *leaf) {
    struct bwi_os *os = bwi_os_system();
    if (strcmp(leaf, ".") == 0 || strcmp(leaf, "..") == 0) return true; /* not what was made */
    const int fd = os->open_root(os, above, false);
    if (fd < 0) return false;
    const bool gone = os->rmdir(os, fd, leaf) == 0;
    if (gone) (void)os->fsync(os, fd);
    (void)os->close(os, fd);
    return gone;
}

/* Removes the directories of a path that were made, the deepest first. */
static void remove_made(const char *path, size_t there) {
    char p[PATH_BYTES];
    (void)bwi_format(p, sizeof p, "%s", path);
    for (bool more = true; more && strlen(p) > there;) {
        char leaf[PATH_BYTES];
        (void)bwi_format(leaf, sizeof leaf, "%s", strrchr(p, '/') + 1);
        more = go_up(p);
        more = remove_leaf(more ? p : "/", leaf) && more;
    }
}

/* ---- one tier ---- */

static void read_store_id(struct bwi_host *h, struct bwi_diagnose_tier *t, struct bw_error *e) {
    struct bwi_buf body = {0};
    struct bwi_store_id id;
    t->store_status = bwi_block_get(h, t->tier, STORE_KEY, BWI_JSON_SMALL_MAX, &body, e);
    if (t->store_status == 0) t->store_status = bwi_store_id_decode(bwi_buf_span(&body), &id, e);
    if (t->store_status == 0) t->store_id = id.id;
    t->store_error = e->message;
    bwi_buf_fini(&body);
    if (t->store_status != BW_E_NOTFOUND) return;
    struct bwi_store_names runs = {0};
    struct bw_error unseen = BW_ERROR_INIT;
    t->has_runs = bwi_block_list(h, t->tier, "runs/", &runs, &unseen) == 0 && runs.len > 0;
    bwi_store_names_fini(&runs);
}

#define PROBE_ARENA (UINT64_C(4) << 20) /* one write's */

/* What a launch would do to it. The tier answers already: what hangs here is given up with the whole examination. */
static int probe_tier(enum bwi_tier tier, struct bwi_host *h, struct bwi_findings *f, struct bw_error *err) {
    if (tier != BWI_TIER_LOCAL || !bwi_tier_probe_may(h->ctx.tier[tier])) return 0;
    struct bw_error found = BW_ERROR_INIT; /* the finding tells it */
    struct bwi_tier_probe *p = bwi_calloc(1, sizeof *p);
    if (!p) return bwi_error_nomem(err, sizeof *p, "a probe");
    const int rc = bwi_arena_open(PROBE_ARENA, 0, &h->arena, err);
    if (rc == 0) {
        *p = (struct bwi_tier_probe){.ctx = &h->ctx, .tier = tier};
        h->ctx.arena = h->arena;
        bwi_tier_probe_start(p, h->loop, NULL);
        (void)bwi_block_on(h, &p->task, &found);
        bwi_diagnose_depth(p, f);
    }
    bwi_free(p);
    return rc;
}

/* With the tier open. */
static int examine_open(struct bwi_diagnose_tier *t, const char *path, struct bwi_host *h, struct bwi_findings *f,
                        struct bw_error *err) {
    struct bw_error e = BW_ERROR_INIT;
    t->caps = h->ctx.tier[t->tier]->caps;
    t->url = h->ctx.tier[t->tier]->url;
    t->dir = path ? bwi_probe_dir(path, &t->found) : 1;
    read_store_id(h, t, &e);
    bwi_diagnose_tier(t, f);
    t->store_error = NULL;
    const int rc = probe_tier(t->tier, h, f, err);
    return rc < 0 ? rc : race_tier(t->tier, t->url, h, f, err);
}

/* What is wrong with the arguments fails the call; what is wrong with the tier is a finding. */
static int cannot_open(const struct bwi_diagnose_tier *t, const struct bw_error *e, struct bwi_findings *f,
                       struct bw_error *err) {
    const int s = e->status;
    if (s == BW_E_INVALID || s == BW_E_UNSUPPORTED || s == BW_E_LIMIT || s == BW_E_NOMEM) {
        (void)bwi_error_copy(err, e);
        (void)bwi_error_wrap(err, "%s tier", bwi_tier_name(t->tier));
        return s;
    }
    bwi_findings_add(f, 2, s, bwi_tier_name(t->tier), NULL, "store", NULL, "the tier cannot be used: %s", e->message);
    return 0;
}

static int examine(struct bwi_diagnose_tier *t, enum bwi_tier tier, const char *url, struct bwi_findings *f,
                   struct bw_error *err) {
    char path[PATH_BYTES];
    struct bw_error e = BW_ERROR_INIT;
    struct bwi_host h = {0};
    *t = (struct bwi_diagnose_tier){.tier = tier, .url = url};
    const bool is_dir = path_of(url, path);
    const size_t there = is_dir ? length_there(path) : 0;
    int rc = open_host(&h, tier, url, false, &e);
    if (rc == BW_E_NOTFOUND) {
        bw_error_clear(&e);
        t->made = true;
        rc = open_host(&h, tier, url, true, &e);
    }
    if (rc < 0) {
        rc = cannot_open(t, &e, f, err);
    } else {
        rc = examine_open(t, is_dir ? path : NULL, &h, f, err);
        bwi_host_close(&h);
    }
    if (t->made && is_dir) remove_made(path, there);
    t->url = NULL; /* it was the store's */
    return rc;
}

/* ---- with a deadline ---- */

struct examination {
    struct bwi_job job;
    enum bwi_tier tier;
    char *url;
    struct bwi_diagnose_tier found;
    struct bwi_findings findings;
};

static void examination_free(struct examination *x) {
    bwi_findings_fini(&x->findings);
    bwi_free(x->url);
    bwi_free(x);
}

static int run_examination(struct bwi_job *job, struct bw_error *err) {
    struct examination *x = bwi_container_of(job, struct examination, job);
    return examine(&x->found, x->tier, x->url, &x->findings, err);
}

static void discard_examination(struct bwi_job *job) {
    examination_free(bwi_container_of(job, struct examination, job));
}

static void append(struct bwi_findings *to, const struct bwi_findings *from) {
    void *list = to->list;
    if (from->count > 0 && !bwi_vec_reserve(&list, &to->cap, to->count + from->count, sizeof *to->list))
        to->failed = true;
    to->list = list;
    to->failed = to->failed || from->failed;
    if (to->failed || from->count == 0) return;
    memcpy(to->list + to->count, from->list, from->count * sizeof *from->list);
    to->count += from->count;
}

static int examine_within(struct bwi_diagnose_tier *t, enum bwi_tier tier, const char *url, uint64_t timeout_ms,
                          struct bwi_findings *f, struct bw_error *err) {
    struct bw_error e = BW_ERROR_INIT;
    bool gone = false;
    struct examination *x = bwi_calloc(1, sizeof *x);
    if (!x) return bwi_error_nomem(err, sizeof *x, "an examination");
    x->job = (struct bwi_job){run_examination, discard_examination};
    x->tier = tier;
    x->url = bwi_strdup(url);
    int rc = x->url ? bwi_guard(&x->job, timeout_ms, NULL, &gone, &e) : bwi_error_nomem(&e, strlen(url), "a URL");
    if (gone) {
        bwi_findings_add(f, 2, BW_E_TIMEOUT, bwi_tier_name(tier), NULL, "store", NULL,
                         "the tier \"%.200s\" does not answer: %s; what was written for the examination may be left "
                         "behind: doctor-...",
                         url, e.message);
        return 0;
    }
    append(f, &x->findings);
    *t = x->found;
    examination_free(x);
    return rc < 0 ? bwi_error_copy(err, &e) : 0;
}

int bw_doctor(const struct bw_doctor_options *options, struct bw_list **ret_list, struct bw_error *err) {
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    struct bwi_findings f = {0};
    struct bwi_probe_machine machine;
    struct bwi_diagnose_tier tiers[BWI_TIERS] = {0};
    bw_error_clear(err);
    if (!ret_list) return bwi_error_set(err, BW_E_INVALID, "ret_list is null");
    int rc = bwi_options_copy(&o, options, BWI_OPTIONS_SIZES(sizeof o), err);
    if (rc == 0 && o.reserved) rc = bwi_error_set(err, BW_E_INVALID, "option reserved is %u: expected 0", o.reserved);
    if (rc < 0) return rc;
    const char *url[BWI_TIERS] = {[BWI_TIER_LOCAL] = o.local_url, [BWI_TIER_REMOTE] = o.remote_url};
    bwi_probe_machine(&machine);
    bwi_diagnose_machine(&machine, &f);
    for (int t = 0; rc == 0 && t < BWI_TIERS; t++)
        if (url[t] && url[t][0]) rc = examine_within(&tiers[t], (enum bwi_tier)t, url[t], o.timeout_ms, &f, err);
    if (rc == 0) bwi_diagnose_pair(&tiers[BWI_TIER_LOCAL], &tiers[BWI_TIER_REMOTE], &f);
    if (rc == 0) return bwi_list_of_findings(&f, ret_list, err);
    bwi_findings_fini(&f);
    return rc;
}
