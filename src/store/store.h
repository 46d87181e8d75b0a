/* SPDX-License-Identifier: Apache-2.0 */
/* A store: keys to objects that are created once. Everything that differs between a directory, an object store and
 * memory is behind this table; nothing above knows which one it has.
 *
 * Operations are submitted and complete on the loop's thread (op->done); they never block the caller, and done is
 * called from a later turn, never from within submit. An operation and all memory it refers to belong to the submitter
 * and stay untouched until done.
 *
 * Keys: components of [A-Za-z0-9._-], separated by '/', none empty, none beginning with '.', at most 16 components, 255
 * bytes a component, 1,000 bytes in all. Anything else is BW_E_INVALID, so no key can leave the store's root. Names
 * that begin with '.' are the store's own (temporaries, locks) and never listed.
 *
 * Guarantees, after done with status 0:
 *   - CREATE, FINISH: the object and its name survive a crash of the process and of the machine; a reader sees all of
 *     it or none of it. With outcome SAME: so does the object that was there.
 * And else:
 *   - A failed fsync of an object is final: the operation fails, the object does not get its name, nothing is retried
 *     on that file.
 *   - BW_E_UNKNOWN from CREATE, FINISH, REPLACE: the object got its name, or may have got it, but whether that survives
 *     is not known (the directory could not be synced, the answer was lost). CREATE with the same bytes finds out: it
 *     believes no fsync after one that failed, but gives the name anew.
 *   - A symbolic link, FIFO, socket, device or directory in the place of an object is damage of that object, and is
 *     never followed or opened: it is listed, GET, READ and HEAD are BW_E_CORRUPT, CREATE and FINISH are BW_E_EXISTS
 *     with outcome OTHER, all with what it is; REPLACE and DELETE work, but on a directory: there REPLACE fails, and
 *     DELETE finds no object. (Memory has none of these, and a prefix is no object there: BW_E_NOTFOUND.)
 *   - One in the place of a directory is BW_E_IO. */
#ifndef BWI_STORE_STORE_H
#define BWI_STORE_STORE_H

#include "base/span.h"
#include "io/engine.h"
#include "io/loop.h"
#include <breakwater/error.h>

enum bwi_store_verb {
    BWI_STORE_CREATE, /* key, data -> outcome. A whole small object, once. Same bytes already there: success with
                         outcome SAME. Other bytes: BW_E_EXISTS with outcome OTHER. */
    BWI_STORE_GET,    /* key, limit_bytes -> body (allocated; freed by the caller with bwi_buf_fini). Larger than limit:
                         BW_E_FORMAT. */
    BWI_STORE_READ, /* key, offset, buf, bytes -> moved. Exactly `bytes` bytes; fewer there: BW_E_CORRUPT (the object is
                       too short). `handle` may be given by the caller (zeroed, reused for later reads of the same key,
                       released by RELEASE). */
    BWI_STORE_RELEASE, /* handle: lets go of what READ keeps open. Never fails. Not while a READ of it is in flight. */
    BWI_STORE_HEAD,    /* key -> size_bytes, doubtful */
    BWI_STORE_LIST, /* key = prefix ending in '/' or "", after (may be NULL) -> names. One level: direct children only,
                       sorted bytewise; prefixes end in '/'. Only names greater than `after`. A prefix with nothing
                       below is an empty list, not an error. What no key can name (lost+found) is not listed. */
    BWI_STORE_DELETE,        /* key. Missing is success. Empty directories above it stay. */
    BWI_STORE_DELETE_PREFIX, /* key = prefix ending in '/', keep_bytes: every object below, the store's own temporaries
                                below it too (an upload in the making there fails at its FINISH). Missing is success. ""
                                is refused. What can be deleted is, whatever else fails. */
    BWI_STORE_BEGIN,         /* key, size_bytes -> upload, recycled_bytes. Reserves size_bytes where that is possible:
                                BW_E_NOSPACE comes here, not at the last byte. */
    BWI_STORE_WRITE,  /* upload, offset, buf, bytes. Several may be in flight; offsets are multiples of 4 KiB, each byte
                         is written once, or FINISH is BW_E_INTERNAL. One that fails poisons the upload: FINISH fails
                         with its error. */
    BWI_STORE_FINISH, /* upload -> outcome. Makes it durable and gives it its name, once. Exists already: compared by
                         size only (the writer's number is in the key of every pack): SAME or BW_E_EXISTS. Begun
                         with `replace`: over whatever is there, CREATED. The upload is gone afterwards, however it
                         ends. */
    BWI_STORE_ABORT,  /* upload: forgets it and its bytes. Never fails. Not while a WRITE of it is in flight; nor is
                         FINISH. */
    BWI_STORE_SYNC, /* key = prefix ending in '/' or "": names that others created directly below, and can be seen, are
                       durable afterwards. BW_E_IO, and doubtful, while one that this store created there is not known
                       to be. */
    BWI_STORE_REPLACE, /* key, data: puts the right bytes over a damaged copy; only this and an upload begun with
                          `replace` change an object. Readers see the old or the new one whole. Missing: it is
                          created. */
    BWI_STORE_LOCK,   /* key = any prefix ending in '/' or "" -> lock. Not waiting: BW_E_BUSY. Advisory, for this host's
                         processes; dies with the process. */
    BWI_STORE_UNLOCK, /* lock. Never fails. */
    BWI_STORE_SPACE,  /* -> free_bytes, total_bytes: UINT64_MAX each where a store has no such limit. Free is also what
                         deletions have kept. */
};

