/* SPDX-License-Identifier: Apache-2.0 */
#include "core.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Classes that are made in Python have no module of this kind: one of their bases has. */
struct core *core_of(PyTypeObject *type) {
    PyObject *module = NULL;
    for (PyTypeObject *t = type; t != NULL && module == NULL; t = PyType_GetSlot(t, Py_tp_base)) {
        module = PyType_GetModule(t);
        if (module == NULL) PyErr_Clear();
    }
    return module == NULL ? NULL : PyModule_GetState(module);
}

void *core_alloc(PyTypeObject *type) {
    const allocfunc alloc = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    return alloc(type, 0);
}

void core_free(PyObject *self) {
    PyTypeObject *type = Py_TYPE(self);
    const freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

/* ---- errors and arguments ---- */

PyObject *core_error(const struct core *core, const struct bw_error *err) {
    return PyObject_CallFunction(core->make_error, "isiii", (int)err->status, err->message, (int)err->stage,
                                 (int)err->os_errno, (int)err->http_status);
}

void *core_raise(const struct core *core, const struct bw_error *err) {
    PyObject *e = core_error(core, err);
    if (e == NULL) return NULL;
    PyErr_SetObject((PyObject *)Py_TYPE(e), e);
    Py_DECREF(e);
    return NULL;
}

bool core_timeout(PyObject *seconds, uint64_t *ret_ms) {
    *ret_ms = UINT64_MAX;
    if (seconds == NULL || seconds == Py_None) return true;
    const double s = PyFloat_AsDouble(seconds);
    if (s == -1 && PyErr_Occurred() != NULL) return false;
    if (isnan(s) || s < 0) {
        (void)PyErr_Format(PyExc_ValueError, "timeout_s: expected None or a number that is not negative, found %R",
                           seconds);
        return false;
    }
    if (s < 1e15) *ret_ms = (uint64_t)ceil(s * 1e3);
    return true;
}

bool core_number(PyObject *value, const char *what, uint64_t most, uint64_t *ret) {
    PyObject *index = PyNumber_Index(value);
    if (index == NULL) return false;
    *ret = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (PyErr_Occurred() == NULL && *ret <= most) return true;
    PyErr_Clear();
    (void)PyErr_Format(PyExc_ValueError, "%s: expected 0 to %llu, found %R", what, (unsigned long long)most, value);
    return false;
}

bool core_number32(PyObject *value, const char *what, uint32_t *ret) {
    uint64_t n;
    if (!core_number(value, what, UINT32_MAX, &n)) return false;
    *ret = (uint32_t)n;
    return true;
}

const char *core_text(PyObject *value, const char *what) {
    Py_ssize_t bytes;
    const char *text = PyUnicode_AsUTF8AndSize(value, &bytes);
    if (text == NULL || strlen(text) == (size_t)bytes) return text;
    (void)PyErr_Format(PyExc_ValueError, "%s: expected no NUL character", what);
    return NULL;
}

bool core_set(PyObject *dict, const char *key, PyObject *value) {
    if (value == NULL) return false;
    const int rc = PyDict_SetItemString(dict, key, value);
    Py_DECREF(value);
    return rc == 0;
}

/* ---- handles ---- */

struct handle *core_handle(void *ptr) {
    struct handle *h = calloc(1, sizeof *h);
    if (h == NULL)
        (void)PyErr_NoMemory();
    else
        h->ptr = ptr;
    return h;
}

void *core_enter(struct handle *h, const char *what) {
    if (h->ptr == NULL || h->closing) {
        (void)PyErr_Format(PyExc_ValueError, "this %s is closed", what);
        return NULL;
    }
    (void)atomic_fetch_add(&h->users, 1);
    return h->ptr;
}

void core_leave(struct handle *h) {
    if (h != NULL) (void)atomic_fetch_sub(&h->users, 1);
}

static void wait_a_moment(void) {
    const struct timespec moment = {.tv_nsec = 1000000};
    Py_BEGIN_ALLOW_THREADS(void)
    nanosleep(&moment, NULL);
    Py_END_ALLOW_THREADS
}

uint64_t core_moment(uint64_t timeout_ms) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    const uint64_t now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    return timeout_ms > UINT64_MAX - now ? UINT64_MAX : now + timeout_ms;
}

void core_shut(struct handle *h, bool closing) {
    h->closing = closing;
}

bool core_calm(const struct core *core, struct handle *h, uint64_t until_ms, const char *what) {
    while (atomic_load(&h->users) > 0) {
        struct bw_error late = {.status = BW_E_TIMEOUT};
        (void)snprintf(late.message, sizeof late.message, "%s is still running", what);
        if (core_moment(0) >= until_ms) return core_raise(core, &late) != NULL;
        wait_a_moment();
        if (PyErr_CheckSignals() < 0) return false;
    }
    return true;
}

void *core_take(struct handle *h) {
    void *p = h->ptr;
    h->ptr = NULL;
    while (atomic_load(&h->users) > 0) wait_a_moment();
    return p;
}

void *core_drop(struct handle *h) {
    if (h == NULL || atomic_load(&h->users) > 0) return NULL;
    void *p = h->ptr;
    free(h);
    return p;
}

/* ---- the module ---- */

static int add_type(PyObject *module, PyType_Spec *spec, PyTypeObject **ret) {
    *ret = (PyTypeObject *)PyType_FromModuleAndSpec(module, spec, NULL);
    return *ret == NULL ? -1 : PyModule_AddType(module, *ret);
}

static int fill(PyObject *module) {
    struct core *core = PyModule_GetState(module);
    PyObject *errors = PyImport_ImportModule("breakwater.errors");
    if (errors == NULL) return -1;
    core->make_error = PyObject_GetAttrString(errors, "make");
    Py_DECREF(errors);
    if (core->make_error == NULL) return -1;
    if (add_type(module, &tensor_spec, &core->tensor) < 0 || add_type(module, &save_spec, &core->save) < 0) return -1;
    if (add_type(module, &reader_spec, &core->reader) < 0) return -1;
    if (add_type(module, &checkpointer_spec, &core->checkpointer) < 0) return -1;
    return PyModule_AddStringConstant(module, "library_version", bw_version());
}

static int traverse(PyObject *module, visitproc visit, void *arg) {
    struct core *core = PyModule_GetState(module);
    Py_VISIT(core->make_error);
    Py_VISIT(core->tensor);
    Py_VISIT(core->checkpointer);
    Py_VISIT(core->save);
    Py_VISIT(core->reader);
    return 0;
}

static int clear(PyObject *module) {
    struct core *core = PyModule_GetState(module);
    Py_CLEAR(core->make_error);
    Py_CLEAR(core->tensor);
    Py_CLEAR(core->checkpointer);
    Py_CLEAR(core->save);
    Py_CLEAR(core->reader);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, fill}, {0, NULL}};

struct PyModuleDef core_def = {
    PyModuleDef_HEAD_INIT,
    .m_name = "breakwater._core",
    .m_doc = "The C library. Use what the package breakwater offers.",
    .m_size = sizeof(struct core),
    .m_methods = catalog_methods,
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC PyInit__core(void);
PyMODINIT_FUNC PyInit__core(void) {
    return PyModuleDef_Init(&core_def);
}
