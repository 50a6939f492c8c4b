/* What out= accepts and how a result gets into it: of rows, and of functions written in Python. */
#ifndef AMP_OUTPUTS_H
#define AMP_OUTPUTS_H
#include "run_op.h"

/* Takes out= from the arguments. Where an op's dtype= decides its result and is not given, out's dtype does. */
void outputs_find(OpCall *c);

/* The tensor that result i goes to, or NULL; borrowed. */
static inline Tensor *output_of(const OpCall *c, int i) { return i >= c->nout ? NULL : c->out_list ? c->out_list[i] : c->out; }

/* RuntimeError, -1, if a result of one dtype may not be written into a tensor of the other: by out= or in place. */
int output_check_dtype(const OpCall *c, int from, int to);

/* RuntimeError, -1, if a tensor that is written element by element shares memory with an input otherwise than element by element: a caller
 * who keeps both would find the input overwritten. PyTorch refuses what it sees at once: in one storage and without gaps. */
int output_check_overlap(const OpCall *c, const Tensor *out, const Tensor *in);
/* The same for parameter i, which some ops may not share any element of with what they write. */
int output_check_apart(const OpCall *c, int i, const Tensor *out, const Tensor *in);

/* A shape that differs from the result's is replaced: new memory, as long as nobody looks at the old one through out. Warns where out had
 * elements. 0 or -1. */
int output_resize(Tensor *out, int ndim, const int64_t *shape);

/* Copies the results that were not written in place to the given outputs, which become the results. 0 or -1. */
int outputs_deliver(OpCall *c);

#define OUT_NEEDS_GRAD \
    "%s(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad"

int outputs_init(PyObject *module);
#endif
