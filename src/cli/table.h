/* SPDX-License-Identifier: Apache-2.0 */
/* The one table of the command line: verbs, options, operands, texts and examples. Parsing, --help, usage errors,
 * the manual pages and the shell completions are all made from it. */
#ifndef BW_CLI_TABLE_H
#define BW_CLI_TABLE_H

#include <breakwater/breakwater.h>

/* Every option of every verb. The order is that of `cli_options`. */
enum cli_opt {
    OPT_REMOTE,
    OPT_LOCAL,
    OPT_MEMORY,
    OPT_TIMEOUT,
    OPT_JSON,
    OPT_HELP,
    OPT_ALLOW_NODE_LOCAL,
    OPT_ALLOW_SAME_DEVICE,
    OPT_BOXES,
    OPT_COPIES,
    OPT_DROP_FOREIGN,
    OPT_DRY_RUN,
    OPT_FAST,
    OPT_FORCE,
    OPT_GRACE,
    OPT_HISTORY,
    OPT_JOB,
    OPT_KEEP_EVERY,
    OPT_KEEP_LAST,
    OPT_KEEP_YOUNGER,
    OPT_LABEL,
    OPT_METADATA,
    OPT_NEW_DTYPES,
    OPT_PIN,
    OPT_PROMOTE,
    OPT_RETIRE,
    OPT_RUN,
    OPT_SHARD_BYTES,
    OPT_SHELVED,
    OPT_SKIP_UNSUPPORTED,
    OPT_STEP,
    OPT_STRIP_PREFIX,
    OPT_TENSORS,
    OPT_TO,
    OPT_UNPIN,
    OPT_WITH_BLOBS,
    OPT_YES,
    OPT_COUNT,
};

/* What the value of an option is. */
enum cli_kind {
    KIND_FLAG,     /* no value */
    KIND_TEXT,     /* any text but the empty one */
    KIND_FOLDER,   /* a path; completed as a folder */
    KIND_COUNT,    /* a number from 1 to 2^32 - 1 */
    KIND_STEP,     /* a number from 0 to BW_STEP_MAX */
    KIND_BYTES,    /* a number with an optional unit of size, not 0 */
    KIND_DURATION, /* a number with a unit of time, or 0 */
};

struct cli_option {
    const char *name;  /* without the dashes */
    const char *value; /* name of its value in texts; NULL for a flag */
    enum cli_kind kind;
    bool many; /* may be given several times */
};

/* An option as one verb has it. */
struct cli_verb_option {
    enum cli_opt opt;
    const char *help; /* one or more sentences */
};

struct cli_operand {
    const char *name; /* as in texts: "RUN", "ID|STEP" */
    const char *help;
    bool optional;
    bool many; /* the last one only: one or more */
    bool file; /* completed as a file */
};

struct cli_example {
    const char *command;
    const char *help;
};

struct cli_args;

struct cli_verb {
    const char *name;
    /* 0, an exit code above 0, or a negative status (or CLI_USAGE) with *err filled. */
    int (*run)(const struct cli_args *args, struct bw_error *err);
    const char *brief;                     /* a few words, lower case, no full stop */
    const char *text;                      /* paragraphs, separated by an empty line */
    const struct cli_operand *operands;    /* ends with a name of NULL; may be NULL */
    const struct cli_verb_option *options; /* ends with a help of NULL; may be NULL */
    const struct cli_example *examples;    /* ends with a command of NULL; may be NULL */
    bool tiers;                            /* takes --remote, --local, --memory and --timeout */
    bool json;                             /* takes --json */
};

extern const struct cli_option cli_options[OPT_COUNT];
extern const struct cli_verb cli_verbs[]; /* ends with a name of NULL */

/* Calls `each` for every option of a verb, the common ones last. */
void cli_verb_each_option(const struct cli_verb *verb, void (*each)(void *ctx, enum cli_opt opt, const char *help),
                          void *ctx);
/* The help of an option of this verb, or NULL when it has no such option. */
const char *cli_verb_option_help(const struct cli_verb *verb, enum cli_opt opt);
/* NULL when there is none. */
const struct cli_verb *cli_verb_find(const char *name);
/* The name that is nearest to `word`, or NULL when none is near enough. `names` ends with NULL. */
const char *cli_nearest(const char *word, const char *const *names);

int cmd_completion(const struct cli_args *args, struct bw_error *err);
int cmd_diff(const struct cli_args *args, struct bw_error *err);
int cmd_doctor(const struct cli_args *args, struct bw_error *err);
int cmd_drain(const struct cli_args *args, struct bw_error *err);
int cmd_export(const struct cli_args *args, struct bw_error *err);
int cmd_help(const struct cli_args *args, struct bw_error *err);
int cmd_history(const struct cli_args *args, struct bw_error *err);
int cmd_import(const struct cli_args *args, struct bw_error *err);
int cmd_ls(const struct cli_args *args, struct bw_error *err);
int cmd_prune(const struct cli_args *args, struct bw_error *err);
int cmd_repair(const struct cli_args *args, struct bw_error *err);
int cmd_rollback(const struct cli_args *args, struct bw_error *err);
int cmd_show(const struct cli_args *args, struct bw_error *err);
int cmd_verify(const struct cli_args *args, struct bw_error *err);
int cmd_version(const struct cli_args *args, struct bw_error *err);

#endif
