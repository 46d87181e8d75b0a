/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater prune: pins, retention, and the sweep of what is dead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/work.h"

struct named {
    enum cli_opt opt; /* OPT_RETIRE, OPT_PIN, OPT_UNPIN */
    char id[BW_ID_BYTES];
};

struct prune {
    struct named *named;
    size_t count;
    bool sweeps; /* something besides pins is asked for */
};

static int resolve(struct cli_work *work, struct prune *p, struct bw_error *err) {
    const struct cli_args *args = work->args;
    for (size_t i = 0; i < args->use_count; i++) {
        struct named n = {.opt = args->uses[i].opt};
        int rc = cli_work_id(work, args->uses[i].text, n.id, err);
        if (rc < 0) return rc;
        p->named[p->count++] = n;
    }
    return 0;
}

static int set_pins(struct cli_work *work, const struct prune *p, struct bw_error *err) {
    for (size_t i = 0; i < p->count; i++) {
        if (p->named[i].opt == OPT_RETIRE) continue;
        int rc = bw_catalog_pin(work->catalog, work->run, p->named[i].id, p->named[i].opt == OPT_PIN, err);
        if (rc < 0) return rc;
    }
    return 0;
}

static int sweep(struct cli_work *work, const struct prune *p, struct bw_list **ret, struct bw_error *err) {
    const struct cli_args *args = work->args;
    const char **ids = cli_calloc(p->count, sizeof *ids);
    struct bw_prune_options o = {.struct_size = sizeof o};
    o.dry_run = work->dry_run;
    o.retention.keep_last = (uint32_t)args->opt[OPT_KEEP_LAST].number;
    o.retention.keep_every_steps = args->opt[OPT_KEEP_EVERY].number;
    o.retention.keep_younger_ms = args->opt[OPT_KEEP_YOUNGER].number;
    for (size_t i = 0; i < p->count; i++)
        if (p->named[i].opt == OPT_RETIRE) ids[o.retire_count++] = p->named[i].id;
    o.retire_ids = o.retire_count != 0 ? ids : NULL;
    o.grace_ms = args->opt[OPT_GRACE].set ? args->opt[OPT_GRACE].number : UINT64_MAX;
    o.drop_foreign = args->opt[OPT_DROP_FOREIGN].set;
    o.retire_shelved = args->opt[OPT_SHELVED].set;
    int rc = bw_catalog_prune(work->catalog, work->run, &o, ret, err);
    free(ids);
    return rc;
}

static int prune(struct cli_work *work, struct bw_list **ret, struct bw_error *err) {
    struct prune *p = work->ctx;
    int rc = resolve(work, p, err);
    if (rc == 0 && !work->dry_run) rc = set_pins(work, p, err);
    if (rc == 0 && p->sweeps) rc = sweep(work, p, ret, err);
    return rc;
}

/* A dry run has not set the pins, so what they protect may be in the list. */
static bool would_be_pinned(const void *ctx, const struct bw_finding *f) {
    const struct prune *p = ctx;
    for (size_t i = 0; i < p->count; i++)
        if (p->named[i].opt == OPT_PIN && strcmp(p->named[i].id, f->id) == 0) return true;
    return false;
}

static void members(const struct cli_work *work, json_t *root, const struct bw_list *list) {
    const struct prune *p = work->ctx;
    json_t *pinned = cli_json_array();
    json_t *unpinned = cli_json_array();
    (void)list;
    for (size_t i = 0; i < p->count; i++)
        if (p->named[i].opt != OPT_RETIRE)
            cli_json_add(p->named[i].opt == OPT_PIN ? pinned : unpinned, cli_json_text(p->named[i].id));
    cli_json_set(root, "dry_run", cli_json_bool(work->dry_run));
    cli_json_set(root, "pinned", pinned);
    cli_json_set(root, "unpinned", unpinned);
}

static void epilogue(const struct cli_work *work, const struct bw_list *list) {
    const struct prune *p = work->ctx;
    for (size_t i = 0; i < p->count; i++)
        if (p->named[i].opt != OPT_RETIRE)
            (void)printf("%s%s %s\n", work->dry_run ? "would be " : "",
                         p->named[i].opt == OPT_PIN ? "pinned:" : "unpinned:", p->named[i].id);
    if (p->sweeps && bw_list_count(list) == 0) (void)printf("nothing to retire or delete\n");
}

int cmd_prune(const struct cli_args *args, struct bw_error *err) {
    struct prune p = {0};
    bool pins = args->opt[OPT_PIN].set || args->opt[OPT_UNPIN].set;
    bool rules = args->opt[OPT_KEEP_LAST].set || args->opt[OPT_RETIRE].set || args->opt[OPT_GRACE].set ||
                 args->opt[OPT_DROP_FOREIGN].set || args->opt[OPT_SHELVED].set;
    struct cli_work work = {.args = args,
                            .call = prune,
                            .members = members,
                            .epilogue = epilogue,
                            .filter = {would_be_pinned, &p},
                            .dry_run = !args->opt[OPT_YES].set,
                            .ctx = &p};
    for (int i = 0; i < 2; i++) {
        enum cli_opt opt = i == 0 ? OPT_KEEP_EVERY : OPT_KEEP_YOUNGER;
        if (args->opt[opt].set && !args->opt[OPT_KEEP_LAST].set)
            return cli_usage(err, "--%s: expected --keep-last with it", cli_options[opt].name);
    }
    p.named = cli_calloc(args->use_count, sizeof *p.named);
    p.sweeps = rules || !pins;
    int rc = cli_work_run(&work, !work.dry_run, err);
    free(p.named);
    return rc;
}
