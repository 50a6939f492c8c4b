/* One time step of recurrent cells, element by element: what follows the products. A row of a gate matrix holds the gates one after the
 * other, each `hidden` wide:
 *
 *     LSTM   | in | forget | candidate | out |        GRU   | reset | update | candidate |
 *
 * The work matrix keeps the activated gates for the backward pass; the GRU's has the hidden part of its candidate as fourth block. Rows
 * are cut into strips; a strip that is not in the compute format is converted on the way. */
#include "vectorize.h"

#include "../core/numeric_math.h"
#include "cast.h"
#include "recurrent.h"

enum { STRIP = 128, MOST_IN = 13, MOST_OUT = 7 };

/* Inputs x and outputs y are strips of one block each, in the order in which the views and their blocks are listed by shape_of. */
typedef void (*StepFn)(const char *const *x, char *const *y, int64_t n);

#define LOOP            IVDEP for (int64_t i = 0; i < n; i++)
#define X(k)            ((double)x##k[i])
#define Y(k)            y##k[i]
#define BIASED(a, b, c) (X(a) + X(b) + X(c))
/* Strips as locals, so that the loop's addresses are invariant. */
#define IN(T, k)         const T *x##k = (const T *)(const void *)x[k]
#define OUT(T, k)        T *y##k = (T *)(void *)y[k]
#define IN3(T, a, b, c)  IN(T, a), *x##b = (const T *)(const void *)x[b], *x##c = (const T *)(const void *)x[c]
#define OUT3(T, a, b, c) OUT(T, a), *y##b = (T *)(void *)y[b], *y##c = (T *)(void *)y[c]

