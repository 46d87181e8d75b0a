/* SPDX-License-Identifier: Apache-2.0 */
/* Placements: round trips, every rule in both directions, damage, and whether one can be followed. */
#include "codec_checks.h"
#include "examples.h"
#include "format/content.h"

#define OWN_TEXT  "00000000000000000007.1-0000002a.0"
#define REF_TEXT  "00000000000000000005.1-0000002a.0"
#define OWN_KEY   "runs/r/data/00/" OWN_TEXT "/000001/0-0123456789abcdef.safetensors"
#define OTHER_KEY "runs/r/data/00/" OWN_TEXT "/000001/1-0123456789abcdef.safetensors"
#define REF_KEY   "runs/r/data/00/" REF_TEXT "/000009/3-00000000000000ff.safetensors"

static const struct bwi_id OWN = {7, 1, 0x2a, 0};
static const struct bwi_id REF = {5, 1, 0x2a, 0};

/* The placement of EXAMPLE_placement, and the content that it belongs to. */
struct sample {
    struct bwi_pack_ref packs[2];
    struct bwi_place places[4];
    struct bwi_placement placement;
    struct bwi_content content;
};

static struct bwi_xxh some_hash(unsigned first) {
    struct bwi_xxh h;
    for (unsigned i = 0; i < sizeof h.b; i++) h.b[i] = (uint8_t)(first + i);
    return h;
}

static void make(struct sample *s) {
    struct bw_error err = BW_ERROR_INIT;
    memset(s, 0, sizeof *s);
    s->packs[0] = (struct bwi_pack_ref){bwi_span_str(OWN_KEY), 4141, 4096, some_hash(0xa0)};
    s->packs[1] = (struct bwi_pack_ref){bwi_span_str(REF_KEY), 8192, 4096, some_hash(0xb0)};
    s->places[0] = (struct bwi_place){0, BWI_CODEC_RAW, 4096, 8, some_hash(0x10)};
    s->places[1] = (struct bwi_place){0, BWI_CODEC_RAW, 4104, 16, some_hash(0x20)};
    s->places[2] = (struct bwi_place){0, BWI_CODEC_RAW, 4120, 16, some_hash(0x30)};
    s->places[3] = (struct bwi_place){0, BWI_CODEC_RAW, 4136, 5, some_hash(0x40)};
    s->placement = (struct bwi_placement){
        .content = bwi_sha_of(EXAMPLE(CONTENT)),
        .writer = UINT64_C(0x0123456789abcdef),
        .pack_count = 1,
        .packs = s->packs,
        .extent_count = 4,
        .places = s->places,
    };
    assert_ok(bwi_content_decode(EXAMPLE(CONTENT), &s->content, &err), &err);
}

static void drop(struct sample *s) {
    bwi_content_fini(&s->content);
}

static int pass(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_placement p = {0};
    int rc = bwi_placement_decode(in, &p, err);
    if (rc == 0) rc = bwi_placement_encode(&p, out, err);
    bwi_placement_fini(&p);
    bwi_placement_fini(&p);
    return rc;
}

static int check(const struct sample *s, struct bw_error *err) {
    return bwi_placement_check(&s->placement, &s->content, "r", &OWN, &REF, 1, err);
}

static void assert_fits(struct sample *s) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_ok(bwi_placement_encode(&s->placement, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    assert_ok(check(s, &err), &err);
    bwi_buf_fini(&out);
}

/* Neither written nor followed. */
static void assert_refused(struct sample *s, int status, const char *message) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_fails(bwi_placement_encode(&s->placement, &out, &err), status, &err, message);
    assert_int_equal(out.len, 0);
    bw_error_clear(&err);
    assert_fails(check(s, &err), BW_E_FORMAT, &err, s->placement.extent_count == 4 ? message : NULL);
    bwi_buf_fini(&out);
    drop(s);
}

/* Written, but not followed. */
static void assert_not_followed(struct sample *s, const char *message) {
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_ok(bwi_placement_encode(&s->placement, &out, &err), &err);
    assert_fails(check(s, &err), BW_E_FORMAT, &err, message);
    bwi_buf_fini(&out);
    drop(s);
}

static void the_example_is_written_byte_for_byte(void **state) {
    (void)state;
    struct sample s;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    make(&s);
    assert_ok(bwi_placement_encode(&s.placement, &out, &err), &err);
    assert_int_equal(out.len, sizeof EXAMPLE_PLACEMENT);
    assert_memory_equal(out.ptr, EXAMPLE_PLACEMENT, out.len);
    assert_fits(&s);
    bwi_buf_fini(&out);
    drop(&s);
}

