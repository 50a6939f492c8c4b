/* Padding and interpolation: index and weight tables for each spatial dimension; one kernel call each. */
#include <math.h>
#include <string.h>

#include "classes_pooling.h"

/* ---- tables ---- */

typedef struct Map {
    int nd;
    int64_t in[AMP_MAX_SPATIAL], out[AMP_MAX_SPATIAL]; /* the op's own dimensions only */
    ResamplePlan plan;
    void *room[AMP_MAX_SPATIAL];
} Map;

static void map_free(Map *m) {
    for (int d = 0; d < m->nd; d++) {
        PyMem_Free(m->room[d]);
        m->room[d] = NULL;
    }
}

static ResampleDim *map_dim(Map *m, int k) { return &m->plan.dim[3 - m->nd + k]; }
static int64_t *index_of(Map *m, int k) { return (int64_t *)map_dim(m, k)->index; }
static double *weight_of(Map *m, int k) { return (double *)map_dim(m, k)->weight; }

/* Tables of dimension k. 0 or -1. */
static int map_table(Map *m, int k, int64_t taps, bool weighted) {
    int64_t part[2] = {m->out[k], taps}, n = amp_numel(2, part);
    m->room[k] = n < 0 || n > INT64_MAX / 32 ? NULL : PyMem_Malloc((size_t)n * (weighted ? 16 : 8) + 8);
    if (!m->room[k]) {
        PyErr_NoMemory();
        return -1;
    }
    *map_dim(m, k) = (ResampleDim){.in = m->in[k],
                                   .out = m->out[k],
                                   .taps = taps,
                                   .index = m->room[k],
                                   .weight = weighted ? (double *)((int64_t *)m->room[k] + n) : NULL};
    return 0;
}

static void map_begin(Map *m) {
    static const int64_t zero = 0;
    for (int d = 0; d < 3; d++) {
        m->plan.dim[d] = (ResampleDim){.in = 1, .out = 1, .taps = 1, .index = &zero};
    }
}

/* Runs the map, or its transpose, on input 0 and frees the tables. */
static int map_run(OpCall *c, Map *m, bool transposed) {
    const Tensor *in = c->arg[0].t;
    Tensor *out = result_planes(c, 0, in, m->nd, transposed ? m->in : m->out, in->v.dtype);
    int failed = -1;
    if (out) {
        PlaneView x, y;
        Call call;
        amp_call_init(&call, c->row->op);
        plane_view(&x, in, m->nd);
        plane_view(&y, out, m->nd);
        m->plan.transposed = transposed;
        call.nin = call.nout = 1;
        call.in[0] = &x.v;
        call.out[0] = &y.v;
        call.extra = &m->plan;
        int64_t work = in->v.numel > out->v.numel ? in->v.numel : out->v.numel;
        failed = run_slot(in->v.device, AMP_BACKEND_SLOT(in->v.device, resample), &call, work * 8, c->row->name);
    }
    map_free(m);
    return failed;
}

/* Whether a forward op that a private row was given is one of the class. */
static bool is_row_of(int64_t op, ClassFn run) { return op >= 0 && op < OP_COUNT && amp_rows[op].run == run; }

/* ---- padding ---- */

typedef enum PadKind { PAD_REFLECT, PAD_REPLICATE, PAD_CIRCULAR } PadKind;

static PadKind pad_kind(int64_t op) {
    switch (op) {
    case OP_reflection_pad1d:
    case OP_reflection_pad2d:
    case OP_reflection_pad3d: return PAD_REFLECT;
    case OP_replication_pad1d:
    case OP_replication_pad2d:
    case OP_replication_pad3d: return PAD_REPLICATE;
    default: return PAD_CIRCULAR;
    }
}

/* Position of the input that stands at `at`, counted from the input's first element:
 *
 *     at         -2 -1 | 0 1 2 3 | 4 5
 *     reflect     2  1 | 0 1 2 3 | 2 1
 *     replicate   0  0 | 0 1 2 3 | 3 3
 *     circular    2  3 | 0 1 2 3 | 0 1     */
