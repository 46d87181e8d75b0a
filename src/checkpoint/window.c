/* SPDX-License-Identifier: Apache-2.0 */
/* A window of requests. */
#include "checkpoint/window.h"

void bwi_window_begin(struct bwi_window *w) {
    w->next = 0;
}

void bwi_window_fini(struct bwi_window *w) {
    for (size_t i = 0; i < BWI_WINDOW_SLOTS; i++) bwi_call_fini(&w->slots[i].call);
}

static void take(struct bwi_window_slot *s, const struct bwi_window_ops *ops, void *user, struct bw_error *err) {
    s->used = false;
    ops->take(user, s->index, &s->call.op, err);
    bwi_call_fini(&s->call);
}

int bwi_window_run(struct bwi_window *w, size_t count, const struct bwi_window_ops *ops, void *user,
                   struct bw_error *err) {
    bool flying = false;
    for (size_t i = 0; i < BWI_WINDOW_SLOTS; i++) {
        struct bwi_window_slot *s = &w->slots[i];
        if (s->used && !s->call.busy) take(s, ops, user, err);
        while (!s->used && err->status == 0 && w->next < count) {
            s->index = w->next++;
            s->used = ops->send(user, s->index, &s->call);
        }
        flying = flying || s->used;
    }
    if (flying) return 0;
    return err->status < 0 ? err->status : 1;
}
