/* SPDX-License-Identifier: Apache-2.0 */
/* The trainer's command line. */
#ifndef CHARLM_OPTIONS_H
#define CHARLM_OPTIONS_H

#include <breakwater/checkpointer.h>
#include <stdbool.h>

#include "params.h"

struct options {
    const char *text;      /* file to learn */
    const char *local_url; /* where checkpoints go first; NULL: none */
    const char *remote_url;
    const char *run, *job, *launch;
    const char *report;       /* measurements go to this name with ".RANK"; NULL: nowhere */
    const char *tell;         /* pipe that is told what saves have reached; NULL: none */
    const char *out;          /* the state after the last step goes to this name with ".RANK"; NULL: nowhere */
    const char *plain;        /* synchronous saves go to this name with ".RANK"; NULL: none are made */
    struct bw_options tuning; /* memory, quota, pace */
    uint64_t steps, every;    /* train up to this step, save every so many */
    uint32_t world;
    struct shape shape;
};

/* False, after a line on stderr, when the command line is not understood. */
bool options_parse(struct options *o, int argc, char **argv);

#endif
