/* SPDX-License-Identifier: Apache-2.0 */
/* A narrower world for one process. */
#include "confine.h"
#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CALLS_MAX 32u

/* For all threads. One comparison per call, each of which jumps to the last instruction. */
void refuse_calls(const int *numbers, size_t count, int error) {
    struct sock_filter code[CALLS_MAX + 3];
    must(count <= CALLS_MAX);
    size_t n = 0;
    code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (size_t i = 0; i < count; i++, n++) {
        const unsigned char to_refusal = (unsigned char)(count - i);
        code[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)numbers[i], to_refusal, 0);
    }
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error);
    struct sock_fprog program = {(unsigned short)n, code};
    must_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    must_eq(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

void limit(int resource, uint64_t value) {
    struct rlimit r;
    must_eq(getrlimit((__rlimit_resource_t)resource, &r), 0);
    r.rlim_cur = value;
    must_eq(setrlimit((__rlimit_resource_t)resource, &r), 0);
}

int next_descriptor(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    must(fd >= 0);
    (void)close(fd);
    return fd;
}

/* --- file systems ---- */

static int try_mounts(void *arg, unsigned i) {
    (void)arg, (void)i;
    if (unshare(CLONE_NEWNS) != 0) return 1;
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 ? 0 : 1;
}

bool may_mount(void) {
    return reap(spawn(try_mounts, NULL, 0)) == 0;
}

void own_mounts(void) {
    must_eq(unshare(CLONE_NEWNS), 0);
    must_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
}

static void make_directory(const char *path) {
    must(mkdir(path, 0755) == 0 || errno == EEXIST);
}

void mount_tmpfs(const char *path, uint64_t bytes) {
    char options[64];
    make_directory(path);
    (void)snprintf(options, sizeof options, "size=%llu,mode=0755", (unsigned long long)bytes);
    must_eq(mount("tmpfs", path, "tmpfs", 0, options), 0);
}

void mount_overlay(const char *path, const char *under) {
    char options[4500];
    make_directory(path);
    make_directory(under);
    make_directory(path_in(under, "lower"));
    make_directory(path_in(under, "upper"));
    make_directory(path_in(under, "work"));
    (void)snprintf(options, sizeof options, "lowerdir=%.1000s/lower,upperdir=%.1000s/upper,workdir=%.1000s/work", under,
                   under, under);
    must_eq(mount("overlay", path, "overlay", 0, options), 0);
}

void mount_read_only(const char *path, const char *dir) {
    make_directory(path);
    must_eq(mount(dir, path, NULL, MS_BIND, NULL), 0);
    must_eq(mount(NULL, path, NULL, MS_BIND | MS_REMOUNT | MS_RDONLY, NULL), 0);
}

/* --- users ---- */

void give_to_stranger(const char *path) {
    char *roots[] = {(char *)(uintptr_t)path, NULL};
    FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
    must(walk != NULL);
    for (FTSENT *e = fts_read(walk); e != NULL; e = fts_read(walk))
        if (e->fts_info != FTS_DP) must_eq(lchown(e->fts_accpath, STRANGER, STRANGER), 0);
    (void)fts_close(walk);
}

void become_stranger(void) {
    must_eq(setresgid(STRANGER, STRANGER, STRANGER), 0);
    must_eq(setresuid(STRANGER, STRANGER, STRANGER), 0);
}
