/* SPDX-License-Identifier: Apache-2.0 */
/* Every system call of every changing verb fails in turn. Whatever fails: an error or success, never half an object
 * under its name, no descriptor left open, and the same operation works afterwards. Also: how often it syncs, and file
 * systems with ways of their own. */
#include "rig.h"

#include "base/vec.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ALL   UINT32_MAX
#define BYTES 10000u

struct fixture {
    struct rig rig;
    struct bwi_os_fault *fault;
    struct bwi_os odd; /* the system's table with some calls replaced */
    struct bwi_store *s;
    char dir[512];
    uint8_t bytes[BYTES], other[BYTES];
    unsigned files;
    long live;
};
static struct fixture the;

#define S &f->rig, f->s

static void open_fixture(struct fixture *f, struct bwi_os *os) {
    rig_open(&f->rig, false, os);
    f->s = rig_store(&f->rig, f->dir, false);
}

static int setup(void **state) {
    struct fixture *f = &the;
    *f = (struct fixture){.files = rig_open_files(), .live = bwi_alloc_live(), .odd = *bwi_os_system()};
    /* Thousands of real fsyncs would only take time: in memory, where that is possible. */
    snprintf(f->dir, sizeof f->dir, "/dev/shm/bw-test-XXXXXX");
    if (!mkdtemp(f->dir)) snprintf(f->dir, sizeof f->dir, "%s", test_mkdir());
    uint64_t rng = 5;
    for (size_t i = 0; i < BYTES; i++) {
        f->bytes[i] = (uint8_t)test_random(&rng);
        f->other[i] = (uint8_t)~f->bytes[i];
    }
    assert_int_equal(bwi_os_fault_new(bwi_os_system(), &f->fault), 0);
    *state = f;
    return 0;
}

static int setup_with_faults(void **state) {
    setup(state);
    open_fixture(&the, bwi_os_fault_table(the.fault));
    return 0;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    f->s->close(f->s);
    rig_close(&f->rig);
    bwi_os_fault_free(f->fault);
    test_rmdir(f->dir);
    assert_int_equal(rig_open_files(), f->files);
    assert_int_equal(bwi_alloc_live(), f->live);
    return 0;
}

/* 0: not there, 1: exactly `bytes`, 2: exactly `other`. Anything else fails the case. Reads past the store. */
static int look(struct fixture *f, const char *key) {
    static uint8_t buf[BYTES + 1];
    char path[700];
    rig_path(path, sizeof path, f->dir, key);
    FILE *file = fopen(path, "rb");
    if (!file) {
        assert_true(errno == ENOENT);
        return 0;
    }
    size_t n = fread(buf, 1, sizeof buf, file);
    fclose(file);
    assert_int_equal(n, BYTES);
    int which = memcmp(buf, f->bytes, BYTES) == 0 ? 1 : memcmp(buf, f->other, BYTES) == 0 ? 2 : 3;
    assert_int_not_equal(which, 3);
    return which;
}

/* ---- the sweep ---- */

static struct bwi_store_op do_create(struct fixture *f) {
    return st_create_bytes(S, "a/b/k", bwi_span(f->bytes, BYTES));
}

static struct bwi_store_op upload(struct fixture *f, bool replace) {
    struct bwi_store_op op = st_run(
        S, (struct bwi_store_op){.verb = BWI_STORE_BEGIN, .key = "a/b/k", .size_bytes = BYTES, .replace = replace});
    if (op.error.status != 0) return op;
    struct bwi_store_upload *u = op.upload;
    st_write(S, u, 0, f->bytes, 8192);
    st_write(S, u, 8192, f->bytes + 8192, BYTES - 8192);
    return st_finish(S, u);
}

static struct bwi_store_op do_upload(struct fixture *f) {
    return upload(f, false);
}
static struct bwi_store_op do_upload_over(struct fixture *f) {
    return upload(f, true);
}

static struct bwi_store_op do_begin_and_abort(struct fixture *f) {
    struct bwi_store_op op = st_begin(S, "a/b/k", BYTES);
    if (op.error.status == 0) st_abort(S, op.upload);
    return op;
}

static struct bwi_store_op do_replace(struct fixture *f) {
    return st_run(S,
                  (struct bwi_store_op){.verb = BWI_STORE_REPLACE, .key = "a/b/k", .data = bwi_span(f->bytes, BYTES)});
}

static struct bwi_store_op do_delete_prefix(struct fixture *f) {
    return st_key(S, BWI_STORE_DELETE_PREFIX, "a/");
}
static struct bwi_store_op do_delete(struct fixture *f) {
    return st_key(S, BWI_STORE_DELETE, "a/b/k");
}

