/* SPDX-License-Identifier: Apache-2.0 */
/* Checking one extent: raw and compressed, sound and in every way unsound. */
#include "base/vec.h"
#include "checkpoint/extent_check.h"
#include "test.h"
#include <string.h>
#include <zstd.h>

#define RAW 10000u

struct extent {
    struct bwi_place place;
    struct bwi_extent x;
    uint8_t raw[RAW];
    uint8_t *buf;
    size_t stored;
    const uint8_t *got;
    char why[BWI_EXTENT_WHY_BYTES];
};

/* `says`: the raw length of the content. */
static void extent_make(struct extent *e, uint8_t codec, uint64_t says) {
    memset(e, 0, sizeof *e);
    for (size_t i = 0; i < RAW; i++) e->raw[i] = (uint8_t)(i / 7);
    e->buf = bwi_malloc(64 * 1024);
    assert_non_null(e->buf);
    e->stored = RAW;
    memcpy(e->buf, e->raw, RAW);
    if (codec == BWI_CODEC_ZSTD) e->stored = ZSTD_compress(e->buf, 32 * 1024, e->raw, RAW, 3);
    assert_false(ZSTD_isError(e->stored));
    memset(e->buf + e->stored, 0xee, 64 * 1024 - e->stored);
    e->place = (struct bwi_place){
        .codec = codec, .stored_bytes = e->stored, .stored = bwi_xxh_of(bwi_span(e->buf, e->stored))};
    e->x = (struct bwi_extent){&e->place, says, bwi_xxh_of(bwi_span(e->raw, RAW))};
}

static void expect(struct extent *e, int status, const char *why) {
    assert_int_equal(bwi_extent_check(&e->x, e->buf, &e->got, e->why), status);
    if (strstr(e->why, why) == NULL) fail_msg("no \"%s\" in: %s", why, e->why);
    if (status == 0) assert_memory_equal(e->got, e->raw, RAW);
    if (status != 0) assert_null(e->got);
    bwi_free(e->buf);
}

static void raw_bytes_are_where_they_were_stored(void **state) {
    (void)state;
    struct extent e;
    extent_make(&e, BWI_CODEC_RAW, RAW);
    assert_int_equal(bwi_extent_buffer_bytes(&e.x), 12288);
    expect(&e, 0, "");
    assert_ptr_equal(e.got, e.buf);
}

static void compressed_bytes_come_out_behind_the_stored_ones(void **state) {
    (void)state;
    struct extent e;
    extent_make(&e, BWI_CODEC_ZSTD, RAW);
    assert_int_equal(bwi_extent_buffer_bytes(&e.x), 4096 + 12288);
    assert_true(e.stored < 4096);
    expect(&e, 0, "");
    assert_ptr_equal(e.got, e.buf + 4096);
}

static void a_flipped_bit_is_found_by_the_hash_of_what_is_stored(void **state) {
    (void)state;
    for (uint8_t codec = 0; codec < 2; codec++) {
        struct extent e;
        extent_make(&e, codec, RAW);
        e.buf[e.stored - 1] ^= 1;
        expect(&e, BW_E_CORRUPT, "the stored bytes do not match their hash");
    }
}

static void what_decompresses_to_other_bytes_is_found_by_the_contents_hash(void **state) {
    (void)state;
    struct extent e;
    extent_make(&e, BWI_CODEC_ZSTD, RAW);
    e.x.raw.b[0] ^= 1;
    expect(&e, BW_E_CORRUPT, "decompressed they do not match the content's hash");
}

static void too_few_and_too_many_bytes_are_refused_without_a_write_behind_the_buffer(void **state) {
    (void)state;
    struct extent e;
    extent_make(&e, BWI_CODEC_ZSTD, RAW + 1);
    expect(&e, BW_E_CORRUPT, "fewer bytes than the content says");
    extent_make(&e, BWI_CODEC_ZSTD, 100);
    const uint8_t *end = e.buf + 4096 + 100;
    for (size_t i = 0; i < 1000; i++) assert_int_equal(end[i], 0xee);
    assert_int_equal(bwi_extent_check(&e.x, e.buf, &e.got, e.why), BW_E_CORRUPT);
    for (size_t i = 0; i < 1000; i++) assert_int_equal(end[i], 0xee);
    assert_non_null(strstr(e.why, "cannot be decompressed: "));
    bwi_free(e.buf);
}

static void garbage_with_the_right_hash_is_refused(void **state) {
    (void)state;
    struct extent e;
    extent_make(&e, BWI_CODEC_ZSTD, RAW);
    memset(e.buf, 0x77, e.stored);
    e.place.stored = bwi_xxh_of(bwi_span(e.buf, e.stored));
    expect(&e, BW_E_CORRUPT, "cannot be decompressed: ");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(raw_bytes_are_where_they_were_stored),
        cmocka_unit_test(compressed_bytes_come_out_behind_the_stored_ones),
        cmocka_unit_test(a_flipped_bit_is_found_by_the_hash_of_what_is_stored),
        cmocka_unit_test(what_decompresses_to_other_bytes_is_found_by_the_contents_hash),
        cmocka_unit_test(too_few_and_too_many_bytes_are_refused_without_a_write_behind_the_buffer),
        cmocka_unit_test(garbage_with_the_right_hash_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
