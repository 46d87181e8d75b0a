/* SPDX-License-Identifier: Apache-2.0 */
/* Opening what the command line names. */
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/tiers.h"

static const char *option_or_environment(const struct cli_args *args, enum cli_opt opt, const char *variable) {
    if (args->opt[opt].set) return args->opt[opt].text;
    const char *value = getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

uint64_t cli_timeout_ms(const struct cli_args *args) {
    return args->opt[OPT_TIMEOUT].set ? args->opt[OPT_TIMEOUT].number : CLI_TIMEOUT_MS;
}

int cli_tiers(const struct cli_args *args, struct cli_tiers *ret, struct bw_error *err) {
    struct cli_tiers tiers = {0};
    tiers.remote = option_or_environment(args, OPT_REMOTE, "BREAKWATER_REMOTE");
    tiers.local = option_or_environment(args, OPT_LOCAL, "BREAKWATER_LOCAL");
    tiers.memory_bytes = args->opt[OPT_MEMORY].set ? args->opt[OPT_MEMORY].number : CLI_MEMORY_DEFAULT;
    tiers.timeout_ms = cli_timeout_ms(args);
    if (tiers.remote == NULL) return cli_usage(err, "no remote tier: give --remote URL or set BREAKWATER_REMOTE");
    if (tiers.memory_bytes < CLI_MEMORY_MIN)
        return cli_usage(err, "--memory: expected at least 64MiB, found \"%s\"", args->opt[OPT_MEMORY].text);
    *ret = tiers;
    return 0;
}

int cli_catalog_open(const struct cli_tiers *tiers, uint32_t flags, struct bw_catalog **ret, struct bw_error *err) {
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    o.flags = flags;
    o.remote_url = tiers->remote;
    o.local_url = tiers->local;
    o.memory_budget_bytes = tiers->memory_bytes;
    o.io_timeout_ms = tiers->timeout_ms;
    return bw_catalog_open(&o, ret, err);
}

/* <step, 20 digits>.<attempt>-<nonce>.<try>: only what tells it from a step; the library knows the rest. */
static bool looks_like_id(const char *text) {
    return strlen(text) < BW_ID_BYTES && strspn(text, "0123456789") == 20 && text[20] == '.' &&
           strspn(text, "0123456789abcdef.-") == strlen(text);
}

int cli_choice_parse(const char *text, struct cli_choice *ret, struct bw_error *err) {
    struct cli_choice choice = {0};
    if (text == NULL) {
        choice.newest = true;
        choice.step = UINT64_MAX;
    } else if (looks_like_id(text)) {
        choice.by_id = true;
        memcpy(choice.id, text, strlen(text) + 1);
    } else if (!cli_parse_u64(text, &choice.step) || choice.step > BW_STEP_MAX) {
        return cli_usage(err, "expected a step or a checkpoint id, found \"%s\"", text);
    }
    *ret = choice;
    return 0;
}

static bool row_fits(const struct cli_choice *choice, const struct bw_checkpoint_row *row) {
    if (choice->by_id) return strcmp(row->id, choice->id) == 0;
    return row->state == BW_CKPT_LIVE && (choice->newest || row->step == choice->step);
}

int cli_choice_row(const struct cli_choice *choice, const char *run, const struct bw_list *list,
                   struct bw_checkpoint_row *ret, struct bw_error *err) {
    struct bw_checkpoint_row row;
    struct bw_checkpoint_row best;
    bool found = false;
    for (size_t i = 0; bw_list_checkpoint(list, i, &row); i++) {
        if (!row_fits(choice, &row) || (found && row.step < best.step)) continue;
        best = row;
        found = true;
    }
    if (found) {
        *ret = best;
        return 0;
    }
    if (choice->newest) return cli_fail(err, BW_E_NOTFOUND, "run \"%s\" has no live checkpoint", run);
    if (choice->by_id) return cli_fail(err, BW_E_NOTFOUND, "run \"%s\" has no checkpoint \"%s\"", run, choice->id);
    return cli_fail(err, BW_E_NOTFOUND, "run \"%s\" has no live checkpoint of step %llu", run,
                    (unsigned long long)choice->step);
}

int cli_newest_damaged(struct bw_catalog *catalog, const char *run, bool *ret, struct bw_error *err) {
    struct bw_run_info r;
    int rc = bw_catalog_run(catalog, run, &r, err);
    if (rc == 0) *ret = r.status == BW_E_CORRUPT;
    return rc;
}

void cli_say_newest_damaged(const char *verb, const char *run) {
    (void)fflush(stdout);
    (void)fprintf(stderr,
                  "breakwater %s: warning: the newest history entry is damaged; this is the state before it: see "
                  "breakwater repair %s\n",
                  verb, run);
}

int cli_reader_open(const struct cli_tiers *tiers, const char *run, const struct cli_choice *choice,
                    uint64_t memory_bytes, struct bw_restore **ret, struct bw_error *err) {
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    o.run = run;
    o.remote_url = tiers->remote;
    o.local_url = tiers->local;
    o.id = choice->by_id ? choice->id : NULL;
    o.step = choice->by_id ? UINT64_MAX : choice->step;
    o.memory_budget_bytes = memory_bytes;
    o.io_timeout_ms = tiers->timeout_ms;
    return bw_reader_open(&o, ret, err);
}

bool cli_tensor_chosen(const struct cli_args *args, const char *name) {
    if (!args->opt[OPT_TENSORS].set) return true;
    for (size_t i = 0; i < args->use_count; i++)
        if (args->uses[i].opt == OPT_TENSORS && fnmatch(args->uses[i].text, name, 0) == 0) return true;
    return false;
}

void cli_counter_read(struct cli_counter *counter, struct bw_progress *ret) {
    ret->done_bytes = atomic_load_explicit(&counter->done_bytes, memory_order_relaxed);
    ret->total_bytes = atomic_load_explicit(&counter->total_bytes, memory_order_relaxed);
    ret->done_items = atomic_load_explicit(&counter->done_items, memory_order_relaxed);
    ret->total_items = atomic_load_explicit(&counter->total_items, memory_order_relaxed);
}