static struct bwi_store_op do_lock(struct fixture *f) {
    struct bwi_store_op op = st_key(S, BWI_STORE_LOCK, "a/b/");
    if (op.error.status == 0) st_unlock(S, op.lock);
    return op;
}

static struct bwi_store_op do_get(struct fixture *f) {
    struct bwi_store_op op = st_get(S, "a/b/k", BYTES);
    if (op.error.status == 0)
        assert_memory_equal(op.body.ptr, f->bytes, BYTES);
    else
        assert_null(op.body.ptr);
    bwi_buf_fini(&op.body);
    return op;
}

static struct bwi_store_op do_read(struct fixture *f) {
    static uint8_t buf[BYTES];
    struct bwi_store_handle *h = NULL;
    struct bwi_store_op op = st_read(S, "a/b/k", 0, buf, BYTES, &h);
    if (op.error.status == 0) op = st_read(S, "a/b/k", 1, buf, BYTES - 1, &h);
    st_release(S, &h);
    return op;
}

static struct bwi_store_op do_list(struct fixture *f) {
    struct bwi_store_op op = st_list(S, "a/b/", NULL);
    assert_int_equal(op.names.len, op.error.status == 0 ? 1 : 0);
    bwi_store_names_fini(&op.names);
    return op;
}

static struct bwi_store_op do_head(struct fixture *f) {
    return st_head(S, "a/b/k");
}
static struct bwi_store_op do_space(struct fixture *f) {
    return st_run(S, (struct bwi_store_op){.verb = BWI_STORE_SPACE});
}
static struct bwi_store_op do_sync(struct fixture *f) {
    return st_key(S, BWI_STORE_SYNC, "a/b/");
}

struct sweep {
    struct bwi_store_op (*run)(struct fixture *f);
    int before;      /* what is there before: 0 nothing, 1 `bytes`, 2 `other` */
    bool may_vanish; /* a deletion */
    int after;       /* what is there after it succeeded */
};

static void prepare(struct fixture *f, const struct sweep *w) {
    bwi_os_fault_at(f->fault, 0, 0, 0, 0);
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
    if (w->before) assert_op_ok(st_create_bytes(S, "a/b/k", bwi_span(w->before == 1 ? f->bytes : f->other, BYTES)));
}

/* The n-th call fails, for `repeat` calls. false: there is no n-th call any more. */
static bool sweep_once(struct fixture *f, const struct sweep *w, uint64_t n, uint64_t repeat, int err) {
    prepare(f, w);
    unsigned files = rig_open_files();
    long live = bwi_alloc_live();
    uint64_t fired = bwi_os_fault_fired(f->fault);
    bwi_os_fault_at(f->fault, n, repeat, ALL, err);
    struct bwi_store_op op = w->run(f);
    fired = bwi_os_fault_fired(f->fault) - fired;
    bwi_os_fault_at(f->fault, 0, 0, 0, 0);
    assert_int_equal(rig_open_files(), files);
    assert_int_equal(bwi_alloc_live(), live);
    int there = look(f, "a/b/k");
    assert_true(there == w->before || there == w->after || (w->may_vanish && there == 0));
    if (op.error.status == 0) {
        assert_int_equal(there, w->after);
    } else {
        assert_true(fired > 0);
        assert_true(op.error.message[0] && op.error.os_errno == -err);
        int status = op.error.status;
        /* When nothing works any more, it cannot be seen either whether the last call had its effect. */
        bool unknown = status == BW_E_UNKNOWN && (there == w->after || repeat > 1);
        assert_true(status == BW_E_IO || status == BW_E_NOSPACE || unknown);
    }
    assert_op_ok(w->run(f)); /* and again without faults */
    assert_int_equal(look(f, "a/b/k"), w->after);
    return fired > 0;
}

static void sweep(struct fixture *f, const struct sweep *w) {
    static const int errors[] = {-EIO, -ENOSPC};
    for (size_t e = 0; e < 2; e++) {
        for (int forever = 0; forever < 2; forever++) {
            uint64_t n = 1;
            while (sweep_once(f, w, n, forever ? UINT64_MAX : 1, errors[e])) assert_true(n++ < 200);
            assert_true(n > 1);
        }
    }
    prepare(f, w);
}

static void creating_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_create, .after = 1});
}
static void creating_what_is_there_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_create, .before = 1, .after = 1});
}
static void uploading_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_upload, .after = 1});
}
static void uploading_what_is_there_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_upload, .before = 2, .after = 2}); /* compared by size only */
}
static void aborting_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_begin_and_abort});
}
static void replacing_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_replace, .before = 2, .after = 1});
    sweep(*state, &(struct sweep){.run = do_replace, .before = 0, .after = 1});
    sweep(*state, &(struct sweep){.run = do_upload_over, .before = 2, .after = 1});
}
static void deleting_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_delete_prefix, .before = 1, .may_vanish = true});
    sweep(*state, &(struct sweep){.run = do_delete, .before = 1});
}
static void locking_survives_every_failure(void **state) {
    sweep(*state, &(struct sweep){.run = do_lock, .before = 1, .after = 1});
}
static void reading_survives_every_failure(void **state) {
    static struct bwi_store_op (*const verbs[])(struct fixture * f) = {do_get,  do_read,  do_list,
                                                                       do_head, do_space, do_sync};
    for (size_t i = 0; i < 6; i++) sweep(*state, &(struct sweep){.run = verbs[i], .before = 1, .after = 1});
}

