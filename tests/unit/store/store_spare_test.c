/* SPDX-License-Identifier: Apache-2.0 */
/* What a deletion keeps for later uploads to write over: that it is used, who prevents it, what goes when room is
 * short, and that nothing of the old bytes is ever found in a new object. */
#include "rig.h"

#include "base/vec.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((size_t)4096)
#define BYTES (64 * BLOCK + 1000)

struct fixture {
    struct rig rig;
    struct bwi_store *s;
    struct bwi_os odd;
    const char *dir;
    uint8_t *old, *new;     /* 2 * BYTES each */
    uint64_t refuse_above;  /* reserve says that the disk is full for more than so many bytes in all */
    unsigned refuse_hidden; /* names are refused while there are more hidden files */
    unsigned files;
};
static struct fixture the;

#define S &f->rig, f->s

static int setup(void **state) {
    struct fixture *f = &the;
    *f = (struct fixture){.files = rig_open_files(), .odd = *bwi_os_system(), .dir = test_mkdir()};
    f->old = bwi_malloc(2 * BYTES);
    f->new = bwi_malloc(2 * BYTES);
    memset(f->old, 'o', 2 * BYTES);
    memset(f->new, 'n', 2 * BYTES);
    rig_open(&f->rig, false, &f->odd);
    f->s = rig_store(&f->rig, f->dir, false);
    *state = f;
    return 0;
}

static void close_it(struct fixture *f) {
    if (f->s == NULL) return;
    f->s->close(f->s);
    rig_close(&f->rig);
    f->s = NULL;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    close_it(f);
    bwi_free(f->old);
    bwi_free(f->new);
    test_rmdir(f->dir);
    assert_int_equal(rig_open_files(), f->files);
    return 0;
}

/* Where no file is written over there is nothing to keep, and nothing to test. */
static struct fixture *able(void **state) {
    struct fixture *f = *state;
    if (!f->s->caps.recycles) skip();
    return f;
}

static struct bwi_store_op delete_keeping(struct fixture *f, const char *prefix, uint64_t keep) {
    return st_run(S, (struct bwi_store_op){.verb = BWI_STORE_DELETE_PREFIX, .key = prefix, .keep_bytes = keep});
}

static void put_old(struct fixture *f, const char *key) {
    assert_op_ok(st_upload(S, key, bwi_span(f->old, BYTES)));
}

/* A pack old/k that is retired, and the path that it had. */
static void retire_one(struct fixture *f) {
    put_old(f, "old/id/k");
    assert_op_ok(delete_keeping(f, "old/id/", 2 * BYTES));
    assert_no_object(S, "old/id/k");
    assert_listing(S, "old/id/", NULL, "");
}

static void assert_new(struct fixture *f, const char *key, size_t bytes) {
    struct bwi_store_op op = st_get(S, key, 2 * BYTES);
    assert_op_ok(op);
    assert_int_equal(op.body.len, bytes);
    assert_memory_equal(op.body.ptr, f->new, bytes);
    bwi_buf_fini(&op.body);
}

/* Uploads new bytes, and says how many of them lie where old ones lay. */
static uint64_t upload(struct fixture *f, const char *key, size_t bytes) {
    const struct bwi_store_op begun = st_begin(S, key, bytes);
    assert_op_ok(begun);
    assert_op_ok(st_write(S, begun.upload, 0, f->new, bytes));
    assert_op_ok(st_finish(S, begun.upload));
    assert_new(f, key, bytes);
    return begun.recycled_bytes;
}

