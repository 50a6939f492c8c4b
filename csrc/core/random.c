/* The random generator and the fills made from it: which word of the Mersenne Twister becomes which element is part of the
 * contract (section 7), because a seed must give PyTorch's numbers.
 *
 *   word      u32                                           24 low bits -> fp32, fp16, bf16
 *   two words u64 = first x 2^32 + second                   53 low bits -> fp64, and every yes/no draw with a fixed probability
 *
 * Element order: a contiguous output is filled in C order; any other one in the order of its memory, as PyTorch walks it. */
#include "random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "numeric_math.h"
#include "ops.h"

enum { MT_WORDS = 624, MT_SHIFT = 397, BLOCK = 16, WIDE_RANGE_BITS = 28 };

struct Generator {
    uint32_t word[MT_WORDS];  /* the twister's state */
    uint32_t ready[MT_WORDS]; /* the words it gives, all of one batch */
    uint32_t next;            /* index of the next word; MT_WORDS: a new batch is due */
    uint64_t seed;
    double kept; /* the twin of the last normal number */
    bool has_kept;
};

static const double TWO_PI = 6.283185307179586476925286766559;

void amp_generator_seed(Generator *g, uint64_t seed) {
    g->seed = seed;
    g->word[0] = (uint32_t)seed;
    for (uint32_t i = 1; i < MT_WORDS; i++) {
        uint32_t before = g->word[i - 1];
        g->word[i] = 1812433253u * (before ^ (before >> 30)) + i;
    }
    g->next = MT_WORDS;
    g->has_kept = false;
    g->kept = 0.0;
}

Generator *amp_generator_new(uint64_t seed) {
    Generator *g = malloc(sizeof *g);
    if (g) amp_generator_seed(g, seed);
    return g;
}

void amp_generator_free(Generator *g) { free(g); }

uint64_t amp_generator_initial_seed(const Generator *g) { return g->seed; }

/* word[i] <- word[i + 397] ^ twist(top bit of word[i], 31 low bits of word[i + 1]) */
static uint32_t twist(uint32_t high, uint32_t low, uint32_t far) {
    uint32_t y = (high & 0x80000000u) | (low & 0x7fffffffu);
    return far ^ (y >> 1) ^ ((0u - (low & 1u)) & 0x9908b0dfu);
}

/* The hot loops exist twice: as they are, and compiled for AVX2 with the fused product as an instruction. Same values. */
#if defined(__x86_64__)
#define WIDE_TARGET __attribute__((target("avx2,fma")))
static bool wide_cpu(void) { return amp_isa() >= ISA_AVX2; }
#endif
#define HOT static inline __attribute__((always_inline))

/* Fixed trip counts, multiples of the widest vector, for the compiler's sake: 227 = 224 + 3, 397 = 392 + 5. */
HOT void advance(uint32_t *w) {
    int i = 0;
    for (; i < 224; i++) w[i] = twist(w[i], w[i + 1], w[i + MT_SHIFT]);
    for (; i < 227; i++) w[i] = twist(w[i], w[i + 1], w[i + MT_SHIFT]);
    for (; i < 227 + 392; i++) w[i] = twist(w[i], w[i + 1], w[i + MT_SHIFT - MT_WORDS]);
    for (; i < MT_WORDS - 1; i++) w[i] = twist(w[i], w[i + 1], w[i + MT_SHIFT - MT_WORDS]);
    w[i] = twist(w[i], w[0], w[MT_SHIFT - 1]);
}

HOT void temper(uint32_t *ready, const uint32_t *word) {
    for (int i = 0; i < MT_WORDS; i++) {
        uint32_t y = word[i];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        ready[i] = y ^ (y >> 18);
    }
}

static void new_words_any(Generator *g) {
    advance(g->word);
    temper(g->ready, g->word);
}
#ifdef WIDE_TARGET
static WIDE_TARGET void new_words_wide(Generator *g) {
    advance(g->word);
    temper(g->ready, g->word);
}
#endif

static void new_batch(Generator *g) {
#ifdef WIDE_TARGET
    if (wide_cpu()) new_words_wide(g);
    else
#endif
        new_words_any(g);
    g->next = 0;
}

uint32_t amp_generator_u32(Generator *g) {
    if (g->next >= MT_WORDS) new_batch(g);
    return g->ready[g->next++];
}

