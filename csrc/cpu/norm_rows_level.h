/* The row kernels of all formats that are computed in float32, at one instruction-set level. Needs REAL, V, NARROW, WIDE, WIDEN, TARGET, STREAM, STREAM_BYTES, and
 * LEVEL(name) the name with the level behind it; leaves REAL. */
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

#undef V
#undef STREAM
#undef STREAM_BYTES
#undef NARROW
#undef WIDE
#undef WIDEN
#undef TARGET
#undef LEVEL
