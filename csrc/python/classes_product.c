/* Products: checks of shapes and dtypes, then the gemm slot on 2-d or 3-d views. */
#include <string.h>

#include "../core/autocast.h"
#include "../core/precision.h"
#include "classes.h"
#include "observer.h"

static int same_dtypes(const OpCall *c, const Tensor *a, const Tensor *b) {
    if (a->v.dtype == b->v.dtype) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "%s: expected m1 and m2 to have the same dtype, but got: %s != %s. Cast one with .to(), or use autocast",
                 c->row->name, amp_dtype_info[a->v.dtype].name, amp_dtype_info[b->v.dtype].name);
    return -1;
}

static int shapes_disagree(const OpCall *c, const Tensor *a, const Tensor *b) {
    PyObject *x = tensor_describe(a), *y = tensor_describe(b);
    char sizes[96] = "";
    if (a->v.ndim == 2 && b->v.ndim == 2) {
        PyOS_snprintf(sizes, sizeof sizes, " (%lldx%lld and %lldx%lld)", (long long)a->v.shape[0], (long long)a->v.shape[1],
                      (long long)b->v.shape[0], (long long)b->v.shape[1]);
    }
    if (x && y) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: mat1 and mat2 shapes cannot be multiplied%s: %U and %U. The inner sizes must be equal", c->row->name,
                     sizes, x, y);
    }
    Py_XDECREF(x);
    Py_XDECREF(y);
    return -1;
}

static int need_ndim(const OpCall *c, const Tensor *t, int ndim, const char *which) {
    if (t->v.ndim == ndim) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError, "%s: %s must be a %d-D tensor, got %d-D", c->row->name, which, ndim, t->v.ndim);
    return -1;
}

/* How the call's product of `dtype` operands is formed: the settings of this moment, or the call's own precision. Asked before anything
 * is allocated or written. */
static int find_numerics(const OpCall *c, int device, int dtype, ProductKind kind, Numerics *out) {
    int at = c->row->precision_index;
    int precision = precision_argument(at >= 0 && c->arg[at].kind == ARG_STR ? c->arg[at].s : NULL, device);
    Status status = precision < PRECISION_AS_SET ? AMP_OK : amp_product_numerics(device, dtype, kind, precision, out);
    return precision < PRECISION_AS_SET ? -1 : status ? amp_raise(status, c->row->name) : 0;
}

static const Number number_zero = {.f = 0.0, .kind = NUMBER_FLOAT}, number_one = {.f = 1.0, .kind = NUMBER_FLOAT};

static int form_product(const View *a, const View *b, const View *addend, View *out, const Number *beta, const Number *alpha,
                        Numerics numerics, const char *name) {
    Call call;
    amp_call_init(&call, OP_mm);
    call.nin = 3;
    call.nout = 1;
    call.in[0] = a;
    call.in[1] = b;
    call.in[2] = addend;
    call.out[0] = out;
    call.nnum = 2;
    call.num[0] = *beta;
    call.num[1] = *alpha;
    call.numerics = numerics;
    int64_t k = a->shape[a->ndim - 1];
    return run_slot(out->device, AMP_BACKEND_SLOT(out->device, gemm), &call, out->numel * (k / 4 + 1), name);
}

static int plain_product(const OpCall *c, const View *a, const View *b, View *out, Numerics numerics) {
    return form_product(a, b, NULL, out, &number_zero, &number_one, numerics, c->row->name);
}

int raw_product(const View *a, const View *b, View *out, const Arg *precision, bool rounded, const char *name) {
    if (amp_mode & MODE_OBSERVER && observer_product(a, b, out) < 0) {
        return -1;
    }
    Numerics numerics;
    int own = precision_argument(precision->kind == ARG_STR ? precision->s : NULL, out->device);
    if (own < PRECISION_AS_SET) {
        return -1;
    }
    Status status = amp_product_numerics(out->device, a->dtype, PRODUCT_MATRIX, own, &numerics);
    if (status) {
        return amp_raise(status, name);
    }
    numerics.round_result = rounded;
    return form_product(a, b, NULL, out, &number_zero, &number_one, numerics, name);
}

