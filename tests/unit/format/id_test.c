/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoint ids, uuids and keys: what is written, what is read back, and all that is refused. */
#include "format/id.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

#define ID "00000000000000001200.3-00c0ffee.2"

static const struct bwi_id SAMPLE = {.step = 1200, .attempt = 3, .nonce = 0x00c0ffee, .tri = 2};

static bool parses(const char *text) {
    struct bwi_id id = {9, 9, 9, 9};
    const bool ok = bwi_id_parse(bwi_span_str(text), &id);
    if (!ok) assert_int_equal(id.step, 9); /* outputs are written on success only */
    return ok;
}

static void an_id_is_written_in_its_canonical_form_and_read_back(void **state) {
    (void)state;
    char text[BWI_ID_TEXT_BYTES];
    struct bwi_id back;
    bwi_id_text(&SAMPLE, text);
    assert_string_equal(text, ID);
    assert_true(bwi_id_parse(bwi_span_str(text), &back));
    assert_true(bwi_id_eq(&back, &SAMPLE));
}

static void the_largest_id_fits_its_buffer(void **state) {
    (void)state;
    const struct bwi_id largest = {INT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    char text[BWI_ID_TEXT_BYTES];
    struct bwi_id back;
    bwi_id_text(&largest, text);
    assert_string_equal(text, "09223372036854775807.4294967295-ffffffff.4294967295");
    assert_true(bwi_id_parse(bwi_span_str(text), &back));
    assert_true(bwi_id_eq(&back, &largest));
}

static void anything_but_the_canonical_form_of_an_id_is_refused(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        ".",
        "..",
        "0",
        "00000000000000001200",
        "1200.3-00c0ffee.2",
        "00000000000000001200.3-00c0ffee",
        "00000000000000001200.3-00c0ffee.",
        "00000000000000001200.3-00c0ffee.02",
        "00000000000000001200.03-00c0ffee.2",
        "00000000000000001200.0-00c0ffee.2",
        "00000000000000001200.3-00C0FFEE.2",
        "00000000000000001200.3-0c0ffee.2",
        "00000000000000001200.3-000c0ffee.2",
        "00000000000000001200.3-00c0ffee.4294967296",
        "00000000000000001200.4294967296-00c0ffee.2",
        "00000000000000001200.3-00c0ffee.2 ",
        " 00000000000000001200.3-00c0ffee.2",
        "00000000000000001200.3-00c0ffee.2/",
        "0000000000000000120x.3-00c0ffee.2",
        "00000000000000001200.+3-00c0ffee.2",
        "00000000000000001200.3.00c0ffee.2",
        "00000000000000001200.-00c0ffee.2",
        "09223372036854775808.3-00c0ffee.2",
        "99999999999999999999.3-00c0ffee.2",
        "000000000000000001200.3-00c0ffee.2",
        "00000000000000001200.3-00c0ffee.-1",
    };
    assert_true(parses(ID));
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        if (parses(bad[i])) fail_msg("\"%s\" was read as an id", bad[i]);
    }
    struct bwi_id id;
    assert_false(bwi_id_parse(bwi_span(ID "\0", sizeof ID), &id)); /* a NUL inside */
    assert_false(bwi_id_parse(BWI_SPAN_NONE, &id));
}

static void ids_are_ordered_by_step_attempt_nonce_and_try(void **state) {
    (void)state;
    const struct bwi_id order[] = {{1, 9, 9, 9}, {2, 1, 9, 9}, {2, 2, 1, 9}, {2, 2, 2, 1}, {2, 2, 2, 2}};
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            const int got = bwi_id_cmp(&order[i], &order[k]);
            assert_int_equal((got > 0) - (got < 0), (i > k) - (i < k));
            assert_int_equal(bwi_id_eq(&order[i], &order[k]), i == k);
        }
    }
}