uint64_t amp_generator_u64(Generator *g) {
    uint64_t first = amp_generator_u32(g);
    return (first << 32) | amp_generator_u32(g);
}

float amp_generator_uniform24(Generator *g) { return (float)(amp_generator_u32(g) & 0xffffffu) * 0x1p-24f; }

double amp_generator_uniform53(Generator *g) { return (double)(amp_generator_u64(g) & ((UINT64_C(1) << 53) - 1)) * 0x1p-53; }

double amp_generator_normal(Generator *g) {
    if (g->has_kept) {
        g->has_kept = false;
        return g->kept;
    }
    double u1 = amp_generator_uniform53(g), u2 = amp_generator_uniform53(g);
    double r = sqrt(-2.0 * log1p(-u2)), t = TWO_PI * u1;
    g->kept = r * sin(t);
    g->has_kept = true;
    return r * cos(t);
}

uint64_t amp_generator_below(Generator *g, uint64_t range) {
    if (range == 0) return amp_generator_u64(g);
    if (range >> WIDE_RANGE_BITS) return amp_generator_u64(g) % range;
    return amp_generator_u32(g) % (uint32_t)range;
}

/* ---- saved state: fixed layout, so that a file written today can be read by a later build ----
 *
 *   0 magic | 8 seed | 16 kept (bits of the double) | 24 next | 28 has_kept | 32 word[624] */
enum { STATE_SIZE = 32 + 4 * MT_WORDS };
static const char STATE_MAGIC[8] = {'a', 'm', 'p', 'm', 't', '1', '9', '1'};

size_t amp_generator_state_size(void) { return STATE_SIZE; }

void amp_generator_get_state(const Generator *g, void *state) {
    char *s = state;
    uint32_t has_kept = g->has_kept;
    memcpy(s, STATE_MAGIC, 8);
    memcpy(s + 8, &g->seed, 8);
    memcpy(s + 16, &g->kept, 8);
    memcpy(s + 24, &g->next, 4);
    memcpy(s + 28, &has_kept, 4);
    memcpy(s + 32, g->word, sizeof g->word);
}

int amp_generator_set_state(Generator *g, const void *state, size_t n) {
    const char *s = state;
    uint32_t next, has_kept;
    if (n != STATE_SIZE || memcmp(s, STATE_MAGIC, 8) != 0) return -1;
    memcpy(&next, s + 24, 4);
    memcpy(&has_kept, s + 28, 4);
    if (next > MT_WORDS || has_kept > 1) return -1;
    memcpy(&g->seed, s + 8, 8);
    memcpy(&g->kept, s + 16, 8);
    g->next = next;
    g->has_kept = has_kept != 0;
    memcpy(g->word, s + 32, sizeof g->word);
    temper(g->ready, g->word);
    return 0;
}

/* ---- walking the output ---- */

typedef struct Walk {
    int ndim;
    bool dense; /* contiguous: offset == index */
    char *data;
    size_t itemsize;
    int64_t shape[AMP_MAX_DIMS], stride[AMP_MAX_DIMS], at[AMP_MAX_DIMS];
    int64_t offset; /* elements from data */
} Walk;

/* Longest stride first: the order of memory. Dimensions of one element are dropped. `like` lends its order to a second operand. */
static void walk_start(Walk *w, const View *v, const View *like) {
    w->data = v->data;
    w->itemsize = amp_itemsize(v->dtype);
    w->dense = (v->layout & LAYOUT_CONTIGUOUS) != 0 && (like->layout & LAYOUT_CONTIGUOUS) != 0;
    w->offset = 0;
    w->ndim = 0;
    if (w->dense) return;
    bool keep_order = (like->layout & LAYOUT_CONTIGUOUS) != 0;
    int64_t key[AMP_MAX_DIMS];
    for (int d = 0; d < v->ndim; d++) {
        if (v->shape[d] == 1) continue;
        int64_t k = like->stride[d] < 0 ? -like->stride[d] : like->stride[d];
        int at = w->ndim++;
        for (; !keep_order && at > 0 && key[at - 1] < k; at--) {
            key[at] = key[at - 1];
            w->shape[at] = w->shape[at - 1];
            w->stride[at] = w->stride[at - 1];
        }
        key[at] = k;
        w->shape[at] = v->shape[d];
        w->stride[at] = v->stride[d];
    }
    memset(w->at, 0, sizeof w->at[0] * (size_t)w->ndim);
}

