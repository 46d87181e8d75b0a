/* SPDX-License-Identifier: Apache-2.0 */
/* The fixtures of tests/golden/format/json: every file is read with the verdict that its name and its README give
 * it. And the pages in doc/format: their examples are fixtures, and their table of limits is that of
 * src/format/limits.h. */
#include "format/history.h"
#include "format/json.h"
#include "format/manifest.h"
#include "format/pack.h"
#include "json_fixture.h"
#include <dirent.h>

/* Decodes, and encodes what came out. */
typedef int reader(struct bwi_span in, struct bwi_buf *out, struct bw_error *err);

static int read_store(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_store_id s;
    const int rc = bwi_store_id_decode(in, &s, err);
    return rc == 0 ? bwi_store_id_encode(&s, out, err) : rc;
}

static int read_inventory(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_inventory v = {0};
    int rc = bwi_inventory_decode(in, &v, err);
    if (rc == 0) rc = bwi_inventory_encode(&v, out, err);
    bwi_inventory_fini(&v);
    return rc;
}

static int read_mark(bool damaged, struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_mark m;
    const int rc = bwi_mark_decode(in, damaged, &m, err);
    return rc == 0 ? bwi_mark_encode(&m, damaged, out, err) : rc;
}

static int read_failed(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    return read_mark(false, in, out, err);
}

static int read_damaged(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    return read_mark(true, in, out, err);
}

static int read_era_end(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_era_end v;
    const int rc = bwi_era_end_decode(in, &v, err);
    return rc < 0 ? rc : bwi_era_end_encode(&v, out, err);
}

static int read_refused(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_refusal r;
    const int rc = bwi_refusal_decode(in, &r, err);
    return rc == 0 ? bwi_refusal_encode(&r, out, err) : rc;
}

static int read_entry(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_entry e = {0};
    int rc = bwi_entry_decode(in, &e, err);
    if (rc == 0) rc = bwi_entry_encode(&e, out, err);
    bwi_entry_fini(&e);
    return rc;
}

static int read_manifest(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_manifest m = {0};
    int rc = bwi_manifest_decode(in, &m, err);
    if (rc == 0) rc = bwi_manifest_encode(&m, out, err);
    bwi_manifest_fini(&m);
    return rc;
}

static int read_pack(struct bwi_span in, struct bwi_buf *out, struct bw_error *err) {
    struct bwi_pack_header h = {0};
    int rc = bwi_pack_header_decode(in, in.len, &h, err);
    if (rc == 0 && bwi_pack_dtype(h.entries[h.count - 1].dtype)) {
        const size_t data = (size_t)h.data_bytes;
        rc = bwi_pack_header_encode(&h, 4096, out, err);
        bwi_buf_put(out, in.ptr + in.len - data, data);
    }
    bwi_pack_header_fini(&h);
    return rc;
}

static reader *reader_of(const char *name) {
    static const struct {
        const char *part;
        reader *read;
    } readers[] = {
        {"-store", read_store},     {"-inventory", read_inventory}, {"-failed", read_failed},
        {"-damaged", read_damaged}, {"-entry", read_entry},         {"-manifest", read_manifest},
        {"-pack", read_pack},       {"-refused", read_refused},     {"-era-end", read_era_end},
    };
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++) {
        if (strstr(name, readers[i].part) != NULL) return readers[i].read;
    }
    fail_msg("%s: of no known kind", name);
    return NULL;
}

/* What a good fixture is when it is written again; "": not compared. */
static const char *written_again(const char *name) {
    if (strcmp(name, "good-entry-newer-minor.json") == 0) return "good-entry-full.json";
    if (strcmp(name, "good-pack-foreign.safetensors") == 0) return "";
    return name;
}

static void check_good(const char *name, int rc, const struct bw_error *err, const struct bwi_buf *out) {
    if (rc != 0) fail_msg("%s: status %d, message \"%s\"", name, rc, err->message);
    const char *as = written_again(name);
    if (as[0] == '\0') return;
    const struct bwi_span want = fixture(as);
    if (!bwi_span_eq(want, bwi_buf_span(out))) fail_msg("%s: written again it has other bytes", name);
    span_free(want);
}

static int wanted_status(const char *name) {
    if (strncmp(name, "newer-", 6) == 0) return BW_E_VERSION;
    const bool damaged = strstr(name, "-bit") != NULL || strstr(name, "-cut") != NULL;
    return damaged ? BW_E_CORRUPT : BW_E_FORMAT;
}

static void check_fixture(const char *name, const char *readme) {
    char quoted[300];
    (void)snprintf(quoted, sizeof quoted, "`%s`", name);
    if (strstr(readme, quoted) == NULL) fail_msg("%s: README.md does not speak of it", name);
    const struct bwi_span in = fixture(name);
    struct bw_error err = BW_ERROR_INIT;
    struct bwi_buf out = {0};
    const int rc = reader_of(name)(in, &out, &err);
    if (strncmp(name, "good-", 5) == 0)
        check_good(name, rc, &err, &out);
    else if (rc != wanted_status(name))
        fail_msg("%s: status %d, message \"%s\"", name, rc, err.message);
    bwi_buf_fini(&out);
    span_free(in);
}