/* What failed is in the message, after the verb and the key. */
static void messages_name_the_call(void **state) {
    struct fixture *f = *state;
    static const struct {
        struct bwi_store_op (*run)(struct fixture *f);
        enum bwi_os_call call;
        int err;
        int status;
        const char *message;
    } cases[] = {
        {do_create, BWI_OS_FSYNC, -EIO, BW_E_IO, "create \"a/b/k\": fsync: input/output error"},
        {do_create, BWI_OS_LINK, -EIO, BW_E_IO,
         "create \"a/b/k\": link the temporary file to its name: input/output error"},
        {do_create, BWI_OS_CLOSE, -EDQUOT, BW_E_NOSPACE, "create \"a/b/k\": close: disk quota exceeded"},
        {do_upload, BWI_OS_RESERVE, -ENOSPC, BW_E_NOSPACE, "begin \"a/b/k\": reserve 10000 bytes in file:///"},
        {do_upload, BWI_OS_RESERVE, -EDQUOT, BW_E_NOSPACE, ": disk quota exceeded"},
        {do_upload, BWI_OS_WRITE, -EIO, BW_E_IO, "write \"a/b/k\": 8192 bytes at offset 0 in file:///"},
        {do_upload, BWI_OS_FSYNC, -EIO, BW_E_IO, "finish \"a/b/k\": fsync: input/output error"},
        {do_replace, BWI_OS_RENAME, -EIO, BW_E_IO,
         "replace \"a/b/k\": rename the temporary file over the object: input/output error"},
        {do_get, BWI_OS_READ, -EIO, BW_E_IO, "get \"a/b/k\": read: input/output error"},
        {do_list, BWI_OS_READDIR, -EIO, BW_E_IO, "list \"a/b/\": "},
        {do_lock, BWI_OS_LOCK, -ENOLCK, BW_E_IO, "lock \"a/b/\": flock .lock: no locks available"},
        {do_space, BWI_OS_SPACE, -EIO, BW_E_IO, "space: file:///"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool reads = cases[i].run == do_get || cases[i].run == do_list;
        prepare(f, &(struct sweep){.before = reads ? 1 : 0});
        if (!reads) assert_op_ok(st_create(S, "a/b/warm", "")); /* the directories are there and synced */
        /* a CREATE closes the two directories that it walked through before it closes its file */
        bwi_os_fault_at(f->fault, cases[i].call == BWI_OS_CLOSE ? 2 : 1, 1, UINT32_C(1) << cases[i].call, cases[i].err);
        struct bwi_store_op op = cases[i].run(f);
        bwi_os_fault_at(f->fault, 0, 0, 0, 0);
        assert_op_fails(op, cases[i].status, cases[i].message);
        assert_int_equal(rig_hidden_files(f->dir), cases[i].run == do_lock ? 1 : 0);
    }
}

static void a_directory_that_cannot_be_synced_leaves_the_outcome_unknown(void **state) {
    struct fixture *f = *state;
    static struct bwi_store_op (*const verbs[])(struct fixture * f) = {do_create, do_upload, do_replace};
    for (size_t i = 0; i < 3; i++) {
        prepare(f, &(struct sweep){.before = 0});
        assert_op_ok(st_create(S, "a/b/warm", ""));
        bwi_os_fault_at(f->fault, 2, 1, UINT32_C(1) << BWI_OS_FSYNC, -EIO);
        struct bwi_store_op op = verbs[i](f);
        assert_op_fails(op, BW_E_UNKNOWN, "fsync the directory after the object got its name: input/output error");
        assert_int_equal(op.outcome, 0);
        assert_int_equal(look(f, "a/b/k"), 1);
        if (i < 2) assert_outcome(verbs[i](f), BWI_STORE_SAME);
    }
}

/* A kernel that tells of a failed write once: the directory's page is clean afterwards, and every later fsync of it
 * succeeds. Only an entry that is made anew is written. */
static uint64_t names_given; /* links and renames since the fsync of a directory failed */
static bool forgets;
static int link_counted(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    names_given++;
    return below->link(below, dirfd, from, to);
}
static int rename_counted(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    names_given++;
    return below->rename_over(below, dirfd, from, to);
}
static int fsync_that_fails_once(struct bwi_os *os, int fd) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    struct bwi_os_stat st;
    assert_int_equal(below->stat_fd(below, fd, &st), 0);
    if (st.type != BWI_OS_DIR || !forgets) return below->fsync(below, fd);
    forgets = false;
    names_given = 0;
    return -EIO;
}

