/* Plans and packing of gathered elements.
 *
 * A plan is made once per tap and used for all channels. With AVX-512 a packed vector is one or a few masked loads, which read nothing
 * outside of their lanes:
 *
 *     columns      | row 0 of the grid . . | row 1 . . . . . . . |        a grid 11 wide
 *     vector       |x x x x x x x x x x x 0|y y y y|                      two pieces: x from row 0, y from row 1, a zero at the edge
 *
 * Elsewhere runs are copied one by one. */
#include "conv.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* ------------------------------------------------------------------ plans */

static void add_run(Plan *p, int64_t at, int64_t n, int64_t from) {
    if (p->runs) {
        Run *last = &p->run[p->runs - 1];
        if (last->at + last->n == at && last->from + last->n * p->step == from) {
            last->n += (int32_t)n;
            return;
        }
    }
    p->run[p->runs++] = (Run){from, (int32_t)at, (int32_t)n};
}

static void add_segment(Plan *p, const Gather *g, const int64_t base[3], const int64_t inside[2], const Segment *s) {
    int64_t w = s->pixel % g->grid[2], row = s->pixel / g->grid[2], h = row % g->grid[1], d = row / g->grid[1];
    int64_t at = s->at;
    for (int64_t left = s->n; left > 0;) {
        const int64_t n = conv_min(left, g->grid[2] - w);
        const int64_t z = d * g->step[0] + base[0], y = h * g->step[1] + base[1];
        const int64_t first = conv_max(w, inside[0]), past = conv_min(w + n, inside[1]);
        if (z >= 0 && z < g->extent[0] && y >= 0 && y < g->extent[1] && first < past)
            add_run(p, at + first - w, past - first,
                    s->image * g->image + (z * g->extent[1] + y) * g->extent[2] + first * g->step[2] + base[2]);
        at += n, left -= n, w = 0;
        if (++h == g->grid[1]) h = 0, d++;
    }
}

static void cut_into_pieces(Plan *p) {
    int count = 0, vector = 0;
    p->first[0] = 0;
    for (int i = 0; i < p->runs; i++) {
        const Run *r = &p->run[i];
        for (int at = r->at, past = r->at + r->n; at < past;) {
            const int v = at / p->lanes, lane = at % p->lanes, n = past - at < p->lanes - lane ? past - at : p->lanes - lane;
            while (vector < v) p->first[++vector] = count;
            p->piece[count++] = (Piece){r->from + (at - r->at - lane) * p->step, (UINT32_MAX >> (32 - n)) << lane};
            at += n;
        }
    }
    const int vectors = (int)conv_divide_up(p->columns, p->lanes);
    while (vector < vectors) p->first[++vector] = count;
}

void conv_plan(Plan *p, PackForm form, const Gather *g, const int64_t base[3], int64_t columns, const Segment *segment,
               int segments) {
    p->columns = columns;
    p->step = g->step[2];
    p->lanes = form == PACK_COMPUTE ? CONV_LANES : 2 * CONV_LANES;
    p->runs = 0;
    /* columns of a grid's row that lie inside the source's row */
    int64_t inside[2] = {base[2] >= 0 ? 0 : conv_divide_up(-base[2], g->step[2]), 0};
    if (base[2] < g->extent[2]) inside[1] = (g->extent[2] - 1 - base[2]) / g->step[2] + 1;
    for (int i = 0; i < segments; i++) add_segment(p, g, base, inside, &segment[i]);
    cut_into_pieces(p);
}

/* ------------------------------------------------------------------ any machine */

static void copy_elements(char *dst, const char *src, int64_t step, int64_t n, int64_t size) {
    if (step == 1) {
        memcpy(dst, src, (size_t)(n * size));
        return;
    }
    for (int64_t i = 0; i < n; i++) memcpy(dst + i * size, src + i * step * size, (size_t)size);
}

static void read_run(char *dst, const char *src, const Run *r, int64_t step, const Gather *g, bool plain) {
    const int64_t size = (int64_t)amp_itemsize(g->dtype);
    src += r->from * size;
    if (plain || g->dtype == AMP_FLOAT64) {
        copy_elements(dst + r->at * size, src, step, r->n, size);
    } else if (step == 1) {
        gemm_widen(g->dtype, g->rounding)((float *)(void *)dst + r->at, 0, src, 0, 1, r->n);
    } else {
        float *to = (float *)(void *)dst + r->at;
        for (int64_t i = 0; i < r->n; i++) to[i] = gemm_round_input(gemm_load(src + i * step * size, g->dtype), g->rounding);
    }
}

