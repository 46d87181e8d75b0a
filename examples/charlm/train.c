/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Trains the model with several processes that hold the weights together and share out the optimizer's state, saves
 * checkpoints while it trains, and goes on from the newest one when it is started again.
 *
 * What belongs to checkpoints is in checkpoint.c, and in the lines of train() that have a comment. The rest is the
 * model, and measurements for the table that quickstart.sh prints.
 */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "checkpoint.h"
#include "corpus.h"
#include "model.h"
#include "options.h"
#include "plain_save.h"
#include "report.h"
#include "team.h"

#define SEED        UINT64_C(20240229)
#define WAIT_MS     120000
#define NATS_TO_BIT 1.4426950408889634

struct trainer {
    const struct options *options;
    struct team *team;
    struct params params;
    struct model model;
    struct corpus corpus;
    struct state state;
    struct bw_checkpointer *ck;
    struct report report;
    size_t at[64]; /* pieces of the step, `batch` of them */
};

/* Everything of this rank but its checkpointer. */
static int trainer_open(struct trainer *t) {
    const struct shape *shape = &t->options->shape;
    if (corpus_open(&t->corpus, t->options->text, shape->time, SEED) < 0) return -1;
    if (params_init(&t->params, shape, t->team->rank, t->team->world, SEED) < 0 ||
        model_init(&t->model, shape, &t->params) < 0)
        return fprintf(stderr, "out of memory\n"), -1;
    state_init(&t->state, &t->params, t->team->rank, t->team->world, SEED + t->team->rank);
    return 0;
}

static void trainer_close(struct trainer *t) {
    model_fini(&t->model);
    params_fini(&t->params);
    corpus_close(&t->corpus);
}

/* This rank's part of the batch: reads the weights, writes nothing but gradients and the small state. */
static double forward_and_backward(struct trainer *t) {
    const struct shape *s = &t->options->shape;
    const struct team *team = t->team;
    corpus_next(&t->corpus, &t->state.now.position, team->rank, team->world, s->batch, t->at);
    const double loss = model_forward(&t->model, t->corpus.text, t->at, &t->state.now.rng);
    model_backward(&t->model, 1.0f / (float)(s->batch * s->time * team->world), team->gradients[team->rank]);
    return loss;
}

/* All ranks together: sums losses and gradients, changes the weights. Prints the loss. */
static int update(struct trainer *t, uint64_t step, double loss) {
    double losses[TEAM_MAX], total = 0;
    uint64_t numbers[TEAM_MAX];
    struct team *team = t->team;
    if (team_share(team, loss, 0, losses, numbers) < 0) return -1;
    params_update(&t->params, (const float *const *)team->gradients, team->world, step, team->fresh);
    if (team_meet(team) < 0) return -1;
    params_take(&t->params, team->fresh);
    model_clear_gradient(&t->model, team->gradients[team->rank]);
    for (uint32_t r = 0; r < team->world; r++) total += losses[r];
    total /= (double)(t->model.tokens * team->world);
    if (team->rank == 0) printf("step %llu loss %.6f bits %a\n", (unsigned long long)step, total * NATS_TO_BIT, total);
    return 0;
}

/* For the comparison: the same state, written and synced while training waits, with the disk to itself. */
static int save_plainly(struct trainer *t, uint64_t step) {
    char path[4096];
    uint64_t bytes;
    if (report_settle(&t->report) < 0 || team_meet(t->team) < 0) return -1;
    snprintf(path, sizeof path, "%s.%u", t->options->plain, t->team->rank);
    const uint64_t begin = report_now_ns();
    if (plain_save(&t->state, t->team->rank, t->team->world, path, &bytes) < 0) return -1;
    report_sync(&t->report, step, report_now_ns() - begin, bytes);
    return team_meet(t->team);
}

/* A save that fails does not end the training, unless another launch has taken the run over. */
static int failed_save(struct trainer *t, struct bw_save *save, const struct bw_error *err) {
    fprintf(stderr, "rank %u: %s\n", t->team->rank, err->message);
    t->report.failed++;
    if (save) bw_save_cancel(save, NULL); /* after this nobody reads the state any more */
    bw_save_release(save);
    return err->status == BW_E_SUPERSEDED || err->status == BW_E_LAUNCH_LOST ? -1 : 0;
}

/* Waits until the weights may change, and hands the save over to the report. */
static int finish_capture(struct trainer *t, struct bw_save **save, uint64_t *stall_ns) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *taken = *save;
    const uint64_t begin = report_now_ns();
    if (!taken) return 0;
    *save = NULL;
    if (bw_save_wait(taken, BW_CAPTURED, WAIT_MS, &err) < 0) return failed_save(t, taken, &err);
    *stall_ns += report_now_ns() - begin;
    report_save(&t->report, taken, *stall_ns); /* without a report: bw_save_release(taken) */
    return 0;
}

