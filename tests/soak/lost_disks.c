/* SPDX-License-Identifier: Apache-2.0 */
/* The disks of the small system, the processes on them, and what strikes both. */
#include "lost.h"

#include "inline_engine.h"

#include "base/text.h"
#include "base/vec.h"
#include "test.h"
#include <inttypes.h>
#include <string.h>

static struct disk *new_disk(struct lost *x, bool is_remote) {
    struct disk_model m = {.friendly = x->friendly, .is_remote = is_remote, .device = ++x->device};
    if (!is_remote && !x->s.quiet) m.capacity_bytes = x->capacity;
    return disk_new(&x->s.env.env, &m);
}

void lost_open_disks(struct lost *x) {
    x->remote = new_disk(x, true);
    for (unsigned n = 0; n < x->s.nodes; n++) x->local[n] = new_disk(x, false);
}

void lost_close_disks(struct lost *x) {
    disk_free(x->remote);
    for (unsigned n = 0; n < NODES_MAX; n++) disk_free(x->local[n]);
}

void lost_fail_syncs(struct lost *x) {
    if (!x->failing_syncs) return;
    for (unsigned n = 0; n < x->s.nodes; n++)
        disk_fail_fsync(x->local[n], system_chance(&x->s, 60) ? 1 + system_random(&x->s, 80) : 0);
    /* That a name of another process could not be synced nobody can know; so in the shared tier only bytes are lost. */
    disk_fail_file_fsync(x->remote, system_chance(&x->s, 60) ? 1 + system_random(&x->s, 80) : 0);
}

/* --- what strikes ---- */

static void kill_on(struct lost *x, unsigned node, bool all) {
    for (unsigned i = 0; i < PARTS_MAX; i++)
        if (x->s.parts[i].used && (all || x->s.parts[i].node == node)) part_kill(&x->s, &x->s.parts[i]);
}

static void crash_node(struct lost *x, unsigned node) {
    disk_crash(x->local[node], system_random(&x->s, UINT64_MAX));
    disk_lose_client(x->remote, node, system_random(&x->s, UINT64_MAX));
}

static void destroy_node(struct lost *x, unsigned node) {
    disk_lose_client(x->remote, node, system_random(&x->s, UINT64_MAX));
    lost_destroyed(x, node);
    disk_free(x->local[node]);
    x->local[node] = new_disk(x, false);
}

void lost_strike(struct lost *x, enum blow blow, unsigned node, struct part *part) {
    static const char *const names[] = {"a process is killed", "a node loses power", "all nodes lose power",
                                        "the server crashes",  "everything crashes", "a node is destroyed"};
    const bool all = blow == BLOW_NODES || blow == BLOW_SERVER || blow == BLOW_ALL;
    x->blows++;
    system_tell(&x->s, part, "%s", names[blow]);
    if (part != NULL) part_kill(&x->s, part);
    if (blow == BLOW_KILL) return;
    kill_on(x, node, all);
    if (blow == BLOW_NODE) crash_node(x, node);
    if (blow == BLOW_DESTROY) destroy_node(x, node);
    for (unsigned n = 0; n < x->s.nodes && (blow == BLOW_NODES || blow == BLOW_ALL); n++) crash_node(x, n);
    if (blow == BLOW_SERVER || blow == BLOW_ALL) disk_crash(x->remote, system_random(&x->s, UINT64_MAX));
    lost_fail_syncs(x);
}

/* One that is only killed leaves names that can be seen and are not safe: others may count on them. */
static void strike_here(void *user) {
    struct lost_aim *a = user;
    struct lost *x = a->x;
    if (x->blows_left == 0 || x->s.quiet) return;
    x->blows_left--;
    const bool kill = system_chance(&x->s, a->at_name ? 80 : 30);
    lost_strike(x, kill ? BLOW_KILL : (enum blow)system_random(&x->s, BLOWS), a->part->node, a->part);
}

/* --- hooks ---- */

/* Somewhere on its way, or between a name that others wait for and the sync of its directory. */
static void aim(struct lost *x, struct part *p) {
    static const char *const names[] = {"groups", "groups", "history", "failed", NULL};
    static const uint64_t reaches[] = {20, 100, 400};
    struct disk_process *process = x->processes[p->number];
    struct lost_aim *a = &x->aims[p->number];
    if (x->blows_left == 0 || x->s.quiet || !system_chance(&x->s, 60)) return;
    *a = (struct lost_aim){.x = x, .part = p, .at_name = system_chance(&x->s, 60)};
    if (a->at_name)
        disk_stop_at_sync(process, names[system_random(&x->s, 5)], 1 + system_random(&x->s, 4), strike_here, a);
    else
        disk_stop_at(process, 1 + system_random(&x->s, reaches[system_random(&x->s, 3)]), strike_here, a);
}

static struct bwi_io *open_io(struct system *s, struct part *p) {
    struct lost *x = lost_of(s);
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_io *io = NULL;
    struct disk_process *process = disk_process_new(p->node);
    disk_attach(process, "remote", x->remote);
    disk_attach(process, "local", x->local[p->node]);
    x->processes[p->number] = process;
    const struct bwi_io_options o = {.os = disk_os(process)};
    assert_ok(bwi_io_open(&o, &io, &err), &err);
    inline_engine_delay(io, &s->env.env, x->delay_ns);
    return io;
}

static void open_tier(struct system *s, struct part *p, enum bwi_tier tier) {
    struct lost *x = lost_of(s);
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_store_options o = {.loop = p->loop, .create = true};
    const char *url = tier == BWI_TIER_REMOTE ? "/remote/bw" : "/local/bw";
    assert_ok(bwi_store_open(url, &o, &p->ctx.tier[tier], &err), &err);
    p->ctx.grace_ms = x->grace_ms;
    if (tier == BWI_TIER_LOCAL || s->single_tier) aim(x, p);
}

static uint64_t next_ns(const struct part *p) {
    return inline_engine_next_ns(p->io);
}

static struct bwi_uuid identity(struct system *s, enum bwi_tier tier, unsigned node) {
    const struct lost *x = lost_of(s);
    struct bwi_store_id id = {0};
    struct bw_error err = BW_ERROR_INIT;
    size_t bytes = 0;
    const uint8_t *text = disk_peek(tier == BWI_TIER_REMOTE ? x->remote : x->local[node], "bw/store.json", &bytes);
    if (text == NULL || bwi_store_id_decode(bwi_span(text, bytes), &id, &err) < 0) return (struct bwi_uuid){{0}};
    return id.id;
}

static void died(struct system *s, struct part *p) {
    disk_process_kill(lost_of(s)->processes[p->number]);
}

static void freed(struct system *s, struct part *p) {
    struct lost *x = lost_of(s);
    struct disk_process *process = x->processes[p->number];
    x->changes += disk_changes(process);
    if (!disk_process_is_dead(process) && disk_open_files(process) != 0)
        violated(s, "%s %u has left %u files open", p->what, p->number, disk_open_files(process));
    disk_process_free(process);
    x->processes[p->number] = NULL;
}

const struct system_hooks lost_hooks = {.open_io = open_io,
                                        .open_tier = open_tier,
                                        .next_ns = next_ns,
                                        .identity = identity,
                                        .died = died,
                                        .freed = freed,
                                        .opened = lost_opened,
                                        .told = lost_told};
