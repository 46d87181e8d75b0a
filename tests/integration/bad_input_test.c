/* SPDX-License-Identifier: Apache-2.0 */
/* Bad input: an error with a code, and a message that names the thing, what was expected and what was found. No crash,
 * nothing lost. */
#include "job.h"
#include <stdio.h>
#include <string.h>

/* A run with one checkpoint of step 1, and its handle. */
struct run {
    struct place p;
    struct bw_checkpointer *ck;
};
#define STATE 5000

static void run_make(struct run *r) {
    place_make(&r->p);
    r->ck = open_alone(&r->p, "one");
    save_filled(r->ck, 1, STATE);
}

/* Whatever was asked, the older checkpoint is there, and the handle goes on saving. */
static void run_drop(struct run *r) {
    check_bytes(&r->p, 1, STATE, 1);
    if (r->ck) {
        save_filled(r->ck, 1000, STATE);
        close_ok(r->ck);
        check_bytes(&r->p, 1000, STATE, 1000);
    }
    place_drop(&r->p);
}

/* --- opening ---- */

#define OPEN_FAILS(change, status, part)                                                                               \
    do {                                                                                                               \
        struct bw_options o = options_of(&r.p, "two", 0, 1);                                                           \
        struct bw_error why = BW_ERROR_INIT;                                                                           \
        struct bw_checkpointer *ck = (void *)&o;                                                                       \
        change;                                                                                                        \
        must_fail(bw_checkpointer_open(&o, &ck, &why), status, &why, part);                                            \
        must_eq(why.stage == BW_STAGE_NONE || why.stage == BW_STAGE_OPEN, 1);                                          \
        must(ck == (void *)&o); /* outputs are written on success only */                                              \
    } while (0)

