/* SPDX-License-Identifier: Apache-2.0 */
/* The POSIX store in hostile and crowded directories: links, FIFOs, devices, other processes, full disks, foreign
 * users. What all stores promise is in contract.c, what happens when system calls fail in store_posix_fault_test.c. */
#include "rig.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

struct fixture {
    struct rig rig;
    char dir[512], outside[512], mount[512];
    struct bwi_store *s;
    unsigned files;
};
static struct fixture the;

#define S &f->rig, f->s

static int setup(void **state) {
    the = (struct fixture){.files = rig_open_files()};
    snprintf(the.dir, sizeof the.dir, "%s", test_mkdir());
    snprintf(the.outside, sizeof the.outside, "%s", test_mkdir());
    rig_open(&the.rig, false, NULL);
    the.s = rig_store(&the.rig, the.dir, false);
    *state = &the;
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    if (f->s) f->s->close(f->s);
    if (f->rig.loop) rig_close(&f->rig);
    if (f->mount[0]) umount2(f->mount, MNT_DETACH);
    test_rmdir(f->dir);
    test_rmdir(f->outside);
    return rig_open_files() == f->files ? 0 : -1;
}

static void put_file(const char *dir, const char *name, const char *text) {
    char path[1100];
    rig_path(path, sizeof path, dir, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
}

static void make_dir(const char *dir, const char *name) {
    char path[1100];
    rig_path(path, sizeof path, dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void make_link(const char *to, const char *dir, const char *name) {
    char path[1100];
    rig_path(path, sizeof path, dir, name);
    assert_int_equal(symlink(to, path), 0);
}

static bool there(const char *dir, const char *name) {
    char path[1100];
    struct stat st;
    rig_path(path, sizeof path, dir, name);
    return lstat(path, &st) == 0;
}

/* ---- hostile trees ---- */

static void refuse(struct fixture *f, const char *key, int reading, int making, const char *what) {
    char byte;
    assert_op_fails(st_get(S, key, 100), reading, what);
    assert_op_fails(st_head(S, key), reading, what);
    assert_op_fails(st_read(S, key, 0, &byte, 1, NULL), reading, what);
    assert_op_fails(st_create(S, key, "x"), making, what);
    assert_op_fails(st_upload(S, key, bwi_span_str("x")), making, what);
}

/* No verb goes through `key`, of which an earlier component than the last is what it must not be. */
static void refuse_below(struct fixture *f, const char *key) {
    refuse(f, key, BW_E_IO, BW_E_IO, "refused");
}

/* What stands in the place of an object is damage to who reads it, and another object to who makes it. */
static void refuse_object(struct fixture *f, const char *key, const char *what) {
    char text[100];
    snprintf(text, sizeof text, "\"%s\": is %s: expected a regular file", key, what);
    refuse(f, key, BW_E_CORRUPT, BW_E_EXISTS, text);
    assert_int_equal(st_create(S, key, "x").outcome, BWI_STORE_OTHER);
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

static void refuse_prefix(struct fixture *f, const char *prefix) {
    assert_op_fails(st_list(S, prefix, NULL), BW_E_IO, "is neither a file nor a directory: refused");
    assert_op_fails(st_key(S, BWI_STORE_SYNC, prefix), BW_E_IO, "refused");
    assert_op_fails(st_key(S, BWI_STORE_LOCK, prefix), BW_E_IO, "refused");
}

static void links_are_never_followed(void **state) {
    struct fixture *f = *state;
    put_file(f->outside, "secret", "secret");
    make_dir(f->outside, "dir");
    put_file(f->outside, "dir/k", "secret");
    char to[600];
    rig_path(to, sizeof to, f->outside, "secret");
    make_link(to, f->dir, "file_link");
    make_link("nowhere", f->dir, "dangling");
    make_link(f->outside, f->dir, "dir_link");
    make_dir(f->dir, "d");
    make_link(f->outside, f->dir, "d/dir_link");
    make_link(".", f->dir, "d/self");
    static const char *const links[] = {"file_link", "dangling", "dir_link", "d/dir_link", "d/self"};
    for (size_t i = 0; i < 5; i++) refuse_object(f, links[i], "a symbolic link");
    static const char *const below[] = {"dir_link/secret", "dir_link/dir/k", "d/dir_link/secret", "d/self/d"};
    for (size_t i = 0; i < 4; i++) refuse_below(f, below[i]);
    refuse_prefix(f, "dir_link/");
    refuse_prefix(f, "d/dir_link/dir/");
    assert_op_fails(st_key(S, BWI_STORE_DELETE, "dir_link/secret"), BW_E_IO, "refused");
    assert_op_fails(st_key(S, BWI_STORE_DELETE_PREFIX, "dir_link/dir/"), BW_E_IO, "refused");
    assert_op_fails(st_replace(S, "dir_link/secret", "x"), BW_E_IO, "refused");
    assert_listing(S, "", NULL, "d/ dangling dir_link file_link");
    assert_listing(S, "d/", NULL, "dir_link self");
    assert_true(there(f->outside, "secret") && there(f->outside, "dir/k"));
    assert_int_equal(rig_hidden_files(f->outside), 0);
}

static void deleting_removes_links_and_not_what_they_lead_to(void **state) {
    struct fixture *f = *state;
    put_file(f->outside, "secret", "secret");
    make_dir(f->dir, "d");
    make_dir(f->dir, "d/e");
    make_link(f->outside, f->dir, "d/e/dir_link");
    make_link(f->outside, f->dir, "top");
    make_link("k", f->dir, "one");
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"));
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "top/"));
    assert_op_ok(st_key(S, BWI_STORE_DELETE, "one"));
    assert_false(there(f->dir, "d") || there(f->dir, "top") || there(f->dir, "one"));
    assert_true(there(f->outside, "secret"));
}

static void replacing_puts_the_object_in_place_of_a_link(void **state) {
    struct fixture *f = *state;
    char to[600];
    put_file(f->outside, "secret", "secret");
    rig_path(to, sizeof to, f->outside, "secret");
    make_link(to, f->dir, "k");
    assert_op_ok(st_replace(S, "k", "right"));
    assert_object(S, "k", "right");
    struct stat st;
    assert_int_equal(stat(to, &st), 0);
    assert_int_equal(st.st_size, 6);
}

static void fifos_and_devices_neither_block_nor_are_read(void **state) {
    struct fixture *f = *state;
    char path[600];
    rig_path(path, sizeof path, f->dir, "fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    refuse_object(f, "fifo", "a FIFO");
    refuse_below(f, "fifo/k");
    refuse_prefix(f, "fifo/");
    rig_path(path, sizeof path, f->dir, "device");
    if (mknod(path, S_IFCHR | 0600, makedev(1, 5)) == 0) { /* /dev/zero: reading would not end */
        refuse_object(f, "device", "a device");
        assert_listing(S, "", NULL, "device fifo");
        refuse_prefix(f, "device/");
        assert_op_ok(st_key(S, BWI_STORE_DELETE, "device"));
    } else {
        print_message("without a device: mknod is not permitted here\n");
    }
    assert_listing(S, "", NULL, "fifo");
    make_dir(f->dir, "d");
    rig_path(path, sizeof path, f->dir, "d/fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"));
    assert_false(there(f->dir, "d"));
}

/* It is no temporary either, however old and whatever it is called. */
static void a_copy_takes_the_place_of_what_is_no_file(void **state) {
    struct fixture *f = *state;
    char path[600];
    put_file(f->outside, "secret", "secret");
    make_dir(f->dir, "d");
    rig_path(path, sizeof path, f->outside, "secret");
    make_link(path, f->dir, "d/link");
    rig_path(path, sizeof path, f->dir, "d/fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_op_ok(st_replace(S, "d/link", "x"));
    assert_op_ok(st_replace(S, "d/fifo", "y"));
    assert_object(S, "d/link", "x");
    assert_object(S, "d/fifo", "y");
    assert_listing(S, "d/", NULL, "fifo link");
    put_file(f->dir, "d/k", "z");
    rig_path(path, sizeof path, f->dir, "d/k");
    assert_int_equal(unlink(path) | mkfifo(path, 0600), 0);
    assert_op_ok(st_key(S, BWI_STORE_DELETE, "d/k"));
    assert_no_object(S, "d/k");
    make_link("k", f->dir, "d/.0123456789abcdef.tmp");
    struct bwi_store_op op = {.verb = BWI_STORE_LIST, .key = "d/", .tidy = true};
    op = st_run(&f->rig, f->s, op);
    assert_op_ok(op);
    bwi_store_names_fini(&op.names);
    assert_true(there(f->dir, "d/.0123456789abcdef.tmp"));
}

static void a_lock_file_that_is_none_is_refused(void **state) {
    struct fixture *f = *state;
    make_dir(f->dir, "d");
    put_file(f->outside, "secret", "secret");
    make_link("../elsewhere", f->dir, "d/.lock");
    assert_op_fails(st_key(S, BWI_STORE_LOCK, "d/"), BW_E_IO, "lock \"d/\": open .lock: ");
    assert_false(there(f->dir, "elsewhere"));
}

static void a_directory_in_place_of_an_object_is_an_error_for_creators(void **state) {
    struct fixture *f = *state;
    assert_op_ok(st_create(S, "d/k", "x"));
    refuse_object(f, "d", "a directory");
    assert_op_ok(st_key(S, BWI_STORE_DELETE, "d"));
    assert_object(S, "d/k", "x");
    assert_op_fails(st_replace(S, "d", "x"), BW_E_IO, "replace \"d\": rename the temporary file over the object: ");
    assert_op_fails(st_create(S, "d/k/below", "x"), BW_E_IO,
                    "create \"d/k/below\": \"k\" is an object: nothing can be created below it");
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

static void names_that_no_key_has_are_not_listed_but_deleted_with_their_prefix(void **state) {
    struct fixture *f = *state;
    make_dir(f->dir, "d");
    make_dir(f->dir, "d/lost+found");
    make_dir(f->dir, "d/.snapshot");
    put_file(f->dir, "d/k~", "x");
    put_file(f->dir, "d/a b", "x");
    put_file(f->dir, "d/.0123456789abcdef.tmp", "half");
    put_file(f->dir, "d/lost+found/\xff\n", "x");
    put_file(f->dir, "d/k", "x");
    assert_listing(S, "d/", NULL, "k");
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"));
    assert_false(there(f->dir, "d"));
}

static void a_tree_that_is_too_deep_is_not_deleted_without_bound(void **state) {
    struct fixture *f = *state;
    char path[600];
    snprintf(path, sizeof path, "%s", f->dir);
    for (int i = 0; i < 20; i++) {
        strcat(path, "/d");
        assert_int_equal(mkdir(path, 0700), 0);
    }
    put_file(f->dir, "d/d/k", "x");
    assert_op_fails(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"), BW_E_LIMIT,
                    "delete prefix \"d/\": \"d\" is deeper than 16 directories");
    assert_true(there(f->dir, "d/d/d"));
    assert_false(there(f->dir, "d/d/k")); /* what could be deleted is */
}

static unsigned refills; /* how often somebody makes one more file just before the directory goes */
static bool renewed;     /* in a directory of that name that is another one */

static int rmdir_of_a_directory_in_use(struct bwi_os *os, int dirfd, const char *path) {
    struct bwi_os *system = bwi_os_system();
    char name[300];
    if (refills > 0) {
        refills--;
        if (renewed) assert_int_equal(system->rmdir(os, dirfd, path), 0);
        if (renewed) assert_int_equal(system->mkdir(os, dirfd, path), 0);
        snprintf(name, sizeof name, "%s/again", path);
        const int fd = system->open_new(os, dirfd, name);
        assert_true(fd >= 0);
        assert_int_equal(system->close(os, fd), 0);
    }
    return system->rmdir(os, dirfd, path);
}

/* By a process that was believed dead. One that never stops is not waited for. */
static void a_directory_that_is_filled_while_it_is_emptied_goes_all_the_same(void **state) {
    struct fixture *f = *state;
    struct bwi_os os = *bwi_os_system();
    os.rmdir = rmdir_of_a_directory_in_use;
    f->s->close(f->s);
    rig_close(&f->rig);
    rig_open(&f->rig, false, &os);
    f->s = rig_store(&f->rig, f->dir, false);
    make_dir(f->dir, "d");
    refills = 40;
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"));
    assert_int_equal(refills, 0);
    assert_false(there(f->dir, "d"));
    make_dir(f->dir, "d");
    refills = 1;
    renewed = true;
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"));
    renewed = false;
    assert_false(there(f->dir, "d"));
    make_dir(f->dir, "d");
    refills = UINT_MAX;
    assert_op_fails(st_key(S, BWI_STORE_DELETE_PREFIX, "d/"), BW_E_IO, "directory not empty");
    refills = 0;
    f->s->close(f->s); /* before the table goes */
    rig_close(&f->rig);
    f->s = NULL;
}

/* ---- what is on disk ---- */

static void files_are_private_and_no_temporary_stays(void **state) {
    struct fixture *f = *state;
    char path[600];
    struct stat st;
    mode_t before = umask(0);
    assert_op_ok(st_create(S, "a/b/k", "x"));
    assert_outcome(st_upload(S, "a/b/u", bwi_span_str("x")), BWI_STORE_CREATED);
    assert_op_ok(st_replace(S, "a/b/k", "y"));
    assert_op_fails(st_create(S, "a/b/k", "z"), BW_E_EXISTS, NULL);
    umask(before);
    rig_path(path, sizeof path, f->dir, "a/b/k");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(st.st_nlink, 1);
    rig_path(path, sizeof path, f->dir, "a/b");
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

static void an_upload_reserves_its_space_and_uses_it(void **state) {
    struct fixture *f = *state;
    struct bwi_store_op begun = st_begin(S, "d/u", 1 << 20);
    assert_op_ok(begun);
    assert_int_equal(rig_hidden_files(f->dir), 1);
    assert_op_ok(st_abort(S, begun.upload));
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

static void it_knows_its_device_and_that_it_is_local(void **state) {
    struct fixture *f = *state;
    struct stat st;
    assert_int_equal(stat(f->dir, &st), 0);
    assert_int_equal(f->s->caps.device, st.st_dev);
    if (access("/dev/shm", W_OK) != 0) return;
    struct bwi_store *shm = rig_store(&f->rig, "/dev/shm", true);
    assert_true(shm->caps.node_local);
    shm->close(shm);
}

static void a_descriptor_that_is_kept_sees_one_object(void **state) {
    struct fixture *f = *state;
    char buf[4] = {0};
    struct bwi_store_handle *h = NULL;
    assert_op_ok(st_create(S, "k", "old"));
    assert_op_ok(st_read(S, "k", 0, buf, 3, &h));
    assert_op_ok(st_replace(S, "k", "new"));
    assert_op_ok(st_read(S, "k", 0, buf, 3, &h));
    assert_string_equal(buf, "old");
    assert_op_ok(st_release(S, &h));
    assert_op_ok(st_read(S, "k", 0, buf, 3, &h));
    assert_string_equal(buf, "new");
    assert_op_ok(st_release(S, &h));
}

/* ---- full disks ---- */

static void a_full_disk_is_found_before_writing(void **state) {
    struct fixture *f = *state;
    snprintf(f->mount, sizeof f->mount, "%s", f->outside);
    if (mount("none", f->mount, "tmpfs", 0, "size=1m") != 0) {
        print_message("skipped: mounting a small file system is not permitted here (%s)\n", strerror(errno));
        f->mount[0] = '\0';
        skip();
    }
    struct bwi_store *small = rig_store(&f->rig, f->mount, false);
    uint8_t *bytes = calloc(1, 2 << 20);
    assert_non_null(bytes);
    struct bwi_store_op op = st_begin(&f->rig, small, "d/u", 2 << 20);
    assert_op_fails(op, BW_E_NOSPACE, "begin \"d/u\": reserve 2097152 bytes in file:///");
    assert_int_equal(op.error.os_errno, ENOSPC);
    assert_op_fails(st_create_bytes(&f->rig, small, "d/k", bwi_span(bytes, 2 << 20)), BW_E_NOSPACE,
                    "create \"d/k\": write 2097152 bytes to file:///");
    assert_op_fails(
        st_run(&f->rig, small,
               (struct bwi_store_op){.verb = BWI_STORE_REPLACE, .key = "d/k", .data = bwi_span(bytes, 2 << 20)}),
        BW_E_NOSPACE, "replace \"d/k\": write 2097152 bytes");
    assert_int_equal(rig_hidden_files(f->mount), 0);
    assert_listing(&f->rig, small, "d/", NULL, "");
    op = st_run(&f->rig, small, (struct bwi_store_op){.verb = BWI_STORE_SPACE});
    assert_true(op.free_bytes > (1 << 20) - 65536 && op.total_bytes == 1 << 20); /* all was given back */
    assert_outcome(st_upload(&f->rig, small, "d/u", bwi_span(bytes, 500000)), BWI_STORE_CREATED);
    assert_outcome(st_create_bytes(&f->rig, small, "d/k", bwi_span(bytes, 400000)), BWI_STORE_CREATED);
    free(bytes);
    small->close(small);
}

/* ---- other users and processes ---- */

/* Runs `child` in a process of its own. It has none of our threads: a rig that is open is of no use to it. */
static int in_child(int (*child)(struct fixture *f, int arg), struct fixture *f, int arg) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child(f, arg));
    return pid;
}

static int exit_of(int pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static void close_rig(struct fixture *f) {
    f->s->close(f->s);
    f->s = NULL;
    rig_close(&f->rig);
}

static int as_another_user(struct fixture *f, int arg) {
    (void)arg;
    if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0)) return 9;
    rig_open(&f->rig, false, NULL);
    f->s = rig_store(&f->rig, f->dir, true);
    assert_object(S, "d/k", "bytes");
    assert_listing(S, "d/", NULL, "k");
    assert_op_fails(st_create(S, "d/new", "x"), BW_E_ACCESS, "create \"d/new\": the store file:///");
    close_rig(f);
    rig_open(&f->rig, false, NULL);
    struct bwi_store *s = NULL;
    if (bwi_store_open(f->dir, &(struct bwi_store_options){.loop = f->rig.loop, .create = true}, &s, NULL) < 0)
        return 8;
    assert_op_fails(st_create(&f->rig, s, "d/new", "x"), BW_E_ACCESS,
                    "create \"d/new\": make a temporary file in file:///");
    assert_op_fails(st_create(&f->rig, s, "e/new", "x"), BW_E_ACCESS,
                    "create \"e/new\": make directory \"e\": permission denied");
    s->close(s);
    rig_close(&f->rig);
    return 7;
}

static void a_directory_that_one_may_only_read_can_be_read(void **state) {
    struct fixture *f = *state;
    char path[600];
    assert_op_ok(st_create(S, "d/k", "bytes"));
    close_rig(f);
    rig_path(path, sizeof path, f->dir, "d/k");
    assert_int_equal(chmod(path, 0444), 0);
    rig_path(path, sizeof path, f->dir, "d");
    assert_int_equal(chmod(path, 0555), 0);
    assert_int_equal(chmod(f->dir, 0555), 0);
    assert_int_equal(exit_of(in_child(as_another_user, f, 0)), 7);
    assert_int_equal(chmod(f->dir, 0700), 0);
    assert_int_equal(chmod(path, 0700), 0);
}

#define RACE_KEYS 150

/* Creates all keys with bytes of its own; the number of those that it created goes to a pipe. */
static int create_many(struct fixture *f, int arg) {
    uint16_t created = 0, other = 0;
    rig_open(&f->rig, false, NULL);
    f->s = rig_store(&f->rig, f->dir, false);
    for (int i = 0; i < RACE_KEYS; i++) {
        char key[64], text[32];
        snprintf(key, sizeof key, "d%d/e/k%d", i / 10, i);
        snprintf(text, sizeof text, "by %d", getpid());
        struct bwi_store_op op = st_create(S, key, text);
        if (op.outcome == BWI_STORE_CREATED)
            created++;
        else if (op.outcome == BWI_STORE_OTHER && op.error.status == BW_E_EXISTS)
            other++;
    }
    close_rig(f);
    bool told = write(arg, &created, sizeof created) == sizeof created;
    return told && created + other == RACE_KEYS ? 7 : 1;
}

static void of_two_processes_exactly_one_creates_each_key(void **state) {
    struct fixture *f = *state;
    int ends[2], pids[2];
    uint16_t created[2];
    close_rig(f);
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; i < 2; i++) pids[i] = in_child(create_many, f, ends[1]);
    for (int i = 0; i < 2; i++) assert_int_equal(exit_of(pids[i]), 7);
    for (int i = 0; i < 2; i++) assert_int_equal(read(ends[0], &created[i], sizeof *created), sizeof *created);
    assert_int_equal(created[0] + created[1], RACE_KEYS);
    assert_int_equal(rig_hidden_files(f->dir), 0);
    close(ends[0]);
    close(ends[1]);
    rig_open(&f->rig, false, NULL);
    f->s = rig_store(&f->rig, f->dir, false);
    size_t whole = 0;
    for (int i = 0; i < RACE_KEYS; i++) {
        char key[64];
        snprintf(key, sizeof key, "d%d/e/k%d", i / 10, i);
        struct bwi_store_op op = st_get(S, key, 100);
        assert_op_ok(op);
        whole += op.body.len > 3;
        bwi_buf_fini(&op.body);
    }
    assert_int_equal(whole, RACE_KEYS);
}

static int hold_lock(struct fixture *f, int arg) {
    char byte = 'l';
    rig_open(&f->rig, false, NULL);
    f->s = rig_store(&f->rig, f->dir, false);
    if (st_key(S, BWI_STORE_LOCK, "d/").error.status != 0) return 1;
    if (write(arg, &byte, 1) != 1) return 2;
    for (;;) pause();
}

static void a_lock_dies_with_its_process(void **state) {
    struct fixture *f = *state;
    int ends[2];
    char byte;
    close_rig(f);
    assert_int_equal(pipe(ends), 0);
    int pid = in_child(hold_lock, f, ends[1]);
    assert_int_equal(read(ends[0], &byte, 1), 1);
    rig_open(&f->rig, false, NULL);
    f->s = rig_store(&f->rig, f->dir, false);
    assert_op_fails(st_key(S, BWI_STORE_LOCK, "d/"), BW_E_BUSY, NULL);
    kill(pid, SIGKILL);
    assert_int_equal(exit_of(pid), 1000 + SIGKILL);
    struct bwi_store_op op = st_key(S, BWI_STORE_LOCK, "d/");
    assert_op_ok(op);
    assert_op_ok(st_unlock(S, op.lock));
    close(ends[0]);
    close(ends[1]);
}

static int live_until_told(struct fixture *f, int arg) {
    char byte;
    (void)f;
    return read(arg, &byte, 1) == 1 ? 7 : 1;
}

/* Workers that read data for the training are forked from its process, and outlive many a lock. */
static void a_lock_is_free_after_unlocking_though_a_child_was_forked_meanwhile(void **state) {
    struct fixture *f = *state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    struct bwi_store_op op = st_key(S, BWI_STORE_LOCK, "d/");
    assert_op_ok(op);
    int pid = in_child(live_until_told, f, ends[0]);
    assert_op_ok(st_unlock(S, op.lock));
    op = st_key(S, BWI_STORE_LOCK, "d/");
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(exit_of(pid), 7);
    assert_op_ok(op);
    assert_op_ok(st_unlock(S, op.lock));
    close(ends[0]);
    close(ends[1]);
}

static void killed_creators_leave_whole_objects_or_none(void **state) {
    struct fixture *f = *state;
    close_rig(f);
    for (int i = 0; i < 5; i++) {
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        int pid = in_child(create_many, f, ends[1]);
        usleep((unsigned)(3000 + 7000 * i));
        kill(pid, SIGKILL);
        exit_of(pid);
        close(ends[0]);
        close(ends[1]);
    }
    rig_open(&f->rig, false, NULL);
    f->s = rig_store(&f->rig, f->dir, false);
    for (int i = 0; i < RACE_KEYS; i++) {
        char key[64];
        snprintf(key, sizeof key, "d%d/e/k%d", i / 10, i);
        struct bwi_store_op op = st_get(S, key, 100);
        if (op.error.status == 0) {
            assert_true(op.body.len > 3 && memcmp(op.body.ptr, "by ", 3) == 0);
            bwi_buf_fini(&op.body);
        } else {
            assert_op_fails(op, BW_E_NOTFOUND, NULL);
            assert_outcome(st_create(S, key, "mine"), BWI_STORE_CREATED); /* nothing blocks the name */
        }
    }
}

/* ---- creating where others delete ---- */

static void creators_get_along_with_a_deletion_of_their_prefix(void **state) {
    struct fixture *f = *state;
    struct bwi_store *other = rig_store(&f->rig, f->dir, false);
    unsigned created = 0;
    for (int round = 0; round < 60; round++) {
        struct bwi_store_op ops[6], del = {.verb = BWI_STORE_DELETE_PREFIX, .key = "a/"};
        char keys[6][64];
        for (int i = 0; i < 6; i++) {
            snprintf(keys[i], sizeof keys[i], "a/b%d/c/k%d", i / 2, i);
            ops[i] = (struct bwi_store_op){.verb = BWI_STORE_CREATE, .key = keys[i], .data = bwi_span_str("whole")};
            rig_submit(&f->rig, f->s, &ops[i]);
            if (i == round % 6) rig_submit(&f->rig, other, &del);
        }
        for (int i = 0; i < 6; i++) {
            rig_wait(&f->rig, &ops[i]);
            assert_op_ok(ops[i]);
            created += ops[i].outcome == BWI_STORE_CREATED;
        }
        rig_wait(&f->rig, &del);
        if (del.error.status != 0) assert_op_fails(del, BW_E_IO, "directory not empty");
        for (int i = 0; i < 6; i++) {
            struct bwi_store_op op = st_get(S, keys[i], 100);
            if (op.error.status == 0)
                assert_int_equal(op.body.len, 5);
            else
                assert_op_fails(op, BW_E_NOTFOUND, NULL);
            bwi_buf_fini(&op.body);
        }
    }
    assert_true(created > 60);
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
    assert_listing(S, "", NULL, "");
    assert_int_equal(rig_hidden_files(f->dir), 0);
    other->close(other);
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

/* A file of the directory, so many seconds old. */
static void leave(const char *dir, const char *name, int64_t age_s) {
    char path[700];
    rig_path(path, sizeof path, dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    struct timespec t[2];
    assert_int_equal(clock_gettime(CLOCK_REALTIME, &t[0]), 0);
    t[0].tv_sec -= age_s;
    t[1] = t[0];
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
}

static bool is_left(const char *dir, const char *name) {
    char path[700];
    rig_path(path, sizeof path, dir, name);
    return access(path, F_OK) == 0;
}

static void a_listing_that_tidies_takes_old_temporaries_and_nothing_else(void **state) {
    struct fixture *f = *state;
    static const char *const stay[] = {"h/.0123456789abcdee.tmp", "h/.lock", "h/.0123456789abcdef.tmp.x",
                                       "h/.0123456789ABCDEF.tmp", "h/.tmp",  "h/0123456789abcdef.tmp"};
    static const char old[] = "h/.0123456789abcdef.tmp";
    const int64_t day = 86400;
    assert_op_ok(st_create(S, "h/1", "x"));
    leave(f->dir, old, day + 60);
    leave(f->dir, stay[0], day - 60);
    for (size_t i = 1; i < 6; i++) leave(f->dir, stay[i], 9 * day);
    for (int how = 0; how < 3; how++) { /* not asked, not allowed, done */
        struct bwi_store *s = how == 1 ? rig_store(&f->rig, f->dir, true) : f->s;
        struct bwi_store_op op =
            st_run(&f->rig, s, (struct bwi_store_op){.verb = BWI_STORE_LIST, .key = "h/", .tidy = how > 0});
        assert_op_ok(op);
        assert_int_equal(op.names.len, 2);
        bwi_store_names_fini(&op.names);
        assert_int_equal(is_left(f->dir, old), how < 2);
        for (size_t i = 0; i < 6; i++) assert_true(is_left(f->dir, stay[i]));
        if (how == 1) s->close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(links_are_never_followed),
        CASE(deleting_removes_links_and_not_what_they_lead_to),
        CASE(replacing_puts_the_object_in_place_of_a_link),
        CASE(fifos_and_devices_neither_block_nor_are_read),
        CASE(a_copy_takes_the_place_of_what_is_no_file),
        CASE(a_lock_file_that_is_none_is_refused),
        CASE(a_directory_in_place_of_an_object_is_an_error_for_creators),
        CASE(names_that_no_key_has_are_not_listed_but_deleted_with_their_prefix),
        CASE(a_directory_that_is_filled_while_it_is_emptied_goes_all_the_same),
        CASE(a_tree_that_is_too_deep_is_not_deleted_without_bound),
        CASE(files_are_private_and_no_temporary_stays),
        CASE(an_upload_reserves_its_space_and_uses_it),
        CASE(it_knows_its_device_and_that_it_is_local),
        CASE(a_descriptor_that_is_kept_sees_one_object),
        CASE(a_full_disk_is_found_before_writing),
        CASE(a_directory_that_one_may_only_read_can_be_read),
        CASE(of_two_processes_exactly_one_creates_each_key),
        CASE(a_lock_dies_with_its_process),
        CASE(a_lock_is_free_after_unlocking_though_a_child_was_forked_meanwhile),
        CASE(killed_creators_leave_whole_objects_or_none),
        CASE(a_listing_that_tidies_takes_old_temporaries_and_nothing_else),
        CASE(creators_get_along_with_a_deletion_of_their_prefix),
    };
    return cmocka_run_group_tests_name("store_posix", tests, NULL, NULL);
}
