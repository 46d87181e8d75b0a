/* SPDX-License-Identifier: Apache-2.0 */
/* Tensor: memory with a name, described once and used for any number of saves and reads. */
#include "core.h"
#include <stddef.h>
#include <string.h>

/* ---- what the memory is ---- */

/* Format characters of the buffer protocol, native sizes and order. */
static uint32_t dtype_of_format(const char *format, Py_ssize_t bytes) {
    if (format == NULL) return BW_U8;
    if (*format == '@' || *format == '=' || *format == '<') format++;
    if (strcmp(format, "?") == 0) return BW_BOOL;
    if (strcmp(format, "e") == 0) return BW_F16;
    if (strcmp(format, "f") == 0) return BW_F32;
    if (strcmp(format, "d") == 0) return BW_F64;
    if (strcmp(format, "Zf") == 0) return BW_C64;
    if (strcmp(format, "Zd") == 0) return BW_C128;
    if (strlen(format) != 1) return 0;
    static const uint32_t of_signed[] = {BW_I8, BW_I16, BW_I32, BW_I64},
                          of_unsigned[] = {BW_U8, BW_U16, BW_U32, BW_U64};
    const unsigned log2 = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
    if (strchr("bhilqn", *format) != NULL) return of_signed[log2];
    return strchr("cBHILQN", *format) != NULL ? of_unsigned[log2] : 0;
}

static bool parse_dtype(PyObject *text, uint32_t *ret) {
    const char *name = PyUnicode_AsUTF8AndSize(text, NULL);
    if (name == NULL) return false;
    *ret = (uint32_t)bw_dtype_parse(name);
    if (*ret == 0)
        (void)PyErr_Format(PyExc_ValueError, "dtype: expected a name such as \"F32\" or \"BF16\", found \"%s\"", name);
    return *ret != 0;
}

/* A sequence of integers into numbers; *ret_count of them. */
static bool parse_numbers(PyObject *sequence, const char *what, bool negative, int64_t ret[BW_DIMS_MAX],
                          uint32_t *ret_count) {
    PyObject *fast = PySequence_Tuple(sequence);
    if (fast == NULL) return false;
    const Py_ssize_t n = PyTuple_Size(fast);
    bool ok = n <= BW_DIMS_MAX;
    if (!ok)
        (void)PyErr_Format(PyExc_ValueError, "%s: expected at most %d dimensions, found %zd", what, BW_DIMS_MAX, n);
    for (Py_ssize_t i = 0; i < n && ok; i++) {
        PyObject *index = PyNumber_Index(PyTuple_GetItem(fast, i));
        ret[i] = index == NULL ? -1 : PyLong_AsLongLong(index);
        Py_XDECREF(index);
        ok = PyErr_Occurred() == NULL;
        if (ok && ret[i] < 0 && !negative) {
            ok = false;
            (void)PyErr_Format(PyExc_ValueError, "%s: expected no negative number, found %lld", what,
                               (long long)ret[i]);
        }
    }
    Py_DECREF(fast);
    *ret_count = (uint32_t)n;
    return ok;
}

/* As many numbers as there are dimensions, which the first of them decides. */
static bool take_numbers(struct tensor *t, PyObject *sequence, const char *what, bool first, int64_t *into) {
    uint32_t count;
    if (!parse_numbers(sequence, what, into == t->stride, into, &count)) return false;
    if (first) t->dims = count;
    if (count == t->dims) return true;
    (void)PyErr_Format(PyExc_ValueError, "%s: expected %u numbers, one for each dimension, found %u", what, t->dims,
                       count);
    return false;
}

static bool is_row_major(const struct tensor *t) {
    uint64_t want = bw_dtype_bytes((int)t->dtype);
    for (uint32_t d = t->dims; d-- > 0;) {
        if (t->extent[d] > 1 && (uint64_t)t->stride[d] != want) return false;
        want *= t->extent[d];
    }
    return true;
}

/* ---- made from a buffer, or from an address ---- */

static bool from_buffer(struct tensor *t, PyObject *memory, PyObject *dtype) {
    t->writable = PyObject_GetBuffer(memory, &t->buffer, PyBUF_FULL) == 0;
    if (!t->writable) {
        PyErr_Clear();
        if (PyObject_GetBuffer(memory, &t->buffer, PyBUF_FULL_RO) < 0) return false;
    }
    const Py_buffer *b = &t->buffer;
    if (b->suboffsets != NULL || b->ndim > BW_DIMS_MAX) {
        (void)PyErr_Format(PyExc_ValueError, "memory: expected strided memory of at most %d dimensions", BW_DIMS_MAX);
        return false;
    }
    if (dtype != Py_None && !parse_dtype(dtype, &t->dtype)) return false;
    if (dtype == Py_None) t->dtype = dtype_of_format(b->format, b->itemsize);
    if (t->dtype == 0 || bw_dtype_bytes((int)t->dtype) != (size_t)b->itemsize) {
        (void)PyErr_Format(PyExc_ValueError, "memory: elements of format \"%s\" and %zd bytes are not of %s",
                           b->format == NULL ? "B" : b->format, b->itemsize,
                           dtype == Py_None ? "any dtype that is known; give dtype" : "that dtype");
        return false;
    }
    t->data = b->buf;
    t->dims = (uint32_t)b->ndim;
    for (uint32_t d = 0; d < t->dims; d++) {
        t->extent[d] = (uint64_t)b->shape[d];
        t->stride[d] = b->strides[d];
    }
    t->strided = !is_row_major(t);
    return true;
}

