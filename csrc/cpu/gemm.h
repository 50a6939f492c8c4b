/* Matrix products: what the files gemm*.c share.
 *
 *   gemm.c            the slot; chooses the path, blocks, threads, epilogue
 *   gemm_reference.c  every dtype, every stride, every numeric switch, by plain loops; the oracle
 *   gemm_skinny.c     at most four rows or columns: no packing
 *   gemm_small.c      small and medium ones on AVX512: no blocks;  gemm_small_micro.h: its micro-kernels
 *   gemm_pack.c       operands to the layout of the micro-kernels;  gemm_convert.c: rows of narrow formats to fp32 and back
 *   gemm_micro.h      the micro-kernel's body;  gemm_avx512.c gemm_avx2.c gemm_portable.c: its instruction sets
 *   gemm_amx.c        micro-kernels on tiles;  amx.h: the instructions;  gemm_split.c: fp16 and TF32 for them */
#ifndef AMP_GEMM_H
#define AMP_GEMM_H
#include "../core/backend.h"
#include "cpu_features.h"
#include "../core/numeric.h"

/* A matrix per batch entry. Strides count elements. */
typedef struct Matrix {
    char *data; /* NULL: absent */
    int64_t batch, row, col;
    int dtype;
    int via; /* of a result: the 16-bit dtype that values are rounded to on their way to a wider one; 0: none */
} Matrix;

/* c = alpha * a @ b + beta * d with a (m, k), b (k, n), c and d (m, n). d is absent if beta is 0. */
typedef struct Product {
    int64_t batches, m, n, k;
    Matrix a, b, c, d;
    Number alpha, beta;
    Numerics numerics;
} Product;

Status amp_gemm(const Call *call);
Status amp_gemm_reference(const Call *call);

/* AMP_BAD_DTYPE for bool and complex formats of 16-bit parts. */
Status gemm_describe(const Call *call, Product *p);
Status gemm_by_loops(const Product *p);

static inline char *gemm_at(const Matrix *x, int64_t batch, int64_t row, int64_t col) {
    return x->data + (batch * x->batch + row * x->row + col * x->col) * (int64_t)amp_itemsize(x->dtype);
}

/* One element of a floating format as fp32 (not FLOAT64), and back with one rounding. */
static inline float gemm_load(const char *p, int dtype) {
    uint16_t h;
    float f;
    switch (dtype) {
    case AMP_FLOAT16: memcpy(&h, p, sizeof h); return amp_f16_to_f32(h);
    case AMP_BFLOAT16: memcpy(&h, p, sizeof h); return amp_bf16_to_f32(h);
    case AMP_FLOAT8_E5M2: return amp_e5m2_to_f32((uint8_t)*p);
    case AMP_FLOAT8_E4M3FN: return amp_e4m3_to_f32((uint8_t)*p);
    default: memcpy(&f, p, sizeof f); return f;
    }
}

static inline void gemm_store(char *p, int dtype, float f) {
    uint16_t h;
    switch (dtype) {
    case AMP_FLOAT16:
        h = amp_f32_to_f16(f);
        memcpy(p, &h, sizeof h);
        return;
    case AMP_BFLOAT16:
        h = amp_f32_to_bf16(f);
        memcpy(p, &h, sizeof h);
        return;
    case AMP_FLOAT8_E5M2: *p = (char)amp_f32_to_e5m2(f); return;
    case AMP_FLOAT8_E4M3FN: *p = (char)amp_f32_to_e4m3(f); return;
    default: memcpy(p, &f, sizeof f);
    }
}

/* How an fp32 operand enters the product. */
static inline float gemm_round_input(float f, InputRounding rounding) {
    if (rounding == INPUT_TF32) return amp_round_tf32(f);
    if (rounding == INPUT_BF16) return amp_bf16_to_f32(amp_f32_to_bf16(f));
    return f;
}

/* ---- micro-kernels (gemm_micro.h) ---- */

/* GEMM_TILE_BYTES: of any micro-tile in rows of GEMM_MAX_COLS, 32 rows of fp32 or 14 of fp64. */
enum { GEMM_MAX_ROWS = 32, GEMM_MAX_COLS = 32, GEMM_TILE_BYTES = 4096 };

/* c (rows, vectors * lanes) = [c +] a @ b. Elements are float or double; a has any strides, rows of b and c are dense. */
typedef void (*MicroFn)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row, void *c,
                        int64_t c_row, bool add);

/* The same with row i of b at b + at[i], and its second vector at b + at[i] + second (elements). */
typedef void (*MicroAtFn)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, const int32_t *at,
                          int64_t second, void *c, int64_t c_row, bool add);

/* The same with k = lines * line: elements of a row of a follow each other at a_col within a line, and lines at a_line. */
typedef void (*MicroInFn)(int64_t lines, int64_t line, const void *a, int64_t a_row, int64_t a_col, int64_t a_line, const void *b,
                          int64_t b_row, void *c, int64_t c_row, bool add);

/* MicroFn of two vectors, which also asks for the line at ahead + i * ahead_step (bytes) at its i-th step over k, for a later call. */
typedef void (*MicroAheadFn)(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row, void *c,
                             int64_t c_row, bool add, const void *ahead, int64_t ahead_step);

