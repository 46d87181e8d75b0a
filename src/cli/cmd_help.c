/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater help: the list of verbs, or one of them. */
#include "cli/args.h"
#include "cli/help.h"

int cmd_help(const struct cli_args *args, struct bw_error *err) {
    const char *word = cli_operand(args, 0);
    if (word == NULL) {
        cli_help_print();
        return 0;
    }
    const struct cli_verb *verb = cli_verb_find(word);
    if (verb == NULL) return cli_usage(err, "unknown verb \"%s\"", word);
    cli_help_verb_print(verb);
    return 0;
}
