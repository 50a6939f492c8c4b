/* Micro-kernels: 28 of the 32 registers hold the tile. */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define FAMILY                  gemm_avx512_f32
#define TARGET                  __attribute__((target("avx512f")))
#define S                       float
#define V                       __m512
#define LANES                   16
#define ROWS                    14
#define BROADCAST(x)            _mm512_set1_ps(x)
#define LOAD(p)                 _mm512_loadu_ps(p)
#define STORE(p, v)             _mm512_storeu_ps(p, v)
#define MULTIPLY_ADD(x, y, sum) _mm512_fmadd_ps(x, y, sum)
#include "gemm_micro.h"

#define FAMILY                  gemm_avx512_f64
#define TARGET                  __attribute__((target("avx512f")))
#define S                       double
#define V                       __m512d
#define LANES                   8
#define ROWS                    14
#define BROADCAST(x)            _mm512_set1_pd(x)
#define LOAD(p)                 _mm512_loadu_pd(p)
#define STORE(p, v)             _mm512_storeu_pd(p, v)
#define MULTIPLY_ADD(x, y, sum) _mm512_fmadd_pd(x, y, sum)
#include "gemm_micro.h"

/* Elements of a and b are pairs of bfloat16, neighbours in k, carried as the bits of a float. Per pair the instruction makes two fused
 * multiply-adds in fp32, nearest-even. It reads denormals as zero, so that a product loses up to 2^-126 times its other factor,
 * and flushes denormal sums, beside the bound of the other kernels. */
#define FAMILY                  gemm_avx512_bf16
#define TARGET                  __attribute__((target("avx512f,avx512bf16")))
#define S                       float
#define V                       __m512
#define LANES                   16
#define ROWS                    14
#define BROADCAST(x)            _mm512_set1_ps(x)
#define LOAD(p)                 _mm512_loadu_ps(p)
#define STORE(p, v)             _mm512_storeu_ps(p, v)
#define MULTIPLY_ADD(x, y, sum) _mm512_dpbf16_ps(sum, (__m512bh)(x), (__m512bh)(y))
#include "gemm_micro.h"
#endif
