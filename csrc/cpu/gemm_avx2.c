/* Micro-kernels: 12 of the 16 registers hold the tile. */
#include "gemm.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define FAMILY                  gemm_avx2_f32
#define TARGET                  __attribute__((target("avx2,fma")))
#define S                       float
#define V                       __m256
#define LANES                   8
#define ROWS                    6
#define BROADCAST(x)            _mm256_set1_ps(x)
#define LOAD(p)                 _mm256_loadu_ps(p)
#define STORE(p, v)             _mm256_storeu_ps(p, v)
#define MULTIPLY_ADD(x, y, sum) _mm256_fmadd_ps(x, y, sum)
#include "gemm_micro.h"

#define FAMILY                  gemm_avx2_f64
#define TARGET                  __attribute__((target("avx2,fma")))
#define S                       double
#define V                       __m256d
#define LANES                   4
#define ROWS                    6
#define BROADCAST(x)            _mm256_set1_pd(x)
#define LOAD(p)                 _mm256_loadu_pd(p)
#define STORE(p, v)             _mm256_storeu_pd(p, v)
#define MULTIPLY_ADD(x, y, sum) _mm256_fmadd_pd(x, y, sum)
#include "gemm_micro.h"
#endif
