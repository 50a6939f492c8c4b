/* Factories and random numbers. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "classes.h"
#include "default_device.h"
#include "node.h"
#include "tensor_methods.h"

static const Arg *option(const OpCall *c, const char *name) {
    for (int i = 0; i < c->row->nparams; i++) {
        if (!strcmp(c->row->param[i].name, name)) {
            return &c->arg[i];
        }
    }
    return NULL;
}

/* What the options dtype=, device=, requires_grad= ask for; `dtype` and `device` hold the defaults on entry. */
static int read_options(const OpCall *c, int *dtype, int *device) {
    const Arg *d = option(c, "dtype"), *where = option(c, "device");
    if (d && d->kind == ARG_DTYPE) {
        *dtype = (int)d->i;
    }
    if (where && where->kind == ARG_DEVICE) {
        *device = (int)where->i;
    }
    return device_require(*device);
}

static int finish(OpCall *c, Tensor *t) {
    const Arg *grad = option(c, "requires_grad");
    if (t && grad && grad->kind == ARG_BOOL && grad->i && tensor_set_requires_grad(t, true) < 0) {
        return -1;
    }
    return t ? 0 : -1;
}

/* New memory or out=. */
static Tensor *make(OpCall *c, const Arg *size, int dtype, int device) {
    if (read_options(c, &dtype, &device) < 0) {
        return NULL;
    }
    if (size->n > AMP_MAX_DIMS) {
        PyErr_Format(PyExc_RuntimeError, "a tensor has at most %d dimensions, not %d", AMP_MAX_DIMS, size->n);
        return NULL;
    }
    const Arg *given = option(c, "dtype");
    if (c->out && given && given->kind != ARG_DTYPE) {
        dtype = c->out->v.dtype;
    }
    return result_new(c, 0, size->n, size->ints, dtype, c->out ? c->out->v.device : device, ALIAS_NEVER);
}

int run_FACTORY(OpCall *c) {
    Tensor *t = make(c, &c->arg[0], amp_state.default_dtype, default_device_or(AMP_CPU));
    if (t && c->row->op != OP_empty && raw_fill(t, number_int(c->row->op == OP_ones)) < 0) {
        return -1;
    }
    return finish(c, t);
}

static void integer_range(int dtype, int64_t *low, int64_t *high) {
    int bits = 8 * (int)amp_itemsize(dtype);
    bool is_signed = dtype != AMP_UINT8 && dtype != AMP_BOOL;
    *high = dtype == AMP_BOOL ? 1 : dtype == AMP_UINT8 ? UINT8_MAX : (int64_t)(UINT64_MAX >> (65 - bits));
    *low = is_signed ? -*high - 1 : 0;
}

/* Integers and fp32 refuse what they cannot hold; 16-bit and fp8 formats round (to inf where they have one), and bool takes all. uint8
 * takes negative integers down to -255 and wraps them, as PyTorch does. */
static bool number_fits(const Number *n, int dtype) {
    if (dtype == AMP_BOOL || amp_is_complex(dtype)) {
        return true;
    }
    if (n->kind == NUMBER_COMPLEX && n->imag != 0) {
        return false;
    }
    if (dtype == AMP_FLOAT32) {
        return !isfinite(n->f) || fabs(n->f) <= (double)FLT_MAX;
    }
    if (amp_is_16bit(dtype)) {
        return !isfinite(n->f) || fabs(n->f) <= (dtype == AMP_FLOAT16 ? 65504.0 : 0x1.fep127);
    }
    if (!amp_is_integral(dtype)) {
        return true;
    }
    int64_t low, high;
    integer_range(dtype, &low, &high);
    if (n->kind == NUMBER_INT || n->kind == NUMBER_BOOL) {
        return n->i >= (dtype == AMP_UINT8 ? -high : low) && n->i <= high;
    }
    return n->f >= (double)low && n->f < (double)high + 1.0; /* false for NaN; bounds are exact */
}

PyObject *number_object(const Number *n) {
    switch (n->kind) {
    case NUMBER_BOOL: return PyBool_FromLong(n->i != 0);
    case NUMBER_INT: return PyLong_FromLongLong(n->i);
    case NUMBER_COMPLEX: return PyComplex_FromDoubles(n->f, n->imag);
    default: return PyFloat_FromDouble(n->f);
    }
}

static int number_refused(const Number *n, int dtype) {
    PyObject *shown = number_object(n);
    PyErr_Format(PyExc_RuntimeError, "value cannot be converted to type %s without overflow: %S", amp_dtype_info[dtype].name,
                 shown ? shown : Py_None);
    Py_XDECREF(shown);
    return -1;
}