static ino_t inode_of(const struct fixture *f, const char *name) {
    char path[512];
    struct stat st;
    rig_path(path, sizeof path, f->dir, name);
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

static bool is_there(const struct fixture *f, const char *name) {
    char path[512];
    rig_path(path, sizeof path, f->dir, name);
    return access(path, F_OK) == 0;
}

static unsigned spares(const struct fixture *f) {
    return rig_hidden_files(f->dir);
}

static void an_upload_takes_the_file_of_what_was_deleted(void **state) {
    struct fixture *f = able(state);
    put_old(f, "old/00/id/k");
    const ino_t was = inode_of(f, "old/00/id/k");
    assert_op_ok(delete_keeping(f, "old/00/id/", BYTES));
    assert_int_equal(upload(f, "new/k", BYTES), BYTES);
    assert_int_equal(inode_of(f, "new/k"), was);
    assert_int_equal(spares(f), 0);
    assert_false(is_there(f, "old/00")); /* its directories went with the last one */
}

static void a_smaller_and_a_larger_object_have_the_right_size_and_no_old_byte(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    assert_int_equal(upload(f, "new/smaller", BYTES - 3 * BLOCK - 7), BYTES - 3 * BLOCK - 7);
    retire_one(f);
    assert_int_equal(upload(f, "new/larger", BYTES + 5 * BLOCK + 11), BYTES);
}

static void what_is_twice_as_large_or_half_is_no_match_and_makes_room(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    assert_int_equal(upload(f, "new/small", BYTES / 2 - BLOCK), 0);
    assert_int_equal(spares(f), 0);
    retire_one(f);
    assert_int_equal(upload(f, "new/tiny", 100), 0); /* less than a block has no use for one */
    assert_int_equal(spares(f), 1);
}

static void the_best_match_is_taken(void **state) {
    struct fixture *f = able(state);
    static const size_t sizes[] = {BYTES + 20 * BLOCK, BYTES - 9 * BLOCK, BYTES + BLOCK, BYTES - 2 * BLOCK};
    for (unsigned i = 0; i < 4; i++) {
        char key[32];
        snprintf(key, sizeof key, "old/id/%u", i);
        assert_op_ok(st_upload(S, key, bwi_span(f->old, sizes[i])));
    }
    const ino_t nearest = inode_of(f, "old/id/2"), largest = inode_of(f, "old/id/3");
    assert_op_ok(delete_keeping(f, "old/id/", 8 * BYTES));
    assert_int_equal(spares(f), 4);
    (void)upload(f, "new/a", BYTES);
    assert_int_equal(inode_of(f, "new/a"), nearest);
    (void)upload(f, "new/b", BYTES + 19 * BLOCK);
    (void)upload(f, "new/c", BYTES);
    assert_int_equal(inode_of(f, "new/c"), largest);
}

/* --- who prevents it ---- */

static void a_reader_that_has_it_open_goes_on_with_its_bytes(void **state) {
    struct fixture *f = able(state);
    char path[512], got[BLOCK];
    put_old(f, "old/id/k");
    rig_path(path, sizeof path, f->dir, "old/id/k");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    for (size_t at = 0; at < BYTES; at += BLOCK) {
        const ssize_t n = pread(fd, got, BLOCK, (off_t)at);
        assert_memory_equal(got, f->old, (size_t)n);
    }
    close(fd);
    assert_int_equal(spares(f), 0);
}

static void a_program_that_maps_it_goes_on_with_its_bytes(void **state) {
    struct fixture *f = able(state);
    char path[512];
    put_old(f, "old/id/k");
    rig_path(path, sizeof path, f->dir, "old/id/k");
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    void *map = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED);
    close(fd);
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_memory_equal(map, f->old, BYTES);
    munmap(map, BYTES);
}

/* The store's own reader, through a handle that it keeps. */
static void a_handle_that_is_kept_open_goes_on_with_its_bytes(void **state) {
    struct fixture *f = able(state);
    struct bwi_store_handle *handle = NULL;
    char got[BLOCK];
    put_old(f, "old/id/k");
    assert_op_ok(st_read(S, "old/id/k", 0, got, BLOCK, &handle));
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_op_ok(st_read(S, "old/id/k", BLOCK, got, BLOCK, &handle));
    assert_memory_equal(got, f->old, BLOCK);
    assert_op_ok(st_release(S, &handle));
}

