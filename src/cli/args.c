/* SPDX-License-Identifier: Apache-2.0 */
/* The parser of command lines: GNU long options, anywhere, "--name value" or "--name=value", "--" ends them. */
#include <stdlib.h>
#include <string.h>

#include "cli/args.h"
#include "cli/out.h"

struct parser {
    struct cli_args *args;
    int argc;
    char *const *argv;
    int at;
};

static int check_value(struct cli_args *args, enum cli_opt opt, const char *text, struct bw_error *err) {
    const struct cli_option *o = &cli_options[opt];
    uint64_t n = 0;
    const char *want = NULL;
    switch (o->kind) {
    case KIND_FLAG: break;
    case KIND_TEXT:
    case KIND_FOLDER:
        if (text[0] == '\0') want = "a text that is not empty";
        break;
    case KIND_COUNT:
        if (!cli_parse_u64(text, &n) || n == 0 || n > UINT32_MAX) want = "a number from 1 to 4294967295";
        break;
    case KIND_STEP:
        if (!cli_parse_u64(text, &n) || n > BW_STEP_MAX) want = "a number from 0 to 9223372036854775807";
        break;
    case KIND_BYTES:
        if (!cli_parse_bytes(text, &n) || n == 0) want = "a size such as 4096, 256MiB or 5GB";
        break;
    case KIND_DURATION:
        if (!cli_parse_duration(text, &n)) want = "a duration such as 90s, 15min, 12h or 7d";
        break;
    }
    if (want != NULL) return cli_usage(err, "--%s: expected %s, found \"%s\"", o->name, want, text);
    args->opt[opt].number = n;
    return 0;
}

static int take_value(struct parser *p, enum cli_opt opt, const char *text, struct bw_error *err) {
    struct cli_args *args = p->args;
    int rc = check_value(args, opt, text, err);
    if (rc < 0) return rc;
    if (args->opt[opt].set && !cli_options[opt].many && cli_options[opt].value != NULL)
        return cli_usage(err, "--%s: given twice", cli_options[opt].name);
    args->opt[opt].set = true;
    args->opt[opt].text = text;
    if (cli_options[opt].many) args->uses[args->use_count++] = (struct cli_use){opt, text};
    return 0;
}

static int unknown_option(const struct cli_verb *verb, const char *word, size_t n, struct bw_error *err) {
    const char *names[OPT_COUNT + 1];
    size_t count = 0;
    char name[64];
    for (size_t i = 0; i < OPT_COUNT; i++)
        if (cli_verb_option_help(verb, (enum cli_opt)i) != NULL) names[count++] = cli_options[i].name;
    names[count] = NULL;
    size_t fits = n < sizeof name - 1 ? n : sizeof name - 1;
    memcpy(name, word, fits);
    name[fits] = '\0';
    const char *near = cli_nearest(name, names);
    return cli_usage(err, "unknown option \"--%s\"%s%s%s", name, near != NULL ? "; did you mean \"--" : "",
                     near != NULL ? near : "", near != NULL ? "\"?" : "");
}

/* Options have no short form. -o is what others call the place that is written to. */
static int unknown_short(const struct cli_verb *verb, const char *word, struct bw_error *err) {
    bool output = word[1] == 'o' && cli_verb_option_help(verb, OPT_TO) != NULL;
    return cli_usage(err, "unknown option \"%s\"%s", word, output ? "; did you mean \"--to\"?" : "");
}

/* An option of the table that this verb has, or OPT_COUNT. */
static enum cli_opt find_option(const struct cli_verb *verb, const char *word, size_t n) {
    for (size_t i = 0; i < OPT_COUNT; i++) {
        const char *name = cli_options[i].name;
        if (strlen(name) == n && memcmp(name, word, n) == 0 && cli_verb_option_help(verb, (enum cli_opt)i) != NULL)
            return (enum cli_opt)i;
    }
    return OPT_COUNT;
}

static int parse_long(struct parser *p, const char *word, struct bw_error *err) {
    size_t n = strcspn(word, "=");
    enum cli_opt opt = find_option(p->args->verb, word, n);
    if (opt == OPT_COUNT) return unknown_option(p->args->verb, word, n, err);
    if (cli_options[opt].value == NULL) {
        if (word[n] == '=') return cli_usage(err, "--%s: takes no value", cli_options[opt].name);
        return take_value(p, opt, "", err);
    }
    if (word[n] == '=') return take_value(p, opt, word + n + 1, err);
    if (p->at >= p->argc)
        return cli_usage(err, "--%s: expected a value %s", cli_options[opt].name, cli_options[opt].value);
    return take_value(p, opt, p->argv[p->at++], err);
}

static int check_operands(const struct cli_args *args, struct bw_error *err) {
    const struct cli_operand *o = args->verb->operands;
    size_t i = 0;
    for (; o != NULL && o->name != NULL; o++, i++) {
        if (i >= args->operand_count && !o->optional) return cli_usage(err, "expected %s", o->name);
        if (o->many) return 0;
    }
    if (args->operand_count > i) return cli_usage(err, "unexpected operand \"%s\"", args->operands[i]);
    return 0;
}

int cli_args_parse(const struct cli_verb *verb, int argc, char *const argv[], struct cli_args *ret,
                   struct bw_error *err) {
    struct cli_args args = {.verb = verb};
    struct parser p = {&args, argc, argv, 0};
    bool options = true;
    int rc = 0;
    args.uses = cli_calloc((size_t)argc + 1, sizeof *args.uses);
    args.operands = cli_calloc((size_t)argc + 1, sizeof *args.operands);
    while (rc == 0 && p.at < argc) {
        const char *word = argv[p.at++];
        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && strcmp(word, "-h") == 0)
            rc = take_value(&p, OPT_HELP, "", err);
        else if (options && strncmp(word, "--", 2) == 0)
            rc = parse_long(&p, word + 2, err);
        else if (options && word[0] == '-' && word[1] != '\0')
            rc = unknown_short(verb, word, err);
        else
            args.operands[args.operand_count++] = word;
    }
    if (rc == 0 && !args.opt[OPT_HELP].set) rc = check_operands(&args, err);
    if (rc < 0)
        cli_args_fini(&args);
    else
        *ret = args;
    return rc;
}

void cli_args_fini(struct cli_args *args) {
    free(args->uses);
    free(args->operands);
    *args = (struct cli_args){0};
}

const char *cli_operand(const struct cli_args *args, size_t i) {
    return i < args->operand_count ? args->operands[i] : NULL;
}
