/* Loops of grid_sample.c; included once per number type and instruction set with S (number), FLOOR, RINT, FMOD, K(name), TARGET. */

/* A pixel's coordinate from one in [-1, 1], and how fast it moves with that. */
TARGET static inline S K(place)(const Sampling *s, S u, S size, S *slope) {
    S x = s->corners ? (u + 1) * ((size - 1) / 2) : ((u + 1) * size - 1) / 2;
    *slope = s->corners ? (size - 1) / 2 : size / 2;
    if (s->padding == SAMPLE_REFLECTION) {
        const S low = s->corners ? 0 : (S)-0.5, span = s->corners ? size - 1 : size;
        if (span == 0) {
            *slope = 0;
            x = x * 0;
        } else {
            const S distance = x < low ? low - x : x - low, extra = FMOD(distance, span);
            const bool odd = FMOD(FLOOR(distance / span), 2) == 1;
            *slope = (x < low) == odd ? *slope : -*slope;
            x = (odd ? span - extra : extra) + low;
        }
    }
    if (s->padding != SAMPLE_ZEROS) {
        *slope = x > 0 && x < size - 1 ? *slope : 0;
        x = x > 0 ? (x < size - 1 ? x : size - 1) : 0;
    }
    return x;
}

/* Corners and weights of n points. Comparisons with NaN are false: such a point is outside, but its weights are NaN. */
TARGET static void K(prepare)(const Sampling *s, const char *points, int64_t n, SampleChunk *chunk) {
    const S *grid = (const S *)(const void *)points, width = (S)s->width, height = (S)s->height;
    S *const wx = (S *)(void *)chunk->wx, *const wy = (S *)(void *)chunk->wy;
    S *const slope_x = (S *)(void *)chunk->slope_x, *const slope_y = (S *)(void *)chunk->slope_y;
    const S last_x = width - 2 > 0 ? width - 2 : 0, last_y = height - 2 > 0 ? height - 2 : 0;
    if (s->nearest) {
        for (int64_t i = 0; i < n; i++) {
            S x = RINT(K(place)(s, grid[2 * i], width, &slope_x[i])), y = RINT(K(place)(s, grid[2 * i + 1], height, &slope_y[i]));
            const bool inside = x >= 0 && x < width && y >= 0 && y < height;
            chunk->at[i] = inside ? (int32_t)y * (int32_t)s->width + (int32_t)x : -1;
        }
        return;
    }
    IVDEP for (int64_t i = 0; i < n; i++) {
        const S x = K(place)(s, grid[2 * i], width, &slope_x[i]), y = K(place)(s, grid[2 * i + 1], height, &slope_y[i]);
        const S x0 = FLOOR(x), y0 = FLOOR(y);
        wx[i] = x - x0;
        wy[i] = y - y0;
        /* base: the pixel from which both columns, and both rows, lie in the image; shift: by how much the point's corner differs */
        S bx = x0 > 0 ? x0 : 0, by = y0 > 0 ? y0 : 0;
        bx = bx < last_x ? bx : last_x;
        by = by < last_y ? by : last_y;
        chunk->at[i] = (int32_t)by * (int32_t)s->width + (int32_t)bx;
        chunk->dx[i] = x0 - bx == 0 ? 0 : x0 - bx == 1 ? 1 : x0 - bx == -1 ? -1 : OUTSIDE;
        chunk->dy[i] = y0 - by == 0 ? 0 : y0 - by == 1 ? 1 : y0 - by == -1 ? -1 : OUTSIDE;
    }
}

/* The four corners' values, 0 outside. */
TARGET static inline void K(corners)(const Sampling *s, const SampleChunk *chunk, int64_t i, const S *plane, S v[4]) {
    const int32_t dx = chunk->dx[i], dy = chunk->dy[i], most_x = s->width > 1, most_y = s->height > 1;
    for (int k = 0; k < 4; k++) {
        const int32_t x = dx + k % 2, y = dy + k / 2;
        const bool inside = dx != OUTSIDE && dy != OUTSIDE && x >= 0 && x <= most_x && y >= 0 && y <= most_y;
        v[k] = inside ? plane[chunk->at[i] + y * (int32_t)s->width + x] : 0;
    }
}

