/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpointer: a rank's place in a launch. */
#include "core.h"
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- options ---- */

enum kind { TEXT, U32, U64 };
struct option {
    const char *name;
    enum kind kind;
    size_t at;
};
#define OPTION(kind, member)                                                                                           \
    { #member, kind, offsetof(struct bw_options, member) }
static const struct option options[] = {
    OPTION(TEXT, run),
    OPTION(TEXT, job),
    OPTION(TEXT, launch),
    OPTION(U32, rank),
    OPTION(U32, world),
    OPTION(TEXT, local_url),
    OPTION(TEXT, remote_url),
    OPTION(U32, flags),
    OPTION(U64, memory_budget_bytes),
    OPTION(U32, io_threads),
    OPTION(U32, saves_in_flight_max),
    OPTION(U32, on_busy),
    OPTION(U32, resume),
    OPTION(U64, resume_step),
    OPTION(TEXT, label),
    OPTION(U32, on_damage),
    OPTION(U32, io_backend),
    OPTION(U64, open_timeout_ms),
    OPTION(U64, busy_timeout_ms),
    OPTION(U64, io_timeout_ms),
    OPTION(U64, local_quota_bytes),
    OPTION(U64, drain_bytes_per_s),
    {"keep_last", U32, offsetof(struct bw_options, retention.keep_last)},
    {"keep_every_steps", U64, offsetof(struct bw_options, retention.keep_every_steps)},
    {"keep_younger_ms", U64, offsetof(struct bw_options, retention.keep_younger_ms)},
    OPTION(U32, capture),
    OPTION(U32, capture_threads),
    OPTION(U64, capture_wait_ms),
    OPTION(U32, background_nice),
    OPTION(TEXT, cpus),
    OPTION(U32, local_io_depth),
    OPTION(U32, remote_io_depth),
};
#define OPTIONS (sizeof options / sizeof *options)

struct open_job {
    struct job job;
    struct bw_options o;
    char *texts[OPTIONS]; /* the caller may be interrupted, and its strings gone, before the library has copied them */
    struct bw_checkpointer *ck;
};

static void free_open(struct open_job *j) {
    for (size_t i = 0; i < OPTIONS; i++) free(j->texts[i]);
    free(j);
}

static int run_open(struct job *job) {
    struct open_job *j = (struct open_job *)job;
    return bw_checkpointer_open(&j->o, &j->ck, &job->err);
}

static void drop_open(struct job *job) {
    struct open_job *j = (struct open_job *)job;
    if (j->ck != NULL) (void)bw_checkpointer_close(j->ck, 0, NULL);
    free_open(j);
}

static void *member(struct open_job *j, size_t i) {
    return (unsigned char *)j + offsetof(struct open_job, o) + options[i].at;
}

static bool set_text(struct open_job *j, size_t i, PyObject *value) {
    if (value == Py_None) return true;
    const char *text = core_text(value, options[i].name);
    if (text == NULL) return false;
    free(j->texts[i]);
    j->texts[i] = strdup(text);
    memcpy(member(j, i), &j->texts[i], sizeof j->texts[i]);
    if (j->texts[i] == NULL) (void)PyErr_NoMemory();
    return j->texts[i] != NULL;
}

static bool set_number(struct open_job *j, size_t i, PyObject *value) {
    uint64_t n;
    if (!core_number(value, options[i].name, options[i].kind == U32 ? UINT32_MAX : UINT64_MAX, &n)) return false;
    const uint32_t n32 = (uint32_t)n;
    if (options[i].kind == U32)
        memcpy(member(j, i), &n32, sizeof n32);
    else
        memcpy(member(j, i), &n, sizeof n);
    return true;
}

static bool set_option(struct open_job *j, PyObject *key, PyObject *value) {
    const char *name = PyUnicode_AsUTF8AndSize(key, NULL);
    if (name == NULL) return false;
    for (size_t i = 0; i < OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0)
            return options[i].kind == TEXT ? set_text(j, i, value) : set_number(j, i, value);
    (void)PyErr_Format(PyExc_TypeError, "Checkpointer: there is no option \"%s\"", name);
    return false;
}

static struct open_job *parse_options(PyObject *args, PyObject *kw) {
    if (PyTuple_Size(args) > 0) {
        PyErr_SetString(PyExc_TypeError, "Checkpointer: options go by name");
        return NULL;
    }
    struct open_job *j = calloc(1, sizeof *j);
    if (j == NULL) return (struct open_job *)(void *)PyErr_NoMemory();
    j->o = (struct bw_options)BW_OPTIONS_INIT;
    j->job.run = run_open;
    j->job.drop = drop_open;
    PyObject *key, *value;
    Py_ssize_t at = 0;
    while (kw != NULL && PyDict_Next(kw, &at, &key, &value)) {
        if (set_option(j, key, value)) continue;
        free_open(j);
        return NULL;
    }
    return j;
}

/* ---- life ---- */

/* The object is made once there is something behind it: a class that is made in Python may look at it at any time. */
static PyObject *ck_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    struct core *core = core_of(type);
    struct open_job *j = parse_options(args, kw);
    if (j == NULL || job_run(&j->job) < 0) return NULL;
    if (j->job.rc < 0) {
        const struct bw_error err = j->job.err;
        drop_open(&j->job);
        return core_raise(core, &err);
    }
    struct handle *h = core_handle(j->ck);
    struct checkpointer *ck = h == NULL ? NULL : core_alloc(type);
    if (ck != NULL) {
        ck->core = core;
        ck->h = h;
        j->ck = NULL;
    } else {
        free(h);
    }
    drop_open(&j->job);
    return (PyObject *)ck;
}