static void no_fsync_is_believed_after_one_that_failed(void **state) {
    struct fixture *f = *state;
    static struct bwi_store_op (*const verbs[])(struct fixture * f) = {do_create, do_upload, do_replace};
    static struct bwi_store_op (*const again[])(struct fixture * f) = {do_create, do_upload, do_create};
    f->odd.link = link_counted;
    f->odd.rename_over = rename_counted;
    f->odd.fsync = fsync_that_fails_once;
    open_fixture(f, &f->odd);
    for (size_t i = 0; i < 3; i++) {
        assert_op_ok(st_create(S, "a/b/warm", ""));
        forgets = true;
        assert_op_fails(verbs[i](f), BW_E_UNKNOWN, "fsync the directory after the object got its name");
        assert_int_equal(look(f, "a/b/k"), 1);
        assert_op_ok(st_create(S, "a/b/other", ""));
        assert_op_fails(do_sync(f), BW_E_IO, "sync \"a/b/\": an earlier fsync for a name in it failed");
        assert_op_ok(st_key(S, BWI_STORE_SYNC, "a/"));
        names_given = 0;
        assert_op_ok(again[i](f));
        assert_int_equal(names_given, 1); /* its own, anew */
        assert_int_equal(look(f, "a/b/k"), 1);
        assert_op_ok(do_sync(f));
        names_given = 0;
        assert_outcome(do_create(f), BWI_STORE_SAME);
        assert_int_equal(names_given, 0); /* nothing is in doubt any more */
        assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
    }
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

static void an_object_that_was_there_is_in_doubt_after_a_failed_fsync(void **state) {
    struct fixture *f = *state;
    f->odd.rename_over = rename_counted;
    f->odd.fsync = fsync_that_fails_once;
    open_fixture(f, &f->odd);
    assert_op_ok(do_create(f));
    forgets = true;
    assert_op_fails(do_create(f), BW_E_IO, "fsync the directory of the object that is there already");
    assert_op_fails(st_create(S, "a/b/k", "x"), BW_E_EXISTS, NULL); /* other bytes never take its place */
    assert_int_equal(look(f, "a/b/k"), 1);
    assert_outcome(do_create(f), BWI_STORE_SAME);
    assert_int_equal(names_given, 1);
    forgets = true;
    assert_op_fails(do_create(f), BW_E_IO, NULL);
    assert_op_fails(do_sync(f), BW_E_IO, NULL);
    assert_op_ok(do_delete(f)); /* what is gone is in no doubt */
    assert_op_ok(do_sync(f));
}

/* More than are remembered: every one is in doubt. */
static void doubts_are_never_forgotten(void **state) {
    struct fixture *f = *state;
    char key[32];
    f->odd.rename_over = rename_counted;
    f->odd.fsync = fsync_that_fails_once;
    open_fixture(f, &f->odd);
    assert_op_ok(st_create(S, "d/warm", ""));
    for (int i = 0; i < 40; i++) {
        forgets = true;
        snprintf(key, sizeof key, "d/%d", i);
        assert_op_fails(st_create(S, key, "x"), BW_E_UNKNOWN, NULL);
    }
    for (int i = 0; i < 40; i++) {
        names_given = 0;
        snprintf(key, sizeof key, "d/%d", i);
        assert_outcome(st_create(S, key, "x"), BWI_STORE_SAME);
        assert_int_equal(names_given, 1);
    }
    assert_op_fails(st_key(S, BWI_STORE_SYNC, "d/"), BW_E_IO, NULL);
}

/* ---- how often it syncs ---- */

static uint64_t syncs(struct fixture *f) {
    return bwi_os_fault_count(f->fault, BWI_OS_FSYNC);
}

static void every_sync_is_counted_and_needed(void **state) {
    struct fixture *f = *state;
    uint64_t n = syncs(f);
    assert_op_ok(st_create(S, "a/b/c/1", "x"));
    assert_int_equal(syncs(f) - n, 5); /* root, a, b for their new entries; the file; c */
    n = syncs(f);
    assert_op_ok(st_create(S, "a/b/c/2", "x"));
    assert_int_equal(syncs(f) - n, 2); /* the file, its directory */
    n = syncs(f);
    assert_op_ok(st_create(S, "a/d/1", "x"));
    assert_int_equal(syncs(f) - n, 3); /* a for its new entry d; the file; d */
    n = syncs(f);
    assert_outcome(st_create(S, "a/d/1", "x"), BWI_STORE_SAME);
    assert_int_equal(syncs(f) - n, 2); /* whoever made it may not have come to that */
    n = syncs(f);
    assert_outcome(st_upload(S, "a/d/2", bwi_span_str("xyz")), BWI_STORE_CREATED);
    assert_int_equal(syncs(f) - n, 2);
    n = syncs(f);
    assert_op_ok(st_replace(S, "a/d/2", "zyx"));
    assert_int_equal(syncs(f) - n, 2);
    n = syncs(f);
    assert_op_ok(st_key(S, BWI_STORE_SYNC, "a/d/"));
    assert_int_equal(syncs(f) - n, 1);
    n = syncs(f);
    assert_op_ok(st_key(S, BWI_STORE_DELETE, "a/d/2"));
    assert_object(&f->rig, f->s, "a/d/1", "x");
    assert_int_equal(syncs(f) - n, 0);
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/d/"));
    assert_int_equal(syncs(f) - n, 1);
}

static void directories_that_others_made_are_synced_once_for_each_store(void **state) {
    struct fixture *f = *state;
    assert_op_ok(st_create(S, "a/b/1", "x"));
    struct bwi_store *other = rig_store(&f->rig, f->dir, false);
    uint64_t n = syncs(f);
    assert_op_ok(st_create(&f->rig, other, "a/b/2", "x"));
    assert_int_equal(syncs(f) - n, 4); /* root, a; the file; b */
    n = syncs(f);
    assert_op_ok(st_create(&f->rig, other, "a/b/3", "x"));
    assert_int_equal(syncs(f) - n, 2);
    assert_op_ok(st_key(&f->rig, other, BWI_STORE_DELETE_PREFIX, "a/"));
    n = syncs(f);
    assert_op_ok(st_create(S, "a/b/1", "x")); /* its directories are new ones: the first store notices */
    assert_true(syncs(f) - n >= 4);
    other->close(other);
}

/* A file system that gives the number of a directory that was removed to the next one. */
static int64_t birth;
static int stat_with_one_inode(struct bwi_os *os, int fd, struct bwi_os_stat *ret) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    int rc = below->stat_fd(below, fd, ret);
    if (rc == 0 && ret->type == BWI_OS_DIR) {
        ret->inode = 7;
        ret->birth_ns = birth;
    }
    return rc;
}
static uint64_t dir_syncs;
static int fsync_counted(struct bwi_os *os, int fd) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    dir_syncs++;
    return below->fsync(below, fd);
}

