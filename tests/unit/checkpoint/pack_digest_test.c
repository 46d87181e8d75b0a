/* SPDX-License-Identifier: Apache-2.0 */
/* The digest of a pack: a small file made by hand, damaged at every byte, cut everywhere. */
#include "base/vec.h"
#include "checkpoint/pack_digest.h"
#include "test.h"
#include <string.h>

/* header 0..8, extents 8..11 (twice), 11..20, gap 20..24, extent 24..30, gap 30..32. In the placement's order
 * the later ones come first, and another pack's extent lies between. */
#define FILE_BYTES 32
struct file {
    uint8_t bytes[FILE_BYTES];
    struct bwi_pack_ref packs[2];
    struct bwi_place places[5];
    struct bwi_placement p;
};

static struct bwi_place place(const struct file *f, uint32_t pack, uint64_t offset, uint64_t n) {
    return (struct bwi_place){pack, BWI_CODEC_RAW, offset, n, bwi_xxh_of(bwi_span(f->bytes + offset, (size_t)n))};
}

static void make(struct file *f) {
    memset(f, 0, sizeof *f);
    for (size_t i = 0; i < FILE_BYTES; i++) {
        const bool gap = (i >= 20 && i < 24) || i >= 30;
        f->bytes[i] = gap ? 0 : (uint8_t)(i + 1);
    }
    const struct bwi_place places[] = {place(f, 1, 24, 6), place(f, 1, 8, 3), place(f, 0, 8, 3), place(f, 1, 11, 9),
                                       place(f, 1, 8, 3)};
    memcpy(f->places, places, sizeof places);
    f->packs[1] =
        (struct bwi_pack_ref){.file_bytes = FILE_BYTES, .header_bytes = 8, .header = bwi_xxh_of(bwi_span(f->bytes, 8))};
    f->packs[0] = (struct bwi_pack_ref){.file_bytes = 100, .header_bytes = 8};
    f->p = (struct bwi_placement){.pack_count = 2, .packs = f->packs, .extent_count = 5, .places = f->places};
}

static void open_digest(struct bwi_pack_digest *d, const struct file *f, uint64_t *bad, size_t cap) {
    struct bw_error err = BW_ERROR_INIT;
    assert_ok(bwi_pack_digest_init(d, &f->p, 1, &err), &err);
    d->bad = bad;
    d->bad_cap = cap;
}

static void a_sound_pack_passes_however_it_is_cut(void **state) {
    (void)state;
    struct file f;
    make(&f);
    for (size_t a = 0; a <= FILE_BYTES; a++) {
        for (size_t b = a; b <= FILE_BYTES; b++) {
            struct bwi_pack_digest d;
            open_digest(&d, &f, NULL, 0);
            bwi_pack_digest_update(&d, f.bytes, a);
            bwi_pack_digest_update(&d, f.bytes + a, b - a);
            bwi_pack_digest_update(&d, f.bytes + b, FILE_BYTES - b);
            assert_int_equal(d.damages, 0);
            assert_int_equal(d.first.status, 0);
            assert_int_equal(d.pos, FILE_BYTES);
            bwi_pack_digest_fini(&d);
        }
    }
}

static void any_changed_byte_is_found_and_named(void **state) {
    (void)state;
    for (size_t at = 0; at < FILE_BYTES; at++) {
        for (size_t step = 1; step <= FILE_BYTES; step += 5) {
            struct file f;
            struct bwi_pack_digest d;
            uint64_t bad[5] = {0};
            make(&f);
            f.bytes[at] ^= 0x40;
            open_digest(&d, &f, bad, 5);
            for (size_t i = 0; i < FILE_BYTES; i += step) {
                bwi_pack_digest_update(&d, f.bytes + i, step < FILE_BYTES - i ? step : FILE_BYTES - i);
            }
            assert_int_equal(d.damages, at >= 8 && at < 11 ? 2 : 1); /* two extents share these bytes */
            const char *want = at < 8                ? "the header (8 bytes) does not match its hash"
                               : at < 11             ? "extent 1 (3 bytes at offset 8) does not match its hash"
                               : at < 20             ? "extent 3 (9 bytes at offset 11) does not match its hash"
                               : at < 24 || at >= 30 ? "belongs to no extent: expected 0, found 64"
                                                     : "extent 0 (6 bytes at offset 24) does not match its hash";
            assert_fails(d.first.status, BW_E_CORRUPT, &d.first, want);
            assert_int_equal(d.bad_count, at < 8 ? 0 : at < 11 ? 2 : at < 20 ? 1 : at < 24 || at >= 30 ? 0 : 1);
            if (d.bad_count > 0) assert_int_equal(bad[0], at < 11 ? 1 : at < 20 ? 3 : 0);
            if (d.bad_count > 1) assert_int_equal(bad[1], 4);
            bwi_pack_digest_fini(&d);
        }
    }
}