#define BODIES(K, T, SIGMOID, TANH, TARGET) \
    TARGET static void lstm_##K(const char *const *x, char *const *y, int64_t n) { \
        IN3(T, 0, 1, 2); \
        IN3(T, 3, 4, 5); \
        IN3(T, 6, 7, 8); \
        IN3(T, 9, 10, 11); \
        IN(T, 12); \
        OUT3(T, 0, 1, 2); \
        OUT3(T, 3, 4, 5); \
        LOOP { \
            double in = SIGMOID(BIASED(0, 4, 8)), forget = SIGMOID(BIASED(1, 5, 9)); \
            double candidate = TANH(BIASED(2, 6, 10)), out = SIGMOID(BIASED(3, 7, 11)); \
            double cell = forget * X(12) + in * candidate; \
            Y(0) = (T)(out * TANH(cell)); \
            Y(1) = (T)cell; \
            Y(2) = (T)in; \
            Y(3) = (T)forget; \
            Y(4) = (T)candidate; \
            Y(5) = (T)out; \
        } \
    } \
    TARGET static void lstm_grad_##K(const char *const *x, char *const *y, int64_t n) { \
        IN3(T, 0, 1, 2); \
        IN3(T, 3, 4, 5); \
        IN(T, 6); \
        OUT3(T, 0, 1, 2); \
        OUT(T, 3); \
        OUT(T, 4); \
        LOOP { \
            double g = X(0), in = X(1), forget = X(2), candidate = X(3), out = X(4), before = X(5); \
            double cell = TANH(forget * before + in * candidate), gc = X(6) + g * out * (1.0 - cell * cell); \
            Y(0) = (T)(gc * candidate * in * (1.0 - in)); \
            Y(1) = (T)(gc * before * forget * (1.0 - forget)); \
            Y(2) = (T)(gc * in * (1.0 - candidate * candidate)); \
            Y(3) = (T)(g * cell * out * (1.0 - out)); \
            Y(4) = (T)(gc * forget); \
        } \
    } \
    TARGET static void gru_##K(const char *const *x, char *const *y, int64_t n) { \
        IN3(T, 0, 1, 2); \
        IN3(T, 3, 4, 5); \
        IN3(T, 6, 7, 8); \
        IN(T, 9); \
        OUT3(T, 0, 1, 2); \
        OUT(T, 3); \
        OUT(T, 4); \
        LOOP { \
            double reset = SIGMOID(BIASED(0, 3, 6)), update = SIGMOID(BIASED(1, 4, 7)), hidden = X(5) + X(8); \
            double candidate = TANH(X(2) + reset * hidden); \
            Y(0) = (T)((X(9) - candidate) * update + candidate); \
            Y(1) = (T)reset; \
            Y(2) = (T)update; \
            Y(3) = (T)candidate; \
            Y(4) = (T)hidden; \
        } \
    } \
    TARGET static void gru_grad_##K(const char *const *x, char *const *y, int64_t n) { \
        IN3(T, 0, 1, 2); \
        IN3(T, 3, 4, 5); \
        OUT3(T, 0, 1, 2); \
        OUT3(T, 3, 4, 5); \
        OUT(T, 6); \
        LOOP { \
            double g = X(0), reset = X(1), update = X(2), candidate = X(3), hidden = X(4), before = X(5); \
            double gn = g * (1.0 - update) * (1.0 - candidate * candidate), gr = gn * hidden * reset * (1.0 - reset); \
            double gz = g * (before - candidate) * update * (1.0 - update); \
            Y(0) = (T)gr; \
            Y(1) = (T)gz; \
            Y(2) = (T)gn; \
            Y(3) = (T)gr; \
            Y(4) = (T)gz; \
            Y(5) = (T)(gn * reset); \
            Y(6) = (T)(g * update); \
        } \
    } \
    TARGET static void tanh_##K(const char *const *x, char *const *y, int64_t n) { \
        IN3(T, 0, 1, 2); \
        OUT(T, 0); \
        LOOP Y(0) = (T)TANH(BIASED(0, 1, 2)); \
    } \
    TARGET static void tanh_grad_##K(const char *const *x, char *const *y, int64_t n) { \
        IN(T, 0); \
        IN(T, 1); \
        OUT(T, 0); \
        LOOP Y(0) = (T)(X(0) * (1.0 - X(1) * X(1))); \
    } \
    TARGET static void relu_##K(const char *const *x, char *const *y, int64_t n) { \
        IN3(T, 0, 1, 2); \
        OUT(T, 0); \
        LOOP { \
            double v = BIASED(0, 1, 2); \
            Y(0) = (T)(v < 0.0 ? 0.0 : v); \
        } \
    } \
    TARGET static void relu_grad_##K(const char *const *x, char *const *y, int64_t n) { \
        IN(T, 0); \
        IN(T, 1); \
        OUT(T, 0); \
        LOOP Y(0) = (T)(X(1) <= 0.0 ? 0.0 : X(0)); \
    } \
    static const StepFn steps_##K[2][RECURRENT_KINDS] = {{lstm_##K, gru_##K, tanh_##K, relu_##K}, \
                                                         {lstm_grad_##K, gru_grad_##K, tanh_grad_##K, relu_grad_##K}};

#define NO_TARGET
AMP_FN double sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }
BODIES(f64, F64, sigmoid_f64, tanh, NO_TARGET)
/* Gates saturate: what float32 tells from 0, 1 and -1 lies inside of the bounds, and near 0 an absolute error of 2^-53 is all there is. */
AMP_FN double gate(double x) { return 1.0 / (1.0 + amp_exp_core(amp_clip(-x, -200.0, 200.0))); }
AMP_FN double squash(double x) { return 1.0 - 2.0 / (amp_exp_core(amp_clip(2.0 * x, -40.0, 40.0)) + 1.0); }
BODIES(f32_baseline, F32, gate, squash, NO_TARGET)
#if defined(__x86_64__)
BODIES(f32_avx2, F32, gate, squash, __attribute__((target("avx2"))))
BODIES(f32_avx512, F32, gate, squash, __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx2,prefer-vector-width=512"))))
#endif

static StepFn step_for(int type, bool backward, int kind) {
    if (type == AMP_FLOAT64) return steps_f64[backward][kind];
#if defined(__x86_64__)
    Isa isa = amp_isa();
    if (isa >= ISA_AVX512) return steps_f32_avx512[backward][kind];
    if (isa >= ISA_AVX2) return steps_f32_avx2[backward][kind];
#endif
    return steps_f32_baseline[backward][kind];
}

/* Blocks per view: inputs, outputs; 0 ends the list. */
typedef struct Shape {
    int8_t in[AMP_MAX_IN], out[AMP_MAX_OUT];
} Shape;

static const Shape *shape_of(bool backward, int kind) {
    static const Shape shapes[2][RECURRENT_KINDS] = {
        {{{4, 4, 4, 1}, {1, 1, 4}}, {{3, 3, 3, 1}, {1, 4}}, {{1, 1, 1}, {1}}, {{1, 1, 1}, {1}}},
        {{{1, 4, 1, 1}, {4, 1}}, {{1, 4, 1}, {3, 3, 1}}, {{1, 1}, {1}}, {{1, 1}, {1}}},
    };
    return &shapes[backward][kind];
}

typedef struct Block {
    const View *view; /* NULL: zeros, or nowhere to write */
    int64_t offset;   /* bytes inside a row */
    int64_t pitch;    /* bytes from row to row */
} Block;

typedef struct Step {
    StepFn step;
    int type, nin, nout;
    int64_t hidden;
    Block in[MOST_IN], out[MOST_OUT];
} Step;

static int list_blocks(Block *block, int nview, View *const *view, const int8_t *count, int64_t hidden) {
    int n = 0;
    for (int v = 0; v < nview; v++) {
        for (int k = 0; k < count[v]; k++, n++) {
            block[n].view = view[v];
            block[n].offset = view[v] ? k * hidden * (int64_t)amp_itemsize(view[v]->dtype) : 0;
            block[n].pitch = view[v] && view[v]->ndim == 2 ? view[v]->stride[0] * (int64_t)amp_itemsize(view[v]->dtype) : 0;
        }
    }
    return n;
}

/* One row's columns [from, from + n). */
static void run_strip(const Step *s, int64_t row, int64_t from, int64_t n) {
    _Alignas(64) char strip[MOST_IN + MOST_OUT][STRIP * sizeof(double)];
    static const double zeros[STRIP];
    const int64_t size = (int64_t)amp_itemsize(s->type);
    const char *x[MOST_IN];
    char *y[MOST_OUT], *target[MOST_OUT];
    for (int k = 0; k < s->nin; k++) {
        const Block *b = &s->in[k];
        if (!b->view) {
            x[k] = (const char *)zeros;
            continue;
        }
        int64_t item = (int64_t)amp_itemsize(b->view->dtype);
        x[k] = b->view->data + row * b->pitch + b->offset + from * item;
        if (b->view->dtype != s->type) {
            amp_convert(b->view->dtype, x[k], item, s->type, strip[k], size, n);
            x[k] = strip[k];
        }
    }
    for (int k = 0; k < s->nout; k++) {
        const Block *b = &s->out[k];
        bool direct = b->view && b->view->dtype == s->type;
        target[k] = b->view ? b->view->data + row * b->pitch + b->offset + from * (int64_t)amp_itemsize(b->view->dtype) : NULL;
        y[k] = direct ? target[k] : strip[MOST_IN + k];
    }
    s->step(x, y, n);
    for (int k = 0; k < s->nout; k++) {
        if (target[k] && y[k] != target[k]) {
            int dtype = s->out[k].view->dtype;
            amp_convert(s->type, y[k], size, dtype, target[k], (int64_t)amp_itemsize(dtype), n);
        }
    }
}

static void run_rows(void *context, int64_t begin, int64_t end) {
    const Step *s = context;
    for (int64_t row = begin; row < end; row++) {
        for (int64_t from = 0; from < s->hidden; from += STRIP) {
            run_strip(s, row, from, s->hidden - from < STRIP ? s->hidden - from : STRIP);
        }
    }
}

/* Cells that keep a thread busy for some microseconds. */
static int64_t grain_of(int kind) { return kind == RECURRENT_LSTM || kind == RECURRENT_GRU ? 640 : 2048; }

Status amp_recurrent(const Call *call) {
    const int kind = (int)call->num[0].i;
    const bool backward = call->num[1].i != 0;
    const Shape *shape = shape_of(backward, kind);
    Step s = {.type = AMP_FLOAT32};
    View *in[AMP_MAX_IN], *out[AMP_MAX_OUT];
    for (int i = 0; i < AMP_MAX_IN; i++) {
        in[i] = (View *)(uintptr_t)call->in[i]; /* inputs and outputs are listed alike; inputs are only read */
        if (call->in[i] && call->in[i]->dtype == AMP_FLOAT64) s.type = AMP_FLOAT64;
    }
    for (int i = 0; i < AMP_MAX_OUT; i++) out[i] = i < call->nout ? call->out[i] : NULL;
    const View *state = backward ? call->in[0] : call->out[0];
    s.hidden = state->shape[1];
    s.nin = list_blocks(s.in, AMP_MAX_IN, in, shape->in, s.hidden);
    s.nout = list_blocks(s.out, AMP_MAX_OUT, out, shape->out, s.hidden);
    s.step = step_for(s.type, backward, kind);
    if (s.hidden > 0) amp_parallel_for(state->shape[0], grain_of(kind) / s.hidden + 1, run_rows, &s);
    return AMP_OK;
}
