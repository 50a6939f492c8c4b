/* Loops over one row of an image and one row of a kernel; included once per (number type S, instruction set) with K(name) and TARGET.
 *
 * Element i of the output's row and tap t meet element  i * step + base + t * dilation  of the input's row, if it is there. */

/* The range of i for which that is so. */
TARGET static inline __attribute__((always_inline)) void K(range)(int64_t n, int64_t extent, int64_t step, int64_t at,
                                                                  int64_t *first, int64_t *past) {
    *first = at >= 0 ? 0 : (-at + step - 1) / step;
    *past = at < extent ? (extent - 1 - at) / step + 1 : 0;
    if (*past > n) *past = n;
}

/* y[i] += w[t] * x[..] for all taps in order */
TARGET static void K(read)(S *restrict y, int64_t n, const S *restrict x, int64_t extent, const S *restrict w, const Taps *t) {
    for (int64_t k = 0; k < t->taps; k++) {
        const int64_t at = t->base + k * t->dilation;
        const S factor = w[k];
        int64_t first, past;
        K(range)(n, extent, t->step, at, &first, &past);
        if (t->step == 1) {
            for (int64_t i = first; i < past; i++) y[i] += factor * x[i + at];
        } else {
            for (int64_t i = first; i < past; i++) y[i] += factor * x[i * t->step + at];
        }
    }
}

/* x[..] += w[t] * y[i] */
TARGET static void K(write)(S *restrict x, int64_t extent, const S *restrict y, int64_t n, const S *restrict w, const Taps *t) {
    for (int64_t k = 0; k < t->taps; k++) {
        const int64_t at = t->base + k * t->dilation;
        const S factor = w[k];
        int64_t first, past;
        K(range)(n, extent, t->step, at, &first, &past);
        if (t->step == 1) {
            for (int64_t i = first; i < past; i++) x[i + at] += factor * y[i];
        } else {
            for (int64_t i = first; i < past; i++) x[i * t->step + at] += factor * y[i];
        }
    }
}

/* w[t] += the sum over i of y[i] * x[..], formed in 16 lanes */
TARGET static void K(sum)(S *restrict w, const S *restrict y, int64_t n, const S *restrict x, int64_t extent, const Taps *t) {
    for (int64_t k = 0; k < t->taps; k++) {
        const int64_t at = t->base + k * t->dilation;
        S lane[16] = {0};
        int64_t first, past, i;
        K(range)(n, extent, t->step, at, &first, &past);
        for (i = first; i + 16 <= past; i += 16) {
            if (t->step == 1)
                for (int l = 0; l < 16; l++) lane[l] += y[i + l] * x[i + l + at];
            else
                for (int l = 0; l < 16; l++) lane[l] += y[i + l] * x[(i + l) * t->step + at];
        }
        for (int l = 0; i < past; i++, l++) lane[l] += y[i] * x[i * t->step + at];
        for (int half = 8; half; half /= 2)
            for (int l = 0; l < half; l++) lane[l] += lane[l + half];
        w[k] += lane[0];
    }
}

#undef K
#undef TARGET
