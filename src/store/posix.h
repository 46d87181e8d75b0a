/* SPDX-License-Identifier: Apache-2.0 */
/* The POSIX store's own declarations. Functions that take an operation run on a worker unless they say otherwise; they
 * fill op->error and return 0 (or a descriptor) or a negative errno. */
#ifndef BWI_STORE_POSIX_H
#define BWI_STORE_POSIX_H

#include "os/os.h"
#include "os/thread.h"
#include "store/store_private.h"
#include <stdatomic.h>

#define BWI_POSIX_DURABLE_SLOTS 1024u
#define BWI_POSIX_DURABLE_WAYS  8u /* slots that one entry may lie in */
#define BWI_POSIX_DOUBTS        16u
#define BWI_POSIX_SPARES        64u
#define BWI_POSIX_TMP_BYTES     24 /* ".<16 hex>.tmp" */
/* Objects from this size on are written past the page cache, where that is possible. Smaller ones gain nothing. */
#define BWI_POSIX_DIRECT_MIN (UINT64_C(1) << 20)
#define BWI_POSIX_TRIES      8u /* of a creation whose directory vanishes under it */

struct bwi_posix {
    struct bwi_store base;
    struct bwi_loop *loop;
    struct bwi_io *io;
    struct bwi_io_lane lane;
    struct bwi_os *os;
    int root;
    bool read_only;
    bool no_direct;     /* its file system lies in memory: what is past the page cache is nowhere */
    unsigned in_flight; /* the loop's thread only */
    /* Directories whose entry in the directory above is known to be on disk, as fingerprints of path, device, inode and
     * birth. Any thread. A fixed number, so that a long job does not grow; one that was pushed out costs one more
     * fsync, nothing else. */
    _Atomic uint64_t durable[BWI_POSIX_DURABLE_SLOTS];
    /* Objects whose name, or whose bytes, an fsync of this store failed to make durable. The kernel tells of a failed
     * write once and may then call the same page clean, so that no later fsync proves anything about it. Any thread. */
    struct bwi_posix_doubts {
        atomic_bool any;                                   /* there has been one: until then nobody takes the lock */
        atomic_flag lock;                                  /* held for a few comparisons */
        char key[BWI_POSIX_DOUBTS][BWI_STORE_KEY_MAX + 1]; /* "": free */
        bool all;                                          /* there were more than fit: every one is in doubt */
    } doubts;
    /* Files of deleted objects, to be written over. Any thread. */
    struct bwi_posix_spares {
        struct bwi_mutex lock; /* held for a few comparisons; no call to the kernel */
        size_t count;
        uint64_t bytes;            /* of all */
        struct bwi_mutex giving;   /* held while some are deleted: who finds the disk full meanwhile waits */
        _Atomic uint64_t given_up; /* bytes, so far */
        struct bwi_posix_spare {
            char *dir; /* where it lies, as a path below the root; owned */
            char tmp[BWI_POSIX_TMP_BYTES];
            uint64_t bytes;
        } list[BWI_POSIX_SPARES];
    } spares;
};

struct bwi_posix_upload {
    struct bwi_store_upload base;
    int dirfd, fd;
    int direct;     /* the same file past the page cache; -1: there is no such way */
    bool no_direct; /* it was refused all the same. The loop's thread only */
    char tmp[BWI_POSIX_TMP_BYTES];
    const char *leaf; /* in base.key */
};

struct bwi_store_handle {
    int fd;
    struct bwi_store_direct direct;
};

struct bwi_store_lock {
    int fd;
};

/* The upload of WRITE, FINISH, ABORT. */
static inline struct bwi_posix_upload *bwi_posix_upload_of(struct bwi_store_op *op) {
    return bwi_container_of(op->upload, struct bwi_posix_upload, base);
}
static inline struct bwi_posix *bwi_posix_of(struct bwi_store_op *op) {
    return bwi_container_of(op->store, struct bwi_posix, base);
}

/* posix_path.c. Every path is walked from the root one component at a time, and no symbolic link is followed. */
/* Opens the directory path[0, len). make: makes what is missing, and whatever is there is durable afterwards. -ENOENT
 * also where an object stands in place of a directory and make is not set. */
int bwi_posix_open_dir(struct bwi_store_op *op, const char *path, size_t len, bool make);
/* Opens the directory that holds the last component of op->key, a key or prefix. */
int bwi_posix_open_parent(struct bwi_store_op *op, bool make, const char **ret_leaf);
/* Opens an object for reading. What is no regular file is BW_E_CORRUPT and is not opened. */
int bwi_posix_open_object(struct bwi_store_op *op, int dirfd, const char *leaf);
/* The same for a creation that finds its name taken: what is no regular file is another object. */
int bwi_posix_open_existing(struct bwi_store_op *op, int dirfd, const char *leaf);
/* Fails the operation because that is in the place of its object. */
void bwi_posix_refuse(struct bwi_store_op *op, enum bwi_os_type type);
void bwi_posix_forget_durable(struct bwi_posix *p);

