/* SPDX-License-Identifier: Apache-2.0 */
/* Reader: one checkpoint, open for reading. */
#include "core.h"
#include <stdlib.h>
#include <string.h>

/* Between two calls of the library signals are answered. What is being read is written to the caller's memory, so a
 * read that has begun cannot be left to itself. */
#define PIECE_BYTES (UINT64_C(1) << 30)

PyObject *reader_of(struct core *core, struct checkpointer *ck, struct bw_restore *restore) {
    PyTypeObject *type = core->reader;
    struct reader *r = core_alloc(type);
    if (r != NULL) {
        r->core = core;
        r->h = core_handle(restore);
    }
    if (r == NULL || r->h == NULL) {
        Py_XDECREF((PyObject *)r);
        bw_restore_close(restore);
        return NULL;
    }
    if (ck != NULL) {
        r->of = (struct checkpointer *)Py_NewRef((PyObject *)ck);
        r->next = ck->readers;
        ck->readers = r;
    }
    return (PyObject *)r;
}

/* Takes it off the list. The checkpointer, if it has one still: entered, and the caller's. */
static struct checkpointer *part(struct reader *r) {
    struct checkpointer *of = r->of;
    if (of == NULL) return NULL;
    struct reader **at = &of->readers;
    while (*at != r) at = &(*at)->next;
    *at = r->next;
    r->of = NULL;
    (void)atomic_fetch_add(&of->h->users, 1);
    return of;
}

/* The last use of it; the checkpointer stays open until it is closed. */
static void finish(struct reader *r, bool gone) {
    struct checkpointer *of = part(r);
    struct bw_restore *restore = gone ? core_drop(r->h) : core_take(r->h);
    if (restore != NULL) {
        Py_BEGIN_ALLOW_THREADS
        bw_restore_close(restore);
        Py_END_ALLOW_THREADS
    }
    if (of == NULL) return;
    core_leave(of->h);
    Py_DECREF((PyObject *)of);
}

void reader_shut(struct reader *r) {
    Py_INCREF((PyObject *)r);
    finish(r, false);
    Py_DECREF((PyObject *)r);
}

/* ---- opening ---- */

struct open_job {
    struct job job;
    struct bw_reader_options o;
    char *texts[4];
    struct bw_restore *restore;
};

static int run_open(struct job *job) {
    struct open_job *j = (struct open_job *)job;
    return bw_reader_open(&j->o, &j->restore, &job->err);
}

static void drop_open(struct job *job) {
    struct open_job *j = (struct open_job *)job;
    bw_restore_close(j->restore);
    for (size_t i = 0; i < 4; i++) free(j->texts[i]);
    free(j);
}

static bool fill_open(struct open_job *j, PyObject *args, PyObject *kw) {
    static char *names[] = {"remote_url",          "run",           "step",       "id",         "local_url",
                            "memory_budget_bytes", "io_timeout_ms", "io_threads", "io_backend", NULL};
    const char *text[4] = {0};
    PyObject *step = Py_None, *budget = NULL, *timeout = NULL, *threads = NULL, *backend = NULL;
    struct bw_reader_options *o = &j->o;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "ss|O$zzOOOO", names, &text[0], &text[1], &step, &text[2], &text[3],
                                     &budget, &timeout, &threads, &backend))
        return false;
    if ((step != Py_None && !core_number(step, "step", UINT64_MAX, &o->step)) ||
        (budget != NULL && !core_number(budget, "memory_budget_bytes", UINT64_MAX, &o->memory_budget_bytes)) ||
        (timeout != NULL && !core_number(timeout, "io_timeout_ms", UINT64_MAX, &o->io_timeout_ms)) ||
        (threads != NULL && !core_number32(threads, "io_threads", &o->io_threads)) ||
        (backend != NULL && !core_number32(backend, "io_backend", &o->io_backend)))
        return false;
    for (size_t i = 0; i < 4; i++)
        if (text[i] != NULL && (j->texts[i] = strdup(text[i])) == NULL) return PyErr_NoMemory() != NULL;
    j->o.remote_url = j->texts[0], j->o.run = j->texts[1], j->o.id = j->texts[2], j->o.local_url = j->texts[3];
    return true;
}

static PyObject *reader_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    struct core *core = core_of(type);
    struct open_job *j = calloc(1, sizeof *j);
    if (j == NULL) return PyErr_NoMemory();
    *j = (struct open_job){.job = {.run = run_open, .drop = drop_open}, .o = BW_READER_OPTIONS_INIT};
    if (!fill_open(j, args, kw)) {
        drop_open(&j->job);
        return NULL;
    }
    if (job_run(&j->job) < 0) return NULL;
    const struct bw_error err = j->job.err;
    struct bw_restore *restore = j->job.rc < 0 ? NULL : j->restore;
    j->restore = NULL;
    drop_open(&j->job);
    return restore == NULL ? core_raise(core, &err) : reader_of(core, NULL, restore);
}

