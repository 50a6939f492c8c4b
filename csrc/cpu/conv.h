/* Convolutions: what the files conv*.c share.
 *
 *   conv.c                the slot: describes the call, chooses the path
 *   conv_gather.c         which elements of an image meet which pixels, and their way into the layout of the micro-kernels
 *   conv_product.c        output and input gradient as products with gathered panels
 *   conv_padded.c         the same at stride 1 without gathering, where few columns are wasted
 *   conv_direct.c         the same with output channels in the lanes of vectors, where grids are small or strides are 2
 *   conv_weight.c         weight gradient as a product with gathered rows
 *   conv_weight_padded.c  the same at stride 1 without gathering, where sums over pixels are long enough
 *   conv_depthwise.c      one input channel per group: plane by plane, nothing is gathered
 *   conv_reference.c      every dtype by plain loops; the oracle
 *
 * There is one trilinear form over the input x (N, G C, in...), the weight w (G O, C, kernel...) and the output's side y (N, G O, out...):
 *
 *     sum  y[n, g O + o, q] * w[g O + o, c, k] * x[n, g C + c, q * stride + k * dilation - padding]
 *
 * and each of the three kinds of call is its derivative by one of the three. */
#ifndef AMP_CONV_H
#define AMP_CONV_H
#include "gemm.h"

typedef enum ConvKind { CONV_OUTPUT, CONV_INPUT, CONV_WEIGHT } ConvKind;

/* Always three spatial dimensions; missing ones lead, with size 1. All tensors are dense. */
typedef struct Conv {
    ConvKind kind;
    int dtype;
    InputRounding rounding;
    int64_t images, groups, in_channels, out_channels; /* channels: of one group */
    int64_t in[3], out[3], kernel[3], stride[3], padding[3], dilation[3];
    int64_t in_pixels, out_pixels, taps;
    char *x, *w, *y;  /* one of them is written */
    const View *bias; /* per channel of what is written, or NULL */
} Conv;

Status amp_conv(const Call *call);
Status amp_conv_reference(const Call *call);

Status conv_product(const Conv *c);
Status conv_weight(const Conv *c);
bool conv_weight_is_padded(const Conv *c);
Status conv_weight_padded(const Conv *c);
bool conv_is_padded(const Conv *c);
/* The offset in a padded copy of each (channel, tap): kernel[1] x kernel[2] taps a channel, into `at`. */
void conv_place(const Conv *c, int64_t channels, int64_t plane, int64_t pitch, int32_t *at);
Status conv_padded(const Conv *c);
bool conv_is_direct(const Conv *c);
Status conv_direct(const Conv *c);
bool conv_is_depthwise(const Conv *c);
Status conv_depthwise(const Conv *c);
Status conv_reference(const Conv *c);

/* The bias of channel i in the compute type; 0 if there is none. */
static inline double conv_bias(const Conv *c, int64_t i) {
    double d;
    if (!c->bias) return 0;
    const char *p = c->bias->data + i * c->bias->stride[0] * (int64_t)amp_itemsize(c->dtype);
    if (c->dtype != AMP_FLOAT64) return (double)gemm_load(p, c->dtype);
    memcpy(&d, p, sizeof d);
    return d;
}

static inline int64_t conv_min(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t conv_max(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t conv_divide_up(int64_t a, int64_t b) { return a / b + (a % b != 0); } /* a >= 0 */

/* How a tile of A with `rows` rows of k elements lies: by columns, or by rows an odd number of lines apart if its kernels want them dense. */
static inline void conv_lay_out(const MicroSet *micro, int64_t rows, int64_t k, int64_t *row, int64_t *col, int64_t *elements) {
    *row = micro->step > 1 ? (conv_divide_up(k, 16) | 1) * 16 : 1;
    *col = micro->step > 1 ? 1 : rows;
    *elements = micro->step > 1 ? rows * *row : rows * k;
}

/* Where rows of a result go. */
typedef struct ConvTarget {
    char *data;
    int64_t row; /* elements */
    int dtype;
} ConvTarget;

/* n neighbours of `rows` rows of a tile, plus their bias (or NULL), to element `at` of their rows; false, and nothing is done, below AVX-512
 * and for fp64. */
bool conv_store_fast(const ConvTarget *to, int64_t at, const char *tile, int64_t pitch, const float *bias, int64_t rows,
                     int64_t n);

/* ---- gathering (conv_gather.c) ----
 *
 * Columns are pixels of a grid, row-major. Column q and a tap meet the source's pixel  q * step + base,  dimension by dimension, or
 * nothing where that lies outside: zero. */
typedef struct Gather {
    int64_t grid[3], step[3], extent[3];
    int64_t image, channel; /* distances, elements */
    const char *data;       /* image 0, channel 0 */
    int dtype;
    InputRounding rounding;
} Gather;

/* Columns [at, at + n) are pixels [pixel, pixel + n) of one image. */
typedef struct Segment {
    int64_t at, n, image, pixel;
} Segment;

enum { CONV_COLUMNS = 512, CONV_LANES = 16 }; /* most columns of a plan; columns of a vector */

/* Columns [at, at + n) read the elements from, from + step, ... of a channel. */
typedef struct Run {
    int64_t from;
    int32_t at, n;
} Run;

/* Lanes of one vector that one masked load fills: lane i reads the element from + i * step. Vectors have 16 lanes, or 32 for forms that
 * keep 16 bits. */
typedef struct Piece {
    int64_t from;
    uint32_t mask;
} Piece;

/* What rows of gathered elements become. */
typedef enum PackForm {
    PACK_COMPUTE, /* fp32, or fp64 */
    PACK_PLAIN,   /* bfloat16 as it is, neighbours in a row */
    PACK_PAIRS    /* 32 bits: channels 2 i and 2 i + 1 of a column in row i; without the latter, zero */
} PackForm;

typedef struct Plan {
    int64_t columns, step;
    int lanes;
    int runs;
    Run run[CONV_COLUMNS];
    int32_t first[CONV_COLUMNS / CONV_LANES + 1]; /* pieces of vector v: first[v] .. first[v + 1] */
    Piece piece[CONV_COLUMNS + CONV_COLUMNS / CONV_LANES];
} Plan;

/* Ascending runs for `columns` columns, those outside of segments and of the source left out. For conv_pack with the same form. */
void conv_plan(Plan *p, PackForm form, const Gather *g, const int64_t base[3], int64_t columns, const Segment *segment,
               int segments);

/* Rows of the plan's columns, one per channel from `channel` on (PACK_PAIRS: one per two of `channels`). The columns are cut into panels:
 * column j of row i goes to  dst[j / width * panel + i * row + j % width].  All columns up to a whole vector are written. */
typedef struct Packed {
    void *dst;
    int64_t row, panel, width; /* elements of the form */
} Packed;
void conv_pack(const Packed *to, PackForm form, const Plan *p, const Gather *g, int64_t channel, int64_t channels);

#endif
