/* SPDX-License-Identifier: Apache-2.0 */
/* JSON values of the kinds that the output of several verbs has in common. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/out_json.h"
#include "cli/words.h"

/* jansson gives NULL only when there is no memory. */
static json_t *sure(json_t *value) {
    if (value == NULL) cli_out_of_memory();
    return value;
}

json_t *cli_json_object(void) {
    return sure(json_object());
}

json_t *cli_json_array(void) {
    return sure(json_array());
}

json_t *cli_json_begin(const char *verb) {
    json_t *object = cli_json_object();
    cli_json_set(object, "schema", sure(json_sprintf("breakwater-%s/1", verb)));
    return object;
}

void cli_json_set(json_t *object, const char *key, json_t *value) {
    if (json_object_set_new(object, key, sure(value)) != 0) cli_out_of_memory();
}

void cli_json_add(json_t *array, json_t *value) {
    if (json_array_append_new(array, sure(value)) != 0) cli_out_of_memory();
}

json_t *cli_json_text(const char *text) {
    struct cli_buf b = {0};
    size_t n = strlen(text);
    cli_buf_add(&b, "", 0);
    for (size_t i = 0; i < n;) {
        uint32_t cp = 0;
        size_t len = cli_utf8(text + i, n - i, &cp);
        if (len == 0)
            cli_buf_add(&b, "\xef\xbf\xbd", 3);
        else
            cli_buf_add(&b, text + i, len);
        i += len != 0 ? len : 1;
    }
    json_t *value = sure(json_stringn(b.data, b.len));
    cli_buf_fini(&b);
    return value;
}

json_t *cli_json_text_or_null(const char *text) {
    return text[0] != '\0' ? cli_json_text(text) : sure(json_null());
}

json_t *cli_json_u64(uint64_t n) {
    if (n <= INT64_MAX) return sure(json_integer((json_int_t)n));
    return sure(json_sprintf("%llu", (unsigned long long)n));
}

json_t *cli_json_u64_or_null(uint64_t n) {
    return n != 0 ? cli_json_u64(n) : sure(json_null());
}

json_t *cli_json_time(int64_t unix_ms) {
    return unix_ms != 0 ? sure(json_integer(unix_ms)) : sure(json_null());
}

json_t *cli_json_bool(bool value) {
    return sure(json_boolean(value));
}

json_t *cli_json_status(int status) {
    return cli_json_text(bw_status_name(status));
}

json_t *cli_json_shape(const uint64_t *shape, uint32_t dims) {
    json_t *array = cli_json_array();
    for (uint32_t d = 0; d < dims; d++) cli_json_add(array, cli_json_u64(shape[d]));
    return array;
}

json_t *cli_json_findings(const struct bw_list *list, const struct cli_filter *filter) {
    json_t *array = cli_json_array();
    struct bw_finding f;
    for (size_t i = 0; list != NULL && bw_list_finding(list, i, &f); i++) {
        if (cli_filter_hides(filter, &f)) continue;
        json_t *row = cli_json_object();
        cli_json_set(row, "severity", cli_json_text(cli_severity_word(f.severity)));
        cli_json_set(row, "status", cli_json_status(f.status));
        cli_json_set(row, "tier", cli_json_text_or_null(f.tier));
        cli_json_set(row, "checkpoint", cli_json_text_or_null(f.id));
        cli_json_set(row, "object", cli_json_text_or_null(f.object));
        cli_json_set(row, "tensor", cli_json_text_or_null(f.tensor));
        cli_json_set(row, "message", cli_json_text(f.message));
        cli_json_add(array, row);
    }
    return array;
}

json_t *cli_json_checkpoint(const struct bw_checkpoint_row *row) {
    json_t *object = cli_json_object();
    cli_json_set(object, "id", cli_json_text(row->id));
    cli_json_set(object, "step", cli_json_u64(row->step));
    cli_json_set(object, "attempt", cli_json_u64(row->attempt));
    cli_json_set(object, "try", cli_json_u64(row->save_try));
    cli_json_set(object, "world", cli_json_u64_or_null(row->world));
    cli_json_set(object, "groups", cli_json_u64_or_null(row->groups));
    cli_json_set(object, "state", cli_json_text(cli_state_word(row->state)));
    cli_json_set(object, "level", cli_json_text(bw_level_name((int)row->level)));
    cli_json_set(object, "groups_remote", cli_json_u64(row->groups_remote));
    cli_json_set(object, "groups_local", cli_json_u64(row->groups_local));
    cli_json_set(object, "groups_damaged", cli_json_u64(row->damaged));
    cli_json_set(object, "groups_failed", cli_json_u64(row->failed));
    cli_json_set(object, "pinned", cli_json_bool(row->pinned != 0));
    cli_json_set(object, "refs", cli_json_u64(row->refs));
    cli_json_set(object, "bytes", cli_json_u64_or_null(row->bytes));
    cli_json_set(object, "committed_unix_ms", cli_json_time(row->unix_ms));
    return object;
}

void cli_json_print(json_t *object) {
    /* Write errors stick to the stream and are looked at when the command ends. */
    (void)json_dumpf(object, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(10));
    (void)fputc('\n', stdout);
    json_decref(object);
}