static void a_uuid_is_32_lower_case_hex_digits(void **state) {
    (void)state;
    const char *text = "00112233445566778899aabbccddeeff";
    struct bwi_uuid u, other;
    char back[BWI_UUID_TEXT_BYTES];
    assert_true(bwi_uuid_parse(bwi_span_str(text), &u));
    bwi_uuid_text(&u, back);
    assert_string_equal(back, text);
    assert_true(bwi_uuid_parse(bwi_span_str("00112233445566778899aabbccddeefe"), &other));
    assert_true(bwi_uuid_eq(&u, &u));
    assert_false(bwi_uuid_eq(&u, &other));
    assert_false(bwi_uuid_parse(bwi_span_str("00112233445566778899AABBCCDDEEFF"), &u));
    assert_false(bwi_uuid_parse(bwi_span_str("00112233445566778899aabbccddeef"), &u));
    assert_false(bwi_uuid_parse(bwi_span_str("00112233445566778899aabbccddeeff0"), &u));
    assert_false(bwi_uuid_parse(bwi_span_str("00112233-4455-6677-8899-aabbccdd"), &u));
}

/* ---- keys ---- */

static struct bwi_sha sample_sha(void) {
    struct bwi_sha s;
    for (unsigned i = 0; i < sizeof s.b; i++) s.b[i] = (uint8_t)(0xa0 + i);
    return s;
}

static void every_kind_of_key_has_the_text_of_the_format(void **state) {
    (void)state;
    const struct bwi_sha sha = sample_sha();
    const uint64_t writer = UINT64_C(0x0123456789abcdef);
    const struct bwi_id *id = &SAMPLE;
    assert_string_equal(bwi_key_run("r").s, "runs/r/");
    assert_string_equal(bwi_key_history("r").s, "runs/r/history/");
    assert_string_equal(bwi_key_entry("r", 1, 42).s, "runs/r/history/000001.00000000000000000042.json");
    assert_string_equal(bwi_key_launches("r").s, "runs/r/launches/");
    assert_string_equal(bwi_key_launch("r", "slurm-77.0").s, "runs/r/launches/slurm-77.0/");
    assert_string_equal(bwi_key_inventory("r", "l", 7).s, "runs/r/launches/l/000007.json");
    assert_string_equal(bwi_key_refusal("r", "l").s, "runs/r/launches/l/refused.json");
    assert_string_equal(bwi_key_layouts("r").s, "runs/r/layouts/");
    assert_string_equal(bwi_key_layouts_of("r", 3, 0xc0ffee).s, "runs/r/layouts/3-00c0ffee/");
    assert_string_equal(bwi_key_layout("r", 3, 0xc0ffee, &sha).s,
                        "runs/r/layouts/3-00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf");
    assert_string_equal(bwi_key_checkpoints("r").s, "runs/r/checkpoints/");
    assert_string_equal(bwi_key_checkpoint("r", id).s, "runs/r/checkpoints/" ID "/");
    assert_string_equal(bwi_key_groups("r", id).s, "runs/r/checkpoints/" ID "/groups/");
    assert_string_equal(bwi_key_summary("r", id, 12).s, "runs/r/checkpoints/" ID "/groups/000012");
    assert_string_equal(bwi_key_failed_dir("r", id).s, "runs/r/checkpoints/" ID "/failed/");
    assert_string_equal(bwi_key_failed("r", id, 12).s, "runs/r/checkpoints/" ID "/failed/000012");
    assert_string_equal(bwi_key_damaged_dir("r", id).s, "runs/r/checkpoints/" ID "/damaged/");
    assert_string_equal(bwi_key_damaged("r", id, 12).s, "runs/r/checkpoints/" ID "/damaged/000012");
    assert_string_equal(bwi_key_manifest("r", id, &sha).s, "runs/r/checkpoints/" ID "/manifest.a0a1a2a3a4a5a6a7.json");
    assert_string_equal(bwi_key_index("r", id, &sha).s, "runs/r/checkpoints/" ID "/index.a0a1a2a3a4a5a6a7");
    assert_string_equal(bwi_key_data("r").s, "runs/r/data/");
    assert_string_equal(bwi_key_data_of("r", false, id, 12).s, "runs/r/data/00/" ID "/000012/");
    assert_string_equal(bwi_key_pack("r", false, id, 12, 10, writer).s,
                        "runs/r/data/00/" ID "/000012/10-0123456789abcdef.safetensors");
    assert_string_equal(bwi_key_content("r", false, id, 12).s, "runs/r/data/00/" ID "/000012/content");
    assert_string_equal(bwi_key_placement("r", false, id, 12, writer).s,
                        "runs/r/data/00/" ID "/000012/placement-0123456789abcdef");
}

