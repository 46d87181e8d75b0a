/* SPDX-License-Identifier: Apache-2.0 */
/* The command `breakwater`: finds the verb, parses, runs it, and turns what it says into an exit code. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli/args.h"
#include "cli/help.h"
#include "cli/out.h"

enum { EXIT_USAGE = 2, VERBS_MAX = 32 };

/* A message for people on standard error; each line after the first is set in. */
static void print_error(const char *verb, const char *text) {
    const char *lead = "";
    (void)fprintf(stderr, "breakwater%s%s: ", verb != NULL ? " " : "", verb != NULL ? verb : "");
    while (*text != '\0') {
        struct cli_buf raw = {0};
        struct cli_buf line = {0};
        size_t n = strcspn(text, "\n");
        cli_buf_add(&raw, text, n);
        cli_buf_escaped(&line, raw.data);
        (void)fprintf(stderr, "%s%s\n", lead, line.data);
        cli_buf_fini(&raw);
        cli_buf_fini(&line);
        lead = "  ";
        text += n;
        if (*text == '\n') text++;
    }
}

static int usage_failure(const struct cli_verb *verb, const char *message) {
    print_error(verb != NULL ? verb->name : NULL, message);
    if (verb == NULL) {
        (void)fprintf(stderr, "usage: breakwater VERB [OPTION]... [OPERAND]...\n"
                              "\"breakwater --help\" lists the verbs\n");
    } else {
        struct cli_buf usage = {0};
        cli_usage_line(&usage, verb);
        (void)fprintf(stderr, "usage: %s\n\"breakwater %s --help\" explains the options\n", usage.data, verb->name);
        cli_buf_fini(&usage);
    }
    return EXIT_USAGE;
}

static int failure(const struct cli_verb *verb, int status, const struct bw_error *err) {
    char text[2 * BW_ERROR_MESSAGE_BYTES];
    if (status == CLI_USAGE) return usage_failure(verb, err->message);
    (void)bw_error_format(err, text, sizeof text);
    print_error(verb != NULL ? verb->name : NULL, text);
    int code = bw_status_exit_code(status);
    return code > 0 ? code : 1;
}

static int unknown_verb(const char *word) {
    const char *names[VERBS_MAX + 1];
    size_t n = 0;
    struct cli_buf message = {0};
    for (const struct cli_verb *v = cli_verbs; v->name != NULL && n < VERBS_MAX; v++) names[n++] = v->name;
    names[n] = NULL;
    const char *near = cli_nearest(word, names);
    cli_buf_printf(&message, "unknown verb \"%s\"", word);
    if (near != NULL) cli_buf_printf(&message, "; did you mean \"%s\"?", near);
    int code = usage_failure(NULL, message.data);
    cli_buf_fini(&message);
    return code;
}

/* Standard output must have taken everything, whatever the verb came to. */
static int finish(const struct cli_verb *verb, int code) {
    struct bw_error err = BW_ERROR_INIT;
    int rc = cli_finish_output(&err);
    if (rc == 0) return code;
    int failed = failure(verb, rc, &err);
    return code != 0 ? code : failed;
}

static int run_verb(const struct cli_verb *verb, int argc, char *argv[]) {
    struct bw_error err = BW_ERROR_INIT;
    struct cli_args args = {0};
    int rc = cli_args_parse(verb, argc, argv, &args, &err);
    if (rc == 0) {
        if (args.opt[OPT_HELP].set)
            cli_help_verb_print(verb);
        else
            rc = verb->run(&args, &err);
    }
    int code = rc < 0 ? failure(verb, rc, &err) : rc;
    cli_args_fini(&args);
    return finish(verb, code);
}

/* For building: the manual pages. */
static int hidden_man(int argc, char *argv[]) {
    struct bw_error err = BW_ERROR_INIT;
    int rc = 0;
    if (argc == 0)
        cli_man_list();
    else
        rc = cli_man_print(argv[0], &err);
    return finish(NULL, rc < 0 ? failure(NULL, rc, &err) : 0);
}

/* A standard stream that the caller has closed stays useless: else the next file that is opened gets its number, and
 * what is printed lands in it. What is written to these fails. */
static void keep_streams(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int main(int argc, char *argv[]) {
    keep_streams();
    (void)signal(SIGPIPE, SIG_IGN); /* a reader that has gone is a write error, and that a failure */
    (void)setlocale(LC_CTYPE, "C.UTF-8");
    if (argc < 2) return usage_failure(NULL, "expected a verb");
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        cli_help_print();
        return finish(NULL, 0);
    }
    if (strcmp(word, "--version") == 0) word = "version";
    if (strcmp(word, "__man") == 0) return hidden_man(argc - 2, argv + 2);
    const struct cli_verb *verb = cli_verb_find(word);
    if (verb != NULL) return run_verb(verb, argc - 2, argv + 2);
    if (word[0] == '-') return usage_failure(NULL, "expected a verb before the options");
    return unknown_verb(word);
}
