/* SPDX-License-Identifier: Apache-2.0 */
/* Every option has a value, but for --small and --help. */
#include "options.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "team.h"

/* 13 million parameters, 158 MB with Adam's moments; and a model for tests. */
static const struct shape large_shape = {.buckets = 32768, .embed = 64, .hidden = 256, .batch = 16, .time = 32};
static const struct shape small_shape = {.buckets = 2048, .embed = 16, .hidden = 32, .batch = 8, .time = 16};

static const char usage[] =
    "usage: charlm --text FILE --remote URL --launch ID [OPTION VALUE]...\n"
    "  --text FILE      what to learn\n"
    "  --remote URL     tier that decides what counts\n"
    "  --local URL      the node's own tier (none)\n"
    "  --run NAME       (charlm)\n"
    "  --job ID         (job-1)\n"
    "  --launch ID      name of this start; never used before in the run\n"
    "  --world N        ranks, each a process (2)\n"
    "  --steps N        last step (72)\n"
    "  --every N        steps between checkpoints (12)\n"
    "  --small          a small model, for tests\n"
    "  --memory N       MiB of buffers per rank (160)\n"
    "  --local-quota N  MiB on the local tier per rank (256)\n"
    "  --drain-rate N   bytes per second from the local tier to the remote one, per rank (unlimited)\n"
    "  --report FILE    append measurements to FILE.RANK\n"
    "  --tell FILE      write a line to FILE when a save reaches a level\n"
    "  --plain FILE     make synchronous saves too, to FILE.RANK, and measure them\n"
    "  --out FILE       write the final state to FILE.RANK\n";

static const struct option names[] = {
    {"text", required_argument, NULL, 't'},
    {"remote", required_argument, NULL, 'r'},
    {"local", required_argument, NULL, 'l'},
    {"run", required_argument, NULL, 'n'},
    {"job", required_argument, NULL, 'j'},
    {"launch", required_argument, NULL, 'i'},
    {"world", required_argument, NULL, 'w'},
    {"steps", required_argument, NULL, 's'},
    {"every", required_argument, NULL, 'e'},
    {"small", no_argument, NULL, 'm'},
    {"memory", required_argument, NULL, 'b'},
    {"drain-rate", required_argument, NULL, 'd'},
    {"report", required_argument, NULL, 'R'},
    {"tell", required_argument, NULL, 'T'},
    {"plain", required_argument, NULL, 'P'},
    {"out", required_argument, NULL, 'o'},
    {"local-quota", required_argument, NULL, 'q'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

/* A decimal number; 0, which no option that calls this allows, when it is none. */
static uint64_t number(const char *text) {
    char *end;
    const unsigned long long n = strtoull(text, &end, 10);
    return *end || *text == '-' ? 0 : n;
}

static bool take(struct options *o, int name, const char *value) {
    switch (name) {
    case 't': o->text = value; return true;
    case 'r': o->remote_url = value; return true;
    case 'l': o->local_url = value; return true;
    case 'n': o->run = value; return true;
    case 'j': o->job = value; return true;
    case 'i': o->launch = value; return true;
    case 'R': o->report = value; return true;
    case 'T': o->tell = value; return true;
    case 'P': o->plain = value; return true;
    case 'o': o->out = value; return true;
    case 'm': o->shape = small_shape; return true;
    case 'w': return (o->world = (uint32_t)number(value)) > 0 && o->world <= TEAM_MAX;
    case 's': return (o->steps = number(value)) > 0;
    case 'e': return (o->every = number(value)) > 0;
    case 'b': return (o->tuning.memory_budget_bytes = number(value) << 20) > 0;
    case 'q': return (o->tuning.local_quota_bytes = number(value) << 20) > 0;
    case 'd': return (o->tuning.drain_bytes_per_s = number(value)) > 0;
    default: return false;
    }
}

bool options_parse(struct options *o, int argc, char **argv) {
    *o = (struct options){.run = "charlm", .job = "job-1", .world = 2, .steps = 72, .every = 12, .shape = large_shape};
    o->tuning = (struct bw_options)BW_OPTIONS_INIT;
    o->tuning.memory_budget_bytes = UINT64_C(160) << 20;
    o->tuning.local_quota_bytes = UINT64_C(256) << 20;
    for (int name; (name = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        if (name == 'h') {
            fputs(usage, stdout);
            exit(0);
        }
        if (!take(o, name, optarg)) {
            if (name != '?') fprintf(stderr, "charlm: %s: not a value for this option\n", optarg);
            return false;
        }
    }
    if (optind == argc && o->text && o->remote_url && o->launch) return true;
    fputs(usage, stderr);
    return false;
}
