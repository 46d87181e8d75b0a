/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that look at runs: what there is, and whether it is sound. Each opens a catalog, asks and closes it, on a
 * thread of its own, so that an interrupt is answered however long a tier takes. */
#include "core.h"
#include <stdlib.h>
#include <string.h>

enum question { RUNS, CHECKPOINTS, VERIFY };

struct look {
    struct job job;
    enum question question;
    char *remote, *local, *run, *id;
    uint32_t flags;
    struct bw_list *list;
};

static int ask(struct look *l, struct bw_catalog *c) {
    switch (l->question) {
    case RUNS: return bw_catalog_runs(c, &l->list, &l->job.err);
    case CHECKPOINTS: return bw_catalog_checkpoints(c, l->run, &l->list, &l->job.err);
    case VERIFY: return bw_catalog_verify(c, l->run, l->id, l->flags, &l->list, &l->job.err);
    }
    return BW_E_INTERNAL;
}

static int run_look(struct job *job) {
    struct look *l = (struct look *)job;
    struct bw_catalog_options o = BW_CATALOG_OPTIONS_INIT;
    struct bw_catalog *c;
    o.remote_url = l->remote, o.local_url = l->local, o.flags = BW_CATALOG_READ_ONLY;
    int rc = bw_catalog_open(&o, &c, &job->err);
    if (rc < 0) return rc;
    rc = ask(l, c);
    bw_catalog_close(c);
    return rc;
}

static void drop_look(struct job *job) {
    struct look *l = (struct look *)job;
    bw_list_free(l->list);
    free(l->remote);
    free(l->local);
    free(l->run);
    free(l->id);
    free(l);
}

static bool copy(char **ret, const char *text) {
    *ret = text == NULL ? NULL : strdup(text);
    if (text != NULL && *ret == NULL) (void)PyErr_NoMemory();
    return text == NULL || *ret != NULL;
}

/* ---- rows ---- */

static PyObject *run_row(const struct bw_list *list, size_t i) {
    struct bw_run_info r;
    if (!bw_list_run(list, i, &r)) return NULL;
    PyObject *newest = r.newest_step == UINT64_MAX ? Py_NewRef(Py_None) : PyLong_FromUnsignedLongLong(r.newest_step);
    return Py_BuildValue("{ss si sI sK sK sN sK sL ss}", "run", r.run, "status", (int)r.status, "attempt", r.attempt,
                         "live", (unsigned long long)r.live, "shelved", (unsigned long long)r.shelved, "newest_step",
                         newest, "bytes", (unsigned long long)r.bytes, "newest_unix_ms", (long long)r.newest_unix_ms,
                         "job", r.job);
}

static PyObject *checkpoint_row(const struct bw_list *list, size_t i) {
    static const char *const states[] = {"", "live", "shelved", "pending", "dead", "foreign", "ahead"};
    struct bw_checkpoint_row c;
    if (!bw_list_checkpoint(list, i, &c)) return NULL;
    return Py_BuildValue("{ss sK sI sI sI sI ss ss sI sI sN sI sI sK sL}", "id", c.id, "step",
                         (unsigned long long)c.step, "attempt", c.attempt, "save_try", c.save_try, "world", c.world,
                         "groups", c.groups, "state", c.state < sizeof states / sizeof *states ? states[c.state] : "",
                         "level", bw_level_name((int)c.level), "groups_remote", c.groups_remote, "groups_local",
                         c.groups_local, "pinned", PyBool_FromLong(c.pinned), "damaged", c.damaged, "failed", c.failed,
                         "bytes", (unsigned long long)c.bytes, "unix_ms", (long long)c.unix_ms);
}

static PyObject *finding_row(const struct bw_list *list, size_t i) {
    static const char *const severities[] = {"fact", "warning", "damage"};
    struct bw_finding f;
    if (!bw_list_finding(list, i, &f)) return NULL;
    return Py_BuildValue("{ss si ss ss ss ss ss}", "severity", severities[f.severity < 3 ? f.severity : 2], "status",
                         (int)f.status, "tier", f.tier, "id", f.id, "object", f.object, "tensor", f.tensor, "message",
                         f.message);
}