enum bwi_store_outcome {
    BWI_STORE_CREATED = 1,
    BWI_STORE_SAME,
    BWI_STORE_OTHER,
    BWI_STORE_GONE, /* of an upload, with BW_E_IO: its prefix was deleted while it was made */
};

struct bwi_store_upload; /* an object in the making */
struct bwi_store_handle; /* an object kept open for reading */
struct bwi_store_lock;

/* Sorted names of a listing, relative to its prefix; no more than the names, because to ask about each object of a long
 * listing is what shared file systems are slow at. Freed with bwi_store_names_fini. */
struct bwi_store_names {
    char **name; /* NUL-terminated */
    size_t len, cap;
};
void bwi_store_names_fini(struct bwi_store_names *n);

/* The way to an open object past the page cache. */
struct bwi_store_direct {
    int fd;          /* -1: not opened */
    unsigned memory; /* what addresses have to be multiples of */
    bool none;       /* there is no such way, or it refused */
};

struct bwi_store_op {
    enum bwi_store_verb verb;
    void (*done)(struct bwi_store_op *op); /* required */
    void *user;
    /* in */
    const char *key;
    const char *after;
    struct bwi_span data;
    uint64_t offset;
    void *buf;
    size_t bytes;
    size_t limit_bytes;
    uint64_t size_bytes; /* BEGIN: in. HEAD: out */
    /* DELETE_PREFIX: of the objects directly below, so many bytes at most (and what the last of them has more) may stay
     * on the disk as files without a name, for later BEGINs to write over: deleted all the same for whoever looks. They
     * go when room is short, when the prefix is deleted once more without keeping, and with the store. A store may keep
     * nothing. */
    uint64_t keep_bytes;
    uint64_t recycled_bytes; /* BEGIN: out. What it got of those */
    bool tidy;     /* LIST: what creations that died left directly below goes, if it is older than a day. Nothing that
                      cannot be removed fails the listing */
    bool doubtful; /* HEAD, SYNC: out. This store could not make it, or a name there, durable, and only an upload or a
                      CREATE of the same bytes can now */
    bool replace;  /* BEGIN: FINISH puts the object over an existing one, at once (repair of a damaged copy) */
    struct bwi_store_upload *upload;  /* BEGIN: out. WRITE, FINISH, ABORT: in */
    struct bwi_store_handle **handle; /* READ, RELEASE: where the caller keeps it; NULL allowed for READ */
    struct bwi_store_lock *lock;      /* LOCK: out. UNLOCK: in */
    /* READ of much data that is read once, through a handle. What the page cache holds comes from there; all else past
     * it, where that is possible, and does not stay in it. */
    bool bulk;
    bool shared;      /* bulk: others of this node may read the same soon: it comes through the page cache, and stays */
    bool uncached;    /* bulk: the caller knows that the page cache does not hold them */
    bool may_decline; /* bulk: rather than read through the page cache what only the buffer's address keeps from coming
                         past it, end with `declined` */
    size_t room_bytes; /* bulk: that may be written at buf, where those are more: whole blocks are read as far as they
                          fit, whatever lies behind `bytes` */
    /* bulk: shown the bytes as they arrive, from the first on and piece by piece, while they are in the cache of the
     * processor that it runs on: a thread of the store's. A store may leave that out; `looked` says how many it was
     * shown. NULL: nobody looks. */
    void (*look)(struct bwi_store_op *op, const uint8_t *piece, size_t bytes);
    size_t looked; /* out */
    /* bulk: where the bytes from `at` on go instead of buf + at, if they arrive piece by piece: the next ones that are
     * not looked at yet. It may ask for fewer. NULL: to buf. */
    uint8_t *(*aim)(struct bwi_store_op *op, size_t at, size_t *bytes);
    bool declined; /* out: no error, and nothing was read */
    /* out */
    enum bwi_store_outcome outcome;
    struct bwi_buf body;
    struct bwi_store_names names;
    uint64_t free_bytes, total_bytes;
    uint64_t direct_bytes; /* WRITE, bulk READ: of its bytes, those that went past the page cache */
    struct bw_error error; /* error.status 0 on success; begins with the verb and the key: `create "runs/a/b": ...` */
    /* the store's */
    struct bwi_store *store;
    struct bwi_io_req req;
    struct bwi_store_direct direct; /* READ, RELEASE: of the handle, or opened by a worker for it */
    size_t direct_room;             /* bulk: what goes past the page cache, in whole blocks; 0: nothing */
    uint64_t due_ns;
    bool keeps; /* DELETE_PREFIX: something stays below */
    struct bwi_store_op *next;
};

