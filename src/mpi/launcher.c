/* SPDX-License-Identifier: Apache-2.0 */
/* Who has started this job. doc/flows/mpi.md. */
#include "mpi/launcher.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#define LINE_BYTES    4096
#define ID_TEXT_BYTES 512

static uint64_t hash_of(const char *text) {
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a: it tells ids apart, and protects nothing */
    for (const char *p = text; *p; p++) h = (h ^ (uint8_t)*p) * UINT64_C(1099511628211);
    return h;
}

static bool fits(char c) {
    return isascii((unsigned char)c) && (isalnum((unsigned char)c) || strchr("._-", c));
}

void bwi_mpi_as_id(const char *text, char ret[BWI_MPI_ID_BYTES]) {
    const size_t most = BWI_MPI_ID_BYTES - 1, kept = most - 17, n = strlen(text);
    bool changed = n > most;
    snprintf(ret, BWI_MPI_ID_BYTES, "%s", text);
    for (char *p = ret; *p; p++) {
        if (fits(*p) && !(p == ret && !isalnum((unsigned char)*p))) continue;
        *p = p == ret ? 'x' : '_';
        changed = true;
    }
    if (!changed) return;
    const size_t at = strlen(ret) < kept ? strlen(ret) : kept;
    snprintf(ret + at, BWI_MPI_ID_BYTES - at, "-%016" PRIx64, hash_of(text));
}

int bwi_mpi_draw_launch(char ret[BWI_MPI_ID_BYTES]) {
    uint8_t bytes[10];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes) return errno ? errno : EIO;
    for (size_t i = 0; i < sizeof bytes; i++) snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
    return 0;
}

/* --- the process that stays ---------------------------------------------------------------------------------- */

static void read_line(const char *path, char *ret, size_t n) {
    FILE *f = fopen(path, "re");
    ret[0] = '\0';
    if (!f) return;
    if (!fgets(ret, (int)n, f)) ret[0] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    fclose(f);
}

struct process {
    long pid, parent;
    char name[64];
    char start[32]; /* ticks after the boot */
};

/* /proc/<pid>/stat: the name stands in parentheses and may hold anything, so the fields are counted behind the last. */
static bool look_at(long pid, struct process *ret) {
    char path[64], line[LINE_BYTES];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    read_line(path, line, sizeof line);
    char *open = strchr(line, '('), *close = strrchr(line, ')');
    *ret = (struct process){.pid = pid};
    if (!open || !close || close < open) return false;
    *close = '\0';
    snprintf(ret->name, sizeof ret->name, "%.60s", open + 1);
    char *save = NULL, *word = strtok_r(close + 1, " ", &save);
    for (int field = 3; word; field++, word = strtok_r(NULL, " ", &save)) {
        if (field == 4) ret->parent = strtol(word, NULL, 10);
        if (field == 22) snprintf(ret->start, sizeof ret->start, "%.30s", word);
    }
    return ret->start[0] != '\0';
}

/* Those go with each start: whoever has started them stays. */
static bool is_launcher(const char *name) {
    static const char *const names[] = {"mpirun", "mpiexec",       "orterun", "orted",           "prterun",
                                        "prte",   "mpiexec.hydra", "prted",   "hydra_pmi_proxy", "hydra_bstrap_proxy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strncmp(name, names[i], 15) == 0) return true; /* the kernel keeps 15 bytes of a name */
    return false;
}

static void id_of_starter(char *ret, size_t n) {
    struct process p = {.pid = getppid()};
    char host[256] = "", boot[64], space[64] = "";
    while (look_at(p.pid, &p) && is_launcher(p.name) && p.parent > 0) p.pid = p.parent;
    if (gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
    read_line("/proc/sys/kernel/random/boot_id", boot, sizeof boot);
    if (readlink("/proc/self/ns/pid", space, sizeof space - 1) < 0) space[0] = '\0';
    char life[256];
    snprintf(life, sizeof life, "%s|%s|%s", boot, space, p.start);
    snprintf(ret, n, "parent-%.200s-%ld-%016" PRIx64, host, p.pid, hash_of(life));
}

/* --- the launchers that tell ----------------------------------------------------------------------------------- */

static bool told(const char *variable, const char **ret) {
    *ret = getenv(variable);
    return *ret && **ret;
}

void bwi_mpi_job(char ret[BWI_MPI_ID_BYTES]) {
    char text[ID_TEXT_BYTES];
    const char *id, *cluster;
    if (told("BW_JOB", &id))
        snprintf(text, sizeof text, "%.500s", id);
    else if (told("SLURM_JOB_ID", &id))
        snprintf(text, sizeof text, "slurm-%.200s-%.200s", told("SLURM_CLUSTER_NAME", &cluster) ? cluster : "", id);
    else if (told("PBS_JOBID", &id))
        snprintf(text, sizeof text, "pbs-%.400s", id);
    else if (told("LSB_JOBID", &id))
        snprintf(text, sizeof text, "lsf-%.400s", id);
    else
        id_of_starter(text, sizeof text);
    bwi_mpi_as_id(text, ret);
}
