/* SPDX-License-Identifier: Apache-2.0 */
/* Names and directories of a disk that forgets. */
#include "disk_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COLLECT_EVERY 4096u

void *disk_alloc(size_t count, size_t bytes) {
    void *ptr = calloc(count > 0 ? count : 1, bytes);
    if (ptr == NULL) abort();
    return ptr;
}

void *disk_grow(void *ptr, size_t count, size_t bytes) {
    ptr = realloc(ptr, count * bytes);
    if (ptr == NULL) abort();
    return ptr;
}

struct disk_inode *disk_inode_new(struct disk *d, enum bwi_os_type type) {
    struct disk_inode *i = disk_alloc(1, sizeof *i);
    i->disk = d;
    i->type = type;
    i->number = ++d->next_number;
    i->mtime_ms = d->env->unix_ms(d->env);
    i->birth_ns = i->mtime_ms * 1000000 + (int64_t)(i->number % 1000000);
    i->next = d->all;
    d->all = i;
    d->inodes++;
    return i;
}

static void free_inode(struct disk_inode *i) {
    for (size_t k = 0; k < i->entry_count; k++) free(i->entries[k].states);
    free(i->entries);
    free(i->block);
    disk_bytes_free(&i->now);
    disk_bytes_free(&i->safe);
    free(i);
}

/* --- names ---- */

struct disk_inode *disk_entry_now(const struct disk_entry *e) {
    return e->states[e->count - 1].inode;
}

static struct disk_entry *find_entry(const struct disk_inode *dir, const char *name) {
    for (size_t k = 0; k < dir->entry_count; k++)
        if (strcmp(dir->entries[k].name, name) == 0) return &dir->entries[k];
    return NULL;
}

struct disk_inode *disk_lookup(const struct disk_inode *dir, const char *name) {
    const struct disk_entry *e = find_entry(dir, name);
    return e != NULL ? disk_entry_now(e) : NULL;
}

static struct disk_entry *add_entry(struct disk_inode *dir, const char *name) {
    dir->entries = disk_grow(dir->entries, dir->entry_count + 1, sizeof *dir->entries);
    struct disk_entry *e = &dir->entries[dir->entry_count++];
    *e = (struct disk_entry){.states = disk_alloc(1, sizeof *e->states), .count = 1};
    (void)snprintf(e->name, sizeof e->name, "%s", name);
    return e;
}

void disk_set_entry(struct disk_inode *dir, const char *name, struct disk_inode *to) {
    struct disk *d = dir->disk;
    struct disk_entry *e = find_entry(dir, name);
    if (e == NULL) e = add_entry(dir, name);
    struct disk_inode *was = disk_entry_now(e);
    if (was != NULL) was->names--;
    if (to != NULL) to->names++;
    e->states = disk_grow(e->states, e->count + 1, sizeof *e->states);
    e->states[e->count++] = (struct disk_state){.inode = to, .seq = ++d->seq};
    e->lost = false;
    dir->mtime_ms = d->env->unix_ms(d->env);
    if (d->inodes >= d->collect_at) disk_collect(d);
}

bool disk_is_empty(const struct disk_inode *dir) {
    for (size_t k = 0; k < dir->entry_count; k++)
        if (disk_entry_now(&dir->entries[k]) != NULL) return false;
    return true;
}

/* What can be seen is safe, but for names that an fsync has lost. Entries that stand for nothing go. */
void disk_sync_entries(struct disk_inode *dir) {
    size_t kept = 0;
    for (size_t k = 0; k < dir->entry_count; k++) {
        struct disk_entry *e = &dir->entries[k];
        if (!e->lost) {
            e->states[0] = e->states[e->count - 1];
            e->count = 1;
        }
        if (e->count == 1 && e->states[0].inode == NULL)
            free(e->states);
        else
            dir->entries[kept++] = *e;
    }
    dir->entry_count = kept;
}

void disk_drop_entries(struct disk_inode *dir) {
    for (size_t k = 0; k < dir->entry_count; k++)
        if (dir->entries[k].count > 1) dir->entries[k].lost = true;
}

/* --- paths ---- */

static size_t next_component(const char **path, char name[DISK_NAME_MAX + 1]) {
    *path += strspn(*path, "/");
    size_t len = strcspn(*path, "/");
    if (len > DISK_NAME_MAX) len = DISK_NAME_MAX;
    memcpy(name, *path, len);
    name[len] = '\0';
    *path += len;
    return len;
}

