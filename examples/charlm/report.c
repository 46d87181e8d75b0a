/* SPDX-License-Identifier: Apache-2.0 */
/* Times of steps and saves, and a thread that tells what levels saves have reached as soon as they have. */
#include "report.h"

#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SETTLE_MS 120000
#define LOOK_MS   50 /* how soon the watching thread sees that it is to stop */

uint64_t report_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void tell(const struct report *r, const struct bw_event *event) {
    char line[64];
    if (event->type != BW_EVENT_LEVEL || r->tell < 0) return;
    const int n = snprintf(line, sizeof line, "%u %s %llu\n", r->rank, bw_level_name((int)event->level),
                           (unsigned long long)event->step);
    if (write(r->tell, line, (size_t)n) != n) return; /* nobody listens any more */
}

/* Events come with a descriptor that is readable while there are some: no callback, no polling in the training loop. */
static void *watch(void *arg) {
    struct report *r = arg;
    struct pollfd fd = {.fd = bw_checkpointer_fd(r->ck), .events = POLLIN};
    while (!atomic_load(&r->stop)) {
        struct bw_event event;
        poll(&fd, 1, LOOK_MS);
        while (bw_checkpointer_poll(r->ck, &event) == 1) {
            tell(r, &event);
            if (event.type == BW_EVENT_NOTE) fprintf(stderr, "rank %u: %s\n", r->rank, event.message);
        }
    }
    return NULL;
}

int report_open(struct report *r, struct bw_checkpointer *ck, uint32_t rank, const char *path, const char *tell_path) {
    char name[4096];
    *r = (struct report){.tell = -1, .rank = rank, .ck = ck};
    if (path) {
        snprintf(name, sizeof name, "%s.%u", path, rank);
        r->file = fopen(name, "a");
        if (!r->file) return fprintf(stderr, "%s: cannot be written\n", name), -1;
        setvbuf(r->file, NULL, _IOLBF, 0); /* a process that is killed loses no line */
    }
    if (tell_path && (r->tell = open(tell_path, O_WRONLY | O_CLOEXEC)) < 0)
        return fprintf(stderr, "%s: cannot be opened\n", tell_path), -1;
    if (pthread_create(&r->watcher, NULL, watch, r) != 0) return fprintf(stderr, "no thread\n"), -1;
    r->watching = true;
    return 0;
}

static void print_save(struct report *r, const struct bw_save_stats *s, uint64_t stall_ns) {
    if (!r->file) return;
    fprintf(r->file, "save %llu %llu %llu %llu %llu %llu %s \"%s\"\n", (unsigned long long)s->step,
            (unsigned long long)stall_ns, (unsigned long long)s->capture_ns, (unsigned long long)s->local_ns,
            (unsigned long long)s->committed_ns, (unsigned long long)s->raw_bytes, s->capture_mode, s->write_path);
}

/* Writes what became of a save that has ended, and releases it. */
static void finish(struct report *r, size_t i) {
    struct bw_save *save = r->open[i].save;
    struct bw_save_stats stats;
    struct bw_error err = BW_ERROR_INIT;
    bw_save_stats(save, &stats);
    if (bw_save_error(save, &err) < 0) {
        r->failed++;
        fprintf(stderr, "rank %u: %s\n", r->rank, err.message);
        if (r->file) fprintf(r->file, "failed %llu %s\n", (unsigned long long)stats.step, err.message);
    } else {
        print_save(r, &stats, r->open[i].stall_ns);
    }
    bw_save_release(save);
    memmove(&r->open[i], &r->open[i + 1], (--r->open_count - i) * sizeof r->open[0]);
}

void report_look(struct report *r) {
    for (size_t i = 0; i < r->open_count;) {
        struct bw_save *save = r->open[i].save;
        if (bw_save_level(save) == BW_COMMITTED || bw_save_error(save, NULL) < 0)
            finish(r, i);
        else
            i++;
    }
}

void report_save(struct report *r, struct bw_save *save, uint64_t stall_ns) {
    report_look(r);
    if (r->open_count == REPORT_SAVES_MAX) finish(r, 0);
    r->open[r->open_count].save = save;
    r->open[r->open_count++].stall_ns = stall_ns;
}

int report_settle(struct report *r) {
    while (r->open_count > 0) {
        struct bw_error err = BW_ERROR_INIT;
        if (bw_save_wait(r->open[0].save, BW_COMMITTED, SETTLE_MS, &err) == BW_E_TIMEOUT) {
            fprintf(stderr, "rank %u: %s\n", r->rank, err.message);
            return -1;
        }
        finish(r, 0);
    }
    return r->failed ? -1 : 0;
}

void report_step(struct report *r, uint64_t step, uint64_t ns) {
    report_look(r);
    if (r->file)
        fprintf(r->file, "step %llu %llu %d\n", (unsigned long long)step, (unsigned long long)ns, r->open_count > 0);
}

void report_sync(struct report *r, uint64_t step, uint64_t ns, uint64_t bytes) {
    if (r->file)
        fprintf(r->file, "sync %llu %llu %llu\n", (unsigned long long)step, (unsigned long long)ns,
                (unsigned long long)bytes);
}

void report_close(struct report *r) {
    atomic_store(&r->stop, true);
    if (r->watching) pthread_join(r->watcher, NULL);
    for (size_t i = 0; i < r->open_count; i++) bw_save_release(r->open[i].save);
    if (r->tell >= 0) close(r->tell);
    if (r->file) fclose(r->file);
    *r = (struct report){.tell = -1};
}