static void what_has_a_second_name_is_deleted_and_its_bytes_stay(void **state) {
    struct fixture *f = able(state);
    char from[512], to[512], got[BLOCK];
    put_old(f, "old/id/k");
    rig_path(from, sizeof from, f->dir, "old/id/k");
    rig_path(to, sizeof to, f->dir, "mine");
    assert_int_equal(link(from, to), 0);
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_false(is_there(f, "old/id"));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    const int fd = open(to, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, got, BLOCK, 0), BLOCK);
    assert_memory_equal(got, f->old, BLOCK);
    close(fd);
    assert_int_equal(unlink(to), 0);
}

/* The name of the only spare. */
static void spare_path(const struct fixture *f, char path[512]) {
    char command[600];
    snprintf(command, sizeof command, "find %s -name '.*.tmp'", f->dir);
    FILE *p = popen(command, "r");
    assert_non_null(fgets(path, 512, p));
    path[strcspn(path, "\n")] = '\0';
    pclose(p);
}

static void a_second_name_that_it_got_later_counts_as_well(void **state) {
    struct fixture *f = able(state);
    char from[512], to[512];
    retire_one(f);
    spare_path(f, from);
    rig_path(to, sizeof to, f->dir, "mine");
    assert_int_equal(link(from, to), 0);
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_int_equal(unlink(to), 0);
}

static int link_and_move(struct bwi_os *os, int from_dirfd, const char *from, int to_dirfd, const char *to) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    char mine[512];
    rig_path(mine, sizeof mine, the.dir, "mine");
    assert_int_equal(linkat(from_dirfd, from, AT_FDCWD, mine, 0), 0);
    return below->move_new(below, from_dirfd, from, to_dirfd, to);
}

static void one_that_it_gets_while_it_is_taken_does_too(void **state) {
    struct fixture *f = able(state);
    char mine[512], got[BLOCK];
    retire_one(f);
    f->odd.move_new = link_and_move;
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_int_equal(spares(f), 0);
    rig_path(mine, sizeof mine, f->dir, "mine");
    const int fd = open(mine, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, got, BLOCK, 0), BLOCK);
    assert_memory_equal(got, f->old, BLOCK);
    close(fd);
    assert_int_equal(unlink(mine), 0);
}

static void what_has_another_mode_than_a_new_file_is_not_taken(void **state) {
    struct fixture *f = able(state);
    char path[512];
    put_old(f, "old/id/k");
    rig_path(path, sizeof path, f->dir, "old/id/k");
    assert_int_equal(chmod(path, 0644), 0);
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
}

static void what_has_holes_is_not_kept(void **state) {
    struct fixture *f = able(state);
    char path[512];
    put_old(f, "old/id/k");
    rig_path(path, sizeof path, f->dir, "old/id/k");
    assert_int_equal(truncate(path, 0), 0);
    assert_int_equal(truncate(path, (off_t)BYTES), 0);
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(spares(f), 0);
}

static int no_alone(struct bwi_os *os, int dirfd, const char *path) {
    (void)os, (void)dirfd, (void)path;
    return -EOPNOTSUPP;
}

static void where_nobody_can_tell_who_has_it_open_it_is_deleted(void **state) {
    struct fixture *f = able(state);
    f->odd.open_alone = no_alone;
    retire_one(f);
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_int_equal(spares(f), 0);
}

/* --- how much, and until when ---- */

static void no_more_is_kept_than_was_asked_for_and_one(void **state) {
    struct fixture *f = able(state);
    put_old(f, "old/a/1");
    put_old(f, "old/a/2");
    put_old(f, "old/b/1");
    assert_op_ok(delete_keeping(f, "old/a/", 1));
    assert_int_equal(spares(f), 1);
    assert_op_ok(delete_keeping(f, "old/b/", BYTES)); /* of all together */
    assert_int_equal(spares(f), 1);
    assert_false(is_there(f, "old/b"));
}

static void nothing_is_kept_without_being_asked_for(void **state) {
    struct fixture *f = able(state);
    put_old(f, "old/id/k");
    assert_op_ok(delete_keeping(f, "old/id/", 0));
    assert_int_equal(spares(f), 0);
    assert_int_equal(upload(f, "new/k", BYTES), 0);
}