int check_number(const Number *n, int dtype) { return number_fits(n, dtype) ? 0 : number_refused(n, dtype); }

/* A bound of clamp beyond what the dtype holds is as good as none on its own side (max above all), and wrong on the other. */
int check_bound(const Number *n, int dtype, bool is_min) {
    int64_t low, high;
    if (!amp_is_integral(dtype) || n->kind == NUMBER_FLOAT) {
        return check_number(n, dtype);
    }
    integer_range(dtype, &low, &high);
    if (is_min ? n->i <= high : n->i >= low) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError, "Clamp %s value %lld is outside the representable range of %s: [%lld, %lld]",
                 is_min ? "min" : "max", (long long)n->i, amp_dtype_info[dtype].name, (long long)low, (long long)high);
    return -1;
}

int fill_number(Tensor *t, const Number *n) { return check_number(n, t->v.dtype) < 0 ? -1 : raw_fill(t, *n); }

/* Draws from [low, high) are values of the dtype. */
static int check_draws(int64_t low, int64_t high, int dtype) {
    int64_t least = INT64_MIN, most = INT64_MAX;
    if (amp_is_integral(dtype)) {
        integer_range(dtype, &least, &most);
    } else if (dtype == AMP_FLOAT16) {
        most = 65504;
        least = -most;
    }
    if (low >= least && low <= most && high - 1 <= most) {
        return 0;
    }
    PyErr_Format(PyExc_RuntimeError, "%s is out of bounds for %s: draws from [%lld, %lld) need [%lld, %lld]",
                 low < least || low > most ? "from" : "to - 1", amp_dtype_info[dtype].name, (long long)low, (long long)high,
                 (long long)least, (long long)most);
    return -1;
}

int check_value(const Tensor *value, int dtype) {
    Number number;
    PyObject *o = value->v.device == AMP_META ? NULL : element_get(value->v.data, value->v.dtype);
    if (value->v.device == AMP_META) {
        return 0;
    }
    int failed = !o || number_from_object(o, &number) < 0 ? -1 : check_number(&number, dtype);
    Py_XDECREF(o);
    return failed;
}

int run_FULL(OpCall *c) {
    Tensor *t = make(c, &c->arg[0], number_default_dtype(&c->arg[1].num), default_device_or(AMP_CPU));
    return t && fill_number(t, &c->arg[1].num) == 0 ? finish(c, t) : -1;
}

static Generator *generator(const OpCall *c) {
    const Arg *g = option(c, "generator");
    return generator_of(g && g->kind == ARG_ANY ? g->o : NULL);
}

static int need_floating(const OpCall *c, int dtype) {
    if (amp_is_floating(dtype)) {
        return 0;
    }
    PyErr_Format(PyExc_NotImplementedError, "\"%s\" not implemented for '%s': it needs a floating dtype", c->row->name,
                 amp_dtype_info[dtype].name);
    return -1;
}

/* Fills t by the random slot. */
static int draw(const OpCall *c, OpId op, Tensor *t, const Tensor *in, int nnum, const Number *num) {
    Generator *g = generator(c);
    if (!g) {
        return -1;
    }
    Call call = {.op = (uint16_t)op,
                 .nin = in ? 1 : 0,
                 .nout = 1,
                 .in = {in ? &in->v : NULL},
                 .out = {&t->v},
                 .nnum = (uint8_t)nnum,
                 .extra = g};
    memcpy(call.num, num, (size_t)nnum * sizeof *num);
    Slot slot = AMP_BACKEND_SLOT(t->v.device, random);
    if (t->v.device == AMP_META) {
        return 0;
    }
    Status status = slot ? slot(&call) : AMP_NO_KERNEL; /* the generator is shared: the GIL stays */
    return status == AMP_OK ? 0 : amp_raise(status, c->row->name);
}

int run_RANDOM_FACTORY(OpCall *c) {
    Tensor *t = make(c, &c->arg[0], amp_state.default_dtype, default_device_or(AMP_CPU));
    if (!t || need_floating(c, t->v.dtype) < 0) {
        return -1;
    }
    bool normal = c->row->op == OP_randn;
    Number num[2] = {number_float(0.0), number_float(1.0)};
    return draw(c, normal ? OP_normal : OP_uniform, t, NULL, 2, num) < 0 ? -1 : finish(c, t);
}

