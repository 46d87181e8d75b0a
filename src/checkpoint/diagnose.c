/* SPDX-License-Identifier: Apache-2.0 */
/* What is good, slow or dangerous about a machine and its tiers, in words. */
#include "checkpoint/diagnose.h"
#include "base/error.h"
#include "base/text.h"
#include <errno.h>
#include <inttypes.h>
#include <string.h>

struct amount {
    char s[32];
};

static struct amount amount(uint64_t bytes) {
    struct amount a;
    if (bytes == UINT64_MAX) {
        (void)bwi_format(a.s, sizeof a.s, "unlimited");
    } else {
        bwi_text_bytes(bytes, a.s, sizeof a.s);
    }
    return a;
}

/* What a negative errno means. */
struct reason {
    struct bw_error e;
};

static const char *reason(struct reason *r, int os_errno) {
    r->e = (struct bw_error)BW_ERROR_INIT;
    (void)bwi_error_errno(&r->e, os_errno, "it");
    return r->e.message + strlen("it: ");
}

/* ---- the machine ---- */

static void fact(struct bwi_findings *f, const char *check, const char *text) {
    bwi_findings_add(f, 0, 0, NULL, NULL, check, NULL, "%s", text);
}

static void say_io_uring(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    static const char *const settings[] = {"", ", for unprivileged processes by kernel.io_uring_disabled = 1",
                                           ", for all processes by kernel.io_uring_disabled = 2"};
    struct reason r;
    if (m->io_uring == 0 && m->ring_memory < 0) {
        bwi_findings_add(f, 1, 0, NULL, NULL, "io_uring", NULL,
                         "available, but memory cannot be registered with it (%s of it: %s): each transfer looks its "
                         "pages up anew, which costs processor time; RLIMIT_MEMLOCK decides",
                         amount(BWI_PROBE_MEMORY).s, reason(&r, m->ring_memory));
        return;
    }
    if (m->io_uring == 0) {
        bwi_findings_add(f, 0, 0, NULL, NULL, "io_uring", NULL, "available; %s of memory could be registered with it",
                         amount(BWI_PROBE_MEMORY).s);
        return;
    }
    const bool set = m->io_uring_disabled == 1 || m->io_uring_disabled == 2;
    const char *why = set ? settings[m->io_uring_disabled] : "";
    if (!set && m->io_uring == -EPERM) why = ", by a container's seccomp filter or a security module";
    if (m->io_uring == -ENOSYS) why = ": this kernel has none, or a seccomp filter hides it";
    bwi_findings_add(f, 0, 0, NULL, NULL, "io_uring", NULL, "not available: %s%s; a pool of threads does the transfers",
                     reason(&r, m->io_uring), why);
}

static void say_userfaultfd(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    struct reason r;
    if (m->userfaultfd < 0 && m->protection < 0) {
        const bool denied = m->userfaultfd == -EPERM, set = m->userfaultfd_unprivileged == 0;
        const char *why = ", by a container's seccomp filter or a security module";
        if (set)
            why =
                ", by a container's seccomp filter or, for unprivileged processes, by vm.unprivileged_userfaultfd = 0";
        bwi_findings_add(f, 0, 0, NULL, NULL, "userfaultfd", NULL,
                         "not available: %s%s; states are captured by copying", reason(&r, m->userfaultfd),
                         denied ? why : "");
        return;
    }
    const bool fit = m->protection == 0, unfit_kernel = m->protection == -EOPNOTSUPP && m->userfaultfd_write_protect;
    bwi_findings_add(
        f, 0, 0, NULL, NULL, "userfaultfd", NULL, "available%s%s%s%s",
        fit || m->userfaultfd_write_protect ? ", with write protection" : ", without write protection",
        m->userfaultfd_user_only && !fit ? "; for faults in user mode only (vm.unprivileged_userfaultfd = 0)" : "",
        fit ? "" : "; states are captured by copying",
        unfit_kernel ? ", because only Linux 6.4 to 6.11 and from 6.18 on, without KSM, keep it" : "");
}

