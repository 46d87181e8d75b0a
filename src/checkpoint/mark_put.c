/* SPDX-License-Identifier: Apache-2.0 */
/* Puts a mark into the authority: this group gave up, or was found damaged. Whose mark came first does not matter to
 * those who read it, so one that is there already is success. */
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/publish.h"
#include <inttypes.h>
#include <string.h>

enum mark_state { MARK_PUT, MARK_DONE, MARK_SYNCED };

static enum bwi_step end(struct bwi_mark_put *m) {
    char id[BWI_ID_TEXT_BYTES];
    bwi_id_text(&m->id, id);
    (void)bwi_error_wrap(&m->task.error, "mark %s group %" PRIu32 " as %s", id, m->group,
                         m->damaged ? "damaged" : "failed");
    bwi_call_fini(&m->call);
    bwi_buf_fini(&m->bytes);
    return BWI_STEP_END;
}

static enum bwi_step put(struct bwi_mark_put *m) {
    const struct bwi_key key =
        m->damaged ? bwi_key_damaged(m->ctx->run, &m->id, m->group) : bwi_key_failed(m->ctx->run, &m->id, m->group);
    bwi_call_create(&m->call, &m->task, m->ctx->tier[BWI_TIER_REMOTE], key.s, bwi_buf_span(&m->bytes));
    m->state = MARK_DONE;
    return BWI_STEP_WAIT;
}

/* Somebody else's mark is there, who may have died before its name was durable. */
static enum bwi_step sync_other(struct bwi_mark_put *m) {
    const struct bwi_key dir =
        m->damaged ? bwi_key_damaged_dir(m->ctx->run, &m->id) : bwi_key_failed_dir(m->ctx->run, &m->id);
    bwi_call_prepare(&m->call, BWI_STORE_SYNC, dir.s);
    bwi_call_submit(&m->call, &m->task, m->ctx->tier[BWI_TIER_REMOTE]);
    m->state = MARK_SYNCED;
    return BWI_STEP_WAIT;
}

/* A reason that was cut in the middle of a character, or came from somewhere hostile, must not cost the mark: what an
 * error object takes in is a clean line. */
static int encode(struct bwi_mark_put *m, struct bw_error *err) {
    const int status = m->status < 0 ? m->status : BW_E_INTERNAL;
    struct bwi_mark mark = {.id = m->id, .group = m->group, .writer = m->ctx->writer, .status = status};
    struct bw_error line = BW_ERROR_INIT;
    (void)bwi_error_set(&line, status, "%.*s", (int)sizeof m->reason - 1, m->reason);
    (void)bwi_format(mark.reason, sizeof mark.reason, "%s", line.message);
    return bwi_mark_encode(&mark, m->damaged, &m->bytes, err);
}

static enum bwi_step mark_step(struct bwi_task *t) {
    struct bwi_mark_put *m = bwi_container_of(t, struct bwi_mark_put, task);
    const struct bw_error *e = &m->call.op.error;
    if (t->pending > 0) return BWI_STEP_WAIT;
    switch ((enum mark_state)m->state) {
    case MARK_PUT:
        if (encode(m, &t->error) < 0) return end(m);
        return put(m);
    case MARK_DONE:
        if (e->status == BW_E_EXISTS) return sync_other(m);
        break;
    case MARK_SYNCED: break;
    }
    (void)bwi_error_copy(&t->error, e);
    return end(m);
}

void bwi_mark_put_start(struct bwi_mark_put *m, struct bwi_loop *loop, struct bwi_task *parent) {
    m->task.step = mark_step;
    m->task.name = "mark";
    m->state = MARK_PUT;
    m->call = (struct bwi_call){0};
    m->bytes = (struct bwi_buf){0};
    bwi_task_start(loop, &m->task, parent);
}