/* ---- reading tensors ---- */

static struct bw_slice slice_of(const struct tensor *t) {
    struct bw_slice s = BW_SLICE_INIT;
    s.dtype = t->dtype, s.name = t->utf8, s.data = t->data, s.dims = t->dims, s.shape = t->shape;
    s.offset = t->whole ? NULL : t->offset;
    s.extent = t->whole ? NULL : t->extent;
    s.stride_bytes = t->strided ? t->stride : NULL;
    return s;
}

static uint64_t bytes_of(const struct tensor *t) {
    uint64_t bytes = bw_dtype_bytes((int)t->dtype);
    for (uint32_t d = 0; d < t->dims; d++) bytes *= t->extent[d];
    return bytes;
}

/* As many as make a piece, one at least. */
static Py_ssize_t piece(PyObject *list, Py_ssize_t from) {
    uint64_t bytes = 0;
    const Py_ssize_t n = PyList_Size(list);
    Py_ssize_t i = from;
    while (i < n && bytes < PIECE_BYTES) bytes += bytes_of((const struct tensor *)PyList_GetItem(list, i++));
    return i - from;
}

static bool are_writable(PyObject *list) {
    for (Py_ssize_t i = 0; i < PyList_Size(list); i++) {
        const struct tensor *t = (const struct tensor *)PyList_GetItem(list, i);
        if (t->writable) continue;
        (void)PyErr_Format(PyExc_ValueError, "tensor %R: its memory is read-only", t->name);
        return false;
    }
    return true;
}

static int read_piece(struct reader *r, const struct bw_slice *slices, size_t n, struct bw_error *err) {
    struct bw_restore *restore = core_enter(r->h, "Reader");
    int rc;
    if (restore == NULL) return 1;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_restore_read(restore, slices, n, err);
    Py_END_ALLOW_THREADS
    core_leave(r->h);
    return rc;
}

static PyObject *reader_read(PyObject *self, PyObject *sequence) {
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    PyObject *list = tensor_list(r->core, sequence);
    if (list == NULL) return NULL;
    const Py_ssize_t n = PyList_Size(list);
    struct bw_slice *slices = calloc((size_t)n + 1, sizeof *slices);
    bool ok = slices == NULL ? PyErr_NoMemory() != NULL : are_writable(list);
    for (Py_ssize_t i = 0; i < n && ok; i++) slices[i] = slice_of((const struct tensor *)PyList_GetItem(list, i));
    for (Py_ssize_t at = 0, count; at < n && ok; at += count) {
        count = piece(list, at);
        const int rc = read_piece(r, slices + at, (size_t)count, &err);
        if (rc < 0) (void)core_raise(r->core, &err);
        ok = rc == 0 && PyErr_CheckSignals() == 0;
    }
    free(slices);
    Py_DECREF(list);
    return ok ? Py_NewRef(Py_None) : NULL;
}

static PyObject *reader_check(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"tensors", "subset", NULL};
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    PyObject *sequence;
    int subset = 0, rc = -1;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "O|p", names, &sequence, &subset)) return NULL;
    PyObject *list = tensor_list(r->core, sequence);
    if (list == NULL) return NULL;
    const size_t n = (size_t)PyList_Size(list);
    struct bw_expected *expected = calloc(n + 1, sizeof *expected);
    struct bw_restore *restore = expected == NULL ? (void *)PyErr_NoMemory() : core_enter(r->h, "Reader");
    for (size_t i = 0; i < n && restore != NULL; i++) {
        const struct tensor *t = (const struct tensor *)PyList_GetItem(list, (Py_ssize_t)i);
        expected[i] = (struct bw_expected){.name = t->utf8, .dtype = t->dtype, .dims = t->dims, .shape = t->shape};
    }
    if (restore != NULL) {
        Py_BEGIN_ALLOW_THREADS
        rc = bw_restore_check(restore, expected, n, subset ? BW_CHECK_SUBSET : 0, &err);
        Py_END_ALLOW_THREADS
        core_leave(r->h);
    }
    free(expected);
    Py_DECREF(list);
    if (restore == NULL) return NULL;
    return rc < 0 ? core_raise(r->core, &err) : Py_NewRef(Py_None);
}

/* ---- what there is ---- */

static PyObject *shape_of(const struct bw_tensor_info *t) {
    PyObject *shape = PyTuple_New(t->dims);
    for (uint32_t d = 0; d < t->dims && shape != NULL; d++) {
        PyObject *number = PyLong_FromUnsignedLongLong(t->shape[d]);
        if (number == NULL || PyTuple_SetItem(shape, d, number) < 0) Py_CLEAR(shape);
    }
    return shape;
}

