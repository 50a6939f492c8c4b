/* Cross entropy of class numbers as one op: see loss.h for its statistics. */
#include "classes.h"
#include "loss.h"

static double *doubles(const Tensor *t) { return (double *)(void *)t->v.data; }

/* A vector in float64, dense; new reference. */
static Tensor *dense_doubles(Tensor *t) {
    Tensor *wide = raw_cast(t, AMP_FLOAT64), *dense = wide ? raw_contiguous(wide) : NULL;
    Py_XDECREF(wide);
    return dense;
}

/* What the mean divides by: the weights of the classes that count. */
static double divisor(const Tensor *target, const double *weight, int64_t ignore) {
    const int64_t *t = (const int64_t *)(const void *)target->v.data;
    double sum = 0.0;
    for (int64_t i = 0; i < target->v.numel; i++) {
        sum += t[i] == ignore ? 0.0 : weight ? weight[t[i]] : 1.0;
    }
    return sum;
}

static int reduce_rows(OpCall *c, const Tensor *target, Tensor *rows, double by, int reduction) {
    const Tensor *x = c->arg[ENTROPY_INPUT].t;
    bool each = reduction == REDUCE_NONE;
    Tensor *out = result_new(c, 0, each && x->v.ndim > 1 ? target->v.ndim : 0, target->v.shape, x->v.dtype, x->v.device,
                             ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    if (each) {
        View loss = rows->v;
        loss.ndim = out->v.ndim;
        loss.shape = out->v.shape;
        loss.stride = out->v.stride;
        return raw_copy(&out->v, &loss);
    }
    double sum = 0.0;
    for (int64_t i = 0; i < rows->v.numel; i++) {
        sum += doubles(rows)[i];
    }
    return raw_fill(out, number_float(reduction == REDUCE_MEAN ? sum / by : sum));
}

int run_CROSS_ENTROPY_ROWS(OpCall *c) {
    Tensor *x = c->arg[ENTROPY_INPUT].t, *target = c->arg[ENTROPY_TARGET].t;
    Tensor *given = c->arg[ENTROPY_WEIGHT].kind == ARG_TENSOR ? c->arg[ENTROPY_WEIGHT].t : NULL;
    int64_t rows = target->v.numel, nstats = 2 * rows + 1, nclass = x->v.ndim ? x->v.shape[x->v.ndim == 1 ? 0 : 1] : 0;
    if (target->v.dtype != AMP_INT64 || target->v.layout != LAYOUT_CONTIGUOUS || rows * nclass != x->v.numel || rows == 0) {
        PyErr_SetString(PyExc_RuntimeError, "expected one int64 class number per row of logits, dense: use cross_entropy");
        return -1;
    }
    int failed = -1, device = x->v.device;
    Tensor *weight = given ? dense_doubles(given) : NULL, *loss = tensor_new(1, &rows, AMP_FLOAT64, device);
    Tensor *stats = loss && (weight || !given) ? result_new(c, 1, 1, &nstats, AMP_FLOAT64, device, ALIAS_NEVER) : NULL;
    if (stats) {
        int64_t ignore = c->arg[ENTROPY_IGNORE].i;
        Call call = {.op = c->row->op,
                     .nin = 3,
                     .nout = 2,
                     .nnum = 2,
                     .in = {&x->v, &target->v, weight ? &weight->v : NULL},
                     .out = {&loss->v, &stats->v},
                     .num = {number_int(ignore), number_float(c->arg[ENTROPY_SMOOTHING].f)},
                     .dims = x->v.ndim == 1 ? 1 : 2};
        failed = run_slot(device, AMP_BACKEND_SLOT(device, cross_entropy), &call, x->v.numel * 8, c->row->name);
        if (!failed) {
            double by = doubles(stats)[2 * rows] = divisor(target, weight ? doubles(weight) : NULL, ignore);
            failed = reduce_rows(c, target, loss, by, (int)c->arg[ENTROPY_REDUCTION].i);
        }
    }
    Py_XDECREF(weight);
    Py_XDECREF(loss);
    return failed;
}
