/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint ids and object keys. Normative page: doc/format/keys.md. */
#ifndef BWI_FORMAT_ID_H
#define BWI_FORMAT_ID_H

#include "base/span.h"
#include "hash/hash.h"

/* <step, 20 digits>.<attempt>-<nonce, 8 hex>.<try> */
struct bwi_id {
    uint64_t step;
    uint32_t attempt;
    uint32_t nonce;
    uint32_t tri; /* the try: one making of a step in an attempt ("try" is a word of C++) */
};
#define BWI_ID_TEXT_BYTES 56

struct bwi_uuid {
    uint8_t b[16];
};
#define BWI_UUID_TEXT_BYTES 33 /* 32 lower-case hex digits */

void bwi_id_text(const struct bwi_id *id, char ret[BWI_ID_TEXT_BYTES]);
bool bwi_id_parse(struct bwi_span text, struct bwi_id *ret); /* canonical form only */
bool bwi_id_eq(const struct bwi_id *a, const struct bwi_id *b);
int bwi_id_cmp(const struct bwi_id *a, const struct bwi_id *b); /* step, attempt, nonce, try */
bool bwi_uuid_eq(const struct bwi_uuid *a, const struct bwi_uuid *b);
void bwi_uuid_text(const struct bwi_uuid *u, char ret[BWI_UUID_TEXT_BYTES]);
bool bwi_uuid_parse(struct bwi_span text, struct bwi_uuid *ret);

/* A key, caller-placed. Names that go in are valid already, so it always fits. */
struct bwi_key {
    char s[512];
};

struct bwi_key bwi_key_run(const char *run);                             /* runs/<run>/ */
struct bwi_key bwi_key_history(const char *run);                         /* runs/<run>/history/ */
struct bwi_key bwi_key_entry(const char *run, uint32_t era, uint64_t n); /* .../history/<era>.<n>.json */
struct bwi_key bwi_key_launches(const char *run);                        /* .../launches/ */
struct bwi_key bwi_key_launch(const char *run, const char *launch);      /* .../launches/<launch>/ */
struct bwi_key bwi_key_inventory(const char *run, const char *launch, uint32_t group);
struct bwi_key bwi_key_refusal(const char *run, const char *launch);
struct bwi_key bwi_key_layouts(const char *run); /* .../layouts/ */
struct bwi_key bwi_key_layouts_of(const char *run, uint32_t attempt, uint32_t nonce);
/* The first 32 hex digits of the hash. */
struct bwi_key bwi_key_layout(const char *run, uint32_t attempt, uint32_t nonce, const struct bwi_sha *sha);
struct bwi_key bwi_key_checkpoints(const char *run);                         /* .../checkpoints/ */
struct bwi_key bwi_key_checkpoint(const char *run, const struct bwi_id *id); /* .../checkpoints/<id>/ */
struct bwi_key bwi_key_groups(const char *run, const struct bwi_id *id);     /* .../checkpoints/<id>/groups/ */
struct bwi_key bwi_key_summary(const char *run, const struct bwi_id *id, uint32_t group);
struct bwi_key bwi_key_failed_dir(const char *run, const struct bwi_id *id); /* .../failed/ */
struct bwi_key bwi_key_failed(const char *run, const struct bwi_id *id, uint32_t group);
struct bwi_key bwi_key_damaged_dir(const char *run, const struct bwi_id *id);
struct bwi_key bwi_key_damaged(const char *run, const struct bwi_id *id, uint32_t group);
/* The first 16 hex digits of the hash. */
struct bwi_key bwi_key_manifest(const char *run, const struct bwi_id *id, const struct bwi_sha *sha);
struct bwi_key bwi_key_index(const char *run, const struct bwi_id *id, const struct bwi_sha *root);
struct bwi_key bwi_key_data(const char *run); /* .../data/ */
/* .../data/<ff>/<id>/<group>/ */
struct bwi_key bwi_key_data_of(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group);
struct bwi_key bwi_key_pack(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group, uint32_t n,
                            uint64_t writer);
struct bwi_key bwi_key_content(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group);
struct bwi_key bwi_key_placement(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group,
                                 uint64_t writer);

/* "00" unless fan_out; else two hex digits of the XXH3-128 of the group's six digits. */
void bwi_fan_out_text(bool fan_out, uint32_t group, char ret[3]);

/* What a key below runs/<run>/ is, taken apart. false: not a key of this format. It accepts exactly what the functions
 * above make, and no directories: attempt and era from 1, group below BWI_GROUPS_MAX, step and n below 2^63, <ff> "00"
 * or the digits that belong to the group. */
enum bwi_key_kind {
    BWI_KEY_ENTRY,
    BWI_KEY_INVENTORY,
    BWI_KEY_LAYOUT,
    BWI_KEY_SUMMARY,
    BWI_KEY_FAILED,
    BWI_KEY_DAMAGED,
    BWI_KEY_MANIFEST,
    BWI_KEY_INDEX,
    BWI_KEY_PACK,
    BWI_KEY_CONTENT,
    BWI_KEY_PLACEMENT,
    BWI_KEY_REFUSAL,
};
struct bwi_key_parts {
    enum bwi_key_kind kind;
    char run[132];
    char launch[132];
    uint32_t era;
    uint64_t n; /* entry: n; pack: its number */
    struct bwi_id id;
    uint32_t attempt, nonce; /* layout */
    uint32_t group;
    uint64_t writer;
    char ff[3];
    char hash[33]; /* the hex digits of a name */
};
bool bwi_key_parse(const char *key, struct bwi_key_parts *ret);
/* "<era>.<n>.json", and with a slash behind it, as a listing shows a directory in the place of that entry. */
bool bwi_entry_name_parse(const char *name, uint32_t *ret_era, uint64_t *ret_n);

#endif
