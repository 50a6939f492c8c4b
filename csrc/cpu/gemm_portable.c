/* Micro-kernels for any machine with 16-byte vectors: products are rounded before they are added. */
#include "gemm.h"

typedef float Float4 __attribute__((vector_size(16), aligned(4), may_alias));
typedef double Double2 __attribute__((vector_size(16), aligned(8), may_alias));

#define FAMILY gemm_portable_f32
#define TARGET
#define S                       float
#define V                       Float4
#define LANES                   4
#define ROWS                    6
#define BROADCAST(x)            ((Float4){(x), (x), (x), (x)})
#define LOAD(p)                 (*(const Float4 *)(p))
#define STORE(p, v)             (*(Float4 *)(p) = (v))
#define MULTIPLY_ADD(x, y, sum) ((sum) + (x) * (y))
#include "gemm_micro.h"

#define FAMILY gemm_portable_f64
#define TARGET
#define S                       double
#define V                       Double2
#define LANES                   2
#define ROWS                    6
#define BROADCAST(x)            ((Double2){(x), (x)})
#define LOAD(p)                 (*(const Double2 *)(p))
#define STORE(p, v)             (*(Double2 *)(p) = (v))
#define MULTIPLY_ADD(x, y, sum) ((sum) + (x) * (y))
#include "gemm_micro.h"