static int start_save(struct trainer *t, uint64_t step, struct bw_save **ret_save, uint64_t *stall_ns) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *save = NULL;
    const uint64_t begin = report_now_ns();
    if (checkpoint_save(t->ck, &t->state, step, &save, &err) < 0) return failed_save(t, save, &err);
    *stall_ns = report_now_ns() - begin;
    *ret_save = save;
    return 0;
}

static int train(struct trainer *t, uint64_t step) {
    const struct options *o = t->options;
    struct bw_save *save = NULL; /* the one that is not CAPTURED yet */
    uint64_t stall_ns = 0;
    while (step++ < o->steps) {
        const uint64_t begin = report_now_ns();
        const double loss = forward_and_backward(t); /* the save of the last step may go on copying meanwhile */
        const uint64_t computed_ns = report_now_ns() - begin;

        if (finish_capture(t, &save, &stall_ns) < 0) return -1; /* now the weights may change */

        const uint64_t middle = report_now_ns();
        if (update(t, step, loss) < 0) return -1;
        report_step(&t->report, step, computed_ns + report_now_ns() - middle);

        if (step % o->every == 0 && start_save(t, step, &save, &stall_ns) < 0) return -1; /* returns at once */

        if (o->plain && step % o->every == (o->every + 1) / 2 && save_plainly(t, step) < 0) return -1;
    }
    return finish_capture(t, &save, &stall_ns);
}

/* Bits per byte on text that was not learnt. */
static double held_out_bits(struct trainer *t) {
    double loss = 0;
    size_t sets = 0;
    for (; corpus_held_out(&t->corpus, sets, t->options->shape.batch, t->at); sets++)
        loss += model_forward(&t->model, t->corpus.text, t->at, NULL);
    return sets ? loss / (double)(sets * t->model.tokens) * NATS_TO_BIT : 0;
}

/* After the last step: all ranks must hold the same weights; they write the state down, rank 0 shows what was learnt.
 */
static int conclude(struct trainer *t) {
    double values[TEAM_MAX];
    uint64_t prints[TEAM_MAX], bytes;
    char path[4096], text[201];
    struct team *team = t->team;
    if (team_share(team, 0, params_fingerprint(&t->params), values, prints) < 0) return -1;
    for (uint32_t r = 1; r < team->world; r++)
        if (prints[r] != prints[0]) return fprintf(stderr, "rank %u holds other weights than rank 0\n", r), -1;
    if (t->options->out) {
        snprintf(path, sizeof path, "%s.%u", t->options->out, team->rank);
        if (plain_save(&t->state, team->rank, team->world, path, &bytes) < 0) return -1;
    }
    if (team->rank != 0) return 0;
    printf("weights %016llx on all ranks\n", (unsigned long long)prints[0]);
    printf("held out %.4f bits per byte\n", held_out_bits(t));
    model_write(&t->model, "GNU General Public License as published by ", SEED, text, sizeof text - 1);
    printf("writes: \"...%s\"\n", text);
    return 0;
}

/* Prints what the launch goes on from, trains, and waits until all saves have ended. Gives an exit code. */
static int train_and_report(struct trainer *t, const struct bw_resumed *from) {
    const struct options *o = t->options;
    const uint64_t step = from->from_checkpoint ? from->step : 0;
    if (t->team->rank == 0)
        printf("resumed %llu %s: %s\n", (unsigned long long)step,
               !from->from_checkpoint ? "nothing"
               : from->committed      ? "committed"
                                      : "uncommitted",
               from->reason);
    if (report_open(&t->report, t->ck, t->team->rank, o->report, o->tell) < 0) return 1;
    int code = train(t, step) < 0 ? 1 : 0;
    if (code == 0 && report_settle(&t->report) < 0) code = 1;
    report_close(&t->report);
    return code;
}

static int rank_main(struct team *team, void *arg) {
    struct trainer t = {.options = arg, .team = team, .report.tell = -1};
    struct bw_error err = BW_ERROR_INIT;
    struct bw_resumed from;
    setvbuf(stdout, NULL, _IOLBF, 0);
    int code = trainer_open(&t) < 0;
    if (code == 0 && checkpoint_open(t.options, team->rank, &t.state, &t.ck, &from, &err) < 0) {
        fprintf(stderr, "rank %u: %s\n", team->rank, err.message);
        code = bw_status_exit_code(err.status);
    }
    if (code == 0) code = train_and_report(&t, &from);
    if (bw_checkpointer_close(t.ck, WAIT_MS, &err) < 0) {
        fprintf(stderr, "rank %u: %s\n", team->rank, err.message);
        code = code ? code : bw_status_exit_code(err.status);
    }
    if (code == 0 && conclude(&t) < 0) code = 1;
    trainer_close(&t);
    return code;
}

int main(int argc, char **argv) {
    struct options options;
    struct team team;
    if (!options_parse(&options, argc, argv)) return 2;
    signal(SIGPIPE, SIG_IGN); /* whoever listened to --tell may have gone */
    if (team_init(&team, options.world, params_count(&options.shape)) < 0) {
        fprintf(stderr, "charlm: shared memory: %s\n", strerror(errno));
        return 1;
    }
    return team_run(&team, rank_main, &options);
}
