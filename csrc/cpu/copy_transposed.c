/* Copies between tensors whose innermost dimensions differ, 2 or 4 bytes per element, with AVX-512: squares of 16 by 16 change places in
 * registers, so that both sides are read and written by whole lines.
 *
 *     in   dense along q    | q q q q          out   dense along p    | p p p p
 *                         p |                                       q |               everything else: planes            */
#include "../core/backend.h"

#include <string.h>

#include "copy_transposed.h"

#if defined(__x86_64__)
#include "transpose_x86.h"

enum { SIDE = 16, LEAST = 8, GRAIN_BYTES = 64 * 1024, LINE = 8 }; /* LINE: squares along q that one unit walks */

typedef struct Planes {
    const char *from;
    char *to;
    int64_t item, p, q;       /* sizes of the two dimensions */
    int64_t from_row, to_row; /* bytes: from p to p + 1 in `from`, from q to q + 1 in `to` */
    int nd;                   /* the other dimensions */
    int64_t shape[AMP_MAX_DIMS], in[AMP_MAX_DIMS], out[AMP_MAX_DIMS]; /* bytes */
    int64_t down, across;                                             /* units of a plane */
} Planes;

#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))

/* `rows` of p by `cols` of q */
AVX512 static inline void square(const Planes *s, const char *from, char *to, int64_t rows, int64_t cols) {
    const __mmask16 right = amp_first16(cols), down = amp_first16(rows);
    __m512i r[16];
    const bool words = s->item == 4;
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++) {
        const __mmask16 m = i < rows ? right : 0;
        const char *row = from + (i < rows ? i : 0) * s->from_row;
        r[i] = words ? _mm512_maskz_loadu_epi32(m, row) : _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, row));
    }
    amp_transpose_16(r);
#pragma GCC unroll 16
    for (int j = 0; j < 16; j++) {
        if (j >= cols) break;
        if (words) _mm512_mask_storeu_epi32(to + j * s->to_row, down, r[j]);
        else _mm256_mask_storeu_epi16(to + j * s->to_row, down, _mm512_cvtepi32_epi16(r[j]));
    }
}

AVX512 static void run_units(void *context, int64_t begin, int64_t end) {
    const Planes *s = context;
    for (int64_t unit = begin; unit < end; unit++) {
        int64_t plane = unit / (s->down * s->across), p = unit / s->across % s->down * SIDE, q = unit % s->across * SIDE * LINE;
        const char *from = s->from + p * s->from_row + q * s->item;
        char *to = s->to + q * s->to_row + p * s->item;
        for (int d = s->nd - 1; d >= 0; d--) {
            from += plane % s->shape[d] * s->in[d];
            to += plane % s->shape[d] * s->out[d];
            plane /= s->shape[d];
        }
        const int64_t rows = s->p - p < SIDE ? s->p - p : SIDE, past = s->q - q < SIDE * LINE ? s->q - q : SIDE * LINE;
        for (int64_t i = 0; i < past; i += SIDE)
            square(s, from + i * s->item, to + i * s->to_row, rows, past - i < SIDE ? past - i : SIDE);
    }
}

bool amp_copy_transposed(View *out, const View *in) {
    Planes s = {.from = in->data, .to = out->data, .item = (int64_t)amp_itemsize(out->dtype)};
    int p = -1, q = -1;
    if (amp_isa() < ISA_AVX512 || in->dtype != out->dtype || (s.item != 2 && s.item != 4)) return false;
    for (int d = 0; d < out->ndim; d++) {
        if (out->shape[d] == 1) continue;
        if (out->stride[d] == 1) p = d;
        if (in->stride[d] == 1) q = d;
    }
    if (p < 0 || q < 0 || p == q || out->shape[p] < LEAST || out->shape[q] < LEAST) return false;
    int64_t planes = 1;
    for (int d = 0; d < out->ndim; d++) {
        if (d == p || d == q || out->shape[d] == 1) continue;
        s.shape[s.nd] = out->shape[d];
        s.in[s.nd] = in->stride[d] * s.item;
        s.out[s.nd++] = out->stride[d] * s.item;
        planes *= out->shape[d];
    }
    s.p = out->shape[p];
    s.q = out->shape[q];
    s.from_row = in->stride[p] * s.item;
    s.to_row = out->stride[q] * s.item;
    s.down = (s.p + SIDE - 1) / SIDE;
    s.across = (s.q + SIDE * LINE - 1) / (SIDE * LINE);
    amp_parallel_for(planes * s.down * s.across, GRAIN_BYTES / (SIDE * SIDE * LINE * s.item) + 1, run_units, &s);
    return true;
}
#else
bool amp_copy_transposed(View *out, const View *in) {
    (void)out, (void)in;
    return false;
}
#endif
