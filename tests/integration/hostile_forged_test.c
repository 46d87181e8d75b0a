/* SPDX-License-Identifier: Apache-2.0 */
/* Stores whose hashes, seals and names are all right, and whose objects lie: each is refused by the check of what it
 * means, with its name, what was expected and what was found. */
#include "hostile.h"
#include <stdio.h>
#include <string.h>

#define VERIFY        "verify " RUN " --remote @remote --memory 64MiB"
#define REPAIR        "repair " RUN " --copies --yes --remote @remote --local @local --memory 64MiB"
#define PUT(at, n, v) .offset = (at), .bytes = (n), .value = (v)
#define TEXT(a, b)    .from = (a), .to = (b)

/* One change of one object: a number of so many bytes at an offset, or one text for another. */
struct lie {
    const char *object; /* part of its key; the last one that has it */
    size_t offset, bytes;
    uint64_t value;
    const char *from, *to;
    const char *named, *what; /* in what verify says; named NULL: like `object` */
};

static const struct lie lies[] = {
    /* Layout: 36 "w", 53 "x", 70 and 102 their boxes, 134 the blob. */
    {"/layouts/", PUT(16, 4, 65), .what = "65 ranks, the limit is 64"},
    {"/layouts/", PUT(16, 4, 0), .what = "no ranks, expected at least one"},
    {"/layouts/", PUT(20, 4, 1 << 24), .what = "its records take at least 150994989 bytes, 113 are left"},
    {"/layouts/", PUT(20, 4, UINT32_MAX), .what = "4294967295 tensors, the limit is 16777216"},
    {"/layouts/", PUT(24, 4, 1 << 24), .what = "its records take at least 268435487 bytes, 113 are left"},
    {"/layouts/", PUT(28, 4, 1 << 20), .what = "its records take at least 9437238 bytes, 113 are left"},
    {"/layouts/", PUT(36, 4, 0), .what = "145 bytes do not hold the records that it counts"},
    {"/layouts/", PUT(36, 4, 8193), .what = "145 bytes do not hold the records that it counts"},
    {"/layouts/", PUT(40, 1, 99), .what = "tensor \"w\": unknown dtype 99"},
    {"/layouts/", PUT(41, 1, 17), .what = "17 dimensions, the limit is 16"},
    {"/layouts/", PUT(44, 1, 0), .what = "name is not UTF-8 without NUL"},
    {"/layouts/", PUT(44, 1, 'x'), .what = "two tensors are named \"x\""},
    {"/layouts/", PUT(45, 8, 1), .what = "offset 0, extent 9000, size 1"},
    {"/layouts/", PUT(45, 8, UINT64_MAX), .named = "/checkpoints/",
     .what = "18446744073709542615 of 18446744073709551615 elements are in no box"},
    {"/layouts/", PUT(74, 4, 5), .what = "rank 5 of a box is none of the layout's"},
    {"/layouts/", PUT(86, 8, UINT64_MAX), .what = "offset 18446744073709551615, extent 9000, size 9000"},
    {"/layouts/", PUT(110, 4, 0), .what = "box 1 is tied to box 0, which is of another extent"},
    {"/layouts/", PUT(110, 4, 7), .what = "box 1 is tied to box 7, which is not before it"},
    {"/layouts/", PUT(102, 4, 0), .what = "(tensor 0, rank 0) comes after (0, 0)"},
    {"/layouts/", PUT(138, 4, UINT32_MAX), .what = "145 bytes do not hold the records that it counts"},
    /* Content: 72 raw bytes of three items, 96 hashes, 144 metadata. */
    {"/content", PUT(48, 4, 5000), .what = "extents of 5000 bytes, expected a power of two"},
    {"/content", PUT(48, 4, UINT32_C(1) << 31), .what = "extents of 2147483648 bytes, expected a power of two"},
    {"/content", PUT(52, 4, UINT32_MAX), .what = "4294967295 items, the limit is 17825792"},
    {"/content", PUT(52, 4, 1 << 20), .what = "its records take at least 8388660 bytes, 84 are left"},
    {"/content", PUT(56, 8, 1 << 28), .what = "its records take at least 4294967324 bytes, 84 are left"},
    {"/content", PUT(64, 4, 65), .what = "65 ranks with metadata, the limit is 64"},
    {"/content", PUT(72, 8, UINT64_C(1) << 62), .what = "1099511627776 extents, the limit is 268435456"},
    {"/content", PUT(72, 8, 8999), .what = "8999 bytes, expected 9000"},
    {"/content", PUT(144, 4, UINT32_MAX), .what = "156 bytes do not hold the records that it counts"},
    {"/content", PUT(148, 1, 0xff), .what = "metadata 0 is not UTF-8 without NUL"},
    /* Placement: 72 the pack, 194 and 234 the first two extents. */
    {"/placement-", PUT(56, 4, UINT32_MAX), .what = "4294967295 packs, the limit is 65536"},
    {"/placement-", PUT(64, 8, UINT64_C(1) << 28), .what = "its records take at least 10737418275 bytes, 242 are left"},
    {"/placement-", PUT(72, 8, UINT64_C(1) << 50), .what = "the limit is 1099511627776"},
    {"/placement-", PUT(72, 8, 100000), .named = ".safetensors", .what = "the file has 13216 bytes, expected 100000"},
    {"/placement-", PUT(80, 8, 5), .what = "header of 5 bytes in a file of 13216, expected 10 to 16777224"},
    {"/placement-", PUT(80, 8, UINT64_C(1) << 30),
     .what = "header of 1073741824 bytes in a file of 13216, expected 10 to 16777224"},
    {"/placement-", TEXT("data/00/", "../../x/"), .what = "its key is not the key of a pack"},
    {"/placement-", TEXT("runs/run/", "runs/foo/"), .what = "belongs to run \"foo\", expected \"run\""},
    {"/placement-", TEXT(".safetensors", "/etc/passwd1"), .what = "its key is not the key of a pack"},
    {"/placement-", PUT(194, 4, 1), .what = "extent 0 is in pack 1, there are 1"},
    {"/placement-", PUT(198, 1, 7), .what = "unknown codec 7"},
    {"/placement-", PUT(198, 1, 1), .named = ".safetensors", .what = "1 extents do not match their hashes"},
    {"/placement-", PUT(202, 8, UINT64_C(1) << 40),
     .what = "9000 bytes at 1099511627776 leave pack 0, whose data is from 4096 to 13216"},
    {"/placement-", PUT(202, 8, UINT64_MAX), .what = "9000 bytes at 18446744073709551615 leave pack 0"},
    {"/placement-", PUT(202, 8, 0), .what = "9000 bytes at 0 leave pack 0, whose data is from 4096 to 13216"},
    {"/placement-", PUT(210, 8, 0), .what = "0 stored bytes, expected 1 to 16777216"},
    {"/placement-", PUT(210, 8, UINT64_C(1) << 63), .what = "9223372036854775808 stored bytes, expected 1 to 16777216"},
    {"/placement-", PUT(242, 8, 4196), .what = "extents overlap in pack 0: 9000 bytes at 4096 and 100 at 4196"},
    /* Summary. */
    {"/groups/", PUT(32, 8, 4), .what = "the summary is of checkpoint 00000000000000000004"},
    {"/groups/", PUT(52, 4, 5), .what = "group 5 of 1 in a world of 1 ranks cannot be"},
    {"/groups/", PUT(56, 4, 999999), .what = "group 0 of 999999 in a world of 1 ranks cannot be"},
    {"/groups/", PUT(60, 4, 1 << 24), .what = "1 groups and 16777216 ranks, the manifest of 9120, 1 and 1"},
    {"/groups/", PUT(208, 8, 9121), .what = "speaks of 9121 bytes"},
    {"/groups/", PUT(64, 1, 1), .named = "/content", .what = "is missing"},
    {"/groups/", PUT(68, 4, 65), .what = "65 ranks, the limit is 64"},
    {"/groups/", PUT(72, 4, 9), .what = "9 refs, the limit is 8"},
    {"/groups/", PUT(76, 4, 70000), .what = "70000 packs, the limit is 65536"},
    {"/groups/", PUT(176, 8, UINT64_C(1) << 40), .what = "1099511627776 bytes of layout, the limit is 4294967296"},
    {"/groups/", PUT(184, 8, UINT64_C(1) << 32), .named = "/content", .what = "156 bytes with SHA-256"},
    {"/groups/", PUT(192, 8, 1), .named = "/placement-", .what = "has 314 bytes, expected at most 1"},
    {"/groups/", PUT(224, 4, 1), .what = "rank 1 is out of order or outside of a world of 1"},
    /* Manifest. */
    {"/manifest.", TEXT("\"world\":1", "\"world\":16777216"),
     .what = "its groups hold 1 ranks, the world size is 16777216"},
    {"/manifest.", TEXT("\"world\":1", "\"world\":-1"), .what = "expected an integer from 0 to 4294967295, found -1"},
    {"/manifest.", TEXT("\"world\":1", "\"world\":1.0"), .what = "expected integers only, found a real number"},
    {"/manifest.", TEXT("\"world\":1", "\"world\":99999999999999999999"),
     .what = "expected a number that fits 64 bits"},
    {"/manifest.", TEXT("\"raw_bytes\":9120", "\"raw_bytes\":9121"),
     .what = "has 9121 bytes, its groups together 9120"},
    {"/manifest.", TEXT(",[0]]", ",[0,0]]"), .what = "its ranks do not ascend: 0 before 0"},
    {"/manifest.", TEXT("\"refs\":[],", "\"refs\":[],\"refs\":[],"), .what = "expected a name that is not there yet"},
    {"/manifest.", TEXT("\"refs\":[]", "\"refs\":[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]"),
     .what = "nested deeper than 16 levels"},
    {"/manifest.", TEXT("\"refs\":[]", "\"refs\":[\"../../etc\"]"), .what = "ref 0: expected a checkpoint id"},
    {"/manifest.", TEXT("\"bytes\":191", "\"bytes\":17179869185"),
     .what = "17179869185 bytes, at most 17179869184 are allowed"},
    {"/manifest.", TEXT("\"bytes\":191", "\"bytes\":17179869184"), .named = "/index.",
     .what = "191 bytes, the manifest names 17179869184"},
    {"/manifest.", TEXT("\"head_bytes\":101", "\"head_bytes\":100"), .named = "/index.",
     .what = "the SHA-256 of its head is not the root"},
    {"/manifest.", TEXT("\"id\":\"00000000000000000003", "\"id\":\"00000000000000000004"),
     .what = "it is the manifest of checkpoint 00000000000000000004"},
    {"/manifest.", TEXT("{\"fan_out\"", "{ \"fan_out\""), .what = "not canonical from byte 1 on"},
    {"/manifest.", TEXT("\"fan_out\":false", "\"fan_out\":0"), .what = "expected true or false, found 0"},
    {"/manifest.", TEXT("\"version\":[1,0]", "\"version\":[2,0]"), .named = "version 2.0",
     .what = "version 2.0, this release reads up to 1.x"},
    /* Index: 48 the block, 101 "w" and 146 "x". */
    {"/index.", PUT(16, 4, UINT32_MAX), .what = "the SHA-256 of its head is not the root"},
    {"/index.", PUT(24, 8, 99), .what = "2 boxes of 99 tensors: each has one at least"},
    {"/index.", PUT(40, 8, UINT64_C(1) << 34), .what = "its blocks end at 191, expected 17179869184"},
    {"/index.", PUT(48, 8, 102), .what = "block 0 is at 102, expected 101"},
    {"/index.", PUT(56, 4, UINT32_MAX), .what = "its blocks end at 4294967396, expected 191"},
    {"/index.", PUT(60, 4, 0), .what = "0 tensors in 90 bytes cannot be"},
    {"/index.", PUT(101, 4, UINT32_MAX), .what = "90 bytes do not hold the records that it counts"},
    {"/index.", PUT(105, 1, 99), .what = "tensor \"w\": unknown dtype 99"},
    {"/index.", PUT(109, 4, UINT32_MAX), .what = "its records take at least 103079215088 bytes, 77 are left"},
    {"/index.", PUT(122, 4, 7), .named = "/checkpoints/", .what = "the layouts give an index with the root"},
    {"/index.", PUT(126, 4, 99), .named = "/checkpoints/", .what = "the layouts give an index with the root"},
    {"/index.", PUT(130, 8, UINT64_MAX), .what = "offset 18446744073709551615, extent 9000, size 9000"},
    /* The newest entry. */
    {"/history/", TEXT("\"h\":3", "\"h\":-1"), .what = "expected an integer from 0 to 9223372036854775807, found -1"},
    {"/history/", TEXT("\"era\":1", "\"era\":1000000"), .what = "era 1000000 is not from 1 to 999999"},
    {"/history/", TEXT("\"n\":4", "\"n\":5"), .what = "holds entry 000001.00000000000000000005"},
    {"/history/", TEXT("\"run\":\"run\"", "\"run\":\"foo\""), .what = "of run \"foo\""},
    {"/history/", TEXT("\"run\":\"run\"", "\"run\":\"../x\""), .what = "expected a name, found \"../x\""},
    {"/history/", TEXT("\"labels\":[],", "\"labels\":[],\"labels\":[],"),
     .what = "expected a name that is not there yet"},
    {"/history/", TEXT("\"tries\":[]", "\"tries\":[[5,1],[5,1]]"), .what = "its tries do not ascend at step 5"},
    {"/history/", TEXT("\"id\":2", "\"id\":1"), .what = "expected every id to be used"},
    {"/history/", TEXT("\"id\":2", "\"id\":9"), .what = "expected a number of one of 3 ids"},
    {"/history/", TEXT("\"launches\":[\"one\"]", "\"launches\":[\"one\",\"one\"]"),
     .what = "launch \"one\" is listed twice"},
    {"/history/", TEXT("\"host\":\"", "\"host\":\"\\u001b[31m"), .what = "not canonical from byte"},
    {"/history/", TEXT("\"refs\":[]", "\"refs\":[0]"), .what = "refers to itself"},
    {"/history/", TEXT("\"version\":[1,0]", "\"version\":[2,0]"), .named = "version 2.0",
     .what = "version 2.0, this release reads up to 1.x"},
    {"store.json", TEXT("\"version\":[1,0]", "\"version\":[2,0]"), .named = "version 2.0",
     .what = "version 2.0, this release reads up to 1.x"},
    {"store.json", TEXT("\"id\":\"", "\"id\":\"X"), .what = "expected 32 hex digits, found"},
};