int disk_walk(struct disk_inode *dir, const char *path, struct disk_inode **ret) {
    char name[DISK_NAME_MAX + 1];
    while (next_component(&path, name) > 0) {
        if (dir->type != BWI_OS_DIR) return -ENOTDIR;
        if (strcmp(name, ".") == 0) continue;
        dir = disk_lookup(dir, name);
        if (dir == NULL) return -ENOENT;
    }
    *ret = dir;
    return 0;
}

int disk_walk_parent(struct disk_inode *dir, const char *path, struct disk_inode **ret, const char **ret_leaf) {
    char above[1024];
    const char *slash = strrchr(path, '/');
    *ret_leaf = slash != NULL ? slash + 1 : path;
    const int len = slash != NULL ? (int)(slash - path) : 0;
    (void)snprintf(above, sizeof above, "%.*s", len, path);
    const int rc = disk_walk(dir, above, ret);
    if (rc != 0) return rc;
    return (*ret)->type == BWI_OS_DIR ? 0 : -ENOTDIR;
}

/* --- what nothing leads to ---- */

static void mark(struct disk_inode *i) {
    if (i->marked) return;
    i->marked = true;
    for (size_t k = 0; k < i->entry_count; k++)
        for (unsigned s = 0; s < i->entries[k].count; s++)
            if (i->entries[k].states[s].inode != NULL) mark(i->entries[k].states[s].inode);
}

void disk_collect(struct disk *d) {
    mark(d->root);
    for (struct disk_inode *i = d->all; i != NULL; i = i->next)
        if (i->open > 0) mark(i);
    for (struct disk_inode **at = &d->all; *at != NULL;) {
        struct disk_inode *i = *at;
        if (i->marked) {
            i->marked = false;
            at = &i->next;
            continue;
        }
        *at = i->next;
        free_inode(i);
        d->inodes--;
    }
    d->collect_at = d->inodes + COLLECT_EVERY;
}

/* --- the whole ---- */

struct disk *disk_new(struct bwi_env *env, const struct disk_model *m) {
    struct disk *d = disk_alloc(1, sizeof *d);
    d->model = m != NULL ? *m : (struct disk_model){0};
    if (d->model.block_bytes == 0) d->model.block_bytes = 512;
    d->env = env;
    d->next_number = (uint64_t)d->model.device << 32;
    d->collect_at = COLLECT_EVERY;
    d->root = disk_inode_new(d, BWI_OS_DIR);
    return d;
}

void disk_free(struct disk *d) {
    if (d == NULL) return;
    while (d->all != NULL) {
        struct disk_inode *i = d->all;
        d->all = i->next;
        free_inode(i);
    }
    free(d);
}

static void each(const struct disk_inode *dir, const char *path, disk_look look, void *user) {
    for (size_t k = 0; k < dir->entry_count; k++) {
        const struct disk_inode *i = disk_entry_now(&dir->entries[k]);
        char below[1024];
        if (i == NULL) continue;
        const char *end = i->type == BWI_OS_DIR ? "/" : "";
        if (snprintf(below, sizeof below, "%s%s%s", path, dir->entries[k].name, end) >= (int)sizeof below) abort();
        look(user, below, i->now.len);
        if (i->type == BWI_OS_DIR) each(i, below, look, user);
    }
}

void disk_each(const struct disk *d, disk_look look, void *user) {
    each(d->root, "", look, user);
}

const uint8_t *disk_peek(const struct disk *d, const char *path, size_t *ret_bytes) {
    struct disk_inode *i = NULL;
    if (disk_walk(d->root, path, &i) != 0 || i->type != BWI_OS_FILE) return NULL;
    *ret_bytes = i->now.len;
    return i->now.ptr != NULL ? i->now.ptr : (const uint8_t *)"";
}

bool disk_touch(struct disk *d, const char *path, int64_t mtime_ms) {
    struct disk_inode *i = NULL;
    if (disk_walk(d->root, path, &i) != 0) return false;
    i->mtime_ms = mtime_ms;
    return true;
}

uint64_t disk_used_bytes(const struct disk *d) {
    uint64_t bytes = 0;
    for (const struct disk_inode *i = d->all; i != NULL; i = i->next)
        if (i->names > 0 || i->open > 0) bytes += i->now.len;
    return bytes;
}

bool disk_is_safe(const struct disk *d) {
    for (const struct disk_inode *i = d->all; i != NULL; i = i->next) {
        if (i->names == 0 && i != d->root) continue;
        if (!disk_data_is_safe(i)) return false;
        for (size_t k = 0; k < i->entry_count; k++)
            if (i->entries[k].count > 1) return false;
    }
    return true;
}
