/* The row kernels of norm_rows.h for float64. */
#include "norm_rows_parts.h"

#define REAL         double
#define STREAM       STREAM_16
#define STREAM_BYTES 16
#define V            Wide2
#define NARROW       Wide2
#define WIDE         Wide2
#define WIDEN(v)     __builtin_convertvector(v, Wide2)
#define TARGET
#define T         F64
#define K(name)   name##_f64
#define TAKE      COPY_IN
#define TAKE_PART COPY_PART_IN
#define GIVE      COPY_OUT
#define GIVE_PART COPY_PART_OUT
#include "norm_rows_template.h"

const NormRowKernels *amp_norm_rows_f64(void) { return &kernels_f64; }
