/* SPDX-License-Identifier: Apache-2.0 */
/* What the stores share among themselves: checks of an operation, messages, listings, bookkeeping of uploads. Only for
 * the files of store/. */
#ifndef BWI_STORE_STORE_PRIVATE_H
#define BWI_STORE_STORE_PRIVATE_H

#include "base/error.h"
#include "store/store.h"

#define BWI_STORE_COMPONENT_MAX  255u
#define BWI_STORE_COMPONENTS_MAX 16u
#define BWI_STORE_KEY_MAX        1000u
#define BWI_STORE_ALIGN          UINT64_C(4096) /* offsets of WRITE */

/* What every store's upload begins with. All on the loop's thread. */
struct bwi_store_upload {
    char *key; /* owned */
    uint64_t size_bytes;
    uint64_t written_bytes;
    uint64_t seams;  /* of what was written, the offsets where it begins less those where it ends, each as a number that
                        looks random: pieces that cover all of it once, in any order, leave its begin and its end */
    unsigned writes; /* in flight */
    bool replace;    /* FINISH puts it over an object that is there */
    struct bw_error error; /* of the first WRITE that failed: FINISH fails with it */
};

const char *bwi_store_verb_name(enum bwi_store_verb verb);
/* The key that an operation is about, for messages and tests: its own or its upload's; NULL: none. */
const char *bwi_store_op_key(const struct bwi_store_op *op);

/* Fails the operation unless it has failed already: `create "runs/x": <text>`, with the text of an errno for the second
 * one. Return the status, or the (negative) errno that was given. */
int bwi_store_fail(struct bwi_store_op *op, int status, const char *fmt, ...) BWI_PRINTF(3, 4);
int bwi_store_errno(struct bwi_store_op *op, int os_errno, const char *fmt, ...) BWI_PRINTF(3, 4);

/* Checks what a verb needs: key, buffers, bounds, the right to change. Fills op->error. */
int bwi_store_check(struct bwi_store_op *op, bool read_only);
/* A WRITE has been accepted, and has ended with op->error. */
void bwi_store_write_begun(struct bwi_store_op *op);
void bwi_store_write_ended(struct bwi_store_op *op);
/* At FINISH: the first error of its WRITEs, or BW_E_INTERNAL when bytes are missing. 0: complete. */
int bwi_store_check_complete(struct bwi_store_op *op);
/* Counts bytes and calls done. Last of all: the operation belongs to its submitter again. */
void bwi_store_complete(struct bwi_store_op *op);

bool bwi_store_component_valid(const char *name, size_t len);
/* Adds a name if it is greater than `after`. false: out of memory. */
bool bwi_store_names_add(struct bwi_store_names *n, const char *after, const char *name, size_t len, bool prefix);
void bwi_store_names_sort(struct bwi_store_names *n);

int bwi_store_posix_open(const char *path, const char *url, const struct bwi_store_options *o, struct bwi_store **ret,
                         struct bw_error *err);
int bwi_store_memory_open_url(const char *name, const struct bwi_store_options *o, struct bwi_store **ret,
                              struct bw_error *err);

#endif