static int run_matrix(OpCall *c, int ndim) {
    Tensor *a = c->arg[0].t, *b = c->arg[1].t;
    const char *name = c->row->name;
    if (need_ndim(c, a, ndim, "self") < 0 || need_ndim(c, b, ndim, "mat2") < 0) {
        return -1;
    }
    int device = common_device(c);
    if (device < 0) {
        return -1;
    }
    if (a->v.shape[ndim - 1] != b->v.shape[ndim - 2]) {
        return shapes_disagree(c, a, b);
    }
    if (ndim == 3 && a->v.shape[0] != b->v.shape[0]) {
        PyErr_Format(PyExc_RuntimeError, "%s: batch1 and batch2 must have the same number of batches, got %lld and %lld", name,
                     (long long)a->v.shape[0], (long long)b->v.shape[0]);
        return -1;
    }
    Numerics numerics;
    if (same_dtypes(c, a, b) < 0 || find_numerics(c, device, a->v.dtype, PRODUCT_MATRIX, &numerics) < 0) {
        return -1;
    }
    int64_t shape[3] = {a->v.shape[0], a->v.shape[1], b->v.shape[2 - (ndim == 2)]};
    if (ndim == 2) {
        shape[1] = b->v.shape[1];
    } else {
        shape[2] = b->v.shape[2];
    }
    Tensor *out = result_new(c, 0, ndim, shape, a->v.dtype, device, ALIAS_NEVER);
    return out ? plain_product(c, &a->v, &b->v, &out->v, numerics) : -1;
}

int run_MM(OpCall *c) { return run_matrix(c, 2); }

int run_BMM(OpCall *c) { return run_matrix(c, 3); }

/* A vector as a one-column or one-row matrix, and back. */
static View as_matrix(const View *v, bool column, int64_t *dims) {
    View m = *v;
    dims[0] = column ? v->shape[0] : 1;
    dims[1] = column ? 1 : v->shape[0];
    dims[2] = column ? v->stride[0] : 0;
    dims[3] = column ? 0 : v->stride[0];
    m.ndim = 2;
    m.shape = dims;
    m.stride = dims + 2;
    return m;
}

