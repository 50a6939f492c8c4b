/* Reductions: kernels that fold runs of values, and the walk over kept and reduced dimensions. */
#ifndef AMP_REDUCE_H
#define AMP_REDUCE_H
#include "../core/backend.h"
#include "../core/numeric.h"
#include "../core/ops.h"

/* What is accumulated. Values are read as FLOAT32, FLOAT64, INT64 or COMPLEX128, by some folds in a narrower format of their own; sums
 * and products of either float are kept in float64, which loses next to nothing and cannot overflow from float32 squares. */
typedef enum Fold {
    FOLD_SUM,
    FOLD_SUM_WIDE, /* without a rounding to float32 on the way: for what is then subtracted */
    FOLD_PROD,
    FOLD_MAX,
    FOLD_MIN,
    FOLD_COUNT, /* values that are not zero; int64 */
    FOLD_ABS_SUM,
    FOLD_ABS_MAX,
    FOLD_ABS_MIN,
    FOLD_SQUARES,   /* of x * num[0] */
    FOLD_POWERS,    /* |x * num[0]| ^ num[1] */
    FOLD_DEVIATION, /* (x - num[0])^2 */
    FOLD_KINDS
} Fold;

typedef union Accumulator {
    double f64;
    float f32;
    int32_t i32;
    int64_t i64;
    AmpComplex c128;
} Accumulator;

/* fold: one accumulator takes n dense values. rows: accumulators [0, n) take one value each from every row; rows are `step` bytes
 * apart. Columns are held in registers in groups of AMP_FOLD_COLUMNS, so few long rows are better given one at a time. */
typedef void (*FoldFn)(void *acc, const char *x, int64_t n, const double *num);
typedef void (*RowsFn)(void *acc, const char *x, int64_t n, int64_t rows, int64_t step, const double *num);
typedef struct FoldKernel {
    FoldFn fold;
    RowsFn rows;
    int acc; /* dtype of the accumulator; 0 (bool): no such kernel */
} FoldKernel;
FoldKernel amp_fold_kernel(Fold fold, int load_dtype);

enum { AMP_FOLD_LANES = 16, AMP_FOLD_COLUMNS = 32, AMP_FOLD_BLOCK = 4096 };

/* The dimensions of a reduction, merged. Steps in bytes. */
typedef struct ReducePlan {
    int nkept, nreduced, in_dtype, out_dtype;
    char *in, *out, *out2;
    int64_t kept, reduced; /* numbers of elements */
    int64_t kept_shape[AMP_MAX_DIMS], kept_in[AMP_MAX_DIMS], kept_out[AMP_MAX_DIMS], kept_out2[AMP_MAX_DIMS];
    int64_t shape[AMP_MAX_DIMS], step[AMP_MAX_DIMS];
} ReducePlan;
/* keep_order: reduced dimensions stay in their order, so that positions in them mean something. */
void amp_reduce_plan(ReducePlan *plan, const Call *call, bool keep_order);

Status amp_reduce(const Call *call);
Status amp_reduce_index(const Call *call); /* argmax argmin max_dim min_dim */

#endif
