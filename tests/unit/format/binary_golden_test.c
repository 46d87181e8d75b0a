/* SPDX-License-Identifier: Apache-2.0 */
/* The fixtures of tests/golden/format/binary: every file is read with the verdict that its name and its README give it.
 * And the examples of the pages in doc/format: the bytes that stand there are those of the fixtures. */
#include "codec_checks.h"
#include "examples.h"
#include "format/content.h"
#include "format/index.h"
#include "format/summary.h"
#include <dirent.h>

#define FIXTURES BW_SOURCE_DIR "/tests/golden/format/binary/"

static size_t load(const char *path, uint8_t *p, size_t cap) {
    FILE *f = fopen(path, "rb");
    if (f == NULL) fail_msg("%s cannot be opened", path);
    const size_t n = fread(p, 1, cap, f);
    (void)fclose(f);
    assert_true(n < cap);
    return n;
}

/* ---- decoding by kind; `same`: what is read is written again as the same bytes ---- */

static int read_layout(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_layout l = {0};
    int rc = bwi_layout_decode(in, &l, err);
    if (rc == 0) rc = bwi_layout_encode(&l, out, err);
    bwi_layout_fini(&l);
    return rc;
}

static int read_content(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_content c = {0};
    int rc = bwi_content_decode(in, &c, err);
    if (rc == 0) rc = bwi_content_encode(&c, out, err);
    bwi_content_fini(&c);
    return rc;
}

static int read_placement(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_placement p = {0};
    int rc = bwi_placement_decode(in, &p, err);
    if (rc == 0) rc = bwi_placement_encode(&p, out, err);
    bwi_placement_fini(&p);
    return rc;
}

static int read_summary(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_summary s;
    const int rc = bwi_summary_decode(in, &s, err);
    return rc == 0 ? bwi_summary_encode(&s, out, err) : rc;
}

static int read_blocks(struct bwi_span in, const struct bwi_index_head *h, struct bw_error *err) {
    int rc = 0;
    for (uint32_t i = 0; i < h->block_count && rc == 0; i++) {
        const struct bwi_index_block_ref *ref = &h->blocks[i];
        struct bwi_index_block k = {0};
        assert_true(ref->offset + ref->bytes <= in.len);
        rc = bwi_index_block_decode(bwi_span(in.ptr + ref->offset, ref->bytes), ref, &k, err);
        bwi_index_block_fini(&k);
    }
    return rc;
}

static int read_index(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_index_head h = {0};
    /* The manifest tells the length of the head. The fixtures have one block, and the newer one three bytes more. */
    const size_t head_bytes = in.ptr[10] == 0 ? 104 : 107;
    int rc = bwi_index_head_decode(bwi_span(in.ptr, head_bytes), &h, err);
    if (rc == 0) rc = read_blocks(in, &h, err);
    bwi_index_head_fini(&h);
    if (rc == 0) bwi_buf_put(out, in.ptr, in.len);
    return rc;
}

static check_pass reader_of(const char *name) {
    if (strstr(name, "-layout") != NULL) return read_layout;
    if (strstr(name, "-content") != NULL) return read_content;
    if (strstr(name, "-placement") != NULL) return read_placement;
    if (strstr(name, "-summary") != NULL) return read_summary;
    if (strstr(name, "-index") != NULL) return read_index;
    fail_msg("%s: of no known format", name);
    return NULL;
}

/* ---- verdicts ---- */