static void the_example_is_read_field_by_field(void **state) {
    (void)state;
    struct bwi_placement p;
    struct bw_error err = BW_ERROR_INIT;
    const struct bwi_sha content = bwi_sha_of(EXAMPLE(CONTENT));
    const struct bwi_xxh header = some_hash(0xa0);
    assert_ok(bwi_placement_decode(EXAMPLE(PLACEMENT), &p, &err), &err);
    assert_true(bwi_sha_eq(&p.content, &content));
    assert_true(p.writer == UINT64_C(0x0123456789abcdef));
    assert_int_equal(p.pack_count, 1);
    assert_true(bwi_span_eq(p.packs[0].key, bwi_span_str(OWN_KEY)));
    assert_int_equal(p.packs[0].file_bytes, 4141);
    assert_int_equal(p.packs[0].header_bytes, 4096);
    assert_true(bwi_xxh_eq(&p.packs[0].header, &header));
    assert_int_equal(p.extent_count, 4);
    assert_int_equal(p.places[3].offset, 4136);
    assert_int_equal(p.places[3].stored_bytes, 5);
    assert_int_equal(p.places[3].stored.b[0], 0x40);
    bwi_placement_fini(&p);
}

static void a_placement_without_extents_may_have_packs_or_none(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    struct sample s;
    make(&s);
    s.placement.extent_count = 0;
    assert_ok(bwi_placement_encode(&s.placement, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    bwi_buf_reset(&out);
    s.placement.pack_count = 0;
    assert_ok(bwi_placement_encode(&s.placement, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    bwi_buf_fini(&out);
    drop(&s);
}

static void extents_may_lie_in_packs_of_refs_compressed_and_in_any_order(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.placement.pack_count = 2;
    s.places[0] = (struct bwi_place){1, BWI_CODEC_ZSTD, 4200, 30, some_hash(0x55)};
    s.places[1] = (struct bwi_place){0, BWI_CODEC_RAW, 4120, 16, some_hash(0x20)};
    s.places[2] = (struct bwi_place){0, BWI_CODEC_RAW, 4096, 16, some_hash(0x30)};
    s.places[3] = (struct bwi_place){1, BWI_CODEC_ZSTD, 4200, 30, some_hash(0x55)}; /* one and the same place */
    assert_fits(&s);
    drop(&s);
}

/* ---- rules of a placement alone ---- */

static void a_pack_needs_the_key_of_a_pack(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "/etc/passwd",
        "../../x-0123456789abcdef.safetensors",
        "runs/r/data/00/" OWN_TEXT "/000001/content",
        "runs/../data/00/" OWN_TEXT "/000001/0-0123456789abcdef.safetensors",
        "runs/r/data/00/" OWN_TEXT "/000001/../0-0123456789abcdef.safetensors",
        "/" OWN_KEY,
        OWN_KEY "/",
        "runs/r/data/01/" OWN_TEXT "/000001/0-0123456789abcdef.safetensors",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct sample s;
        make(&s);
        s.packs[0].key = bwi_span_str(bad[i]);
        assert_refused(&s, BW_E_INVALID, "placement: pack 0: its key is not the key of a pack");
    }
    struct sample s;
    make(&s);
    s.packs[0].key = bwi_span(OWN_KEY, sizeof OWN_KEY); /* the NUL, too */
    assert_refused(&s, BW_E_INVALID, "its key is not the key of a pack");
    char *endless = calloc(1, 70000);
    memset(endless, 'a', 69999);
    make(&s);
    s.packs[0].key = bwi_span_str(endless);
    assert_refused(&s, BW_E_INVALID, "its key is not the key of a pack");
    free(endless);
}

static void no_pack_is_named_twice(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.packs[1] = s.packs[0];
    s.placement.pack_count = 2;
    assert_refused(&s, BW_E_INVALID, "placement: packs 0 and 1 have the same key");
}

static void a_pack_has_a_header_within_its_file_and_is_not_endless(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.packs[0].header_bytes = 4142;
    assert_refused(&s, BW_E_INVALID,
                   "placement: pack 0: header of 4142 bytes in a file of 4141, expected 10 to 16777224");
    make(&s);
    s.packs[0].header_bytes = 9;
    assert_refused(&s, BW_E_INVALID, "header of 9 bytes");
    make(&s);
    s.packs[0].file_bytes = UINT64_C(1) << 40;
    s.packs[0].header_bytes = (16u << 20) + 9;
    assert_refused(&s, BW_E_INVALID, "header of 16777225 bytes");
    make(&s);
    s.packs[0].file_bytes = (UINT64_C(1) << 40) + 1;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    assert_fails(bwi_placement_encode(&s.placement, &out, &err), BW_E_LIMIT, &err, "1099511627777 bytes of a pack");
    drop(&s);
}

static void an_extent_lies_in_a_known_pack_behind_its_header(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.places[2].pack = 1;
    assert_refused(&s, BW_E_INVALID, "placement: extent 2 is in pack 1, there are 1");
    make(&s);
    s.places[0].offset = 4095;
    assert_refused(&s, BW_E_INVALID, "extent 0: 8 bytes at 4095 leave pack 0, whose data is from 4096 to 4141");
    make(&s);
    s.places[3].offset = 4137;
    assert_refused(&s, BW_E_INVALID, "extent 3: 5 bytes at 4137 leave pack 0");
    make(&s);
    s.places[3].offset = UINT64_MAX - 2;
    assert_refused(&s, BW_E_INVALID, "extent 3: 5 bytes at 18446744073709551613 leave pack 0");
}

static void codecs_and_stored_lengths_are_bounded(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.places[1].codec = 2;
    assert_refused(&s, BW_E_INVALID, "placement: extent 1: unknown codec 2");
    make(&s);
    s.places[1].stored_bytes = 0;
    assert_refused(&s, BW_E_INVALID, "extent 1: 0 stored bytes, expected 1 to 16777216");
    make(&s);
    s.packs[0].file_bytes = 1u << 30;
    s.places[3].stored_bytes = (16u << 20) + 1;
    assert_refused(&s, BW_E_INVALID, "extent 3: 16777217 stored bytes, expected 1 to 16777216");
    make(&s);
    s.packs[0].file_bytes = 1u << 30;
    s.places[3].codec = BWI_CODEC_ZSTD;
    s.places[3].stored_bytes = (16u << 20) + (64u << 10) + 1;
    assert_refused(&s, BW_E_INVALID, "extent 3: 16842753 stored bytes, expected 1 to 16842752");
    make(&s);
    s.packs[0].file_bytes = 1u << 30;
    s.places[3].codec = BWI_CODEC_ZSTD;
    s.places[3].stored_bytes = (16u << 20) + (64u << 10);
    assert_fits(&s);
    drop(&s);
}

static void counts_above_their_limits_are_refused_before_anything_is_looked_at(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.placement.pack_count = BWI_PACKS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "65537 packs, the limit is 65536");
    make(&s);
    s.placement.extent_count = BWI_EXTENTS_MAX + 1;
    assert_refused(&s, BW_E_LIMIT, "268435457 extents, the limit is 268435456");
}

static void every_rule_holds_for_what_is_read(void **state) {
    (void)state;
    static const struct check_patch patches[] = {
        {56, 4, "\0\0\0\0", BW_E_FORMAT, ""},
        {56, 4, "\2\0\0\0", BW_E_FORMAT, "cut short"},
        {56, 4, "\0\0\1\0", BW_E_FORMAT, "cut short: its records take at least"},
        {56, 4, "\1\0\1\0", BW_E_FORMAT, "65537 packs, the limit is 65536"},
        {60, 4, "\1\0\0\0", BW_E_FORMAT, "padding is not zero"},
        {64, 8, "\0\0\0\x10\0\0\0\0", BW_E_FORMAT, "cut short: its records take at least"},
        {64, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", BW_E_FORMAT, "18446744073709551615 extents"},
        {64, 8, "\3\0\0\0\0\0\0\0", BW_E_FORMAT, "40 bytes after its end, expected none"},
        {72, 8, "\x2c\x10\0\0\0\0\0\0", BW_E_FORMAT, "extent 3: 5 bytes at 4136 leave pack 0"},
        {72, 8, "\xff\xff\xff\xff\xff\xff\xff\xff", BW_E_FORMAT, "bytes of a pack, the limit is 1099511627776"},
        {80, 8, "\x2e\x10\0\0\0\0\0\0", BW_E_FORMAT, "header of 4142 bytes in a file of 4141"},
        {104, 2, "\xff\xff", BW_E_FORMAT, "cut short"},
        {104, 2, "\0\0", BW_E_FORMAT, ""},
        {106, 6, "/uns/r", BW_E_FORMAT, "pack 0: its key is not the key of a pack"},
        {111, 1, "\0", BW_E_FORMAT, "pack 0: its key is not the key of a pack"},
        {192, 4, "\1\0\0\0", BW_E_FORMAT, "extent 0 is in pack 1, there are 1"},
        {196, 1, "\2", BW_E_FORMAT, "extent 0: unknown codec 2"},
        {199, 1, "\1", BW_E_FORMAT, "extent 0: padding is not zero"},
        {200, 8, "\xff\x0f\0\0\0\0\0\0", BW_E_FORMAT, "extent 0: 8 bytes at 4095 leave pack 0"},
        {208, 8, "\0\0\0\0\0\0\0\0", BW_E_FORMAT, "extent 0: 0 stored bytes"},
        {328, 8, "\6\0\0\0\0\0\0\0", BW_E_FORMAT, "extent 3: 6 bytes at 4136 leave pack 0"},
    };
    check_patches(pass, EXAMPLE(PLACEMENT), patches, sizeof patches / sizeof patches[0]);
}

/* ---- with content, run and refs ---- */

static void a_pack_of_another_run_or_checkpoint_is_not_followed(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.packs[0].key = bwi_span_str("runs/other/data/00/" OWN_TEXT "/000001/0-0123456789abcdef.safetensors");
    assert_not_followed(&s, "placement: pack 0 belongs to run \"other\", expected \"r\"");
    make(&s);
    s.packs[0].key =
        bwi_span_str("runs/r/data/00/00000000000000000006.1-0000002a.0/000001/0-0123456789abcdef.safetensors");
    assert_not_followed(&s, "pack 0 belongs to checkpoint 00000000000000000006.1-0000002a.0, expected " OWN_TEXT
                            " or one of its 1 refs");
    make(&s);
    s.packs[0].key = bwi_span_str(REF_KEY);
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(check(&s, &err), &err);
    assert_fails(bwi_placement_check(&s.placement, &s.content, "r", &OWN, NULL, 0, &err), BW_E_FORMAT, &err,
                 "one of its 0 refs");
    drop(&s);
}

static void as_many_extents_as_the_content_has(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.placement.extent_count = 3;
    assert_not_followed(&s, "placement: 3 extents, its content has 4");
}

static void a_raw_extent_has_length_and_hash_of_its_content(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.places[0].stored_bytes = 7;
    assert_not_followed(&s, "placement: extent 0 is raw: 7 stored bytes, its content has 8");
    make(&s);
    s.places[3].stored.b[15] ^= 1;
    assert_not_followed(&s, "placement: extent 3 is raw: its hash is not the content's");
    make(&s);
    s.places[3].stored.b[15] ^= 1;
    s.places[3].codec = BWI_CODEC_ZSTD; /* compressed bytes have a hash of their own */
    assert_fits(&s);
    drop(&s);
}

static void extents_of_a_pack_do_not_overlap(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.places[1].offset = 4103;
    assert_not_followed(&s, "placement: extents overlap in pack 0: 8 bytes at 4096 and 16 at 4103");
    make(&s); /* the same, where they must be sorted first */
    s.places[0].offset = 4120;
    s.places[2].offset = 4100;
    assert_not_followed(&s, "placement: extents overlap in pack 0: 16 bytes at 4100 and 16 at 4104");
    make(&s); /* the same, with one of another pack between them */
    s.packs[1].key = bwi_span_str(OTHER_KEY);
    s.placement.pack_count = 2;
    s.places[2] = (struct bwi_place){0, BWI_CODEC_RAW, 4102, 16, some_hash(0x30)};
    s.places[1] = (struct bwi_place){1, BWI_CODEC_RAW, 4100, 16, some_hash(0x20)};
    assert_not_followed(&s, "placement: extents overlap in pack 0: 8 bytes at 4096 and 16 at 4102");
    make(&s); /* equal places with other bytes */
    s.places[2].offset = 4104;
    assert_not_followed(&s, "placement: extents overlap in pack 0: 16 bytes at 4104 and 16 at 4104");
    make(&s); /* contained in one that is equal to another */
    s.placement.pack_count = 2;
    s.places[0] = (struct bwi_place){1, BWI_CODEC_ZSTD, 4096, 30, some_hash(0x55)};
    s.places[1] = s.places[0];
    s.places[2] = (struct bwi_place){1, BWI_CODEC_ZSTD, 4100, 3, some_hash(0x56)};
    assert_not_followed(&s, "placement: extents overlap in pack 1: 30 bytes at 4096 and 3 at 4100");
}

static void extents_of_different_packs_may_have_the_same_offsets(void **state) {
    (void)state;
    struct sample s;
    make(&s);
    s.packs[1].key = bwi_span_str(OTHER_KEY);
    s.placement.pack_count = 2;
    s.places[1] = (struct bwi_place){1, BWI_CODEC_RAW, 4096, 16, some_hash(0x20)};
    assert_fits(&s);
    drop(&s);
}

static void a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read(void **state) {
    (void)state;
    check_versions(pass, EXAMPLE(PLACEMENT));
}

static void no_prefix_is_accepted(void **state) {
    (void)state;
    check_every_prefix(pass, EXAMPLE(PLACEMENT));
}

static void no_changed_bit_leads_to_a_crash_or_to_other_bytes(void **state) {
    (void)state;
    check_every_bit(pass, EXAMPLE(PLACEMENT), false);
    check_random_damage(pass, EXAMPLE(PLACEMENT), 20000);
}

static int unsorted(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    (void)in;
    (void)out;
    static struct sample s; /* made outside of the sweep */
    if (s.packs[0].file_bytes == 0) {
        make(&s);
        s.places[1].offset = 4120, s.places[2].offset = 4104;
    }
    return check(&s, err);
}

static void out_of_memory_leaves_nothing_behind(void **state) {
    (void)state;
    check_out_of_memory(pass, EXAMPLE(PLACEMENT));
    bwi_placement_fini(NULL);
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(unsorted(BWI_SPAN_NONE, NULL, &err), &err);
    check_out_of_memory(unsorted, BWI_SPAN_NONE);
}

static void a_hundred_thousand_extents_make_a_round_trip_in_any_order(void **state) {
    (void)state;
    enum { MANY = 100000 };
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    uint64_t seed = 2;
    struct sample s;
    make(&s);
    struct bwi_place *places = calloc(MANY, sizeof *places);
    struct bwi_content c = {.extent_bytes = 4096, .item_count = 1};
    uint64_t raw_bytes = (uint64_t)MANY * 4096;
    c.raw_bytes = &raw_bytes;
    assert_ok(bwi_content_number(&c, &err), &err);
    c.extents = calloc(MANY, sizeof *c.extents);
    for (uint64_t e = 0; e < MANY; e++) places[e] = (struct bwi_place){0, BWI_CODEC_RAW, 4096 * (e + 1), 4096, {{0}}};
    for (uint64_t e = MANY - 1; e > 0; e--) {
        const uint64_t k = test_random(&seed) % (e + 1);
        const uint64_t offset = places[e].offset;
        places[e].offset = places[k].offset, places[k].offset = offset;
    }
    s.packs[0].file_bytes = 4096 * (MANY + 1);
    s.placement.extent_count = MANY, s.placement.places = places;
    assert_ok(bwi_placement_encode(&s.placement, &out, &err), &err);
    check_same_bytes(pass, bwi_buf_span(&out));
    assert_ok(bwi_placement_check(&s.placement, &c, "r", &OWN, NULL, 0, &err), &err);
    places[MANY / 2].offset += 1;
    assert_int_equal(bwi_placement_check(&s.placement, &c, "r", &OWN, NULL, 0, &err), BW_E_FORMAT);
    bwi_buf_fini(&out);
    free(c.extents);
    bwi_free(c.first_extent);
    free(places);
    drop(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_example_is_written_byte_for_byte),
        cmocka_unit_test(the_example_is_read_field_by_field),
        cmocka_unit_test(a_placement_without_extents_may_have_packs_or_none),
        cmocka_unit_test(extents_may_lie_in_packs_of_refs_compressed_and_in_any_order),
        cmocka_unit_test(a_pack_needs_the_key_of_a_pack),
        cmocka_unit_test(no_pack_is_named_twice),
        cmocka_unit_test(a_pack_has_a_header_within_its_file_and_is_not_endless),
        cmocka_unit_test(an_extent_lies_in_a_known_pack_behind_its_header),
        cmocka_unit_test(codecs_and_stored_lengths_are_bounded),
        cmocka_unit_test(counts_above_their_limits_are_refused_before_anything_is_looked_at),
        cmocka_unit_test(every_rule_holds_for_what_is_read),
        cmocka_unit_test(a_pack_of_another_run_or_checkpoint_is_not_followed),
        cmocka_unit_test(as_many_extents_as_the_content_has),
        cmocka_unit_test(a_raw_extent_has_length_and_hash_of_its_content),
        cmocka_unit_test(extents_of_a_pack_do_not_overlap),
        cmocka_unit_test(extents_of_different_packs_may_have_the_same_offsets),
        cmocka_unit_test(a_newer_version_is_refused_by_name_and_a_newer_minor_one_is_read),
        cmocka_unit_test(no_prefix_is_accepted),
        cmocka_unit_test(no_changed_bit_leads_to_a_crash_or_to_other_bytes),
        cmocka_unit_test(out_of_memory_leaves_nothing_behind),
        cmocka_unit_test(a_hundred_thousand_extents_make_a_round_trip_in_any_order),
    };
    return cmocka_run_group_tests_name("placement", tests, NULL, NULL);
}
