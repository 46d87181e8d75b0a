/* SPDX-License-Identifier: Apache-2.0 */
/* The pages of section 1 of the manual, made from the table. tools/gen_man.py writes them to doc/man/. */
#include <stdio.h>
#include <string.h>

#include "cli/help.h"

/* Of the last change to a text that the pages are made from; not the day of the build, so that pages stay equal. */
#define MAN_DATE "2026-11-29"

void cli_man_text(FILE *to, const char *text, bool line_start) {
    if (line_start && (*text == '.' || *text == '\'')) (void)fputs("\\&", to);
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            (void)fputs("\\e", to);
        else if (*text == '-')
            (void)fputs("\\-", to);
        else if (*text == '\'')
            (void)fputs("\\(aq", to);
        else
            (void)fputc(*text, to);
    }
}

static void roff(const char *text, bool line_start) {
    cli_man_text(stdout, text, line_start);
}

static void roff_line(const char *text) {
    roff(text, true);
    (void)fputc('\n', stdout);
}

/* Sentences on lines of their own, paragraphs with a macro between them. */
static void roff_paragraphs(const char *text) {
    char line[1024];
    while (*text != '\0') {
        size_t n = 0;
        while (text[n] != '\0' && text[n] != '\n' && !(n > 0 && text[n] == ' ' && strchr(".:", text[n - 1]) != NULL))
            n++;
        (void)snprintf(line, sizeof line, "%.*s", (int)n, text);
        roff_line(line);
        text += n;
        if (strncmp(text, "\n\n", 2) == 0) (void)fputs(".PP\n", stdout);
        text += strspn(text, " \n");
    }
}

static void head(const char *name, const char *brief) {
    (void)printf(".\\\" SPDX-License-Identifier: Apache-2.0\n"
                 ".\\\" Made by tools/gen_man.py from the table of the command. Do not edit.\n.TH \"");
    for (const char *c = name; *c != '\0'; c++) (void)fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, stdout);
    (void)printf("\" 1 \"%s\" \"Breakwater %d.%d.%d\" \"Breakwater Manual\"\n.SH NAME\n", MAN_DATE, BW_VERSION_MAJOR,
                 BW_VERSION_MINOR, BW_VERSION_PATCH);
    roff(name, true);
    (void)fputs(" \\- ", stdout);
    roff_line(brief);
}

static void option_item(void *ctx, enum cli_opt opt, const char *help) {
    const struct cli_option *o = &cli_options[opt];
    (void)ctx;
    (void)fputs(".TP\n\\fB\\-\\-", stdout);
    roff(o->name, false);
    (void)fputs("\\fR", stdout);
    if (o->value != NULL) (void)printf(" \\fI%s\\fR", o->value);
    (void)fputc('\n', stdout);
    roff_paragraphs(help);
}

static void synopsis(const struct cli_verb *verb) {
    (void)printf(".SH SYNOPSIS\n.B breakwater %s\n[\\fIOPTION\\fR]...\n", verb->name);
    for (const struct cli_operand *o = verb->operands; o != NULL && o->name != NULL; o++)
        (void)printf(o->optional ? "[\\fI%s\\fR]%s\n" : "\\fI%s\\fR%s\n", o->name, o->many ? "..." : "");
}

static void environment(void) {
    (void)fputs(".SH ENVIRONMENT\n.TP\n.B BREAKWATER_REMOTE\n"
                "URL of the remote tier, where \\fB\\-\\-remote\\fR is not given.\n"
                ".TP\n.B BREAKWATER_LOCAL\n"
                "URL of the local tier, where \\fB\\-\\-local\\fR is not given.\n",
                stdout);
}

static void exit_status(void) {
    static const char *const texts[] = {"success",      "failed",    "wrong usage",
                                        "damaged data", "not found", "superseded by another job or launch"};
    (void)fputs(".SH EXIT STATUS\n", stdout);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) (void)printf(".TP\n.B %zu\n%s\n", i, texts[i]);
}

static void verb_page(const struct cli_verb *verb) {
    char name[64];
    (void)snprintf(name, sizeof name, "breakwater-%s", verb->name);
    head(name, verb->brief);
    synopsis(verb);
    (void)fputs(".SH DESCRIPTION\n", stdout);
    roff_paragraphs(verb->text);
    if (verb->operands != NULL) (void)fputs(".SH OPERANDS\n", stdout);
    for (const struct cli_operand *o = verb->operands; o != NULL && o->name != NULL; o++) {
        (void)printf(".TP\n.I %s\n", o->name);
        roff_paragraphs(o->help);
    }
    (void)fputs(".SH OPTIONS\n", stdout);
    cli_verb_each_option(verb, option_item, NULL);
    if (verb->tiers) environment();
    exit_status();
    if (verb->examples != NULL) (void)fputs(".SH EXAMPLES\n", stdout);
    for (const struct cli_example *e = verb->examples; e != NULL && e->command != NULL; e++) {
        if (e != verb->examples) (void)fputs(".PP\n", stdout);
        roff_line(e->help);
        (void)fputs(".PP\n.RS 4\n.nf\n", stdout);
        roff_line(e->command);
        (void)fputs(".fi\n.RE\n", stdout);
    }
    (void)fputs(".SH SEE ALSO\n.BR breakwater (1),\n.BR breakwater (7)\n", stdout);
}

static void main_page(void) {
    head("breakwater", CLI_BRIEF);
    (void)fputs(".SH SYNOPSIS\n.B breakwater\n\\fIVERB\\fR [\\fIOPTION\\fR]... [\\fIOPERAND\\fR]...\n.SH DESCRIPTION\n",
                stdout);
    roff_paragraphs(
        "Looks after the checkpoints of training jobs: lists, verifies, compares, exports, prunes and "
        "repairs them. breakwater.7 explains the words and the levels of safety.\n\n"
        "Results go to standard output, diagnoses to standard error. Names that contain control "
        "characters are shown with escapes. Verbs that change something on demand are dry runs unless "
        "--yes is given. On a terminal a long call shows how far it has come.\n\n"
        "A size is a number with an optional unit: K, M, G, T or KiB, MiB, GiB, TiB are powers of 1024; kB, "
        "MB, GB, TB are powers of 1000. A duration is a number with a unit: ms, s, min, h, d, w.");
    (void)fputs(".SH VERBS\n", stdout);
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) {
        (void)printf(".TP\n.BR breakwater\\-%s (1)\n", v->name);
        roff_line(v->brief);
    }
    environment();
    exit_status();
    (void)fputs(".SH SEE ALSO\n.BR breakwater (7)\n", stdout);
}

int cli_man_print(const char *page, struct bw_error *err) {
    const struct cli_verb *verb = cli_verb_find(page);
    if (strcmp(page, "breakwater") == 0)
        main_page();
    else if (verb != NULL)
        verb_page(verb);
    else
        return cli_fail(err, BW_E_NOTFOUND, "no manual page for \"%s\"", page);
    return 0;
}

void cli_man_list(void) {
    (void)puts("breakwater");
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) (void)puts(v->name);
}
