/* SPDX-License-Identifier: Apache-2.0 */
/* The process that serves the disk, and how others tell it what to do: in memory that they share, and by unmounting. */
#include "forgetful.h"

#include "disk.h"
#include "forgetful_ops.h"
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_TRIES 20000u
#define WAIT_US    500u

enum order { ORDER_NONE, ORDER_CRASH, ORDER_GO_ON, ORDER_END };

struct forgetful {
    char at[700];
    pid_t pid;
    atomic_uint mounted; /* how often it has been */
    atomic_bool failed;  /* it could not be mounted */
    /* the next aim */
    atomic_uint aimed;
    char name[32];
    uint64_t n;
    atomic_bool still;
    /* what to do when it is unmounted */
    atomic_uint order;
    uint64_t seed;
    atomic_ullong changes;
};

/* --- the process that serves ---- */

struct server {
    struct forgetful *f;
    struct disk *disk;
    struct disk_process *process;
    unsigned aimed; /* the last aim that was taken */
};

static void new_process(struct server *s) {
    disk_process_free(s->process);
    s->process = disk_process_new(1);
    disk_attach(s->process, "disk", s->disk);
}

/* Nobody is answered any more. The order comes when all of them have been killed. */
static void stand_still(void *user) {
    struct server *s = user;
    atomic_store(&s->f->still, true);
    while (atomic_load(&s->f->order) == ORDER_NONE) (void)usleep(WAIT_US);
    disk_process_kill(s->process);
}

static void before_each(void *user) {
    struct server *s = user;
    struct forgetful *f = s->f;
    const unsigned aimed = atomic_load(&f->aimed);
    atomic_store(&f->changes, disk_changes(s->process));
    if (aimed == s->aimed) return;
    s->aimed = aimed;
    disk_stop_at(s->process, 0, stand_still, s);
    disk_stop_at_sync(s->process, NULL, 0, stand_still, s);
    if (f->name[0] != '\0')
        disk_stop_at_sync(s->process, f->name, f->n, stand_still, s);
    else
        disk_stop_at(s->process, f->n, stand_still, s);
}

static void serve(struct forgetful *f) {
    struct server s = {.f = f, .disk = disk_new(bwi_env_system(), &(struct disk_model){.device = 1})};
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    do {
        new_process(&s);
        const struct forgetful_view v = {s.disk, s.process, before_each, &s};
        if (!forgetful_serve(&v, f->at, &f->mounted)) {
            atomic_store(&f->failed, true);
            break;
        }
        while (atomic_load(&f->order) == ORDER_NONE) (void)usleep(WAIT_US);
        if (atomic_load(&f->order) == ORDER_CRASH) disk_crash(s.disk, f->seed);
        atomic_store(&f->still, false);
    } while (atomic_exchange(&f->order, ORDER_NONE) != ORDER_END);
    disk_process_free(s.process);
    disk_free(s.disk);
}

/* --- those who tell it ---- */

static bool wait_for_mount(struct forgetful *f, unsigned mounted) {
    for (unsigned i = 0; i < WAIT_TRIES && !atomic_load(&f->failed); i++) {
        if (atomic_load(&f->mounted) >= mounted) return true;
        (void)usleep(WAIT_US);
    }
    return false;
}

static bool unmount(struct forgetful *f, enum order order) {
    const unsigned mounted = atomic_load(&f->mounted);
    const int rc = umount2(f->at, MNT_FORCE | MNT_DETACH);
    atomic_store(&f->order, order); /* not before: it would mount again on what is about to be unmounted */
    if (rc != 0) return false;
    return order == ORDER_END || wait_for_mount(f, mounted + 1);
}

bool forgetful_is_possible(void) {
    return access("/dev/fuse", R_OK | W_OK) == 0;
}

struct forgetful *forgetful_start(const char *at) {
    struct forgetful *f = mmap(NULL, sizeof *f, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (f == MAP_FAILED) return NULL;
    (void)snprintf(f->at, sizeof f->at, "%s", at);
    const pid_t pid = fork();
    if (pid == 0) {
        serve(f);
        _exit(0);
    }
    f->pid = pid; /* the child shares it */
    if (f->pid > 0 && wait_for_mount(f, 1)) return f;
    forgetful_stop(f);
    return NULL;
}

void forgetful_stop(struct forgetful *f) {
    if (f == NULL) return;
    if (f->pid > 0) {
        (void)unmount(f, ORDER_END);
        (void)waitpid(f->pid, NULL, 0);
    }
    (void)munmap(f, sizeof *f);
}

void forgetful_aim(struct forgetful *f, const char *name, uint64_t n) {
    (void)snprintf(f->name, sizeof f->name, "%s", name);
    f->n = n;
    atomic_fetch_add(&f->aimed, 1);
}

bool forgetful_stands_still(const struct forgetful *f) {
    return atomic_load(&f->still);
}

bool forgetful_crash(struct forgetful *f, uint64_t seed) {
    f->seed = seed;
    return unmount(f, ORDER_CRASH);
}

bool forgetful_go_on(struct forgetful *f) {
    return unmount(f, ORDER_GO_ON);
}

uint64_t forgetful_changes(const struct forgetful *f) {
    return atomic_load(&f->changes);
}