/* A row of columns in panels. */
static void spread(const Packed *to, int64_t row, const char *line, int64_t columns, int64_t size) {
    char *dst = (char *)to->dst + row * to->row * size;
    for (int64_t j = 0; j < columns; j += to->width)
        memcpy(dst + j / to->width * to->panel * size, line + j * size, (size_t)(conv_min(to->width, columns - j) * size));
}

static void pack_anywhere(const Packed *to, PackForm form, const Plan *p, const Gather *g, int64_t channel, int64_t channels) {
    _Alignas(64) char line[2][CONV_COLUMNS * 8];
    const int64_t item = (int64_t)amp_itemsize(g->dtype), size = form == PACK_COMPUTE ? (item == 8 ? 8 : 4) : 2;
    const int64_t columns = conv_divide_up(p->columns, CONV_LANES) * CONV_LANES;
    const char *src = g->data + channel * g->channel * item;
    for (int64_t i = 0; i < channels; i++, src += g->channel * item) {
        const int64_t which = form == PACK_PAIRS ? i & 1 : 0;
        memset(line[which], 0, (size_t)(columns * size));
        for (int k = 0; k < p->runs; k++) read_run(line[which], src, &p->run[k], p->step, g, form != PACK_COMPUTE);
        if (form != PACK_PAIRS) {
            spread(to, i, line[0], columns, size);
        } else if (which || i == channels - 1) {
            uint16_t pair[2 * CONV_COLUMNS] = {0};
            for (int64_t j = 0; j < columns; j++) {
                memcpy(&pair[2 * j], line[0] + 2 * j, 2);
                if (which) memcpy(&pair[2 * j + 1], line[1] + 2 * j, 2);
            }
            spread(to, i / 2, (const char *)pair, columns, 4);
        }
    }
}

/* ------------------------------------------------------------------ AVX-512 */

#if defined(__x86_64__)
#define AVX512        __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,bmi2")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

AVX512_INLINE __m256i load_halves(const char *p, uint32_t mask, bool two) {
    if (!two) return _mm256_maskz_loadu_epi16((__mmask16)mask, p);
    return _mm512_cvtepi32_epi16(_mm512_maskz_loadu_epi16(_pdep_u32(mask, 0x55555555u), p));
}
AVX512_INLINE __m512i load_f32(const char *p, uint32_t mask, bool two) {
    if (!two) return _mm512_maskz_loadu_epi32((__mmask16)mask, p);
    const uint32_t wide = _pdep_u32(mask, 0x55555555u);
    const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i low = _mm512_maskz_loadu_epi32((__mmask16)wide, p);
    return _mm512_permutex2var_epi32(low, even, _mm512_maskz_loadu_epi32((__mmask16)(wide >> 16), p + 64));
}
AVX512_INLINE __m512i load_f16(const char *p, uint32_t mask, bool two) {
    return _mm512_castps_si512(_mm512_cvtph_ps(load_halves(p, mask, two)));
}
AVX512_INLINE __m512i load_bf16(const char *p, uint32_t mask, bool two) {
    return _mm512_slli_epi32(_mm512_cvtepu16_epi32(load_halves(p, mask, two)), 16);
}
/* 32 lanes of 16 bits */
AVX512_INLINE __m512i load_plain(const char *p, uint32_t mask, bool two) {
    if (!two) return _mm512_maskz_loadu_epi16(mask, p);
    const __m256i low = load_halves(p, mask & 0xffff, true), high = load_halves(p + 64, mask >> 16, true);
    return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}

/* All pieces of one vector of one channel. `pieces` and `two` are constants where they are 1 and 2, which is nearly always. */
#define GATHERED(name, load, size) \
    AVX512_INLINE __m512i name(const char *src, const Piece *piece, int pieces, int64_t step) { \
        const bool two = step == 2; \
        __m512i v = load(src + piece[0].from * (size), piece[0].mask, two); \
        for (int i = 1; i < pieces; i++) v = _mm512_or_si512(v, load(src + piece[i].from * (size), piece[i].mask, two)); \
        return v; \
    }
GATHERED(gathered_f32, load_f32, 4)
GATHERED(gathered_f16, load_f16, 2)
GATHERED(gathered_bf16, load_bf16, 2)
GATHERED(gathered_plain, load_plain, 2)

/* Up to two pieces in registers: the compiler cannot know that the stores leave them alone. */
#define KEEP_PIECES \
    const Piece kept[2] = {piece[0], piece[pieces > 1]}; \
    if (pieces <= 2) piece = kept;

/* dst (vectors, `row` bytes apart) from one channel after the other. */
#define COLUMN_OF(name, gathered) \
    AVX512_INLINE void name##_with(char *dst, int64_t row, const char *src, int64_t channel, int64_t channels, \
                                   const Piece *piece, int pieces, int64_t step) { \
        KEEP_PIECES \
        for (int64_t i = 0; i < channels; i++, dst += row, src += channel) \
            _mm512_storeu_si512(dst, gathered(src, piece, pieces, step)); \
    } \
    DISPATCH(name)
