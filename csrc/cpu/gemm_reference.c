/* Products by plain loops: the meaning of the gemm slot, one element of the result at a time, and the oracle of the fast path. */
#include "gemm.h"

/* beta and alpha that were not given: beta counts only if there is a third operand. */
static void number_or_one(Number *to, const Call *call, int i) {
    const bool given = call->nnum > i && call->num[i].kind != NUMBER_NONE;
    to->f = given ? call->num[i].f : 1;
    to->i = given ? call->num[i].i : 1;
    to->kind = given ? call->num[i].kind : NUMBER_INT;
}

static bool is_zero(const Number *x) { return x->f == 0 && (x->kind != NUMBER_COMPLEX || x->imag == 0); }

/* Field by field, here and above: a structure that is built first and copied then is what a small product would notice. */
static void describe_matrix(Matrix *m, const View *v) {
    const int64_t *stride = v->stride + v->ndim - 2;
    m->data = v->data;
    m->batch = v->ndim == 3 ? v->stride[0] : 0;
    m->row = stride[0];
    m->col = stride[1];
    m->dtype = v->dtype;
    m->via = 0;
}

Status gemm_describe(const Call *call, Product *p) {
    const View *a = call->in[0], *b = call->in[1], *c = call->out[0], *d = call->nin > 2 ? call->in[2] : NULL;
    if (a->dtype == AMP_BOOL || a->dtype == AMP_COMPLEX32 || a->dtype == AMP_BCOMPLEX32) return AMP_BAD_DTYPE;
    p->batches = c->ndim == 3 ? c->shape[0] : 1;
    p->m = a->shape[a->ndim - 2];
    p->k = a->shape[a->ndim - 1];
    p->n = b->shape[b->ndim - 1];
    describe_matrix(&p->a, a);
    describe_matrix(&p->b, b);
    describe_matrix(&p->c, c);
    number_or_one(&p->alpha, call, 1);
    number_or_one(&p->beta, call, 0);
    p->numerics = call->numerics;
    if (d && !is_zero(&p->beta)) describe_matrix(&p->d, d);
    else p->d.data = NULL, p->d.batch = p->d.row = p->d.col = 0, p->d.dtype = p->d.via = 0;
    if (call->numerics.round_result && amp_is_16bit(a->dtype) && c->dtype == AMP_FLOAT32) p->c.via = a->dtype;
    return AMP_OK;
}

/* ------------------------------------------------------------------ one element per family */

static float round_to(float f, int dtype) {
    return dtype == AMP_FLOAT16 ? amp_f16_to_f32(amp_f32_to_f16(f)) : amp_bf16_to_f32(amp_f32_to_bf16(f));
}

static float dot32(const Product *p, const char *a, const char *b, int64_t begin, int64_t end) {
    const int64_t size = (int64_t)amp_itemsize(p->a.dtype), step_a = p->a.col * size, step_b = p->b.row * size;
    const InputRounding rounding = p->a.dtype == AMP_FLOAT32 ? (InputRounding)p->numerics.fp32_inputs : INPUT_IEEE;
    float sum = 0;
    for (int64_t k = begin; k < end; k++) {
        float x = gemm_load(a + k * step_a, p->a.dtype), y = gemm_load(b + k * step_b, p->b.dtype);
        sum += gemm_round_input(x, rounding) * gemm_round_input(y, rounding);
    }
    return sum;
}

/* Each multiply-add is formed in fp64 and rounded once to fp16, as an fp16 FMA does. */
static float dot_fp16_chain(const Product *p, const char *a, const char *b, int64_t begin, int64_t end) {
    const int64_t step_a = p->a.col * 2, step_b = p->b.row * 2;
    float sum = 0;
    for (int64_t k = begin; k < end; k++) {
        double x = (double)gemm_load(a + k * step_a, AMP_FLOAT16), y = (double)gemm_load(b + k * step_b, AMP_FLOAT16);
        sum = amp_f16_to_f32(amp_f64_to_f16((double)sum + x * y));
    }
    return sum;
}

static float element32(const Product *p, const char *a, const char *b) {
    const bool chain16 = p->a.dtype == AMP_FLOAT16 && p->numerics.fp16_accumulate;
    int64_t parts = amp_is_16bit(p->a.dtype) && p->numerics.round_partials && p->numerics.split_k > 1 ? p->numerics.split_k : 1;
    int64_t length = (p->k + parts - 1) / parts;
    float sum = 0;
    for (int64_t begin = 0; begin < p->k; begin += length) {
        int64_t end = begin + length < p->k ? begin + length : p->k;
        float part = chain16 ? dot_fp16_chain(p, a, b, begin, end) : dot32(p, a, b, begin, end);
        sum += parts > 1 ? round_to(part, p->a.dtype) : part;
    }
    return sum;
}

static void store32(const Product *p, const char *a, const char *b, const char *d, char *c) {
    float r = (float)p->alpha.f * element32(p, a, b);
    if (d) r += (float)p->beta.f * gemm_load(d, p->d.dtype);
    gemm_store(c, p->c.dtype, p->c.via ? round_to(r, p->c.via) : r);
}

static void store64(const Product *p, const char *a, const char *b, const char *d, char *c) {
    double sum = 0, x, y;
    for (int64_t k = 0; k < p->k; k++) {
        memcpy(&x, a + k * p->a.col * 8, sizeof x);
        memcpy(&y, b + k * p->b.row * 8, sizeof y);
        sum += x * y;
    }
    sum *= p->alpha.f;
    if (d) {
        memcpy(&x, d, sizeof x);
        sum += p->beta.f * x;
    }
    memcpy(c, &sum, sizeof sum);
}