int run_RANDINT(OpCall *c) {
    bool both = c->row->op == OP_randint;
    int64_t low = both ? c->arg[0].i : 0, high = c->arg[both ? 1 : 0].i;
    if (low >= high) {
        PyErr_Format(PyExc_RuntimeError, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
                     (long long)low, (long long)high);
        return -1;
    }
    Tensor *t = make(c, &c->arg[both ? 2 : 1], AMP_INT64, default_device_or(AMP_CPU));
    if (!t || check_draws(low, high, t->v.dtype) < 0) {
        return -1;
    }
    Number num[2] = {number_int(low), number_int(high)};
    return draw(c, OP_randint, t, NULL, 2, num) < 0 ? -1 : finish(c, t);
}

int run_RANDPERM(OpCall *c) {
    int64_t n = c->arg[0].i;
    if (n < 0) {
        PyErr_Format(PyExc_RuntimeError, "n must be non-negative, got %lld", (long long)n);
        return -1;
    }
    Arg size = arg_ints(&n, 1);
    Tensor *t = make(c, &size, AMP_INT64, default_device_or(AMP_CPU));
    return t && draw(c, OP_randperm, t, NULL, 0, &(Number){0}) == 0 ? finish(c, t) : -1;
}

static int arrange(Tensor *t, OpId op, int nnum, const Number *num) {
    if (op != OP_eye && (t->v.dtype == AMP_BOOL || (op == OP_arange && amp_is_complex(t->v.dtype)))) {
        return amp_raise(AMP_NO_KERNEL, amp_rows[op].name); /* no steps in these */
    }
    Call call = {.op = (uint16_t)op, .nout = 1, .out = {&t->v}, .nnum = (uint8_t)nnum};
    memcpy(call.num, num, (size_t)nnum * sizeof *num);
    return run_slot(t->v.device, AMP_BACKEND_SLOT(t->v.device, arrange), &call, t->v.numel * 8, amp_rows[op].name);
}

int run_ARANGE(OpCall *c) {
    bool single = c->row->op == OP_arange_end;
    Number start = single ? number_int(0) : c->arg[0].num, end = c->arg[single ? 0 : 1].num,
           step = single ? number_int(1) : c->arg[2].num;
    bool whole = start.kind <= NUMBER_INT && end.kind <= NUMBER_INT && step.kind <= NUMBER_INT;
    if (!(step.f > 0.0 || step.f < 0.0)) {
        PyErr_SetString(PyExc_RuntimeError, "step must be nonzero");
        return -1;
    }
    if (!isfinite(start.f) || !isfinite(end.f)) {
        PyErr_SetString(PyExc_RuntimeError, "unsupported range: start and end must be finite");
        return -1;
    }
    if ((end.f - start.f) / step.f < 0) {
        PyErr_SetString(PyExc_RuntimeError, "upper bound and lower bound inconsistent with step sign");
        return -1;
    }
    double count = ceil((end.f - start.f) / step.f);
    if (whole) {
        int64_t span, sign = step.i > 0 ? 1 : -1;
        if (__builtin_sub_overflow(end.i, start.i, &span)) {
            PyErr_SetString(PyExc_RuntimeError, "invalid size, possible overflow?");
            return -1;
        }
        count = (double)(span / step.i + (span % step.i != 0 && (span > 0) == (sign > 0)));
    }
    if (count > 9e18) {
        PyErr_SetString(PyExc_RuntimeError, "invalid size, possible overflow?");
        return -1;
    }
    int64_t n = (int64_t)count;
    Arg size = arg_ints(&n, 1);
    Tensor *t = make(c, &size, whole ? AMP_INT64 : amp_state.default_dtype, default_device_or(AMP_CPU));
    Number num[3] = {start, end, step};
    return t && arrange(t, OP_arange, 3, num) == 0 ? finish(c, t) : -1;
}

int run_LINSPACE(OpCall *c) {
    int64_t n = c->arg[2].i;
    if (n < 0) {
        PyErr_Format(PyExc_RuntimeError, "number of steps must be non-negative, got %lld", (long long)n);
        return -1;
    }
    Arg size = arg_ints(&n, 1);
    Tensor *t = make(c, &size, amp_state.default_dtype, default_device_or(AMP_CPU));
    Number num[2] = {c->arg[0].num, c->arg[1].num};
    return t && check_number(&num[0], t->v.dtype) == 0 && check_number(&num[1], t->v.dtype) == 0 &&
                   arrange(t, OP_linspace, 2, num) == 0
               ? finish(c, t)
               : -1;
}

