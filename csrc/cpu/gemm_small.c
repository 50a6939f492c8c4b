/* Small and medium products on AVX512: as few passes over the operands as there can be, and no blocks of k:
 *
 *     for each part of the rows or columns          what a thread takes; one, if another thread is not worth it
 *         for each panel of 32 columns of b         (48, if no more are left) copied to [k][32] if it isn't that already (dense rows of the compute type)
 *             for each 14 (or 32) rows of a         a micro-kernel: the sums over the whole k, bias, rounding, result
 *
 *     compute type    a element of a, one of b        a in place                     b in place
 *     fp32            floats                          fp32, any strides              fp32, dense rows
 *     bf16            pairs of neighbours in k        dense rows of an even length   never: two rows have to be zipped
 *     bf16 on tiles   likewise                        those, an even distance apart  never
 *     fp16            floats, widened                 never                          never
 *
 * A copy of `a` keeps the dense dimension dense ([row][k] or [k][row]): the kernels broadcast single elements, so it need not be turned.
 * On tiles (gemm_amx.c) a copy is [row][k], and sums come through memory.
 * The same bits as gemm.c gives: each element is one chain over k in order, then the bias, then one rounding. */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#include <stdatomic.h>

#include "bf16_x86.h"

/* The last panel may be wide: kernels for 16 columns or less would spend their time on reading elements of a. */
enum { SMALL_ROWS = 14, TILE_ROWS = GEMM_MAX_ROWS, SMALL_COLS = GEMM_MAX_COLS, WIDE_ROWS = 9, WIDE_COLS = 48 };

enum { SMALL_PLAIN, SMALL_NARROW, SMALL_ROUND }; /* fp32; the 16-bit type; fp32 rounded to values of the 16-bit type */

/* Strides in bytes, of elements of 4 bytes in a and b. */
typedef struct SmallTile {
    const char *a, *b;
    char *c;
    int64_t k, a_row, a_col, b_row, c_row;
    const float *bias; /* of these columns, whole vectors; NULL: none */
    uint64_t mask;     /* of columns */
    int store;
} SmallTile;

typedef void (*SmallFn)(const SmallTile *t);

#define FAMILY                  small_f32
#define TARGET                  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#define MULTIPLY_ADD(x, y, sum) _mm512_fmadd_ps(x, y, sum)
#define NARROW(x)               _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT)
#define NARROW_TWO(x, y)        _mm512_inserti64x4(_mm512_castsi256_si512(NARROW(x)), NARROW(y), 1)
#define ROUND(x)                _mm512_cvtph_ps(NARROW(x))
#define ROUND_TWO(x, y)         (*(x) = ROUND(*(x)), *(y) = ROUND(*(y)))
#define NARROWS_DENORMALS       1
#include "gemm_small_micro.h"

/* 32 values to bfloat16 at once, and each to the upper half of a word again. */
__attribute__((target("avx512f,avx512bw,avx512bf16"), always_inline)) static inline void round_two_bf16(__m512 *x, __m512 *y) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    const __m512i first = _mm512_slli_epi32(lane, 16), second = _mm512_or_si512(first, _mm512_set1_epi32(16 << 16));
    const __m512i narrow = (__m512i)_mm512_cvtne2ps_pbh(*y, *x);
    *x = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, first, narrow));
    *y = _mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xaaaaaaaa, second, narrow));
}

/* The sums themselves are never denormal (gemm_avx512.c), so only a bias makes such values. */
#define FAMILY                  small_bf16
#define TARGET                  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define MULTIPLY_ADD(x, y, sum) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(y))
#define NARROW(x)               (__m256i) _mm512_cvtneps_pbh(x)
#define NARROW_TWO(x, y)        (__m512i) _mm512_cvtne2ps_pbh(y, x)
#define ROUND(x)                _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(NARROW(x)), 16))
#define ROUND_TWO(x, y)         round_two_bf16(x, y)
#define NARROWS_DENORMALS       0
#include "gemm_small_micro.h"

