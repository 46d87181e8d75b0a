/* SPDX-License-Identifier: Apache-2.0 */
/* Hostile stores: refused with an error that names the object, what was expected and what was found; nothing outside of
 * the store is touched; time and memory are bounded. */
#include "hostile.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#define VERIFY "verify " RUN " --remote @remote --memory 64MiB"
#define EXPORT "export " RUN " --to @to --force --with-blobs --remote @remote"
#define LS     "ls " RUN " --remote @remote"

/* --- what is no file ---- */

enum { LINK_OUT, LINK_LOOP, FIFO, SOCKET, DEVICE, FOLDER, HUGE_FILE, EMPTY, KINDS };

static void make_socket(const char *path) {
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    const char *const slash = strrchr(path, '/');
    char here[1024], dir[1024];
    must(getcwd(here, sizeof here) != NULL);
    (void)snprintf(dir, sizeof dir, "%.*s", (int)(slash - path), path);
    must_eq(chdir(dir), 0); /* the name alone fits into an address */
    must(strlen(slash + 1) < sizeof a.sun_path);
    (void)strcpy(a.sun_path, slash + 1);
    const int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    must(s >= 0 && bind(s, (const struct sockaddr *)(const void *)&a, sizeof a) == 0 && close(s) == 0);
    must_eq(chdir(here), 0);
}

static void make_kind(const struct hostile *h, int kind, const char *path) {
    must_eq(kind == HUGE_FILE ? 0 : unlink(path), 0);
    switch (kind) {
    case LINK_OUT: must_eq(symlink(path_in(h->outside, "canary"), path), 0); break;
    case LINK_LOOP: must_eq(symlink(strrchr(path, '/') + 1, path), 0); break;
    case FIFO: must_eq(mkfifo(path, 0600), 0); break;
    case SOCKET: make_socket(path); break;
    case DEVICE: /* only root may; a FIFO is as good then */
        if (mknod(path, S_IFCHR | 0600, makedev(1, 5)) != 0) must_eq(mkfifo(path, 0600), 0);
        break;
    case FOLDER: must_eq(mkdir(path, 0700), 0); break;
    case HUGE_FILE: must_eq(truncate(path, (off_t)1 << 40), 0); break;
    default: must(close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)) == 0); break;
    }
}

static const char *const objects[] = {"store.json", "/groups/",    "/manifest.",   "/index.",  "/layouts/",
                                      "/content",   "/placement-", ".safetensors", "/history/"};
enum { OBJECTS = sizeof objects / sizeof *objects };

/* What is said of it. */
static const char *told(int kind, const char *object) {
    const bool is_pack = strcmp(object, ".safetensors") == 0;
    switch (kind) {
    case LINK_OUT:
    case LINK_LOOP: return "is a symbolic link: expected a regular file";
    case FIFO: return "is a FIFO: expected a regular file";
    case SOCKET: return "is a socket: expected a regular file";
    case FOLDER: return "is a directory: expected a regular file";
    case HUGE_FILE: return is_pack ? "1099511627776" : "has 1099511627776 bytes, expected at most";
    case EMPTY: return "0";
    default: return ": expected a regular file"; /* a device, or a FIFO */
    }
}

static void is_refused(int kind, const char *object) {
    struct hostile h;
    hostile_make(&h);
    const char *path = hostile_path(&h, object);
    make_kind(&h, kind, path);
    hostile_run_all(&h, true);
    hostile_refuses(&h, VERIFY, path + strlen(h.p.remote) + 1, told(kind, object));
    hostile_drop(&h);
}

static void a_link_in_the_place_of_an_object_is_not_followed(void **state) {
    (void)state;
    for (int i = 0; i < OBJECTS; i++) is_refused(LINK_OUT, objects[i]);
}

static void what_is_no_file_is_not_opened(void **state) {
    (void)state;
    for (int kind = LINK_OUT + 1; kind < KINDS; kind++)
        for (int i = 0; i < OBJECTS; i++)
            if (!SANITIZED || (i + kind) % 4 == 0) is_refused(kind, objects[i]);
}

/* All verbs, also those that change something. */
static void no_verb_opens_what_is_no_file(void **state) {
    (void)state;
    for (int kind = 0; kind < KINDS; kind++) {
        if (SANITIZED && kind % 3 != 0) continue;
        struct hostile h;
        hostile_make(&h);
        make_kind(&h, kind, hostile_path(&h, objects[1 + kind % (OBJECTS - 1)]));
        hostile_run_all(&h, false);
        hostile_drop(&h);
    }
}