struct bwi_store_caps {
    bool node_local; /* the file system is a local one (ext4, xfs, btrfs, tmpfs, overlay): other nodes do not see it */
    uint64_t device; /* identity of the device below, 0 = unknown; two stores with the same one fail together */
    bool has_space;  /* SPACE means something */
    bool recycles;   /* writing over what a deletion has kept is faster than writing anew, and can be done */
    bool past_cache; /* large uploads are written past a page cache, where that is possible */
};

struct bwi_store {
    void (*submit)(struct bwi_store *s, struct bwi_store_op *op);
    void (*close)(struct bwi_store *s); /* nothing may be in flight; frees s */
    struct bwi_store_caps caps;
    char url[512];
    uint64_t ops[BWI_STORE_SPACE + 1]; /* submitted, per verb: what a test counts */
    uint64_t bytes_in, bytes_out;      /* written to and read from the store */
};

/* Counts and submits. */
void bwi_store_submit(struct bwi_store *s, struct bwi_store_op *op);
bool bwi_store_key_valid(const char *key);    /* an object's key */
bool bwi_store_prefix_valid(const char *key); /* "" or a key followed by '/' */

struct bwi_store_options {
    struct bwi_loop *loop;
    bool create;    /* make the root directory if it is not there */
    bool read_only; /* every changing verb is BW_E_ACCESS */
};

/* file:///absolute/path (percent-decoding, no query but the documented ones), or an absolute path. memory:NAME is a
 * bucket of this process. s3:// is BW_E_UNSUPPORTED in this build. */
int bwi_store_open(const char *url, const struct bwi_store_options *o, struct bwi_store **ret, struct bw_error *err);

#endif
