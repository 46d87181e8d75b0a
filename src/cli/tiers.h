/* SPDX-License-Identifier: Apache-2.0 */
/* What verbs share around the library: the tiers of the command line, checkpoints by id or step, long calls with a
 * progress bar. */
#ifndef BW_CLI_TIERS_H
#define BW_CLI_TIERS_H

#include <stdatomic.h>

#include "cli/args.h"
#include "cli/out.h"

struct cli_tiers {
    const char *remote; /* never NULL */
    const char *local;  /* NULL: none */
    uint64_t memory_bytes;
    uint64_t timeout_ms; /* without an answer; 0: for ever */
};

#define CLI_MEMORY_DEFAULT (UINT64_C(256) << 20)
#define CLI_MEMORY_MIN     (UINT64_C(64) << 20)
#define CLI_TIMEOUT_MS     UINT64_C(120000)

/* The value of --timeout, or its default. */
uint64_t cli_timeout_ms(const struct cli_args *args);

/* From the options, else from the environment. No remote tier is wrong usage. */
int cli_tiers(const struct cli_args *args, struct cli_tiers *ret, struct bw_error *err);
/* flags: BW_CATALOG_READ_ONLY or 0. */
int cli_catalog_open(const struct cli_tiers *tiers, uint32_t flags, struct bw_catalog **ret, struct bw_error *err);

/* A checkpoint as the command line names it. */
struct cli_choice {
    bool newest;
    bool by_id;
    char id[BW_ID_BYTES];
    uint64_t step;
};
/* `text` NULL: the newest. Digits are a step; anything else must look like an id. */
int cli_choice_parse(const char *text, struct cli_choice *ret, struct bw_error *err);
/* Its row in a list of checkpoints. By step only live ones count. */
int cli_choice_row(const struct cli_choice *choice, const char *run, const struct bw_list *list,
                   struct bw_checkpoint_row *ret, struct bw_error *err);
/* Whether the newest entry of the run's history is damaged; then all that is shown is the state before it. */
int cli_newest_damaged(struct bw_catalog *catalog, const char *run, bool *ret, struct bw_error *err);
/* After the output: says so on standard error. */
void cli_say_newest_damaged(const char *verb, const char *run);
int cli_reader_open(const struct cli_tiers *tiers, const char *run, const struct cli_choice *choice,
                    uint64_t memory_bytes, struct bw_restore **ret, struct bw_error *err);

/* Patterns of --tensors. True also when none were given. */
bool cli_tensor_chosen(const struct cli_args *args, const char *name);

/* A call that may take long. On a terminal it runs on a second thread while a bar is drawn on standard error. */
struct cli_call {
    const char *what;                                     /* "verify" */
    int (*run)(void *ctx, struct bw_error *err);          /* blocks */
    void (*progress)(void *ctx, struct bw_progress *ret); /* from another thread than `run` */
    void *ctx;
};
int cli_call_long(const struct cli_call *call, struct bw_error *err);

/* Where the progress of work that the command does itself is counted; one thread writes, another reads. */
struct cli_counter {
    _Atomic uint64_t done_bytes, total_bytes, done_items, total_items;
};
void cli_counter_read(struct cli_counter *counter, struct bw_progress *ret);

#endif
