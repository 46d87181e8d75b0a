/* SPDX-License-Identifier: Apache-2.0 */
/* Findings and states in words. */
#include <string.h>

#include "cli/out.h"
#include "cli/words.h"

const char *cli_state_word(uint32_t state) {
    static const char *const words[] = {"?", "live", "shelved", "pending", "dead", "foreign", "ahead"};
    return state < sizeof words / sizeof words[0] ? words[state] : words[0];
}

const char *cli_severity_word(uint32_t severity) {
    return severity == 0 ? "fact" : severity == 1 ? "warning" : "damage";
}

/* An object that must be there and is gone is damage too. */
static bool is_damage(const struct bw_finding *f) {
    return f->status == BW_E_CORRUPT || f->status == BW_E_FORMAT || f->status == BW_E_NOTFOUND;
}

static const char *result_word(const struct bw_finding *f) {
    if (f->severity == 0) return "ok";
    if (f->severity == 1) return "warning";
    return is_damage(f) ? "damaged" : "failed";
}

bool cli_filter_hides(const struct cli_filter *filter, const struct bw_finding *finding) {
    return filter != NULL && filter->hides != NULL && filter->hides(filter->ctx, finding);
}

/* The message with the names that it does not hold itself in front of it. */
static void message_cell(struct cli_table *t, const struct bw_finding *f, bool with_object) {
    struct cli_buf b = {0};
    cli_buf_add(&b, "", 0);
    if (with_object && f->object[0] != '\0' && strstr(f->message, f->object) == NULL)
        cli_buf_printf(&b, "%s: ", f->object);
    if (f->tensor[0] != '\0' && strstr(f->message, f->tensor) == NULL) cli_buf_printf(&b, "tensor \"%s\": ", f->tensor);
    cli_buf_printf(&b, "%s", f->message);
    cli_table_name(t, b.data);
    cli_buf_fini(&b);
}

void cli_findings_print(const struct bw_list *list, const char *object_head, const struct cli_filter *filter) {
    const char *heads[] = {"RESULT", "TIER", object_head != NULL ? object_head : "CHECKPOINT", "MESSAGE"};
    struct cli_table t;
    struct bw_finding f;
    if (list == NULL || bw_list_count(list) == 0) return;
    cli_table_init(&t, 4, heads);
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (cli_filter_hides(filter, &f)) continue;
        cli_table_cell(&t, "%s", result_word(&f));
        cli_table_name(&t, f.tier);
        cli_table_name(&t, object_head != NULL ? f.object : f.id);
        message_cell(&t, &f, object_head == NULL);
    }
    cli_table_print(&t);
    cli_table_fini(&t);
}

int cli_findings_exit(const struct bw_list *list, bool unmended) {
    struct bw_finding f;
    int code = 0;
    if (list == NULL) return 0;
    for (size_t i = 0; bw_list_finding(list, i, &f); i++) {
        if (is_damage(&f) && (f.severity >= 2 || (unmended && f.severity == 1 && f.id[0] != '\0')))
            return bw_status_exit_code(BW_E_CORRUPT);
        if (f.severity >= 2 && code == 0) code = bw_status_exit_code(f.status) > 0 ? bw_status_exit_code(f.status) : 1;
    }
    return code;
}