/* Wraps as unsigned arithmetic of 64 bits does; narrower integers keep the low bits, which is their own wrapping. */
static uint64_t load_integer(const char *p, int dtype) {
    int8_t i8;
    int16_t i16;
    int32_t i32;
    int64_t i64;
    switch (dtype) {
    case AMP_UINT8: return (uint8_t)*p;
    case AMP_INT8: memcpy(&i8, p, sizeof i8); return (uint64_t)i8;
    case AMP_INT16: memcpy(&i16, p, sizeof i16); return (uint64_t)i16;
    case AMP_INT32: memcpy(&i32, p, sizeof i32); return (uint64_t)i32;
    default: memcpy(&i64, p, sizeof i64); return (uint64_t)i64;
    }
}

static void store_integer(char *p, int dtype, uint64_t value) {
    uint8_t u8 = (uint8_t)value;
    uint16_t u16 = (uint16_t)value;
    uint32_t u32 = (uint32_t)value;
    switch (amp_itemsize(dtype)) {
    case 1: memcpy(p, &u8, sizeof u8); return;
    case 2: memcpy(p, &u16, sizeof u16); return;
    case 4: memcpy(p, &u32, sizeof u32); return;
    default: memcpy(p, &value, sizeof value);
    }
}

static uint64_t integer_of(Number x) { return (uint64_t)(x.kind == NUMBER_FLOAT ? amp_f64_to_i64(x.f) : x.i); }

static void store_int(const Product *p, const char *a, const char *b, const char *d, char *c) {
    const int64_t size = (int64_t)amp_itemsize(p->a.dtype);
    uint64_t sum = 0;
    for (int64_t k = 0; k < p->k; k++)
        sum += load_integer(a + k * p->a.col * size, p->a.dtype) * load_integer(b + k * p->b.row * size, p->b.dtype);
    sum *= integer_of(p->alpha);
    if (d) sum += integer_of(p->beta) * load_integer(d, p->d.dtype);
    store_integer(c, p->c.dtype, sum);
}

static AmpComplex load_complex(const char *p, int dtype) {
    AmpComplex z;
    float f[2];
    if (dtype == AMP_COMPLEX128) {
        memcpy(&z, p, sizeof z);
        return z;
    }
    memcpy(f, p, sizeof f);
    return (AmpComplex){(double)f[0], (double)f[1]};
}

static AmpComplex complex_of(Number x) { return (AmpComplex){x.f, x.kind == NUMBER_COMPLEX ? x.imag : 0}; }

static AmpComplex multiply_add(AmpComplex sum, AmpComplex x, AmpComplex y) {
    sum.re += x.re * y.re - x.im * y.im;
    sum.im += x.re * y.im + x.im * y.re;
    return sum;
}

/* complex64 sums in fp64 and rounds once. */
static void store_complex(const Product *p, const char *a, const char *b, const char *d, char *c) {
    const int64_t size = (int64_t)amp_itemsize(p->a.dtype);
    AmpComplex sum = {0, 0}, alpha = complex_of(p->alpha);
    for (int64_t k = 0; k < p->k; k++)
        sum = multiply_add(sum, load_complex(a + k * p->a.col * size, p->a.dtype),
                           load_complex(b + k * p->b.row * size, p->b.dtype));
    if (alpha.re != 1 || alpha.im != 0) sum = multiply_add((AmpComplex){0, 0}, sum, alpha);
    if (d) sum = multiply_add(sum, load_complex(d, p->d.dtype), complex_of(p->beta));
    float f[2] = {(float)sum.re, (float)sum.im};
    if (p->c.dtype == AMP_COMPLEX128) memcpy(c, &sum, sizeof sum);
    else memcpy(c, f, sizeof f);
}

/* ------------------------------------------------------------------ loops */

typedef void (*ElementFn)(const Product *p, const char *a, const char *b, const char *d, char *c);

static ElementFn element_for(int dtype) {
    if (dtype == AMP_FLOAT64) return store64;
    if (amp_is_floating(dtype)) return store32;
    return amp_is_complex(dtype) ? store_complex : store_int;
}

/* Rows of all batches, [begin, end). */
static void rows_by_loops(void *ctx, int64_t begin, int64_t end) {
    const Product *p = ctx;
    const ElementFn element = element_for(p->a.dtype);
    for (int64_t r = begin; r < end; r++) {
        const int64_t batch = r / p->m, row = r % p->m;
        for (int64_t col = 0; col < p->n; col++) {
            const char *d = p->d.data ? gemm_at(&p->d, batch, row, col) : NULL;
            element(p, gemm_at(&p->a, batch, row, 0), gemm_at(&p->b, batch, 0, col), d, gemm_at(&p->c, batch, row, col));
        }
    }
}

Status gemm_by_loops(const Product *p) {
    const double work_per_row = (double)p->n * (double)(p->k + 1); /* some nanoseconds each */
    const int64_t grain = work_per_row < 10000 ? (int64_t)(10000 / (work_per_row + 1)) + 1 : 1;
    if (p->n) amp_parallel_for(p->batches * p->m, grain, rows_by_loops, (void *)(uintptr_t)p);
    return AMP_OK;
}

Status amp_gemm_reference(const Call *call) {
    Product p;
    Status status = gemm_describe(call, &p);
    return status ? status : gemm_by_loops(&p);
}
