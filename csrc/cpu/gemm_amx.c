/* Micro-kernels on the tiles of AMX, for pairs of bfloat16. A micro-tile of 32x32 sums is four tiles:
 *
 *                        b, 16 rows of pairs at a time
 *                        | tile 6 | tile 7 |
 *              +--------++--------+--------+
 *     a, rows  | tile 4 || tile 0 | tile 1 |      16 rows, and the rest of 32;
 *              | tile 5 || tile 2 | tile 3 |      one vector: tiles 1, 3 and 7 are not used
 *              +--------++--------+--------+
 *
 * Shapes say how many rows tiles have, and tiles keep them from one kernel to the next: loading shapes costs as much as several steps.
 * So whoever calls kernels calls gemm_release afterwards, on the same thread, before it may sleep or return.
 *
 * A step multiplies 16 pairs, fewer at the end of a line of k, filled up with zeros. It sums them by itself before it adds to c (amx.h):
 * where steps begin is part of the result. From k = 0 on they begin at multiples of 16, also across calls, as long as calls but the last
 * have a multiple of 16 pairs. */
#define _DEFAULT_SOURCE
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "amx.h"
#include "transpose_x86.h"

enum { STEP = 16, LANES = 16, ROWS = 32, WORD = 4, ROW = AMX_ROW_BYTES };
_Static_assert((int)ROWS <= (int)GEMM_MAX_ROWS && ROWS * GEMM_MAX_COLS * 4 <= (int)GEMM_TILE_BYTES, "what others reserve");

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl")))

/* Rows of the micro-tile that this thread's tiles are shaped for; 0: released. */
static _Thread_local int shaped;

static void shape(int rows) {
    const uint8_t high = (uint8_t)(rows < AMX_ROWS ? rows : AMX_ROWS), low = (uint8_t)(rows - high);
    AmxShapes s = {.palette = 1, .rows = {high, high, low, low, high, low, AMX_ROWS, AMX_ROWS}};
    for (int t = 0; t < 8; t++) s.row_bytes[t] = s.rows[t] ? ROW : 0;
    amx_shape(&s);
    shaped = rows;
}

static void release(void) {
    if (!shaped) return;
    amx_release();
    shaped = 0;
}

/* ------------------------------------------------------------------ operands that no tile can read as they lie */

/* The first n words. */
AVX512 static inline __mmask16 words(int64_t n) { return amp_first16(n < 0 ? 0 : n); }

AVX512 static void turn_rows(char *dst, const char *a, int64_t a_col, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i += 16) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++)
            r[k] = k < n ? _mm512_maskz_loadu_epi32(words(rows - i), a + (k * a_col + i) * WORD) : _mm512_setzero_si512();
        amp_transpose_16(r);
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) _mm512_store_si512(dst + (i + k) * ROW, r[k]);
    }
}

/* dst[i][k] = a[i][k], n of STEP columns, the others zero; dst holds ROWS rows of a tile. */
AVX512 static void take_rows(char *dst, const char *a, int64_t a_row, int64_t a_col, int64_t rows, int64_t n) {
    if (a_row == 1 && a_col != 1) {
        turn_rows(dst, a, a_col, rows, n);
        return;
    }
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    for (int64_t i = 0; i < rows; i++, a += a_row * WORD, dst += ROW) {
        if (a_col == 1) {
            _mm512_store_si512(dst, _mm512_maskz_loadu_epi32(words(n), a));
        } else if (a_col == 2) { /* nothing is read beyond word 2n - 2 */
            const __m512i x = _mm512_maskz_loadu_epi32(words(2 * n - 1), a),
                          y = _mm512_maskz_loadu_epi32(words(2 * n - 17), a + ROW);
            _mm512_store_si512(dst, _mm512_maskz_permutex2var_epi32(words(n), x, even, y));
        } else {
            memset(dst, 0, ROW);
            for (int64_t k = 0; k < n; k++) memcpy(dst + k * WORD, a + k * a_col * WORD, WORD);
        }
    }
}

/* dst[k] = the vectors of row k of b, n of STEP rows, the others zero. */
AVX512 static void take_steps(char *dst, const char *b, int64_t b_row, const int32_t *at, int64_t second, int vectors,
                              int64_t n) {
    for (int64_t k = 0; k < STEP; k++, dst += 2 * ROW) {
        const char *from = b + (k >= n ? 0 : at ? at[k] : k * b_row) * WORD;
        for (int j = 0; j < vectors; j++)
            _mm512_store_si512(dst + j * ROW, _mm512_maskz_loadu_epi32(words(k < n ? LANES : 0), from + j * second * WORD));
    }
}