static void say_limits(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    if (m->memlock_bytes < BWI_DIAGNOSE_MEMLOCK_LEAST) {
        bwi_findings_add(f, 1, 0, NULL, NULL, "locked memory", NULL,
                         "RLIMIT_MEMLOCK is %s: expected at least %s, so that buffers can be registered or pinned",
                         amount(m->memlock_bytes).s, amount(BWI_DIAGNOSE_MEMLOCK_LEAST).s);
    } else {
        bwi_findings_add(f, 0, 0, NULL, NULL, "locked memory", NULL, "RLIMIT_MEMLOCK is %s",
                         amount(m->memlock_bytes).s);
    }
    if (m->descriptors < BWI_DIAGNOSE_DESCRIPTORS_LEAST) {
        bwi_findings_add(f, 1, 0, NULL, NULL, "descriptors", NULL,
                         "RLIMIT_NOFILE is %" PRIu64 ": expected at least %" PRIu64, m->descriptors,
                         BWI_DIAGNOSE_DESCRIPTORS_LEAST);
    } else if (m->descriptors == UINT64_MAX) {
        fact(f, "descriptors", "RLIMIT_NOFILE is unlimited");
    } else {
        bwi_findings_add(f, 0, 0, NULL, NULL, "descriptors", NULL, "RLIMIT_NOFILE is %" PRIu64, m->descriptors);
    }
}

static void say_threads(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    struct reason r;
    if (m->thread_error == 0)
        bwi_findings_add(f, 0, 0, NULL, NULL, "threads", NULL, "%u could be started: no handle starts more by itself",
                         m->threads);
    else
        bwi_findings_add(f, 1, 0, NULL, NULL, "threads", NULL,
                         "%u could be started, of up to %u that a handle starts by itself: %s; RLIMIT_NPROC and a "
                         "container's pids.max decide",
                         m->threads, BWI_PROBE_THREADS, reason(&r, m->thread_error));
}

static void say_huge_pages(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    if (m->huge_pages[0] == '\0') {
        fact(f, "huge pages", "this kernel has no transparent huge pages, or does not say");
    } else if (strcmp(m->huge_pages, "never") == 0) {
        fact(f, "huge pages", "transparent huge pages are switched off: the memory budget is made of small pages");
    } else {
        bwi_findings_add(f, 0, 0, NULL, NULL, "huge pages", NULL, "transparent huge pages of %s: %s",
                         amount(m->huge_page_bytes).s, m->huge_pages);
    }
}

void bwi_diagnose_machine(const struct bwi_probe_machine *m, struct bwi_findings *f) {
    fact(f, "kernel", m->kernel[0] == '\0' ? "unknown" : m->kernel);
    bwi_findings_add(f, 0, 0, NULL, NULL, "CPUs", NULL, "%u for this process", m->cpus);
    bwi_findings_add(f, 0, 0, NULL, NULL, "memory", NULL, "%s, of which %s are available", amount(m->memory_bytes).s,
                     amount(m->memory_free_bytes).s);
    bwi_findings_add(f, 0, 0, NULL, NULL, "/dev/shm", NULL, "%s, of which %s are free", amount(m->shm_bytes).s,
                     amount(m->shm_free_bytes).s);
    say_huge_pages(m, f);
    say_limits(m, f);
    say_threads(m, f);
    say_io_uring(m, f);
    say_userfaultfd(m, f);
}

/* ---- one tier ---- */

static void say_space(const struct bwi_diagnose_tier *t, struct bwi_findings *f) {
    const struct bwi_probe_dir *d = &t->found;
    const bool little = d->free_bytes < BWI_DIAGNOSE_FREE_LEAST || d->free_bytes < d->total_bytes / 20;
    bwi_findings_add(f, little ? 1 : 0, 0, bwi_tier_name(t->tier), NULL, "space", NULL, "%s of %s are free%s",
                     amount(d->free_bytes).s, amount(d->total_bytes).s,
                     little ? ": expected at least 1 GiB and a twentieth of the whole" : "");
}

