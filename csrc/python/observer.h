/* Who watches the ops of a thread: debug.op_report. While nobody does, MODE_OBSERVER is off and nothing here is reached. */
#ifndef AMP_OBSERVER_H
#define AMP_OBSERVER_H
#include "../core/autocast.h"
#include "run_op.h"

extern _Thread_local int observer_backward; /* depth of backward passes in this thread; kept whether or not somebody watches */

int observer_init(PyObject *module);
/* A row for a call that begins; *row stays NULL if nobody watches any more. 0 or -1. */
int observer_begin(const OpCall *c, PyObject **row);
/* The arguments as autocast left them. 0 or -1. */
int observer_casts_done(PyObject *row, const OpCall *c);
/* The result, or the pending exception if it is NULL. Takes over row. Returns result, or NULL with an exception. */
PyObject *observer_end(PyObject *row, PyObject *result);
/* A weight's kept cast is used again. 0 or -1. */
int observer_cache_hit(const Tensor *weight, int dtype);
/* A matrix product that a derivative forms without running an op. 0 or -1. */
int observer_product(const View *a, const View *b, const View *out);

#endif