/* ------------------------------------------------------------------ the kernel */

/* Strides in elements, as the kernels' arguments of gemm.h. */
typedef struct Operands {
    int64_t lines, line;
    const char *a;
    int64_t a_row, a_col, a_line;
    const char *b;
    int64_t b_row;
    const int32_t *at; /* or NULL */
    int64_t second;
    char *c;
    int64_t c_row;
    bool add;
    const char *ahead; /* or NULL */
    int64_t ahead_step;
} Operands;

static inline void load_sums(bool low, bool right, const char *c, int64_t stride) {
    AMX_LOAD(0, c, stride);
    if (right) AMX_LOAD(1, c + ROW, stride);
    if (low) AMX_LOAD(2, c + AMX_ROWS * stride, stride);
    if (low && right) AMX_LOAD(3, c + AMX_ROWS * stride + ROW, stride);
}

static inline void zero_sums(bool low, bool right) {
    AMX_ZERO(0);
    if (right) AMX_ZERO(1);
    if (low) AMX_ZERO(2);
    if (low && right) AMX_ZERO(3);
}

static inline void store_sums(bool low, bool right, char *c, int64_t stride) {
    AMX_STORE(0, c, stride);
    if (right) AMX_STORE(1, c + ROW, stride);
    if (low) AMX_STORE(2, c + AMX_ROWS * stride, stride);
    if (low && right) AMX_STORE(3, c + AMX_ROWS * stride + ROW, stride);
}

static inline void multiply_step(bool low, bool right, const char *a, int64_t a_stride, const char *b, int64_t b_stride) {
    AMX_LOAD(4, a, a_stride);
    AMX_LOAD(6, b, b_stride);
    AMX_MULTIPLY(0, 4, 6);
    if (low) {
        AMX_LOAD(5, a + AMX_ROWS * a_stride, a_stride);
        AMX_MULTIPLY(2, 5, 6);
    }
    if (right) {
        AMX_LOAD(7, b + ROW, b_stride);
        AMX_MULTIPLY(1, 4, 7);
        if (low) AMX_MULTIPLY(3, 5, 7);
    }
}

static void multiply(int rows, int vectors, const Operands *x) {
    _Alignas(64) char left[ROWS * ROW], right[STEP * 2 * ROW];
    const bool low = rows > AMX_ROWS, wide = vectors == 2;
    const char *b = x->b, *ahead = x->ahead;
    const int32_t *at = x->at;
    if (shaped != rows) shape(rows);
    if (x->add) load_sums(low, wide, x->c, x->c_row * WORD);
    else zero_sums(low, wide);
    for (int64_t i = 0; i < x->lines; i++) {
        const char *a = x->a + i * x->a_line * WORD;
        for (int64_t k = x->line; k > 0; k -= STEP) {
            const int64_t n = k < STEP ? k : STEP;
            const bool a_lies = n == STEP && x->a_col == 1, b_lies = n == STEP && !at;
            if (!a_lies) take_rows(left, a, x->a_row, x->a_col, rows, n);
            if (!b_lies) take_steps(right, b, x->b_row, at, x->second, vectors, n);
            for (int64_t j = 0; ahead && j < n; j++, ahead += x->ahead_step) __builtin_prefetch(ahead, 0, 2);
            multiply_step(low, wide, a_lies ? a : left, a_lies ? x->a_row * WORD : ROW, b_lies ? b : right,
                          b_lies ? x->b_row * WORD : 2 * ROW);
            a += n * x->a_col * WORD;
            if (at) at += n;
            else b += n * x->b_row * WORD;
        }
    }
    store_sums(low, wide, x->c, x->c_row * WORD);
}

#define KERNEL(r, v) \
    static void kernel_##r##x##v(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row, void *c, \
                                 int64_t c_row, bool add) { \
        multiply(r, v, &(Operands){1, k, a, a_row, a_col, 0, b, b_row, NULL, LANES, c, c_row, add, NULL, 0}); \
    } \
    static void kernel_at_##r##x##v(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, const int32_t *at, \
                                    int64_t second, void *c, int64_t c_row, bool add) { \
        multiply(r, v, &(Operands){1, k, a, a_row, a_col, 0, b, 0, at, second, c, c_row, add, NULL, 0}); \
    } \
    static void kernel_in_##r##x##v(int64_t lines, int64_t line, const void *a, int64_t a_row, int64_t a_col, int64_t a_line, \
                                    const void *b, int64_t b_row, void *c, int64_t c_row, bool add) { \
        multiply(r, v, &(Operands){lines, line, a, a_row, a_col, a_line, b, b_row, NULL, LANES, c, c_row, add, NULL, 0}); \
    }
