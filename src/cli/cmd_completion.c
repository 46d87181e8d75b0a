/* SPDX-License-Identifier: Apache-2.0 */
/* breakwater completion: scripts for bash, zsh and fish, made from the table. */
#include <stdio.h>
#include <string.h>

#include "cli/args.h"
#include "cli/help.h"

/* The first sentence of a help text, without its full stop, inside single quotes; `escape` gets a backslash. */
static void quoted_sentence(const char *text, const char *escape) {
    const char *end = strstr(text, ". ");
    size_t n = end != NULL ? (size_t)(end - text) : strlen(text);
    if (end == NULL && n > 0 && text[n - 1] == '.') n--;
    for (size_t i = 0; i < n; i++) {
        if (text[i] == '\'')
            (void)fputs("'\\''", stdout);
        else if (strchr(escape, text[i]) != NULL)
            (void)printf("\\%c", text[i]);
        else
            (void)fputc(text[i], stdout);
    }
}

static void words_of_verbs(void) {
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++)
        (void)printf("%s%s", v != cli_verbs ? " " : "", v->name);
}

static void bash_option(void *ctx, enum cli_opt opt, const char *help) {
    (void)ctx;
    (void)help;
    (void)printf(" --%s", cli_options[opt].name);
}

/* Options with a value, for "after this comes no option": folders first. */
static void bash_values(void) {
    const char *bar = "";
    (void)printf("        ");
    for (size_t i = 0; i < OPT_COUNT; i++) {
        if (cli_options[i].kind != KIND_FOLDER) continue;
        (void)printf("%s--%s", bar, cli_options[i].name);
        bar = "|";
    }
    (void)printf(")\n            compopt -o filenames\n            COMPREPLY=($(compgen -d -- \"$cur\"))\n            "
                 "return ;;\n        ");
    bar = "";
    for (size_t i = 0; i < OPT_COUNT; i++) {
        if (cli_options[i].value == NULL || cli_options[i].kind == KIND_FOLDER) continue;
        (void)printf("%s--%s", bar, cli_options[i].name);
        bar = "|";
    }
    (void)printf(")\n            return ;;\n");
}

static bool takes_files(const struct cli_verb *verb) {
    for (const struct cli_operand *o = verb->operands; o != NULL && o->name != NULL; o++)
        if (o->file) return true;
    return false;
}

static void bash_script(void) {
    (void)printf("# bash completion of breakwater; made by \"breakwater completion bash\"\n"
                 "_breakwater() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words='' files=''\n"
                 "    COMPREPLY=()\n"
                 "    if ((COMP_CWORD == 1)); then\n        COMPREPLY=($(compgen -W \"");
    words_of_verbs();
    (void)printf(" --help --version\" -- \"$cur\"))\n        return\n    fi\n    case $prev in\n");
    bash_values();
    (void)printf("    esac\n    case ${COMP_WORDS[1]} in\n");
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) {
        (void)printf("        %s) words='", v->name);
        cli_verb_each_option(v, bash_option, NULL);
        (void)printf("'%s ;;\n", takes_files(v) ? " files=1" : "");
    }
    (void)printf("    esac\n"
                 "    if [[ $cur == -* ]]; then\n"
                 "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                 "    elif [[ -n $files ]]; then\n"
                 "        compopt -o filenames\n"
                 "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
                 "    elif [[ ${COMP_WORDS[1]} == help ]]; then\n"
                 "        COMPREPLY=($(compgen -W \"");
    words_of_verbs();
    (void)printf("\" -- \"$cur\"))\n"
                 "    elif [[ ${COMP_WORDS[1]} == completion ]]; then\n"
                 "        COMPREPLY=($(compgen -W \"bash zsh fish\" -- \"$cur\"))\n"
                 "    fi\n}\ncomplete -F _breakwater breakwater\n");
}

