/* What cpu_features.c knows beyond the levels in backend.h. */
#ifndef AMP_CPU_FEATURES_H
#define AMP_CPU_FEATURES_H
#include "../core/backend.h"

/* NULL, or what is wrong with AMPNATIVE_ISA (the level is then uncapped); the text stays valid. */
const char *amp_isa_error(void);

/* VDPBF16PS exists, the level allows it, and it is twice as fast as fp32 multiply-adds. Decided by vendor, not by timing, so that a machine
 * gives the same bits every time: AMD's cores are twice as fast with it, Intel's half as fast (they have AMX instead). */
bool amp_isa_fast_bf16_dot(void);

#endif