#define KERNELS(r) \
    KERNEL(r, 1) \
    KERNEL(r, 2) \
    static void kernel_ahead_##r(int64_t k, const void *a, int64_t a_row, int64_t a_col, const void *b, int64_t b_row, void *c, \
                                 int64_t c_row, bool add, const void *ahead, int64_t ahead_step) { \
        multiply(r, 2, &(Operands){1, k, a, a_row, a_col, 0, b, b_row, NULL, LANES, c, c_row, add, ahead, ahead_step}); \
    }
#define ENTRY(r)       {kernel_##r##x1, kernel_##r##x2},
#define AT_ENTRY(r)    {kernel_at_##r##x1, kernel_at_##r##x2},
#define IN_ENTRY(r)    {kernel_in_##r##x1, kernel_in_##r##x2},
#define AHEAD_ENTRY(r) kernel_ahead_##r,

/* No statement ends these lines, which the formatter does not understand. */
/* clang-format off */
#define EACH(X) \
    X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) X(16) \
    X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31) X(32)
EACH(KERNELS)
static const MicroFn fn[ROWS][2] = {EACH(ENTRY)};
static const MicroAtFn fn_at[ROWS][2] = {EACH(AT_ENTRY)};
static const MicroInFn fn_in[ROWS][2] = {EACH(IN_ENTRY)};
static const MicroAheadFn fn_ahead[ROWS] = {EACH(AHEAD_ENTRY)};
/* clang-format on */

const MicroSet gemm_amx_bf16 = {.rows = ROWS,
                                .lanes = LANES,
                                .step = STEP,
                                .speed = 8,
                                .fn = fn,
                                .at = fn_at,
                                .in = fn_in,
                                .ahead = fn_ahead,
                                .release = release};

void gemm_amx_chains(int64_t rounds) {
    shape(ROWS);
    for (; rounds > 0; rounds--) {
        AMX_MULTIPLY(0, 4, 6);
        AMX_MULTIPLY(2, 5, 6);
        AMX_MULTIPLY(1, 4, 7);
        AMX_MULTIPLY(3, 5, 7);
    }
    release();
}

/* ------------------------------------------------------------------ whether they may run */

/* The system saves tiles only for processes that ask; it refuses, say, if a thread has a small stack for signals. */
static bool permitted(void) {
#if defined(AMP_EMULATE_AMX)
    return true;
#elif defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023, TILE_DATA = 18 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, TILE_DATA) == 0;
#else
    return false;
#endif
}

/* Integers so small that every sum is exact. */
static int element_of_a(int64_t i, int64_t k) { return (int)((i * 5 + k * 3) % 15) - 7; }
static int element_of_b(int64_t k, int64_t j) { return (int)((k * 7 + j * 11) % 13) - 6; }

static uint16_t small_integer(int x) {
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return (uint16_t)(bits >> 16);
}

/* c = a @ b, then c += a @ b, of `rows` rows and 2 * `pairs` of k, by the kernels themselves; every sum is compared. */
static bool is_exact(int rows, int vectors, int64_t pairs) {
    enum { MOST = 20, COLS = 32 };
    _Alignas(64) uint16_t a[ROWS][MOST][2], b[MOST][COLS][2];
    _Alignas(64) float c[ROWS][COLS];
    for (int64_t k = 0; k < 2 * pairs; k++) {
        for (int64_t i = 0; i < rows; i++) a[i][k / 2][k % 2] = small_integer(element_of_a(i, k));
        for (int64_t j = 0; j < COLS; j++) b[k / 2][j][k % 2] = small_integer(element_of_b(k, j));
    }
    for (int add = 0; add < 2; add++) fn[rows - 1][vectors - 1](pairs, a, MOST, 1, b, COLS, c, COLS, add);
    bool exact = true;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < LANES * vectors; j++) {
            int sum = 0;
            for (int64_t k = 0; k < 2 * pairs; k++) sum += element_of_a(i, k) * element_of_b(k, j);
            exact &= c[i][j] == (float)(2 * sum);
        }
    return exact;
}

bool gemm_amx_works(void) {
    if (!permitted()) return false;
    const bool exact = is_exact(ROWS, 2, STEP) && is_exact(ROWS, 2, 20) && is_exact(21, 2, 17) && is_exact(7, 1, 5);
    release();
    return exact;
}
#else
bool gemm_amx_works(void) { return false; }
void gemm_amx_chains(int64_t rounds) { (void)rounds; }
#endif