static void tell(const struct hostile *h, const struct lie *l) {
    struct forge f = {0};
    struct forge_object *o = NULL;
    hostile_load(h, &f);
    for (size_t i = 0; i < f.count; i++)
        if (strstr(f.objects[i].key, l->object) != NULL) o = &f.objects[i];
    must(o != NULL);
    if (l->from != NULL)
        must_at(forge_replace(o, l->from, l->to), l->from, "it stands there", __FILE__, __LINE__);
    else
        forge_put(o, l->offset, &l->value, l->bytes);
    forge_mend(&f);
    hostile_store(h, &f);
    forge_fini(&f);
}

static void a_lie_behind_hashes_that_are_right_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        if (SANITIZED && i % 2 != 0) continue;
        struct hostile h;
        hostile_make(&h);
        tell(&h, &lies[i]);
        hostile_run_all(&h, true);
        hostile_refuses(&h, VERIFY, lies[i].named != NULL ? lies[i].named : lies[i].object, lies[i].what);
        hostile_drop(&h);
    }
}

/* Nothing in these is wrong by itself; what they claim must cost nothing. */
static const struct lie claims[] = {
    {"/history/",
     TEXT("\"from\":null", "\"from\":{\"fan_out\":true,\"groups\":999999,\"id\":\"00000000000000000009.1-00c0ffee.0\","
                           "\"open\":true,\"refs\":[],\"world\":16777216}"),
     .what = ""},
    {"/history/", TEXT("\"bytes\":9120", "\"bytes\":9223372036854775807"), .what = ""},
    {"/history/", TEXT("\"time_ms\":1", "\"time_ms\":655000"), .what = ""},
    {"/history/", TEXT("\"note\":\"\"", "\"note\":\"\xe2\x80\xae%s%n\""), .what = ""},
};

