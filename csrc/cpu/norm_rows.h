/* Layer and RMS normalisation of rows that stay in the caches between passes. */
#ifndef AMP_NORM_ROWS_H
#define AMP_NORM_ROWS_H
#include "norm_walk.h"

/* NORM_LONG_ROW: elements; three arrays of so many stay in a second-level cache. */
enum { NORM_LONG_ROW = 16 * 1024 };

/* Rows from `begin` to `end`, dense, of the plan's one group and length 1; all of x, y (or g, x, dx) of one stored format.
 *
 *   rows        statistics, and y
 *   rows_grad   dx from the statistics, and dw += sum of g (x - mean) rstd, db += sum of g, both of the compute format, or both NULL */
typedef struct NormRowKernels {
    void (*rows)(const Norm *s, int64_t begin, int64_t end);
    void (*rows_grad)(const Norm *s, int64_t begin, int64_t end, char *dw, char *db);
} NormRowKernels;

/* At the instruction-set level in use; NULL for a format that has none. */
const NormRowKernels *amp_norm_row_kernels(int dtype);

/* Each level's own. */
const NormRowKernels *amp_norm_rows_f64(void);
const NormRowKernels *amp_norm_rows_baseline(int dtype);
const NormRowKernels *amp_norm_rows_avx2(int dtype);
const NormRowKernels *amp_norm_rows_avx512(int dtype);
const NormRowKernels *amp_norm_rows_avx512_bf16(void);

#endif