static void a_directory_with_the_inode_of_another_is_told_by_its_birth(void **state) {
    struct fixture *f = *state;
    f->odd.stat_fd = stat_with_one_inode;
    f->odd.fsync = fsync_counted;
    open_fixture(f, &f->odd);
    for (birth = 1; birth < 4; birth++) {
        struct bwi_store *other = rig_store(&f->rig, f->dir, false);
        assert_op_ok(st_create(&f->rig, other, "a/b/1", "x"));
        dir_syncs = 0;
        assert_op_ok(st_create(S, "a/b/2", "x"));
        assert_int_equal(dir_syncs, 4); /* root, a; the file; b */
        assert_op_ok(st_key(&f->rig, other, BWI_STORE_DELETE_PREFIX, "a/"));
        other->close(other);
    }
}

static void a_sync_of_a_directory_that_failed_is_not_taken_for_done(void **state) {
    struct fixture *f = *state;
    bwi_os_fault_at(f->fault, 1, 1, UINT32_C(1) << BWI_OS_FSYNC, -EIO);
    assert_op_fails(st_create(S, "a/1", "x"), BW_E_IO,
                    "create \"a/1\": fsync the directory above \"a\": input/output error");
    char path[700];
    rig_path(path, sizeof path, f->dir, "a");
    assert_int_equal(access(path, F_OK), -1); /* the next fsync has a new entry to write */
    uint64_t n = syncs(f);
    assert_op_ok(st_create(S, "a/1", "x"));
    assert_int_equal(syncs(f) - n, 3);
}

/* A directory of ten thousand summaries is listed again and again while a commit waits for the last ones. */
static void a_listing_asks_nothing_about_the_single_objects(void **state) {
    struct fixture *f = *state;
    char key[32];
    for (int i = 0; i < 20; i++) {
        snprintf(key, sizeof key, "d/%d", i);
        assert_op_ok(st_create(S, key, "x"));
    }
    uint64_t opens = bwi_os_fault_count(f->fault, BWI_OS_OPEN), stats = bwi_os_fault_count(f->fault, BWI_OS_STAT);
    struct bwi_store_op op = st_list(S, "d/", NULL);
    assert_op_ok(op);
    assert_int_equal(op.names.len, 20);
    bwi_store_names_fini(&op.names);
    assert_int_equal(bwi_os_fault_count(f->fault, BWI_OS_OPEN), opens + 1);
    assert_int_equal(bwi_os_fault_count(f->fault, BWI_OS_STAT), stats);
}

