/* SPDX-License-Identifier: Apache-2.0 */
/* Save: one save of one step. What it reads is kept alive until it is captured. */
#include "core.h"
#include <stdlib.h>
#include <string.h>

#define LOOK_UP_MS 100u

PyObject *save_of(struct checkpointer *ck, struct bw_save *save) {
    PyTypeObject *type = ck->core->save;
    struct save *s = core_alloc(type);
    if (s != NULL) {
        s->core = ck->core;
        s->kept = PyList_New(0);
        s->h = s->kept == NULL ? NULL : core_handle(save);
    }
    if (s == NULL || s->h == NULL) {
        Py_XDECREF((PyObject *)s);
        bw_save_release(save);
        return NULL;
    }
    s->of = (struct checkpointer *)Py_NewRef((PyObject *)ck);
    s->next = ck->saves;
    ck->saves = s;
    return (PyObject *)s;
}

/* Takes it off the list. The checkpointer, if it has one still: entered, and the caller's. */
static struct checkpointer *part(struct save *s) {
    struct checkpointer *of = s->of;
    if (of == NULL) return NULL;
    struct save **at = &of->saves;
    while (*at != s) at = &(*at)->next;
    *at = s->next;
    s->of = NULL;
    (void)atomic_fetch_add(&of->h->users, 1);
    return of;
}

static void parted(struct checkpointer *of) {
    if (of == NULL) return;
    core_leave(of->h);
    Py_DECREF((PyObject *)of);
}

void save_orphan(struct save *s, PyObject *kept) {
    if (PyList_Append(kept, s->kept) < 0) {
        PyErr_Clear();
        Py_INCREF(s->kept); /* for ever, rather than too short */
    }
    Py_INCREF((PyObject *)s);
    struct checkpointer *of = part(s);
    (void)core_take(s->h);
    parted(of);
    Py_DECREF((PyObject *)s);
}

/* ---- describing ---- */

static struct bw_tensor described(const struct tensor *t) {
    struct bw_tensor d = BW_TENSOR_INIT;
    d.dtype = t->dtype, d.name = t->utf8, d.data = t->data, d.dims = t->dims, d.flags = t->flags;
    d.shape = t->shape;
    d.offset = t->whole ? NULL : t->offset;
    d.extent = t->whole ? NULL : t->extent;
    d.stride_bytes = t->strided ? t->stride : NULL;
    d.replica_count = t->replica_count, d.replica_index = t->replica_index, d.replica_group = t->replica_group;
    return d;
}

static int add_all(struct bw_save *save, PyObject *const *tensors, Py_ssize_t n, struct bw_error *err) {
    int rc = 0;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) {
        const struct bw_tensor d = described((const struct tensor *)tensors[i]);
        rc = bw_save_tensor(save, &d, err);
    }
    return rc;
}

static bool keep(struct save *s, PyObject *what) {
    return PyList_Append(s->kept, what) == 0;
}

static PyObject *save_add(PyObject *self, PyObject *sequence) {
    struct save *s = (struct save *)self;
    struct bw_error err = BW_ERROR_INIT;
    PyObject *list = tensor_list(s->core, sequence);
    if (list == NULL) return NULL;
    const Py_ssize_t n = PyList_Size(list);
    PyObject **tensors = calloc((size_t)n + 1, sizeof(PyObject *));
    struct bw_save *save = tensors == NULL ? (void *)PyErr_NoMemory() : core_enter(s->h, "Save");
    int rc = save == NULL || !keep(s, list) ? -1 : 0;
    const bool failed = rc < 0;
    for (Py_ssize_t i = 0; i < n && rc == 0; i++) tensors[i] = PyList_GetItem(list, i);
    if (rc == 0) {
        Py_BEGIN_ALLOW_THREADS
        rc = add_all(save, tensors, n, &err);
        Py_END_ALLOW_THREADS
    }
    if (save != NULL) core_leave(s->h);
    free(tensors);
    Py_DECREF(list);
    if (failed) return NULL;
    if (rc < 0) return core_raise(s->core, &err);
    Py_RETURN_NONE;
}

/* Bytes in a row, kept until they are captured. */
static PyObject *save_blob(PyObject *self, PyObject *args) {
    struct save *s = (struct save *)self;
    struct bw_error err = BW_ERROR_INIT;
    const char *name;
    PyObject *bytes;
    Py_buffer b;
    if (!PyArg_ParseTuple(args, "sO", &name, &bytes)) return NULL;
    PyObject *view = PyMemoryView_FromObject(bytes);
    if (view == NULL || PyObject_GetBuffer(view, &b, PyBUF_SIMPLE) < 0) {
        Py_XDECREF(view);
        return NULL;
    }
    struct bw_save *save = core_enter(s->h, "Save");
    int rc = -1;
    const bool kept = save != NULL && keep(s, view);
    if (kept) {
        Py_BEGIN_ALLOW_THREADS
        rc = bw_save_blob(save, name, b.len > 0 ? b.buf : NULL, (size_t)b.len, &err);
        Py_END_ALLOW_THREADS
    }
    if (save != NULL) core_leave(s->h);
    PyBuffer_Release(&b);
    Py_DECREF(view);
    if (!kept) return NULL;
    if (rc < 0) return core_raise(s->core, &err);
    Py_RETURN_NONE;
}

