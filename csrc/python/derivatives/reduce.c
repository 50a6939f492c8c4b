/* Derivatives of reductions and scans. */
#include "derivatives.h"

#include <math.h>
#include <string.h>

#include "../classes.h"

/* Which dimensions of input 0 a call reduced; the parameters stand elsewhere in each group of rows. */
typedef struct Reduction {
    uint64_t dims;
    bool keepdim;
    int64_t count; /* elements per result */
} Reduction;

static Reduction reduction_of(Back *b) {
    const TensorMeta *m = &IN_META(0);
    const Arg *dims = NULL;
    bool keepdim = false;
    switch (node_op(b)) {
    case OP_sum_dim:
    case OP_mean_dim:
    case OP_prod_dim:
    case OP_amax:
    case OP_amin:
    case OP_max_dim:
    case OP_min_dim:
        dims = &ARG(1);
        keepdim = ARG(2).i;
        break;
    case OP_var:
    case OP_std:
    case OP_var_dim:
    case OP_std_dim:
    case OP_vector_norm:
        dims = &ARG(1);
        keepdim = ARG(3).i;
        break;
    default: break;
    }
    if (node_op(b) == OP_vector_norm) {
        dims = &ARG(2);
    }
    Reduction r = {.keepdim = keepdim, .count = 1};
    if (dims_mask(dims, m->ndim, &r.dims) < 0) {
        b->failed = true;
        return r;
    }
    for (int d = 0; d < m->ndim; d++) {
        r.count *= r.dims >> d & 1 ? m->shape[d] : 1;
    }
    return r;
}

/* t, a result of the reduction, with the reduced dimensions back as size 1. */
static Tensor *with_dims(Back *b, Tensor *t, const Reduction *r) {
    const TensorMeta *m = &IN_META(0);
    if (!t || t->v.ndim == m->ndim) {
        return t;
    }
    int64_t shape[AMP_MAX_DIMS];
    for (int d = 0; d < m->ndim; d++) {
        shape[d] = r->dims >> d & 1 ? 1 : m->shape[d];
    }
    return reshape(b, t, m->ndim, shape);
}

static Tensor *spread(Back *b, Tensor *t, const Reduction *r) { return expand_like(b, with_dims(b, t, r), &IN_META(0)); }

void d_sum(Back *b) {
    Reduction r = reduction_of(b);
    GRAD(0, spread(b, b->g, &r));
}

void d_mean(Back *b) {
    Reduction r = reduction_of(b);
    GRAD(0, op1k(b, OP_div, spread(b, b->g, &r), (double)r.count)); /* memory of its own, unlike the sum's */
}

/* Equal extrema share the gradient evenly. Where the extremum is NaN, max() and min() share among the NaNs; amax and amin, which find
 * nothing equal to it, give NaN. */
void d_extremum(Back *b) {
    if (!NEED(0) || !b->g) {
        return;
    }
    Reduction r = reduction_of(b);
    bool full = node_op(b) == OP_max || node_op(b) == OP_min;
    Tensor *same = op2(b, OP_eq, IN(0), with_dims(b, OUT(0), &r)), *g = with_dims(b, b->g, &r);
    if (full) {
        same = op2(b, OP_logical_or, same, op1(b, OP_isnan, IN(0)));
    }
    Tensor *count = sum_dims(b, same, r.dims, true);
    if (full) {
        b->grad[0] = zero_where(b, expand_like(b, divide(b, g, count), &IN_META(0)), not_(b, same));
    } else {
        b->grad[0] = divide(b, mul(b, g, same), count);
    }
}

void d_extremum_dim(Back *b) {
    const TensorMeta *m = &IN_META(0);
    if (!NEED(0) || !b->g) {
        return;
    }
    Reduction r = reduction_of(b);
    if (m->ndim == 0) {
        b->grad[0] = b->g;
        return;
    }
    int dim = dim_of(ARG(1).i, m->ndim);
    b->grad[0] = scatter_add(b, zeros_meta(b, b->g, m), dim, with_dims(b, OUT(1), &r), with_dims(b, b->g, &r));
}

/* 1: at least one zero; 0: none, or on "meta", where the gradient has the same shape either way; -1: failed. */
static int has_zero(Back *b, Tensor *x) {
    if (x->v.device == AMP_META) {
        return 0;
    }
    Tensor *any = op1(b, OP_any, op1k(b, OP_eq, x, 0.0));
    PyObject *item = any ? tensor_item(any) : NULL;
    int zero = item ? PyObject_IsTrue(item) : -1;
    Py_XDECREF(item);
    b->failed |= any && zero < 0;
    return zero;
}

