/* The row kernels of norm_rows.h at one instruction-set level, each level in a file of its own: the sanitizers' instrumentation takes a
 * minute over one. Needs V (a register of float), NARROW (half of one), WIDE (a register of double), WIDEN(v) from NARROW to WIDE, TARGET
 * (function attribute), STREAM, STREAM_BYTES, and LEVEL(name), which puts the level behind a name. */
#include "norm_rows_parts.h"

#define REAL      float
#define T         F32
#define K(name)   LEVEL(name##_f32)
#define TAKE      COPY_IN
#define TAKE_PART COPY_PART_IN
#define GIVE      COPY_OUT
#define GIVE_PART COPY_PART_OUT
#include "norm_rows_template.h"

#define T         B16
#define K(name)   LEVEL(name##_b16)
#define TAKE      LEVEL(load_B16)
#define TAKE_PART LEVEL(part_B16)
#define GIVE      LEVEL(store_B16)
#define GIVE_PART LEVEL(store_part_B16)
#include "norm_rows_template.h"

#define T         H16
#define K(name)   LEVEL(name##_h16)
#define TAKE      LEVEL(load_H16)
#define TAKE_PART LEVEL(part_H16)
#define GIVE      LEVEL(store_H16)
#define GIVE_PART LEVEL(store_part_H16)
#include "norm_rows_template.h"

const NormRowKernels *LEVEL(amp_norm_rows)(int dtype) {
    return dtype == AMP_FLOAT32    ? &LEVEL(kernels_f32)
           : dtype == AMP_BFLOAT16 ? &LEVEL(kernels_b16)
           : dtype == AMP_FLOAT16  ? &LEVEL(kernels_h16)
                                   : NULL;
}