static char *walk_next(Walk *w) {
    char *here = w->data + w->offset * (int64_t)w->itemsize;
    if (w->dense) {
        w->offset++;
        return here;
    }
    for (int d = w->ndim - 1; d >= 0; d--) {
        w->offset += w->stride[d];
        if (++w->at[d] < w->shape[d]) break;
        w->offset -= w->stride[d] * w->shape[d];
        w->at[d] = 0;
    }
    return here;
}

/* ---- storing one value as any dtype ---- */

/* Everything narrower than fp32 passes through fp32: PyTorch's numbers are formed there. */
static void put_real(int dtype, char *p, double v) {
    float f = (float)v;
    switch (dtype) {
    case AMP_FLOAT64: memcpy(p, &v, 8); break;
    case AMP_FLOAT32: memcpy(p, &f, 4); break;
    case AMP_FLOAT16: memcpy(p, &(uint16_t){amp_f32_to_f16(f)}, 2); break;
    case AMP_BFLOAT16: memcpy(p, &(uint16_t){amp_f32_to_bf16(f)}, 2); break;
    case AMP_FLOAT8_E5M2: *(uint8_t *)p = amp_f32_to_e5m2(f); break;
    case AMP_FLOAT8_E4M3FN: *(uint8_t *)p = amp_f32_to_e4m3(f); break;
    default: break;
    }
}

static double get_real_at(int dtype, const char *p) {
    double v = 0.0;
    float f = 0.0f;
    uint16_t h = 0;
    switch (dtype) {
    case AMP_FLOAT64: memcpy(&v, p, 8); return v;
    case AMP_FLOAT32: memcpy(&f, p, 4); return (double)f;
    case AMP_FLOAT16: memcpy(&h, p, 2); return (double)amp_f16_to_f32(h);
    case AMP_BFLOAT16: memcpy(&h, p, 2); return (double)amp_bf16_to_f32(h);
    case AMP_FLOAT8_E5M2: return (double)amp_e5m2_to_f32(*(const uint8_t *)p);
    default: return (double)amp_e4m3_to_f32(*(const uint8_t *)p);
    }
}

static void put_int(int dtype, char *p, int64_t v) {
    switch (dtype) {
    case AMP_BOOL: *(uint8_t *)p = v != 0; break;
    case AMP_UINT8:
    case AMP_INT8: *(uint8_t *)p = (uint8_t)v; break;
    case AMP_INT16: memcpy(p, &(uint16_t){(uint16_t)v}, 2); break;
    case AMP_INT32: memcpy(p, &(uint32_t){(uint32_t)v}, 4); break;
    case AMP_INT64: memcpy(p, &v, 8); break;
    case AMP_FLOAT32: memcpy(p, &(float){(float)v}, 4); break;
    default: put_real(dtype, p, (double)v); break;
    }
}

/* ---- fills ---- */

static double get_real(const Number *n, double otherwise) { return n->kind == NUMBER_NONE ? otherwise : n->f; }

HOT void scale_words(char *to, const uint32_t *word, int64_t n, float from, float high) {
    enum { STEP = 8 };
    const float width = high - from;
    float x[STEP];
    int64_t i = 0;
    for (; i + STEP <= n; i += STEP) {
        for (int j = 0; j < STEP; j++) {
            float v = fmaf((float)(int32_t)(word[i + j] & 0xffffffu) * 0x1p-24f, width, from);
            x[j] = v == high ? from : v;
        }
        memcpy(to + 4 * i, x, sizeof x);
    }
    for (; i < n; i++) {
        float v = fmaf((float)(int32_t)(word[i] & 0xffffffu) * 0x1p-24f, width, from);
        memcpy(to + 4 * i, v == high ? &from : &v, 4);
    }
}

static void scale_words_any(char *to, const uint32_t *word, int64_t n, float from, float high) {
    scale_words(to, word, n, from, high);
}
#ifdef WIDE_TARGET
static WIDE_TARGET void scale_words_wide(char *to, const uint32_t *word, int64_t n, float from, float high) {
    scale_words(to, word, n, from, high);
}
#endif