static int64_t pad_source(PadKind kind, int64_t at, int64_t n, const int64_t *pad) {
    int64_t first = pad[0] < 0 ? -pad[0] : 0, left; /* circular: what negative padding cuts off is not wrapped around */
    switch (kind) {
    case PAD_REFLECT: at = at < 0 ? -at : at; return at < n ? at : 2 * (n - 1) - at;
    case PAD_REPLICATE: return at < 0 ? 0 : at < n ? at : n - 1;
    default:
        left = n - first + (pad[1] < 0 ? pad[1] : 0);
        at -= first;
        return first + (at < 0 ? at + left : at < left ? at : at - left);
    }
}

/* pad: a pair for each spatial dimension, the last dimension first. */
static int check_pad(const OpCall *c, PadKind kind, const Map *m, int d, const int64_t *pad) {
    int64_t n = m->in[d], left = pad[0], right = pad[1];
    bool cut = left < -n || right < -n;
    if (n > LARGEST || left > INT32_MAX || right > INT32_MAX || left < -LARGEST || right < -LARGEST || n + left + right < 1 ||
        (cut && kind != PAD_REPLICATE)) {
        PyErr_Format(
            PyExc_RuntimeError,
            "%s: input size %lld is too small for padding (%lld, %lld), or the padding is above 2^31: no element is left",
            c->row->name, (long long)n, (long long)left, (long long)right);
        return -1;
    }
    if (kind == PAD_REFLECT && (left >= n || right >= n)) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: Padding size should be less than the corresponding input dimension, but got: padding (%lld, %lld) at "
                     "dimension %d of size %lld",
                     c->row->name, (long long)left, (long long)right, c->arg[0].t->v.ndim - m->nd + d, (long long)n);
        return -1;
    }
    int64_t kept = n + (left < 0 ? left : 0) + (right < 0 ? right : 0);
    if (kind == PAD_CIRCULAR && (left > kept || right > kept)) {
        PyErr_Format(PyExc_RuntimeError, "%s: Padding value causes wrapping around more than once: (%lld, %lld) for size %lld",
                     c->row->name, (long long)left, (long long)right, (long long)n);
        return -1;
    }
    return 0;
}

static int pad_map(const OpCall *c, Map *m, PadKind kind, const Arg *pad) {
    map_begin(m);
    for (int d = 0; d < m->nd; d++) {
        const int64_t *pair = pad->ints + 2 * (m->nd - 1 - d);
        if (check_pad(c, kind, m, d, pair) < 0) {
            goto fail;
        }
        m->out[d] = m->in[d] + pair[0] + pair[1];
        if (map_table(m, d, 1, false) < 0) {
            goto fail;
        }
        for (int64_t o = 0; o < m->out[d]; o++) {
            index_of(m, d)[o] = pad_source(kind, o - pair[0], m->in[d], pair);
        }
    }
    return 0;
fail:
    map_free(m);
    return -1;
}

/* Spatial dimensions by the number of pairs; input (C, ...) or (N, C, ...) of which only the batch may be empty. */
static int pad_dims(const OpCall *c, Map *m, const Arg *pad) {
    const View *v = &c->arg[0].t->v;
    const char *digit_at = strpbrk(c->row->name, "123");
    m->nd = digit_at ? *digit_at - '0' : pad->n / 2;
    if (pad->n != 2 * m->nd || m->nd < 1 || m->nd > AMP_MAX_SPATIAL) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: padding must be a tuple of two ints for each of the padded dimensions, got %d entries", c->row->name,
                     (int)pad->n);
        return -1;
    }
    bool ok = v->ndim == m->nd + 1 || v->ndim == m->nd + 2;
    for (int d = v->ndim == m->nd + 2; ok && d < v->ndim; d++) {
        ok = v->shape[d] > 0;
    }
    if (!ok) {
        PyObject *text = sizes_text(v->ndim, v->shape);
        if (text) {
            PyErr_Format(
                PyExc_RuntimeError,
                "%s: Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
                "input, but got: %U",
                c->row->name, m->nd + 1, m->nd + 2, text);
        }
        Py_XDECREF(text);
        return -1;
    }
    return 0;
}