TARGET static void K(read)(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *from, char *to) {
    const S *plane = (const S *)(const void *)from, *wx = (const S *)(const void *)chunk->wx,
            *wy = (const S *)(const void *)chunk->wy;
    S *out = (S *)(void *)to;
    if (s->nearest) {
        for (int64_t i = 0; i < n; i++) out[i] = chunk->at[i] < 0 ? 0 : plane[chunk->at[i]];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        S v[4];
        K(corners)(s, chunk, i, plane, v);
        const S x = wx[i], y = wy[i];
        out[i] = ((v[0] * ((1 - y) * (1 - x)) + v[1] * ((1 - y) * x)) + v[2] * (y * (1 - x))) + v[3] * (y * x);
    }
}

/* plane += what the points' gradients are to it */
TARGET static void K(add)(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *grads, char *to) {
    const S *g = (const S *)(const void *)grads, *wx = (const S *)(const void *)chunk->wx,
            *wy = (const S *)(const void *)chunk->wy;
    S *plane = (S *)(void *)to;
    const int32_t most_x = s->width > 1, most_y = s->height > 1, row = (int32_t)s->width;
    if (s->nearest) {
        for (int64_t i = 0; i < n; i++)
            if (chunk->at[i] >= 0) plane[chunk->at[i]] += g[i];
        return;
    }
    for (int64_t i = 0; i < n; i++) {
        const int32_t dx = chunk->dx[i], dy = chunk->dy[i];
        const S x = wx[i], y = wy[i];
        S *p = plane + chunk->at[i];
        if ((dx | dy) == 0 && most_x && most_y) {
            p[0] += g[i] * ((1 - y) * (1 - x));
            p[1] += g[i] * ((1 - y) * x);
            p[row] += g[i] * (y * (1 - x));
            p[row + 1] += g[i] * (y * x);
            continue;
        }
        if (dx == OUTSIDE || dy == OUTSIDE) continue;
        for (int k = 0; k < 4; k++) {
            const int32_t cx = dx + k % 2, cy = dy + k / 2;
            if (cx < 0 || cx > most_x || cy < 0 || cy > most_y) continue;
            p[cy * row + cx] += g[i] * ((k / 2 ? y : 1 - y) * (k % 2 ? x : 1 - x));
        }
    }
}

/* sum_x, sum_y += g times how fast the value moves with the pixel's coordinates */
TARGET static void K(slopes)(const Sampling *s, const SampleChunk *chunk, int64_t n, const char *from, const char *grads,
                             char *sum_x, char *sum_y) {
    const S *plane = (const S *)(const void *)from, *g = (const S *)(const void *)grads;
    const S *wx = (const S *)(const void *)chunk->wx, *wy = (const S *)(const void *)chunk->wy;
    S *to_x = (S *)(void *)sum_x, *to_y = (S *)(void *)sum_y;
    for (int64_t i = 0; i < n; i++) {
        S v[4];
        K(corners)(s, chunk, i, plane, v);
        const S x = wx[i], y = wy[i];
        to_x[i] += g[i] * ((v[1] - v[0]) * (1 - y) + (v[3] - v[2]) * y);
        to_y[i] += g[i] * ((v[2] - v[0]) * (1 - x) + (v[3] - v[1]) * x);
    }
}

/* Sums of up to BLOCK channels move to float64, and from there, at the end, to the grid's gradient. */
TARGET static void K(flush)(char *sum, double *total, int64_t n) {
    S *from = (S *)(void *)sum;
    for (int64_t i = 0; i < n; i++) total[i] += (double)from[i], from[i] = 0;
}

TARGET static void K(finish)(const SampleChunk *chunk, int64_t n, const double *total_x, const double *total_y, char *grid) {
    const S *slope_x = (const S *)(const void *)chunk->slope_x, *slope_y = (const S *)(const void *)chunk->slope_y;
    S *to = (S *)(void *)grid;
    for (int64_t i = 0; i < n; i++) {
        to[2 * i] = (S)(total_x[i]) * slope_x[i];
        to[2 * i + 1] = (S)(total_y[i]) * slope_y[i];
    }
}

#undef K
#undef TARGET
