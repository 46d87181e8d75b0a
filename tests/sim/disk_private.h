/* SPDX-License-Identifier: Apache-2.0 */
/* What a disk is made of. */
#ifndef BW_SIM_DISK_PRIVATE_H
#define BW_SIM_DISK_PRIVATE_H

#include "disk.h"
#include <stddef.h>

#define DISK_NAME_MAX 255

enum disk_block { DISK_CLEAN, DISK_DIRTY, DISK_LOST /* the fsync that was to write it has failed */ };

struct disk_bytes {
    uint8_t *ptr;
    size_t len, cap; /* [len, cap) is zero */
};

/* A name, with all that it may stand for after a crash: what is safe, and what came since, up to what can be seen. */
struct disk_entry {
    char name[DISK_NAME_MAX + 1];
    struct disk_state {
        struct disk_inode *inode; /* NULL: no such name */
        uint64_t seq;             /* when it came */
    } * states;
    unsigned count; /* 1: it is safe */
    bool lost;      /* the fsync that was to write the last state has failed */
};

struct disk_inode {
    struct disk *disk;
    struct disk_inode *next; /* of all */
    uint64_t number;
    enum bwi_os_type type;
    int64_t mtime_ms, birth_ns;
    unsigned open;  /* descriptors */
    unsigned names; /* that can be seen */
    bool marked;
    const void *lock; /* the descriptor that has it */
    /* a file */
    struct disk_bytes now, safe;
    uint8_t *block; /* enum disk_block of each that `now` or `safe` has */
    size_t blocks;
    enum disk_block size;
    unsigned client; /* who wrote last */
    /* a directory */
    char name[32]; /* that it was made under, cut */
    struct disk_entry *entries;
    size_t entry_count;
};

struct disk {
    struct disk_model model;
    struct bwi_env *env;
    struct disk_inode *root, *all;
    size_t inodes, collect_at;
    uint64_t next_number, seq;
    uint64_t generation; /* crashes; descriptors of an earlier one are dead */
    uint64_t floor_seq;  /* friendly: names up to here are safe */
    uint64_t fail_fsync;
    bool fail_files_only;
    uint64_t rng;
};

void *disk_alloc(size_t count, size_t bytes); /* zeroed; never NULL */
void *disk_grow(void *ptr, size_t count, size_t bytes);
uint64_t disk_random(struct disk *d, uint64_t below);

/* disk_tree.c */
struct disk_inode *disk_inode_new(struct disk *d, enum bwi_os_type type);
struct disk_inode *disk_entry_now(const struct disk_entry *e); /* NULL: it cannot be seen */
struct disk_inode *disk_lookup(const struct disk_inode *dir, const char *name);
void disk_set_entry(struct disk_inode *dir, const char *name, struct disk_inode *to);
bool disk_is_empty(const struct disk_inode *dir);
void disk_sync_entries(struct disk_inode *dir);
void disk_drop_entries(struct disk_inode *dir); /* a failed fsync */
void disk_collect(struct disk *d);              /* frees what nothing leads to any more */
/* Follows a path from `dir`. -ENOENT, -ENOTDIR. */
int disk_walk(struct disk_inode *dir, const char *path, struct disk_inode **ret);
/* The directory of the last component. */
int disk_walk_parent(struct disk_inode *dir, const char *path, struct disk_inode **ret, const char **ret_leaf);

/* disk_data.c */
void disk_bytes_resize(struct disk_bytes *b, size_t len);
void disk_bytes_free(struct disk_bytes *b);
void disk_write(struct disk_inode *f, const void *buf, size_t n, uint64_t offset);
void disk_resize(struct disk_inode *f, uint64_t size);
void disk_sync_data(struct disk_inode *f);
void disk_drop_data(struct disk_inode *f);
bool disk_data_is_safe(const struct disk_inode *f);
/* What a crash leaves of the bytes. */
struct disk_bytes disk_torn(struct disk_inode *f, unsigned keep_percent);
void disk_settle_data(struct disk_inode *f, struct disk_bytes bytes); /* all of it is safe */

#endif