static void fan_out_is_the_first_byte_of_the_hash_of_the_six_digits(void **state) {
    (void)state;
    char ff[3];
    bwi_fan_out_text(false, 12, ff);
    assert_string_equal(ff, "00");
    bool spread[256] = {false};
    unsigned used = 0;
    for (uint32_t group = 0; group < 1250; group++) {
        char digits[8];
        char want[3];
        (void)snprintf(digits, sizeof digits, "%06u", group);
        const struct bwi_xxh h = bwi_xxh_of(bwi_span_str(digits));
        (void)snprintf(want, sizeof want, "%02x", h.b[0]);
        bwi_fan_out_text(true, group, ff);
        assert_string_equal(ff, want);
        used += !spread[h.b[0]];
        spread[h.b[0]] = true;
    }
    assert_true(used > 240); /* 1,250 nodes use nearly all of the 256 prefixes */
}

static void a_name_that_was_not_checked_gives_no_key_rather_than_a_cut_one(void **state) {
    (void)state;
    char name[600];
    memset(name, 'a', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_string_equal(bwi_key_run(name).s, "");
    assert_string_equal(bwi_key_pack(name, true, &SAMPLE, 1, 2, 3).s, "");
}

/* Reads a key, and makes it again from its parts: the same text must come out. */
static void assert_key(const struct bwi_key *key, enum bwi_key_kind kind) {
    struct bwi_key_parts p;
    struct bwi_sha sha = {{0}};
    struct bwi_key again = {{0}};
    if (!bwi_key_parse(key->s, &p)) fail_msg("%s was not read", key->s);
    assert_int_equal(p.kind, kind);
    for (size_t i = 0; i < strlen(p.hash) / 2; i++) sha.b[i] = (uint8_t)(0xa0 + i);
    const bool fan_out = strcmp(p.ff, "00") != 0;
    switch (p.kind) {
    case BWI_KEY_ENTRY: again = bwi_key_entry(p.run, p.era, p.n); break;
    case BWI_KEY_INVENTORY: again = bwi_key_inventory(p.run, p.launch, p.group); break;
    case BWI_KEY_REFUSAL: again = bwi_key_refusal(p.run, p.launch); break;
    case BWI_KEY_LAYOUT: again = bwi_key_layout(p.run, p.attempt, p.nonce, &sha); break;
    case BWI_KEY_SUMMARY: again = bwi_key_summary(p.run, &p.id, p.group); break;
    case BWI_KEY_FAILED: again = bwi_key_failed(p.run, &p.id, p.group); break;
    case BWI_KEY_DAMAGED: again = bwi_key_damaged(p.run, &p.id, p.group); break;
    case BWI_KEY_MANIFEST: again = bwi_key_manifest(p.run, &p.id, &sha); break;
    case BWI_KEY_INDEX: again = bwi_key_index(p.run, &p.id, &sha); break;
    case BWI_KEY_PACK: again = bwi_key_pack(p.run, fan_out, &p.id, p.group, (uint32_t)p.n, p.writer); break;
    case BWI_KEY_CONTENT: again = bwi_key_content(p.run, fan_out, &p.id, p.group); break;
    case BWI_KEY_PLACEMENT: again = bwi_key_placement(p.run, fan_out, &p.id, p.group, p.writer); break;
    default: fail_msg("kind %d", (int)p.kind);
    }
    assert_string_equal(again.s, key->s);
}

static void every_key_is_taken_apart_into_what_it_was_made_of(void **state) {
    (void)state;
    char run[129];
    memset(run, 'Z', sizeof run - 1);
    run[sizeof run - 1] = '\0';
    const struct bwi_sha sha = sample_sha();
    const struct bwi_id largest = {INT64_MAX, UINT32_MAX, UINT32_MAX, UINT32_MAX};
    const char *runs[] = {"r", "gpt-4.1_x", run};
    for (size_t i = 0; i < 3; i++) {
        const char *r = runs[i];
        struct bwi_key k;
        k = bwi_key_entry(r, 999999, INT64_MAX), assert_key(&k, BWI_KEY_ENTRY);
        k = bwi_key_inventory(r, run, 999998), assert_key(&k, BWI_KEY_INVENTORY);
        k = bwi_key_refusal(r, run), assert_key(&k, BWI_KEY_REFUSAL);
        k = bwi_key_layout(r, UINT32_MAX, 0, &sha), assert_key(&k, BWI_KEY_LAYOUT);
        k = bwi_key_summary(r, &SAMPLE, 0), assert_key(&k, BWI_KEY_SUMMARY);
        k = bwi_key_failed(r, &SAMPLE, 64), assert_key(&k, BWI_KEY_FAILED);
        k = bwi_key_damaged(r, &largest, 999998), assert_key(&k, BWI_KEY_DAMAGED);
        k = bwi_key_manifest(r, &SAMPLE, &sha), assert_key(&k, BWI_KEY_MANIFEST);
        k = bwi_key_index(r, &largest, &sha), assert_key(&k, BWI_KEY_INDEX);
        k = bwi_key_pack(r, true, &largest, 999998, UINT32_MAX, UINT64_MAX), assert_key(&k, BWI_KEY_PACK);
        k = bwi_key_pack(r, false, &SAMPLE, 0, 0, 0), assert_key(&k, BWI_KEY_PACK);
        k = bwi_key_content(r, true, &SAMPLE, 77), assert_key(&k, BWI_KEY_CONTENT);
        k = bwi_key_placement(r, false, &largest, 77, 1), assert_key(&k, BWI_KEY_PLACEMENT);
    }
}

static const char *const LOOK_LIKE_KEYS[] = {
    "",
    "/",
    "runs",
    "runs/",
    "runs/r",
    "runs/r/",
    "/runs/r/history/000001.00000000000000000001.json",
    "store.json",
    /* runs */
    "runs/../history/000001.00000000000000000001.json",
    "runs/./history/000001.00000000000000000001.json",
    "runs//history/000001.00000000000000000001.json",
    "runs/-r/history/000001.00000000000000000001.json",
    "runs/r r/history/000001.00000000000000000001.json",
    "Runs/r/history/000001.00000000000000000001.json",
    /* history */
    "runs/r/history/",
    "runs/r/history/1.1.json",
    "runs/r/history/000000.00000000000000000001.json",
    "runs/r/history/000001.09223372036854775808.json",
    "runs/r/history/000001.99999999999999999999.json",
    "runs/r/history/000001.00000000000000000001",
    "runs/r/history/000001.00000000000000000001.json.tmp",
    "runs/r/history/000001-00000000000000000001.json",
    "runs/r/history/000001.0000000000000000000a.json",
    "runs/r/history/x/000001.00000000000000000001.json",
    "runs/r/History/000001.00000000000000000001.json",
    /* launches */
    "runs/r/launches/000001.json",
    "runs/r/launches/l/1.json",
    "runs/r/launches/../000001.json",
    "runs/r/launches/l/000001",
    "runs/r/launches/l/999999.json",
    "runs/r/launches/l/x/000001.json",
    /* layouts */
    "runs/r/layouts/3-00c0ffee/",
    "runs/r/layouts/00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    "runs/r/layouts/0-00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    "runs/r/layouts/3-00c0ffee/A0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    "runs/r/layouts/3-00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaea",
    "runs/r/layouts/03-00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    "runs/r/layouts/3_00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    "runs/r/layouts/4294967296-00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    "runs/r/layouts/3-00c0ffee/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf/x",
    "runs/r/layouts/3-00c0ffeg/a0a1a2a3a4a5a6a7a8a9aaabacadaeaf",
    /* checkpoints */
    "runs/r/checkpoints/" ID,
    "runs/r/checkpoints/" ID "/",
    "runs/r/checkpoints/" ID "/groups/",
    "runs/r/checkpoints/" ID "/groups/12",
    "runs/r/checkpoints/" ID "/groups/000012/x",
    "runs/r/checkpoints/" ID "/other/000012",
    "runs/r/checkpoints/" ID "/manifest.json",
    "runs/r/checkpoints/" ID "/manifest.a0a1a2a3a4a5a6a7",
    "runs/r/checkpoints/" ID "/index.a0a1a2a3a4a5a6a7.json",
    "runs/r/checkpoints/" ID "/index.a0a1a2a3a4a5a6a",
    "runs/r/checkpoints/1200/groups/000012",
    "runs/r/checkpoints/" ID "/groups/00001x",
    /* data */
    "runs/r/data/00/" ID "/000012/",
    "runs/r/data/00/" ID "/000012/Content",
    "runs/r/data/0/" ID "/000012/content",
    "runs/r/data/zz/" ID "/000012/content",
    "runs/r/data/" ID "/000012/content",
    "runs/r/data/00/" ID "/12/content",
    "runs/r/data/00/" ID "/000012/placement-",
    "runs/r/data/00/" ID "/000012/placement-123456789abcdef",
    "runs/r/data/00/" ID "/000012/placement-0123456789ABCDEF",
    "runs/r/data/00/" ID "/000012/0123456789abcdef.safetensors",
    "runs/r/data/00/" ID "/000012/-0123456789abcdef.safetensors",
    "runs/r/data/00/" ID "/000012/00-0123456789abcdef.safetensors",
    "runs/r/data/00/" ID "/000012/+1-0123456789abcdef.safetensors",
    "runs/r/data/00/" ID "/000012/1-0123456789abcdef.safetensor",
    "runs/r/data/00/" ID "/000012/4294967296-0123456789abcdef.safetensors",
    "runs/r/data/00/" ID "/000012/1-00123456789abcdef.safetensors",
    "runs/r/data/00/" ID "/000012/../000012/content",
    "runs/r/data/00/../000012/content",
    "runs/r/data/00/" ID "/000012/x/content",
    "runs/r/data/00/" ID "/000012/content/",
    "runs/r/data/00/" ID "/000012/content ",
};

static void keys_that_only_look_like_keys_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof LOOK_LIKE_KEYS / sizeof LOOK_LIKE_KEYS[0]; i++) {
        struct bwi_key_parts p;
        if (bwi_key_parse(LOOK_LIKE_KEYS[i], &p)) fail_msg("\"%s\" was read as a key", LOOK_LIKE_KEYS[i]);
    }
    struct bwi_key_parts p;
    assert_false(bwi_key_parse(NULL, &p));
}

