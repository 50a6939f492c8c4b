/* The row kernels of norm_rows.h without vector extensions. */
#include "norm_rows_parts.h"

#define STREAM       STREAM_16
#define STREAM_BYTES 16
#define V            Narrow4
#define NARROW       Narrow2
#define WIDE         Wide2
#define WIDEN(v)     __builtin_convertvector(v, Wide2)
#define TARGET
#define LEVEL(name) name##_baseline
#include "norm_rows_level.h"