/* fp32 in one block of memory: whole batches of words at a time. */
static void fill_uniform_dense(Generator *g, char *to, int64_t n, float from, float high) {
    for (int64_t i = 0, m; i < n; i += m) {
        if (g->next >= MT_WORDS) new_batch(g);
        m = MT_WORDS - (int64_t)g->next;
        if (m > n - i) m = n - i;
#ifdef WIDE_TARGET
        if (wide_cpu()) scale_words_wide(to + 4 * i, g->ready + g->next, m, from, high);
        else
#endif
            scale_words_any(to + 4 * i, g->ready + g->next, m, from, high);
        g->next += (uint32_t)m;
    }
}

/* low + u * (high - low) in one rounding, then to the dtype. The range is half open: what the rounding lifts to `high` becomes `low`. */
static void fill_uniform(Generator *g, Walk *w, int64_t n, int dtype, double low, double high) {
    if (dtype == AMP_FLOAT64) {
        for (int64_t i = 0; i < n; i++) {
            double v = fma(amp_generator_uniform53(g), high - low, low);
            put_real(dtype, walk_next(w), v == high ? low : v);
        }
        return;
    }
    float from = (float)low, to = (float)high, width = to - from;
    if (dtype == AMP_FLOAT32 && w->dense) {
        fill_uniform_dense(g, w->data, n, from, to);
        return;
    }
    char limit[8];
    put_real(dtype, limit, (double)to);
    double top = get_real_at(dtype, limit);
    for (int64_t i = 0; i < n; i++) {
        char *p = walk_next(w);
        put_real(dtype, p, (double)fmaf(amp_generator_uniform24(g), width, from));
        if (get_real_at(dtype, p) == top) put_real(dtype, p, (double)from);
    }
}

/* sin and cos of t in [0, 2 pi], error below 2^-36: t = k pi/2 + r with |r| <= pi/4, then the power series.
 *
 *     k mod 4    0       1       2       3         adding 1.5 * 2^52 rounds to the integer k and leaves it in the low bits
 *     sin t      sin r   cos r  -sin r  -cos r
 *     cos t      cos r  -sin r  -cos r   sin r */