static void wrong_options_are_named(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *none = NULL;
    char long_name[130];
    memset(long_name, 'x', 129);
    long_name[129] = 0;
    run_make(&r);
    const struct bw_options good = options_of(&r.p, "two", 0, 1);
    must_fail(bw_checkpointer_open(NULL, &none, &err), BW_E_INVALID, &err, "options");
    must_fail(bw_checkpointer_open(&good, NULL, &err), BW_E_INVALID, &err, "ret_ck");
    must_eq(bw_checkpointer_open(NULL, NULL, NULL), BW_E_INVALID);
    OPEN_FAILS(o.struct_size = 0, BW_E_INVALID, "struct_size");
    OPEN_FAILS(o.struct_size = 17, BW_E_INVALID, "struct_size is 17");
    OPEN_FAILS(o.struct_size += 8, BW_E_INVALID, "struct_size");
    OPEN_FAILS(o.struct_size -= 3, BW_E_INVALID, "struct_size"); /* ends inside a member */
    OPEN_FAILS(o.flags = 8, BW_E_INVALID, "flags");
    OPEN_FAILS(o.run = NULL, BW_E_INVALID, "run is missing");
    OPEN_FAILS(o.run = "", BW_E_INVALID, "run");
    OPEN_FAILS(o.run = "a/b", BW_E_INVALID, "\"a/b\"");
    OPEN_FAILS(o.run = "../a", BW_E_INVALID, "\"../a\"");
    OPEN_FAILS(o.run = ".a", BW_E_INVALID, "\".a\"");
    OPEN_FAILS(o.run = "a b", BW_E_INVALID, "\"a b\"");
    OPEN_FAILS(o.run = "caf\xc3\xa9", BW_E_INVALID, "run");
    OPEN_FAILS(o.run = long_name, BW_E_INVALID, "run");
    OPEN_FAILS(o.job = NULL, BW_E_INVALID, "job");
    OPEN_FAILS(o.job = "a/b", BW_E_INVALID, "job");
    OPEN_FAILS(o.launch = NULL, BW_E_INVALID, "launch");
    OPEN_FAILS(o.launch = "x\ny", BW_E_INVALID, "launch");
    OPEN_FAILS(o.world = 0, BW_E_INVALID, "world");
    OPEN_FAILS(o.world = 1000000, BW_E_INVALID, "world is 1000000");
    OPEN_FAILS(o.rank = 1, BW_E_INVALID, "rank is 1");
    OPEN_FAILS(o.rank = UINT32_MAX, BW_E_INVALID, "rank");
    OPEN_FAILS(o.remote_url = NULL, BW_E_INVALID, "remote");
    OPEN_FAILS(o.remote_url = "", BW_E_INVALID, "remote");
    OPEN_FAILS(o.remote_url = "relative/path", BW_E_INVALID, "relative/path");
    OPEN_FAILS(o.remote_url = "s3://bucket/prefix", BW_E_UNSUPPORTED, "S3");
    OPEN_FAILS(o.remote_url = "ftp://host/x", BW_E_UNSUPPORTED, "ftp");
    OPEN_FAILS(o.remote_url = "file://host/x", BW_E_INVALID, "file:///");
    OPEN_FAILS(o.local_url = "file:///x?y=z", BW_E_INVALID, "local tier");
    OPEN_FAILS(o.local_url = "/dev/null", BW_E_IO, "/dev/null");
    OPEN_FAILS(o.remote_url = "/proc/nowhere", BW_E_NOTFOUND, "/proc/nowhere");
    OPEN_FAILS(o.memory_budget_bytes = 64 * MIB - 1, BW_E_INVALID, "memory_budget_bytes is 67108863");
    OPEN_FAILS(o.memory_budget_bytes = UINT64_MAX, BW_E_NOMEM, NULL);
    OPEN_FAILS(o.io_threads = 100000, BW_E_INVALID, "io_threads");
    OPEN_FAILS(o.capture_threads = 257, BW_E_INVALID, "capture_threads is 257");
    OPEN_FAILS(o.background_nice = 20, BW_E_INVALID, "background_nice is 20");
    OPEN_FAILS(o.reserved = 1, BW_E_INVALID, "reserved");
    OPEN_FAILS(o.cpus = "", BW_E_INVALID, "cpus is \"\": expected a list");
    OPEN_FAILS(o.cpus = "0,", BW_E_INVALID, "cpus is \"0,\"");
    OPEN_FAILS(o.cpus = "16383", BW_E_INVALID, "may not use CPU 16383");
    OPEN_FAILS(o.saves_in_flight_max = 0, BW_E_INVALID, "saves_in_flight_max");
    OPEN_FAILS(o.saves_in_flight_max = 17, BW_E_INVALID, "saves_in_flight_max is 17");
    OPEN_FAILS(o.on_busy = 3, BW_E_INVALID, "on_busy");
    OPEN_FAILS(o.resume = 4, BW_E_INVALID, "resume");
    OPEN_FAILS(o.resume_step = BW_STEP_MAX + 1, BW_E_INVALID, "resume_step");
    OPEN_FAILS(o.on_damage = 2, BW_E_INVALID, "on_damage");
    OPEN_FAILS(o.io_backend = 3, BW_E_INVALID, "io_backend");
    OPEN_FAILS(o.local_io_depth = 65, BW_E_INVALID, "local_io_depth is 65: expected 0 .. 64");
    OPEN_FAILS(o.remote_io_depth = 65, BW_E_INVALID, "remote_io_depth is 65: expected 0 .. 64");
    OPEN_FAILS(o.retention.reserved = 1, BW_E_INVALID, "reserved");
    OPEN_FAILS(o.resume = BW_RESUME_FRESH, BW_E_REFUSED, "label");
    OPEN_FAILS(o.launch = "one", BW_E_NOT_MEMBER, "\"one\"");
    run_drop(&r);
}

