/* SPDX-License-Identifier: Apache-2.0 */
/* What encoding, decoding and looking things up cost, at the sizes of large jobs and beside a hash of the same bytes.
 *
 *     bench_format [SUBJECT...] [--rounds N] [--small] [--json FILE]
 *
 * Prints a table, and with --json one line per figure. --small takes a hundredth of every size, to see that it runs. */
#include "format_cases.h"
#include <errno.h>
#include <string.h>

static const struct {
    const char *name;
    void (*run)(struct compare *c);
} subjects[] = {
    {"hash", cases_hash},     {"json", cases_json},       {"history", cases_history}, {"manifest", cases_manifest},
    {"layout", cases_layout}, {"content", cases_content}, {"index", cases_index},     {"pack", cases_pack},
};
#define SUBJECTS (sizeof subjects / sizeof subjects[0])

static size_t subject_number(const char *name) {
    for (size_t i = 0; i < SUBJECTS; i++) {
        if (strcmp(subjects[i].name, name) == 0) return i;
    }
    bench_die(name, "usage: bench_format [hash|json|history|manifest|layout|content|index|pack]... [--rounds N] "
                    "[--small] [--json FILE]");
}

int main(int argc, char **argv) {
    struct compare c = {.rounds = 21};
    bool chosen[SUBJECTS] = {false}, any = false;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--rounds") == 0) {
            c.rounds = bench_number(argv[i], value, 1, COMPARE_ROUNDS_MAX), i++;
        } else if (strcmp(argv[i], "--small") == 0) {
            c.small = true;
        } else if (strcmp(argv[i], "--json") == 0 && value) {
            c.json = bench_open(value), i++;
        } else {
            chosen[subject_number(argv[i])] = any = true;
        }
    }
    bench_facts(c.json);
    printf("%zu pairs; processor time of one thread; ratio: how many times the yardstick takes for the same bytes\n\n",
           c.rounds);
    printf("  %-24s %10s  %22s %10s %11s %9s  %20s %s\n", "figure", "median ms", "p10 .. p90 ", "ns / item", "MiB/s",
           "ratio", "p10 .. p90 ", "yardstick");
    for (size_t i = 0; i < SUBJECTS; i++) {
        if (chosen[i] || !any) subjects[i].run(&c);
    }
    compare_fini(&c);
    if (c.json && fclose(c.json) != 0) bench_die("--json", strerror(errno));
    return 0;
}
