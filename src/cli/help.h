/* SPDX-License-Identifier: Apache-2.0 */
/* Texts made from the table: help, usage lines, manual pages, shell completions. */
#ifndef BW_CLI_HELP_H
#define BW_CLI_HELP_H

#include <stdio.h>

#include "cli/out.h"
#include "cli/table.h"

#define CLI_BRIEF "asynchronous multi-tier checkpoints for AI training"

/* "breakwater show [OPTION]... RUN [ID|STEP]" */
void cli_usage_line(struct cli_buf *b, const struct cli_verb *verb);
void cli_help_print(void);
void cli_help_verb_print(const struct cli_verb *verb);
/* "--memory BYTES" */
void cli_option_text(struct cli_buf *b, enum cli_opt opt);

/* The hidden verb __man: page "breakwater" or a verb's name, in man(7) format. BW_E_NOTFOUND: no such page. */
int cli_man_print(const char *page, struct bw_error *err);
/* Text as troff shows it; `line_start`: a dot or an apostrophe would be a request. */
void cli_man_text(FILE *to, const char *text, bool line_start);
/* Names of all pages, one a line. */
void cli_man_list(void);

#endif
