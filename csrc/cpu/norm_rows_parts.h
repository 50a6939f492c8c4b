/* What every instance of norm_rows_template.h builds on: registers, and how formats without a conversion are read and written. Include
 * first. */
#ifndef AMP_NORM_ROWS_PARTS_H
#define AMP_NORM_ROWS_PARTS_H
#include "vectorize.h"

#if !defined(__clang__)
#pragma GCC optimize("no-tree-loop-distribute-patterns") /* a short memset starts slowly */
#endif

#include <math.h>
#include <string.h>

#include "lanes.h"
#include "norm_rows.h"
#include "stream.h"

enum { BLOCK = 8 };

typedef float Narrow2 __attribute__((vector_size(8)));
typedef float Narrow4 __attribute__((vector_size(16)));
typedef float Narrow8 __attribute__((vector_size(32)));
typedef float Narrow16 __attribute__((vector_size(64)));
typedef double Wide2 __attribute__((vector_size(16)));
typedef double Wide4 __attribute__((vector_size(32)));
typedef double Wide8 __attribute__((vector_size(64)));

/* Formats without a conversion. */
#define COPY_IN(to, p)         memcpy(to, p, sizeof *(p)*AMP_LANES)
#define COPY_PART_IN(to, p, n) memset(to, 0, sizeof *(p)*AMP_LANES), memcpy(to, p, sizeof *(p) * (size_t)(n))
#define COPY_OUT(p, v)         memcpy(p, v, sizeof *(p)*AMP_LANES)
#define COPY_PART_OUT(p, v, n) memcpy(p, v, sizeof *(p) * (size_t)(n))

#endif
