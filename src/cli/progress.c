/* SPDX-License-Identifier: Apache-2.0 */
/* The progress bar: a second thread works, the first one draws. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "cli/tiers.h"

enum { DRAW_EVERY_MS = 100, DRAW_AFTER_MS = 400, LINE_BYTES = 256 };

struct work {
    const struct cli_call *call;
    struct bw_error *err;
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done; /* under `lock` */
    int rc;    /* under `lock` */
};

static void *work_main(void *arg) {
    struct work *w = arg;
    int rc = w->call->run(w->call->ctx, w->err);
    (void)pthread_mutex_lock(&w->lock);
    w->rc = rc;
    w->done = true;
    (void)pthread_cond_signal(&w->ended);
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static double seconds_since(const struct timespec *start) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)(now.tv_sec - start->tv_sec) + (double)(now.tv_nsec - start->tv_nsec) / 1e9;
}

static size_t terminal_columns(void) {
    struct winsize size = {0};
    return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1U : 79;
}

/* "verify  [#####-----]  50%  1.0 GiB of 2.0 GiB  12 of 24 objects  512.0 MiB/s  2 s left" */
static void describe(const char *what, const struct bw_progress *p, double seconds, char line[LINE_BYTES]) {
    char done[CLI_TEXT_BYTES];
    char total[CLI_TEXT_BYTES];
    char rate[CLI_TEXT_BYTES];
    char bar[21];
    struct cli_buf b = {0};
    double per_s = seconds > 0 ? (double)p->done_bytes / seconds : 0;
    cli_buf_printf(&b, "%s", what);
    if (p->total_bytes > 0) {
        double share = (double)p->done_bytes / (double)p->total_bytes;
        if (share > 1) share = 1;
        for (size_t i = 0; i < sizeof bar - 1; i++) bar[i] = (double)i < share * (double)(sizeof bar - 1) ? '#' : '-';
        bar[sizeof bar - 1] = '\0';
        cli_buf_printf(&b, "  [%s] %3.0f%%  %s of %s", bar, share * 100, cli_bytes_text(p->done_bytes, done),
                       cli_bytes_text(p->total_bytes, total));
    } else if (p->done_bytes > 0) {
        cli_buf_printf(&b, "  %s", cli_bytes_text(p->done_bytes, done));
    }
    if (p->total_items > 0)
        cli_buf_printf(&b, "  %llu of %llu", (unsigned long long)p->done_items, (unsigned long long)p->total_items);
    if (per_s >= 1) cli_buf_printf(&b, "  %s/s", cli_bytes_text((uint64_t)per_s, rate));
    if (per_s >= 1 && p->total_bytes > p->done_bytes)
        cli_buf_printf(&b, "  %.0f s left", (double)(p->total_bytes - p->done_bytes) / per_s);
    (void)snprintf(line, LINE_BYTES, "%s", b.data);
    cli_buf_fini(&b);
}

/* Overwrites what the last drawing left; returns the new length. */
static size_t draw(const struct cli_call *call, const struct timespec *start, size_t last) {
    char line[LINE_BYTES];
    struct bw_progress p = {0};
    call->progress(call->ctx, &p);
    describe(call->what, &p, seconds_since(start), line);
    size_t columns = terminal_columns();
    size_t n = strlen(line);
    if (n > columns) n = columns;
    (void)fprintf(stderr, "\r%.*s%*s", (int)n, line, last > n ? (int)(last - n) : 0, "");
    (void)fflush(stderr);
    return n;
}

static void wait_and_draw(struct work *w, const struct timespec *start) {
    size_t drawn = 0;
    (void)pthread_mutex_lock(&w->lock);
    while (!w->done) {
        struct timespec until;
        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += DRAW_EVERY_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&w->ended, &w->lock, &until);
        if (w->done || seconds_since(start) * 1000 < DRAW_AFTER_MS) continue;
        (void)pthread_mutex_unlock(&w->lock);
        drawn = draw(w->call, start, drawn);
        (void)pthread_mutex_lock(&w->lock);
    }
    (void)pthread_mutex_unlock(&w->lock);
    if (drawn > 0) (void)fprintf(stderr, "\r%*s\r", (int)drawn, "");
}

int cli_call_long(const struct cli_call *call, struct bw_error *err) {
    struct work w = {.call = call, .err = err, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_condattr_t attr;
    pthread_t thread;
    struct timespec start;
    if (isatty(STDERR_FILENO) == 0) return call->run(call->ctx, err);
    (void)clock_gettime(CLOCK_MONOTONIC, &start);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w.ended, &attr);
    (void)pthread_condattr_destroy(&attr);
    if (pthread_create(&thread, NULL, work_main, &w) != 0) {
        w.rc = call->run(call->ctx, err);
    } else {
        wait_and_draw(&w, &start);
        (void)pthread_join(thread, NULL);
    }
    (void)pthread_cond_destroy(&w.ended);
    (void)pthread_mutex_destroy(&w.lock);
    return w.rc;
}
