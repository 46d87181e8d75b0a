/* SPDX-License-Identifier: Apache-2.0 */
/* The hashes against published values, and streaming against one call. */
#include "base/text.h"
#include "hash/hash.h"
#include "test.h"
#include <stdio.h>
#include <string.h>

#define BULK 70000

static void assert_xxh(const struct bwi_xxh *h, const char *want) {
    char text[33];
    bwi_hex_encode(h->b, sizeof h->b, text);
    assert_string_equal(text, want);
}

static void assert_sha(const struct bwi_sha *h, const char *want) {
    char text[BWI_SHA_HEX_BYTES];
    bwi_sha_hex(h, text);
    assert_string_equal(text, want);
}

static void sha256_gives_the_published_values(void **state) {
    (void)state;
    /* FIPS 180-4 examples and the NIST test vectors. */
    const char *long_one = "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmn"
                           "opqrsmnopqrstnopqrstu";
    const struct {
        const char *in, *want;
    } vectors[] = {
        {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {long_one, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct bwi_sha h = bwi_sha_of(bwi_span_str(vectors[i].in));
        assert_sha(&h, vectors[i].want);
    }
}

static void sha256_of_a_million_letters_is_the_published_value(void **state) {
    (void)state;
    char letters[1000];
    memset(letters, 'a', sizeof letters);
    struct bwi_sha_state s;
    bwi_sha_init(&s);
    for (int i = 0; i < 1000; i++) bwi_sha_update(&s, letters, sizeof letters);
    const struct bwi_sha h = bwi_sha_final(&s);
    assert_sha(&h, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

static void xxh3_gives_the_published_values(void **state) {
    (void)state;
    const struct bwi_xxh none = bwi_xxh_of(BWI_SPAN_NONE);
    assert_xxh(&none, "99aa06d3014798d86001c324468d497f");
    const struct bwi_xxh a = bwi_xxh_of(bwi_span_str("a"));
    assert_xxh(&a, "a96faf705af16834e6c632b61e964e1f");
    const struct bwi_xxh abc = bwi_xxh_of(bwi_span_str("abc"));
    assert_xxh(&abc, "06b05ab6733a618578af5f94892f3950");
}

/* The buffer of xxHash's own sanity check, and its values for XXH3-128 without a seed. */
static void xxh3_passes_the_sanity_check_of_its_makers(void **state) {
    (void)state;
    uint8_t buf[2367];
    uint64_t gen = UINT64_C(2654435761);
    for (size_t i = 0; i < sizeof buf; i++) {
        buf[i] = (uint8_t)(gen >> 56);
        gen *= UINT64_C(11400714785074694797);
    }
    const struct {
        size_t len;
        const char *want;
    } vectors[] = {
        {1, "a6cd5e9392000f6ac44bdff4074eecdb"},    {6, "082afe0b8162d12a3e7039bdda43cfc6"},
        {12, "6e3efd8fc7802b18061a192713f69ad9"},   {24, "0ce966e4678d37611e7044d28b1b901d"},
        {48, "a002ac4e5478227ef942219aed80f67b"},   {222, "337e09641b948717f1aebd597cec6b3a"},
        {403, "1b6de21e332dd73dcdeb804d65c6dea4"},  {512, "18d2d110dcc9bca1617e49599013cb6b"},
        {2367, "e89c0f6ff369b427cb37aeb9e5d361ed"},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        const struct bwi_xxh h = bwi_xxh_of(bwi_span(buf, vectors[i].len));
        assert_xxh(&h, vectors[i].want);
    }
}

static void streaming_gives_the_same_as_one_call_however_it_is_cut(void **state) {
    (void)state;
    static uint8_t bulk[BULK];
    uint64_t rng = test_seed(1);
    for (size_t i = 0; i < BULK; i++) bulk[i] = (uint8_t)test_random(&rng);
    const size_t cuts[] = {1, 7, 63, 64, 65, 255, 256, 257, 4096, BULK};
    const size_t lengths[] = {0, 1, 16, 17, 128, 129, 240, 241, 255, 256, 257, 1024, 1025, BULK};
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
        const struct bwi_span all = bwi_span(bulk, lengths[l]);
        const struct bwi_xxh xxh = bwi_xxh_of(all);
        const struct bwi_sha sha = bwi_sha_of(all);
        for (size_t c = 0; c < sizeof cuts / sizeof cuts[0]; c++) {
            struct bwi_xxh_state x;
            struct bwi_sha_state s;
            memset(&x, 0xa5, sizeof x); /* whatever the memory held before */
            memset(&s, 0xa5, sizeof s);
            bwi_xxh_init(&x);
            bwi_sha_init(&s);
            for (size_t at = 0; at < all.len; at += cuts[c]) {
                const size_t n = all.len - at < cuts[c] ? all.len - at : cuts[c];
                bwi_xxh_update(&x, bulk + at, n);
                bwi_sha_update(&s, bulk + at, n);
            }
            bwi_xxh_update(&x, NULL, 0);
            bwi_sha_update(&s, NULL, 0);
            const struct bwi_xxh got_xxh = bwi_xxh_final(&x);
            const struct bwi_sha got_sha = bwi_sha_final(&s);
            assert_true(bwi_xxh_eq(&xxh, &got_xxh));
            assert_true(bwi_sha_eq(&sha, &got_sha));
        }
    }
}

/* Processors with wide registers want the state on multiples of their size; an allocator gives less. */
static void a_state_may_lie_anywhere(void **state) {
    (void)state;
    static uint8_t bulk[4096];
    _Alignas(64) uint8_t room[sizeof(struct bwi_xxh_state) + 64];
    const struct bwi_xxh want = bwi_xxh_of(bwi_span(bulk, sizeof bulk));
    for (size_t at = 0; at < 64; at++) {
        struct bwi_xxh_state *s = (void *)(room + at);
        memset(room, 0xa5, sizeof room);
        bwi_xxh_init(s);
        bwi_xxh_update(s, bulk, sizeof bulk);
        const struct bwi_xxh got = bwi_xxh_final(s);
        assert_true(bwi_xxh_eq(&want, &got));
    }
}

static void an_intermediate_result_does_not_end_the_stream(void **state) {
    (void)state;
    struct bwi_xxh_state s;
    bwi_xxh_init(&s);
    bwi_xxh_update(&s, "a", 1);
    const struct bwi_xxh a = bwi_xxh_final(&s);
    assert_xxh(&a, "a96faf705af16834e6c632b61e964e1f");
    bwi_xxh_update(&s, "bc", 2);
    const struct bwi_xxh abc = bwi_xxh_final(&s);
    assert_xxh(&abc, "06b05ab6733a618578af5f94892f3950");
}

static void one_flipped_bit_is_seen(void **state) {
    (void)state;
    uint8_t buf[300];
    memset(buf, 0x5a, sizeof buf);
    const struct bwi_xxh xxh = bwi_xxh_of(bwi_span(buf, sizeof buf));
    const struct bwi_sha sha = bwi_sha_of(bwi_span(buf, sizeof buf));
    for (size_t bit = 0; bit < 8 * sizeof buf; bit++) {
        buf[bit / 8] = (uint8_t)(buf[bit / 8] ^ 1u << bit % 8);
        const struct bwi_xxh other_xxh = bwi_xxh_of(bwi_span(buf, sizeof buf));
        const struct bwi_sha other_sha = bwi_sha_of(bwi_span(buf, sizeof buf));
        assert_false(bwi_xxh_eq(&xxh, &other_xxh));
        assert_false(bwi_sha_eq(&sha, &other_sha));
        buf[bit / 8] = (uint8_t)(buf[bit / 8] ^ 1u << bit % 8);
    }
}

static void a_sha_is_parsed_from_its_one_spelling(void **state) {
    (void)state;
    const char *text = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    struct bwi_sha h = {{0}};
    assert_true(bwi_sha_is_zero(&h));
    assert_false(bwi_sha_parse(text, 63, &h));
    assert_false(bwi_sha_parse("BA7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad", 64, &h));
    assert_false(bwi_sha_parse("", 0, &h));
    assert_true(bwi_sha_is_zero(&h)); /* untouched by what was refused */
    assert_true(bwi_sha_parse(text, 64, &h));
    assert_false(bwi_sha_is_zero(&h));
    const struct bwi_sha abc = bwi_sha_of(bwi_span_str("abc"));
    assert_true(bwi_sha_eq(&h, &abc));
    struct bwi_sha last = {{0}};
    last.b[31] = 1;
    assert_false(bwi_sha_is_zero(&last));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sha256_gives_the_published_values),
        cmocka_unit_test(sha256_of_a_million_letters_is_the_published_value),
        cmocka_unit_test(xxh3_gives_the_published_values),
        cmocka_unit_test(xxh3_passes_the_sanity_check_of_its_makers),
        cmocka_unit_test(streaming_gives_the_same_as_one_call_however_it_is_cut),
        cmocka_unit_test(a_state_may_lie_anywhere),
        cmocka_unit_test(an_intermediate_result_does_not_end_the_stream),
        cmocka_unit_test(one_flipped_bit_is_seen),
        cmocka_unit_test(a_sha_is_parsed_from_its_one_spelling),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