/* Elements: a panel of b, and the rows of a that meet it, stay in the second-level cache. */
enum { MOST_DEPTH = 1024, PART = 128 * 1024 };
static const double MOST_FLOPS = 1.5e8, SERIAL_FLOPS = 1.3e6; /* 11 us in float32 on one thread; times MicroSet's speed */

typedef struct Small {
    const Product *p;
    InputRounding rounding;
    bool pairs, a_in_place, b_in_place;
    int store;
    int64_t depth, pitch; /* k in elements of the compute type; of rows of a copy of a */
    const SmallFn (*fn)[3];
    const MicroSet *tiles; /* instead of fn, or NULL */
    char *a, *b;
    float *bias;
} Small;

/* The set instead of the kernels of this file, or NULL. */
static inline const MicroSet *tiles_for(const Product *p) {
    return p->a.dtype == AMP_BFLOAT16 && amp_isa() == ISA_AMX ? gemm_micro_set(false, true) : NULL;
}

static inline int64_t min64(int64_t x, int64_t y) { return x < y ? x : y; }

/* A row that is added to each row of the result, as it is. */
static bool is_bias(const Product *p) { return p->d.row == 0 && p->d.batch == 0 && p->beta.f == 1; }

bool gemm_is_small(const Product *p) {
    if (amp_isa() < ISA_AVX512 || 2.0 * (double)p->m * (double)p->n * (double)p->k > MOST_FLOPS) return false;
    if (!gemm_in_pairs(p) && p->a.dtype != AMP_FLOAT32 && p->a.dtype != AMP_FLOAT16) return false;
    if (p->k > MOST_DEPTH) return false;
    if (p->k == 0 || p->c.col != 1 || p->alpha.f != 1 || (p->d.data && !is_bias(p))) return false;
    return p->c.dtype == AMP_FLOAT32 || (p->c.dtype == p->a.dtype && !p->c.via);
}

static Source source_of(const Small *s, const Matrix *x, int64_t batch) {
    const int64_t size = (int64_t)amp_itemsize(x->dtype);
    return (Source){gemm_at(x, batch, 0, 0), x->row * size, x->col * size, x->dtype, s->rounding};
}

static Source turned(const Source *x) { return (Source){x->data, x->col, x->row, x->dtype, x->rounding}; }

/* Where the kernels read a. */
static void place_a(Small *s, int64_t batch, SmallTile *t) {
    const Product *p = s->p;
    const Source src = source_of(s, &p->a, batch);
    if (s->a_in_place) {
        t->a = src.data;
        t->a_row = src.row;
        t->a_col = s->pairs ? 4 : src.col;
        return;
    }
    const bool along_rows = p->a.row == 1 && p->a.col != 1 && !s->tiles;
    const int64_t pitch = along_rows ? p->m : s->pitch;
    const Source down = turned(&src);
    t->a = s->a;
    t->a_row = along_rows ? 4 : 4 * pitch;
    t->a_col = along_rows ? 4 * pitch : 4;
    if (s->pairs && along_rows) gemm_load_pairs_down(s->a, pitch, &down, p->k, p->m);
    else if (s->pairs) gemm_load_pairs_along(s->a, pitch, &src, p->m, p->k);
    else if (along_rows) gemm_load_block(s->a, pitch, &down, p->k, p->m);
    else gemm_load_block(s->a, pitch, &src, p->m, p->k);
}

/* Where they read the panel of b from column `col` on. */
static void place_b(Small *s, const Source *b, int64_t col, int64_t cols, int64_t pitch, SmallTile *t) {
    Source src = *b;
    src.data += col * b->col;
    if (s->b_in_place) {
        t->b = src.data;
        t->b_row = src.row;
        return;
    }
    t->b = s->b;
    t->b_row = 4 * pitch;
    if (s->pairs) gemm_load_pairs_down(s->b, pitch, &src, s->p->k, cols);
    else gemm_load_block(s->b, pitch, &src, s->p->k, cols);
}

