/* The gradient of connectionist temporal classification is one kernel, and is not differentiated again. */
#include "derivatives.h"

void d_ctc(Back *b) {
    if (NEED(0) && b->g) {
        Arg arg[MAX_ARGS] = {
            arg_tensor(b->g), arg_tensor(OUT(1)), arg_tensor(IN(0)), arg_tensor(IN(1)), ARG(2), ARG(3), ARG(4), ARG(5)};
        b->grad[0] = op_args(b, OP_ctc_samples_grad, arg);
    }
}

void d_ctc_grad(Back *b) {
    PyErr_SetString(PyExc_RuntimeError,
                    "ctc_loss: the derivative for its gradient is not implemented: call backward() without create_graph");
    b->failed = true;
}