static void a_claim_that_may_be_costs_nothing(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        struct hostile h;
        hostile_make(&h);
        tell(&h, &claims[i]);
        hostile_run_all(&h, SANITIZED && i > 1);
        hostile_drop(&h);
    }
}

static void a_summary_that_lies_is_mended_from_the_other_tier(void **state) {
    (void)state;
    struct hostile h;
    static struct end e;
    const struct lie lie = {"/groups/", PUT(60, 4, 1 << 24), .what = ""};
    hostile_make(&h);
    tell(&h, &lie);
    hostile_refuses(&h, VERIFY, "/groups/", "16777216 ranks");
    hostile_run(&h, REPAIR, &e);
    must_at(e.code == 0, e.text, "it is mended", __FILE__, __LINE__);
    hostile_run(&h, VERIFY, &e);
    must_at(e.code == 0, e.text, "it is mended", __FILE__, __LINE__);
    hostile_drop(&h);
}

static void a_repair_calls_no_lie_sound(void **state) {
    (void)state;
    struct hostile h;
    const struct lie lie = {"/manifest.", TEXT("\"bytes\":191", "\"bytes\":192"), .what = ""};
    hostile_make(&h);
    tell(&h, &lie);
    hostile_refuses(&h, VERIFY, "/index.", "191 bytes, the manifest names 192");
    hostile_refuses(&h, REPAIR, "/index.", "the layouts give another index than the manifest names");
    hostile_drop(&h);
}