static PyObject *rows(const struct look *l) {
    PyObject *(*const row[])(const struct bw_list *, size_t) = {run_row, checkpoint_row, finding_row};
    PyObject *list = PyList_New(0);
    for (size_t i = 0; i < bw_list_count(l->list) && list != NULL; i++) {
        PyObject *r = row[l->question](l->list, i);
        if (r == NULL || PyList_Append(list, r) < 0) Py_CLEAR(list);
        Py_XDECREF(r);
    }
    return list;
}

/* ---- functions ---- */

static PyObject *look(PyObject *module, struct look what, const char *remote, const char *local, const char *run,
                      const char *id) {
    struct look *l = calloc(1, sizeof *l);
    if (l == NULL) return PyErr_NoMemory();
    *l = what;
    l->job = (struct job){.run = run_look, .drop = drop_look};
    if (!copy(&l->remote, remote) || !copy(&l->local, local) || !copy(&l->run, run) || !copy(&l->id, id)) {
        drop_look(&l->job);
        return NULL;
    }
    if (job_run(&l->job) < 0) return NULL;
    PyObject *list = l->job.rc < 0 ? core_raise(PyModule_GetState(module), &l->job.err) : rows(l);
    drop_look(&l->job);
    return list;
}

static PyObject *runs(PyObject *module, PyObject *args, PyObject *kw) {
    static char *names[] = {"remote_url", NULL};
    const char *remote;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "s", names, &remote)) return NULL;
    return look(module, (struct look){.question = RUNS}, remote, NULL, NULL, NULL);
}

static PyObject *checkpoints(PyObject *module, PyObject *args, PyObject *kw) {
    static char *names[] = {"remote_url", "run", "local_url", NULL};
    const char *remote, *run, *local = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "ss|$z", names, &remote, &run, &local)) return NULL;
    return look(module, (struct look){.question = CHECKPOINTS}, remote, local, run, NULL);
}

static PyObject *verify(PyObject *module, PyObject *args, PyObject *kw) {
    static char *names[] = {"remote_url", "run", "id", "local_url", "fast", NULL};
    const char *remote, *run, *id = NULL, *local = NULL;
    int fast = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "ss|z$zp", names, &remote, &run, &id, &local, &fast)) return NULL;
    return look(module, (struct look){.question = VERIFY, .flags = fast ? BW_VERIFY_FAST : 0}, remote, local, run, id);
}

PyMethodDef catalog_methods[] = {
    {"runs", (PyCFunction)(void (*)(void))runs, METH_VARARGS | METH_KEYWORDS,
     "runs(remote_url)\n--\n\nAll runs of a remote tier: a list of dicts."},
    {"checkpoints", (PyCFunction)(void (*)(void))checkpoints, METH_VARARGS | METH_KEYWORDS,
     "checkpoints(remote_url, run, *, local_url=None)\n--\n\nAll checkpoints of a run, whatever their state: a list of "
     "dicts."},
    {"verify", (PyCFunction)(void (*)(void))verify, METH_VARARGS | METH_KEYWORDS,
     "verify(remote_url, run, id=None, *, local_url=None, fast=False)\n--\n\nVerifies a checkpoint, or all of a run "
     "with its\n"
     "history: every hash. Damage is no exception but a finding with severity \"damage\": a list of dicts. fast: sizes "
     "and\n"
     "metadata only."},
    {"flatten", core_flatten, METH_VARARGS,
     "flatten(value, kinds, expand, /)\n--\n\nFor breakwater.torch. A nest of containers as (signature, tensors, "
     "arrays, plain\n"
     "values); None: it holds what is none of these. kinds: type -> 1 tensor, 2 array, 3 plain value, 4 dict, 5 list, "
     "6 tuple,\n"
     "7 OrderedDict. expand: gives what stands for an object of another type, or None. Two values of equal signatures\n"
     "differ in their leaves alone."},
    {NULL, NULL, 0, NULL},
};