static void deleting_the_prefix_again_takes_them_or_leaves_them(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(spares(f), 1);
    assert_op_ok(delete_keeping(f, "old/id/", 0));
    assert_int_equal(spares(f), 0);
    assert_false(is_there(f, "old/id"));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    retire_one(f);
    assert_op_ok(delete_keeping(f, "old/", 0));
    assert_false(is_there(f, "old"));
}

static void one_that_somebody_else_deletes_is_missed_by_nobody(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    struct bwi_store *other = rig_store(&f->rig, f->dir, false);
    assert_op_ok(st_key(&f->rig, other, BWI_STORE_DELETE_PREFIX, "old/id/"));
    other->close(other);
    assert_int_equal(upload(f, "new/k", BYTES), 0);
}

/* Opened, and found to be alone; then another rank that shares the disk makes room. */
static int open_and_lose(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    const int fd = below->open_alone(below, dirfd, path);
    const int rc = below->unlink(below, dirfd, path);
    assert_int_equal(rc, 0);
    return fd;
}

static void one_that_somebody_else_deletes_while_it_is_taken_is_missed_by_nobody(void **state) {
    struct fixture *f = able(state);
    put_old(f, "old/id/1");
    put_old(f, "old/id/2");
    assert_op_ok(delete_keeping(f, "old/id/", 2 * BYTES));
    assert_int_equal(spares(f), 2);
    f->odd.open_alone = open_and_lose;
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_int_equal(spares(f), 0);
    assert_false(is_there(f, "old/id"));
}

/* A child that was forked while the object was made has it open as long as it lives. */
static void what_a_forked_child_has_open_is_deleted(void **state) {
    struct fixture *f = able(state);
    const struct bwi_store_op begun = st_begin(S, "old/id/k", BYTES);
    assert_op_ok(begun);
    const pid_t child = fork();
    if (child == 0)
        for (;;) pause();
    assert_true(child > 0);
    assert_op_ok(st_write(S, begun.upload, 0, f->old, BYTES));
    assert_op_ok(st_finish(S, begun.upload));
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    assert_int_equal(upload(f, "new/k", BYTES), 0);
    assert_int_equal(kill(child, SIGKILL), 0);
    assert_int_equal(waitpid(child, NULL, 0), child);
    assert_int_equal(spares(f), 0);
}

/* Closing waits for no disk. */
static void what_is_kept_when_the_store_is_closed_is_the_rest_of_a_deletion(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    assert_int_equal(spares(f), 1);
    f->s->close(f->s);
    f->s = rig_store(&f->rig, f->dir, false);
    assert_int_equal(spares(f), 1);
    assert_int_equal(upload(f, "new/k", BYTES), 0); /* nobody knows that it may be written over */
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "old/id/"));
    assert_int_equal(spares(f), 0);
}

static void an_upload_that_is_given_up_leaves_nothing(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    const struct bwi_store_op op = st_begin(S, "new/k", BYTES);
    assert_op_ok(op);
    assert_int_equal(op.recycled_bytes, BYTES);
    assert_op_ok(st_abort(S, op.upload));
    assert_int_equal(spares(f), 0);
    assert_no_object(S, "new/k");
}

#define FREE (UINT64_C(1) << 40)

static int fixed_space(struct bwi_os *os, int fd, struct bwi_os_space *ret) {
    (void)os, (void)fd;
    *ret = (struct bwi_os_space){.free_bytes = FREE, .total_bytes = 2 * FREE};
    return 0;
}

static void what_is_kept_is_free(void **state) {
    struct fixture *f = able(state);
    f->odd.space = fixed_space;
    retire_one(f);
    const struct bwi_store_op op = st_key(S, BWI_STORE_SPACE, "");
    assert_op_ok(op);
    assert_int_equal(op.free_bytes, FREE + BYTES);
}

static void what_somebody_else_has_deleted_is_not_counted_twice(void **state) {
    struct fixture *f = able(state);
    char path[512];
    f->odd.space = fixed_space;
    retire_one(f);
    spare_path(f, path);
    assert_int_equal(unlink(path), 0);
    const struct bwi_store_op op = st_key(S, BWI_STORE_SPACE, "");
    assert_op_ok(op);
    assert_int_equal(op.free_bytes, FREE);
}

