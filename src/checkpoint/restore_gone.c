/* SPDX-License-Identifier: Apache-2.0 */
/* Something that should be in the authority is not there, or not sound. Whether that is damage or the end of a
 * checkpoint that was retired while it was read, the history says. */
#include "base/error.h"
#include "base/vec.h"
#include "checkpoint/history_head.h"
#include "checkpoint/policy_history.h"
#include "checkpoint/restore_private.h"

struct bwi_restore_gone {
    struct bwi_head_read read;
    struct bwi_head head;
};

void bwi_restore_gone_free(struct bwi_restore_call *c) {
    struct bwi_restore_gone *g = c->w->gone;
    if (g == NULL) return;
    bwi_head_fini(&g->head);
    bwi_free(g);
    c->w->gone = NULL;
}

static void conclude(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    const struct bwi_restore_gone *g = w->gone;
    if (g->read.task.error.status != 0 || !g->head.found) return; /* it cannot be known: the error stays as it is */
    if (bwi_policy_fate(&g->head.entry, &c->r->target.id) == BWI_FATE_DEAD) {
        w->error = (struct bw_error)BW_ERROR_INIT;
        w->lost_set = false;
        (void)bwi_error_set(&w->error, BW_E_NOTFOUND,
                            "checkpoint %s is gone: the history of run \"%s\" does not name it any more", c->r->id_text,
                            c->r->ctx->run);
        return;
    }
    if (w->error.status == BW_E_NOTFOUND) w->error.status = BW_E_CORRUPT;
}

enum bwi_ready bwi_restore_gone_step(struct bwi_restore_call *c) {
    struct bwi_restore_work *w = c->w;
    if (w->gone == NULL) {
        w->gone = bwi_calloc(1, sizeof *w->gone);
        if (w->gone == NULL) return BWI_READY; /* the call has its error */
        w->gone->read = (struct bwi_head_read){.ctx = c->r->ctx, .head = &w->gone->head};
        bwi_head_read_start(&w->gone->read, c->task.loop, &c->task);
        return BWI_WAIT;
    }
    if (w->gone->read.task.running) return BWI_WAIT;
    conclude(c);
    return BWI_READY;
}