static void extents_at_one_place_have_their_own_hashes(void **state) {
    (void)state;
    struct file f;
    struct bwi_pack_digest d;
    uint64_t bad[5];
    make(&f);
    f.places[4].stored.b[0] ^= 1;
    open_digest(&d, &f, bad, 5);
    bwi_pack_digest_update(&d, f.bytes, FILE_BYTES);
    assert_int_equal(d.damages, 1);
    assert_int_equal(d.bad_count, 1);
    assert_int_equal(bad[0], 4);
    bwi_pack_digest_fini(&d);
}

static void all_damages_are_counted_and_listed_up_to_the_cap(void **state) {
    (void)state;
    struct file f;
    struct bwi_pack_digest d;
    uint64_t bad[2];
    make(&f);
    f.bytes[0] = 99;
    f.bytes[9] = 99;
    f.bytes[12] = 99;
    f.bytes[21] = f.bytes[22] = 99; /* one gap, one damage */
    f.bytes[25] = 99;
    f.bytes[31] = 99;
    open_digest(&d, &f, bad, 2);
    for (size_t i = 0; i < FILE_BYTES; i++) bwi_pack_digest_update(&d, f.bytes + i, 1);
    assert_int_equal(d.damages, 7);
    assert_int_equal(d.bad_count, 2);
    assert_int_equal(bad[0], 1);
    assert_int_equal(bad[1], 4);
    assert_non_null(strstr(d.first.message, "the header"));
    bwi_pack_digest_fini(&d);
}

static void of_a_lost_pack_every_extent_is_bad(void **state) {
    (void)state;
    struct file f;
    struct bwi_pack_digest d;
    uint64_t bad[5];
    make(&f);
    f.bytes[12] = 99;
    open_digest(&d, &f, bad, 5);
    bwi_pack_digest_update(&d, f.bytes, 22);
    bwi_pack_digest_lost(&d);
    assert_int_equal(d.bad_count, 4);
    assert_int_equal(bad[0], 1);
    assert_int_equal(bad[1], 4);
    assert_int_equal(bad[2], 3);
    assert_int_equal(bad[3], 0);
    bwi_pack_digest_fini(&d);
    bwi_pack_digest_fini(&d);
}

static void a_pack_without_extents_is_header_and_zeros(void **state) {
    (void)state;
    struct file f;
    struct bwi_pack_digest d;
    make(&f);
    f.p.extent_count = 0;
    memset(f.bytes + 8, 0, FILE_BYTES - 8);
    open_digest(&d, &f, NULL, 0);
    bwi_pack_digest_update(&d, f.bytes, FILE_BYTES);
    assert_int_equal(d.damages, 0);
    bwi_pack_digest_fini(&d);
}

static void places_that_cannot_be_are_refused(void **state) {
    (void)state;
    const struct {
        uint64_t offset, bytes;
    } wrong[] = {{7, 1}, {27, 6}, {11, 0}, {10, 3}, {29, 3}, {31, 2}, {UINT64_MAX, 2}, {8, UINT64_MAX}, {8, 4}};
    const long live = bwi_alloc_live();
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct file f;
        struct bwi_pack_digest d;
        struct bw_error err = BW_ERROR_INIT;
        make(&f);
        f.places[3].offset = wrong[i].offset;
        f.places[3].stored_bytes = wrong[i].bytes;
        assert_fails(bwi_pack_digest_init(&d, &f.p, 1, &err), BW_E_FORMAT, &err, "expected between");
    }
    struct file f;
    struct bwi_pack_digest d;
    struct bw_error err = BW_ERROR_INIT;
    make(&f);
    f.packs[1].header_bytes = FILE_BYTES + 1;
    assert_fails(bwi_pack_digest_init(&d, &f.p, 1, &err), BW_E_FORMAT, &err, "a header of 33 bytes in a file of 32");
    assert_int_equal(bwi_alloc_live(), live);
}

static void without_memory_it_does_not_begin(void **state) {
    (void)state;
    struct file f;
    struct bwi_pack_digest d;
    struct bw_error err = BW_ERROR_INIT;
    make(&f);
    (void)bwi_alloc_fail_at(1);
    const int rc = bwi_pack_digest_init(&d, &f.p, 1, &err);
    (void)bwi_alloc_fail_at(0);
    assert_fails(rc, BW_E_NOMEM, &err, "the extents of a pack");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sound_pack_passes_however_it_is_cut),
        cmocka_unit_test(any_changed_byte_is_found_and_named),
        cmocka_unit_test(extents_at_one_place_have_their_own_hashes),
        cmocka_unit_test(all_damages_are_counted_and_listed_up_to_the_cap),
        cmocka_unit_test(of_a_lost_pack_every_extent_is_bad),
        cmocka_unit_test(a_pack_without_extents_is_header_and_zeros),
        cmocka_unit_test(places_that_cannot_be_are_refused),
        cmocka_unit_test(without_memory_it_does_not_begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