static void zsh_option(void *ctx, enum cli_opt opt, const char *help) {
    const struct cli_option *o = &cli_options[opt];
    (void)ctx;
    (void)printf(" \\\n                '%s--%s%s[", o->many ? "*" : "", o->name, o->value != NULL ? "=" : "");
    quoted_sentence(help, "[]:\\");
    (void)printf("]%s%s%s'", o->value != NULL ? ":" : "", o->value != NULL ? o->value : "",
                 o->kind == KIND_FOLDER ? ":_files -/"
                 : o->value != NULL     ? ": "
                                        : "");
}

static void zsh_operands(const struct cli_verb *verb) {
    for (const struct cli_operand *o = verb->operands; o != NULL && o->name != NULL; o++) {
        const char *action = o->file ? "_files" : strcmp(o->name, "SHELL") == 0 ? "(bash zsh fish)" : " ";
        (void)printf(" \\\n                '%s:%s:", o->many ? "*" : o->optional ? ":" : "", o->name);
        if (strcmp(o->name, "VERB") == 0) {
            (void)fputs("(", stdout);
            words_of_verbs();
            action = ")";
        }
        (void)printf("%s'", action);
    }
}

static void zsh_script(void) {
    (void)printf("#compdef breakwater\n# made by \"breakwater completion zsh\"\n"
                 "_breakwater() {\n    local -a verbs\n    verbs=(\n");
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) {
        (void)printf("        '%s:", v->name);
        quoted_sentence(v->brief, ":\\");
        (void)printf("'\n");
    }
    (void)printf("    )\n"
                 "    if ((CURRENT == 2)); then\n        _describe -t verbs verb verbs\n        return\n    fi\n"
                 "    local verb=$words[2]\n    shift words\n    ((CURRENT--))\n    case $verb in\n");
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) {
        (void)printf("        %s)\n            _arguments", v->name);
        cli_verb_each_option(v, zsh_option, NULL);
        zsh_operands(v);
        (void)printf(" ;;\n");
    }
    (void)printf("    esac\n}\n"
                 "if [[ $funcstack[1] == _breakwater ]]; then\n    _breakwater \"$@\"\nelse\n"
                 "    compdef _breakwater breakwater\nfi\n");
}

static void fish_option(void *ctx, enum cli_opt opt, const char *help) {
    const struct cli_option *o = &cli_options[opt];
    const struct cli_verb *verb = ctx;
    (void)printf("complete -c breakwater -n '__fish_seen_subcommand_from %s' -l %s%s -d '", verb->name, o->name,
                 o->kind == KIND_FOLDER ? " -r -F"
                 : o->value != NULL     ? " -x"
                                        : "");
    quoted_sentence(help, "");
    (void)printf("'\n");
}

static void fish_script(void) {
    (void)printf("# fish completion of breakwater; made by \"breakwater completion fish\"\n"
                 "complete -c breakwater -f\n");
    for (const struct cli_verb *v = cli_verbs; v->name != NULL; v++) {
        (void)printf("complete -c breakwater -n __fish_use_subcommand -a %s -d '", v->name);
        quoted_sentence(v->brief, "");
        (void)printf("'\n");
        struct cli_verb copy = *v;
        cli_verb_each_option(v, fish_option, &copy);
        if (takes_files(v)) (void)printf("complete -c breakwater -n '__fish_seen_subcommand_from %s' -F\n", v->name);
    }
    (void)printf("complete -c breakwater -n '__fish_seen_subcommand_from help' -a '");
    words_of_verbs();
    (void)printf("'\ncomplete -c breakwater -n '__fish_seen_subcommand_from completion' -a 'bash zsh fish'\n");
}

int cmd_completion(const struct cli_args *args, struct bw_error *err) {
    static const struct {
        const char *shell;
        void (*print)(void);
    } scripts[] = {{"bash", bash_script}, {"zsh", zsh_script}, {"fish", fish_script}};
    const char *shell = cli_operand(args, 0);
    for (size_t i = 0; i < sizeof scripts / sizeof scripts[0]; i++) {
        if (strcmp(shell, scripts[i].shell) != 0) continue;
        scripts[i].print();
        return 0;
    }
    return cli_usage(err, "SHELL: expected bash, zsh or fish, found \"%s\"", shell);
}
