/* SPDX-License-Identifier: Apache-2.0 */
/* Building the JSON that --json prints. doc/json.md says what its members mean. */
#ifndef BW_CLI_OUT_JSON_H
#define BW_CLI_OUT_JSON_H

#include <jansson.h>

#include "cli/tiers.h"
#include "cli/words.h"

/* An object that begins with "schema": "breakwater-<verb>/1". */
json_t *cli_json_begin(const char *verb);
/* Both take `value`; a command that has no memory left ends. */
void cli_json_set(json_t *object, const char *key, json_t *value);
void cli_json_add(json_t *array, json_t *value);
json_t *cli_json_array(void);
json_t *cli_json_object(void);

/* Bytes that are not UTF-8 come as U+FFFD. */
json_t *cli_json_text(const char *text);
/* null for "". */
json_t *cli_json_text_or_null(const char *text);
/* An integer; a string of digits above 2^63 - 1. */
json_t *cli_json_u64(uint64_t n);
/* null for 0, which means unknown or none. */
json_t *cli_json_u64_or_null(uint64_t n);
/* Milliseconds since 1970; null for 0. */
json_t *cli_json_time(int64_t unix_ms);
json_t *cli_json_bool(bool value);
/* "BW_OK", "BW_E_CORRUPT" ... */
json_t *cli_json_status(int status);
json_t *cli_json_shape(const uint64_t *shape, uint32_t dims);
/* An array of what bw_list_finding gives. `filter` may be NULL. */
json_t *cli_json_findings(const struct bw_list *list, const struct cli_filter *filter);
json_t *cli_json_checkpoint(const struct bw_checkpoint_row *row);

/* Prints and releases. */
void cli_json_print(json_t *object);

#endif
