/* SPDX-License-Identifier: Apache-2.0 */
/* --help and usage lines. */
#include <stdio.h>
#include <string.h>

#include "cli/help.h"

enum { WIDTH = 80, INDENT = 2, HELP_COLUMN = 26 };

void cli_usage_line(struct cli_buf *b, const struct cli_verb *verb) {
    cli_buf_printf(b, "breakwater %s [OPTION]...", verb->name);
    for (const struct cli_operand *o = verb->operands; o != NULL && o->name != NULL; o++)
        cli_buf_printf(b, o->optional ? " [%s]%s" : " %s%s", o->name, o->many ? "..." : "");
}

void cli_option_text(struct cli_buf *b, enum cli_opt opt) {
    const struct cli_option *o = &cli_options[opt];
    cli_buf_printf(b, "--%s", o->name);
    if (o->value != NULL) cli_buf_printf(b, " %s", o->value);
}

/* Prints words with line breaks; `column` is where the cursor stands. Ends the line. */
static void print_wrapped(const char *text, size_t column, size_t indent) {
    bool first = true;
    while (*text != '\0') {
        size_t n = strcspn(text, " ");
        if (!first && column + 1 + n > WIDTH) {
            (void)printf("\n%*s", (int)indent, "");
            column = indent;
            first = true;
        }
        if (!first) {
            (void)fputc(' ', stdout);
            column++;
        }
        (void)printf("%.*s", (int)n, text);
        column += n;
        first = false;
        text += n;
        text += strspn(text, " ");
    }
    (void)fputc('\n', stdout);
}

static void print_item(const char *name, const char *help) {
    (void)printf("%*s%s", INDENT, "", name);
    size_t column = INDENT + strlen(name);
    if (column + 2 > HELP_COLUMN) {
        (void)fputc('\n', stdout);
        column = 0;
    }
    (void)printf("%*s", (int)(HELP_COLUMN - column), "");
    print_wrapped(help, HELP_COLUMN, HELP_COLUMN);
}

static void print_option(void *ctx, enum cli_opt opt, const char *help) {
    struct cli_buf name = {0};
    (void)ctx;
    cli_option_text(&name, opt);
    print_item(name.data, help);
    cli_buf_fini(&name);
}

static void print_paragraphs(const char *text) {
    char line[2048];
    while (*text != '\0') {
        const char *end = strstr(text, "\n\n");
        size_t n = end != NULL ? (size_t)(end - text) : strlen(text);
        (void)snprintf(line, sizeof line, "%.*s", (int)n, text);
        print_wrapped(line, 0, 0);
        text += n;
        if (end == NULL) break;
        text += 2;
        (void)fputc('\n', stdout);
    }
}

void cli_help_verb_print(const struct cli_verb *verb) {
    struct cli_buf usage = {0};
    cli_usage_line(&usage, verb);
    (void)printf("usage: %s\n\n", usage.data);
    cli_buf_fini(&usage);
    print_paragraphs(verb->text);
    if (verb->operands != NULL) (void)printf("\nOperands:\n");
    for (const struct cli_operand *o = verb->operands; o != NULL && o->name != NULL; o++) print_item(o->name, o->help);
    (void)printf("\nOptions:\n");
    cli_verb_each_option(verb, print_option, NULL);
    if (verb->examples != NULL) (void)printf("\nExamples:\n");
    for (const struct cli_example *e = verb->examples; e != NULL && e->command != NULL; e++)
        (void)printf("  # %s\n  %s\n", e->help, e->command);
}

void cli_help_print(void) {
    (void)printf("usage: breakwater VERB [OPTION]... [OPERAND]...\n\n%s\n\nVerbs:\n", CLI_BRIEF);
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) print_item(v->name, v->brief);
    (void)printf("\nEvery verb takes --help. Tiers come from --remote URL and --local URL, or from the\n"
                 "environment variables BREAKWATER_REMOTE and BREAKWATER_LOCAL.\n\n"
                 "Exit codes: 0 success, 1 failed, 2 wrong usage, 3 damaged data, 4 not found,\n"
                 "5 superseded by another job or launch.\n");
}
