/* SPDX-License-Identifier: Apache-2.0 */
/* A state of nested containers as flat lists: what is walked before every save of a training loop, so in C. */
#include "core.h"

enum kind { OTHER, TENSOR, ARRAY, PLAIN, DICT, LIST, TUPLE, ORDERED };
#define DEPTH_MAX 64

struct walk {
    PyObject *kinds, *expand;    /* type -> kind; what stands for an object of another type */
    PyObject *signature;         /* types, keys and lengths on the way */
    PyObject *leaves[PLAIN + 1]; /* tensors, arrays, plain values, in the order of the way */
};

/* 1: walked; 0: it holds what is not walked so; -1: an exception is set. */
static int walk(struct walk *w, PyObject *value, int depth);

static int note(struct walk *w, PyObject *what) {
    return PyList_Append(w->signature, what) < 0 ? -1 : 1;
}

static int note_length(struct walk *w, Py_ssize_t n) {
    PyObject *number = PyLong_FromSsize_t(n);
    const int rc = number == NULL ? -1 : note(w, number);
    Py_XDECREF(number);
    return rc;
}

static int walk_entry(struct walk *w, PyObject *key, PyObject *value, int depth) {
    if (!PyUnicode_CheckExact(key) && !PyLong_CheckExact(key)) return 0; /* others may be equal and not the same */
    Py_INCREF(value);
    int rc = note(w, key);
    if (rc == 1) rc = walk(w, value, depth + 1);
    Py_DECREF(value);
    return rc;
}

/* What stands for an object may be made by code that changes this very dict: then the walk is given up. */
static int walk_dict(struct walk *w, PyObject *dict, int depth) {
    const Py_ssize_t n = PyDict_Size(dict);
    PyObject *key, *value;
    Py_ssize_t at = 0;
    int rc = note_length(w, n);
    while (rc == 1 && PyDict_Next(dict, &at, &key, &value)) {
        rc = walk_entry(w, key, value, depth);
        if (rc == 1 && PyDict_Size(dict) != n) rc = 0;
    }
    return rc;
}

/* Its order is not that of the dict in it. Its attributes are walked as well: modules note versions there. */
static int walk_ordered(struct walk *w, PyObject *dict, int depth) {
    PyObject *items = PyMapping_Items(dict), *more = PyObject_GetAttrString(dict, "__dict__");
    int rc = items == NULL || more == NULL ? -1 : note_length(w, PyList_Size(items));
    for (Py_ssize_t i = 0; rc == 1 && i < PyList_Size(items); i++) {
        PyObject *item = PyList_GetItem(items, i);
        rc = walk_entry(w, PyTuple_GetItem(item, 0), PyTuple_GetItem(item, 1), depth);
    }
    if (rc == 1) rc = PyDict_Check(more) ? walk_dict(w, more, depth) : 0;
    Py_XDECREF(items);
    Py_XDECREF(more);
    return rc;
}

static int walk_list(struct walk *w, PyObject *list, bool tuple, int depth) {
    const Py_ssize_t n = tuple ? PyTuple_Size(list) : PyList_Size(list);
    int rc = note_length(w, n);
    for (Py_ssize_t i = 0; rc == 1 && i < n; i++) {
        PyObject *value = tuple ? PyTuple_GetItem(list, i) : PyList_GetItem(list, i);
        if (value == NULL) return -1;
        Py_INCREF(value);
        rc = walk(w, value, depth + 1);
        Py_DECREF(value);
    }
    return rc;
}

static int walk_other(struct walk *w, PyObject *value, int depth) {
    PyObject *stand_in = PyObject_CallFunctionObjArgs(w->expand, value, NULL);
    int rc = stand_in == NULL ? -1 : stand_in == Py_None ? 0 : 1;
    if (rc == 1) rc = walk(w, stand_in, depth + 1);
    Py_XDECREF(stand_in);
    return rc;
}

static int walk(struct walk *w, PyObject *value, int depth) {
    PyObject *type = (PyObject *)Py_TYPE(value);
    PyObject *number = PyDict_GetItemWithError(w->kinds, type);
    if (number == NULL && PyErr_Occurred() != NULL) return -1;
    const long kind = number == NULL ? OTHER : PyLong_AsLong(number);
    if (depth > DEPTH_MAX) return 0;
    if (note(w, type) < 0) return -1;
    switch (kind) {
    case TENSOR:
    case ARRAY:
    case PLAIN: return PyList_Append(w->leaves[kind], value) < 0 ? -1 : 1;
    case DICT: return walk_dict(w, value, depth);
    case LIST: return walk_list(w, value, false, depth);
    case TUPLE: return walk_list(w, value, true, depth);
    case ORDERED: return walk_ordered(w, value, depth);
    default: return walk_other(w, value, depth);
    }
}

PyObject *core_flatten(PyObject *module, PyObject *args) {
    (void)module;
    struct walk w = {0};
    PyObject *value;
    if (!PyArg_ParseTuple(args, "OO!O", &value, &PyDict_Type, &w.kinds, &w.expand)) return NULL;
    w.signature = PyList_New(0);
    bool ok = w.signature != NULL;
    for (int i = TENSOR; i <= PLAIN; i++) ok = (w.leaves[i] = PyList_New(0)) != NULL && ok;
    const int rc = ok ? walk(&w, value, 0) : -1;
    PyObject *result = NULL;
    if (rc == 1) result = PyTuple_Pack(4, w.signature, w.leaves[TENSOR], w.leaves[ARRAY], w.leaves[PLAIN]);
    Py_XDECREF(w.signature);
    for (int i = TENSOR; i <= PLAIN; i++) Py_XDECREF(w.leaves[i]);
    return rc == 0 ? Py_NewRef(Py_None) : result;
}
