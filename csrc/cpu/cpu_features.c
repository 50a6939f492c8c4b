/* What the CPU and the operating system allow; the only file that asks CPUID.
 *
 *     level         needs (each includes the ones above)
 *     baseline      -
 *     avx2          AVX2 FMA F16C BMI1 BMI2                 XCR0: SSE, AVX state
 *     avx512        AVX512 F BW DQ VL CD                    XCR0: opmask, ZMM state
 *     avx512_bf16   AVX512 BF16
 *     amx           AMX-TILE AMX-BF16                       XCR0: tile state; the system's permission, a test (gemm_amx.c)
 *
 * A CPUID bit alone is not enough: XCR0 says whether the system saves the registers at a task switch. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_features.h"

#if defined(__x86_64__)
#include <cpuid.h>

enum { XCR0_AVX = 0x6, XCR0_AVX512 = 0xe6, XCR0_AMX = 0x60000 };

static uint64_t read_xcr0(void) {
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return ((uint64_t)high << 32) | low;
}

static bool has(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

#ifdef AMP_EMULATE_AMX
enum { EMULATED = 1 };
#else
enum { EMULATED = 0 };
#endif

static int detect(void) {
    uint32_t a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return ISA_BASELINE;
    if (!has(c, bit_OSXSAVE | bit_AVX | bit_FMA | bit_F16C)) return ISA_BASELINE;
    uint64_t xcr0 = read_xcr0();
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return ISA_BASELINE;
    if ((xcr0 & XCR0_AVX) != XCR0_AVX || !has(b, bit_AVX2 | bit_BMI | bit_BMI2)) return ISA_BASELINE;
    const uint32_t avx512 = bit_AVX512F | bit_AVX512BW | bit_AVX512DQ | bit_AVX512VL | bit_AVX512CD;
    if ((xcr0 & XCR0_AVX512) != XCR0_AVX512 || !has(b, avx512)) return ISA_AVX2;
    const bool tiles = has(d, (1u << 24) | (1u << 22)); /* leaf 7, edx: AMX-TILE, AMX-BF16 */
    if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !has(a, 1u << 5)) return ISA_AVX512;
    return EMULATED || (tiles && (xcr0 & XCR0_AMX) == XCR0_AMX) ? ISA_AMX : ISA_AVX512_BF16;
}

static bool detect_amd(void) {
    uint32_t a, b, c, d;
    return __get_cpuid(0, &a, &b, &c, &d) && b == signature_AMD_ebx && c == signature_AMD_ecx && d == signature_AMD_edx;
}
#else
static int detect(void) { return ISA_BASELINE; }
static bool detect_amd(void) { return false; }
#endif

static const char *const names[] = {"baseline", "avx2", "avx512", "avx512_bf16", "amx"};
enum { LEVELS = sizeof names / sizeof *names };

/* -1: not asked yet. Asking twice at the same time gives the same answers, so no lock is needed. */
static atomic_int detected = -1, tiles = -1, level = -1, pairs = -1;

static const char *cap_from_env(void) {
    const char *text = getenv("AMPNATIVE_ISA");
    return text && *text ? text : NULL;
}

static int tiles_work(void) { return gemm_amx_works(); }

/* The answer of `ask`, which is kept. */
static int known(atomic_int *kept, int (*ask)(void)) {
    int answer = atomic_load_explicit(kept, memory_order_relaxed);
    if (answer < 0) {
        answer = ask();
        atomic_store_explicit(kept, answer, memory_order_relaxed);
    }
    return answer;
}

/* Whether tiles may be used is asked only if a level depends on it: the permission asks more of stacks for signals. */
static Isa best_below(int cap) {
    const int cpu = known(&detected, detect), top = cap < cpu ? cap : cpu;
    return top == ISA_AMX && !known(&tiles, tiles_work) ? ISA_AVX512_BF16 : (Isa)top;
}

Isa amp_isa_best(void) { return best_below(ISA_AMX); }

int amp_isa_parse(const char *name) {
    for (int i = 0; i < LEVELS; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

const char *amp_isa_name(Isa isa) { return names[isa]; }

static void set_level(int cap) {
    const Isa isa = best_below(cap);
    atomic_store_explicit(&pairs, isa == ISA_AMX || (isa == ISA_AVX512_BF16 && detect_amd()), memory_order_relaxed);
    atomic_store_explicit(&level, (int)isa, memory_order_relaxed);
}

int amp_isa_set_cap(const char *name) {
    int cap = amp_isa_parse(name);
    if (cap < 0) return -1;
    set_level(cap);
    return 0;
}

Isa amp_isa(void) {
    int set = atomic_load_explicit(&level, memory_order_relaxed);
    if (set >= 0) return (Isa)set;
    const char *text = cap_from_env();
    int cap = text ? amp_isa_parse(text) : LEVELS - 1;
    set_level(cap < 0 ? LEVELS - 1 : cap);
    return (Isa)atomic_load_explicit(&level, memory_order_relaxed);
}

bool amp_isa_bf16_pairs(void) {
    if (atomic_load_explicit(&pairs, memory_order_relaxed) < 0) amp_isa();
    return atomic_load_explicit(&pairs, memory_order_relaxed);
}

bool amp_isa_fast_bf16_dot(void) { return amp_isa_bf16_pairs() && amp_isa() == ISA_AVX512_BF16; }

const char *amp_isa_error(void) {
    static char message[160];
    const char *text = cap_from_env();
    if (!text || amp_isa_parse(text) >= 0) return NULL;
    char *end = message;
    const char *const parts[] = {"AMPNATIVE_ISA='", text,
                                 "' names no instruction set: use baseline, avx2, avx512, avx512_bf16 or amx, or unset it"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(parts[i]);
        if (i == 1 && n > 40) n = 40; /* whatever the environment holds, the message fits */
        memcpy(end, parts[i], n);
        end += n;
    }
    *end = 0;
    return message;
}