/* What every set takes: a and b of any strides. What it is fast at: with step > 1, dense rows of a, and calls of a multiple of `step`
 * along k (of each line, if it comes in lines). There sums are formed step by step, and so a product's result depends on where its calls
 * begin: at multiples of step, and where shapes alone say. */
typedef struct MicroSet {
    int rows, lanes, step;
    int speed;                /* about: how many times as fast as multiply-adds; what is worth another thread grows by it */
    const MicroFn (*fn)[2];   /* [rows - 1][vectors - 1] */
    const MicroAtFn (*at)[2]; /* likewise */
    const MicroInFn (*in)[2];
    const MicroAheadFn *ahead; /* [rows - 1] */
    void (*release)(void);     /* or NULL; through gemm_release */
} MicroSet;

/* A thread that has called kernels gives back what they hold, before it may sleep or return to who doesn't know of them. */
static inline void gemm_release(const MicroSet *set) {
    if (set->release) set->release();
}

extern const MicroSet gemm_portable_f32, gemm_portable_f64;
#if defined(__x86_64__)
extern const MicroSet gemm_avx2_f32, gemm_avx2_f64, gemm_avx512_f32, gemm_avx512_f64, gemm_avx512_bf16, gemm_amx_bf16;
#endif

/* Multiplies tiles of zeros in registers, four products of so many operations a round; only at the level amx. */
enum { GEMM_AMX_CHAIN_FLOPS = 4 * 2 * 16 * 16 * 32 };
void gemm_amx_chains(int64_t rounds);

/* The set at the level in use. pairs: elements are pairs of bfloat16; only where amp_isa_bf16_pairs(). */
const MicroSet *gemm_micro_set(bool fp64, bool pairs);
/* Whether elements of this product are pairs: it says so by m n k alone, whatever the path. */
bool gemm_in_pairs(const Product *p);

/* ---- conversion and layout (gemm_convert.c, gemm_pack.c) ---- */

/* Rows of `cols` neighbours to or from fp32. Strides: elements on the fp32 side, bytes on the other. */
typedef void (*WidenFn)(float *dst, int64_t dst_row, const char *src, int64_t src_row, int64_t rows, int64_t cols);
typedef void (*NarrowFn)(char *dst, int64_t dst_row, const float *src, int64_t src_row, int64_t rows, int64_t cols);
WidenFn gemm_widen(int dtype, InputRounding rounding);
NarrowFn gemm_narrow(int dtype);
/* Rows of fp32, rounded to the values of a 16-bit dtype. */
WidenFn gemm_round(int dtype);

/* tile = alpha * tile + beta * d over whole rows of GEMM_MAX_COLS; rows of d are d_row apart, 0: one for all. */
typedef void (*ScaleFn)(float *tile, int64_t rows, float alpha, float beta, const float *d, int64_t d_row);
ScaleFn gemm_scale(void);

/* A matrix to read blocks from, in bytes. */
typedef struct Source {
    const char *data;
    int64_t row, col;
    int dtype;
    InputRounding rounding;
} Source;

/* dst[i][j] = src[i][j] as fp32 (fp64 if src is). Reads along whichever dimension is dense. */
void gemm_load_block(void *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t cols);

/* Pairs of bfloat16 that are neighbours in k, 4 bytes, for the kernels that multiply pairs; an odd last one is paired with zero.
 *   gemm_load_pairs_down    src (k, cols):  dst[i][j] = src[2i][j], src[2i + 1][j]
 *   gemm_load_pairs_along   src (rows, k):  dst[i][j] = src[i][2j], src[i][2j + 1] */
void gemm_load_pairs_down(void *dst, int64_t dst_row, const Source *src, int64_t k, int64_t cols);
void gemm_load_pairs_along(void *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t k);

/* The same for fp16, and fp32 that is rounded to TF32, as high and low parts (gemm_split.c): GEMM_SPLIT_SPAN elements of k become
 * GEMM_SPLIT_WORDS pairs, and so do fewer at the end. At most GEMM_MAX_COLS columns; whole vectors are written. gemm_can_split: all values
 * of a matrix can be. */
enum { GEMM_SPLIT_SPAN = 32, GEMM_SPLIT_WORDS = 64 };
void gemm_load_split_down(void *dst, int64_t dst_row, const Source *src, int64_t k, int64_t cols);
void gemm_load_split_along(void *dst, int64_t dst_row, const Source *src, int64_t rows, int64_t k);
bool gemm_can_split(const Source *src, int64_t rows, int64_t cols);

/* dst[i][j] = src[i][j], rounded once (to dst->via, if that is set); dst has any strides. */
void gemm_store_block(const Matrix *dst, int64_t batch, int64_t row, int64_t col, const void *src, int64_t src_row, int64_t rows,
                      int64_t cols);

/* Grow-only memory of this thread, 64-byte aligned; NULL if there is none. Valid until the thread asks again. */
void *gemm_scratch(size_t nbytes);

/* ---- few rows (gemm_skinny.c) ---- */

enum { GEMM_SKINNY = 4 };
bool gemm_is_skinny(const Product *p);
Status gemm_skinny(const Product *p, InputRounding rounding, int64_t batch);

/* ---- small and medium (gemm_small.c) ---- */

bool gemm_is_small(const Product *p);
/* Batches [begin, end). */
Status gemm_small(const Product *p, InputRounding rounding, int64_t begin, int64_t end);

#endif
