/* The element-wise slots: choose a kernel, then walk the views.
 *
 * The walk orders the dimensions by the output's strides, merges what is dense for all views, and cuts the elements into runs along
 * the innermost dimension. A run goes to the kernel directly where formats and steps fit; otherwise in strips of AMP_STRIP elements:
 *
 *     input, any dtype and step  --amp_convert-->  strip | kernel |  strip  --amp_convert-->  output */
#include "elementwise.h"

#include "cast.h"
#include "copy_transposed.h"

/* Below this many bytes per thread a second core costs more than it helps: moving lines between caches takes longer than the work, or
 * than a quarter of it. */
enum { BYTES_PER_THREAD = 64 * 1024, LONG_BYTES_PER_THREAD = 16 * 1024 };

typedef struct Walk {
    const ElementLoop *loop;
    CastFn stream; /* for dense runs of a copy; NULL: any way */
    int nview, nd; /* view 0 is the output */
    int dtype[AMP_MAX_OPERANDS];
    char *data[AMP_MAX_OPERANDS];
    int64_t shape[AMP_MAX_DIMS];
    int64_t step[AMP_MAX_OPERANDS][AMP_MAX_DIMS]; /* bytes */
} Walk;

/* One run of n elements. */
static void run(const Walk *w, char *const *ptr, const int64_t *step, int64_t n) {
    const ElementLoop *loop = w->loop;
    if (!loop->kernel) {
        int64_t to = (int64_t)amp_itemsize(w->dtype[0]), from = (int64_t)amp_itemsize(w->dtype[1]);
        if (w->stream && step[0] == to && step[1] == from && (ptr[0] + n * to <= ptr[1] || ptr[1] + n * from <= ptr[0])) {
            w->stream(ptr[1], ptr[0], n);
            return;
        }
        amp_convert(w->dtype[1], ptr[1], step[1], w->dtype[0], ptr[0], step[0], n);
        return;
    }
    _Alignas(64) char strip[AMP_MAX_OPERANDS][AMP_STRIP * AMP_MAX_ITEM];
    const char *in[AMP_MAX_OPERANDS];
    unsigned scalar = 0, indirect = 0;
    for (int v = 1; v < w->nview; v++) {
        int type = loop->type[v];
        bool fits = w->dtype[v] == type;
        in[v - 1] = ptr[v];
        if (step[v] == 0 && n > 1) scalar |= 1u << (v - 1);
        else if (!fits || (n > 1 && step[v] != (int64_t)amp_itemsize(type))) indirect |= 1u << v;
        if (step[v] == 0 && n > 1 && !fits) {
            amp_convert(w->dtype[v], ptr[v], 0, type, strip[v], 0, 1);
            in[v - 1] = strip[v];
        }
    }
    if (w->dtype[0] != loop->type[0] || (n > 1 && step[0] != (int64_t)amp_itemsize(loop->type[0]))) indirect |= 1u;
    if (scalar == (1u << loop->nin) - 1) { /* all inputs are one value: spread the first */
        scalar &= ~1u;
        indirect |= 2u;
    }
    if (!indirect) {
        loop->kernel(in, ptr[0], n, scalar, loop->params);
        return;
    }
    int64_t out_item = (int64_t)amp_itemsize(loop->type[0]);
    for (int64_t i = 0; i < n; i += AMP_STRIP) {
        int64_t m = n - i < AMP_STRIP ? n - i : AMP_STRIP;
        const char *now[AMP_MAX_OPERANDS];
        for (int v = 1; v < w->nview; v++) {
            now[v - 1] = in[v - 1];
            if (indirect & (1u << v)) {
                amp_convert(w->dtype[v], ptr[v] + i * step[v], step[v], loop->type[v], strip[v],
                            (int64_t)amp_itemsize(loop->type[v]), m);
                now[v - 1] = strip[v];
            } else if (!(scalar & (1u << (v - 1)))) {
                now[v - 1] += i * step[v];
            }
        }
        char *out = indirect & 1u ? strip[0] : ptr[0] + i * step[0];
        loop->kernel(now, out, m, scalar, loop->params);
        if (indirect & 1u) amp_convert(loop->type[0], out, out_item, w->dtype[0], ptr[0] + i * step[0], step[0], m);
    }
}

