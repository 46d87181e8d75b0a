/* SPDX-License-Identifier: Apache-2.0 */
/* Whole stores: the input says what is done to the objects of a sound one; then it is opened, listed, resolved,
 * restored, verified, mended and swept. Wrong data is never read where no hash was made right; what verify calls sound
 * can be read; what could be read still can be after a repair and a sweep; and every wait ends. Reaches
 * src/checkpoint/history_head.c src/checkpoint/holds.c src/checkpoint/intersect.c src/checkpoint/meta_read.c
 * src/checkpoint/mend.c src/checkpoint/mend_build.c src/checkpoint/mend_group.c src/checkpoint/mend_object.c
 * src/checkpoint/pack_copy.c src/checkpoint/pack_digest.c src/checkpoint/resolve.c src/checkpoint/restore.c
 * src/checkpoint/restore_extent.c src/checkpoint/restore_gather.c src/checkpoint/restore_group.c
 * src/checkpoint/restore_index.c src/checkpoint/restore_meta.c src/checkpoint/restore_open.c
 * src/checkpoint/restore_plan.c src/checkpoint/restore_read.c src/checkpoint/restore_repair.c
 * src/checkpoint/restore_slice.c src/checkpoint/source.c src/checkpoint/store_id.c src/checkpoint/sweep.c
 * src/checkpoint/sweep_find.c src/checkpoint/sweep_rest.c src/checkpoint/verify.c src/checkpoint/verify_group.c
 * src/checkpoint/verify_probe.c src/checkpoint/verify_report.c */
#include "fuzz.h"
#include "store.h"
#include <stdio.h>

enum { CHANGES_MAX = 12, OBJECT_MAX = 1 << 16 };

static struct forge sound[BWI_TIERS], changed[BWI_TIERS];

void fuzz_init(void) {
    store_make(sound);
    store_use(sound, true, 0);
}

/* Sixteen times all objects is far more than what a reader holds of them; a claim of more needs the bytes. */
size_t fuzz_memory_max(size_t size) {
    return ((size_t)16 << 20) + 256 * size;
}

/* --- changes ---- */

static struct forge_object *some_object(struct fuzz_input *in, const struct forge *f) {
    return &f->objects[fuzz_take(in, 1) % f->count];
}

/* Where numbers, names and literals begin in JSON. */
static size_t token_at(const struct forge_object *o, size_t nth) {
    size_t seen = 0;
    for (size_t at = 1; at < o->len; at++) {
        const bool begins = strchr("[:,", o->bytes[at - 1]) != NULL && o->bytes[at - 1] != '\0';
        if (begins && seen++ == nth) return at;
    }
    return o->len;
}

static size_t token_length(const struct forge_object *o, size_t at) {
    size_t n = 0;
    if (at < o->len && o->bytes[at] == '"') {
        for (n = 1; at + n < o->len && o->bytes[at + n] != '"'; n++) continue;
        return n + 1;
    }
    while (at + n < o->len && memchr(",]}", o->bytes[at + n], 3) == NULL) n++;
    return n;
}

static void change_token(struct fuzz_input *in, struct forge_object *o) {
    static const char *const often[] = {"0",       "-1",      "1",        "2",    "4294967295", "9223372036854775807",
                                        "999999",  "true",    "null",     "\"\"", "[]",         "{}",
                                        "[[1,2]]", "1000000", "\"../x\"", "7",    "\"job\"",    "false",
                                        "16777216"};
    const size_t at = token_at(o, (size_t)fuzz_take(in, 1));
    const size_t which = (size_t)fuzz_take(in, 1), count = sizeof often / sizeof *often;
    if (which < 128) {
        const char *text = often[which % count];
        forge_splice(o, at, token_length(o, at), text, strlen(text));
        return;
    }
    /* Another token of the same object comes here. */
    uint8_t piece[256];
    const size_t from = token_at(o, which - 128);
    size_t n = token_length(o, from);
    if (from >= o->len || n > sizeof piece) return;
    memcpy(piece, o->bytes + from, n);
    forge_splice(o, at, (which & 1) != 0 ? token_length(o, at) : 0, piece, n);
}

