/* Builds with AMP_EMULATE_AMX test the level amx and no other. They can tell whether threads that have multiplied keep their tiles, which
 * they must not. */
#ifndef EMULATION_H
#define EMULATION_H
#include <stdatomic.h>

#include "../../csrc/core/backend.h"

#ifdef AMP_EMULATE_AMX
#include "../../csrc/cpu/amx.h"

enum { EMULATED = 1 };

static void look_for_tiles(void *ctx, int64_t begin, int64_t end) {
    (void)begin, (void)end;
    if (amx_emulated_in_use()) atomic_store((atomic_int *)ctx, 1);
}

static inline bool tiles_are_free(void) {
    atomic_int kept = 0;
    amp_parallel_for(8, 1, look_for_tiles, &kept);
    return !atomic_load(&kept);
}
#else
enum { EMULATED = 0 };
static inline bool tiles_are_free(void) { return true; }
#endif

static inline bool is_tested(int level) { return !EMULATED || level == ISA_AMX; }

/* A machine that has what the emulation needs reaches the level, unless the kernels' own test fails. */
static inline bool emulation_works(void) { return !EMULATED || amp_isa_best() != ISA_AVX512_BF16; }

#endif
