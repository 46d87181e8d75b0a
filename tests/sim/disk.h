/* SPDX-License-Identifier: Apache-2.0 */
/* Disks that forget. A whole file system in memory behind the table of system calls, which keeps apart what can be seen
 * and what is on the platter, and loses in a crash whatever it may lose:
 *
 *   - bytes that were not synced: each block is what it was, what it was to be, half of each, or zeros or what another
 *     file had left there; the size is the old one, the new one, or one in between;
 *   - names: a link, an unlink, a rename, a new or removed directory is there after a crash or not, each by itself and
 *     whatever came first, until the directory itself is synced. fsync of a file says nothing about its name;
 *   - after an fsync that failed, what it was to write: a later fsync succeeds and writes nothing of it.
 *
 * Nothing that POSIX promises is broken: what an fsync has made safe stays so, and all that live processes see of one
 * another is as if nothing were ever lost. A single thread, no clock of its own, all by seed. */
#ifndef BW_SIM_DISK_H
#define BW_SIM_DISK_H

#include "base/env.h"
#include "os/os.h"

struct disk_model {
    uint32_t block_bytes;    /* the unit of torn writes; 0: 512 */
    bool friendly;           /* a journal: names are lost in the order in which they came, a file's bytes all or none */
    bool is_remote;          /* not a node's own: what a client has not synced is lost with the client */
    uint64_t capacity_bytes; /* 0: no limit */
    uint32_t device;         /* its number: of two disks at once each has another one */
};

struct disk;
struct disk *disk_new(struct bwi_env *env, const struct disk_model *m);
void disk_free(struct disk *d); /* no process is attached any more */

/* The power fails: what comes back follows from the seed. Every descriptor on the disk is dead. */
void disk_crash(struct disk *d, uint64_t seed);
/* A client of a remote disk has lost its power: bytes that it wrote and did not sync may not have come. Names have. */
void disk_lose_client(struct disk *d, unsigned client, uint64_t seed);
/* The n-th fsync from now on (1: the next) fails, and what it was to write is written by none; 0: none does. */
void disk_fail_fsync(struct disk *d, uint64_t n);
void disk_fail_file_fsync(struct disk *d, uint64_t n);  /* likewise, of fsyncs of files only */
void disk_set_capacity(struct disk *d, uint64_t bytes); /* 0: no limit */

/* Every file and directory that can be seen, by its path below the root ("a/b", directories end in '/'). */
typedef void (*disk_look)(void *user, const char *path, uint64_t bytes);
void disk_each(const struct disk *d, disk_look look, void *user);
/* What a file holds as it can be seen: NULL: there is none. Good until something changes. */
const uint8_t *disk_peek(const struct disk *d, const char *path, size_t *ret_bytes);
bool disk_touch(struct disk *d, const char *path, int64_t mtime_ms); /* false: there is nothing */
uint64_t disk_used_bytes(const struct disk *d);
/* Whether nothing on it could be lost now. */
bool disk_is_safe(const struct disk *d);

/* A process on some node, and its view of disks. "/NAME/..." is on the disk that was attached as NAME. */
struct disk_process;
struct disk_process *disk_process_new(unsigned client);
void disk_attach(struct disk_process *p, const char *name, struct disk *d);
struct bwi_os *disk_os(struct disk_process *p);
/* Ends without a word. Its locks are gone; what it wrote can be seen and is as safe as it was. Whatever is left of it
 * in memory is told -EIO from now on, and has no effect. */
void disk_process_kill(struct disk_process *p);
bool disk_process_is_dead(const struct disk_process *p);
void disk_process_free(struct disk_process *p);
/* Before the n-th change or fsync from now on (1: the next), `stop` is called: it may kill, crash, or do nothing. */
void disk_stop_at(struct disk_process *p, uint64_t n, void (*stop)(void *user), void *user);
/* Likewise, before the n-th fsync of a directory of this name, or of any: there names can be seen that are not safe. */
void disk_stop_at_sync(struct disk_process *p, const char *name, uint64_t n, void (*stop)(void *user), void *user);
uint64_t disk_changes(const struct disk_process *p); /* so far */
unsigned disk_open_files(const struct disk_process *p);

#endif