/* A place past the end of dimension d goes on outside it. */
static void carry(const Walk *w, char **ptr, int64_t *at, int d) {
    for (; d > 0 && at[d] == w->shape[d]; d--) {
        for (int v = 0; v < w->nview; v++) ptr[v] += w->step[v][d - 1] - at[d] * w->step[v][d];
        at[d] = 0;
        at[d - 1]++;
    }
}

/* Whole rows of a copy are moved as bytes. */
static bool moves_rows(const Walk *w) {
    const int inner = w->nd - 1;
    const int64_t item = (int64_t)amp_itemsize(w->dtype[0]);
    return !w->loop->kernel && !w->stream && inner > 0 && w->dtype[0] == w->dtype[1] && w->step[0][inner] == item &&
           w->step[1][inner] == item;
}

/* Elements [begin, end) in the walk's order. */
static void walk_range(void *context, int64_t begin, int64_t end) {
    const Walk *w = context;
    const int last = w->nd - 1;
    const bool rows = moves_rows(w);
    char *ptr[AMP_MAX_OPERANDS];
    int64_t at[AMP_MAX_DIMS], step[AMP_MAX_OPERANDS], rest = begin, inner = w->shape[last];
    for (int v = 0; v < w->nview; v++) ptr[v] = w->data[v], step[v] = w->step[v][last];
    for (int d = last; d >= 0; d--) {
        at[d] = 0;
        if (rest == 0) continue;
        at[d] = rest % w->shape[d];
        rest /= w->shape[d];
        for (int v = 0; v < w->nview; v++) ptr[v] += at[d] * w->step[v][d];
    }
    while (begin < end) {
        int d = last;
        int64_t n = inner - at[last], elements = 1;
        if (n > end - begin) n = end - begin;
        if (rows && n == inner) {
            d = last - 1;
            n = (end - begin) / inner;
            elements = inner;
            if (n > w->shape[d] - at[d]) n = w->shape[d] - at[d];
            for (int64_t i = 0; i < n; i++)
                memmove(ptr[0] + i * w->step[0][d], ptr[1] + i * w->step[1][d], (size_t)(inner * step[0]));
        } else {
            run(w, ptr, step, n);
        }
        begin += n * elements;
        at[d] += n;
        for (int v = 0; v < w->nview; v++) ptr[v] += n * w->step[v][d];
        carry(w, ptr, at, d);
    }
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* True if dimension a of the walk lies outside dimension b: larger output step, then larger input steps. */
static bool outside(const Walk *w, int a, int b) {
    for (int v = 0; v < w->nview; v++) {
        int64_t x = magnitude(w->step[v][a]), y = magnitude(w->step[v][b]);
        if (x != y) return x > y;
    }
    return false;
}

static void swap_dims(Walk *w, int a, int b) {
    int64_t t = w->shape[a];
    w->shape[a] = w->shape[b], w->shape[b] = t;
    for (int v = 0; v < w->nview; v++) {
        t = w->step[v][a];
        w->step[v][a] = w->step[v][b], w->step[v][b] = t;
    }
}

static void merge_dims(Walk *w) {
    int nd = 1;
    for (int d = 1; d < w->nd; d++) {
        bool join = true;
        for (int v = 0; join && v < w->nview; v++) join = w->step[v][nd - 1] == w->step[v][d] * w->shape[d];
        if (join) w->shape[nd - 1] *= w->shape[d];
        else w->shape[nd++] = w->shape[d];
        for (int v = 0; v < w->nview; v++) w->step[v][nd - 1] = w->step[v][d];
    }
    w->nd = nd;
}

enum { SMALL_LOOP = 4096, TRANSPOSED = 512 };

static bool is_flat(const View *v) { return (v->layout & LAYOUT_CONTIGUOUS) != 0; }
static bool is_single(const View *v) {
    for (int d = 0; d < v->ndim; d++)
        if (v->stride[d] != 0 && v->shape[d] != 1) return false;
    return true;
}

/* The common case: everything dense or one value. */
static bool make_flat(Walk *w, const View *const *view) {
    w->nd = 1;
    w->shape[0] = view[0]->numel;
    for (int v = 0; v < w->nview; v++) {
        if (is_flat(view[v])) w->step[v][0] = (int64_t)amp_itemsize(view[v]->dtype);
        else if (v > 0 && is_single(view[v])) w->step[v][0] = 0;
        else return false;
    }
    return true;
}

static void make_strided(Walk *w, const View *const *view) {
    w->nd = 0;
    for (int d = 0; d < view[0]->ndim; d++) {
        if (view[0]->shape[d] == 1) continue;
        w->shape[w->nd] = view[0]->shape[d];
        for (int v = 0; v < w->nview; v++) w->step[v][w->nd] = view[v]->stride[d] * (int64_t)amp_itemsize(view[v]->dtype);
        w->nd++;
        for (int i = w->nd - 1; i > 0 && outside(w, i, i - 1); i--) swap_dims(w, i, i - 1);
    }
    if (w->nd == 0) { /* one element */
        w->nd = 1;
        w->shape[0] = 1;
        for (int v = 0; v < w->nview; v++) w->step[v][0] = 0;
    }
    merge_dims(w);
}

/* A short loop over dense operands of the kernel's own formats: one call, nothing to plan. */
static bool run_small(const ElementLoop *loop, View *out, const View *const *in) {
    if (!is_flat(out) || out->numel > SMALL_LOOP) return false;
    if (!loop->kernel && is_flat(in[0])) { /* a cast or copy */
        const int from = in[0]->dtype, to = out->dtype;
        amp_convert(from, in[0]->data, (int64_t)amp_itemsize(from), to, out->data, (int64_t)amp_itemsize(to), out->numel);
        return true;
    }
    if (!loop->kernel || out->dtype != loop->type[0]) return false;
    const char *data[AMP_MAX_OPERANDS];
    for (int v = 0; v < loop->nin; v++) {
        if (!is_flat(in[v]) || in[v]->dtype != loop->type[v + 1]) return false;
        data[v] = in[v]->data;
    }
    loop->kernel(data, out->data, out->numel, 0, loop->params);
    return true;
}

void amp_element_loop(const ElementLoop *loop, View *out, const View *const *in) {
    Walk w;
    const View *view[AMP_MAX_OPERANDS] = {out};
    if (out->numel == 0 || run_small(loop, out, in)) return;
    w.loop = loop;
    w.nview = loop->nin + 1;
    int64_t item = 0;
    for (int v = 0; v < w.nview; v++) {
        if (v > 0) view[v] = in[v - 1];
        w.data[v] = view[v]->data;
        w.dtype[v] = view[v]->dtype;
        if ((int64_t)amp_itemsize(w.dtype[v]) > item) item = (int64_t)amp_itemsize(w.dtype[v]);
    }
    bool large = !loop->kernel && out->numel > AMP_STREAMED_BYTES / (int64_t)amp_itemsize(out->dtype);
    w.stream = large ? amp_cast_stream(w.dtype[1], w.dtype[0]) : NULL;
    if (!make_flat(&w, view)) make_strided(&w, view);
    const int64_t share = loop->takes_long ? LONG_BYTES_PER_THREAD : BYTES_PER_THREAD;
    if (out->numel * item <= share) walk_range(&w, 0, out->numel);
    else amp_parallel_for(out->numel, share / item, walk_range, &w);
}

/* ---- slots ---- */

Kernel amp_find_kernel(int compute, int id) {
    switch (compute) {
    case AMP_FLOAT32: return amp_kernel_f32(id);
    case AMP_FLOAT64: return amp_kernel_f64(id);
    case AMP_INT64: return amp_kernel_i64(id);
    default: return amp_kernel_c128(id);
    }
}

static void set_params(Params *p, const Call *call) {
    for (int k = 0; k < 3; k++) p->f[k] = 0, p->i[k] = 0;
    for (int k = 0; k < call->nnum && k < 3; k++) {
        const Number *n = &call->num[k];
        p->f[k] = n->f;
        p->i[k] = n->kind == NUMBER_INT || n->kind == NUMBER_BOOL ? n->i : amp_f64_to_i64(n->f);
    }
    p->c = (AmpComplex){p->f[0], call->nnum > 0 && call->num[0].kind == NUMBER_COMPLEX ? call->num[0].imag : 0};
}

/* True if the integer fits the format: converting it there changes nothing. */
static bool fits_integer(int64_t value, int dtype) {
    int64_t back;
    char narrow[AMP_MAX_ITEM];
    amp_convert(AMP_INT64, (const char *)&value, 0, dtype, narrow, 0, 1);
    amp_convert(dtype, narrow, 0, AMP_INT64, (char *)&back, 0, 1);
    return back == value;
}

/* The kernel on the inputs' own integer format, or NULL. One-value inputs of another format count if their value fits. */
static Kernel integer_kernel(int id, int out_is_bool, int nin, const View *const *in, const View *out, const Params *params) {
    const int dtype = in[nin > 1 && is_single(in[0])]->dtype;
    if (amp_compute_dtype(dtype) != AMP_INT64 || (!out_is_bool && out->dtype != dtype)) return NULL;
    Kernel kernel = amp_kernel_integer(id, dtype);
    for (int k = 0; kernel && k < 2; k++)
        if (params->i[k] != 0 && !fits_integer(params->i[k], dtype)) return NULL;
    for (int v = 0; kernel && v < nin; v++) {
        int64_t value;
        if (in[v]->dtype == dtype) continue;
        if (!is_single(in[v]) || amp_compute_dtype(in[v]->dtype) != AMP_INT64 || in[v]->numel == 0) return NULL;
        amp_convert(in[v]->dtype, in[v]->data, 0, AMP_INT64, (char *)&value, 0, 1);
        if (!fits_integer(value, dtype)) return NULL;
    }
    return kernel;
}

/* The kernel on a 16-bit format that all operands have, but for FLOAT32 inputs of one value, which go by the parameters; or NULL. */
static Kernel narrow_kernel(int id, int nin, const View *const *in, const View *out, Params *params) {
    Kernel kernel = out->dtype == AMP_BFLOAT16 ? amp_kernel_bf16(id) : out->dtype == AMP_FLOAT16 ? amp_kernel_f16(id) : NULL;
    for (int v = 0; kernel && v < nin; v++) {
        if (in[v]->dtype == out->dtype) continue;
        if (in[v]->dtype != AMP_FLOAT32 || in[v]->numel == 0 || !is_single(in[v])) return NULL;
        params->wide |= 1u << v;
        memcpy(&params->one[v], in[v]->data, sizeof(float));
    }
    return params->wide == (1u << nin) - 1 ? NULL : kernel;
}

/* Runs kernel `id` on the format in which `dtype` is computed, or on the inputs' own. */
static Status apply(int id, int dtype, int out_is_bool, int nin, const View *const *in, View *out, Params *params) {
    int compute = amp_compute_dtype(dtype);
    params->wide = 0;
    ElementLoop loop = {.nin = nin, .params = params, .takes_long = out->numel > SMALL_LOOP && amp_takes_long(id)};
    if (compute == AMP_INT64 && (loop.kernel = integer_kernel(id, out_is_bool, nin, in, out, params)))
        compute = in[nin > 1 && is_single(in[0])]->dtype;
    else if (compute == AMP_FLOAT32 && !out_is_bool && (loop.kernel = narrow_kernel(id, nin, in, out, params)))
        compute = out->dtype;
    else loop.kernel = amp_find_kernel(compute, id);
    if (!loop.kernel) return AMP_BAD_DTYPE;
    loop.type[0] = out_is_bool ? AMP_BOOL : compute;
    for (int v = 1; v <= nin; v++) loop.type[v] = compute;
    if (nin == 1) amp_look_up(&loop, params, id, in[0], out);
    amp_element_loop(&loop, out, in);
    return AMP_OK;
}

/* A few dense FLOAT32 elements, and an op that means the same whatever its numbers: straight to its kernel. Small tensors live from this;
 * everything else is decided below. */
static bool run_at_once(const Call *call) {
    static const Params none = {.zero_divisor = NULL};
    const View *out = call->out[0];
    const char *data[AMP_MAX_IN];
    unsigned scalar = 0, every = (1U << call->nin) - 1;
    bool plain = out->dtype == AMP_FLOAT32 && is_flat(out) && out->numel <= SMALL_LOOP && out->numel > 0;
    if (call->nnum)
        plain &= (call->op == OP_add || call->op == OP_sub) && call->num[0].f == 1 && call->num[0].kind != NUMBER_COMPLEX;
    for (int v = 0; v < call->nin && plain; v++) {
        const View *in = call->in[v];
        if (!is_flat(in)) scalar |= 1U << v;
        plain = in->dtype == AMP_FLOAT32 && (is_flat(in) || is_single(in));
        data[v] = in->data;
    }
    Kernel kernel = plain && scalar != every ? amp_kernel_f32(call->op) : NULL;
    if (kernel) kernel(data, out->data, out->numel, scalar, &none);
    return kernel != NULL;
}

Status amp_copy(const Call *call) {
    ElementLoop loop = {.nin = 1};
    if (call->out[0]->numel == 1) { /* numbers on their way into a kernel */
        amp_convert(call->in[0]->dtype, call->in[0]->data, 0, call->out[0]->dtype, call->out[0]->data, 0, 1);
        return AMP_OK;
    }
    if (call->out[0]->numel < TRANSPOSED || !amp_copy_transposed(call->out[0], call->in[0]))
        amp_element_loop(&loop, call->out[0], call->in);
    return AMP_OK;
}

Status amp_fill(const Call *call) {
    View *out = call->out[0];
    int64_t zero[AMP_MAX_DIMS];
    _Alignas(16) char value[AMP_MAX_ITEM];
    amp_convert_number(&call->num[0], out->dtype, value);
    if (is_flat(out) && out->numel <= SMALL_LOOP) {
        amp_convert(out->dtype, value, 0, out->dtype, out->data, (int64_t)amp_itemsize(out->dtype), out->numel);
        return AMP_OK;
    }
    for (int d = 0; d < out->ndim; d++) zero[d] = 0;
    View one = {.data = value, .numel = out->numel, .shape = out->shape, .stride = zero, .ndim = out->ndim, .dtype = out->dtype};
    const View *in[1] = {&one};
    ElementLoop loop = {.nin = 1};
    amp_element_loop(&loop, out, in);
    return AMP_OK;
}

static bool is_test(int op) {
    switch (op) {
    case OP_isnan:
    case OP_isinf:
    case OP_isfinite:
    case OP_signbit:
    case OP_logical_not:
    case OP_eq:
    case OP_ne:
    case OP_lt:
    case OP_le:
    case OP_gt:
    case OP_ge:
    case OP_logical_and:
    case OP_logical_or:
    case OP_logical_xor: return true;
    default: return false;
    }
}

/* The largest finite number of a format, for nan_to_num. */
static double largest(int dtype) {
    switch (dtype) {
    case AMP_FLOAT16: return 65504;
    case AMP_BFLOAT16: return 0x1.fep127;
    case AMP_FLOAT8_E5M2: return 57344;
    case AMP_FLOAT8_E4M3FN: return 448;
    case AMP_FLOAT32: return 0x1.fffffep127;
    default: return 0x1.fffffffffffffp1023;
    }
}

static bool given(const Call *call, int k) { return k < call->nnum && call->num[k].kind != NUMBER_NONE; }

static double power_of_ten(int64_t n) {
    double p = 1;
    for (; n > 0 && p < (double)INFINITY; n--) p *= 10;
    return p;
}

/* Which kernel serves a unary call, with its numbers. */
static int choose_unary(const Call *call, int dtype, Params *p) {
    int64_t decimals;
    switch (call->op) {
    case OP_gelu: return given(call, 0) && call->num[0].i == 1 ? KERNEL_gelu_tanh : OP_gelu;
    case OP_logit: return given(call, 0) ? KERNEL_logit_clamped : OP_logit;
    case OP_round:
        decimals = given(call, 0) ? call->num[0].i : 0;
        if (decimals == 0) return OP_round;
        p->f[1] = power_of_ten(decimals < 0 ? amp_mul_clamped(decimals, -1) : decimals);
        return decimals > 0 ? KERNEL_round_up : KERNEL_round_down;
    case OP_clamp:
        if (given(call, 0) && given(call, 1)) return OP_clamp;
        return given(call, 0) ? KERNEL_clamp_low : KERNEL_clamp_high;
    case OP_nan_to_num:
        if (!given(call, 0)) p->f[0] = 0;
        if (!given(call, 1)) p->f[1] = largest(dtype);
        if (!given(call, 2)) p->f[2] = -largest(dtype);
        return OP_nan_to_num;
    case OP_bitwise_not: return dtype == AMP_BOOL ? OP_logical_not : OP_bitwise_not;
    default: return call->op;
    }
}

Status amp_unary(const Call *call) {
    Params params;
    const View *in = call->in[0];
    if (run_at_once(call)) return AMP_OK;
    set_params(&params, call);
    if (call->op == OP_clamp && !given(call, 0) && !given(call, 1)) return amp_copy(call);
    int id = choose_unary(call, in->dtype, &params);
    return apply(id, in->dtype, is_test(id), 1, call->in, call->out[0], &params);
}

/* A power whose exponent is a Python number of simple meaning, with PyTorch's steps: sqrt(-inf) is NaN, x^3 is x * x * x. False: the
 * general kernel has to do it. */
static bool simple_power(const Call *call, Status *status) {
    const View *in = call->in[0];
    int compute = amp_compute_dtype(in->dtype), id;
    if (!given(call, 0) || call->num[0].kind == NUMBER_COMPLEX || compute == AMP_COMPLEX128) return false;
    const double e = call->num[0].f;
    if (compute == AMP_INT64 && e != 0 && e != 1 && e != 2) return false;
    if (in->dtype == AMP_FLOAT16 && (e == 0.5 || e == -0.5)) return false; /* there sqrt(-inf) is inf */
    if (e == 0) {
        const Call ones = {
            .op = OP_fill, .nout = 1, .nnum = 1, .out = {call->out[0]}, .num = {{.f = 1, .i = 1, .kind = NUMBER_INT}}};
        *status = amp_fill(&ones);
        return true;
    }
    if (e == 1) {
        *status = amp_copy(call);
        return true;
    }
    if (e == 2) id = OP_square;
    else if (e == 3) id = KERNEL_cube;
    else if (e == -1) id = OP_reciprocal;
    else if (e == -2) id = KERNEL_reciprocal_square;
    else if (e == 0.5) id = OP_sqrt;
    else if (e == -0.5) id = OP_rsqrt;
    else return false;
    Params params;
    set_params(&params, call);
    *status = apply(id, in->dtype, false, 1, call->in, call->out[0], &params);
    return true;
}

Status amp_binary(const Call *call) {
    Params params;
    int zero_divisor = 0, id = call->op;
    Status power;
    if (run_at_once(call)) return AMP_OK;
    if (id == OP_pow && simple_power(call, &power)) return power;
    const View *in[2] = {call->in[0], call->in[1]};
    set_params(&params, call);
    params.zero_divisor = &zero_divisor;
    bool alpha = given(call, 0) && (call->num[0].f != 1 || call->num[0].kind == NUMBER_COMPLEX);
    switch (call->op) {
    case OP_add: id = alpha ? KERNEL_add_alpha : OP_add; break;
    case OP_rsub: /* in[1] - alpha in[0] */
        in[0] = call->in[1], in[1] = call->in[0];
        id = alpha ? KERNEL_sub_alpha : OP_sub;
        break;
    case OP_sub: id = alpha ? KERNEL_sub_alpha : OP_sub; break;
    case OP_max_other: id = OP_maximum; break;
    case OP_min_other: id = OP_minimum; break;
    case OP_gelu_grad: id = given(call, 0) && call->num[0].i == 1 ? KERNEL_gelu_tanh_grad : OP_gelu_grad; break;
    default: break;
    }
    /* Beside a 16-bit tensor an input may be a FLOAT32 scalar: both compute in FLOAT32. */
    int a = amp_compute_dtype(in[0]->dtype), b = amp_compute_dtype(in[1]->dtype), compute = a > b ? a : b;
    Status status = apply(id, compute, is_test(id), 2, in, call->out[0], &params);
    return status == AMP_OK && zero_divisor ? AMP_ZERO_DIVISION : status;
}

static Status choose(const View *mask, const View *yes, const View *no, View *out) {
    const View *in[3] = {mask, yes, no};
    ElementLoop loop = {
        .kernel = amp_kernel_select(amp_itemsize(out->dtype)), .nin = 3, .type = {out->dtype, AMP_BOOL, out->dtype, out->dtype}};
    amp_element_loop(&loop, out, in);
    return AMP_OK;
}

Status amp_ternary(const Call *call) {
    Params params;
    View *out = call->out[0];
    if (call->op == OP_where) return choose(call->in[0], call->in[1], call->in[2], out);
    if (call->op == OP_masked_fill) return choose(call->in[1], call->in[2], call->in[0], out);
    set_params(&params, call);
    if (!given(call, 0)) params.f[0] = 1, params.i[0] = 1;
    return apply(call->op, out->dtype, false, 3, call->in, out, &params);
}
