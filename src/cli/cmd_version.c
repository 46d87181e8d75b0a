/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater version */
#include <stdio.h>

#include "cli/out_json.h"

int cmd_version(const struct cli_args *args, struct bw_error *err) {
    char built[32];
    (void)err;
    (void)snprintf(built, sizeof built, "%d.%d.%d", BW_VERSION_MAJOR, BW_VERSION_MINOR, BW_VERSION_PATCH);
    if (args->opt[OPT_JSON].set) {
        json_t *root = cli_json_begin("version");
        cli_json_set(root, "command", cli_json_text(built));
        cli_json_set(root, "library", cli_json_text(bw_version()));
        cli_json_print(root);
    } else {
        (void)printf("breakwater %s (library %s)\n", built, bw_version());
    }
    return 0;
}
