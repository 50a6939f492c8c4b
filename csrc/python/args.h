/* Parsing by signature. A signature is compiled once (args_compile); args_parse fills Arg[] from a vectorcall. */
#ifndef AMP_ARGS_H
#define AMP_ARGS_H
#include "run_op.h"

enum { FRAME_INTS = 96, FRAME_TENSORS = 32, FRAME_TEMPS = 6 };
enum { ODD_BEYOND = 1, ODD_FIRST = 2 };

/* What a call's Args borrow from: lives on the entry's stack, emptied by args_done. */
typedef struct ArgFrame {
    int ntemps, nints, ntensors, nheap;
    uint8_t
        odd; /* ODD_BEYOND: an integer of 2^63 and more was read as a float; ODD_FIRST: the first argument is a number for a tensor */
    int reached; /* how much of a call that does not fit was understood: 2 per argument, 1 for one that nearly fits */
    int lacking; /* how many required arguments such a call lacks, where nothing else is wrong with it */
    PyObject *temps[FRAME_TEMPS]; /* strong: wrapped numbers, converted arrays */
    void *heap[4];                /* lists too long for the inline space */
    int64_t ints[FRAME_INTS];
    Tensor *tensors[FRAME_TENSORS];
} ArgFrame;
static inline void args_begin(ArgFrame *f) {
    f->ntemps = f->nints = f->ntensors = f->nheap = 0;
    f->odd = 0;
}
void args_done(ArgFrame *f);

/* Compiles row->signature into row->param and its companions. 0, or -1 with SystemError for a malformed row. */
int args_compile(OpRow *row);

/* Fills arg[0 .. nparams). `self` (or NULL) stands in for parameter 0. 1: parsed; 0: does not fit (exception set only if `report`);
 * -1: failed with an exception. args_done is due after any result. */
int args_parse(const OpRow *row, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames, ArgFrame *frame,
               Arg *arg, bool report);

/* A list of integers from a sequence or a single integer; 1, 0, -1 as above. */
int args_int_list(PyObject *o, ArgFrame *frame, Arg *arg);

PyObject *arg_object(const Arg *a); /* classes_python.c: the argument as Python sees it; new reference */
#endif