int run_PAD(OpCall *c) {
    Map m = {.nd = 0};
    const View *v = &c->arg[0].t->v;
    if (pad_dims(c, &m, &c->arg[1]) < 0) {
        return -1;
    }
    memcpy(m.in, v->shape + v->ndim - m.nd, (size_t)m.nd * sizeof *m.in);
    return pad_map(c, &m, pad_kind(c->row->op), &c->arg[1]) < 0 ? -1 : map_run(c, &m, false);
}

/* The spatial sizes in parameter `index` are those of the input whose gradient is formed. */
static int gradient_sizes(const OpCall *c, Map *m, int index) {
    const Arg *size = &c->arg[index];
    const View *v = &c->arg[0].t->v;
    m->nd = size->n;
    bool ok = size->n >= 1 && size->n <= AMP_MAX_SPATIAL && (v->ndim == size->n + 1 || v->ndim == size->n + 2);
    for (int d = 0; ok && d < m->nd; d++) {
        m->in[d] = size->ints[d];
        ok = m->in[d] > 0 && m->in[d] <= LARGEST;
    }
    if (!ok) {
        PyErr_Format(PyExc_RuntimeError, "%s: the sizes do not fit the gradient", c->row->name);
        return -1;
    }
    return refuse_dtype(c, c->arg[0].t, false);
}

static int check_gradient(const OpCall *c, Map *m) {
    const View *v = &c->arg[0].t->v;
    if (memcmp(v->shape + v->ndim - m->nd, m->out, (size_t)m->nd * sizeof *m->out)) {
        PyErr_Format(PyExc_RuntimeError, "%s: the gradient has other sizes than the output of an input of these sizes",
                     c->row->name);
        map_free(m);
        return -1;
    }
    return 0;
}

int run_PAD_GRAD(OpCall *c) {
    Map m = {.nd = 0};
    if (gradient_sizes(c, &m, 2) < 0) {
        return -1;
    }
    if (c->arg[3].n != 2 * m.nd || !is_row_of(c->arg[1].i, run_PAD)) {
        PyErr_Format(PyExc_RuntimeError, "%s: the padding does not fit the sizes, or the op is no padding", c->row->name);
        return -1;
    }
    if (pad_map(c, &m, pad_kind(c->arg[1].i), &c->arg[3]) < 0 || check_gradient(c, &m) < 0) {
        return -1;
    }
    return map_run(c, &m, true);
}

/* A frame of one value; negative entries cut off. Any number of dimensions, the last pair first. */
int run_CONSTANT_PAD(OpCall *c) {
    Tensor *in = c->arg[0].t;
    const Arg *pad = &c->arg[1];
    int64_t shape[AMP_MAX_DIMS], part[AMP_MAX_DIMS], from_at = 0, to_at = 0;
    int nd = in->v.ndim;
    if (pad->n % 2 || pad->n / 2 > nd) {
        PyErr_Format(PyExc_RuntimeError,
                     pad->n % 2
                         ? "%s: Padding length must be divisible by 2: a pair per dimension, the last one first"
                         : "%s: Padding length should be less than or equal to two times the input dimension but got padding "
                           "length %d and input of dimension %d",
                     c->row->name, (int)pad->n, nd);
        return -1;
    }
    memcpy(shape, in->v.shape, (size_t)nd * sizeof *shape);
    memcpy(part, shape, (size_t)nd * sizeof *part);
    int64_t before[AMP_MAX_DIMS] = {0};
    for (int k = 0; k < pad->n / 2; k++) {
        int d = nd - 1 - k;
        int64_t left = pad->ints[2 * k], right = pad->ints[2 * k + 1];
        bool fits = left >= -LARGEST && left <= LARGEST && right >= -LARGEST && right <= LARGEST && shape[d] <= LARGEST;
        int64_t cut = fits ? (left < 0 ? left : 0) + (right < 0 ? right : 0) : 0;
        if (!fits || part[d] + cut < 0) {
            PyErr_Format(PyExc_RuntimeError,
                         "%s: narrow(): length must be non-negative: padding (%lld, %lld) leaves no valid size of dimension %d",
                         c->row->name, (long long)left, (long long)right, d);
            return -1;
        }
        before[d] = left;
        shape[d] += left + right;
        part[d] += cut;
    }
    Tensor *out = result_new(c, 0, nd, shape, in->v.dtype, in->v.device, ALIAS_NEVER);
    if (!out || fill_number(out, &c->arg[2].num) < 0) {
        return -1;
    }
    for (int d = 0; d < nd; d++) {
        to_at += before[d] > 0 ? before[d] * out->v.stride[d] : 0;
        from_at += before[d] < 0 ? -before[d] * in->v.stride[d] : 0;
    }
    if (amp_numel(nd, part) == 0) {
        return 0;
    }
    int64_t item = (int64_t)amp_itemsize(in->v.dtype);
    View from = in->v, to = out->v;
    from.shape = to.shape = part;
    from.numel = to.numel = amp_numel(nd, part);
    from.data += from_at * item;
    to.data += to_at * item;
    from.layout = to.layout = 0;
    return raw_copy(&to, &from);
}

