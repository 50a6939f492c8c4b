#define _GNU_SOURCE
#include "ceiling.h"
#include "gemm.h"

#include <math.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* More chains than any core's latency times its throughput, and fewer than its registers. */
enum { CHAINS = 12, ROUNDS = 20000, CHUNKS = 16, TRIES = 6 };
static const int64_t AROUND_CACHES = 32 << 20, COPIED_PER_TRY = 64 << 20;

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- arithmetic: each chain is a <- a * x + y, so that nothing can be left out ---- */

typedef float (*Chains)(int64_t rounds, float x, float y);
typedef struct Arithmetic {
    Chains run;
    double flops; /* of a round */
} Arithmetic;

#define EACH_CHAIN _Pragma("GCC unroll 16") for (int j = 0; j < CHAINS; j++)

#if defined(__x86_64__)

/* The portable kernels multiply and add four floats at a time. */
static float chains_base(int64_t rounds, float x, float y) {
    __m128 a[CHAINS], vx = _mm_set1_ps(x), vy = _mm_set1_ps(y);
    EACH_CHAIN a[j] = _mm_set1_ps((float)j);
    for (int64_t i = 0; i < rounds; i++) EACH_CHAIN a[j] = _mm_add_ps(_mm_mul_ps(a[j], vx), vy);
    float sum = 0;
    EACH_CHAIN sum += _mm_cvtss_f32(a[j]);
    return sum;
}

__attribute__((target("avx2,fma"))) static float chains_avx2(int64_t rounds, float x, float y) {
    __m256 a[CHAINS], vx = _mm256_set1_ps(x), vy = _mm256_set1_ps(y);
    EACH_CHAIN a[j] = _mm256_set1_ps((float)j);
    for (int64_t i = 0; i < rounds; i++) EACH_CHAIN a[j] = _mm256_fmadd_ps(a[j], vx, vy);
    float sum = 0;
    EACH_CHAIN sum += _mm256_cvtss_f32(a[j]);
    return sum;
}

__attribute__((target("avx512f"))) static float chains_avx512(int64_t rounds, float x, float y) {
    __m512 a[CHAINS], vx = _mm512_set1_ps(x), vy = _mm512_set1_ps(y);
    EACH_CHAIN a[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < rounds; i++) EACH_CHAIN a[j] = _mm512_fmadd_ps(a[j], vx, vy);
    float sum = 0;
    EACH_CHAIN sum += _mm512_cvtss_f32(a[j]);
    return sum;
}

/* Here the chain is the running sum; the pairs are the bits of x and y. */
__attribute__((target("avx512f,avx512bf16"))) static float chains_bf16(int64_t rounds, float x, float y) {
    __m512 a[CHAINS];
    __m512bh vx = (__m512bh)_mm512_set1_ps(x), vy = (__m512bh)_mm512_set1_ps(y);
    EACH_CHAIN a[j] = _mm512_set1_ps((float)j);
    for (int64_t i = 0; i < rounds; i++) EACH_CHAIN a[j] = _mm512_dpbf16_ps(a[j], vx, vy);
    float sum = 0;
    EACH_CHAIN sum += _mm512_cvtss_f32(a[j]);
    return sum;
}

/* Sums in four tiles; a sixteenth of the rounds, since each is so much more. */
static float chains_amx(int64_t rounds, float x, float y) {
    (void)x, (void)y;
    gemm_amx_chains(rounds / 16);
    return 0;
}

static Arithmetic arithmetic(bool bf16) {
    const Isa isa = amp_isa();
    if (bf16 && isa == ISA_AMX) return (Arithmetic){chains_amx, GEMM_AMX_CHAIN_FLOPS / 16.0};
    if (bf16 && isa >= ISA_AVX512_BF16) return (Arithmetic){chains_bf16, 64.0 * CHAINS};
    if (isa >= ISA_AVX512) return (Arithmetic){chains_avx512, 32.0 * CHAINS};
    if (isa >= ISA_AVX2) return (Arithmetic){chains_avx2, 16.0 * CHAINS};
    return (Arithmetic){chains_base, 8.0 * CHAINS};
}

#else

static float chains_base(int64_t rounds, float x, float y) {
    float a[CHAINS], sum = 0;
    EACH_CHAIN a[j] = (float)j;
    for (int64_t i = 0; i < rounds; i++) EACH_CHAIN a[j] = a[j] * x + y;
    EACH_CHAIN sum += a[j];
    return sum;
}

static Arithmetic arithmetic(bool bf16) {
    (void)bf16;
    return (Arithmetic){chains_base, 2.0 * CHAINS};
}

#endif

static void run_chains(void *ctx, int64_t begin, int64_t end) {
    const Arithmetic *a = ctx;
    volatile float sink = 0;
    for (int64_t i = begin; i < end; i++) sink = a->run(ROUNDS, 0.5f, 1.0f);
    (void)sink;
}

double amp_ceiling_flops(bool bf16) {
    Arithmetic a = arithmetic(bf16);
    const int64_t n = (int64_t)CHUNKS * amp_get_num_threads();
    double best = 0;
    for (int i = 0; i < TRIES; i++) {
        double begin = now();
        amp_parallel_for(n, 1, run_chains, &a);
        best = fmax(best, a.flops * ROUNDS * (double)n / (now() - begin));
    }
    return best;
}

/* ---- copies ---- */

enum { COPY_UNIT = 16384 }; /* bytes */

typedef struct Copy {
    char *to;
    const char *from;
    size_t nbytes;
    bool around;
} Copy;

static void copy_around(char *to, const char *from, size_t n) {
#if defined(__x86_64__)
    for (size_t i = 0; i < n; i += 64)
        for (size_t j = i; j < i + 64; j += 16)
            _mm_stream_si128((__m128i *)(void *)(to + j), _mm_load_si128((const __m128i *)(const void *)(from + j)));
    _mm_sfence();
#else
    memcpy(to, from, n);
#endif
}

static void run_copy(void *ctx, int64_t begin, int64_t end) {
    const Copy *c = ctx;
    size_t at = (size_t)begin * COPY_UNIT, n = (size_t)(end - begin) * COPY_UNIT;
    if (c->around) copy_around(c->to + at, c->from + at, n);
    else memcpy(c->to + at, c->from + at, n);
}

double amp_ceiling_copy(size_t nbytes) {
    const size_t units = nbytes / COPY_UNIT + (nbytes < COPY_UNIT), bytes = units * COPY_UNIT;
    char *to = amp_host_alloc(AMP_CPU, bytes), *from = amp_host_alloc(AMP_CPU, bytes);
    double best = 0;
    if (to && from) {
        Copy c = {to, from, bytes, 2 * (int64_t)bytes > AROUND_CACHES};
        const int64_t repeats = COPIED_PER_TRY / (int64_t)bytes + 1;
        memset(from, 1, bytes); /* so that it has pages */
        memset(to, 1, bytes);
        for (int i = 0; i < TRIES; i++) {
            double begin = now();
            for (int64_t k = 0; k < repeats; k++) amp_parallel_for((int64_t)units, 1, run_copy, &c);
            best = fmax(best, 2.0 * (double)bytes * (double)repeats / (now() - begin));
        }
    }
    if (to) amp_host_free(AMP_CPU, to, bytes);
    if (from) amp_host_free(AMP_CPU, from, bytes);
    return best;
}