/* The library frees its saves with it, and may read what they keep until it has ended: `kept`, a list, gets that.
 * Afterwards nobody is inside any more, and nobody gets in. */
static void cut_loose(struct checkpointer *ck, PyObject *kept) {
    while (ck->readers != NULL) reader_shut(ck->readers);
    while (ck->saves != NULL) save_orphan(ck->saves, kept);
    (void)core_take(ck->h);
}

static struct reader *busy(const struct checkpointer *ck) {
    struct reader *r = ck->readers;
    while (r != NULL && atomic_load(&r->h->users) == 0) r = r->next;
    return r;
}

/* Keeps all new calls out, and waits until none is inside. */
static bool shut(struct checkpointer *ck, uint64_t until_ms) {
    core_shut(ck->h, true);
    bool calm = core_calm(ck->core, ck->h, until_ms, "a call of this Checkpointer");
    for (struct reader *r = ck->readers; r != NULL; r = r->next) core_shut(r->h, true);
    for (struct reader *r = busy(ck); calm && r != NULL; r = busy(ck)) {
        Py_INCREF((PyObject *)r);
        calm = core_calm(ck->core, r->h, until_ms, "a read");
        Py_DECREF((PyObject *)r);
    }
    return calm;
}

/* The pointer, for whoever closes it: nobody is inside, nor gets in. A read writes to the caller's memory and cannot be
 * called off: where one lasts longer than the deadline an exception is set, and nothing is closed. NULL without an
 * exception: it was closed before. */
static struct bw_checkpointer *take(struct checkpointer *ck, uint64_t until_ms) {
    if (ck->h->ptr == NULL) return NULL;
    if (shut(ck, until_ms)) return core_take(ck->h);
    core_shut(ck->h, false);
    for (struct reader *r = ck->readers; r != NULL; r = r->next) core_shut(r->h, false);
    return NULL;
}

struct close_job {
    struct job job;
    struct bw_checkpointer *ck;
    uint64_t timeout_ms;
};

static int run_close(struct job *job) {
    struct close_job *j = (struct close_job *)job;
    return bw_checkpointer_close(j->ck, j->timeout_ms, &job->err);
}

static PyObject *ck_close(PyObject *self, PyObject *args, PyObject *kw) {
    static char *names[] = {"timeout_s", NULL};
    struct checkpointer *ck = (struct checkpointer *)self;
    PyObject *timeout = NULL;
    uint64_t ms;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "|O", names, &timeout) || !core_timeout(timeout, &ms)) return NULL;
    if (timeout == NULL) ms = 600000;
    PyObject *kept = PyList_New(0);
    struct close_job *j = kept == NULL ? NULL : calloc(1, sizeof *j);
    if (j == NULL) {
        Py_XDECREF(kept);
        return PyErr_NoMemory();
    }
    const uint64_t until = core_moment(ms);
    *j = (struct close_job){.job = {.run = run_close}, .ck = take(ck, until)};
    if (j->ck == NULL) { /* closed before: nothing to do, as for files */
        free(j);
        Py_DECREF(kept);
        return PyErr_Occurred() != NULL ? NULL : Py_NewRef(Py_None);
    }
    cut_loose(ck, kept);
    const uint64_t now = core_moment(0);
    j->timeout_ms = until == UINT64_MAX ? until : until > now ? until - now : 0;
    if (job_run(&j->job) < 0) return NULL; /* what is left to itself goes on reading what is kept */
    Py_DECREF(kept);
    const struct bw_error err = j->job.err;
    const int rc = j->job.rc;
    free(j);
    if (rc < 0) return core_raise(ck->core, &err);
    Py_RETURN_NONE;
}