/* ---- interpolation ---- */

typedef struct Upsampling {
    enum { UP_NEAREST, UP_NEAREST_EXACT, UP_LINEAR, UP_CUBIC, UP_LANCZOS } kind;
    bool antialias, aligned;
    int nd;
    double scale[AMP_MAX_SPATIAL]; /* as given by the caller; 0: from the sizes */
} Upsampling;

static Upsampling upsampling_of(int64_t op) {
    Upsampling u = {.nd = 2};
    switch (op) {
    case OP_upsample_nearest1d:
    case OP_upsample_nearest2d:
    case OP_upsample_nearest3d:
        u.kind = UP_NEAREST;
        u.nd = op == OP_upsample_nearest1d ? 1 : op == OP_upsample_nearest2d ? 2 : 3;
        break;
    case OP_upsample_nearest_exact1d:
    case OP_upsample_nearest_exact2d:
    case OP_upsample_nearest_exact3d:
        u.kind = UP_NEAREST_EXACT;
        u.nd = op == OP_upsample_nearest_exact1d ? 1 : op == OP_upsample_nearest_exact2d ? 2 : 3;
        break;
    case OP_upsample_bicubic2d:
    case OP_upsample_bicubic2d_aa: u.kind = UP_CUBIC; break;
    case OP_upsample_lanczos2d_aa: u.kind = UP_LANCZOS; break;
    default: u.kind = UP_LINEAR; u.nd = op == OP_upsample_linear1d ? 1 : op == OP_upsample_trilinear3d ? 3 : 2;
    }
    u.antialias = op == OP_upsample_bilinear2d_aa || op == OP_upsample_bicubic2d_aa || op == OP_upsample_lanczos2d_aa;
    return u;
}

static void set_scales(Upsampling *u, const Arg *arg) {
    for (int d = 0; d < u->nd; d++) {
        u->scale[d] = arg[d].kind == ARG_FLOAT && arg[d].f > 0 ? arg[d].f : 0;
    }
}

/* Input positions per output position. */
static double step_of(const Upsampling *u, int64_t in, int64_t out, double scale) {
    if (u->aligned) {
        return out > 1 ? (double)(in - 1) / (double)(out - 1) : 0;
    }
    return scale > 0 ? 1.0 / scale : (double)in / (double)out;
}

static int64_t clip(int64_t at, int64_t n) { return at < 0 ? 0 : at < n ? at : n - 1; }
static int64_t clip_double(double at, int64_t n) { return at > 0 ? at < (double)n ? clip((int64_t)at, n) : n - 1 : 0; }