static const struct fixture {
    const char *name;
    int status;
    const char *message;
} fixtures[] = {
    {"good-layout", 0, NULL},
    {"good-layout-empty", 0, NULL},
    {"good-layout-newer-minor", 0, NULL},
    {"bad-layout-magic", BW_E_FORMAT, "expected magic \"BWLAYOUT\""},
    {"bad-layout-cut", BW_E_FORMAT, "cut short"},
    {"bad-layout-tail", BW_E_FORMAT, "1 bytes after its end"},
    {"bad-layout-count", BW_E_FORMAT, "its records take at least"},
    {"bad-layout-unsorted", BW_E_FORMAT, "\"w\" comes after \"w.tied\""},
    {"bad-layout-outside", BW_E_FORMAT, "offset 3, extent 2, size 4"},
    {"bad-layout-overflow", BW_E_FORMAT, "do not fit 64 bits"},
    {"bad-layout-tie", BW_E_FORMAT, "box 3 is tied to box 3, which is not before it"},
    {"bad-layout-rank", BW_E_FORMAT, "blob \"rng\": rank 1 is none of the layout's"},
    {"newer-layout", BW_E_VERSION, "layout: version 2.0 is newer than the newest known, 1.0"},
    {"newer-layout-flags", BW_E_VERSION, "layout: flags 0x00000001"},
    {"good-content", 0, NULL},
    {"good-content-newer-minor", 0, NULL},
    {"bad-content-extents", BW_E_FORMAT, "5 extents, its items have 4"},
    {"bad-content-extent-bytes", BW_E_FORMAT, "extents of 6000 bytes"},
    {"bad-content-metadata", BW_E_FORMAT, "metadata 0 is not UTF-8"},
    {"newer-content", BW_E_VERSION, "content: version 2.0 is newer"},
    {"good-placement", 0, NULL},
    {"good-placement-newer-minor", 0, NULL},
    {"bad-placement-key", BW_E_FORMAT, "its key is not the key of a pack"},
    {"bad-placement-outside", BW_E_FORMAT, "5 bytes at 4136 leave pack 0"},
    {"bad-placement-header", BW_E_FORMAT, "8 bytes at 4095 leave pack 0"},
    {"bad-placement-codec", BW_E_FORMAT, "unknown codec 2"},
    {"newer-placement", BW_E_VERSION, "placement: version 2.0 is newer"},
    {"good-summary", 0, NULL},
    {"good-summary-newer-minor", 0, NULL},
    {"bad-summary-hash", BW_E_CORRUPT, "its bytes have the hash"},
    {"bad-summary-group", BW_E_FORMAT, "group 2 of 2"},
    {"bad-summary-fan-out", BW_E_FORMAT, "fan-out is 2"},
    {"bad-summary-ref", BW_E_FORMAT, "it refers to itself"},
    {"newer-summary", BW_E_VERSION, "summary: version 2.0 is newer"},
    {"good-index", 0, NULL},
    {"good-index-newer-minor", 0, NULL},
    {"bad-index-gap", BW_E_FORMAT, "block 0 is at 105, expected 104"},
    {"bad-index-hash", BW_E_CORRUPT, "its hash is not the one in the head"},
    {"newer-index", BW_E_VERSION, "index: version 2.0 is newer"},
};
#define FIXTURE_COUNT (sizeof fixtures / sizeof fixtures[0])

static void check_fixture(const struct fixture *f) {
    char path[512];
    uint8_t data[4096];
    struct bwi_buf out = {0};
    struct bw_error err = BW_ERROR_INIT;
    (void)snprintf(path, sizeof path, FIXTURES "%s.bin", f->name);
    const size_t n = load(path, data, sizeof data);
    const int rc = reader_of(f->name)(bwi_span(data, n), &out, &err);
    if (f->status != 0) {
        assert_fails(rc, f->status, &err, f->message);
    } else {
        assert_ok(rc, &err);
        if (strstr(f->name, "newer-minor") == NULL) {
            assert_int_equal(out.len, n);
            assert_memory_equal(out.ptr, data, n);
        }
    }
    bwi_buf_fini(&out);
}

static void every_fixture_gets_its_verdict(void **state) {
    (void)state;
    for (size_t i = 0; i < FIXTURE_COUNT; i++) {
        const char *want = fixtures[i].status == 0 ? "good-" : fixtures[i].status == BW_E_VERSION ? "newer-" : "bad-";
        assert_int_equal(strncmp(fixtures[i].name, want, strlen(want)), 0);
        check_fixture(&fixtures[i]);
    }
}

static bool listed(const char *file) {
    for (size_t i = 0; i < FIXTURE_COUNT; i++) {
        const size_t n = strlen(fixtures[i].name);
        if (strncmp(file, fixtures[i].name, n) == 0 && strcmp(file + n, ".bin") == 0) return true;
    }
    return false;
}

static void every_file_there_is_tested_and_described(void **state) {
    (void)state;
    static char readme[65536];
    readme[load(FIXTURES "README.md", (uint8_t *)readme, sizeof readme - 1)] = '\0';
    size_t found = 0;
    DIR *d = opendir(FIXTURES);
    assert_non_null(d);
    for (const struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        const size_t n = strlen(e->d_name);
        if (n < 4 || strcmp(e->d_name + n - 4, ".bin") != 0) continue;
        if (!listed(e->d_name)) fail_msg("%s is in no test", e->d_name);
        char mention[300];
        (void)snprintf(mention, sizeof mention, "`%s`", e->d_name);
        if (strstr(readme, mention) == NULL) fail_msg("README.md has no paragraph about %s", e->d_name);
        found++;
    }
    (void)closedir(d);
    assert_int_equal(found, FIXTURE_COUNT);
}

/* ---- the pages ---- */