static bool from_address(struct tensor *t, PyObject *address, PyObject *dtype, PyObject *extent, PyObject *stride) {
    t->data = PyLong_AsVoidPtr(address);
    if (t->data == NULL && PyErr_Occurred() != NULL) return false;
    if (dtype == Py_None || extent == Py_None) {
        PyErr_SetString(PyExc_TypeError, "memory by address: expected dtype, and shape or extent");
        return false;
    }
    t->writable = true;
    if (!parse_dtype(dtype, &t->dtype) || !take_numbers(t, extent, "extent", true, (int64_t *)t->extent)) return false;
    if (stride == Py_None) return true;
    if (!take_numbers(t, stride, "stride_bytes", false, t->stride)) return false;
    t->strided = !is_row_major(t);
    return true;
}

/* ---- where it lies in the whole tensor ---- */

static bool place(struct tensor *t, PyObject *shape, PyObject *offset) {
    t->whole = shape == Py_None;
    memcpy(t->shape, t->extent, sizeof t->shape);
    if (t->whole && offset != Py_None) {
        PyErr_SetString(PyExc_TypeError, "offset: expected the shape of the whole tensor with it");
        return false;
    }
    if (!t->whole && !take_numbers(t, shape, "shape", false, (int64_t *)t->shape)) return false;
    return offset == Py_None || take_numbers(t, offset, "offset", false, (int64_t *)t->offset);
}

static bool take_name(struct tensor *t, PyObject *name) {
    t->name = Py_NewRef(name);
    t->utf8 = core_text(name, "name");
    return t->utf8 != NULL;
}

static bool take_replica(struct tensor *t, PyObject *count, PyObject *index, PyObject *group) {
    return (count == NULL || core_number32(count, "replica_count", &t->replica_count)) &&
           (index == NULL || core_number32(index, "replica_index", &t->replica_index)) &&
           (group == NULL || core_number(group, "replica_group", UINT64_MAX, &t->replica_group));
}

static PyObject *tensor_new(PyTypeObject *type, PyObject *args, PyObject *kw) {
    static char *names[] = {
        "name",          "memory",        "dtype",         "shape",  "offset", "extent", "stride_bytes",
        "replica_count", "replica_index", "replica_group", "device", "owner",  NULL};
    PyObject *name, *memory, *dtype = Py_None, *shape = Py_None, *offset = Py_None, *extent = Py_None,
                             *stride = Py_None;
    PyObject *owner = Py_None;
    PyObject *count = NULL, *index = NULL, *group = NULL;
    int device = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kw, "UO|$OOOOOOOOpO", names, &name, &memory, &dtype, &shape, &offset,
                                     &extent, &stride, &count, &index, &group, &device, &owner))
        return NULL;
    struct tensor *t = core_alloc(type);
    if (t == NULL) return NULL;
    t->owner = Py_NewRef(owner);
    t->flags = device ? BW_TENSOR_DEVICE : 0;
    const bool by_address = PyLong_Check(memory);
    if (!by_address && (extent != Py_None || stride != Py_None))
        PyErr_SetString(PyExc_TypeError,
                        "extent and stride_bytes: a buffer says that itself; expected only with an address");
    else if (take_name(t, name) && take_replica(t, count, index, group) &&
             (by_address ? from_address(t, memory, dtype, extent == Py_None ? shape : extent, stride)
                         : from_buffer(t, memory, dtype)) &&
             place(t, by_address && extent == Py_None ? Py_None : shape, offset))
        return (PyObject *)t;
    Py_DECREF(t);
    return NULL;
}

static void tensor_dealloc(PyObject *self) {
    struct tensor *t = (struct tensor *)self;
    PyObject_GC_UnTrack(self);
    if (t->buffer.obj != NULL) PyBuffer_Release(&t->buffer);
    Py_XDECREF(t->name);
    Py_XDECREF(t->owner);
    core_free(self);
}

static int tensor_traverse(PyObject *self, visitproc visit, void *arg) {
    const struct tensor *t = (const struct tensor *)self;
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(t->owner);
    Py_VISIT(t->buffer.obj);
    return 0;
}

