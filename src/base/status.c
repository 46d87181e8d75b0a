/* SPDX-License-Identifier: Apache-2.0 */
/* The public look-ups of status codes, over the table that tools/gen_status.py makes. */
#include <breakwater/status.h>

struct row {
    const char *name;
    const char *text;
    const char *retry;
    int exit_code;
};

static const struct row table[] = {
#include "base/status_table.inc"
};

/* NULL for a number that is no code. */
static const struct row *row_of(int status) {
    const int count = (int)(sizeof table / sizeof table[0]);
    return status <= 0 && status > -count ? &table[-status] : NULL;
}

const char *bw_status_name(int status) {
    const struct row *row = row_of(status);
    return row ? row->name : "?";
}

const char *bw_status_text(int status) {
    const struct row *row = row_of(status);
    return row ? row->text : "unknown status";
}

int bw_status_exit_code(int status) {
    const struct row *row = row_of(status);
    return row ? row->exit_code : 1;
}

const char *bw_status_retry_text(int status) {
    const struct row *row = row_of(status);
    return row ? row->retry : "no";
}