HOT void sin_cos(double t, double *sine, double *cosine) {
    const double round = 0x1.8p52;
    double shifted = t * 0x1.45f306dc9c883p-1 + round, r = t - (shifted - round) * 0x1.921fb54442d18p0, z = r * r;
    uint64_t k = amp_f64_bits(shifted), swap = 0 - (k & 1);
    double s = r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 + z * (-1.0 / 39916800)))));
    double c = 1.0 +
               z * (-0.5 + z * (1.0 / 24 + z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
    uint64_t a = amp_f64_bits(s), b = amp_f64_bits(c);
    *sine = amp_bits_f64(((a & ~swap) | (b & swap)) ^ ((k & 2) << 62));
    *cosine = amp_bits_f64(((b & ~swap) | (a & swap)) ^ (((k + 1) & 2) << 62));
}

/* Sixteen words become sixteen normal numbers; element j pairs with j + 8. The angle is rounded to fp32 as PyTorch's is. */
HOT void normal_words(float *x, const uint32_t *word, double mean, double std) {
    enum { HALF = BLOCK / 2 };
    double r[HALF], s[HALF], c[HALF];
    for (int j = 0; j < HALF; j++) r[j] = -2.0 * amp_log_core(1.0 - (double)(int32_t)(word[j] & 0xffffffu) * 0x1p-24);
    for (int j = 0; j < HALF; j++) r[j] = sqrt(r[j]);
    for (int j = 0; j < HALF; j++) {
        float t = (float)TWO_PI * ((float)(int32_t)(word[j + HALF] & 0xffffffu) * 0x1p-24f);
        sin_cos((double)t, &s[j], &c[j]);
    }
    for (int j = 0; j < HALF; j++) {
        x[j] = (float)(r[j] * c[j] * std + mean);
        x[j + HALF] = (float)(r[j] * s[j] * std + mean);
    }
}

static void normal_words_any(float *x, const uint32_t *word, double mean, double std) { normal_words(x, word, mean, std); }
#ifdef WIDE_TARGET
static WIDE_TARGET void normal_words_wide(float *x, const uint32_t *word, double mean, double std) {
    normal_words(x, word, mean, std);
}
#endif

/* The next sixteen words in a row, even across two batches. */
static const uint32_t *next_block(Generator *g, uint32_t *room) {
    if (g->next + BLOCK <= MT_WORDS) {
        g->next += BLOCK;
        return g->ready + g->next - BLOCK;
    }
    for (int j = 0; j < BLOCK; j++) room[j] = amp_generator_u32(g);
    return room;
}

static void normal_block_wide(Generator *g, double *x, double mean, double std) {
    for (int j = 0; j < BLOCK; j++) x[j] = amp_generator_uniform53(g);
    for (int j = 0; j < BLOCK / 2; j++) {
        double r = sqrt(-2.0 * log(1.0 - x[j])), t = TWO_PI * x[j + 8];
        x[j] = r * cos(t) * std + mean;
        x[j + 8] = r * sin(t) * std + mean;
    }
}

/* Draws one block and stores it. */
static void put_normal_block(Generator *g, char *to, int dtype, double mean, double std) {
    uint32_t room[BLOCK];
    double wide[BLOCK];
    float x[BLOCK];
    if (dtype == AMP_FLOAT64) {
        normal_block_wide(g, wide, mean, std);
        memcpy(to, wide, sizeof wide);
        return;
    }
    const uint32_t *word = next_block(g, room);
#ifdef WIDE_TARGET
    if (wide_cpu()) normal_words_wide(x, word, mean, std);
    else
#endif
        normal_words_any(x, word, mean, std);
    if (dtype == AMP_FLOAT32) memcpy(to, x, sizeof x);
    else
        for (int j = 0; j < BLOCK; j++) put_real(dtype, to + j * (int64_t)amp_itemsize(dtype), (double)x[j]);
}

/* n >= 16 elements in one block of memory. If 16 does not divide n, the last sixteen are drawn afresh and redone:
 *
 *   | block | block | par.. |
 *               | last 16   |      overwrites part of its neighbour
 *
 * fp32 and fp64 have by then spent the words of the partial block as well; narrower types have not. */
static void fill_normal_blocks(Generator *g, char *data, int64_t n, int dtype, double mean, double std) {
    int64_t size = (int64_t)amp_itemsize(dtype), whole = n - n % BLOCK;
    for (int64_t i = 0; i < whole; i += BLOCK) put_normal_block(g, data + i * size, dtype, mean, std);
    if (whole == n) return;
    for (int64_t i = whole; i < n && size >= 4; i++) {
        if (dtype == AMP_FLOAT64) amp_generator_u64(g);
        else amp_generator_u32(g);
    }
    put_normal_block(g, data + (n - BLOCK) * size, dtype, mean, std);
}

static void fill_normal(Generator *g, Walk *w, int64_t n, int dtype, double mean, double std) {
    if (w->dense && n >= BLOCK) {
        fill_normal_blocks(g, w->data, n, dtype, mean, std);
        return;
    }
    for (int64_t i = 0; i < n; i++) put_real(dtype, walk_next(w), amp_generator_normal(g) * std + mean);
}

/* u < p for u = k / 2^53 is k < ceil(p 2^53): decided on integers. */
static uint64_t below_limit(double p) {
    double limit = ceil(p * 0x1p53);
    return limit > 0.0 ? limit < 0x1p53 ? (uint64_t)limit : UINT64_C(1) << 53 : 0;
}

#define PICK(T) \
    for (int64_t i = 0; i < n; i++) { \
        uint64_t k = ((uint64_t)word[2 * i] << 32 | word[2 * i + 1]) & mask; \
        T v = (T)(one & (0 - (uint64_t)(k < limit))); \
        memcpy(to + (int64_t)sizeof(T) * i, &v, sizeof v); \
    }

/* n values of `size` bytes from as many pairs of words: those of `one`, or zeros. */
HOT void pick_words(char *to, const uint32_t *word, int64_t n, size_t size, uint64_t one, uint64_t limit) {
    const uint64_t mask = (UINT64_C(1) << 53) - 1;
    switch (size) {
    case 1: PICK(uint8_t) break;
    case 2: PICK(uint16_t) break;
    case 4: PICK(uint32_t) break;
    default: PICK(uint64_t) break;
    }
}
#undef PICK

static void pick_words_any(char *to, const uint32_t *word, int64_t n, size_t size, uint64_t one, uint64_t limit) {
    pick_words(to, word, n, size, one, limit);
}
#ifdef WIDE_TARGET
static WIDE_TARGET void pick_words_wide(char *to, const uint32_t *word, int64_t n, size_t size, uint64_t one, uint64_t limit) {
    pick_words(to, word, n, size, one, limit);
}
#endif

/* In one block of memory: all whole pairs of a batch at a time; the pair of an odd word spans two batches. */
static void fill_below_dense(Generator *g, char *to, int64_t n, size_t size, uint64_t one, uint64_t limit) {
    for (int64_t i = 0, m; i < n; i += m, to += m * (int64_t)size) {
        if (g->next >= MT_WORDS) new_batch(g);
        m = (MT_WORDS - (int64_t)g->next) / 2;
        if (m > n - i) m = n - i;
        if (m == 0) {
            uint64_t pair = amp_generator_u64(g);
            const uint32_t word[2] = {(uint32_t)(pair >> 32), (uint32_t)pair};
            pick_words_any(to, word, m = 1, size, one, limit);
            continue;
        }
#ifdef WIDE_TARGET
        if (wide_cpu()) pick_words_wide(to, g->ready + g->next, m, size, one, limit);
        else
#endif
            pick_words_any(to, g->ready + g->next, m, size, one, limit);
        g->next += (uint32_t)(2 * m);
    }
}

static void fill_below(Generator *g, Walk *w, int64_t n, int dtype, double p) {
    const uint64_t limit = below_limit(p), mask = (UINT64_C(1) << 53) - 1;
    char value[2][8] = {{0}};
    put_int(dtype, value[0], 0);
    put_int(dtype, value[1], 1);
    if (w->dense && w->itemsize <= sizeof(uint64_t)) {
        uint64_t one = 0;
        uint32_t half;
        uint16_t quarter;
        memcpy(&one, value[1], sizeof one);
        memcpy(&half, value[1], sizeof half);
        memcpy(&quarter, value[1], sizeof quarter);
        one = w->itemsize == 4 ? half : w->itemsize == 2 ? quarter : w->itemsize == 1 ? (uint8_t)value[1][0] : one;
        fill_below_dense(g, w->data, n, w->itemsize, one, limit);
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const char *v = value[(amp_generator_u64(g) & mask) < limit];
        char *to = walk_next(w);
        switch (w->itemsize) {
        case 1: *to = *v; break;
        case 2: memcpy(to, v, 2); break;
        case 4: memcpy(to, v, 4); break;
        default: memcpy(to, v, 8); break;
        }
    }
}

static void fill_exponential(Generator *g, Walk *w, int64_t n, int dtype, double lambda) {
    for (int64_t i = 0; i < n; i++) put_real(dtype, walk_next(w), -log1p(-amp_generator_uniform53(g)) / lambda);
}

static void fill_randint(Generator *g, Walk *w, int64_t n, int dtype, int64_t low, int64_t high) {
    uint64_t range = (uint64_t)high - (uint64_t)low;
    for (int64_t i = 0; i < n; i++) put_int(dtype, walk_next(w), (int64_t)((uint64_t)low + amp_generator_below(g, range)));
}

/* One probability per element, compared in its own precision; AMP_BAD_VALUE for one outside [0, 1]. */
static Status fill_bernoulli(Generator *g, Walk *w, const View *out, const View *probability) {
    Walk p;
    int from = probability->dtype;
    if (!amp_is_floating(from)) return AMP_BAD_DTYPE;
    walk_start(&p, probability, out);
    for (int64_t i = 0; i < out->numel; i++) {
        double limit = get_real_at(from, walk_next(&p));
        if (!(limit >= 0.0 && limit <= 1.0)) return AMP_BAD_VALUE;
        bool one = from == AMP_FLOAT64 ? amp_generator_uniform53(g) < limit : (double)amp_generator_uniform24(g) < limit;
        put_int(out->dtype, walk_next(w), one);
    }
    return AMP_OK;
}

/* Fisher-Yates from the front: n - 1 draws. */
static void shuffle(Generator *g, int64_t *v, int64_t n) {
    for (int64_t i = 0; i < n; i++) v[i] = i;
    for (int64_t i = 0; i < n - 1; i++) {
        uint64_t left = (uint64_t)(n - i);
        uint64_t draw = left >> 32 ? amp_generator_u64(g) : amp_generator_u32(g);
        int64_t j = i + (int64_t)(draw % left), keep = v[i];
        v[i] = v[j];
        v[j] = keep;
    }
}

static Status fill_randperm(Generator *g, Walk *w, const View *out) {
    int64_t n = out->numel;
    if (w->dense && out->dtype == AMP_INT64 && (uintptr_t)out->data % sizeof(int64_t) == 0) {
        shuffle(g, (int64_t *)(void *)out->data, n);
        return AMP_OK;
    }
    int64_t *v = malloc((size_t)n * sizeof *v);
    if (!v) return AMP_NO_MEMORY;
    shuffle(g, v, n);
    for (int64_t i = 0; i < n; i++) put_int(out->dtype, walk_next(w), v[i]);
    free(v);
    return AMP_OK;
}

/* Small rates: the number of uniform factors whose product stays above exp(-rate). */
static double poisson_by_product(Generator *g, double rate) {
    double count = 0.0, limit = exp(-rate);
    for (double product = amp_generator_uniform53(g); product > limit; product *= amp_generator_uniform53(g)) count++;
    return count;
}

/* Hoermann's transformed rejection (1993, algorithm PTRS) for rates of 10 and more. */
static double poisson_by_rejection(Generator *g, double rate) {
    double root = sqrt(rate), log_rate = log(rate), b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
    double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), v_squeeze = 0.9277 - 3.6224 / (b - 2.0);
    for (;;) {
        double u = amp_generator_uniform53(g) - 0.5, v = amp_generator_uniform53(g), us = 0.5 - fabs(u);
        double k = floor((2.0 * a / us + b) * u + rate + 0.43);
        if (us >= 0.07 && v <= v_squeeze) return k;
        if (k < 0.0 || (us < 0.013 && v > us)) continue;
        if (log(v) + log(inverse_alpha) - log(a / (us * us) + b) <= -rate + k * log_rate - lgamma(k + 1.0)) return k;
    }
}