static void every_fixture_gets_the_verdict_of_its_name(void **state) {
    (void)state;
    const struct bwi_span readme = fixture("README.md");
    DIR *dir = opendir(FIXTURES);
    assert_non_null(dir);
    size_t seen = 0;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (strstr(e->d_name, ".json") == NULL && strstr(e->d_name, ".safetensors") == NULL) continue;
        check_fixture(e->d_name, (const char *)readme.ptr);
        seen++;
    }
    (void)closedir(dir);
    assert_true(seen >= 23);
    span_free(readme);
}

static void the_examples_of_the_pages_are_fixtures(void **state) {
    (void)state;
    static const char *const examples[][2] = {
        {"small.md", "good-store.json"},     {"small.md", "good-inventory.json"},
        {"small.md", "good-failed.json"},    {"history.md", "good-entry-first.json"},
        {"history.md", "good-era-end.json"}, {"manifest.md", "good-manifest.json"},
    };
    for (size_t i = 0; i < sizeof examples / sizeof examples[0]; i++) {
        char path[512];
        (void)snprintf(path, sizeof path, BW_SOURCE_DIR "/doc/format/%s", examples[i][0]);
        const struct bwi_span page = file_read(path), text = fixture(examples[i][1]);
        if (strstr((const char *)page.ptr, (const char *)text.ptr) == NULL)
            fail_msg("%s does not hold %s as it is", examples[i][0], examples[i][1]);
        span_free(page);
        span_free(text);
    }
    const struct bwi_span page = file_read(BW_SOURCE_DIR "/doc/format/pack.md"),
                          pack = fixture("good-pack.safetensors");
    const char *json = (const char *)pack.ptr + 8;
    const char *end = strstr(json, "}} ");
    assert_non_null(end);
    char *text = strndup(json, (size_t)(end - json) + 2);
    assert_non_null(text);
    assert_non_null(strstr((const char *)page.ptr, text));
    free(text);
    span_free(page);
    span_free(pack);
}

#define LIMIT(name)                                                                                                    \
    { #name, (uint64_t)(name) }

static void the_table_of_limits_is_that_of_the_code(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint64_t value;
    } limits[] = {
        LIMIT(BWI_EXTENT_BYTES_MAX),
        LIMIT(BWI_EXTENT_BYTES),
        LIMIT(BWI_PACK_ALIGN),
        LIMIT(BWI_PACK_BIG_BYTES),
        LIMIT(BWI_PACK_HEADER_MAX),
        LIMIT(BWI_PACK_BYTES_MAX),
        LIMIT(BWI_DIMS_MAX),
        LIMIT(BWI_TENSOR_NAME_MAX),
        LIMIT(BWI_TENSORS_MAX),
        LIMIT(BWI_BOXES_MAX),
        LIMIT(BWI_BLOBS_MAX),
        LIMIT(BWI_METADATA_MAX),
        LIMIT(BWI_EXTENTS_MAX),
        LIMIT(BWI_PACKS_MAX),
        LIMIT(BWI_REFS_MAX),
        LIMIT(BWI_GROUPS_MAX),
        LIMIT(BWI_ERA_MAX),
        LIMIT(BWI_WORLD_MAX),
        LIMIT(BWI_GROUP_RANKS_MAX),
        LIMIT(BWI_LAYOUT_BYTES_MAX),
        LIMIT(BWI_CONTENT_BYTES_MAX),
        LIMIT(BWI_PLACEMENT_BYTES_MAX),
        LIMIT(BWI_SUMMARY_BYTES_MAX),
        LIMIT(BWI_INDEX_BYTES_MAX),
        LIMIT(BWI_INDEX_BLOCK_BYTES),
        LIMIT(BWI_MANIFEST_BYTES_MAX),
        LIMIT(BWI_ENTRY_BYTES_MAX),
        LIMIT(BWI_JSON_SMALL_MAX),
        LIMIT(BWI_INVENTORY_BYTES_MAX),
        LIMIT(BWI_LAUNCHES_KEPT),
        LIMIT(BWI_HISTORY_KEPT),
        LIMIT(BWI_NAME_BYTES),
        LIMIT(BWI_GROUPS_FLAT),
        LIMIT(BWI_JSON_DEPTH_MAX),
    };
    const struct bwi_span page = file_read(BW_SOURCE_DIR "/doc/format/README.md");
    const struct bwi_span code = file_read(BW_SOURCE_DIR "/src/format/limits.h");
    size_t defined = 0;
    for (const char *at = (const char *)code.ptr; (at = strstr(at, "#define BWI_")) != NULL; at++) defined++;
    /* The guard and BWI_NAME_BUF are no limits; the depth of JSON is defined in json.h. */
    assert_int_equal(defined, sizeof limits / sizeof limits[0] - 1 + 2);
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
        char row[128];
        (void)snprintf(row, sizeof row, "| `%s` | %llu |", limits[i].name, (unsigned long long)limits[i].value);
        if (strstr((const char *)page.ptr, row) == NULL) fail_msg("doc/format/README.md lacks the row %s", row);
    }
    span_free(page);
    span_free(code);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fixture_gets_the_verdict_of_its_name),
        cmocka_unit_test(the_examples_of_the_pages_are_fixtures),
        cmocka_unit_test(the_table_of_limits_is_that_of_the_code),
    };
    return cmocka_run_group_tests_name("format/json_golden", tests, NULL, NULL);
}
