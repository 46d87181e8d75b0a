/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of the extension module breakwater._core, which is the C library for Python and nothing more: stable ABI
 * of Python 3.11, memory by the buffer protocol or by address, the interpreter's lock let go of around each call that
 * can block. Every object is guarded by that lock; what the library does meanwhile it guards itself. */
#ifndef BW_PYTHON_CORE_H
#define BW_PYTHON_CORE_H

#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <breakwater/breakwater.h>
#include <stdatomic.h>
#include <stdbool.h>

struct core {
    PyObject *make_error; /* breakwater.errors.make */
    PyTypeObject *tensor, *checkpointer, *save, *reader;
};

extern struct PyModuleDef core_def;
struct core *core_of(PyTypeObject *type);
void *core_alloc(PyTypeObject *type); /* zeroed; NULL: an exception is set */
void core_free(PyObject *self);       /* the memory of an object, at the end of its tp_dealloc */

/* ---- errors and arguments: module.c ---- */

PyObject *core_error(const struct core *core, const struct bw_error *err); /* the exception, not set */
void *core_raise(const struct core *core, const struct bw_error *err);     /* NULL, with the exception set */
/* Seconds (None: for ever) to milliseconds. false: an exception is set. */
bool core_timeout(PyObject *seconds, uint64_t *ret_ms);
/* An integer, 0 to `most`. false: an exception names `what`. */
bool core_number(PyObject *value, const char *what, uint64_t most, uint64_t *ret);
bool core_number32(PyObject *value, const char *what, uint32_t *ret);
/* A text without NUL, which C would take for its end; it belongs to the object. NULL: an exception names `what`. */
const char *core_text(PyObject *value, const char *what);

/* A pointer of the library's, and how many calls are inside with it without the interpreter's lock. It lies apart from
 * the Python object: a call that was interrupted is inside still when that is gone. */
struct handle {
    void *ptr;    /* NULL: closed */
    bool closing; /* nobody gets in meanwhile */
    atomic_uint users;
};
struct handle *core_handle(void *ptr);                /* NULL: no memory, an exception is set */
void *core_enter(struct handle *h, const char *what); /* NULL: it is closed, and an exception says so */
void core_leave(struct handle *h);                    /* any thread, without the interpreter's lock too */
/* Keeps new calls out, or lets them in again. */
void core_shut(struct handle *h, bool closing);
/* Waits until nobody is inside of what is shut, at most until a moment of core_moment's. false: that has passed, or a
 * signal's handler has raised; an exception is set. */
bool core_calm(const struct core *core, struct handle *h, uint64_t until_ms, const char *what);
uint64_t core_moment(uint64_t timeout_ms); /* from now on; UINT64_MAX: never */
/* Takes the pointer away from new calls and waits for those inside, however long; whoever gets it closes it. NULL: it
 * was closed before. */
void *core_take(struct handle *h);
/* For the end of the Python object. The pointer, if nobody is inside; else it is left to itself. */
void *core_drop(struct handle *h);

/* ---- calls that can be interrupted: job.c ---- */

/* A call that may take minutes, on a thread of its own. An interrupt leaves it to itself; it is dropped when it has
 * come back. So it may touch nothing that belongs to Python. */
struct job {
    int (*run)(struct job *);   /* fills rc and err */
    void (*drop)(struct job *); /* lets go of what it has got, if anything, and of the job; NULL: free() */
    struct handle *held;        /* entered, for the time of the call; NULL: none */
    int rc;
    struct bw_error err;
    /* inside */
    void *inside;
};
/* Takes the job over. 0: it has run, and belongs to the caller again, who leaves its handle once what came of the job
 * is in its place. -1: interrupted, or no memory; an exception is set, and the job is not the caller's any more. */
int job_run(struct job *j);

/* ---- types ---- */

struct tensor {
    PyObject_HEAD PyObject *name, *owner;
    Py_buffer buffer; /* buffer.obj NULL: memory by address */
    bool writable, whole, strided;
    const char *utf8;
    void *data;
    uint32_t dtype, dims, flags, replica_count, replica_index;
    uint64_t replica_group;
    uint64_t shape[BW_DIMS_MAX], offset[BW_DIMS_MAX], extent[BW_DIMS_MAX];
    int64_t stride[BW_DIMS_MAX];
};

struct checkpointer {
    PyObject_HEAD struct core *core;
    struct handle *h;
    struct save *saves;     /* that are not released */
    struct reader *readers; /* that are not closed */
};

/* Saves and readers of a checkpointer are on its list. Who lets the library close one takes it off first and is inside
 * the checkpointer meanwhile, so that nobody closes that under it. */
struct save {
    PyObject_HEAD struct core *core;
    struct handle *h;
    struct checkpointer *of; /* NULL: let go of, or its checkpointer is closed */
    struct save *next;
    PyObject *kept; /* list: whose memory is read until it is captured */
};

struct reader {
    PyObject_HEAD struct core *core;
    struct handle *h;
    struct checkpointer *of; /* NULL: of nobody */
    struct reader *next;
};

extern PyType_Spec tensor_spec, checkpointer_spec, save_spec, reader_spec;
extern PyMethodDef catalog_methods[]; /* functions of the module */
PyObject *core_flatten(PyObject *module, PyObject *args);

PyObject *save_of(struct checkpointer *ck, struct bw_save *save); /* takes it over, on failure too */
PyObject *reader_of(struct core *core, struct checkpointer *ck, struct bw_restore *restore); /* likewise */
/* Its checkpointer is being closed. What it keeps goes into `kept` as well, a list. */
void save_orphan(struct save *s, PyObject *kept);
void reader_shut(struct reader *r); /* closes it */
/* The tensors of a sequence as a new list; NULL: an exception is set. */
PyObject *tensor_list(struct core *core, PyObject *sequence);
bool core_set(PyObject *dict, const char *key, PyObject *value); /* takes the value over; NULL is an exception */

#endif
