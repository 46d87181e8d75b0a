/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines turned into values, as the table says. */
#ifndef BW_CLI_ARGS_H
#define BW_CLI_ARGS_H

#include "cli/table.h"

/* One value of an option that may be given several times. */
struct cli_use {
    enum cli_opt opt;
    const char *text;
};

struct cli_args {
    const struct cli_verb *verb;
    struct {
        bool set;
        const char *text; /* the last one given; points into argv */
        uint64_t number;  /* KIND_COUNT, KIND_STEP; bytes; milliseconds */
    } opt[OPT_COUNT];
    struct cli_use *uses; /* values of repeatable options, in order */
    size_t use_count;
    const char **operands;
    size_t operand_count;
};

/* Parses what follows the verb. BW_E_INVALID: wrong usage, said in *err. --help given: only that is looked at. */
int cli_args_parse(const struct cli_verb *verb, int argc, char *const argv[], struct cli_args *ret,
                   struct bw_error *err);
void cli_args_fini(struct cli_args *args);

/* The i-th operand, or NULL. */
const char *cli_operand(const struct cli_args *args, size_t i);

/* "20", decimal, nothing else. */
bool cli_parse_u64(const char *text, uint64_t *ret);
/* "5GB", "64MiB", "1.5G", "4096". K, M, G, T and KiB ... are powers of 1024; kB, MB, GB, TB are powers of 1000. */
bool cli_parse_bytes(const char *text, uint64_t *ret);
/* "90s", "15min", "1h30min", "7d", "2w", "500ms" to milliseconds; "0" is allowed. */
bool cli_parse_duration(const char *text, uint64_t *ret_ms);

#endif