/* --- lies of several objects, and checkpoints that refer to others ---- */

/* The object of a step's checkpoint whose key has this in it. */
static struct forge_object *of_step(const struct forge *f, unsigned step, const char *part) {
    char at[64];
    (void)snprintf(at, sizeof at, "/checkpoints/%020u.", step);
    for (size_t i = 0; i < f->count; i++)
        if (strstr(f->objects[i].key, at) != NULL && strstr(f->objects[i].key, part) != NULL) return &f->objects[i];
    must_at(false, part, "there is such an object", __FILE__, __LINE__);
    return f->objects;
}

/* Each entry is sound by itself. */
static void an_entry_that_follows_another_than_the_one_before_it_is_damage(void **state) {
    (void)state;
    struct hostile h;
    struct forge f = {0};
    hostile_make(&h);
    hostile_load(&h, &f);
    struct forge_object *last = f.objects;
    for (size_t i = 0; i < f.count; i++)
        if (strstr(f.objects[i].key, "/history/") != NULL) last = &f.objects[i];
    char *prev = memmem(last->bytes, last->len, "\"prev\":\"", 8);
    must(prev != NULL);
    prev[8] = prev[8] == 'a' ? 'b' : 'a';
    forge_mend(&f);
    hostile_store(&h, &f);
    forge_fini(&f);
    hostile_refuses(&h, VERIFY, "/history/000001.00000000000000000004", "it does not follow the entry before it");
    hostile_drop(&h);
}