/* It names no source: a warning that keeps it would keep what is freed next. */
static void warn(PyObject *about) {
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    if (PyErr_WarnEx(PyExc_ResourceWarning, "a Checkpointer was not closed: what is not safe yet is given up", 1) < 0)
        PyErr_WriteUnraisable(about);
    PyErr_Restore(type, value, trace);
}

static void ck_dealloc(PyObject *self) {
    struct checkpointer *ck = (struct checkpointer *)self;
    PyObject_GC_UnTrack(self);
    if (ck->h != NULL && ck->h->ptr != NULL) warn((PyObject *)Py_TYPE(self));
    struct bw_checkpointer *p = core_drop(ck->h);
    Py_BEGIN_ALLOW_THREADS
    if (p != NULL) (void)bw_checkpointer_close(p, 0, NULL);
    Py_END_ALLOW_THREADS
    core_free(self);
}

static int ck_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    return 0;
}

/* ---- saving and loading ---- */

struct begin_job {
    struct job job;
    struct bw_checkpointer *ck;
    uint64_t step;
    struct bw_save *save;
};

static int run_begin(struct job *job) {
    struct begin_job *j = (struct begin_job *)job;
    return bw_save_begin(j->ck, j->step, &j->save, &job->err);
}

static void drop_begin(struct job *job) {
    struct begin_job *j = (struct begin_job *)job;
    bw_save_release(j->save);
    free(j);
}

static PyObject *ck_begin(PyObject *self, PyObject *step) {
    struct checkpointer *ck = (struct checkpointer *)self;
    uint64_t n;
    if (!core_number(step, "step", UINT64_MAX, &n)) return NULL;
    struct begin_job *j = calloc(1, sizeof *j);
    if (j == NULL) return PyErr_NoMemory();
    *j = (struct begin_job){.job = {.run = run_begin, .drop = drop_begin, .held = ck->h},
                            .ck = core_enter(ck->h, "Checkpointer"),
                            .step = n};
    if (j->ck == NULL) {
        free(j);
        return NULL;
    }
    if (job_run(&j->job) < 0) return NULL;
    const struct bw_error err = j->job.err;
    struct bw_save *save = j->job.rc < 0 ? NULL : j->save;
    free(j);
    PyObject *made = save == NULL ? core_raise(ck->core, &err) : save_of(ck, save);
    core_leave(ck->h);
    return made;
}

struct restore_job {
    struct job job;
    struct bw_checkpointer *ck;
    struct bw_restore *restore;
};

static int run_restore(struct job *job) {
    struct restore_job *j = (struct restore_job *)job;
    return bw_restore_open(j->ck, &j->restore, &job->err);
}

static void drop_restore(struct job *job) {
    struct restore_job *j = (struct restore_job *)job;
    bw_restore_close(j->restore);
    free(j);
}

static PyObject *ck_restore(PyObject *self, PyObject *unused) {
    (void)unused;
    struct checkpointer *ck = (struct checkpointer *)self;
    struct restore_job *j = calloc(1, sizeof *j);
    if (j == NULL) return PyErr_NoMemory();
    *j = (struct restore_job){.job = {.run = run_restore, .drop = drop_restore, .held = ck->h},
                              .ck = core_enter(ck->h, "Checkpointer")};
    if (j->ck == NULL) {
        free(j);
        return NULL;
    }
    if (job_run(&j->job) < 0) return NULL;
    const struct bw_error err = j->job.err;
    struct bw_restore *restore = j->job.rc < 0 ? NULL : j->restore;
    free(j);
    PyObject *made = restore == NULL ? core_raise(ck->core, &err) : reader_of(ck->core, ck, restore);
    core_leave(ck->h);
    return made;
}

/* ---- what is told ---- */