/* ---- file systems with ways of their own ---- */

static int link_forbidden(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    (void)dirfd;
    (void)from;
    (void)to;
    return -EPERM;
}
static int rename_unknown(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    (void)dirfd;
    (void)from;
    (void)to;
    return -EOPNOTSUPP;
}
static int reserve_unknown(struct bwi_os *os, int fd, uint64_t bytes) {
    (void)os;
    (void)fd;
    (void)bytes;
    return -EOPNOTSUPP;
}

static void without_links_it_renames_without_replacing(void **state) {
    struct fixture *f = *state;
    f->odd.link = link_forbidden;
    f->odd.reserve = reserve_unknown; /* may be missing too */
    open_fixture(f, &f->odd);
    assert_outcome(do_create(f), BWI_STORE_CREATED);
    assert_outcome(do_create(f), BWI_STORE_SAME);
    assert_op_fails(st_create(S, "a/b/k", "x"), BW_E_EXISTS, NULL);
    assert_outcome(st_upload(S, "a/b/u", bwi_span(f->bytes, BYTES)), BWI_STORE_CREATED);
    assert_outcome(st_upload(S, "a/b/u", bwi_span(f->other, BYTES)), BWI_STORE_SAME);
    assert_int_equal(look(f, "a/b/u"), 1);
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

static void without_either_creating_is_an_error_that_leaves_nothing(void **state) {
    struct fixture *f = *state;
    f->odd.link = link_forbidden;
    f->odd.rename_new = rename_unknown;
    open_fixture(f, &f->odd);
    assert_op_fails(do_create(f), BW_E_IO, "create \"a/b/k\": rename the temporary file to its name: ");
    assert_op_fails(do_upload(f), BW_E_IO, "finish \"a/b/k\": rename the temporary file to its name: ");
    assert_int_equal(look(f, "a/b/k"), 0);
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

/* NFS: the link was made, but its answer was lost, and the repetition says this. */
static int lost_answer;
static int link_without_answer(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    int rc = below->link(below, dirfd, from, to);
    return rc == 0 ? lost_answer : rc;
}

static void a_link_that_was_made_counts_whatever_the_answer(void **state) {
    struct fixture *f = *state;
    static const int answers[] = {-EEXIST, -EIO, -ETIMEDOUT, -EPERM};
    f->odd.link = link_without_answer;
    open_fixture(f, &f->odd);
    for (size_t i = 0; i < 4; i++) {
        char key[32];
        lost_answer = answers[i];
        snprintf(key, sizeof key, "d/k%zu", i);
        assert_outcome(st_create_bytes(S, key, bwi_span(f->bytes, BYTES)), BWI_STORE_CREATED);
        assert_int_equal(look(f, key), 1);
        snprintf(key, sizeof key, "d/u%zu", i);
        assert_outcome(st_upload(S, key, bwi_span(f->bytes, BYTES)), BWI_STORE_CREATED);
    }
    assert_op_fails(st_create(S, "d/k0", "x"), BW_E_EXISTS, NULL);
    assert_int_equal(rig_hidden_files(f->dir), 0);
}

/* NFS makes an exclusive lock a record lock, which needs a descriptor that can write. */
static int lock_as_nfs(struct bwi_os *os, int fd) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    return (fcntl(fd, F_GETFL) & O_ACCMODE) == O_RDWR ? below->lock(below, fd) : -EBADF;
}

static void a_lock_is_taken_again_where_only_writers_can_lock(void **state) {
    struct fixture *f = *state;
    f->odd.lock = lock_as_nfs;
    open_fixture(f, &f->odd);
    assert_op_ok(do_lock(f));
    assert_op_ok(do_lock(f)); /* the file is there already */
}

/* The file system shuts down at the call that gives the name, which may or may not be in its journal. */
static bool is_shut, was_made;
static int link_at_shutdown(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    if (was_made) assert_int_equal(below->link(below, dirfd, from, to), 0);
    is_shut = true;
    return -EIO;
}
static int rename_at_shutdown(struct bwi_os *os, int dirfd, const char *from, const char *to) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    if (was_made) assert_int_equal(below->rename_over(below, dirfd, from, to), 0);
    is_shut = true;
    return -EIO;
}
static int stat_at_shutdown(struct bwi_os *os, int dirfd, const char *path, struct bwi_os_stat *ret) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    return is_shut ? -EIO : below->stat_at(below, dirfd, path, ret);
}

