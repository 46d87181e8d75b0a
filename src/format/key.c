/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of all objects: written here, and taken apart here. What the parser accepts is exactly what the writers can
 * write, so a key that stands in somebody's file can name nothing else and leads nowhere outside of its run. */
#include "base/text.h"
#include "format/id.h"
#include "format/limits.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define LAYOUT_HEX   32 /* digits of the hash in a layout's name */
#define MANIFEST_HEX 16 /* and in those of manifest and index */

/* ---- writing ---- */

static struct bwi_key make(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A text that does not fit (names that were not checked) gives the empty key, which no store accepts. */
static struct bwi_key make(const char *fmt, ...) {
    struct bwi_key k = {{0}};
    va_list args;
    va_start(args, fmt);
    const int chars = vsnprintf(k.s, sizeof k.s, fmt, args);
    va_end(args);
    if (chars < 0 || (size_t)chars >= sizeof k.s) k.s[0] = '\0';
    return k;
}

struct bwi_key bwi_key_run(const char *run) {
    return make("runs/%s/", run);
}
struct bwi_key bwi_key_history(const char *run) {
    return make("runs/%s/history/", run);
}
struct bwi_key bwi_key_launches(const char *run) {
    return make("runs/%s/launches/", run);
}
struct bwi_key bwi_key_layouts(const char *run) {
    return make("runs/%s/layouts/", run);
}
struct bwi_key bwi_key_checkpoints(const char *run) {
    return make("runs/%s/checkpoints/", run);
}
struct bwi_key bwi_key_data(const char *run) {
    return make("runs/%s/data/", run);
}

struct bwi_key bwi_key_entry(const char *run, uint32_t era, uint64_t n) {
    return make("runs/%s/history/%06" PRIu32 ".%020" PRIu64 ".json", run, era, n);
}

struct bwi_key bwi_key_launch(const char *run, const char *launch) {
    return make("runs/%s/launches/%s/", run, launch);
}

struct bwi_key bwi_key_inventory(const char *run, const char *launch, uint32_t group) {
    return make("runs/%s/launches/%s/%06" PRIu32 ".json", run, launch, group);
}

struct bwi_key bwi_key_refusal(const char *run, const char *launch) {
    return make("runs/%s/launches/%s/refused.json", run, launch);
}

struct bwi_key bwi_key_layouts_of(const char *run, uint32_t attempt, uint32_t nonce) {
    return make("runs/%s/layouts/%" PRIu32 "-%08" PRIx32 "/", run, attempt, nonce);
}

struct bwi_key bwi_key_layout(const char *run, uint32_t attempt, uint32_t nonce, const struct bwi_sha *sha) {
    char hex[LAYOUT_HEX + 1];
    bwi_hex_encode(sha->b, LAYOUT_HEX / 2, hex);
    return make("runs/%s/layouts/%" PRIu32 "-%08" PRIx32 "/%s", run, attempt, nonce, hex);
}

/* An object, or a directory when `name` ends with '/', of a checkpoint. */
static struct bwi_key of_checkpoint(const char *run, const struct bwi_id *id, const char *name) {
    char text[BWI_ID_TEXT_BYTES];
    bwi_id_text(id, text);
    return make("runs/%s/checkpoints/%s/%s", run, text, name);
}

static struct bwi_key of_checkpoint_group(const char *run, const struct bwi_id *id, const char *dir, uint32_t group) {
    char text[BWI_ID_TEXT_BYTES];
    bwi_id_text(id, text);
    return make("runs/%s/checkpoints/%s/%s/%06" PRIu32, run, text, dir, group);
}

struct bwi_key bwi_key_checkpoint(const char *run, const struct bwi_id *id) {
    return of_checkpoint(run, id, "");
}
struct bwi_key bwi_key_groups(const char *run, const struct bwi_id *id) {
    return of_checkpoint(run, id, "groups/");
}
struct bwi_key bwi_key_failed_dir(const char *run, const struct bwi_id *id) {
    return of_checkpoint(run, id, "failed/");
}
struct bwi_key bwi_key_damaged_dir(const char *run, const struct bwi_id *id) {
    return of_checkpoint(run, id, "damaged/");
}

struct bwi_key bwi_key_summary(const char *run, const struct bwi_id *id, uint32_t group) {
    return of_checkpoint_group(run, id, "groups", group);
}

struct bwi_key bwi_key_failed(const char *run, const struct bwi_id *id, uint32_t group) {
    return of_checkpoint_group(run, id, "failed", group);
}

struct bwi_key bwi_key_damaged(const char *run, const struct bwi_id *id, uint32_t group) {
    return of_checkpoint_group(run, id, "damaged", group);
}

struct bwi_key bwi_key_manifest(const char *run, const struct bwi_id *id, const struct bwi_sha *sha) {
    char hex[MANIFEST_HEX + 1];
    char name[64];
    bwi_hex_encode(sha->b, MANIFEST_HEX / 2, hex);
    (void)bwi_format(name, sizeof name, "manifest.%s.json", hex);
    return of_checkpoint(run, id, name);
}

struct bwi_key bwi_key_index(const char *run, const struct bwi_id *id, const struct bwi_sha *root) {
    char hex[MANIFEST_HEX + 1];
    char name[64];
    bwi_hex_encode(root->b, MANIFEST_HEX / 2, hex);
    (void)bwi_format(name, sizeof name, "index.%s", hex);
    return of_checkpoint(run, id, name);
}

void bwi_fan_out_text(bool fan_out, uint32_t group, char ret[3]) {
    memcpy(ret, "00", 3);
    if (!fan_out) return;
    char digits[16];
    (void)bwi_format(digits, sizeof digits, "%06" PRIu32, group);
    const struct bwi_xxh hash = bwi_xxh_of(bwi_span_str(digits));
    bwi_hex_encode(hash.b, 1, ret);
}

static struct bwi_key of_data(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group,
                              const char *name) {
    char ff[3];
    char text[BWI_ID_TEXT_BYTES];
    bwi_fan_out_text(fan_out, group, ff);
    bwi_id_text(id, text);
    return make("runs/%s/data/%s/%s/%06" PRIu32 "/%s", run, ff, text, group, name);
}

struct bwi_key bwi_key_data_of(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group) {
    return of_data(run, fan_out, id, group, "");
}

struct bwi_key bwi_key_pack(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group, uint32_t n,
                            uint64_t writer) {
    char name[64];
    (void)bwi_format(name, sizeof name, "%" PRIu32 "-%016" PRIx64 ".safetensors", n, writer);
    return of_data(run, fan_out, id, group, name);
}

struct bwi_key bwi_key_content(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group) {
    return of_data(run, fan_out, id, group, "content");
}

struct bwi_key bwi_key_placement(const char *run, bool fan_out, const struct bwi_id *id, uint32_t group,
                                 uint64_t writer) {
    char name[64];
    (void)bwi_format(name, sizeof name, "placement-%016" PRIx64, writer);
    return of_data(run, fan_out, id, group, name);
}

/* ---- taking apart ---- */

/* Cuts the text up to the next '/', which must be there, off the rest. */
static bool take_part(struct bwi_span *rest, struct bwi_span *ret) {
    const uint8_t *slash = rest->len == 0 ? NULL : memchr(rest->ptr, '/', rest->len);
    if (slash == NULL) return false;
    const size_t n = (size_t)(slash - rest->ptr);
    *ret = bwi_span(rest->ptr, n);
    *rest = bwi_span(slash + 1, rest->len - n - 1);
    return true;
}

static bool is(struct bwi_span part, const char *text) {
    return bwi_span_eq(part, bwi_span_str(text));
}

/* Removes a beginning or an end that must be there. */
static bool take_prefix(struct bwi_span *rest, const char *text) {
    const size_t n = strlen(text);
    if (rest->len < n || memcmp(rest->ptr, text, n) != 0) return false;
    *rest = bwi_span(rest->ptr + n, rest->len - n);
    return true;
}

static bool take_suffix(struct bwi_span *rest, const char *text) {
    const size_t n = strlen(text);
    if (rest->len < n || memcmp(rest->ptr + rest->len - n, text, n) != 0) return false;
    rest->len -= n;
    return true;
}

/* A name of a run or launch, copied. */
static bool get_name(struct bwi_span part, char ret[132]) {
    if (part.len > 128) return false;
    if (part.len > 0) memcpy(ret, part.ptr, part.len);
    ret[part.len] = '\0';
    return strlen(ret) == part.len && bwi_name_valid(ret);
}

static bool get_group(struct bwi_span part, uint32_t *ret) {
    uint64_t v;
    if (part.len != 6 || !bwi_dec_padded_u64((const char *)part.ptr, 6, &v) || v >= BWI_GROUPS_MAX) return false;
    *ret = (uint32_t)v;
    return true;
}

static bool get_writer(struct bwi_span part, uint64_t *ret) {
    return part.len == 16 && bwi_hex_u64((const char *)part.ptr, 16, ret);
}

/* Hex digits of a hash, kept as text. */
static bool get_hash(struct bwi_span part, size_t digits, char ret[33]) {
    uint8_t raw[16];
    if (part.len != digits || !bwi_hex_decode((const char *)part.ptr, digits, raw, digits / 2)) return false;
    memcpy(ret, part.ptr, digits);
    ret[digits] = '\0';
    return true;
}

static bool entry_name(struct bwi_span name, uint32_t *ret_era, uint64_t *ret_n) {
    uint64_t era, n;
    if (!take_suffix(&name, ".json") || name.len != 6 + 1 + 20 || name.ptr[6] != '.') return false;
    if (!bwi_dec_padded_u64((const char *)name.ptr, 6, &era) || era == 0) return false;
    if (!bwi_dec_padded_u64((const char *)name.ptr + 7, 20, &n) || n > INT64_MAX) return false;
    *ret_era = (uint32_t)era;
    *ret_n = n;
    return true;
}

bool bwi_entry_name_parse(const char *name, uint32_t *ret_era, uint64_t *ret_n) {
    if (name == NULL) return false;
    const size_t len = strlen(name);
    return entry_name(bwi_span(name, len > 0 && name[len - 1] == '/' ? len - 1 : len), ret_era, ret_n);
}

static bool parse_launches(struct bwi_span rest, struct bwi_key_parts *p) {
    struct bwi_span launch;
    if (!take_part(&rest, &launch) || !get_name(launch, p->launch) || !take_suffix(&rest, ".json")) return false;
    p->kind = BWI_KEY_REFUSAL;
    if (is(rest, "refused")) return true;
    p->kind = BWI_KEY_INVENTORY;
    return get_group(rest, &p->group);
}

/* <attempt>-<nonce>/<hash> */
static bool parse_layouts(struct bwi_span rest, struct bwi_key_parts *p) {
    struct bwi_span dir;
    uint64_t attempt, nonce;
    p->kind = BWI_KEY_LAYOUT;
    if (!take_part(&rest, &dir) || dir.len < 1 + 1 + 8) return false;
    const struct bwi_span number = bwi_span(dir.ptr, dir.len - 9);
    const char *tail = (const char *)dir.ptr + number.len;
    if (!bwi_dec_u64(number, &attempt) || attempt == 0 || attempt > UINT32_MAX) return false;
    if (tail[0] != '-' || !bwi_hex_u64(tail + 1, 8, &nonce)) return false;
    p->attempt = (uint32_t)attempt;
    p->nonce = (uint32_t)nonce;
    return get_hash(rest, LAYOUT_HEX, p->hash);
}

static bool parse_checkpoints(struct bwi_span rest, struct bwi_key_parts *p) {
    struct bwi_span part;
    if (!take_part(&rest, &part) || !bwi_id_parse(part, &p->id)) return false;
    if (take_prefix(&rest, "manifest.")) {
        p->kind = BWI_KEY_MANIFEST;
        return take_suffix(&rest, ".json") && get_hash(rest, MANIFEST_HEX, p->hash);
    }
    if (take_prefix(&rest, "index.")) {
        p->kind = BWI_KEY_INDEX;
        return get_hash(rest, MANIFEST_HEX, p->hash);
    }
    if (!take_part(&rest, &part) || !get_group(rest, &p->group)) return false;
    if (is(part, "groups")) {
        p->kind = BWI_KEY_SUMMARY;
    } else if (is(part, "failed")) {
        p->kind = BWI_KEY_FAILED;
    } else if (is(part, "damaged")) {
        p->kind = BWI_KEY_DAMAGED;
    } else {
        return false;
    }
    return true;
}

/* "00", or the two digits that belong to the group. */
static bool get_fan_out(struct bwi_span part, uint32_t group, char ret[3]) {
    char spread[3];
    bwi_fan_out_text(true, group, spread);
    if (!is(part, "00") && !is(part, spread)) return false;
    memcpy(ret, part.ptr, 2);
    ret[2] = '\0';
    return true;
}

/* <n>-<writer>.safetensors */
static bool parse_pack(struct bwi_span name, struct bwi_key_parts *p) {
    p->kind = BWI_KEY_PACK;
    if (!take_suffix(&name, ".safetensors") || name.len < 1 + 1 + 16) return false;
    const struct bwi_span number = bwi_span(name.ptr, name.len - 17);
    if (!bwi_dec_u64(number, &p->n) || p->n > UINT32_MAX || name.ptr[number.len] != '-') return false;
    return get_writer(bwi_span(name.ptr + number.len + 1, 16), &p->writer);
}

static bool parse_data(struct bwi_span rest, struct bwi_key_parts *p) {
    struct bwi_span ff, part;
    if (!take_part(&rest, &ff) || !take_part(&rest, &part) || !bwi_id_parse(part, &p->id)) return false;
    if (!take_part(&rest, &part) || !get_group(part, &p->group) || !get_fan_out(ff, p->group, p->ff)) return false;
    if (is(rest, "content")) {
        p->kind = BWI_KEY_CONTENT;
        return true;
    }
    if (take_prefix(&rest, "placement-")) {
        p->kind = BWI_KEY_PLACEMENT;
        return get_writer(rest, &p->writer);
    }
    return parse_pack(rest, p);
}

static bool parse(struct bwi_span rest, struct bwi_key_parts *p) {
    struct bwi_span part;
    if (!take_prefix(&rest, "runs/") || !take_part(&rest, &part) || !get_name(part, p->run)) return false;
    if (!take_part(&rest, &part)) return false;
    if (is(part, "history")) {
        p->kind = BWI_KEY_ENTRY;
        return entry_name(rest, &p->era, &p->n);
    }
    if (is(part, "launches")) return parse_launches(rest, p);
    if (is(part, "layouts")) return parse_layouts(rest, p);
    if (is(part, "checkpoints")) return parse_checkpoints(rest, p);
    if (is(part, "data")) return parse_data(rest, p);
    return false;
}

bool bwi_key_parse(const char *key, struct bwi_key_parts *ret) {
    struct bwi_key_parts p = {0};
    if (key == NULL || strnlen(key, sizeof(struct bwi_key)) >= sizeof(struct bwi_key)) return false;
    if (!parse(bwi_span_str(key), &p)) return false;
    *ret = p;
    return true;
}
