/* An image read at the points of a grid, in two dimensions, and the gradients of both: checked and converted arguments. */
#include "classes.h"

enum { SAMPLE_INPUT, SAMPLE_GRID, SAMPLE_MODE }; /* three numbers from SAMPLE_MODE on */

static bool grid_fits(const View *x, const View *grid) {
    return x->ndim == 4 && grid->ndim == 4 && grid->shape[3] == 2 && grid->shape[0] == x->shape[0] && grid->dtype == x->dtype &&
           grid->device == x->device && x->shape[2] > 0 && x->shape[3] > 0;
}

static int refuse(const OpCall *c) {
    PyErr_Format(PyExc_RuntimeError, "%s: expected input (N, C, H, W) and grid (N, H', W', 2) of one dtype and device",
                 c->row->name);
    return -1;
}

static void call_of(const OpCall *c, Call *call, const Arg *mode) {
    amp_call_init(call, c->row->op);
    call->nnum = 3;
    for (int i = 0; i < 3; i++) {
        call->num[i] = number_int(mode[i].i);
    }
}

int run_GRID_SAMPLE(OpCall *c) {
    const View *x = &c->arg[SAMPLE_INPUT].t->v, *grid = &c->arg[SAMPLE_GRID].t->v;
    if (!grid_fits(x, grid)) {
        return refuse(c);
    }
    int64_t shape[4] = {x->shape[0], x->shape[1], grid->shape[1], grid->shape[2]};
    Tensor *input = raw_contiguous(c->arg[SAMPLE_INPUT].t), *points = input ? raw_contiguous(c->arg[SAMPLE_GRID].t) : NULL;
    Tensor *out = points ? result_new(c, 0, 4, shape, x->dtype, x->device, ALIAS_NEVER) : NULL;
    int status = -1;
    if (out) {
        Call call;
        call_of(c, &call, c->arg + SAMPLE_MODE);
        call.nin = 2;
        call.nout = 1;
        call.in[0] = &input->v;
        call.in[1] = &points->v;
        call.out[0] = &out->v;
        status = run_slot(x->device, AMP_BACKEND_SLOT(x->device, grid_sample), &call, out->v.numel * 32, c->row->name);
    }
    Py_XDECREF(input);
    Py_XDECREF(points);
    return status;
}

/* (gradient of the input, of the grid); without one that is not wanted, an empty tensor in its place. */
int run_GRID_SAMPLE_GRAD(OpCall *c) {
    const Arg *arg = c->arg + 1;
    const View *g = &c->arg[0].t->v, *x = &arg[SAMPLE_INPUT].t->v, *grid = &arg[SAMPLE_GRID].t->v;
    bool fits = grid_fits(x, grid) && g->ndim == 4 && g->dtype == x->dtype && g->shape[0] == x->shape[0] &&
                g->shape[1] == x->shape[1] && g->shape[2] == grid->shape[1] && g->shape[3] == grid->shape[2];
    if (!fits) {
        return refuse(c);
    }
    const Arg *wanted = arg + SAMPLE_MODE + 3;
    int64_t none = 0;
    Tensor *grad = raw_contiguous(c->arg[0].t), *input = grad ? raw_contiguous(arg[SAMPLE_INPUT].t) : NULL;
    Tensor *points = input ? raw_contiguous(arg[SAMPLE_GRID].t) : NULL, *out[2] = {NULL, NULL};
    int status = -1;
    if (points) {
        out[0] = result_new(c, 0, wanted[0].i ? 4 : 1, wanted[0].i ? x->shape : &none, x->dtype, x->device, ALIAS_NEVER);
        out[1] = out[0]
                     ? result_new(c, 1, wanted[1].i ? 4 : 1, wanted[1].i ? grid->shape : &none, x->dtype, x->device, ALIAS_NEVER)
                     : NULL;
    }
    if (out[1]) {
        Call call;
        call_of(c, &call, arg + SAMPLE_MODE);
        call.nin = 3;
        call.nout = 2;
        call.in[0] = &input->v;
        call.in[1] = &points->v;
        call.in[2] = &grad->v;
        call.out[0] = wanted[0].i ? &out[0]->v : NULL;
        call.out[1] = wanted[1].i ? &out[1]->v : NULL;
        status = run_slot(x->device, AMP_BACKEND_SLOT(x->device, grid_sample_grad), &call, g->numel * 64, c->row->name);
    }
    Py_XDECREF(grad);
    Py_XDECREF(input);
    Py_XDECREF(points);
    return status;
}