static PyObject *save_keep(PyObject *self, PyObject *what) {
    struct save *s = (struct save *)self;
    struct bw_save *save = core_enter(s->h, "Save");
    if (save == NULL) return NULL;
    const bool kept = keep(s, what);
    core_leave(s->h);
    return kept ? Py_NewRef(Py_None) : NULL;
}

/* ---- calls that only take the handle ---- */

typedef int (*plain_call)(struct bw_save *save, const char *text, struct bw_error *err);

static PyObject *call(PyObject *self, plain_call f, const char *text) {
    struct save *s = (struct save *)self;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *save = core_enter(s->h, "Save");
    int rc;
    if (save == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = f(save, text, &err);
    Py_END_ALLOW_THREADS
    core_leave(s->h);
    if (rc < 0) return core_raise(s->core, &err);
    Py_RETURN_NONE;
}

static int start(struct bw_save *save, const char *unused, struct bw_error *err) {
    (void)unused;
    return bw_save_start(save, err);
}

static int cancel(struct bw_save *save, const char *unused, struct bw_error *err) {
    (void)unused;
    return bw_save_cancel(save, err);
}

static PyObject *save_metadata(PyObject *self, PyObject *json) {
    const char *text = core_text(json, "metadata");
    return text == NULL ? NULL : call(self, bw_save_metadata, text);
}

static PyObject *save_start(PyObject *self, PyObject *unused) {
    (void)unused;
    return call(self, start, NULL);
}

static PyObject *save_cancel(PyObject *self, PyObject *unused) {
    (void)unused;
    return call(self, cancel, NULL);
}

/* ---- waiting ---- */

#define WRITABLE (-1)

static int wait_once(struct bw_save *save, int level, uint64_t ms, struct bw_error *err) {
    if (level == WRITABLE) return bw_save_wait_writable(save, ms, err);
    return bw_save_wait(save, (enum bw_level)level, ms, err);
}

/* In pieces, and inside for the time of one only: signals are answered, and others can close what is waited for. */
static PyObject *wait_for(struct save *s, int level, uint64_t timeout_ms) {
    for (uint64_t left = timeout_ms;;) {
        struct bw_error err = BW_ERROR_INIT;
        const uint64_t ms = left < LOOK_UP_MS ? left : LOOK_UP_MS;
        struct bw_save *save = core_enter(s->h, "Save");
        int rc;
        if (save == NULL) return NULL;
        Py_BEGIN_ALLOW_THREADS
        rc = wait_once(save, level, ms, &err);
        Py_END_ALLOW_THREADS
        core_leave(s->h);
        if (rc == 0) Py_RETURN_NONE;
        if (left != UINT64_MAX) left -= ms;
        if (rc != BW_E_TIMEOUT || left == 0) return core_raise(s->core, &err);
        if (PyErr_CheckSignals() < 0) return NULL;
    }
}

/* "committed", or a number of enum bw_level. */
static bool parse_level(PyObject *level, int *ret) {
    const char *name = PyUnicode_Check(level) ? PyUnicode_AsUTF8AndSize(level, NULL) : NULL;
    if (name == NULL && PyErr_Occurred() != NULL) return false;
    if (name == NULL) {
        uint64_t n;
        if (!core_number(level, "level", BW_COMMITTED, &n)) return false;
        *ret = (int)n;
    }
    for (int i = BW_CAPTURED; name != NULL && i <= BW_COMMITTED; i++)
        if (strcmp(name, bw_level_name(i)) == 0) {
            *ret = i;
            return true;
        }
    if (name == NULL && *ret >= BW_CAPTURED && *ret <= BW_COMMITTED) return true;
    (void)PyErr_Format(PyExc_ValueError,
                       "level: expected \"captured\", \"local\", \"remote\" or \"committed\", found %R", level);
    return false;
}

static PyObject *save_wait(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"level", "timeout_s", NULL};
    PyObject *level = NULL, *timeout = NULL;
    int wanted = BW_COMMITTED;
    uint64_t ms;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|OO", names, &level, &timeout)) return NULL;
    if ((level != NULL && !parse_level(level, &wanted)) || !core_timeout(timeout, &ms)) return NULL;
    return wait_for((struct save *)self, wanted, ms);
}

static PyObject *save_wait_writable(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"timeout_s", NULL};
    PyObject *timeout = NULL;
    uint64_t ms;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|O", names, &timeout) || !core_timeout(timeout, &ms)) return NULL;
    return wait_for((struct save *)self, WRITABLE, ms);
}

/* ---- what is told ---- */