static void say_direct(const struct bwi_diagnose_tier *t, struct bwi_findings *f) {
    const char *tier = bwi_tier_name(t->tier);
    const int rc = t->found.direct;
    struct reason r;
    if (t->found.write < 0) {
        bwi_findings_add(f, 1, 0, tier, NULL, "direct I/O", NULL, "not tried: no file can be made: %s",
                         reason(&r, t->found.write));
    } else if (rc == -EILSEQ) {
        bwi_findings_add(f, 2, BW_E_IO, tier, NULL, "direct I/O", NULL,
                         "a block that was written was read back with other bytes");
    } else if (rc < 0) {
        bwi_findings_add(f, 0, 0, tier, NULL, "direct I/O", NULL,
                         "refused on %s: %s; the page cache is in the way of large transfers", t->found.fs_name,
                         reason(&r, rc));
    } else if (!t->caps.past_cache) {
        bwi_findings_add(f, 0, 0, tier, NULL, "direct I/O", NULL,
                         "accepted on %s, which lies in memory: transfers go through the page cache", t->found.fs_name);
    } else {
        bwi_findings_add(f, 0, 0, tier, NULL, "direct I/O", NULL,
                         "works on %s: a block of 4 KiB was written and read back", t->found.fs_name);
    }
}

static void say_store(const struct bwi_diagnose_tier *t, struct bwi_findings *f) {
    const char *tier = bwi_tier_name(t->tier);
    char id[BWI_UUID_TEXT_BYTES];
    if (t->store_status == BW_E_NOTFOUND && t->has_runs && t->tier == BWI_TIER_REMOTE) {
        bwi_findings_add(f, 2, BW_E_FOREIGN, tier, NULL, "store.json", NULL,
                         "there is none, though there are runs: every launch is refused until it is put back");
    } else if (t->store_status == BW_E_NOTFOUND) {
        bwi_findings_add(f, 0, 0, tier, NULL, "store.json", NULL,
                         "there is none: this is not a store yet; the first launch makes it one");
    } else if (t->store_status < 0) {
        bwi_findings_add(f, 2, t->store_status, tier, NULL, "store.json", NULL, "%s", t->store_error);
    } else {
        bwi_uuid_text(&t->store_id, id);
        bwi_findings_add(f, 0, 0, tier, NULL, "store.json", NULL, "store %s", id);
    }
}

void bwi_diagnose_tier(const struct bwi_diagnose_tier *t, struct bwi_findings *f) {
    const char *tier = bwi_tier_name(t->tier);
    struct reason r;
    bwi_findings_add(f, t->made ? 1 : 0, 0, tier, NULL, "store", NULL, "%.200s%s", t->url,
                     t->made ? " does not exist: a launch would make it, unless a mount is missing there or the URL is "
                               "wrong; it was made for this examination and is gone again"
                             : "");
    if (t->dir == 0) {
        bwi_findings_add(f, 0, 0, tier, NULL, "file system", NULL, "%s on device %" PRIx64 ", %s", t->found.fs_name,
                         t->found.device,
                         t->caps.node_local ? "which is of this node alone" : "which other nodes may see");
        say_space(t, f);
        say_direct(t, f);
    } else if (t->dir < 0) {
        bwi_findings_add(f, 1, 0, tier, NULL, "file system", NULL, "cannot be examined: %s", reason(&r, t->dir));
    }
    say_store(t, f);
    if (t->tier == BWI_TIER_REMOTE && t->caps.node_local) {
        bwi_findings_add(f, 1, 0, tier, NULL, "node-local", NULL,
                         "the remote tier is of this node alone: what it holds is lost with the node");
    }
}