static void a_name_that_may_have_been_given_leaves_the_outcome_unknown(void **state) {
    struct fixture *f = *state;
    static struct bwi_store_op (*const verbs[])(struct fixture * f) = {do_create, do_upload, do_replace,
                                                                       do_upload_over};
    f->odd.link = link_at_shutdown;
    f->odd.rename_over = rename_at_shutdown;
    f->odd.stat_at = stat_at_shutdown;
    open_fixture(f, &f->odd);
    for (size_t i = 0; i < 8; i++) {
        was_made = i >= 4;
        struct bwi_store_op op = verbs[i % 4](f);
        is_shut = false;
        assert_op_fails(op, BW_E_UNKNOWN, "input/output error");
        assert_int_equal(op.error.os_errno, EIO);
        assert_int_equal(op.outcome, 0);
        assert_int_equal(look(f, "a/b/k"), was_made ? 1 : 0);
        if (was_made) assert_outcome(do_create(f), BWI_STORE_SAME);
        assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
    }
}

/* On file systems of other machines a directory that somebody removed while it was open is stale, not away. */
static void directories_that_others_remove_meanwhile_are_no_failure(void **state) {
    struct fixture *f = *state;
    for (uint64_t n = 1;; n++) {
        assert_op_ok(st_create(S, "a/b/c/k", ""));
        const uint64_t before = bwi_os_fault_fired(f->fault);
        bwi_os_fault_at(f->fault, n, 1, UINT32_C(1) << BWI_OS_READDIR, ESTALE);
        assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
        const bool fired = bwi_os_fault_fired(f->fault) > before;
        bwi_os_fault_at(f->fault, 0, 0, 0, 0);
        assert_int_equal(look(f, "a/b/c/k"), 0);
        if (!fired) break;
        assert_true(n < 100);
    }
}

/* A file that somebody cuts while it is read, or that is not as long as what was written into it. */
static uint64_t lost_bytes;
static int64_t pread_less(struct bwi_os *os, int fd, void *buf, size_t n, uint64_t offset) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    return below->pread(below, fd, buf, n - lost_bytes, offset);
}
static int stat_fd_less(struct bwi_os *os, int fd, struct bwi_os_stat *ret) {
    struct bwi_os *below = bwi_os_system();
    (void)os;
    const int rc = below->stat_fd(below, fd, ret);
    if (rc == 0 && ret->type == BWI_OS_FILE) ret->size_bytes -= lost_bytes;
    return rc;
}

static void an_object_that_is_cut_while_it_is_read_is_damaged(void **state) {
    struct fixture *f = *state;
    f->odd.pread = pread_less;
    lost_bytes = 0;
    open_fixture(f, &f->odd);
    assert_op_ok(do_create(f));
    lost_bytes = 7;
    const struct bwi_store_op op = st_get(S, "a/b/k", BYTES);
    lost_bytes = 0;
    assert_op_fails(op, BW_E_CORRUPT, "get \"a/b/k\": ends after 9993 of 10000 bytes");
    assert_null(op.body.ptr);
    assert_op_ok(do_get(f));
}

static void an_upload_whose_file_is_shorter_than_what_was_written_gets_no_name(void **state) {
    struct fixture *f = *state;
    f->odd.stat_fd = stat_fd_less;
    lost_bytes = 0;
    open_fixture(f, &f->odd);
    assert_op_ok(st_create(S, "a/b/warm", ""));
    lost_bytes = 1;
    const struct bwi_store_op op = do_upload(f);
    lost_bytes = 0;
    assert_op_fails(op, BW_E_INTERNAL, "finish \"a/b/k\": the file has 9999 bytes, expected 10000");
    assert_int_equal(look(f, "a/b/k"), 0);
    assert_int_equal(rig_hidden_files(f->dir), 0);
    assert_op_ok(do_upload(f));
}

/* The directory goes away between its making and its use, `vanishings` times. */
static int vanishings;
static int rmdir_path(const char *path) {
    struct bwi_os *below = bwi_os_system();
    int root = below->open_root(below, "/", false), rc = below->rmdir(below, root, path + 1);
    below->close(below, root);
    return rc;
}

static int open_new_vanishing(struct bwi_os *os, int dirfd, const char *path) {
    char dir[700];
    struct bwi_os *below = bwi_os_system();
    (void)os;
    rig_path(dir, sizeof dir, the.dir, "a/b");
    if (vanishings > 0 && vanishings-- > 0 && rmdir_path(dir) < 0) return -EINVAL;
    return below->open_new(below, dirfd, path);
}