static PyObject *save_level(PyObject *self, void *closure) {
    (void)closure;
    struct save *s = (struct save *)self;
    enum bw_level level;
    struct bw_save *save = core_enter(s->h, "Save");
    if (save == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    level = bw_save_level(save);
    Py_END_ALLOW_THREADS
    core_leave(s->h);
    return PyUnicode_FromString(bw_level_name((int)level));
}

/* The exception that a wait would raise, or None. */
static PyObject *save_error(PyObject *self, void *closure) {
    (void)closure;
    struct save *s = (struct save *)self;
    struct bw_error err = BW_ERROR_INIT;
    struct bw_save *save = core_enter(s->h, "Save");
    int rc;
    if (save == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_save_error(save, &err);
    Py_END_ALLOW_THREADS
    core_leave(s->h);
    if (rc == 0) Py_RETURN_NONE;
    return core_error(s->core, &err);
}

static PyObject *save_stats(PyObject *self, PyObject *unused) {
    (void)unused;
    struct save *s = (struct save *)self;
    struct bw_save_stats t;
    struct bw_save *save = core_enter(s->h, "Save");
    if (save == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    bw_save_stats(save, &t);
    Py_END_ALLOW_THREADS
    core_leave(s->h);
    PyObject *d = PyDict_New();
#define N(member) core_set(d, #member, PyLong_FromUnsignedLongLong(t.member))
#define T(member) core_set(d, #member, PyUnicode_FromString(t.member))
    const bool ok = d != NULL && N(step) && T(id) && N(raw_bytes) && N(described_bytes) && N(tensors) &&
                    N(objects_local) && N(objects_remote) && N(stall_ns) && N(capture_ns) && N(local_ns) &&
                    N(remote_ns) && N(committed_ns) && N(arena_wait_ns) && N(protect_ns) && N(copied_bytes) &&
                    N(writes_caught) && N(writes_waited) && N(write_wait_max_ns) && T(capture_mode) && T(capture_why) &&
                    T(write_path) && N(tiers) && N(from_memory_bytes) && N(recycled_bytes);
#undef N
#undef T
    if (!ok) Py_CLEAR(d);
    return d;
}

/* ---- the end ---- */

/* Waits for the capture, since the memory is read until then. */
static void release(struct bw_save *save) {
    Py_BEGIN_ALLOW_THREADS
    bw_save_release(save);
    Py_END_ALLOW_THREADS
}

/* The last use of it. */
static void finish(struct save *s, bool gone) {
    struct checkpointer *of = part(s);
    struct bw_save *save = gone ? core_drop(s->h) : core_take(s->h);
    if (save != NULL) release(save);
    parted(of);
    Py_CLEAR(s->kept);
}

static PyObject *save_release(PyObject *self, PyObject *unused) {
    (void)unused;
    finish((struct save *)self, false);
    Py_RETURN_NONE;
}

static void save_dealloc(PyObject *self) {
    PyObject_GC_UnTrack(self);
    finish((struct save *)self, true);
    core_free(self);
}

/* Not what it keeps: the collector of cycles would empty that while it is read. It goes with the object, which waits.
 */
static int save_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT((PyObject *)((const struct save *)self)->of);
    return 0;
}

static PyMethodDef methods[] = {
    {"add", save_add, METH_O, "add(tensors)\n--\n\nDescribes tensors: a sequence of Tensor. Copies nothing."},
    {"keep", save_keep, METH_O,
     "keep(owner)\n--\n\nKeeps an object alive until the save no longer reads: what owns memory that is given by "
     "address."},
    {"blob", save_blob, METH_VARARGS,
     "blob(name, data)\n--\n\nAdds bytes (bytes, bytearray, a contiguous buffer) under a name that is unique in this "
     "rank."},
    {"metadata", save_metadata, METH_O,
     "metadata(json)\n--\n\nSets this rank's metadata: a JSON object as text, at most 1 MiB."},
    {"start", save_start, METH_NOARGS,
     "start()\n--\n\nStarts, and returns at once. Until wait_writable has returned nobody may write to what was "
     "described."},
    {"wait_writable", (PyCFunction)(void (*)(void))save_wait_writable, METH_VARARGS | METH_KEYWORDS,
     "wait_writable(timeout_s=None)\n--\n\nWaits until the tensors may be written again."},
    {"wait", (PyCFunction)(void (*)(void))save_wait, METH_VARARGS | METH_KEYWORDS,
     "wait(level=\"committed\", timeout_s=None)\n--\n\nWaits until the save has reached \"captured\", \"local\", "
     "\"remote\" or\n"
     "\"committed\". Raises why it failed, or DeadlineError (a TimeoutError); the save goes on then."},
    {"cancel", save_cancel, METH_NOARGS, "cancel()\n--\n\nGives the save up. Afterwards its memory is no longer read."},
    {"stats", save_stats, METH_NOARGS, "stats()\n--\n\nTimes (ns, from start) and sizes as known so far, as a dict."},
    {"release", save_release, METH_NOARGS,
     "release()\n--\n\nLets go of the handle; the save goes on. Waits for its capture."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"level", save_level, NULL,
     "the level that it has now: \"none\", \"captured\", \"local\", \"remote\", \"committed\"", NULL},
    {"error", save_error, NULL, "the exception that it failed with, or None", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, save_dealloc},
    {Py_tp_traverse, save_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_doc, "One save of one step: made by Checkpointer.begin."},
    {0, NULL},
};

PyType_Spec save_spec = {
    .name = "breakwater.Save",
    .basicsize = sizeof(struct save),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .slots = slots,
};
