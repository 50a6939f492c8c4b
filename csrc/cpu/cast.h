/* Conversion of runs of elements: the base of every kernel that computes in another format than it stores. */
#ifndef AMP_CAST_H
#define AMP_CAST_H
#include "../core/backend.h"

/* n elements from dense `src` to dense `dst`; exact aliasing only if the element sizes agree. */
typedef void (*CastFn)(const char *src, char *dst, int64_t n);

/* n elements, steps in bytes (0 and negative allowed in the source). Any two dtypes, one rounding. The runs do not overlap unless they
 * are the same run of same-sized elements. */
void amp_convert(int src_dtype, const char *src, int64_t src_step, int dst_dtype, char *dst, int64_t dst_step, int64_t n);

/* One number in a dtype's own bits, rounded once; dst has room for 16 bytes. */
void amp_convert_number(const Number *number, int dst_dtype, char *dst);

/* The format in which arithmetic on a dtype is done: FLOAT32, FLOAT64, INT64 (bool too) or COMPLEX128. Converting to it is exact. */
int amp_compute_dtype(int dtype);

/* The vector version of one conversion at the level in use, or NULL. cast_x86.c */
CastFn amp_cast_vector(int src_dtype, int dst_dtype);
CastFn amp_cast_wide(int src_dtype, int dst_dtype); /* cast_wide.c */
/* The same, and plain copies, with stores that go around the caches, for outputs that would not stay in them anyway. The same bits. The
 * runs must not overlap. */
CastFn amp_cast_stream(int src_dtype, int dst_dtype);

/* An output that is larger than this is better written around the caches: its beginning would be gone when somebody reads it. */
enum { AMP_STREAMED_BYTES = 32 << 20 };

enum { AMP_STRIP = 512, AMP_MAX_ITEM = 16 }; /* elements converted at a time: four buffers stay inside the L1 cache */

#endif