static void null_handles_are_allowed_or_named(void **state) {
    (void)state;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_event e;
    struct bw_save *v = NULL;
    struct bw_restore *r = NULL;
    struct bw_list *list = NULL;
    bw_checkpointer_resumed(NULL, NULL);
    bw_checkpointer_stats(NULL, NULL);
    must_eq(bw_checkpointer_close(NULL, 0, &err), 0);
    must_eq(bw_checkpointer_fd(NULL), -1);
    must_eq(bw_checkpointer_poll(NULL, &e), 0);
    bw_save_release(NULL);
    bw_save_stats(NULL, NULL);
    must_eq(bw_save_level(NULL), BW_LEVEL_NONE);
    must_fail(bw_save_begin(NULL, 1, &v, &err), BW_E_INVALID, &err, "ck");
    must_fail(bw_save_tensor(NULL, NULL, &err), BW_E_INVALID, &err, "save");
    must_fail(bw_save_blob(NULL, "b", NULL, 0, &err), BW_E_INVALID, &err, "save");
    must_fail(bw_save_metadata(NULL, "{}", &err), BW_E_INVALID, &err, "save");
    must_fail(bw_save_start(NULL, &err), BW_E_INVALID, &err, "save");
    must_fail(bw_save_wait(NULL, BW_LOCAL, 0, &err), BW_E_INVALID, &err, "save");
    must_fail(bw_save_error(NULL, &err), BW_E_INVALID, &err, "save");
    must_fail(bw_save_cancel(NULL, &err), BW_E_INVALID, &err, "save");
    bw_restore_close(NULL);
    bw_restore_stats(NULL, NULL);
    must_fail(bw_restore_open(NULL, &r, &err), BW_E_INVALID, &err, "ck");
    must_fail(bw_reader_open(NULL, &r, &err), BW_E_INVALID, &err, "options");
    must_fail(bw_restore_info(NULL, NULL, &err), BW_E_INVALID, &err, NULL);
    must_fail(bw_restore_read(NULL, NULL, 0, &err), BW_E_INVALID, &err, NULL);
    bw_catalog_close(NULL);
    bw_catalog_progress(NULL, NULL);
    bw_list_free(NULL);
    must_eq(bw_list_count(NULL), 0);
    must_fail(bw_catalog_open(NULL, NULL, &err), BW_E_INVALID, &err, NULL);
    must_fail(bw_catalog_runs(NULL, &list, &err), BW_E_INVALID, &err, NULL);
    must_fail(bw_catalog_history(NULL, RUN, &list, &err), BW_E_INVALID, &err, NULL);
    struct bw_doctor_options d = BW_DOCTOR_OPTIONS_INIT;
    must_fail(bw_doctor(&d, NULL, &err), BW_E_INVALID, &err, "ret_list");
    must_fail(bw_doctor(NULL, &list, &err), BW_E_INVALID, &err, "options is null");
    must_ok(bw_doctor(&d, &list, &err), &err); /* the machine alone */
    must(bw_list_count(list) > 0);
    bw_list_free(list);
    bw_error_clear(NULL);
    must_eq(bw_error_format(NULL, NULL, 0), bw_error_format(NULL, NULL, 0));
    must(strcmp(bw_status_name(12345), "?") == 0 && strcmp(bw_dtype_name(99), "?") == 0 &&
         strcmp(bw_level_name(-1), "?") == 0);
    must_eq(bw_dtype_parse(NULL), 0);
}

/* --- describing ---- */

#define TENSOR_FAILS(change, status, part)                                                                             \
    do {                                                                                                               \
        struct bw_tensor t = good;                                                                                     \
        struct bw_error why = BW_ERROR_INIT;                                                                           \
        change;                                                                                                        \
        must_fail(bw_save_tensor(v, &t, &why), status, &why, part);                                                    \
    } while (0)