/* In float32 whatever the input's dtype: the position decides which element is taken, so its rounding is part of the op. */
static int nearest_table(Map *m, int k, const Upsampling *u) {
    float step = u->scale[k] > 0 ? (float)(1.0 / u->scale[k]) : (float)m->in[k] / (float)m->out[k];
    float shift = u->kind == UP_NEAREST_EXACT ? 0.5f : 0.0f;
    if (map_table(m, k, 1, false) < 0) {
        return -1;
    }
    for (int64_t o = 0; o < m->out[k]; o++) {
        bool same = u->kind == UP_NEAREST && m->out[k] == m->in[k];
        index_of(m, k)[o] = same ? o : clip_double((double)floorf(((float)o + shift) * step), m->in[k]);
    }
    return 0;
}

/* Kernel of cubic convolution at distance t in [0, 2]; a is the slope at 1. */
static double cubic(double t, double a) {
    return t <= 1 ? ((a + 2) * t - (a + 3)) * t * t + 1 : t < 2 ? (((t - 5) * t + 8) * t - 4) * a : 0;
}

static int point_table(Map *m, int k, const Upsampling *u) {
    int taps = u->kind == UP_CUBIC ? 4 : 2;
    double step = step_of(u, m->in[k], m->out[k], u->scale[k]);
    if (map_table(m, k, taps, true) < 0) {
        return -1;
    }
    for (int64_t o = 0; o < m->out[k]; o++) {
        int64_t *index = index_of(m, k) + o * taps;
        double *weight = weight_of(m, k) + o * taps;
        double at = u->aligned ? step * (double)o : step * ((double)o + 0.5) - 0.5;
        at = at < 0 && u->kind == UP_LINEAR ? 0 : at;
        at = at < 0x1p62 ? at : 0x1p62;
        double whole = floor(at), t = at - whole;
        if (u->kind == UP_LINEAR) {
            index[0] = clip_double(whole, m->in[k]);
            index[1] = clip(index[0] + 1, m->in[k]);
            t = whole < (double)m->in[k] ? t : 0;
            weight[0] = 1 - t;
            weight[1] = t;
        } else {
            for (int j = 0; j < 4; j++) {
                index[j] = clip_double(whole + (double)(j - 1), m->in[k]);
                weight[j] = cubic(fabs(t - (double)(j - 1)), -0.75);
            }
        }
    }
    return 0;
}

static double sinc(double t) {
    double x = t * 3.14159265358979323846;
    return t == 0 ? 1 : sin(x) / x;
}

/* The filters at distance t >= 0; each ends at its reach. */
static double filter_reach(const Upsampling *u) { return u->kind == UP_LINEAR ? 1 : u->kind == UP_CUBIC ? 2 : 3; }
static double filter_at(const Upsampling *u, double t) {
    switch (u->kind) {
    case UP_CUBIC: return cubic(t, -0.5);
    case UP_LANCZOS: return t < 3 ? sinc(t) * sinc(t / 3) : 0;
    default: return t < 1 ? 1 - t : 0;
    }
}

/* Shrinking, the filter is stretched over all input elements that an output element stands for. */
static int filter_table(Map *m, int k, const Upsampling *u) {
    double step = step_of(u, m->in[k], m->out[k], u->scale[k]), stretch = step > 1 ? step : 1;
    double reach = filter_reach(u) * stretch;
    if (!(reach < 0x1p30)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "interpolate: the scale factor is too small: one output element stands for 2^30 inputs");
        return -1;
    }
    int64_t taps = (int64_t)ceil(reach) * 2 + 1;
    taps = taps < m->in[k] ? taps : m->in[k];
    if (map_table(m, k, taps, true) < 0) {
        return -1;
    }
    for (int64_t o = 0; o < m->out[k]; o++) {
        int64_t *index = index_of(m, k) + o * taps;
        double *weight = weight_of(m, k) + o * taps, centre = step * ((double)o + 0.5), sum = 0;
        int64_t first = clip_double(centre - reach + 0.5, m->in[k]), end = clip_double(centre + reach + 0.5, m->in[k] + 1);
        for (int64_t j = 0; j < taps; j++) {
            bool inside = first + j < end;
            double t = fabs((double)(first + j) - centre + 0.5) / stretch;
            index[j] = inside ? first + j : first;
            weight[j] = inside ? filter_at(u, t) : 0;
            sum += weight[j];
        }
        for (int64_t j = 0; j < taps && sum != 0; j++) {
            weight[j] /= sum;
        }
    }
    return 0;
}