static void a_directory_that_vanishes_is_made_again(void **state) {
    struct fixture *f = *state;
    f->odd.open_new = open_new_vanishing;
    open_fixture(f, &f->odd);
    vanishings = 3;
    assert_outcome(do_create(f), BWI_STORE_CREATED);
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
    vanishings = 3;
    assert_outcome(do_upload(f), BWI_STORE_CREATED);
    assert_op_ok(st_key(S, BWI_STORE_DELETE_PREFIX, "a/"));
    vanishings = 1000; /* not for ever */
    assert_op_fails(do_create(f), BW_E_IO, "create \"a/b/k\": make a temporary file in file:///");
    assert_true(vanishings > 900);
    assert_op_fails(do_upload(f), BW_E_IO, "begin \"a/b/k\": make a temporary file in file:///");
    vanishings = 0;
}

/* Somebody else makes the directory at the same moment, and has not synced it. */
static int mkdir_lost_race(struct bwi_os *os, int dirfd, const char *path) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    int rc = below->mkdir(below, dirfd, path);
    return rc == 0 ? -EEXIST : rc;
}

/* Counts the calls of the odd table. */
static void open_odd_and_count(struct fixture *f) {
    bwi_os_fault_free(f->fault);
    assert_int_equal(bwi_os_fault_new(&f->odd, &f->fault), 0);
    open_fixture(f, bwi_os_fault_table(f->fault));
}

/* Inode numbers are given out again as soon as they are free. */
static int stat_same_inode(struct bwi_os *os, int fd, struct bwi_os_stat *ret) {
    (void)os;
    struct bwi_os *below = bwi_os_system();
    int rc = below->stat_fd(below, fd, ret);
    ret->inode = 7;
    return rc;
}

static void a_directory_made_anew_is_synced_though_its_inode_number_is_an_old_one(void **state) {
    struct fixture *f = *state;
    f->odd.stat_fd = stat_same_inode;
    open_odd_and_count(f);
    struct bwi_store *other = rig_store(&f->rig, f->dir, false);
    assert_outcome(do_create(f), BWI_STORE_CREATED);
    assert_op_ok(st_key(&f->rig, other, BWI_STORE_DELETE_PREFIX, "a/"));
    uint64_t n = syncs(f);
    assert_outcome(do_create(f), BWI_STORE_CREATED);
    assert_int_equal(syncs(f) - n, 4);
    other->close(other);
}

static void a_directory_that_another_made_meanwhile_is_synced_too(void **state) {
    struct fixture *f = *state;
    f->odd.mkdir = mkdir_lost_race;
    open_odd_and_count(f);
    uint64_t n = syncs(f);
    assert_outcome(do_create(f), BWI_STORE_CREATED);
    assert_int_equal(syncs(f) - n, 4);
}

#define FAULTS(f) cmocka_unit_test_setup_teardown(f, setup_with_faults, teardown)
#define CASE(f)   cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        FAULTS(creating_survives_every_failure),
        FAULTS(creating_what_is_there_survives_every_failure),
        FAULTS(uploading_survives_every_failure),
        FAULTS(uploading_what_is_there_survives_every_failure),
        FAULTS(aborting_survives_every_failure),
        FAULTS(replacing_survives_every_failure),
        FAULTS(deleting_survives_every_failure),
        FAULTS(locking_survives_every_failure),
        FAULTS(reading_survives_every_failure),
        FAULTS(messages_name_the_call),
        FAULTS(a_directory_that_cannot_be_synced_leaves_the_outcome_unknown),
        FAULTS(every_sync_is_counted_and_needed),
        FAULTS(directories_that_others_made_are_synced_once_for_each_store),
        FAULTS(a_sync_of_a_directory_that_failed_is_not_taken_for_done),
        FAULTS(directories_that_others_remove_meanwhile_are_no_failure),
        FAULTS(a_listing_asks_nothing_about_the_single_objects),
        CASE(no_fsync_is_believed_after_one_that_failed),
        CASE(an_object_that_was_there_is_in_doubt_after_a_failed_fsync),
        CASE(doubts_are_never_forgotten),
        CASE(a_directory_with_the_inode_of_another_is_told_by_its_birth),
        CASE(without_links_it_renames_without_replacing),
        CASE(without_either_creating_is_an_error_that_leaves_nothing),
        CASE(a_link_that_was_made_counts_whatever_the_answer),
        CASE(a_lock_is_taken_again_where_only_writers_can_lock),
        CASE(an_object_that_is_cut_while_it_is_read_is_damaged),
        CASE(an_upload_whose_file_is_shorter_than_what_was_written_gets_no_name),
        CASE(a_name_that_may_have_been_given_leaves_the_outcome_unknown),
        CASE(a_directory_that_vanishes_is_made_again),
        CASE(a_directory_made_anew_is_synced_though_its_inode_number_is_an_old_one),
        CASE(a_directory_that_another_made_meanwhile_is_synced_too),
    };
    return cmocka_run_group_tests_name("store_posix_fault", tests, NULL, NULL);
}