/* The sums of a micro-tile to registers, row by row, and on as the other kernels do. */
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"))) static void finish_rows(SmallTile t, const float *sums,
                                                                                                 int64_t rows, bool wide) {
    for (int64_t i = 0; i < rows; i++, sums += SMALL_COLS, t.c += t.c_row) {
        __m512 sum[SMALL_ROWS][3];
        sum[0][0] = _mm512_load_ps(sums);
        if (wide) {
            sum[0][1] = _mm512_load_ps(sums + 16);
            finish_small_bf16(1, 2, &t, sum);
        } else {
            finish_small_bf16(1, 1, &t, sum);
        }
    }
}

static __attribute__((noinline)) void multiply_on_tiles(const MicroSet *tiles, const SmallTile *t, int64_t rows, bool wide) {
    _Alignas(64) float sums[GEMM_TILE_BYTES / 4];
    tiles->fn[rows - 1][wide](t->k, t->a, t->a_row / 4, 1, t->b, t->b_row / 4, sums, SMALL_COLS, false);
    finish_rows(*t, sums, rows, wide);
}

static bool has_wide(const Small *s) {
    return !s->tiles && s->p->n > SMALL_COLS && (s->p->n - 1) % SMALL_COLS < WIDE_COLS - SMALL_COLS;
}

static void run_one(Small *s, int64_t batch) {
    const Product *p = s->p;
    SmallTile t = {.k = s->depth, .store = s->store, .c_row = p->c.row * (int64_t)amp_itemsize(p->c.dtype)};
    const Source b = source_of(s, &p->b, batch);
    const bool ends_wide = has_wide(s);
    place_a(s, batch, &t);
    const char *const a = t.a;
    for (int64_t col = 0, cols; col < p->n; col += cols) {
        const bool wide = ends_wide && p->n - col <= WIDE_COLS;
        cols = min64(wide ? WIDE_COLS : SMALL_COLS, p->n - col);
        const int64_t most = s->tiles ? TILE_ROWS : wide ? WIDE_ROWS : SMALL_ROWS, heights = (p->m + most - 1) / most;
        const int64_t step = (p->m + heights - 1) / heights; /* even heights */
        place_b(s, &b, col, cols, wide ? WIDE_COLS : SMALL_COLS, &t);
        t.mask = UINT64_MAX >> (64 - cols);
        t.bias = s->bias ? s->bias + col : NULL;
        t.c = gemm_at(&p->c, batch, 0, col);
        t.a = a;
        for (int64_t row = 0; row < p->m; row += step) {
            const int64_t rows = min64(step, p->m - row);
            if (s->tiles) multiply_on_tiles(s->tiles, &t, rows, cols > 16);
            else s->fn[rows - 1][(cols - 1) / 16](&t);
            t.a += rows * t.a_row;
            t.c += rows * t.c_row;
        }
    }
}

/* Rows of a at a large power of two meet in one cache set. */
static bool crowded(const Matrix *a, int64_t size) { return a->col == 1 && a->row * size % 2048 == 0; }

static Status run_alone(const Product *p, InputRounding rounding, int64_t begin, int64_t end) {
    const bool pairs = p->a.dtype == AMP_BFLOAT16, plain = p->a.dtype == AMP_FLOAT32 && rounding == INPUT_IEEE;
    Small s = {.p = p, .rounding = rounding, .pairs = pairs, .fn = pairs ? small_bf16 : small_f32};
    s.tiles = tiles_for(p);
    s.depth = pairs ? (p->k + 1) / 2 : p->k;
    s.pitch = s.tiles ? ((s.depth + 15) / 16 | 1) * 16 : s.depth; /* for tiles, an odd number of lines */
    s.store = p->c.dtype != AMP_FLOAT32 ? SMALL_NARROW : p->c.via ? SMALL_ROUND : SMALL_PLAIN;
    s.a_in_place = (pairs ? p->a.col == 1 && p->k % 2 == 0 : plain) && !(s.tiles && p->a.row % 2) &&
                   !(p->m > 8 && crowded(&p->a, pairs ? 2 : 4));
    s.b_in_place = plain && p->b.col == 1;
    const int64_t panels = (p->n + SMALL_COLS - 1) / SMALL_COLS;
    const int64_t bias = p->d.data ? panels * SMALL_COLS : 0,
                  b = s.b_in_place ? 0 : s.depth * (has_wide(&s) ? WIDE_COLS : SMALL_COLS);
    const int64_t a = s.a_in_place ? 0 : p->m * s.pitch;
    float *memory = gemm_scratch((size_t)(bias + b + a + 1) * sizeof *memory);
    if (!memory) return AMP_NO_MEMORY;
    s.b = (char *)memory;
    s.bias = bias ? memory + b : NULL;
    s.a = (char *)(memory + b + bias);
    if (bias) {
        const Source d = source_of(&s, &p->d, 0);
        gemm_load_block(s.bias, 0, &(Source){d.data, d.row, d.col, d.dtype, INPUT_IEEE}, 1, p->n);
        memset(s.bias + p->n, 0, (size_t)(bias - p->n) * sizeof *s.bias);
    }
    for (int64_t batch = begin; batch < end; batch++) run_one(&s, batch);
    if (s.tiles) gemm_release(s.tiles);
    return AMP_OK;
}