/* 1, x0, x0 x1, ... : the product of all that stand before. */
static Tensor *product_before(Back *b, Tensor *x, int dim) {
    if (!x) {
        return NULL;
    }
    int64_t shape[AMP_MAX_DIMS];
    for (int d = 0; d < x->v.ndim; d++) {
        shape[d] = d == dim ? 1 : x->v.shape[d];
    }
    Tensor *parts[2] = {constant(b, x, x->v.ndim, shape, 1.0), narrow(b, x, dim, 0, x->v.shape[dim] - 1)};
    return op_int(b, OP_cumprod, cat(b, 2, parts, dim), dim);
}

/* The product of all others along dim, right whatever the number of zeros. */
static Tensor *product_of_others(Back *b, Tensor *x, int dim) {
    return mul(b, product_before(b, x, dim), flip(b, product_before(b, flip(b, x, dim), dim), dim));
}

void d_prod(Back *b) {
    const TensorMeta *m = &IN_META(0);
    if (!NEED(0) || !b->g) {
        return;
    }
    Tensor *x = cast(b, IN(0), b->g->v.dtype);
    Reduction r = reduction_of(b);
    int zero = x && x->v.numel ? has_zero(b, x) : 0;
    if (m->ndim == 0) {
        b->grad[0] = b->g;
    } else if (zero == 0) {
        b->grad[0] = mul(b, with_dims(b, b->g, &r), divide(b, with_dims(b, OUT(0), &r), x));
    } else if (node_op(b) == OP_prod) {
        int64_t flat[1] = {-1};
        b->grad[0] = mul(b, b->g, reshape_like(b, product_of_others(b, reshape(b, x, 1, flat), 0), m));
    } else {
        b->grad[0] = mul(b, with_dims(b, b->g, &r), product_of_others(b, x, dim_of(ARG(1).i, m->ndim)));
    }
}

/* ---- var, std, norms ---- */

static double correction_of(Back *b) {
    switch (node_op(b)) {
    case OP_var_unbiased:
    case OP_std_unbiased: return ARG(1).i ? 1.0 : 0.0;
    case OP_var_dim:
    case OP_std_dim: return ARG(2).i ? 1.0 : 0.0;
    default: return ARG(2).kind == ARG_NONE ? 1.0 : ARG(2).num.f;
    }
}

static Tensor *var_slope(Back *b, Tensor *g, const Reduction *r) {
    Tensor *x = IN(0), *total = sum_dims(b, x, r->dims, true);
    Tensor *mean = total == x ? x : op1k(b, OP_div, total, (double)r->count);
    return mul(b, scale(b, with_dims(b, g, r), 2.0 / ((double)r->count - correction_of(b))), sub(b, x, mean));
}

void d_var(Back *b) {
    Reduction r = reduction_of(b);
    GRAD(0, var_slope(b, b->g, &r));
}

/* Where the deviation is 0 the gradient is taken as 0. */
void d_std(Back *b) {
    if (NEED(0)) {
        Reduction r = reduction_of(b);
        Tensor *y = OUT(0), *flat = op1k(b, OP_eq, y, 0.0);
        Tensor *g = zero_where(b, divide(b, b->g, scale(b, fill_where(b, y, flat, 1.0), 2.0)), flat);
        b->grad[0] = var_slope(b, g, &r);
    }
}

/* |x|^(p-1) sign(x); zeros stay 0 also for p < 1. */
static Tensor *signed_power(Back *b, Tensor *x, double p) {
    Tensor *zero = op1k(b, OP_eq, x, 0.0);
    Tensor *size = op1(b, OP_abs, fill_where(b, x, zero, 1.0));
    return zero_where(b, mul(b, op1(b, OP_sign, x), op1k(b, OP_pow, size, p - 1.0)), zero);
}

/* d|x|_p/dx = (|x| / norm)^(p-1) sign(x); 0 where the norm is 0. The order of the factors is PyTorch's: in 16 bits it decides what
 * overflows, and with it the history of a loss scale. */
static Tensor *norm_slope(Back *b, Tensor *x, Tensor *y, double p, const Reduction *r) {
    Tensor *g = with_dims(b, b->g, r);
    if (p == 0.0) {
        return zeros_meta(b, g, &IN_META(0));
    }
    if (p == 1.0) {
        return mul(b, op1(b, OP_sign, x), g);
    }
    if (isinf(p)) {
        Tensor *other = op2(b, OP_ne, op1(b, OP_abs, x), y);
        Tensor *part = divide(b, g, sum_dims(b, not_(b, other), r->dims, true));
        return zero_where(b, mul(b, op1(b, OP_sign, x), part), other);
    }
    Tensor *flat = op1k(b, OP_eq, y, 0.0), *size = fill_where(b, y, flat, 1.0);
    if (p == 2.0) {
        return mul(b, g, zero_where(b, divide(b, x, size), flat));
    }
    if (p < 1.0) {
        return mul(b, mul(b, signed_power(b, x, p), g), zero_where(b, op1k(b, OP_pow, size, 1.0 - p), flat));
    }
    return mul(b, signed_power(b, x, p), zero_where(b, divide(b, g, op1k(b, OP_pow, size, p - 1.0)), flat));
}

