/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that make the catalog work on a run and report findings: verify, drain, prune, rollback, repair. */
#ifndef BW_CLI_WORK_H
#define BW_CLI_WORK_H

#include "cli/out_json.h"

struct cli_work {
    const struct cli_args *args;
    const char *run;
    const char *local; /* URL of the local tier, NULL: none was given. Set before `call` */
    struct bw_catalog *catalog;
    /* Does the work; *ret is the list of findings. */
    int (*call)(struct cli_work *work, struct bw_list **ret, struct bw_error *err);
    /* Adds members to the JSON result after "run". NULL: none. */
    void (*members)(const struct cli_work *work, json_t *root, const struct bw_list *list);
    /* Prints after the table, in text mode. NULL: nothing. */
    void (*epilogue)(const struct cli_work *work, const struct bw_list *list);
    /* Prints to standard error after the result, in every mode. NULL: nothing. */
    void (*note)(const struct cli_work *work, const struct bw_list *list);
    struct cli_filter filter;
    bool dry_run;        /* says at the end that nothing was changed */
    const char *instead; /* what to give for more than a dry run; NULL: "--yes" */
    bool unmended;       /* damage that could be mended, and was left, decides the exit code too */
    void *ctx;           /* of the verb */
};

/* Opens the catalog (read-only unless `writes`), calls, prints. Returns an exit code or a negative status. */
int cli_work_run(struct cli_work *work, bool writes, struct bw_error *err);
/* The id of a checkpoint that is named by id or step, by a look at the run. Inside `call` only. */
int cli_work_id(struct cli_work *work, const char *text, char ret_id[BW_ID_BYTES], struct bw_error *err);

#endif