/* Readers go on with the entry before and say so, writers refuse, until the repair that is among the verbs. */
static void no_verb_takes_what_is_no_file_for_the_end_of_the_log(void **state) {
    (void)state;
    static const int kinds[] = {LINK_OUT, FIFO, FOLDER};
    static struct end e;
    for (int i = 0; i < (SANITIZED ? 1 : 3); i++) {
        struct hostile h;
        hostile_make(&h);
        make_kind(&h, kinds[i], hostile_path(&h, "/history/"));
        hostile_refuses(&h, LS, "the newest history entry is damaged", "this is the state before it");
        hostile_refuses(&h, "history " RUN " --remote @remote", told(kinds[i], ""), "");
        hostile_refuses(&h, "rollback " RUN " 1 --label early --yes --remote @remote", "/history/", "repair it first");
        hostile_refuses(&h, "prune " RUN " --keep-last 1 --yes --remote @remote", "/history/", "repair");
        hostile_run_all(&h, false);
        hostile_run(&h, VERIFY, &e);
        if (e.code != 0) (void)fprintf(stderr, "%d\n%s\n", e.code, e.text);
        must_eq(e.code, 0);
        hostile_drop(&h);
    }
}

/* --- what is no directory ---- */

static const char *const folders[] = {"runs",
                                      "runs/" RUN,
                                      "runs/" RUN "/history",
                                      "runs/" RUN "/launches",
                                      "runs/" RUN "/layouts",
                                      "runs/" RUN "/checkpoints",
                                      "runs/" RUN "/data",
                                      "runs/" RUN "/data/00"};

/* All is there, but outside: whoever follows the link finds a sound store, and prune deletes in it. */
static void a_link_in_the_place_of_a_directory_is_not_followed(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct hostile h;
        char from[800], to[800];
        hostile_make(&h);
        (void)snprintf(from, sizeof from, "%s/%s", h.p.remote, folders[i]);
        (void)snprintf(to, sizeof to, "%s/moved", h.outside);
        hostile_move_out(&h, from, to);
        hostile_run_all(&h, SANITIZED && i % 4 != 2);
        must(lstat(to, &(struct stat){0}) == 0);
        hostile_drop(&h);
    }
}

static void a_file_or_fifo_in_the_place_of_a_directory_ends_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct hostile h;
        char from[800], to[800];
        hostile_make(&h);
        (void)snprintf(from, sizeof from, "%s/%s", h.p.remote, folders[i]);
        (void)snprintf(to, sizeof to, "%s/gone", h.p.root);
        must_eq(rename(from, to), 0);
        must_eq(i % 2 == 0 ? mkfifo(from, 0600) : close(open(from, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
        hostile_run_all(&h, SANITIZED || i % 3 != 0);
        hostile_drop(&h);
    }
}

/* Names that no key can be, wherever names are listed. */
static void names_that_are_no_keys_are_passed_over(void **state) {
    (void)state;
    static const char *const names[] = {"\x1b[31mred\n",
                                        "..x",
                                        ".hidden",
                                        "caf\xc3\xa9\xff",
                                        "a b",
                                        "-",
                                        "000001.00000000000000000099.json\n",
                                        "99999999999999999999.1-00000000.0"};
    struct hostile h;
    char longest[256];
    hostile_make(&h);
    memset(longest, 'n', 255);
    longest[255] = '\0';
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        for (size_t k = 0; k <= sizeof names / sizeof *names; k++) {
            const char *name = k == 0 ? longest : names[k - 1];
            const char *path = path_in(h.p.remote, "%s/%s", folders[i], name);
            must_eq(k % 2 == 0 ? mkdir(path, 0700) : close(open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
        }
    }
    hostile_run_all(&h, false);
    hostile_drop(&h);
}

/* Two names of one file: nothing is ever written into a file that has a name. */
static void a_hard_link_to_a_file_outside_is_never_written_to(void **state) {
    (void)state;
    struct hostile h;
    struct stat before, after;
    hostile_make(&h);
    const char *twin = path_in(h.p.root, "twin");
    const char *path = hostile_path(&h, ".safetensors");
    must_eq(link(path, twin), 0);
    must_eq(truncate(path, 8000), 0);
    must_eq(stat(twin, &before), 0);
    hostile_run_all(&h, SANITIZED);
    must_eq(stat(twin, &after), 0);
    must(before.st_size == after.st_size && before.st_mtim.tv_sec == after.st_mtim.tv_sec &&
         before.st_mtim.tv_nsec == after.st_mtim.tv_nsec);
    hostile_drop(&h);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_link_in_the_place_of_an_object_is_not_followed),
        cmocka_unit_test(what_is_no_file_is_not_opened),
        cmocka_unit_test(no_verb_opens_what_is_no_file),
        cmocka_unit_test(no_verb_takes_what_is_no_file_for_the_end_of_the_log),
        cmocka_unit_test(a_link_in_the_place_of_a_directory_is_not_followed),
        cmocka_unit_test(a_file_or_fifo_in_the_place_of_a_directory_ends_nothing),
        cmocka_unit_test(names_that_are_no_keys_are_passed_over),
        cmocka_unit_test(a_hard_link_to_a_file_outside_is_never_written_to),
    };
    if (argc != 2) return 2;
    hostile_command = argv[1];
    const int failed = run_cases(tests);
    hostile_template_drop();
    return failed;
}
