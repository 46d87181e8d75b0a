/* SPDX-License-Identifier: Apache-2.0 */
/* Stores on disk that somebody has tampered with, and what becomes of whoever touches them: through the command, under
 * limits of time and memory, with a look at what lies outside of the store. */
#ifndef BW_TEST_HOSTILE_H
#define BW_TEST_HOSTILE_H

#include "forge.h"
#include "job.h"

/* A place with a run of three steps on both tiers, copied from one that is made once per program; and beside it a
 * folder that is no business of any store's. */
struct hostile {
    struct place p;
    char outside[700];
    int watch; /* of the folder outside */
};
void hostile_make(struct hostile *h);
/* Fails when anything outside was opened, read, written, made or removed. */
void hostile_drop(struct hostile *h);
void hostile_template_drop(void); /* at the end of the program */

/* Path of the last object below the remote tier whose key has this in it. The text is static storage of 8 slots. */
const char *hostile_path(const struct hostile *h, const char *part);
/* Moves a directory outside, and puts a link to it in its place. */
void hostile_move_out(struct hostile *h, const char *from, const char *to);
/* All objects of the remote tier, and back: changed, mended, renamed. */
void hostile_load(const struct hostile *h, struct forge *f);
void hostile_store(const struct hostile *h, const struct forge *f);

/* How a process ended. */
struct end {
    int code; /* its exit status, or minus the signal */
    long rss_kib;
    uint64_t ms;
    char text[1 << 16]; /* what it wrote to standard output and error */
};
/* Runs breakwater with these words, of which "@remote", "@local", "@to" and "@file" stand for paths. */
void hostile_run(const struct hostile *h, const char *words, struct end *ret);
/* Every verb in turn. Each must end by itself, in time, with an exit code of its own, within its memory and without a
 * character that could harm a terminal. `few`: those that read most. */
void hostile_run_all(const struct hostile *h, bool few);
/* The verb must fail, and say both. */
void hostile_refuses(const struct hostile *h, const char *words, const char *object, const char *what);

extern const char *hostile_command; /* path of breakwater */

#endif
