/* The gradients of an image that was read at the points of a grid: one kernel, or, to be differentiated again, those of the same map made
 * of ops, in Python. */
#include "derivatives.h"

/* A pair of tensors, or Nones: what it has goes to the frame. Takes the pair. */
static void take_pair(Back *b, PyObject *pair) {
    if (!pair || !PyTuple_Check(pair) || PyTuple_GET_SIZE(pair) != 2) {
        b->failed = true;
        Py_XDECREF(pair);
        return;
    }
    for (int i = 0; i < 2; i++) {
        PyObject *t = PyTuple_GET_ITEM(pair, i);
        if (NEED(i) && t != Py_None) {
            b->grad[i] = back_own(b, (Tensor *)Py_NewRef(t));
        }
    }
    Py_DECREF(pair);
}

void f_grid_sample(Back *b) {
    Tensor *input = IN(0), *grid = IN(1);
    if (b->g && input && grid) {
        Arg arg[MAX_ARGS] = {arg_tensor(b->g), arg_tensor(input), arg_tensor(grid), ARG(2), ARG(3),
                             ARG(4),           arg_bool(NEED(0)), arg_bool(NEED(1))};
        take_pair(b, run_op(&amp_rows[OP_grid_sample_grad], arg, false));
    }
}

void d_grid_sample(Back *b) {
    Tensor *input = IN(0), *grid = IN(1);
    if (b->g && input && grid) {
        PyObject *module = PyImport_ImportModule("ampnative._ops.resample");
        take_pair(b, module ? PyObject_CallMethod(module, "plane_gradients", "OOOLLi", b->g, input, grid, (long long)ARG(2).i,
                                                  (long long)ARG(3).i, ARG(4).i != 0)
                            : NULL);
        Py_XDECREF(module);
    }
}