/* --- a disk that is full ---- */

static uint64_t allocated(const struct fixture *f) {
    char command[600];
    unsigned long long bytes = 0;
    snprintf(command, sizeof command, "find %s -type f -printf '%%s\\n' | awk '{s+=$1} END {print s+0}'", f->dir);
    FILE *p = popen(command, "r");
    assert_int_equal(fscanf(p, "%llu", &bytes), 1);
    pclose(p);
    return bytes;
}

static int reserve_on_small_disk(struct bwi_os *os, int fd, uint64_t bytes) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    struct bwi_os_stat st;
    if (below->stat_fd(below, fd, &st) != 0) return -EIO;
    const uint64_t more = bytes > st.size_bytes ? bytes - st.size_bytes : 0;
    return allocated(&the) + more > the.refuse_above ? -ENOSPC : below->reserve(below, fd, bytes);
}

static void a_full_disk_gets_back_what_is_kept_before_an_upload_fails(void **state) {
    struct fixture *f = able(state);
    f->odd.reserve = reserve_on_small_disk;
    f->refuse_above = UINT64_MAX;
    put_old(f, "old/id/1");
    put_old(f, "old/id/2");
    assert_op_ok(delete_keeping(f, "old/id/", 2 * BYTES));
    assert_int_equal(spares(f), 2);
    f->refuse_above =
        2 * BYTES; /* as much as is there already: one of them, made longer, has no room beside the other */
    assert_int_equal(upload(f, "new/k", BYTES + 8 * BLOCK), 0);
    assert_int_equal(spares(f), 0);
    assert_op_fails(st_begin(S, "new/l", BYTES), BW_E_NOSPACE, "reserve");
}

/* Nothing gets a name, of a link, a rename or a new file, as long as a spare is there. */
static bool is_full(void) {
    return rig_hidden_files(the.dir) > the.refuse_hidden;
}

static int link_on_full_disk(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    return is_full() ? -ENOSPC : bwi_os_system()->link(bwi_os_system(), dirfd, from, to);
}

static int rename_on_full_disk(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    return is_full() ? -ENOSPC : bwi_os_system()->rename_over(bwi_os_system(), dirfd, from, to);
}

static int lock_on_full_disk(struct bwi_os *os, int dirfd, const char *name) {
    (void)os;
    return is_full() ? -ENOSPC : bwi_os_system()->open_lock(bwi_os_system(), dirfd, name);
}

static void finish_on_full_disk(struct fixture *f, bool replace) {
    put_old(f, "old/id/1");
    struct bwi_store_op begun = {.verb = BWI_STORE_BEGIN, .key = "new/k", .size_bytes = BYTES, .replace = replace};
    begun = st_run(S, begun);
    assert_op_ok(begun);
    assert_op_ok(st_write(S, begun.upload, 0, f->new, BYTES));
    assert_op_ok(delete_keeping(f, "old/id/", BYTES));
    f->refuse_hidden = 1; /* the upload's own */
    assert_op_ok(st_finish(S, begun.upload));
    assert_new(f, "new/k", BYTES);
    assert_int_equal(spares(f), 0);
}

static void a_full_disk_gets_back_what_is_kept_before_a_name_fails(void **state) {
    struct fixture *f = able(state);
    f->odd.link = link_on_full_disk;
    f->odd.rename_over = rename_on_full_disk;
    f->refuse_hidden = UINT_MAX;
    finish_on_full_disk(f, false);
    f->refuse_hidden = UINT_MAX;
    finish_on_full_disk(f, true);
    f->refuse_hidden = 0; /* with none to give back it is full */
    assert_op_fails(st_create(S, "new/l", "full"), BW_E_NOSPACE, "link");
}

static void a_full_disk_gets_back_what_is_kept_before_a_lock_fails(void **state) {
    struct fixture *f = able(state);
    f->odd.open_lock = lock_on_full_disk;
    retire_one(f);
    struct bwi_store_op lock = st_key(S, BWI_STORE_LOCK, "new/");
    assert_op_ok(lock);
    assert_int_equal(spares(f), 1); /* the lock's own file */
    assert_false(is_there(f, "old/id"));
    assert_op_ok(st_run(S, (struct bwi_store_op){.verb = BWI_STORE_UNLOCK, .key = "new/", .lock = lock.lock}));
}

