/* SPDX-License-Identifier: Apache-2.0 */
/* Canonical JSON over jansson: sorted keys, no blanks, integers exact to 64 bits (signed), duplicate keys refused;
 * and objects that end with their own SHA-256.
 *
 * A sealed object's last member is "~sha256" ('~' sorts behind every letter). Its value is the SHA-256, in hex, of
 * all bytes before that value's first digit. So the file stays JSON and its last 66 bytes are <64 hex digits>"}. */
#ifndef BWI_FORMAT_JSON_H
#define BWI_FORMAT_JSON_H

#include "format/id.h"
#include "format/limits.h"
#include <breakwater/error.h>
#include <jansson.h>

#define BWI_JSON_DEPTH_MAX 16 /* our own objects use four levels */

/* Both append to `out`; a failure leaves its length as it was. Reals and a nesting above
 * BWI_JSON_DEPTH_MAX are BW_E_INVALID. */
int bwi_json_encode(const json_t *v, struct bwi_buf *out, struct bw_error *err);
int bwi_json_encode_sealed(const json_t *object, struct bwi_buf *out, struct bw_error *err);
/* what: for messages ("history entry"). Parses, checks depth, duplicates and that the text is canonical
 * (re-encoding gives the same bytes). */
int bwi_json_decode(struct bwi_span in, const char *what, json_t **ret, struct bw_error *err);
/* As above; checks the seal first (BW_E_CORRUPT) and removes it from the object. */
int bwi_json_decode_sealed(struct bwi_span in, const char *what, json_t **ret, struct bw_error *err);
/* The values alone, in whatever form they stand. No deeper than the caller has made sure of. */
int bwi_json_read(struct bwi_span in, const char *what, json_t **ret, struct bw_error *err);

/* Typed members of an object. `what` names the object in messages; a missing or ill-typed member is BW_E_FORMAT. */
int bwi_json_u64(const json_t *o, const char *key, uint64_t max, uint64_t *ret, const char *what, struct bw_error *err);
int bwi_json_u32(const json_t *o, const char *key, uint32_t max, uint32_t *ret, const char *what, struct bw_error *err);
int bwi_json_i64(const json_t *o, const char *key, int64_t *ret, const char *what, struct bw_error *err);
int bwi_json_bool(const json_t *o, const char *key, bool *ret, const char *what, struct bw_error *err);
int bwi_json_str(const json_t *o, const char *key, const char **ret, const char *what,
                 struct bw_error *err); /* no NUL inside */
int bwi_json_name(const json_t *o, const char *key, char ret[BWI_NAME_BUF], bool may_be_null, const char *what,
                  struct bw_error *err);
int bwi_json_array(const json_t *o, const char *key, size_t max, const json_t **ret, const char *what,
                   struct bw_error *err);
int bwi_json_sha(const json_t *o, const char *key, struct bwi_sha *ret, const char *what, struct bw_error *err);
int bwi_json_uuid(const json_t *o, const char *key, struct bwi_uuid *ret, const char *what, struct bw_error *err);
int bwi_json_id(const json_t *o, const char *key, struct bwi_id *ret, const char *what, struct bw_error *err);
int bwi_json_writer(const json_t *o, const char *key, uint64_t *ret, const char *what,
                    struct bw_error *err); /* 16 hex digits */
/* Checks "format" == name and the major of "version" [major, minor]. Unknown members are ignored when minor is
 * newer than ours, refused otherwise: `known` lists all allowed member names, NULL-terminated ("format" and
 * "version" are implied). */
int bwi_json_head(const json_t *o, const char *name, uint32_t major, uint32_t minor, const char *const *known,
                  const char *what, struct bw_error *err);
/* Whether a headed object comes from a newer minor version: what is unknown in it is to be ignored. */
bool bwi_json_newer(const json_t *o, uint32_t minor);
/* The rule for unknown members, for nested objects: `newer` as bwi_json_newer says. `o` must be an object (else
 * BW_E_FORMAT). */
int bwi_json_known(const json_t *o, const char *const *known, bool newer, const char *what, struct bw_error *err);
/* A string member copied into `ret`; BW_E_FORMAT if it does not fit with its NUL. */
int bwi_json_text(const json_t *o, const char *key, char *ret, size_t ret_bytes, const char *what,
                  struct bw_error *err);
int bwi_json_size(struct bwi_span in, uint64_t max, const char *what,
                  struct bw_error *err); /* BW_E_FORMAT above max bytes */

/* Values by themselves: elements of arrays and rows. false: of another type, malformed or above max; *ret is
 * untouched then. */
bool bwi_json_value_u64(const json_t *v, uint64_t max, uint64_t *ret);
bool bwi_json_value_u32(const json_t *v, uint32_t max, uint32_t *ret);
bool bwi_json_value_str(const json_t *v, const char **ret); /* no NUL inside */
bool bwi_json_value_sha(const json_t *v, struct bwi_sha *ret);
bool bwi_json_value_uuid(const json_t *v, struct bwi_uuid *ret);
bool bwi_json_value_id(const json_t *v, struct bwi_id *ret);
bool bwi_json_value_hex(const json_t *v, size_t digits, uint64_t *ret);
/* A row is an array of exactly `n` elements; of at least `n` when `newer`. */
bool bwi_json_is_row(const json_t *v, size_t n, bool newer);

/* Building. Sticky: *failed becomes true when memory ran out, and one check at the end tells. Each takes the value
 * over. Numbers and strings have been checked by the caller: integers fit a signed 64-bit one, strings are UTF-8. */
void bwi_json_set(json_t *object, const char *key, json_t *value, bool *failed);
void bwi_json_push(json_t *array, json_t *value, bool *failed);
json_t *bwi_json_of_u64(uint64_t v);
json_t *bwi_json_of_name(const char *s); /* null for "" */
json_t *bwi_json_of_sha(const struct bwi_sha *v);
json_t *bwi_json_of_uuid(const struct bwi_uuid *v);
json_t *bwi_json_of_id(const struct bwi_id *v);
json_t *bwi_json_of_hex(uint64_t v, int digits);
json_t *bwi_json_start(const char *name, uint32_t major, uint32_t minor, bool *failed); /* an object with its head */
/* Encodes `o`, sealed or not, and releases it. BW_E_NOMEM if `failed`, BW_E_LIMIT if the text would have more than
 * `max` bytes. */
int bwi_json_finish(json_t *o, bool failed, bool sealed, uint64_t max, const char *what, struct bwi_buf *out,
                    struct bw_error *err);

/* Appends a JSON string with its quotes and the fewest escapes: what bwi_json_encode writes for the same string. */
void bwi_json_put_string(struct bwi_buf *out, struct bwi_span utf8);

#endif