/* posix_create.c: what gives an object its name. */
void bwi_posix_create(struct bwi_store_op *op);
void bwi_posix_replace(struct bwi_store_op *op);
/* A name for a temporary: the next one of the operation. */
void bwi_posix_tmp_name(struct bwi_store_op *op, char tmp[BWI_POSIX_TMP_BYTES]);
/* Makes a temporary file under a fresh name. */
int bwi_posix_open_tmp(struct bwi_store_op *op, int dirfd, char tmp[BWI_POSIX_TMP_BYTES]);
/* Links tmp to leaf and removes tmp whatever happens. 1: leaf exists already. */
int bwi_posix_publish(struct bwi_store_op *op, int dirfd, const char *tmp, const char *leaf);
/* Puts tmp in place of leaf, whether that exists or not; tmp is gone whatever happens. */
int bwi_posix_publish_over(struct bwi_store_op *op, int dirfd, const char *tmp, const char *leaf);
/* Makes the new name of `key` durable. When that fails the outcome is unknown: the name may be seen already. */
int bwi_posix_settle(struct bwi_store_op *op, const char *key, int dirfd);
/* Makes an object that somebody else created durable. fd: it, open for reading. */
int bwi_posix_settle_same(struct bwi_store_op *op, int dirfd, int fd);
/* Whether an fsync of this store failed for the object: then only bytes and a name that are written anew can become
 * durable. */
bool bwi_posix_in_doubt(struct bwi_posix *p, const char *key);
/* Whether that is so for an object directly below the prefix. */
bool bwi_posix_doubt_in(struct bwi_posix *p, const char *prefix);
/* The object (a key), or all below a prefix, is gone. */
void bwi_posix_forget_doubt(struct bwi_posix *p, const char *key);

/* posix_upload.c */
void bwi_posix_begin(struct bwi_store_op *op);
void bwi_posix_write_behind(struct bwi_store_op *op);
void bwi_posix_finish(struct bwi_store_op *op);
void bwi_posix_abort(struct bwi_store_op *op);

/* posix_spare.c */
int bwi_posix_init_spares(struct bwi_posix *p);
/* What is left on the disk is the rest of a deletion, for whoever finds it next. */
void bwi_posix_fini_spares(struct bwi_posix *p);
/* At a DELETE_PREFIX: retires what may be kept of the objects directly below. Whether there is anything below now that
 * the deletion has to leave there. */
bool bwi_posix_keep(struct bwi_store_op *op);
bool bwi_posix_is_spare(struct bwi_posix *p, const char *name);
bool bwi_posix_has_spares(struct bwi_posix *p, const char *dir);
/* Those that are there still: whoever shares the disk may have deleted some. */
uint64_t bwi_posix_spare_bytes(struct bwi_store_op *op);
/* What lies below a prefix is deleted by others. */
void bwi_posix_forget_spares(struct bwi_posix *p, const char *prefix);
/* Bytes that have been deleted for want of room, so far. */
uint64_t bwi_posix_given_up(struct bwi_store_op *op);
/* Where the disk is full: deletes them all. Whether that, or others since `before`, gave room to try again. */
bool bwi_posix_makes_room(struct bwi_store_op *op, uint64_t before);
/* For BEGIN: the best one as a temporary in dirfd, no longer than the upload, or a negative errno: there is none. */
int bwi_posix_take_spare(struct bwi_store_op *op, int dirfd, char tmp[BWI_POSIX_TMP_BYTES]);

/* posix_read.c */
int bwi_posix_open_key(struct bwi_store_op *op); /* the object of op->key */
void bwi_posix_get(struct bwi_store_op *op);
/* Leaves the descriptor in op->req.fd when there is a handle to keep it. */
void bwi_posix_read(struct bwi_store_op *op);
void bwi_posix_head(struct bwi_store_op *op);
void bwi_posix_space(struct bwi_store_op *op);

/* posix_bulk.c */
void bwi_posix_read_bulk(struct bwi_store_op *op);
/* On the loop's thread, when a part of a bulk READ has ended. true: it was submitted again. */
bool bwi_posix_bulk_goes_on(struct bwi_posix *p, struct bwi_store_op *op);

/* posix_list.c */
void bwi_posix_list(struct bwi_store_op *op);
void bwi_posix_delete(struct bwi_store_op *op);
void bwi_posix_delete_prefix(struct bwi_store_op *op);
void bwi_posix_sync(struct bwi_store_op *op);

/* posix_lock.c */
void bwi_posix_lock(struct bwi_store_op *op);
void bwi_posix_unlock(struct bwi_store_op *op);

#endif