/* --- what is not written ---- */

/* With a new file a gap reads as zeros; here it would be old bytes. */
static void bytes_that_were_never_written_are_found_out(void **state) {
    struct fixture *f = able(state);
    retire_one(f);
    const struct bwi_store_op op = st_begin(S, "new/k", BYTES);
    assert_op_ok(op);
    assert_op_ok(st_write(S, op.upload, 0, f->new, 2 * BLOCK));
    assert_op_ok(st_write(S, op.upload, BLOCK, f->new, BLOCK)); /* twice, so that the sum is right */
    assert_op_ok(st_write(S, op.upload, 3 * BLOCK, f->new, BYTES - 3 * BLOCK));
    assert_op_fails(st_finish(S, op.upload), BW_E_INTERNAL, "written twice, and others never");
    assert_no_object(S, "new/k");
    assert_int_equal(spares(f), 0);
}

static void pieces_in_any_order_are_the_whole(void **state) {
    struct fixture *f = *state;
    const struct bwi_store_op op = st_begin(S, "new/k", BYTES);
    assert_op_ok(op);
    assert_op_ok(st_write(S, op.upload, 64 * BLOCK, f->new, 1000));
    assert_op_ok(st_write(S, op.upload, BLOCK, f->new, 63 * BLOCK));
    assert_op_ok(st_write(S, op.upload, 0, f->new, 0));
    assert_op_ok(st_write(S, op.upload, 0, f->new, BLOCK));
    assert_op_ok(st_finish(S, op.upload));
    assert_new(f, "new/k", BYTES);
}

static void a_store_for_reading_keeps_nothing(void **state) {
    struct fixture *f = *state;
    struct bwi_store *s = rig_store(&f->rig, f->dir, true);
    assert_false(s->caps.recycles);
    s->close(s);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        T(an_upload_takes_the_file_of_what_was_deleted),
        T(a_smaller_and_a_larger_object_have_the_right_size_and_no_old_byte),
        T(what_is_twice_as_large_or_half_is_no_match_and_makes_room),
        T(the_best_match_is_taken),
        T(a_reader_that_has_it_open_goes_on_with_its_bytes),
        T(a_program_that_maps_it_goes_on_with_its_bytes),
        T(a_handle_that_is_kept_open_goes_on_with_its_bytes),
        T(what_has_a_second_name_is_deleted_and_its_bytes_stay),
        T(a_second_name_that_it_got_later_counts_as_well),
        T(one_that_it_gets_while_it_is_taken_does_too),
        T(what_has_another_mode_than_a_new_file_is_not_taken),
        T(what_has_holes_is_not_kept),
        T(where_nobody_can_tell_who_has_it_open_it_is_deleted),
        T(no_more_is_kept_than_was_asked_for_and_one),
        T(nothing_is_kept_without_being_asked_for),
        T(deleting_the_prefix_again_takes_them_or_leaves_them),
        T(one_that_somebody_else_deletes_is_missed_by_nobody),
        T(one_that_somebody_else_deletes_while_it_is_taken_is_missed_by_nobody),
        T(what_a_forked_child_has_open_is_deleted),
        T(what_is_kept_when_the_store_is_closed_is_the_rest_of_a_deletion),
        T(an_upload_that_is_given_up_leaves_nothing),
        T(what_is_kept_is_free),
        T(what_somebody_else_has_deleted_is_not_counted_twice),
        T(a_full_disk_gets_back_what_is_kept_before_an_upload_fails),
        T(a_full_disk_gets_back_what_is_kept_before_a_name_fails),
        T(a_full_disk_gets_back_what_is_kept_before_a_lock_fails),
        T(bytes_that_were_never_written_are_found_out),
        T(pieces_in_any_order_are_the_whole),
        T(a_store_for_reading_keeps_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