int run_EYE(OpCall *c) {
    int64_t shape[2] = {c->arg[0].i, c->arg[1].kind == ARG_INT ? c->arg[1].i : c->arg[0].i};
    Arg size = arg_ints(shape, 2);
    Tensor *t = make(c, &size, amp_state.default_dtype, default_device_or(AMP_CPU));
    return t && raw_fill(t, number_int(0)) == 0 && arrange(t, OP_eye, 0, &(Number){0}) == 0 ? finish(c, t) : -1;
}

int run_LIKE(OpCall *c) {
    Tensor *in = c->arg[0].t;
    int dtype = in->v.dtype, device = in->v.device, failed = 0;
    if (read_options(c, &dtype, &device) < 0) {
        return -1;
    }
    Tensor *t = result_new(c, 0, in->v.ndim, in->v.shape, dtype, device, ALIAS_NEVER);
    if (!t) {
        return -1;
    }
    result_keep_layout(c, t, in);
    Number unit[2] = {number_float(0.0), number_float(1.0)};
    switch (c->row->op) {
    case OP_zeros_like:
    case OP_ones_like: failed = raw_fill(t, number_int(c->row->op == OP_ones_like)); break;
    case OP_full_like: failed = fill_number(t, &c->arg[1].num); break;
    case OP_rand_like:
    case OP_randn_like:
        failed = need_floating(c, dtype) < 0 ? -1
                                             : draw(c, c->row->op == OP_randn_like ? OP_normal : OP_uniform, t, NULL, 2, unit);
        break;
    default: break;
    }
    return failed < 0 ? -1 : finish(c, t);
}

int run_NEW(OpCall *c) {
    Tensor *t = make(c, &c->arg[1], c->arg[0].t->v.dtype, c->arg[0].t->v.device);
    if (!t) {
        return -1;
    }
    Number value = c->row->op == OP_new_full ? c->arg[2].num : number_int(c->row->op == OP_new_ones);
    if (c->row->op != OP_new_empty && fill_number(t, &value) < 0) {
        return -1;
    }
    return finish(c, t);
}

static int check_probability(double p) {
    if (p >= 0 && p <= 1) {
        return 0;
    }
    PyObject *shown = PyFloat_FromDouble(p);
    PyErr_Format(PyExc_RuntimeError, "bernoulli_ expects p to be in [0, 1], but got p=%S", shown ? shown : Py_None);
    Py_XDECREF(shown);
    return -1;
}

/* uniform_, normal_, bernoulli_, exponential_: the target is filled in the order of its elements. */
int run_RANDOM_FILL(OpCall *c) {
    Tensor *t = c->out;
    int n = c->row->op == OP_uniform || c->row->op == OP_normal ? 2 : 1;
    Number num[2] = {c->arg[1].num, n == 2 ? c->arg[2].num : (Number){0}};
    if (c->row->op != OP_bernoulli_fill && need_floating(c, t->v.dtype) < 0) {
        return -1;
    }
    if (amp_has_internal_overlap(&t->v)) {
        return amp_raise(AMP_OVERLAP, c->row->name);
    }
    if (c->row->op == OP_uniform && num[0].f > num[1].f) {
        PyErr_SetString(PyExc_RuntimeError, "uniform_ expects to return a [from, to) range, but found from > to");
        return -1;
    }
    if (c->row->op == OP_uniform &&
        !(isfinite(num[0].f) && isfinite(num[1].f) && number_fits(&num[0], t->v.dtype) && number_fits(&num[1], t->v.dtype))) {
        PyErr_Format(PyExc_RuntimeError, "%s is out of bounds for %s: its values end sooner",
                     isfinite(num[0].f) && number_fits(&num[0], t->v.dtype) ? "to" : "from", amp_dtype_info[t->v.dtype].name);
        return -1;
    }
    if (c->row->op == OP_normal && !(num[1].f >= 0)) {
        PyErr_SetString(PyExc_RuntimeError, "normal expects std >= 0.0");
        return -1;
    }
    if (c->row->op == OP_bernoulli_fill && check_probability(num[0].f) < 0) {
        return -1;
    }
    if (c->row->op == OP_exponential && !(num[0].f > 0)) {
        PyErr_SetString(PyExc_RuntimeError, "exponential_ expects lambda > 0.0");
        return -1;
    }
    return draw(c, (OpId)c->row->op, t, NULL, n, num) < 0 ? -1 : result_set(c, (Tensor *)Py_NewRef(t));
}

/* bernoulli(input, p): a new tensor of the input's shape and dtype. */
int run_BERNOULLI_P(OpCall *c) {
    Tensor *in = c->arg[0].t;
    Number p = number_float(c->arg[1].f);
    Tensor *out = check_probability(p.f) < 0 ? NULL
                                             : result_new(c, 0, in->v.ndim, in->v.shape, in->v.dtype, in->v.device, ALIAS_NEVER);
    return out ? draw(c, OP_bernoulli_fill, out, NULL, 1, &p) : -1;
}

