/* What cpu_features.c knows beyond the levels in backend.h. */
#ifndef AMP_CPU_FEATURES_H
#define AMP_CPU_FEATURES_H
#include "../core/backend.h"

/* NULL, or what is wrong with AMPNATIVE_ISA (the level is then uncapped); the text stays valid. */
const char *amp_isa_error(void);

/* Products of pairs of bfloat16 are worth it: by AMX, or by VDPBF16PS where that is fast. */
bool amp_isa_bf16_pairs(void);

/* VDPBF16PS is what multiplies pairs of bfloat16: the level has it and nothing better, and it is twice as fast as fp32 multiply-adds.
 * Decided by vendor, not by timing, so that a machine gives the same bits every time: AMD's cores are twice as fast with it, Intel's half
 * as fast (they have AMX instead). */
bool amp_isa_fast_bf16_dot(void);

/* Tiles are permitted to this process, and the kernels give right results on them (gemm_amx.c); asked once. */
bool gemm_amx_works(void);

#endif