static void wrong_tensors_are_named(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    char too_long[BW_TENSOR_NAME_BYTES_MAX + 2];
    static float memory[12];
    const uint64_t shape[2] = {3, 4}, huge[2] = {UINT64_MAX, UINT64_MAX}, beside[2] = {1, 0}, much[2] = {3, 5},
                   some[2] = {2, 4};
    const uint64_t sixteen[17] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t far[2] = {INT64_MAX, INT64_MAX};
    memset(too_long, 'n', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    run_make(&r);
    struct bw_save *v = begin(r.ck, 2);
    struct bw_tensor good = BW_TENSOR_INIT;
    good.dtype = BW_F32;
    good.name = "layer.weight";
    good.data = memory;
    good.dims = 2;
    good.shape = shape;
    must_fail(bw_save_tensor(v, NULL, &err), BW_E_INVALID, &err, "tensor");
    TENSOR_FAILS(t.struct_size = 0, BW_E_INVALID, "struct_size is 0");
    TENSOR_FAILS(t.struct_size += 1, BW_E_INVALID, "struct_size");
    TENSOR_FAILS(t.name = NULL, BW_E_INVALID, "name is NULL");
    TENSOR_FAILS(t.name = "", BW_E_INVALID, "name is empty");
    TENSOR_FAILS(t.name = "\xff\xfe", BW_E_INVALID, "UTF-8");
    TENSOR_FAILS(t.name = too_long, BW_E_LIMIT, "8192");
    TENSOR_FAILS(t.dtype = 0, BW_E_INVALID, "\"layer.weight\": unknown dtype 0");
    TENSOR_FAILS(t.dtype = 21, BW_E_INVALID, "unknown dtype 21");
    TENSOR_FAILS(t.dtype = 256 + BW_F32, BW_E_INVALID, "unknown dtype");
    TENSOR_FAILS(t.data = NULL, BW_E_INVALID, "\"layer.weight\": data is NULL, expected 48 bytes");
    TENSOR_FAILS(t.shape = NULL, BW_E_INVALID, "shape is NULL");
    TENSOR_FAILS((t.dims = 17, t.shape = sixteen), BW_E_LIMIT, "17 dims");
    TENSOR_FAILS(t.flags = 2, BW_E_INVALID, "flags are 0x2");
    TENSOR_FAILS(t.shape = huge, BW_E_INVALID, "do not fit");
    TENSOR_FAILS(t.offset = beside, BW_E_INVALID, "offset 1 in dimension 0 without an extent");
    TENSOR_FAILS(t.extent = much, BW_E_INVALID, "in dimension 1 is above the shape's 4");
    TENSOR_FAILS((t.offset = some, t.extent = some), BW_E_INVALID, "offset 2 + extent 2 in dimension 0");
    TENSOR_FAILS(t.stride_bytes = far, BW_E_INVALID, "stride_bytes");
    TENSOR_FAILS((t.replica_count = 2, t.replica_index = 2), BW_E_INVALID, "replica_index is 2");
    must_ok(bw_save_tensor(v, &good, &err), &err);
    TENSOR_FAILS((void)t, BW_E_INVALID, "\"layer.weight\": name is there already");
    must_ok(bw_save_blob(v, "rng", "x", 1, &err), &err);
    must_fail(bw_save_blob(v, "rng", "y", 1, &err), BW_E_INVALID, &err, "\"rng\"");
    must_fail(bw_save_blob(v, NULL, "y", 1, &err), BW_E_INVALID, &err, "name is NULL");
    must_fail(bw_save_blob(v, "nothing", NULL, 1, &err), BW_E_INVALID, &err, "bytes is NULL");
    must_fail(bw_save_metadata(v, NULL, &err), BW_E_INVALID, &err, "metadata");
    must_fail(bw_save_metadata(v, "nonsense", &err), BW_E_INVALID, &err, "expected a JSON object");
    must_fail(bw_save_wait(v, BW_LOCAL, 0, &err), BW_E_STATE, &err, "not started");
    must_fail(bw_save_wait(v, (enum bw_level)9, 0, &err), BW_E_INVALID, &err, "level is 9");
    start(v); /* what was refused is not part of it */
    must_fail(bw_save_start(v, &err), BW_E_STATE, &err, "started already");
    TENSOR_FAILS(t.name = "late", BW_E_STATE, "started already");
    must_fail(bw_save_blob(v, "late", "x", 1, &err), BW_E_STATE, &err, "started already");
    must_fail(bw_save_metadata(v, "{}", &err), BW_E_STATE, &err, "started already");
    finish(v);
    struct bw_restore *restore = reader_of(&r.p, 2);
    struct bw_checkpoint_info info;
    must_ok(bw_restore_info(restore, &info, &err), &err);
    must(info.tensors == 1 && info.raw_bytes == 49);
    bw_restore_close(restore);
    run_drop(&r);
}

static void replicas_that_contradict_each_other_are_named(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    static float memory[4];
    run_make(&r);
    struct bw_save *v = begin(r.ck, 2);
    for (uint32_t i = 0; i < 2; i++) {
        struct bw_tensor t = BW_TENSOR_INIT;
        t.dtype = BW_F32;
        t.name = i == 0 ? "a" : "b";
        t.data = memory;
        t.replica_count = 2;
        t.replica_index = i;
        must_ok(bw_save_tensor(v, &t, &err), &err);
    }
    must_fail(bw_save_start(v, &err), BW_E_INVALID, &err, "replica_index");
    must(strstr(err.message, "step 2") != NULL);
    must_eq(bw_save_wait(v, BW_CAPTURED, WAIT_MS, &err), BW_E_INVALID);
    bw_save_release(v);
    run_drop(&r);
}

static void wrong_steps_are_refused(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *v = NULL, *untouched = NULL;
    run_make(&r);
    must_fail(bw_save_begin(r.ck, 5, NULL, &err), BW_E_INVALID, &err, "ret_save");
    must_fail(bw_save_begin(r.ck, BW_STEP_MAX + 1, &untouched, &err), BW_E_INVALID, &err, "9223372036854775807");
    must_fail(bw_save_begin(r.ck, 0, &untouched, &err), BW_E_REFUSED, &err, "step 0 is below step 1");
    must_fail(bw_save_begin(r.ck, 1, &untouched, &err), BW_E_REFUSED, &err, "step 1");
    must(untouched == NULL);
    must_ok(bw_save_begin(r.ck, 5, &v, &err), &err);
    must_fail(bw_save_begin(r.ck, 5, &untouched, &err), BW_E_STATE, &err, "step 5 is being saved");
    must_fail(bw_save_begin(r.ck, 4, &untouched, &err), BW_E_REFUSED, &err, "step 4 is below step 5");
    bw_save_release(v);
    close_ok(r.ck);
    r.ck = open_alone(&r.p, "two");
    must_fail(bw_save_begin(r.ck, 1, &untouched, &err), BW_E_REFUSED, &err, "step 1, from which this launch went on");
    run_drop(&r);
}

static void the_greatest_step_can_be_saved(void **state) {
    (void)state;
    struct run r;
    run_make(&r);
    save_filled(r.ck, BW_STEP_MAX, STATE);
    close_ok(r.ck);
    r.ck = NULL;
    check_bytes(&r.p, BW_STEP_MAX, STATE, BW_STEP_MAX);
    run_drop(&r);
}

/* --- reading ---- */

#define SLICE_FAILS(change, status, part)                                                                              \
    do {                                                                                                               \
        struct bw_slice s = good;                                                                                      \
        struct bw_error why = BW_ERROR_INIT;                                                                           \
        change;                                                                                                        \
        must_fail(bw_restore_read(restore, &s, 1, &why), status, &why, part);                                          \
    } while (0)

static void wrong_slices_are_named(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    static unsigned char got[5000];
    const uint64_t shape = 5000, other = 4999, one = 1, all_but_one = 4999, two[2] = {1, 1};
    const int64_t zero = 0, far = INT64_MAX;
    run_make(&r);
    struct bw_restore *restore = reader_of(&r.p, 1);
    struct bw_slice good = BW_SLICE_INIT;
    good.dtype = BW_U8;
    good.name = "w";
    good.data = got;
    good.dims = 1;
    good.shape = &shape;
    must_fail(bw_restore_read(restore, NULL, 1, &err), BW_E_INVALID, &err, NULL);
    must_ok(bw_restore_read(restore, NULL, 0, &err), &err);
    SLICE_FAILS(s.struct_size = 3, BW_E_INVALID, "struct_size is 3");
    SLICE_FAILS(s.name = NULL, BW_E_INVALID, "name");
    SLICE_FAILS(s.name = "v", BW_E_NOTFOUND, "\"v\"");
    SLICE_FAILS(s.dtype = 0, BW_E_INVALID, "dtype 0");
    SLICE_FAILS(s.dtype = BW_I8, BW_E_MISMATCH, "the slice has dtype I8, the checkpoint U8");
    SLICE_FAILS((s.dims = 2, s.shape = two), BW_E_MISMATCH, "2 dimensions");
    SLICE_FAILS((s.dims = 0, s.shape = NULL), BW_E_MISMATCH, "dimensions");
    SLICE_FAILS(s.shape = &other, BW_E_MISMATCH, "4999");
    SLICE_FAILS(s.data = NULL, BW_E_INVALID, "data is NULL");
    SLICE_FAILS(s.reserved = 1, BW_E_INVALID, "reserved");
    SLICE_FAILS(s.offset = &one, BW_E_INVALID, "offset");
    SLICE_FAILS((s.offset = &all_but_one, s.extent = &shape), BW_E_INVALID, "extent");
    SLICE_FAILS(s.stride_bytes = &zero, BW_E_INVALID, "overlap");
    SLICE_FAILS(s.stride_bytes = &far, BW_E_INVALID, "strides leave the address space");
    struct bw_slice twice[2] = {good, good};
    must_fail(bw_restore_read(restore, twice, 2, &err), BW_E_INVALID, &err, "overlap");
    twice[1].offset = twice[1].extent = &one;
    twice[1].data = got + 4999;
    must_fail(bw_restore_read(restore, twice, 2, &err), BW_E_INVALID, &err, "overlap");
    must_ok(bw_restore_read(restore, &good, 1, &err), &err); /* it can still be used */
    must(is_filled(got, sizeof got, 1));
    bw_restore_close(restore);
    run_drop(&r);
}

static void an_old_error_is_replaced(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor_info t;
    struct bw_box_info b;
    size_t bytes = 0;
    run_make(&r);
    struct bw_restore *restore = reader_of(&r.p, 1);
    must_fail(bw_restore_tensor(restore, "no such tensor", &t, &err), BW_E_NOTFOUND, &err, "no such tensor");
    must_fail(bw_restore_tensor(restore, NULL, &t, &err), BW_E_INVALID, &err, "name is null");
    must_fail(bw_restore_tensor(restore, "no such tensor", &t, &err), BW_E_NOTFOUND, &err, "no such tensor");
    must_fail(bw_restore_box_at(restore, NULL, 0, &b, &err), BW_E_INVALID, &err, "name is null");
    must_fail(bw_restore_box_at(restore, "w", 7, &b, &err), BW_E_NOTFOUND, &err, "w");
    must_fail(bw_restore_blob(restore, 0, NULL, NULL, 0, &bytes, &err), BW_E_INVALID, &err, "name is null");
    must_fail(bw_restore_blob(restore, 9, "x", NULL, 0, &bytes, &err), BW_E_NOTFOUND, &err, NULL);
    must_fail(bw_restore_blob(restore, 0, "x", NULL, 4, &bytes, &err), BW_E_INVALID, &err, "buf is null");
    must_fail(bw_restore_tensor(NULL, "w", &t, &err), BW_E_INVALID, &err, NULL);
    must_fail(bw_restore_tensor(restore, "w", NULL, &err), BW_E_INVALID, &err, NULL);
    must_fail(bw_restore_info(restore, NULL, &err), BW_E_INVALID, &err, NULL);
    must_ok(bw_restore_tensor(restore, "w", &t, &err), &err);
    must(t.bytes == 5000 && t.boxes == 1 && t.dtype == BW_U8 && t.dims == 1 && t.shape[0] == 5000);
    bw_restore_close(restore);
    run_drop(&r);
}

static void what_is_expected_is_compared_strictly(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    static float m[12];
    const uint64_t shape[2] = {3, 4}, turned[2] = {4, 3};
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    struct bw_save *v = begin(ck, 1);
    add_box(v, "a", BW_F32, m, 2, shape, NULL, NULL);
    add_box(v, "b", BW_F32, m, 2, shape, NULL, NULL);
    add_box(v, "c", BW_F32, m, 2, shape, NULL, NULL);
    commit(v);
    close_ok(ck);
    struct bw_restore *r = reader_of(&p, 1);
    struct bw_expected want[4] = {
        {"a", BW_F32, 2, shape}, {"b", BW_F32, 2, shape}, {"c", BW_F32, 2, shape}, {"d", BW_F32, 2, shape}};
    must_ok(bw_restore_check(r, want, 3, 0, &err), &err);
    must_ok(bw_restore_check(r, want, 2, BW_CHECK_SUBSET, &err), &err);
    must_fail(bw_restore_check(r, want, 2, 0, &err), BW_E_MISMATCH, &err, "\"c\"");
    must_fail(bw_restore_check(r, want, 4, 0, &err), BW_E_MISMATCH, &err, "\"d\"");
    must_fail(bw_restore_check(r, want, 4, BW_CHECK_SUBSET, &err), BW_E_MISMATCH, &err, "\"d\"");
    must_fail(bw_restore_check(r, want, 0, 0, &err), BW_E_MISMATCH, &err, "\"a\"");
    must_fail(bw_restore_check(r, want, 3, 2, &err), BW_E_INVALID, &err, "flags");
    must_fail(bw_restore_check(r, NULL, 3, 0, &err), BW_E_INVALID, &err, NULL);
    want[1].dtype = BW_BF16;
    must_fail(bw_restore_check(r, want, 3, 0, &err), BW_E_MISMATCH, &err, "BF16");
    must(strstr(err.message, "F32") != NULL && strstr(err.message, "\"b\"") != NULL);
    want[1].dtype = BW_F32;
    want[2].shape = turned;
    must_fail(bw_restore_check(r, want, 3, 0, &err), BW_E_MISMATCH, &err, "[4, 3]");
    must(strstr(err.message, "[3, 4]") != NULL);
    want[2].shape = NULL;
    must_fail(bw_restore_check(r, want, 3, 0, &err), BW_E_INVALID, &err, "shape");
    want[2].name = NULL;
    must_fail(bw_restore_check(r, want, 3, 0, &err), BW_E_INVALID, &err, "name");
    bw_restore_close(r);
    place_drop(&p);
}

/* --- readers and catalogs ---- */

static void what_does_not_exist_is_not_found(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *restore = NULL;
    struct bw_catalog *c = NULL;
    struct bw_list *list = NULL;
    run_make(&r);
    struct bw_reader_options o = BW_READER_OPTIONS_INIT;
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "run");
    o.run = "other";
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "remote");
    o.remote_url = r.p.remote;
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_NOTFOUND, &err, "\"other\"");
    o.run = "a/b";
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "\"a/b\"");
    o.run = RUN;
    o.step = 7;
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_NOTFOUND, &err, "step 7");
    o.id = "nonsense";
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "nonsense");
    o.id = "00000000000000000001.1-00000000.0";
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_NOTFOUND, &err, o.id);
    o.flags = 1;
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "reserved");
    o.flags = 0;
    o.struct_size = 5;
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "struct_size");
    o.struct_size = (uint32_t)offsetof(struct bw_reader_options, io_timeout_ms) + 4;
    must_fail(bw_reader_open(&o, &restore, &err), BW_E_INVALID, &err, "struct_size");
    struct bw_catalog_options co = BW_CATALOG_OPTIONS_INIT;
    must_fail(bw_catalog_open(&co, &c, &err), BW_E_INVALID, &err, "remote");
    co.remote_url = path_in(r.p.root, "nowhere");
    must_fail(bw_catalog_open(&co, &c, &err), BW_E_NOTFOUND, &err, "nowhere");
    co.remote_url = r.p.remote;
    co.flags = 8;
    must_fail(bw_catalog_open(&co, &c, &err), BW_E_INVALID, &err, "flags");
    co.flags = BW_CATALOG_READ_ONLY;
    must_ok(bw_catalog_open(&co, &c, &err), &err);
    must_fail(bw_catalog_checkpoints(c, "other", &list, &err), BW_E_NOTFOUND, &err, "\"other\"");
    struct bw_run_info info;
    must_fail(bw_catalog_run(c, "other", &info, &err), BW_E_NOTFOUND, &err, "\"other\"");
    must_fail(bw_catalog_run(c, RUN, NULL, &err), BW_E_INVALID, &err, "null");
    must_ok(bw_catalog_run(c, RUN, &info, &err), &err);
    must(strcmp(info.run, RUN) == 0 && info.status == 0);
    must_fail(bw_catalog_checkpoints(c, "a/b", &list, &err), BW_E_INVALID, &err, "a/b");
    must_fail(bw_catalog_checkpoints(c, NULL, &list, &err), BW_E_INVALID, &err, "run");
    must_fail(bw_catalog_checkpoints(c, RUN, NULL, &err), BW_E_INVALID, &err, NULL);
    must_fail(bw_catalog_verify(c, RUN, "nonsense", 0, &list, &err), BW_E_INVALID, &err, "nonsense");
    must_fail(bw_catalog_verify(c, RUN, o.id, 0, &list, &err), BW_E_NOTFOUND, &err, o.id);
    must_fail(bw_catalog_verify(c, RUN, NULL, 64, &list, &err), BW_E_INVALID, &err, "flags");
    must_fail(bw_catalog_pin(c, RUN, o.id, 1, &err), BW_E_ACCESS, &err, "read-only");
    must(list == NULL);
    bw_catalog_close(c);
    run_drop(&r);
}