static int hex_of(char c) {
    const char *digits = "0123456789abcdef";
    const char *at = c == '\0' ? NULL : strchr(digits, c);
    return at == NULL ? -1 : (int)(at - digits);
}

/* A line of a listing: offset, blanks, bytes with one blank between them, and more after two blanks. */
static void read_line(const char *line, struct bwi_buf *out) {
    char *p = NULL;
    assert_int_equal(strtoul(line, &p, 10), out->len);
    while (*p == ' ') p++;
    while (hex_of(p[0]) >= 0 && hex_of(p[1]) >= 0) {
        bwi_buf_u8(out, (uint8_t)(hex_of(p[0]) * 16 + hex_of(p[1])));
        if (p[2] != ' ') break;
        p += 3;
    }
}

/* The bytes in the block of a page that begins with ```bytes. */
static void read_listing(const char *path, struct bwi_buf *out) {
    char line[512];
    bool inside = false;
    FILE *f = fopen(path, "r");
    if (f == NULL) fail_msg("%s cannot be opened", path);
    while (fgets(line, sizeof line, f) != NULL) {
        if (strncmp(line, "```", 3) == 0) {
            inside = strncmp(line, "```bytes", 8) == 0;
        } else if (inside) {
            read_line(line, out);
        }
    }
    (void)fclose(f);
}

static void the_example_of_every_page_is_the_fixture_and_can_be_read(void **state) {
    (void)state;
    const struct {
        const char *name;
        struct bwi_span bytes;
    } pages[] = {
        {"layout", EXAMPLE(LAYOUT)},   {"content", EXAMPLE(CONTENT)}, {"placement", EXAMPLE(PLACEMENT)},
        {"summary", EXAMPLE(SUMMARY)}, {"index", EXAMPLE(INDEX)},
    };
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++) {
        char path[512], file[64];
        uint8_t data[4096];
        struct bwi_buf listing = {0};
        struct bwi_buf out = {0};
        struct bw_error err = BW_ERROR_INIT;
        (void)snprintf(path, sizeof path, BW_SOURCE_DIR "/doc/format/%s.md", pages[i].name);
        read_listing(path, &listing);
        (void)snprintf(file, sizeof file, "good-%s", pages[i].name);
        (void)snprintf(path, sizeof path, FIXTURES "%s.bin", file);
        assert_int_equal(load(path, data, sizeof data), listing.len);
        assert_memory_equal(listing.ptr, data, listing.len);
        assert_int_equal(pages[i].bytes.len, listing.len);
        assert_memory_equal(pages[i].bytes.ptr, data, listing.len);
        assert_ok(reader_of(file)(bwi_buf_span(&listing), &out, &err), &err);
        bwi_buf_fini(&listing);
        bwi_buf_fini(&out);
    }
}

/* What lies together in the examples fits together. */
static void layout_content_and_placement_of_the_examples_fit(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_layout l;
    struct bwi_content c;
    struct bwi_placement p;
    struct bwi_summary s;
    assert_ok(bwi_layout_decode(EXAMPLE(LAYOUT), &l, &err), &err);
    assert_ok(bwi_content_decode(EXAMPLE(CONTENT), &c, &err), &err);
    assert_ok(bwi_placement_decode(EXAMPLE(PLACEMENT), &p, &err), &err);
    assert_ok(bwi_summary_decode(EXAMPLE(SUMMARY), &s, &err), &err);
    assert_ok(bwi_content_check(&c, &l, &err), &err);
    assert_ok(bwi_placement_check(&p, &c, "r", &s.id, s.refs, s.ref_count, &err), &err);
    const struct bwi_sha layout = bwi_sha_of(EXAMPLE(LAYOUT));
    const struct bwi_sha content = bwi_sha_of(EXAMPLE(CONTENT));
    const struct bwi_sha placement = bwi_sha_of(EXAMPLE(PLACEMENT));
    assert_true(bwi_sha_eq(&c.layout, &layout) && bwi_sha_eq(&s.layout, &layout));
    assert_true(bwi_sha_eq(&p.content, &content) && bwi_sha_eq(&s.content, &content));
    assert_true(bwi_sha_eq(&s.placement, &placement));
    bwi_placement_fini(&p);
    bwi_content_fini(&c);
    bwi_layout_fini(&l);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_gets_its_verdict),
        cmocka_unit_test(every_file_there_is_tested_and_described),
        cmocka_unit_test(the_example_of_every_page_is_the_fixture_and_can_be_read),
        cmocka_unit_test(layout_content_and_placement_of_the_examples_fit),
    };
    return cmocka_run_group_tests_name("binary_golden", tests, NULL, NULL);
}
