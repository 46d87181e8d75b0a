/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater doctor: what this machine and these tiers can do. */
#include <stdlib.h>

#include "cli/out_json.h"

static const char *given(const struct cli_args *args, enum cli_opt opt, const char *variable) {
    const char *value = args->opt[opt].set ? args->opt[opt].text : getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

int cmd_doctor(const struct cli_args *args, struct bw_error *err) {
    struct bw_doctor_options o = BW_DOCTOR_OPTIONS_INIT;
    struct bw_list *list = NULL;
    o.remote_url = given(args, OPT_REMOTE, "BREAKWATER_REMOTE");
    o.local_url = given(args, OPT_LOCAL, "BREAKWATER_LOCAL");
    o.timeout_ms = cli_timeout_ms(args);
    if (o.remote_url == NULL && o.local_url == NULL)
        return cli_usage(err, "no tier: give --remote URL or --local URL, or set BREAKWATER_REMOTE");
    int rc = bw_doctor(&o, &list, err);
    if (rc < 0) return rc;
    if (args->opt[OPT_JSON].set) {
        json_t *root = cli_json_begin("doctor");
        cli_json_set(root, "findings", cli_json_findings(list, NULL));
        cli_json_print(root);
    } else {
        cli_findings_print(list, "CHECK", NULL);
    }
    rc = cli_findings_exit(list, false);
    bw_list_free(list);
    return rc;
}