static PyObject *tensor_info(const struct bw_tensor_info *t) {
    return Py_BuildValue("{ss ss sN sK sI}", "name", t->name, "dtype", bw_dtype_name((int)t->dtype), "shape",
                         shape_of(t), "bytes", (unsigned long long)t->bytes, "boxes", t->boxes);
}

static PyObject *reader_info(PyObject *self, PyObject *unused) {
    (void)unused;
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_checkpoint_info i;
    struct bw_restore *restore = core_enter(r->h, "Reader");
    int rc;
    if (restore == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_restore_info(restore, &i, &err);
    Py_END_ALLOW_THREADS
    core_leave(r->h);
    if (rc < 0) return core_raise(r->core, &err);
    return Py_BuildValue("{ss sK sI sI sI sN sK sK}", "id", i.id, "step", (unsigned long long)i.step, "attempt",
                         i.attempt, "world", i.world, "groups", i.groups, "committed", PyBool_FromLong(i.committed),
                         "raw_bytes", (unsigned long long)i.raw_bytes, "tensors", (unsigned long long)i.tensors);
}

static PyObject *reader_tensors(PyObject *self, PyObject *unused) {
    (void)unused;
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_restore *restore = core_enter(r->h, "Reader");
    PyObject *list = restore == NULL ? NULL : PyList_New(0);
    int rc = BW_E_NOTFOUND;
    for (uint64_t i = 0; list != NULL; i++) {
        struct bw_tensor_info t;
        Py_BEGIN_ALLOW_THREADS
        rc = bw_restore_tensor_at(restore, i, &t, &err);
        Py_END_ALLOW_THREADS
        if (rc < 0) break;
        PyObject *info = tensor_info(&t);
        if (info == NULL || PyList_Append(list, info) < 0) Py_CLEAR(list);
        Py_XDECREF(info);
    }
    if (restore != NULL) core_leave(r->h);
    if (rc == BW_E_NOTFOUND || list == NULL) return list;
    Py_DECREF(list);
    return core_raise(r->core, &err);
}

static PyObject *reader_tensor(PyObject *self, PyObject *name) {
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_tensor_info t;
    const char *text = core_text(name, "name");
    struct bw_restore *restore = text == NULL ? NULL : core_enter(r->h, "Reader");
    int rc;
    if (restore == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_restore_tensor(restore, text, &t, &err);
    Py_END_ALLOW_THREADS
    PyObject *info = rc < 0 ? core_raise(r->core, &err) : tensor_info(&t);
    core_leave(r->h);
    return info;
}

/* ---- blobs and metadata ---- */

static PyObject *reader_blob(PyObject *self, PyObject *args) {
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    uint32_t rank;
    const char *name;
    size_t bytes = 0;
    PyObject *blob = NULL, *number;
    if (!PyArg_ParseTuple(args, "Os", &number, &name) || !core_number32(number, "rank", &rank)) return NULL;
    struct bw_restore *restore = core_enter(r->h, "Reader");
    int rc = BW_E_LIMIT;
    if (restore == NULL) return NULL;
    while (rc == BW_E_LIMIT) { /* the first time it only says how long it is */
        Py_XDECREF(blob);
        blob = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
        if (blob == NULL) break;
        char *into = PyBytes_AsString(blob);
        const size_t room = bytes;
        Py_BEGIN_ALLOW_THREADS
        rc = bw_restore_blob(restore, rank, name, into, room, &bytes, &err);
        Py_END_ALLOW_THREADS
        if (rc == BW_E_LIMIT && bytes <= room) break;
    }
    core_leave(r->h);
    if (rc == 0 || blob == NULL) return blob;
    Py_DECREF(blob);
    return core_raise(r->core, &err);
}

static PyObject *reader_blobs(PyObject *self, PyObject *unused) {
    (void)unused;
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    uint64_t count = 0;
    struct bw_restore *restore = core_enter(r->h, "Reader");
    int rc = 0;
    if (restore == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_restore_blob_count(restore, &count, &err);
    Py_END_ALLOW_THREADS
    PyObject *list = rc < 0 ? NULL : PyList_New(0);
    for (uint64_t i = 0; i < count && list != NULL && rc == 0; i++) {
        struct bw_blob_info b;
        rc = bw_restore_blob_at(restore, i, &b, &err);
        PyObject *row =
            rc < 0 ? NULL
                   : Py_BuildValue("{sI ss sK}", "rank", b.rank, "name", b.name, "bytes", (unsigned long long)b.bytes);
        if (rc == 0 && (row == NULL || PyList_Append(list, row) < 0)) Py_CLEAR(list);
        Py_XDECREF(row);
    }
    core_leave(r->h);
    if (rc == 0) return list;
    Py_XDECREF(list);
    return core_raise(r->core, &err);
}

static PyObject *reader_metadata(PyObject *self, PyObject *rank) {
    struct reader *r = (struct reader *)self;
    struct bw_error err = BW_ERROR_INIT;
    const char *json = NULL;
    uint32_t n;
    if (!core_number32(rank, "rank", &n)) return NULL;
    struct bw_restore *restore = core_enter(r->h, "Reader");
    int rc;
    if (restore == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_restore_metadata(restore, n, &json, &err);
    Py_END_ALLOW_THREADS
    PyObject *text = rc < 0 ? core_raise(r->core, &err) : PyUnicode_FromString(json);
    core_leave(r->h);
    return text;
}

static PyObject *reader_stats(PyObject *self, PyObject *unused) {
    (void)unused;
    struct reader *r = (struct reader *)self;
    struct bw_restore_stats s;
    struct bw_restore *restore = core_enter(r->h, "Reader");
    if (restore == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    bw_restore_stats(restore, &s);
    Py_END_ALLOW_THREADS
    core_leave(r->h);
#define N(member) #member, (unsigned long long)s.member
    return Py_BuildValue("{sK sK sK sK sK sK sK}", N(local_bytes), N(remote_bytes), N(verified_bytes),
                         N(metadata_objects), N(damaged_extents), N(repaired_objects), N(read_ns));
#undef N
}

/* ---- the end ---- */

static PyObject *reader_close(PyObject *self, PyObject *unused) {
    (void)unused;
    finish((struct reader *)self, false);
    Py_RETURN_NONE;
}

static void reader_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    finish((struct reader *)self, true);
    core_free(self);
}

static int reader_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)((const struct reader *)self)->of);
    return 0;
}

static PyObject *reader_enter(PyObject *self, PyObject *unused) {
    (void)unused;
    return Py_NewRef(self);
}

static PyObject *reader_exit(PyObject *self, PyObject *args) {
    return reader_close(self, args);
}

static PyMethodDef methods[] = {
    {"info", reader_info, METH_NOARGS, "info()\n--\n\nWhat the checkpoint is, as a dict."},
    {"tensors", reader_tensors, METH_NOARGS,
     "tensors()\n--\n\nAll tensors by name: a list of dicts (name, dtype, shape, bytes, boxes)."},
    {"tensor", reader_tensor, METH_O, "tensor(name)\n--\n\nOne tensor as a dict. NotFoundError: there is none."},
    {"check", (PyCFunction)(void (*)(void))reader_check, METH_VARARGS | METH_KEYWORDS,
     "check(tensors, subset=False)\n--\n\nCompares a sequence of Tensor (name, dtype, whole shape) with what is there, "
     "before a\n"
     "byte is read. MismatchError names the first that differs. subset: there may be others."},
    {"read", reader_read, METH_O,
     "read(tensors)\n--\n\nReads into the memory of a sequence of Tensor, verified. After a failure it holds "
     "anything."},
    {"blob", reader_blob, METH_VARARGS, "blob(rank, name)\n--\n\nA blob of a rank, as bytes."},
    {"blobs", reader_blobs, METH_NOARGS, "blobs()\n--\n\nAll blobs of all ranks: a list of dicts (rank, name, bytes)."},
    {"metadata", reader_metadata, METH_O, "metadata(rank)\n--\n\nThe metadata of a rank, as canonical JSON text."},
    {"stats", reader_stats, METH_NOARGS, "stats()\n--\n\nCounters, as a dict."},
    {"close", reader_close, METH_NOARGS, "close()\n--\n\nCloses it."},
    {"__enter__", reader_enter, METH_NOARGS, NULL},
    {"__exit__", reader_exit, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyDoc_STRVAR(
    reader_doc,
    "Reader(remote_url, run, step=None, *, id=None, local_url=None, memory_budget_bytes=..., io_timeout_ms=...,\n"
    "       io_threads=0, io_backend=0)\n--\n\n"
    "A checkpoint of any run, open for reading: that of a step, or of an id, or the newest live one.\n"
    "It takes no part in a job, and disturbs none.");

static PyType_Slot slots[] = {
    {Py_tp_new, reader_new},  {Py_tp_dealloc, reader_dealloc}, {Py_tp_traverse, reader_traverse},
    {Py_tp_methods, methods}, {Py_tp_doc, (void *)reader_doc}, {0, NULL},
};

PyType_Spec reader_spec = {
    .name = "breakwater.Reader",
    .basicsize = sizeof(struct reader),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
