/* Tiles in memory, by the manual's words. What the machine answers with an exception (a shape that does not fit, no shapes at all) is a
 * trap here. */
#include "amx.h"

#if defined(__x86_64__) && defined(AMP_EMULATE_AMX)
#include <immintrin.h>
#include <string.h>

enum { TILES = 8, PALETTE = 1 };

static _Thread_local struct {
    bool in_use;
    AmxShapes shapes;
    _Alignas(64) uint8_t data[TILES][AMX_ROWS][AMX_ROW_BYTES];
} file;

static void must(bool fits) {
    if (!fits) __builtin_trap();
}

void amx_emulated_shape(const AmxShapes *s) {
    must(s->palette == PALETTE && s->start_row == 0);
    for (int i = 0; i < 14; i++) must(s->reserved[i] == 0);
    for (int t = 0; t < 16; t++) {
        must(s->rows[t] <= AMX_ROWS && s->row_bytes[t] <= AMX_ROW_BYTES);
        must((s->rows[t] == 0) == (s->row_bytes[t] == 0));
        must(t < TILES || s->rows[t] == 0);
    }
    memset(&file, 0, sizeof file);
    file.shapes = *s;
    file.in_use = true;
}

void amx_emulated_release(void) { memset(&file, 0, sizeof file); }

bool amx_emulated_in_use(void) { return file.in_use; }

static void check_tile(int t) { must(file.in_use && t >= 0 && t < TILES && file.shapes.rows[t] > 0); }

void amx_emulated_zero(int t) {
    check_tile(t);
    memset(file.data[t], 0, sizeof file.data[t]);
}

void amx_emulated_load(int t, const void *p, int64_t stride) {
    check_tile(t);
    memset(file.data[t], 0, sizeof file.data[t]);
    for (int i = 0; i < file.shapes.rows[t]; i++) memcpy(file.data[t][i], (const char *)p + i * stride, file.shapes.row_bytes[t]);
}

void amx_emulated_store(int t, void *p, int64_t stride) {
    check_tile(t);
    for (int i = 0; i < file.shapes.rows[t]; i++) memcpy((char *)p + i * stride, file.data[t][i], file.shapes.row_bytes[t]);
}

#define EMULATED __attribute__((target("avx512f,avx512dq"))) static inline __attribute__((always_inline))

/* Denormal elements lose all but their sign. */
EMULATED __m512 flush(__m512 x) {
    enum { DENORMAL = 0x20 };
    const __m512i sign = _mm512_set1_epi32((int)0x80000000u), bits = _mm512_castps_si512(x);
    return _mm512_castsi512_ps(_mm512_mask_and_epi32(bits, _mm512_fpclass_ps_mask(x, DENORMAL), bits, sign));
}

/* Element `second` of each pair as fp32. */
EMULATED __m512 element(__m512i pairs, bool second) {
    const __m512i high = _mm512_set1_epi32((int)0xffff0000u);
    return flush(_mm512_castsi512_ps(second ? _mm512_and_si512(pairs, high) : _mm512_slli_epi32(pairs, 16)));
}

__attribute__((target("avx512f,avx512dq"))) void amx_emulated_multiply(int c, int a, int b) {
    const AmxShapes *s = &file.shapes;
    check_tile(a);
    check_tile(b);
    check_tile(c);
    must(a != b && a != c && b != c);
    must(s->row_bytes[a] % 4 == 0 && s->row_bytes[b] % 4 == 0 && s->row_bytes[c] % 4 == 0);
    must(s->rows[c] == s->rows[a] && s->row_bytes[a] / 4 == s->rows[b] && s->row_bytes[c] == s->row_bytes[b]);
    const __mmask16 used = (__mmask16)((1u << (s->row_bytes[c] / 4)) - 1);
    for (int i = 0; i < s->rows[c]; i++) {
        __m512 sum[2] = {_mm512_setzero_ps(), _mm512_setzero_ps()};
        for (int k = 0; k < s->rows[b]; k++) {
            int32_t pair;
            memcpy(&pair, &file.data[a][i][4 * k], sizeof pair);
            const __m512i left = _mm512_set1_epi32(pair), right = _mm512_load_si512(file.data[b][k]);
            for (int j = 0; j < 2; j++) sum[j] = flush(_mm512_fmadd_ps(element(left, j), element(right, j), sum[j]));
        }
        const __m512 old = flush(_mm512_load_ps(file.data[c][i]));
        _mm512_mask_store_ps(file.data[c][i], used, flush(_mm512_add_ps(old, flush(_mm512_add_ps(sum[0], sum[1])))));
    }
    memset(file.data[c] + s->rows[c], 0, (size_t)(AMX_ROWS - s->rows[c]) * AMX_ROW_BYTES);
}
#endif