/* One rate per element; AMP_BAD_VALUE for one that is negative or not finite. */
static Status fill_poisson(Generator *g, Walk *w, const View *out, const View *rates) {
    Walk r;
    if (!amp_is_floating(rates->dtype)) return AMP_BAD_DTYPE;
    walk_start(&r, rates, out);
    for (int64_t i = 0; i < out->numel; i++) {
        double rate = get_real_at(rates->dtype, walk_next(&r));
        if (!(rate >= 0.0 && rate < (double)INFINITY)) return AMP_BAD_VALUE;
        double k = rate == 0.0 ? 0.0 : rate < 10.0 ? poisson_by_product(g, rate) : poisson_by_rejection(g, rate);
        put_real(out->dtype, walk_next(w), k);
    }
    return AMP_OK;
}

Status amp_random_fill(const Call *call) {
    Generator *g = call->extra;
    View *out = call->out[0];
    const Number *num = call->num;
    int64_t n = out->numel;
    Walk w;
    bool needs_floating = call->op == OP_uniform || call->op == OP_normal || call->op == OP_exponential;
    if (amp_is_complex(out->dtype) || (needs_floating && !amp_is_floating(out->dtype))) return AMP_BAD_DTYPE;
    if (n == 0) return AMP_OK;
    walk_start(&w, out, out);
    switch (call->op) {
    case OP_uniform: fill_uniform(g, &w, n, out->dtype, get_real(&num[0], 0.0), get_real(&num[1], 1.0)); return AMP_OK;
    case OP_normal: fill_normal(g, &w, n, out->dtype, get_real(&num[0], 0.0), get_real(&num[1], 1.0)); return AMP_OK;
    case OP_bernoulli_fill: fill_below(g, &w, n, out->dtype, get_real(&num[0], 0.5)); return AMP_OK;
    case OP_dropout: fill_below(g, &w, n, out->dtype, 1.0 - get_real(&num[0], 0.5)); return AMP_OK;
    case OP_exponential: fill_exponential(g, &w, n, out->dtype, get_real(&num[0], 1.0)); return AMP_OK;
    case OP_bernoulli: return fill_bernoulli(g, &w, out, call->in[0]);
    case OP_poisson: return fill_poisson(g, &w, out, call->in[0]);
    case OP_randint: fill_randint(g, &w, n, out->dtype, num[0].i, num[1].i); return AMP_OK;
    case OP_randperm: return fill_randperm(g, &w, out);
    default: return AMP_NO_KERNEL;
    }
}