static void what_starts_from_nothing_has_nothing_to_restore(void **state) {
    (void)state;
    struct place p;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *r = NULL;
    place_make(&p);
    struct bw_checkpointer *ck = open_alone(&p, "one");
    must(resumed_of(ck).from_checkpoint == 0 && resumed_of(ck).id[0] == 0 && resumed_of(ck).attempt == 1);
    must_fail(bw_restore_open(ck, &r, &err), BW_E_NOTFOUND, &err, "nothing");
    must_fail(bw_restore_open(ck, NULL, &err), BW_E_INVALID, &err, "ret_restore");
    close_ok(ck);
    place_drop(&p);
}

/* A rank of another world than the launch's is told so, and the run is as it was. */
static void a_program_of_another_size_struct_is_understood(void **state) {
    (void)state;
    struct run r;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpointer *ck = NULL;
    /* Compiled against headers that ended there. */
    static const size_t sizes[] = {offsetof(struct bw_options, retention), offsetof(struct bw_options, local_io_depth)};
    static const char *const launches[] = {"two", "three"};
    run_make(&r);
    for (size_t i = 0; i < 2; i++) {
        struct bw_checkpointer_stats stats;
        close_ok(r.ck);
        struct bw_options o = options_of(&r.p, launches[i], 0, 1);
        o.remote_io_depth = 7;
        o.struct_size = (uint32_t)sizes[i];
        must_ok(bw_checkpointer_open(&o, &ck, &err), &err);
        must_eq(resumed_of(ck).step, 1);
        bw_checkpointer_stats(ck, &stats);
        must_eq(stats.remote_io_depth, 16); /* what lies behind its end is not looked at */
        r.ck = ck;
    }
    run_drop(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_options_are_named),
        cmocka_unit_test(null_handles_are_allowed_or_named),
        cmocka_unit_test(wrong_tensors_are_named),
        cmocka_unit_test(replicas_that_contradict_each_other_are_named),
        cmocka_unit_test(wrong_steps_are_refused),
        cmocka_unit_test(the_greatest_step_can_be_saved),
        cmocka_unit_test(wrong_slices_are_named),
        cmocka_unit_test(an_old_error_is_replaced),
        cmocka_unit_test(what_is_expected_is_compared_strictly),
        cmocka_unit_test(what_does_not_exist_is_not_found),
        cmocka_unit_test(what_starts_from_nothing_has_nothing_to_restore),
        cmocka_unit_test(a_program_of_another_size_struct_is_understood),
    };
    return run_cases(tests);
}