/* Parts of the rows or of the columns, products of their own: copies that several parts need are made by each of them, which costs
 * less than waiting for the one who makes them. */
typedef struct Parts {
    const Product *p;
    InputRounding rounding;
    int64_t begin, end, size; /* batches; rows or columns of a part */
    bool of_rows;
    atomic_int status;
} Parts;

static void run_parts(void *ctx, int64_t begin, int64_t end) {
    Parts *all = ctx;
    for (int64_t i = begin; i < end; i++) {
        Product p = *all->p;
        const int64_t first = i * all->size;
        Matrix *const moved[] = {all->of_rows ? &p.a : &p.b, &p.c, &p.d};
        for (int j = 0; j < 3; j++)
            if (moved[j]->data) moved[j]->data = gemm_at(moved[j], 0, all->of_rows ? first : 0, all->of_rows ? 0 : first);
        if (all->of_rows) p.m = min64(all->size, p.m - first);
        else p.n = min64(all->size, p.n - first);
        const Status status = run_alone(&p, all->rounding, all->begin, all->end);
        if (status) atomic_store(&all->status, (int)status);
    }
}

/* Whether parts are of rows: then all of b is copied for each, so they should be high; of columns: then all of a is. */
static bool by_rows(const Product *p) { return p->m > p->n || p->m * p->k > PART; }

/* At most so many rows that the second-level cache holds them. */
static int64_t rows_of_part(const Product *p, int64_t threads) {
    const int64_t most = PART / p->k + SMALL_ROWS, parts = ((p->m + most - 1) / most + threads - 1) / threads * threads;
    return ((p->m + parts - 1) / parts + SMALL_ROWS - 1) / SMALL_ROWS * SMALL_ROWS;
}

static int64_t columns_of_part(const Product *p, int64_t threads) {
    return ((p->n + threads - 1) / threads + SMALL_COLS - 1) / SMALL_COLS * SMALL_COLS;
}

Status gemm_small(const Product *p, InputRounding rounding, int64_t begin, int64_t end) {
    const double speed = tiles_for(p) ? tiles_for(p)->speed : 1;
    const bool serial = 2.0 * (double)p->m * (double)p->n * (double)p->k < SERIAL_FLOPS * speed;
    const int64_t threads = serial ? 1 : amp_get_num_threads();
    Parts all = {.p = p, .rounding = rounding, .begin = begin, .end = end, .of_rows = by_rows(p)};
    all.size = all.of_rows ? rows_of_part(p, threads) : columns_of_part(p, threads);
    const int64_t parts = ((all.of_rows ? p->m : p->n) + all.size - 1) / all.size;
    if (parts == 1) return run_alone(p, rounding, begin, end);
    atomic_init(&all.status, AMP_OK);
    amp_parallel_for(parts, serial ? parts : 1, run_parts, &all);
    return (Status)atomic_load(&all.status);
}
#else
bool gemm_is_small(const Product *p) {
    (void)p;
    return false;
}

Status gemm_small(const Product *p, InputRounding rounding, int64_t begin, int64_t end) {
    (void)p, (void)rounding, (void)begin, (void)end;
    return AMP_BAD_DTYPE;
}
#endif