void d_vector_norm(Back *b) {
    if (NEED(0) && b->g) {
        Reduction r = reduction_of(b);
        b->grad[0] = norm_slope(b, cast(b, IN(0), b->g->v.dtype), with_dims(b, OUT(0), &r), ARG(1).num.f, &r);
    }
}

/* ---- scans ---- */

/* Sums from each element to the end. */
static Tensor *sum_onwards(Back *b, Tensor *x, int dim) { return flip(b, op_int(b, OP_cumsum, flip(b, x, dim), dim), dim); }

void d_cumsum(Back *b) {
    int ndim = IN_META(0).ndim;
    GRAD(0, ndim == 0 ? b->g : sum_onwards(b, b->g, dim_of(ARG(1).i, ndim)));
}

/* The same in one kernel call: gradient and result are read and written from the end. */
void f_cumsum(Back *b) {
    int ndim = IN_META(0).ndim;
    if (!b->g || !NEED(0) || ndim == 0 || b->g->v.device != AMP_CPU) {
        d_cumsum(b);
        return;
    }
    Tensor *out = back_own(b, tensor_new(ndim, b->g->v.shape, b->g->v.dtype, AMP_CPU));
    if (!out) {
        return;
    }
    int dim = dim_of(ARG(1).i, ndim);
    View view[2] = {b->g->v, out->v};
    int64_t stride[2][AMP_MAX_DIMS];
    for (int v = 0; v < 2 && out->v.numel > 0; v++) {
        memcpy(stride[v], view[v].stride, (size_t)ndim * sizeof(int64_t));
        view[v].data += (view[v].shape[dim] - 1) * stride[v][dim] * (int64_t)amp_itemsize(view[v].dtype);
        stride[v][dim] = -stride[v][dim];
        view[v].stride = stride[v];
        view[v].layout = 0;
    }
    Call call;
    amp_call_init(&call, OP_cumsum);
    call.nin = call.nout = 1;
    call.in[0] = &view[0];
    call.out[0] = &view[1];
    call.dims = (uint64_t)1 << dim;
    b->failed |= run_slot(AMP_CPU, AMP_BACKEND_SLOT(AMP_CPU, scan), &call, out->v.numel, amp_rows[OP_cumsum].name) < 0;
    b->grad[0] = out;
}

/* With zeros among x, of length n along dim: P[.., i, j] = product of x[0 .. j] without x[i], for j >= i, and gradient i is the sum of
 * g[j] P[i, j].
 *
 *     row i of the table before the products:  x0 .. x(i-1)  1  x(i+1) .. x(n-1)
 *
 * n times the memory of x, but only where a division by x is impossible. */
static Tensor *cumprod_with_zeros(Back *b, Tensor *g, Tensor *x, int dim) {
    if (!g || !x) {
        return NULL;
    }
    int ndim = x->v.ndim, last = ndim;
    int64_t n = x->v.shape[dim], shape[AMP_MAX_DIMS + 1], square_shape[2] = {n, n};
    Tensor *row = unsqueeze(b, transpose(b, x, dim, ndim - 1), ndim - 1);
    if (!row) {
        return NULL;
    }
    for (int d = 0; d <= last; d++) {
        shape[d] = row->v.shape[d];
    }
    shape[last - 1] = n;
    Tensor *ones = constant(b, x, 2, square_shape, 1.0);
    Tensor *upper = op_int(b, OP_triu, ones, 0);
    Tensor *diagonal = op1k(b, OP_gt, op_int(b, OP_tril, upper, 0), 0.0);
    Tensor *table = fill_where(b, expand(b, row, ndim + 1, shape), diagonal, 1.0);
    Tensor *products = mul(b, op_int(b, OP_cumprod, table, last), upper);
    Tensor *weighted = mul(b, products, unsqueeze(b, transpose(b, g, dim, ndim - 1), ndim - 1));
    return transpose(b, sum_dims(b, weighted, (uint64_t)1 << last, false), dim, ndim - 1);
}

void d_cumprod(Back *b) {
    int ndim = IN_META(0).ndim;
    if (!NEED(0) || !b->g) {
        return;
    }
    if (ndim == 0 || b->g->v.numel == 0) {
        b->grad[0] = b->g;
        return;
    }
    int dim = dim_of(ARG(1).i, ndim);
    Tensor *x = cast(b, IN(0), b->g->v.dtype);
    if (x && has_zero(b, x) == 0) {
        b->grad[0] = divide(b, sum_onwards(b, mul(b, b->g, OUT(0)), dim), x);
    } else {
        b->grad[0] = cumprod_with_zeros(b, b->g, x, dim);
    }
}
