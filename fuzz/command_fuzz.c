/* SPDX-License-Identifier: Apache-2.0 */
/* The command line: words to values, and what is printed of text and numbers that others chose. Words are separated by
 * NUL. Reaches src/cli/args.c src/cli/args_values.c src/cli/tiers.c src/cli/out.c src/cli/out_table.c src/cli/table.c
 */
#include "cli/args.h"
#include "cli/export.h"
#include "cli/out.h"
#include "cli/tiers.h"
#include "fuzz.h"
#include <stdio.h>

enum { WORDS_MAX = 24 };

static void read_values(const char *word) {
    struct bw_error err = BW_ERROR_INIT;
    struct cli_choice choice;
    uint64_t n;
    char text[32];
    if (cli_parse_u64(word, &n)) {
        (void)snprintf(text, sizeof text, "%llu", (unsigned long long)n);
        fuzz_require(strcmp(text, word + (strspn(word, "0") < strlen(word) ? strspn(word, "0") : strlen(word) - 1)) ==
                     0);
    }
    (void)cli_parse_bytes(word, &n);
    (void)cli_parse_duration(word, &n);
    if (cli_choice_parse(word, &choice, &err) == 0)
        fuzz_require(choice.by_id ? strcmp(choice.id, word) == 0 : choice.step <= BW_STEP_MAX);
    else
        fuzz_require(err.message[0] != '\0');
}

/* Nothing on the terminal but what can be seen; and a file's name that stays in its folder. */
static void print_name(const char *word) {
    struct cli_buf b = {0};
    cli_buf_escaped(&b, word);
    for (size_t i = 0; i < b.len;) {
        uint32_t cp = 0;
        const size_t one = cli_utf8(b.data + i, b.len - i, &cp);
        fuzz_require(one > 0 && cp >= 0x20 && cp != 0x7f && !(cp >= 0x80 && cp < 0xa0));
        i += one;
    }
    (void)cli_width(word);
    cli_buf_fini(&b);
    cli_percent_encode(&b, word);
    fuzz_require(b.data[0] != '.' && strchr(b.data, '/') == NULL);
    cli_buf_fini(&b);
}

static void print_numbers(struct fuzz_input *in) {
    char text[CLI_TEXT_BYTES];
    const uint64_t a = fuzz_take(in, 8), b = fuzz_take(in, 8);
    fuzz_require(strlen(cli_bytes_text(a, text)) < sizeof text);
    fuzz_require(strlen(cli_age_text((int64_t)a, (int64_t)b, text)) < sizeof text && (a == 0 || text[0] != '-'));
    fuzz_require(strlen(cli_time_text((int64_t)a, text)) < sizeof text);
}

static void parse(const struct cli_verb *verb, int argc, char *const argv[]) {
    struct cli_args args;
    struct bw_error err = BW_ERROR_INIT;
    if (cli_args_parse(verb, argc, argv, &args, &err) < 0) {
        fuzz_failed(err);
        return;
    }
    fuzz_require(args.operand_count <= (size_t)argc && args.use_count <= (size_t)argc);
    for (int i = 0; i < argc; i++) (void)cli_tensor_chosen(&args, argv[i]);
    cli_args_fini(&args);
}

/* 16 bytes of numbers, one that chooses the verb, and the words. */
void fuzz_one(uint8_t *data, size_t size) {
    struct fuzz_input in = {data, size};
    char *words[WORDS_MAX];
    int count = 0;
    if (size < 17) return;
    print_numbers(&in);
    size_t verb = fuzz_take(&in, 1);
    char *text = fuzz_text(in.at, in.left);
    for (size_t at = 0; at < in.left && count < WORDS_MAX; at += strlen(text + at) + 1) words[count++] = text + at;
    for (int i = 0; i < count; i++) {
        read_values(words[i]);
        print_name(words[i]);
    }
    size_t verbs = 0;
    while (cli_verbs[verbs].name != NULL) verbs++;
    parse(&cli_verbs[verb % verbs], count, words);
    free(text);
}