static void the_fan_out_of_another_group_is_refused(void **state) {
    (void)state;
    struct bwi_key key = bwi_key_content("r", true, &SAMPLE, 12);
    struct bwi_key_parts p;
    assert_true(bwi_key_parse(key.s, &p));
    char *ff = key.s + strlen("runs/r/data/");
    ff[1] = ff[1] == '1' ? '2' : '1';
    ff[0] = ff[0] == '1' ? '2' : '1';
    assert_false(bwi_key_parse(key.s, &p));
}

static void names_that_are_too_long_are_refused(void **state) {
    (void)state;
    char key[2048];
    char name[1000];
    memset(name, 'a', sizeof name - 1);
    struct bwi_key_parts p;
    for (size_t n = 120; n < sizeof name - 1; n++) {
        name[n] = '\0';
        (void)snprintf(key, sizeof key, "runs/%s/history/000001.00000000000000000001.json", name);
        assert_int_equal(bwi_key_parse(key, &p), n <= 128);
        (void)snprintf(key, sizeof key, "runs/r/launches/%s/000001.json", name);
        assert_int_equal(bwi_key_parse(key, &p), n <= 128);
        name[n] = 'a';
    }
}

static void no_single_changed_character_gives_another_text_for_the_same_parts(void **state) {
    (void)state;
    const struct bwi_key good = bwi_key_pack("r", true, &SAMPLE, 12, 3, 4);
    for (size_t at = 0; at < strlen(good.s); at++) {
        for (int c = 1; c < 256; c++) {
            struct bwi_key k = good;
            struct bwi_key_parts p;
            k.s[at] = (char)c;
            if (!bwi_key_parse(k.s, &p)) continue;
            assert_int_equal(p.kind, BWI_KEY_PACK);
            const bool fan_out = strcmp(p.ff, "00") != 0;
            assert_string_equal(bwi_key_pack(p.run, fan_out, &p.id, p.group, (uint32_t)p.n, p.writer).s, k.s);
        }
    }
}