/* It and the manifest say 192 bytes, and only its head knows better. */
static void an_index_that_is_longer_than_its_head_says_is_damage(void **state) {
    (void)state;
    struct hostile h;
    struct forge f = {0};
    hostile_make(&h);
    hostile_load(&h, &f);
    struct forge_object *index = of_step(&f, 3, "/index.");
    must(forge_replace(of_step(&f, 3, "/manifest."), "\"bytes\":191", "\"bytes\":192"));
    forge_splice(index, index->len, 0, "", 1);
    forge_mend(&f);
    hostile_store(&h, &f);
    forge_fini(&f);
    hostile_refuses(&h, VERIFY, "/index.", "its head speaks of 191 bytes, the manifest of 192");
    hostile_drop(&h);
}

/* From now on the summary of a step says that its placement refers to another one's packs. */
static void refer(const struct forge *f, unsigned from, unsigned to) {
    enum { ID_AT = 32, ID_BYTES = 20, REF_COUNT_AT = 72, SHA_BYTES = 32 };
    struct forge_object *o = of_step(f, from, "/groups/");
    forge_put(o, REF_COUNT_AT, &(uint32_t){1}, 4);
    forge_splice(o, o->len - SHA_BYTES, 0, of_step(f, to, "/groups/")->bytes + ID_AT, ID_BYTES);
}

/* The same, of one that is committed: its manifest and the log say so too. */
static void refer_for_good(const struct forge *f, unsigned from, unsigned to) {
    char id[64] = "", refs[96];
    refer(f, from, to);
    (void)sscanf(strstr(of_step(f, to, "/groups/")->key, "/checkpoints/"), "/checkpoints/%63[^/]", id);
    (void)snprintf(refs, sizeof refs, "\"refs\":[\"%s\"]", id);
    must(forge_replace(of_step(f, from, "/manifest."), "\"refs\":[]", refs));
    for (size_t i = 0; i < f->count; i++) {
        struct forge_object *o = &f->objects[i];
        char row[16];
        (void)snprintf(row, sizeof row, "\"id\":%u,", from - 1); /* in the table of ids of the newest entries */
        uint8_t *at = strstr(o->key, "/history/") != NULL ? memmem(o->bytes, o->len, row, strlen(row)) : NULL;
        if (at != NULL) at = memmem(at, o->len - (size_t)(at - o->bytes), "\"refs\":[", 8);
        if (at != NULL) forge_splice(o, (size_t)(at - o->bytes) + 8, 0, &(char){(char)('0' + to - 1)}, 1);
    }
}