/* Draws that depend on the elements of `in`, one for one. */
static int draw_each(const OpCall *c, OpId op, Tensor *t, const Tensor *in) {
    int failed = draw(c, op, t, in, 0, &(Number){0});
    if (failed && PyErr_ExceptionMatches(PyExc_RuntimeError) && !PyErr_ExceptionMatches(PyExc_NotImplementedError) &&
        !PyErr_ExceptionMatches(amp_state.out_of_memory)) {
        PyErr_SetString(PyExc_RuntimeError,
                        op == OP_poisson ? "invalid Poisson rate, expected rate to be non-negative and finite"
                                         : "Expected p_in >= 0 && p_in <= 1 to be true: a probability lies outside [0, 1]");
    }
    return failed;
}

int run_BERNOULLI(OpCall *c) {
    Tensor *in = c->arg[0].t;
    if (need_floating(c, in->v.dtype) < 0) {
        return -1;
    }
    Tensor *out = result_new(c, 0, in->v.ndim, in->v.shape, in->v.dtype, in->v.device, ALIAS_NEVER);
    return out ? draw_each(c, (OpId)c->row->op, out, in) : -1;
}

/* bernoulli_(p): a probability for every element of the target, to whose shape p expands. */
int run_BERNOULLI_EACH(OpCall *c) {
    Tensor *t = c->out, *p = c->arg[1].t;
    if (p->flags & TENSOR_WRAPPED) { /* a number is the other overload's */
        Arg arg[MAX_ARGS] = {c->arg[0], {.kind = ARG_FLOAT}, c->arg[2]};
        Tensor *wide = raw_cast(p, AMP_FLOAT64);
        if (!wide) {
            return -1;
        }
        memcpy(&arg[1].f, wide->v.data, sizeof arg[1].f);
        Py_DECREF(wide);
        arg[1].num = number_float(arg[1].f);
        return result_set(c, (Tensor *)run_op(&amp_rows[OP_bernoulli_fill], arg, true));
    }
    if (same_device(c) < 0) {
        return -1;
    }
    if (!amp_is_floating(p->v.dtype)) {
        PyErr_Format(PyExc_NotImplementedError, "\"bernoulli\" not implemented for '%s': probabilities have a floating dtype",
                     amp_dtype_info[p->v.dtype].name);
        return -1;
    }
    if (amp_has_internal_overlap(&t->v)) {
        return amp_raise(AMP_OVERLAP, c->row->name);
    }
    Tensor *own = p->st == t->st ? call_clone(p) : (Tensor *)Py_NewRef(p); /* the target is written while p is read */
    Tensor *each = own ? call_expand(own, t->v.ndim, t->v.shape) : NULL;
    int failed = each ? draw_each(c, OP_bernoulli, t, each) : -1;
    Py_XDECREF(each);
    Py_XDECREF(own);
    return failed < 0 ? -1 : result_set(c, (Tensor *)Py_NewRef(t));
}

/* input * mask / (1 - p), the mask drawn as bernoulli of keep. */
int run_DROPOUT(OpCall *c) {
    Tensor *in = c->arg[0].t;
    double p = c->arg[1].f;
    if (!(p >= 0 && p <= 1)) {
        PyObject *shown = PyFloat_FromDouble(p);
        PyErr_Format(PyExc_ValueError, "dropout probability has to be between 0 and 1, but got %R", shown);
        Py_XDECREF(shown);
        return -1;
    }
    if (!c->arg[2].i || p == 0.0 || in->v.numel == 0) {
        return result_set(c, (Tensor *)Py_NewRef(in));
    }
    if (need_floating(c, in->v.dtype) < 0) {
        return -1;
    }
    Tensor *mask = tensor_new(in->v.ndim, in->v.shape, in->v.dtype, in->v.device), *result = NULL;
    if (mask) {
        Number num = number_float(p);
        tensor_keep_layout(mask, in); /* draws follow the order in memory */
        int failed = p == 1.0 ? raw_fill(mask, number_int(0)) : draw(c, OP_dropout, mask, NULL, 1, &num);
        Tensor *scaled = failed < 0 ? NULL : p == 1.0 ? (Tensor *)Py_NewRef(mask) : call_scalar(OP_div, mask, 1.0 - p);
        result = scaled ? call_binary(OP_mul, in, scaled) : NULL;
        Py_XDECREF(scaled);
        Py_DECREF(mask);
    }
    return result_set(c, result);
}