static void change_bytes(struct fuzz_input *in, struct forge_object *o, bool insert) {
    const size_t at = (size_t)fuzz_take(in, 2) % (o->len + 1);
    const struct bwi_span bytes = fuzz_take_span(in, 1 + fuzz_take(in, 1) % 32);
    if (insert)
        forge_splice(o, at, 0, bytes.ptr, bytes.len);
    else
        forge_put(o, at, bytes.ptr, bytes.len);
}

/* A number of 1 to 8 bytes: what it was and a little, or an edge. */
static void change_number(struct fuzz_input *in, struct forge_object *o) {
    static const uint64_t edges[] = {0, 1, UINT32_MAX, (uint64_t)1 << 40, INT64_MAX, UINT64_MAX};
    const size_t at = (size_t)fuzz_take(in, 2) % (o->len + 1), how = (size_t)fuzz_take(in, 1);
    const size_t bytes = (size_t)1 << (how & 3), room = o->len - at;
    uint64_t v = 0;
    if (bytes > room) return;
    memcpy(&v, o->bytes + at, bytes);
    v = how < 128 ? v + (how >> 2) - 16 : edges[(how >> 2) % (sizeof edges / sizeof *edges)];
    forge_put(o, at, &v, bytes);
}

static void change_place(struct fuzz_input *in, struct forge *f, struct forge_object *o) {
    struct forge_object *other = some_object(in, f);
    const uint64_t how = fuzz_take(in, 1) % 4;
    if (how == 0) {
        forge_splice(o, 0, o->len, other->bytes, other->len);
    } else if (how == 1 && other != o) {
        uint8_t *bytes = other->bytes;
        const size_t len = other->len, cap = other->cap;
        *other = (struct forge_object){.bytes = o->bytes, .len = o->len, .cap = o->cap, .sha = other->sha};
        (void)snprintf(other->key, sizeof other->key, "%s", sound[f - changed].objects[other - f->objects].key);
        o->bytes = bytes;
        o->len = len;
        o->cap = cap;
    } else if (how == 2) {
        /* Under a name beside its own: a digit more or less. */
        const size_t n = strlen(o->key), at = (size_t)fuzz_take(in, 1) % n;
        if (o->key[at] >= '0' && o->key[at] <= '8') o->key[at]++;
    } else {
        o->gone = true;
    }
}

static void change(struct fuzz_input *in) {
    const uint64_t what = fuzz_take(in, 1);
    struct forge *f = &changed[what >> 7];
    struct forge_object *o = some_object(in, f);
    switch (what & 7) {
    case 0: change_bytes(in, o, false); break;
    case 1: change_bytes(in, o, true); break;
    case 2:
    case 3: change_number(in, o); break;
    case 4: forge_splice(o, (size_t)fuzz_take(in, 2) % (o->len + 1), 1 + (size_t)fuzz_take(in, 2), NULL, 0); break;
    case 5: change_place(in, f, o); break;
    default: change_token(in, o); break;
    }
    if (o->len > OBJECT_MAX) o->len = OBJECT_MAX;
}

/* One byte of flags, then changes. */
void fuzz_one(uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    const uint64_t flags = fuzz_take(&in, 1);
    for (enum bwi_tier t = 0; t < BWI_TIERS; t++)
        for (size_t i = 0; i < sound[t].count; i++)
            (void)forge_add(&changed[t], sound[t].objects[i].key, sound[t].objects[i].bytes, sound[t].objects[i].len);
    for (unsigned i = 0; i < CHANGES_MAX && in.left > 0; i++) change(&in);
    const bool mended = (flags & 1) != 0;
    for (enum bwi_tier t = 0; mended && t < BWI_TIERS; t++) forge_mend(&changed[t]);
    store_use(changed, !mended, (unsigned)(flags >> 1));
    for (enum bwi_tier t = 0; t < BWI_TIERS; t++) forge_fini(&changed[t]);
}