static void the_name_of_an_entry_is_read_alone(void **state) {
    (void)state;
    uint32_t era = 5;
    uint64_t n = 6;
    assert_false(bwi_entry_name_parse("000001.00000000000000000042.tmp", &era, &n));
    assert_false(bwi_entry_name_parse(NULL, &era, &n));
    assert_int_equal(era, 5);
    assert_int_equal(n, 6);
    assert_true(bwi_entry_name_parse("000012.00000000000000000042.json", &era, &n));
    assert_int_equal(era, 12);
    assert_int_equal(n, 42);
    assert_true(bwi_entry_name_parse("000013.00000000000000000043.json/", &era, &n)); /* a directory in its place */
    assert_int_equal(era, 13);
    assert_int_equal(n, 43);
    assert_false(bwi_entry_name_parse("000013.00000000000000000043.json//", &era, &n));
    assert_false(bwi_entry_name_parse("/", &era, &n));
    assert_false(bwi_entry_name_parse("", &era, &n));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_written_in_its_canonical_form_and_read_back),
        cmocka_unit_test(the_largest_id_fits_its_buffer),
        cmocka_unit_test(anything_but_the_canonical_form_of_an_id_is_refused),
        cmocka_unit_test(ids_are_ordered_by_step_attempt_nonce_and_try),
        cmocka_unit_test(a_uuid_is_32_lower_case_hex_digits),
        cmocka_unit_test(every_kind_of_key_has_the_text_of_the_format),
        cmocka_unit_test(fan_out_is_the_first_byte_of_the_hash_of_the_six_digits),
        cmocka_unit_test(a_name_that_was_not_checked_gives_no_key_rather_than_a_cut_one),
        cmocka_unit_test(every_key_is_taken_apart_into_what_it_was_made_of),
        cmocka_unit_test(keys_that_only_look_like_keys_are_refused),
        cmocka_unit_test(the_fan_out_of_another_group_is_refused),
        cmocka_unit_test(names_that_are_too_long_are_refused),
        cmocka_unit_test(no_single_changed_character_gives_another_text_for_the_same_parts),
        cmocka_unit_test(the_name_of_an_entry_is_read_alone),
    };
    return cmocka_run_group_tests_name("id", tests, NULL, NULL);
}
