/* The operations on tiles, eight registers of up to 16 rows of 64 bytes, and their shapes.
 *
 *     AMX_LOAD(t, p, stride)     tile t = its rows, from p on, `stride` bytes apart
 *     AMX_STORE(t, p, stride)    the reverse
 *     AMX_ZERO(t)
 *     AMX_MULTIPLY(c, a, b)      c (m, n) += a (m, k) @ b (k, n): elements of c are fp32, those of a and b pairs of bfloat16
 *
 * A multiplication sums the products of first elements of pairs over its k, and those of second ones, each with fused multiply-adds from
 * zero, adds the two, and the result to c: nearest-even, denormals read as zero and results flushed, whatever MXCSR says.
 *
 * Assembly instead of intrinsics: these say that memory is read, so that no store to what is loaded is left out or comes later. Numbers
 * of tiles are literals. With AMP_EMULATE_AMX, which only tests define, the same runs on any machine of the level below
 * (amx_emulated.c). */
#ifndef AMP_AMX_H
#define AMP_AMX_H
#if defined(__x86_64__)
#include <stdbool.h>
#include <stdint.h>

/* What LDTILECFG reads. Tiles of no rows may not be used. */
typedef struct AmxShapes {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} AmxShapes;
_Static_assert(sizeof(AmxShapes) == 64, "the layout is the machine's");

enum { AMX_ROWS = 16, AMX_ROW_BYTES = 64 };

#ifdef AMP_EMULATE_AMX
void amx_emulated_shape(const AmxShapes *shapes);
void amx_emulated_release(void);
void amx_emulated_load(int tile, const void *p, int64_t stride);
void amx_emulated_store(int tile, void *p, int64_t stride);
void amx_emulated_zero(int tile);
void amx_emulated_multiply(int c, int a, int b);
bool amx_emulated_in_use(void); /* by this thread: shaped and not released */

static inline void amx_shape(const AmxShapes *shapes) { amx_emulated_shape(shapes); }
static inline void amx_release(void) { amx_emulated_release(); }
#define AMX_LOAD(t, p, stride)  amx_emulated_load(t, p, stride)
#define AMX_STORE(t, p, stride) amx_emulated_store(t, p, stride)
#define AMX_ZERO(t)             amx_emulated_zero(t)
#define AMX_MULTIPLY(c, a, b)   amx_emulated_multiply(c, a, b)
#else
/* All tiles become zero. */
static inline void amx_shape(const AmxShapes *shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(*shapes) : "memory"); }
static inline void amx_release(void) { __asm__ volatile("tilerelease" : : : "memory"); }
#define AMX_LOAD(t, p, stride) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define AMX_STORE(t, p, stride) \
    __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" : : "r"(p), "r"((int64_t)(stride)) : "memory")
#define AMX_ZERO(t)           __asm__ volatile("tilezero %%tmm" #t : :)
#define AMX_MULTIPLY(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c : :)
#endif
#endif
#endif