static PyObject *ck_resumed(PyObject *self, void *closure) {
    (void)closure;
    struct checkpointer *ck = (struct checkpointer *)self;
    struct bw_resumed r = {0};
    struct bw_checkpointer *p = core_enter(ck->h, "Checkpointer");
    if (p == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    bw_checkpointer_resumed(p, &r);
    Py_END_ALLOW_THREADS
    core_leave(ck->h);
    return Py_BuildValue("{sN sN sK ss sI sI ss}", "from_checkpoint", PyBool_FromLong(r.from_checkpoint), "committed",
                         PyBool_FromLong(r.committed), "step", (unsigned long long)r.step, "id", r.id, "attempt",
                         r.attempt, "world", r.world, "reason", r.reason);
}

static PyObject *ck_poll(PyObject *self, PyObject *unused) {
    (void)unused;
    struct checkpointer *ck = (struct checkpointer *)self;
    struct bw_event e;
    struct bw_checkpointer *p = core_enter(ck->h, "Checkpointer");
    if (p == NULL) return NULL;
    int rc;
    Py_BEGIN_ALLOW_THREADS
    rc = bw_checkpointer_poll(p, &e);
    Py_END_ALLOW_THREADS
    core_leave(ck->h);
    if (rc != 1) Py_RETURN_NONE;
    static const char *const types[] = {"", "level", "save_ended", "attempt", "note"};
    return Py_BuildValue("{ss si sK ss sI ss}", "type", e.type < 5 ? types[e.type] : "", "status", (int)e.status,
                         "step", (unsigned long long)e.step, "level", bw_level_name((int)e.level), "lost", e.lost,
                         "message", e.message);
}

static PyObject *ck_stats(PyObject *self, PyObject *unused) {
    (void)unused;
    struct checkpointer *ck = (struct checkpointer *)self;
    struct bw_checkpointer_stats s;
    struct bw_checkpointer *p = core_enter(ck->h, "Checkpointer");
    if (p == NULL) return NULL;
    Py_BEGIN_ALLOW_THREADS
    bw_checkpointer_stats(p, &s);
    Py_END_ALLOW_THREADS
    core_leave(ck->h);
    PyObject *d = PyDict_New();
#define N(member) core_set(d, #member, PyLong_FromUnsignedLongLong(s.member))
#define T(member) core_set(d, #member, PyUnicode_FromString(s.member))
    const bool ok = d != NULL && N(saves_begun) && N(saves_committed) && N(saves_failed) && N(saves_skipped) &&
                    N(local_bytes_written) && N(remote_bytes_written) && N(remote_bytes_read) && N(local_store_calls) &&
                    N(remote_store_calls) && N(memory_budget_bytes) && N(memory_peak_bytes) && T(io_backend) &&
                    N(capture_threads) && T(io_lacks) && N(local_io_depth) && N(remote_io_depth) &&
                    N(local_io_bytes_per_s) && T(local_io_why);
#undef T
#undef N
    if (!ok) Py_CLEAR(d);
    return d;
}

static PyObject *ck_fileno(PyObject *self, PyObject *unused) {
    (void)unused;
    struct checkpointer *ck = (struct checkpointer *)self;
    struct bw_checkpointer *p = core_enter(ck->h, "Checkpointer");
    if (p == NULL) return NULL;
    core_leave(ck->h);
    return PyLong_FromLong(bw_checkpointer_fd(p));
}

static PyObject *ck_closed(PyObject *self, void *closure) {
    (void)closure;
    return PyBool_FromLong(((struct checkpointer *)self)->h->ptr == NULL);
}

static PyMethodDef methods[] = {
    {"begin", ck_begin, METH_O,
     "begin(step)\n--\n\nBegins a save of a step and gives a Save. Waits while too many are in flight, as on_busy "
     "says."},
    {"restore", ck_restore, METH_NOARGS,
     "restore()\n--\n\nOpens the checkpoint that this launch resumed from, and gives a Reader. NotFoundError: from "
     "nothing."},
    {"close", (PyCFunction)(void (*)(void))ck_close, METH_VARARGS | METH_KEYWORDS,
     "close(timeout_s=600)\n--\n\nDrains what is in flight for at most timeout_s (None: for ever), and ends. Raises "
     "what no\n"
     "call has told yet: a failure in the background is never unheard. DeadlineError while another thread reads: then\n"
     "nothing is closed, and it can be called again."},
    {"poll", ck_poll, METH_NOARGS, "poll()\n--\n\nThe oldest event as a dict, or None. Never blocks."},
    {"stats", ck_stats, METH_NOARGS, "stats()\n--\n\nCounters since it was opened, as a dict."},
    {"fileno", ck_fileno, METH_NOARGS,
     "fileno()\n--\n\nA descriptor that is readable while events wait: for select, asyncio."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getters[] = {
    {"resumed", ck_resumed, NULL, "what this launch goes on from, and why, as a dict", NULL},
    {"closed", ck_closed, NULL, "whether it has been closed", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(ck_doc,
             "A rank's place in one launch of a job: the members of struct bw_options by name, times in milliseconds.");

static PyType_Slot slots[] = {
    {Py_tp_new, ck_new},
    {Py_tp_dealloc, ck_dealloc},
    {Py_tp_traverse, ck_traverse},
    {Py_tp_methods, methods},
    {Py_tp_getset, getters},
    {Py_tp_doc, (void *)ck_doc},
    {0, NULL},
};

PyType_Spec checkpointer_spec = {
    .name = "breakwater._core.Checkpointer",
    .basicsize = sizeof(struct checkpointer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE,
    .slots = slots,
};