int run_MV(OpCall *c) {
    Tensor *a = c->arg[0].t, *x = c->arg[1].t;
    if (need_ndim(c, a, 2, "self") < 0 || need_ndim(c, x, 1, "vec") < 0) {
        return -1;
    }
    if (a->v.shape[1] != x->v.shape[0]) {
        PyErr_Format(PyExc_RuntimeError, "size mismatch, got input (%lld), mat (%lldx%lld), vec (%lld)", (long long)a->v.shape[0],
                     (long long)a->v.shape[0], (long long)a->v.shape[1], (long long)x->v.shape[0]);
        return -1;
    }
    int device = common_device(c);
    Numerics numerics;
    if (device < 0 || same_dtypes(c, a, x) < 0 || find_numerics(c, device, a->v.dtype, PRODUCT_VECTOR, &numerics) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, 1, a->v.shape, a->v.dtype, device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    int64_t dx[4], dy[4];
    View vx = as_matrix(&x->v, true, dx), vy = as_matrix(&out->v, true, dy);
    return plain_product(c, &a->v, &vx, &vy, numerics);
}

int run_DOT(OpCall *c) {
    Tensor *a = c->arg[0].t, *b = c->arg[1].t;
    if (a->v.ndim != 1 || b->v.ndim != 1) {
        PyErr_Format(PyExc_RuntimeError, "1D tensors expected, but got %dD and %dD tensors", a->v.ndim, b->v.ndim);
        return -1;
    }
    if (a->v.dtype != b->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "dot : expected both vectors to have same dtype, but found %s and %s",
                     amp_dtype_info[a->v.dtype].name, amp_dtype_info[b->v.dtype].name);
        return -1;
    }
    if (a->v.shape[0] != b->v.shape[0]) {
        PyErr_Format(PyExc_RuntimeError,
                     "inconsistent tensor size, expected tensor [%lld] and src [%lld] to have the same number of elements, but "
                     "got %lld and %lld elements respectively",
                     (long long)a->v.shape[0], (long long)b->v.shape[0], (long long)a->v.shape[0], (long long)b->v.shape[0]);
        return -1;
    }
    int device = common_device(c);
    Numerics numerics;
    if (device < 0 || find_numerics(c, device, a->v.dtype, PRODUCT_DOT, &numerics) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, 0, NULL, a->v.dtype, device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    int64_t da[4], db[4], one[4] = {1, 1, 1, 1};
    View va = as_matrix(&a->v, false, da), vb = as_matrix(&b->v, true, db), vo = out->v;
    vo.ndim = 2;
    vo.shape = one;
    vo.stride = one + 2;
    return plain_product(c, &va, &vb, &vo, numerics);
}

static bool is_zero(const Number *n) { return n->f == 0.0 && (n->kind != NUMBER_COMPLEX || n->imag == 0.0); }

/* The view with size 0 in its inner dimension. */
static void without_inner(View *v, int dim, int64_t shape[3]) {
    memcpy(shape, v->shape, (size_t)v->ndim * sizeof *shape);
    shape[dim] = 0;
    v->shape = shape;
    v->numel = 0;
}

/* addmm, baddbmm: beta * input + alpha * (mat1 @ mat2), input broadcast. With alpha 0 the factors are not read, so that nothing in them
 * counts that is not finite; but for 16-bit ones, as in PyTorch. */
int run_ADDMM(OpCall *c) {
    Tensor *in = c->arg[0].t, *a = c->arg[1].t, *b = c->arg[2].t;
    int ndim = c->row->op == OP_addmm ? 2 : 3;
    if (need_ndim(c, a, ndim, "mat1") < 0 || need_ndim(c, b, ndim, "mat2") < 0) {
        return -1;
    }
    if (a->v.shape[ndim - 1] != b->v.shape[ndim - 2] || (ndim == 3 && a->v.shape[0] != b->v.shape[0])) {
        return shapes_disagree(c, a, b);
    }
    int device = common_device(c);
    Numerics numerics;
    if (device < 0 || same_dtypes(c, a, b) < 0 || find_numerics(c, device, a->v.dtype, PRODUCT_MATRIX, &numerics) < 0) {
        return -1;
    }
    if (in->v.dtype != a->v.dtype) {
        PyErr_Format(PyExc_RuntimeError, "self and mat2 must have the same dtype, but got %s and %s",
                     amp_dtype_info[in->v.dtype].name, amp_dtype_info[b->v.dtype].name);
        return -1;
    }
    int64_t shape[3] = {a->v.shape[0], ndim == 2 ? b->v.shape[1] : a->v.shape[1], b->v.shape[ndim - 1]}, joined[AMP_MAX_DIMS];
    memcpy(joined, shape, sizeof shape);
    int nd = amp_broadcast_shapes(ndim, shape, in->v.ndim, in->v.shape, joined);
    if (nd != ndim || memcmp(joined, shape, (size_t)ndim * sizeof *shape)) {
        PyObject *text = tensor_describe(in);
        if (text) {
            PyErr_Format(PyExc_RuntimeError, "%s: The expanded size of the tensor must match the product's size: input is a %U",
                         c->row->name, text);
            Py_DECREF(text);
        }
        return -1;
    }
    int holds = amp_is_16bit(a->v.dtype) ? AMP_FLOAT32 : a->v.dtype; /* what the sums are kept in */
    if (check_number(&c->arg[3].num, holds) < 0 || check_number(&c->arg[4].num, holds) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, ndim, shape, a->v.dtype, device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    int64_t strides[AMP_MAX_DIMS], none[2][3];
    View addend = broadcast_view(&in->v, ndim, out->v.shape, strides), va = a->v, vb = b->v;
    if (is_zero(&c->arg[4].num) && !amp_is_16bit(a->v.dtype)) {
        without_inner(&va, ndim - 1, none[0]);
        without_inner(&vb, ndim - 2, none[1]);
    }
    return form_product(&va, &vb, &addend, &out->v, &c->arg[3].num, &c->arg[4].num, numerics, c->row->name);
}

/* fp32 operands of a matrix-vector product are not rounded, in the derivative neither. */
static const Arg unrounded = {.kind = ARG_STR, .s = "ieee"};

/* addmm does the work but not by its own policy: on the CPU addmv is on no list. */
int run_ADDMV(OpCall *c) {
    uint8_t mode = amp_mode;
    amp_mode &= (uint8_t) ~(MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA);
    Tensor *x = call_unsqueeze(c->arg[2].t, 1), *in = call_unsqueeze(c->arg[0].t, c->arg[0].t->v.ndim ? -1 : 0), *result = NULL;
    if (x && in) {
        Arg arg[MAX_ARGS] = {arg_tensor(in), arg_tensor(c->arg[1].t), arg_tensor(x), c->arg[3], c->arg[4], unrounded};
        Tensor *column = run_op_tensor(OP_addmm, arg);
        result = column ? call_reshape(column, 1, &column->v.shape[0]) : NULL;
        Py_XDECREF(column);
    }
    amp_mode = mode;
    Py_XDECREF(x);
    Py_XDECREF(in);
    return result_set(c, result);
}

int run_OUTER(OpCall *c) {
    Tensor *a = c->arg[0].t, *b = c->arg[1].t;
    if (need_ndim(c, a, 1, "self") < 0 || need_ndim(c, b, 1, "vec2") < 0) {
        return -1;
    }
    Tensor *column = call_unsqueeze(a, 1), *result = call_binary(OP_mul, column, b);
    Py_XDECREF(column);
    return result_set(c, result);
}

/* linear: input (..., K) @ weight (N, K)^T + bias (N). The leading dimensions are one long dimension to the product. */
int run_LINEAR(OpCall *c) {
    Tensor *x = c->arg[0].t, *w = c->arg[1].t, *bias = c->arg[2].kind == ARG_TENSOR ? c->arg[2].t : NULL;
    if (x->v.ndim < 1 || w->v.ndim < 1 || w->v.ndim > 2) {
        PyErr_Format(PyExc_RuntimeError, "linear(): input must have at least 1 dimension and weight 1 or 2, got %d and %d",
                     x->v.ndim, w->v.ndim);
        return -1;
    }
    int nd = x->v.ndim;
    int64_t k = x->v.shape[nd - 1], rows = 1;
    int64_t n = w->v.ndim == 2 ? w->v.shape[0] : 1;
    if (k != w->v.shape[w->v.ndim - 1]) {
        PyObject *size = size_from_dims(nd, x->v.shape);
        if (size) {
            long long wanted = (long long)w->v.shape[w->v.ndim - 1];
            for (int d = 0; d < nd - 1; d++) {
                rows *= x->v.shape[d];
            }
            PyErr_Format(PyExc_RuntimeError,
                         "linear(): mat1 and mat2 shapes cannot be multiplied (%lldx%lld and %lldx%lld): the input, %R, has %lld "
                         "features, the layer takes %lld",
                         (long long)rows, (long long)k, wanted, (long long)n, size, (long long)k, wanted);
            Py_DECREF(size);
        }
        return -1;
    }
    int device = common_device(c);
    Numerics numerics;
    if (device < 0 || same_dtypes(c, x, w) < 0 || (bias && same_dtypes(c, x, bias) < 0) ||
        find_numerics(c, device, x->v.dtype, w->v.ndim == 2 ? PRODUCT_MATRIX : PRODUCT_VECTOR, &numerics) < 0) {
        return -1;
    }
    if (bias && (bias->v.ndim > 1 || (bias->v.ndim == 1 && bias->v.shape[0] != n && bias->v.shape[0] != 1))) {
        PyObject *text = tensor_describe(bias);
        if (text) {
            PyErr_Format(PyExc_RuntimeError, "linear(): bias must have %lld elements, got a %U", (long long)n, text);
            Py_DECREF(text);
        }
        return -1;
    }
    int64_t shape[AMP_MAX_DIMS];
    for (int d = 0; d < nd - 1; d++) {
        shape[d] = x->v.shape[d];
        rows *= shape[d];
    }
    shape[nd - 1] = n;
    int out_ndim = w->v.ndim == 2 ? nd : nd - 1;
    Tensor *out = result_new(c, 0, out_ndim, shape, x->v.dtype, device, ALIAS_NEVER);
    if (!out) {
        return -1;
    }
    /* The product fills rows of n; an out= that lies otherwise gets a copy. */
    Tensor *lines = out->v.layout & LAYOUT_CONTIGUOUS ? (Tensor *)Py_NewRef(out)
                                                      : tensor_new(out->v.ndim, out->v.shape, out->v.dtype, device);
    bool flat = nd == 2 || x->v.layout & LAYOUT_CONTIGUOUS;
    Tensor *dense = flat ? (Tensor *)Py_NewRef(x) : raw_contiguous(x);
    int failed = -1;
    if (!dense || !lines) {
        goto done;
    }
    View vx, vw, vo, vb;
    int64_t dims[4][4];
    matrix_view(&vx, dims[0], &dense->v, rows, k, nd == 2 ? dense->v.stride[0] : k, nd == 2 ? dense->v.stride[1] : 1);
    matrix_view(&vw, dims[1], &w->v, k, n, w->v.stride[w->v.ndim - 1], w->v.ndim == 2 ? w->v.stride[0] : 0);
    matrix_view(&vo, dims[2], &lines->v, rows, n, n, 1);
    if (bias) {
        matrix_view(&vb, dims[3], &bias->v, rows, n, 0, bias->v.ndim && bias->v.shape[0] == n ? bias->v.stride[0] : 0);
    }
    failed = form_product(&vx, &vw, bias ? &vb : NULL, &vo, bias ? &number_one : &number_zero, &number_one, numerics,
                          c->row->name);
    if (failed == 0 && lines != out) {
        failed = raw_copy(&out->v, &lines->v);
    }
done:
    Py_XDECREF(dense);
    Py_XDECREF(lines);
    return failed;
}

/* ---- matmul: which product the dimensions ask for ---- */

/* mm or bmm with a `precision` argument. */
static Tensor *multiply(OpId op, Tensor *a, Tensor *b, const Arg *precision) {
    if (!a || !b) {
        return NULL;
    }
    Arg arg[MAX_ARGS] = {arg_tensor(a), arg_tensor(b)};
    arg[amp_rows[op].precision_index] = *precision;
    return run_op_tensor(op, arg);
}

/* RuntimeError, in the caller's shapes, where the sizes of the operands of matmul, one of them a batch, do not fit. */
static __attribute__((noinline)) void refuse_sizes(const OpCall *c) {
    const Tensor *a = c->arg[0].t, *b = c->arg[1].t;
    const int na = a->v.ndim, nb = b->v.ndim;
    const int64_t inner_a = a->v.shape[na - 1], inner_b = b->v.shape[nb == 1 ? 0 : nb - 2];
    PyObject *x = tensor_describe(a), *y = tensor_describe(b), *size_x = size_from_dims(na > 2 ? na - 2 : 0, a->v.shape),
             *size_y = size_from_dims(nb > 2 ? nb - 2 : 0, b->v.shape);
    if (x && y && size_x && size_y && inner_a == inner_b) {
        PyErr_Format(
            PyExc_RuntimeError,
            "matmul: mat1 and mat2 shapes cannot be multiplied: %U and %U. The batch sizes, %R and %R, do not broadcast (The "
            "size of tensor a must match the size of tensor b, or be 1)",
            x, y, size_x, size_y);
    } else if (x && y && size_x && size_y) {
        PyErr_Format(
            PyExc_RuntimeError,
            "matmul: mat1 and mat2 shapes cannot be multiplied: %U and %U. The inner sizes must be equal: the last of the "
            "first is %lld, the last %sof the second %lld%s",
            x, y, (long long)inner_a, nb == 1 ? "" : "but one ", (long long)inner_b,
            nb > 1 && inner_a == b->v.shape[nb - 1] ? ". Multiply by its transpose, .mT?" : "");
    }
    Py_XDECREF(x);
    Py_XDECREF(y);
    Py_XDECREF(size_x);
    Py_XDECREF(size_y);
}

static Tensor *batched(const OpCall *c, Tensor *a, Tensor *b, const Arg *precision) {
    int na = a->v.ndim, nb = b->v.ndim;
    int64_t batch[AMP_MAX_DIMS], shape_a[AMP_MAX_DIMS], shape_b[AMP_MAX_DIMS], count = 1;
    memcpy(batch, a->v.shape, (size_t)(na - 2) * sizeof *batch);
    int nd = amp_broadcast_shapes(na - 2, a->v.shape, nb - 2, b->v.shape, batch);
    if (nd < 0 || a->v.shape[na - 1] != b->v.shape[nb - 2]) {
        refuse_sizes(c);
        return NULL;
    }
    for (int d = 0; d < nd; d++) {
        count *= batch[d];
    }
    memcpy(shape_a, batch, (size_t)nd * sizeof *batch);
    memcpy(shape_b, batch, (size_t)nd * sizeof *batch);
    memcpy(shape_a + nd, a->v.shape + na - 2, 2 * sizeof *batch);
    memcpy(shape_b + nd, b->v.shape + nb - 2, 2 * sizeof *batch);
    int64_t flat_a[3] = {count, a->v.shape[na - 2], a->v.shape[na - 1]},
            flat_b[3] = {count, b->v.shape[nb - 2], b->v.shape[nb - 1]};
    Tensor *ea = call_expand(a, nd + 2, shape_a), *eb = call_expand(b, nd + 2, shape_b);
    Tensor *fa = ea ? call_reshape(ea, 3, flat_a) : NULL, *fb = eb ? call_reshape(eb, 3, flat_b) : NULL;
    Tensor *product3 = multiply(OP_bmm, fa, fb, precision), *result = NULL;
    if (product3) {
        shape_a[nd + 1] = b->v.shape[nb - 1];
        result = call_reshape(product3, nd + 2, shape_a);
    }
    Py_XDECREF(ea);
    Py_XDECREF(eb);
    Py_XDECREF(fa);
    Py_XDECREF(fb);
    Py_XDECREF(product3);
    return result;
}

/* (..., M, K) @ (K, N): one long matrix. */
static Tensor *folded(const OpCall *c, Tensor *a, Tensor *b, const Arg *precision) {
    int na = a->v.ndim;
    int64_t rows = a->v.numel / (a->v.shape[na - 1] ? a->v.shape[na - 1] : 1), shape[AMP_MAX_DIMS];
    if (a->v.numel == 0) {
        return batched(c, a, b, precision);
    }
    if (a->v.shape[na - 1] != b->v.shape[0]) {
        refuse_sizes(c);
        return NULL;
    }
    int64_t flat[2] = {rows, a->v.shape[na - 1]};
    Tensor *fa = call_reshape(a, 2, flat), *wide = multiply(OP_mm, fa, b, precision), *result = NULL;
    if (wide) {
        memcpy(shape, a->v.shape, (size_t)na * sizeof *shape);
        shape[na - 1] = b->v.shape[1];
        result = call_reshape(wide, na, shape);
    }
    Py_XDECREF(fa);
    Py_XDECREF(wide);
    return result;
}

static Tensor *squeeze_at(Tensor *t, int dim) {
    if (!t) {
        return NULL;
    }
    int64_t shape[AMP_MAX_DIMS];
    int n = 0;
    for (int d = 0; d < t->v.ndim; d++) {
        if (d != dim) {
            shape[n++] = t->v.shape[d];
        }
    }
    Tensor *result = call_reshape(t, n, shape);
    Py_DECREF(t);
    return result;
}

int run_MATMUL(OpCall *c) {
    Tensor *a = c->arg[0].t, *b = c->arg[1].t, *result = NULL;
    int na = a->v.ndim, nb = b->v.ndim;
    if (na == 0 || nb == 0) {
        PyErr_Format(PyExc_RuntimeError, "both arguments to matmul need to be at least 1D, but they are %dD and %dD", na, nb);
        return -1;
    }
    if (a->v.dtype != b->v.dtype) {
        return same_dtypes(c, a, b);
    }
    /* With a vector on the right, or on the left of a batch, the product is one of matrices and a vector: unrounded unless the call
     * itself asks for a precision, and then a product of matrices. */
    const Arg *own = &c->arg[c->row->precision_index], *vector = own->kind == ARG_STR ? own : &unrounded;
    if (na == 1 && nb == 1 && own->kind != ARG_STR) {
        result = call_binary(OP_dot, a, b);
    } else if (na == 2 && nb == 2) {
        result = multiply(OP_mm, a, b, own);
    } else if (na == 2 && nb == 1 && own->kind != ARG_STR) {
        result = call_binary(OP_mv, a, b);
    } else if (na == 1) {
        Tensor *row = call_unsqueeze(a, 0), *right = nb == 1 ? call_unsqueeze(b, 1) : (Tensor *)Py_NewRef(b);
        Tensor *wide = !row || !right ? NULL : nb <= 2 ? multiply(OP_mm, row, right, own) : batched(c, row, right, vector);
        Py_XDECREF(row);
        Py_XDECREF(right);
        result = wide ? squeeze_at(wide, wide->v.ndim - 2) : NULL;
        result = nb == 1 ? squeeze_at(result, 0) : result;
    } else if (nb == 1) {
        Tensor *column = call_unsqueeze(b, 1);
        Tensor *wide = column ? folded(c, a, column, vector) : NULL;
        Py_XDECREF(column);
        result = wide ? squeeze_at(wide, wide->v.ndim - 1) : NULL;
    } else if (nb == 2) {
        result = folded(c, a, b, own);
    } else {
        result = batched(c, a, b, own);
    }
    return result_set(c, result);
}