void bwi_diagnose_depth(const struct bwi_tier_probe *p, struct bwi_findings *f) {
    const char *tier = bwi_tier_name(p->tier);
    const bool failed = p->task.error.status < 0;
    if (p->bytes_per_s == 0 || failed)
        bwi_findings_add(f, failed ? 1 : 0, 0, tier, NULL, "depth", NULL, "%u writes of 4 MiB in flight: %s", p->depth,
                         failed ? p->task.error.message : p->why);
    else
        bwi_findings_add(f, 0, 0, tier, NULL, "depth", NULL,
                         "%u writes of 4 MiB in flight, %" PRIu64 " MB/s in a moment of writing: %s", p->depth,
                         p->bytes_per_s / 1000000, p->why);
}

void bwi_diagnose_pair(const struct bwi_diagnose_tier *local, const struct bwi_diagnose_tier *remote,
                       struct bwi_findings *f) {
    if (local->caps.device == 0 || local->caps.device != remote->caps.device) return;
    bwi_findings_add(f, 1, 0, NULL, NULL, "same device", NULL,
                     "both tiers are on device %" PRIx64
                     ": they fail together, and a launch refuses them unless that is "
                     "declared",
                     local->caps.device);
}

/* ---- creating once ---- */

static bool is_loss(const struct bwi_diagnose_try *t) {
    return t->status == BW_E_EXISTS && t->outcome == BWI_STORE_OTHER;
}

static bool is_failure(const struct bwi_diagnose_try *t) {
    return t->status < 0 && t->status != BW_E_EXISTS && t->status != BW_E_UNKNOWN;
}

/* What is wrong with one round; NULL: nothing, or it was cut short by a failure. A racer whose answer is unknown may
 * have won. */
static const char *judge(const struct bwi_diagnose_race *r, unsigned round) {
    const struct bwi_diagnose_try *tries = r->tries + (size_t)round * r->racers;
    const unsigned holder = r->holder[round];
    unsigned created = 0;
    unsigned unknown = 0;
    unsigned winner = r->racers;
    for (unsigned i = 0; i < r->racers; i++) {
        if (is_failure(&tries[i])) return NULL;
    }
    for (unsigned i = 0; i < r->racers; i++) {
        const bool won = tries[i].status == 0 && tries[i].outcome == BWI_STORE_CREATED;
        if (!won && !is_loss(&tries[i]) && tries[i].status != BW_E_UNKNOWN) {
            return "a racer was told that its bytes had been there before";
        }
        created += won;
        unknown += tries[i].status == BW_E_UNKNOWN;
        if (won) winner = i;
    }
    if (created > 1) return "more than one racer was told that it had created the object";
    if (created == 0 && unknown == 0) return "no racer was told that it had created the object";
    if (holder == r->racers) return "the object is gone, or has bytes that no racer wrote";
    if (created == 1 && holder != winner) return "the object has other bytes than those of the racer that created it";
    if (created == 0 && tries[holder].status != BW_E_UNKNOWN) return "the object has the bytes of a racer that lost";
    return NULL;
}

void bwi_diagnose_race(const struct bwi_diagnose_race *r, enum bwi_tier tier, struct bwi_findings *f) {
    const char *name = bwi_tier_name(tier);
    for (unsigned i = 0; i < r->rounds; i++) {
        const char *wrong = judge(r, i);
        if (wrong == NULL) continue;
        bwi_findings_add(f, 2, BW_E_UNSUPPORTED, name, NULL, "create once", NULL,
                         "does not hold: in race %u of %u handles %s; checkpoints would be lost or mixed here", i + 1,
                         r->racers, wrong);
        return;
    }
    if (r->error->status < 0) {
        bwi_findings_add(f, 2, r->error->status, name, NULL, "create once", NULL, "the tier cannot be used: %s",
                         r->error->message);
        return;
    }
    bwi_findings_add(f, 0, 0, name, NULL, "create once", NULL,
                     "holds: %u races of %u handles on this host, %" PRIu64 " us each", r->rounds, r->racers,
                     r->rounds == 0 ? 0 : r->took_ns / r->rounds / 1000);
}