#define DISPATCH(name) \
    AVX512 static void name(char *dst, int64_t row, const char *src, int64_t channel, int64_t channels, const Piece *piece, \
                            int pieces, int64_t step) { \
        if (step == 2) name##_with(dst, row, src, channel, channels, piece, pieces, 2); \
        else if (pieces == 1) name##_with(dst, row, src, channel, channels, piece, 1, 1); \
        else if (pieces == 2) name##_with(dst, row, src, channel, channels, piece, 2, 1); \
        else name##_with(dst, row, src, channel, channels, piece, pieces, 1); \
    }
COLUMN_OF(column_f32, gathered_f32)
COLUMN_OF(column_f16, gathered_f16)
COLUMN_OF(column_bf16, gathered_bf16)

COLUMN_OF(column_plain, gathered_plain)

/* Two vectors of pairs: neighbours of two channels, interleaved. */
AVX512_INLINE void store_pairs(char *dst, __m512i low, __m512i high) {
    const __m512i first = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40, 8, 39, 7, 38, 6, 37, 5, 36,
                                           4, 35, 3, 34, 2, 33, 1, 32, 0);
    const __m512i second = _mm512_add_epi16(first, _mm512_set1_epi16(16));
    _mm512_storeu_si512(dst, _mm512_permutex2var_epi16(low, first, high));
    _mm512_storeu_si512(dst + 64, _mm512_permutex2var_epi16(low, second, high));
}

AVX512_INLINE void column_pairs_with(char *dst, int64_t row, const char *src, int64_t channel, int64_t channels,
                                     const Piece *piece, int pieces, int64_t step) {
    KEEP_PIECES
    int64_t i = 0;
    for (; i + 1 < channels; i += 2, dst += row, src += 2 * channel)
        store_pairs(dst, gathered_plain(src, piece, pieces, step), gathered_plain(src + channel, piece, pieces, step));
    if (i < channels) store_pairs(dst, gathered_plain(src, piece, pieces, step), _mm512_setzero_si512());
}
DISPATCH(column_pairs)

typedef void (*ColumnFn)(char *dst, int64_t row, const char *src, int64_t channel, int64_t channels, const Piece *piece,
                         int pieces, int64_t step);

static ColumnFn choose_column(PackForm form, int dtype) {
    if (form == PACK_PLAIN) return column_plain;
    if (form == PACK_PAIRS) return column_pairs;
    return dtype == AMP_FLOAT16 ? column_f16 : dtype == AMP_BFLOAT16 ? column_bf16 : column_f32;
}

static void zero_column(char *dst, int64_t row, int64_t rows, size_t bytes) {
    for (int64_t i = 0; i < rows; i++, dst += row) memset(dst, 0, bytes);
}

static void pack_avx512(const Packed *to, PackForm form, const Plan *p, const Gather *g, int64_t channel, int64_t channels) {
    const ColumnFn column = choose_column(form, g->dtype);
    const int64_t item = (int64_t)amp_itemsize(g->dtype), size = form == PACK_PLAIN ? 2 : 4;
    const int64_t rows = form == PACK_PAIRS ? conv_divide_up(channels, 2) : channels;
    const char *src = g->data + channel * g->channel * item;
    const size_t wide = form == PACK_PAIRS ? 128 : 64; /* bytes of a vector in dst */
    for (int64_t v = 0; v * p->lanes < p->columns; v++) {
        const int64_t j = v * p->lanes;
        char *dst = (char *)to->dst + (j / to->width * to->panel + j % to->width) * size;
        const Piece *piece = p->piece + p->first[v];
        const int pieces = p->first[v + 1] - p->first[v];
        if (pieces) column(dst, to->row * size, src, g->channel * item, channels, piece, pieces, p->step);
        else zero_column(dst, to->row * size, rows, wide);
        if (g->rounding != INPUT_IEEE && pieces && form == PACK_COMPUTE)
            gemm_widen(AMP_FLOAT32, g->rounding)((float *)(void *)dst, to->row, dst, to->row * 4, rows, CONV_LANES);
    }
}
#endif

void conv_pack(const Packed *to, PackForm form, const Plan *p, const Gather *g, int64_t channel, int64_t channels) {
#if defined(__x86_64__)
    if (amp_isa() >= ISA_AVX512 && g->dtype != AMP_FLOAT64 && p->step <= 2) {
        pack_avx512(to, form, p, g, channel, channels);
        return;
    }
#endif
    pack_anywhere(to, form, p, g, channel, channels);
}