/* ---- what Python sees of it ---- */

static PyObject *numbers(uint32_t n, const uint64_t *v) {
    PyObject *tuple = PyTuple_New(n);
    for (uint32_t i = 0; i < n && tuple != NULL; i++) {
        PyObject *number = PyLong_FromUnsignedLongLong(v[i]);
        if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *get_shape(PyObject *self, void *closure) {
    (void)closure;
    return numbers(((struct tensor *)self)->dims, ((struct tensor *)self)->shape);
}

static PyObject *get_offset(PyObject *self, void *closure) {
    (void)closure;
    return numbers(((struct tensor *)self)->dims, ((struct tensor *)self)->offset);
}

static PyObject *get_extent(PyObject *self, void *closure) {
    (void)closure;
    return numbers(((struct tensor *)self)->dims, ((struct tensor *)self)->extent);
}

static PyObject *get_dtype(PyObject *self, void *closure) {
    (void)closure;
    return PyUnicode_FromString(bw_dtype_name((int)((struct tensor *)self)->dtype));
}

static PyObject *get_name(PyObject *self, void *closure) {
    (void)closure;
    return Py_NewRef(((struct tensor *)self)->name);
}

static PyObject *tensor_repr(PyObject *self) {
    struct tensor *t = (struct tensor *)self;
    PyObject *shape = numbers(t->dims, t->shape), *extent = numbers(t->dims, t->extent),
             *offset = numbers(t->dims, t->offset);
    PyObject *text = NULL;
    if (shape != NULL && extent != NULL && offset != NULL)
        text = t->whole ? PyUnicode_FromFormat("<Tensor %R %s %R>", t->name, bw_dtype_name((int)t->dtype), shape)
                        : PyUnicode_FromFormat("<Tensor %R %s %R of %R at %R>", t->name, bw_dtype_name((int)t->dtype),
                                               extent, shape, offset);
    Py_XDECREF(shape);
    Py_XDECREF(extent);
    Py_XDECREF(offset);
    return text;
}

PyObject *tensor_list(struct core *core, PyObject *sequence) {
    PyObject *list = PySequence_List(sequence);
    const Py_ssize_t n = list == NULL ? 0 : PyList_Size(list);
    for (Py_ssize_t i = 0; i < n; i++) {
        PyObject *item = PyList_GetItem(list, i);
        if (PyObject_TypeCheck(item, core->tensor)) continue;
        (void)PyErr_Format(PyExc_TypeError, "tensors: expected Tensor, found %R at %zd", Py_TYPE(item), i);
        Py_DECREF(list);
        return NULL;
    }
    return list;
}

static PyGetSetDef getters[] = {
    {"name", get_name, NULL, "its name", NULL},
    {"dtype", get_dtype, NULL, "its element type, as safetensors writes it", NULL},
    {"shape", get_shape, NULL, "shape of the whole tensor, elements", NULL},
    {"offset", get_offset, NULL, "where this memory begins in it, elements", NULL},
    {"extent", get_extent, NULL, "how far this memory reaches, elements", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyDoc_STRVAR(tensor_doc,
             "Tensor(name, memory, *, dtype=None, shape=None, offset=None, extent=None, stride_bytes=None,\n"
             "       replica_count=0, replica_index=0, replica_group=0, device=False, owner=None)\n--\n\n"
             "Memory that belongs to a tensor: all of it, or one box. Nothing is copied; the same Tensor serves\n"
             "any number of saves and reads, as long as the memory stays where it is.\n\n"
             "name           1 to 8192 bytes of UTF-8\n"
             "memory         an object with the buffer protocol (numpy.ndarray, bytearray, memoryview, ...),\n"
             "               strided as it likes; or an address (int), which takes dtype, extent and owner\n"
             "dtype          \"F32\", \"BF16\", ...; None: what the buffer says\n"
             "shape          of the whole tensor, elements; None: this memory is all of it\n"
             "offset         where this memory begins in it, elements; None: at 0\n"
             "extent         with an address: shape of this memory, elements; None: `shape`\n"
             "stride_bytes   with an address: from one index to the next; None: row-major\n"
             "replica_count, replica_index, replica_group\n"
             "               how many ranks hold these same bytes, and which of them this is\n"
             "device         a device or another process may write it: never captured by write-protection\n"
             "owner          kept alive with it\n");

static PyType_Slot slots[] = {
    {Py_tp_new, tensor_new},
    {Py_tp_dealloc, tensor_dealloc},
    {Py_tp_traverse, tensor_traverse},
    {Py_tp_getset, getters},
    {Py_tp_repr, tensor_repr},
    {Py_tp_doc, (void *)tensor_doc},
    {0, NULL},
};

PyType_Spec tensor_spec = {
    .name = "breakwater.Tensor",
    .basicsize = sizeof(struct tensor),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = slots,
};