static int upsampling_map(Map *m, const Upsampling *u) {
    map_begin(m);
    for (int k = 0; k < m->nd; k++) {
        int failed = u->antialias ? filter_table(m, k, u) : u->kind >= UP_LINEAR ? point_table(m, k, u) : nearest_table(m, k, u);
        if (failed < 0) {
            map_free(m);
            return -1;
        }
    }
    return 0;
}

static int upsampling_sizes(const OpCall *c, Map *m) {
    const View *v = &c->arg[0].t->v;
    const Arg *size = &c->arg[1];
    bool ok = v->ndim == m->nd + 2;
    if (!ok || v->shape[1] < 1) {
        PyObject *text = sizes_text(v->ndim, v->shape);
        if (text) {
            PyErr_Format(PyExc_RuntimeError, "%s: Non-empty %dD data tensor expected but got a tensor with sizes %U",
                         c->row->name, m->nd + 2, text);
        }
        Py_XDECREF(text);
        return -1;
    }
    if (size->n != m->nd) {
        PyErr_Format(PyExc_RuntimeError, "%s: It is expected output_size equals to %d, but got size %d", c->row->name, m->nd,
                     (int)size->n);
        return -1;
    }
    for (int d = 0; d < m->nd; d++) {
        m->in[d] = v->shape[2 + d];
        m->out[d] = size->ints[d];
        if (m->in[d] < 1 || m->out[d] < 1 || m->out[d] > INT32_MAX) {
            PyErr_Format(
                PyExc_RuntimeError,
                "%s: Input and output sizes should be greater than 0 (and the output's below 2^31), but got input %lld and "
                "output %lld",
                c->row->name, (long long)m->in[d], (long long)m->out[d]);
            return -1;
        }
    }
    return 0;
}

/* Nearest elements are copied, so that bytes will do; what is weighed must be floating. */
int run_UPSAMPLE(OpCall *c) {
    Upsampling u = upsampling_of(c->row->op);
    Map m = {.nd = u.nd};
    int dtype = c->arg[0].t->v.dtype, at = u.kind >= UP_LINEAR ? 3 : 2;
    bool bytes = dtype == AMP_UINT8 && u.kind < UP_LINEAR;
    if ((!bytes && refuse_dtype(c, c->arg[0].t, false) < 0) || upsampling_sizes(c, &m) < 0) {
        return -1;
    }
    u.aligned = at == 3 && c->arg[2].i;
    set_scales(&u, c->arg + at);
    return upsampling_map(&m, &u) < 0 ? -1 : map_run(c, &m, false);
}

/* Scales stand in three parameters, of which the last u.nd count. */
int run_UPSAMPLE_GRAD(OpCall *c) {
    Map m = {.nd = 0};
    const View *v = &c->arg[0].t->v;
    if (gradient_sizes(c, &m, 2) < 0) {
        return -1;
    }
    Upsampling u = upsampling_of(c->arg[1].i);
    if (u.nd != m.nd || !is_row_of(c->arg[1].i, run_UPSAMPLE)) {
        PyErr_Format(PyExc_RuntimeError, "%s: the sizes do not fit the op", c->row->name);
        return -1;
    }
    for (int d = 0; d < m.nd; d++) {
        m.out[d] = v->shape[v->ndim - m.nd + d];
        if (m.out[d] < 1) {
            PyErr_Format(PyExc_RuntimeError, "%s: the gradient is empty", c->row->name);
            return -1;
        }
    }
    u.aligned = c->arg[3].i;
    set_scales(&u, c->arg + 4 + (3 - m.nd));
    return upsampling_map(&m, &u) < 0 ? -1 : map_run(c, &m, true);
}