static void damage_newest_entry(const struct hostile *h) {
    const char *path = hostile_path(h, "/history/");
    FILE *f = fopen(path, "r+");
    must(f != NULL && fseek(f, 30, SEEK_SET) == 0);
    const int c = fgetc(f);
    must(fseek(f, 30, SEEK_SET) == 0 && fputc(c ^ 1, f) == (c ^ 1) && fclose(f) == 0);
}

/* Which checkpoints refer to which, by what the run says. */
static void check_refs(const struct place *p, size_t count) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_list *list = NULL;
    struct bw_ref_row row;
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_refs(c, RUN, &list, &err), &err);
    must_eq(bw_list_count(list), count);
    for (size_t i = 0; bw_list_ref(list, i, &row); i++)
        must(strncmp(row.from, "00000000000000000002.", 21) == 0 && strncmp(row.to, "00000000000000000001.", 21) == 0);
    bw_list_free(list);
    bw_catalog_close(c);
}

static uint64_t live_of(const struct place *p) {
    struct bw_error err = BW_ERROR_INIT;
    struct bw_run_info info = {0};
    struct bw_catalog *c = catalog_of(p);
    must_ok(bw_catalog_run(c, RUN, &info, &err), &err);
    bw_catalog_close(c);
    return info.live;
}

/* Of three steps the newest was committed by the entry that is damaged now; the first one is lost. */
static void a_repair_leaves_out_what_refers_to_what_is_gone(void **state) {
    static const struct {
        unsigned from;    /* refers to step 1 */
        const char *gone; /* of step 1 */
        const char *what;
    } cases[] = {{3, "/groups/", "not taken up: it refers to 00000000000000000001."},
                 {3, "/manifest.", "not taken up: it refers to a checkpoint that was retired or is lost"},
                 {2, "/groups/", "lost: it refers to 00000000000000000001."}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        static struct end e;
        struct hostile h;
        struct forge f = {0};
        hostile_make(&h);
        hostile_load(&h, &f);
        if (cases[i].from == 3)
            refer(&f, 3, 1);
        else
            refer_for_good(&f, cases[i].from, 1);
        forge_mend(&f);
        of_step(&f, 1, cases[i].gone)->gone = true;
        hostile_store(&h, &f);
        forge_fini(&f);
        check_refs(&h.p, cases[i].from == 2);
        damage_newest_entry(&h);
        hostile_run(&h, "repair " RUN " --remote @remote --memory 64MiB", &e); /* which is dry */
        must_at(strstr(e.text, cases[i].what) != NULL, e.text, cases[i].what, __FILE__, __LINE__);
        hostile_run(&h, "repair " RUN " --history --yes --remote @remote --memory 64MiB", &e);
        must_at(strstr(e.text, cases[i].what) != NULL, e.text, cases[i].what, __FILE__, __LINE__);
        must_at(strstr(e.text, "era 2 has begun") != NULL, e.text, "it is repaired", __FILE__, __LINE__);
        hostile_run(&h, VERIFY, &e);
        must_at(e.code == 0, e.text, "what is left is sound", __FILE__, __LINE__);
        must_eq(live_of(&h.p), 1);
        hostile_drop(&h);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lie_behind_hashes_that_are_right_is_refused),
        cmocka_unit_test(a_claim_that_may_be_costs_nothing),
        cmocka_unit_test(a_summary_that_lies_is_mended_from_the_other_tier),
        cmocka_unit_test(a_repair_calls_no_lie_sound),
        cmocka_unit_test(an_entry_that_follows_another_than_the_one_before_it_is_damage),
        cmocka_unit_test(an_index_that_is_longer_than_its_head_says_is_damage),
        cmocka_unit_test(a_repair_leaves_out_what_refers_to_what_is_gone),
    };
    if (argc != 2) return 2;
    hostile_command = argv[1];
    const int failed = run_cases(tests);
    hostile_template_drop();
    return failed;
}
