/* SPDX-License-Identifier: Apache-2.0 */
/* The options that exist, and look-ups in the table of verbs. */
#include <stdlib.h>
#include <string.h>

#include "cli/out.h"
#include "cli/table.h"

const struct cli_option cli_options[OPT_COUNT] = {
    [OPT_REMOTE] = {"remote", "URL", KIND_TEXT, false},
    [OPT_LOCAL] = {"local", "URL", KIND_TEXT, false},
    [OPT_MEMORY] = {"memory", "BYTES", KIND_BYTES, false},
    [OPT_TIMEOUT] = {"timeout", "DURATION", KIND_DURATION, false},
    [OPT_JSON] = {"json", NULL, KIND_FLAG, false},
    [OPT_HELP] = {"help", NULL, KIND_FLAG, false},
    [OPT_ALLOW_NODE_LOCAL] = {"allow-node-local", NULL, KIND_FLAG, false},
    [OPT_ALLOW_SAME_DEVICE] = {"allow-same-device", NULL, KIND_FLAG, false},
    [OPT_BOXES] = {"boxes", NULL, KIND_FLAG, false},
    [OPT_COPIES] = {"copies", NULL, KIND_FLAG, false},
    [OPT_DROP_FOREIGN] = {"drop-foreign", NULL, KIND_FLAG, false},
    [OPT_DRY_RUN] = {"dry-run", NULL, KIND_FLAG, false},
    [OPT_FAST] = {"fast", NULL, KIND_FLAG, false},
    [OPT_FORCE] = {"force", NULL, KIND_FLAG, false},
    [OPT_GRACE] = {"grace", "DURATION", KIND_DURATION, false},
    [OPT_HISTORY] = {"history", NULL, KIND_FLAG, false},
    [OPT_JOB] = {"job", "JOB", KIND_TEXT, false},
    [OPT_KEEP_EVERY] = {"keep-every", "STEPS", KIND_STEP, false},
    [OPT_KEEP_LAST] = {"keep-last", "N", KIND_COUNT, false},
    [OPT_KEEP_YOUNGER] = {"keep-younger", "DURATION", KIND_DURATION, false},
    [OPT_LABEL] = {"label", "LABEL", KIND_TEXT, false},
    [OPT_METADATA] = {"metadata", NULL, KIND_FLAG, false},
    [OPT_NEW_DTYPES] = {"new-dtypes", NULL, KIND_FLAG, false},
    [OPT_PIN] = {"pin", "ID|STEP", KIND_TEXT, true},
    [OPT_PROMOTE] = {"promote", NULL, KIND_FLAG, false},
    [OPT_RETIRE] = {"retire", "ID|STEP", KIND_TEXT, true},
    [OPT_RUN] = {"run", "RUN", KIND_TEXT, false},
    [OPT_SHARD_BYTES] = {"shard-bytes", "BYTES", KIND_BYTES, false},
    [OPT_SHELVED] = {"shelved", NULL, KIND_FLAG, false},
    [OPT_SKIP_UNSUPPORTED] = {"skip-unsupported", NULL, KIND_FLAG, false},
    [OPT_STEP] = {"step", "STEP", KIND_STEP, false},
    [OPT_STRIP_PREFIX] = {"strip-prefix", "PREFIX", KIND_TEXT, false},
    [OPT_TENSORS] = {"tensors", "GLOB", KIND_TEXT, true},
    [OPT_TO] = {"to", "DIR", KIND_FOLDER, false},
    [OPT_UNPIN] = {"unpin", "ID|STEP", KIND_TEXT, true},
    [OPT_WITH_BLOBS] = {"with-blobs", NULL, KIND_FLAG, false},
    [OPT_YES] = {"yes", NULL, KIND_FLAG, false},
};

static const struct cli_verb_option json_option = {OPT_JSON,
                                                   "Print the result as one JSON object; its schema is documented."};
static const struct cli_verb_option help_option = {OPT_HELP, "Print this help and exit."};
static const struct cli_verb_option tier_options[] = {
    {OPT_REMOTE, "The remote tier, such as file:///lustre/bw. Default: $BREAKWATER_REMOTE."},
    {OPT_LOCAL, "The local tier of this node, such as file:///nvme/bw. Default: $BREAKWATER_LOCAL, else none."},
    {OPT_MEMORY, "Budget for buffers, at least 64MiB. Default: 256MiB."},
    {OPT_TIMEOUT, "Fail when a tier does not answer for so long; 0 waits for ever. Default: 2min."},
    {0, NULL},
};

void cli_verb_each_option(const struct cli_verb *verb, void (*each)(void *ctx, enum cli_opt opt, const char *help),
                          void *ctx) {
    const struct cli_verb_option *o;
    for (o = verb->options; o != NULL && o->help != NULL; o++) each(ctx, o->opt, o->help);
    if (verb->json) each(ctx, json_option.opt, json_option.help);
    for (o = tier_options; verb->tiers && o->help != NULL; o++) each(ctx, o->opt, o->help);
    each(ctx, help_option.opt, help_option.help);
}

struct lookup {
    enum cli_opt opt;
    const char *help;
};

static void look_up(void *ctx, enum cli_opt opt, const char *help) {
    struct lookup *l = ctx;
    if (opt == l->opt) l->help = help;
}

const char *cli_verb_option_help(const struct cli_verb *verb, enum cli_opt opt) {
    struct lookup l = {opt, NULL};
    cli_verb_each_option(verb, look_up, &l);
    return l.help;
}

const struct cli_verb *cli_verb_find(const char *name) {
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++)
        if (strcmp(v->name, name) == 0) return v;
    return NULL;
}

static size_t min3(size_t a, size_t b, size_t c) {
    size_t least = a < b ? a : b;
    return least < c ? least : c;
}

/* Letters to insert, drop, replace or swap with their neighbour to turn a into b. Words of at most 31 letters. */
static size_t distance(const char *a, const char *b) {
    enum { MAX = 32 };
    size_t d[MAX][MAX];
    size_t n = strlen(a);
    size_t m = strlen(b);
    if (n >= MAX || m >= MAX) return SIZE_MAX;
    for (size_t i = 0; i <= n; i++) d[i][0] = i;
    for (size_t j = 0; j <= m; j++) d[0][j] = j;
    for (size_t i = 1; i <= n; i++) {
        for (size_t j = 1; j <= m; j++) {
            size_t cost = a[i - 1] == b[j - 1] ? 0 : 1;
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && d[i - 2][j - 2] + 1 < d[i][j]) d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[n][m];
}

const char *cli_nearest(const char *word, const char *const *names) {
    const char *best = NULL;
    size_t best_distance = SIZE_MAX;
    size_t n = strlen(word);
    for (; *names != NULL; names++) {
        size_t away = distance(word, *names);
        size_t length = strlen(*names);
        size_t near = (n > length ? n : length) / 3;
        if (n >= 2 && strncmp(word, *names, n) == 0) away = 1;
        if (near == 0) near = 1;
        if (away <= near && away < best_distance) {
            best = *names;
            best_distance = away;
        }
    }
    return best;
}
