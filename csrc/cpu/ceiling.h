/* What this machine can do at most, measured: the yardstick that `ampnative bench` prints beside what kernels reach. */
#ifndef AMP_CEILING_H
#define AMP_CEILING_H
#include "../core/backend.h"

/* Operations per second of all threads together, from registers alone: fp32 multiply-adds, or bf16 pair products where the level in use
 * has them (else multiply-adds again, which is how bf16 is computed then). A multiply-add counts as two. Best of a few tries, some
 * 20 ms in all. */
double amp_ceiling_flops(bool bf16);
/* Bytes per second, read and written ones added, that all threads together copy between two buffers of `nbytes`; 0: no memory. Stores go
 * around the caches if the buffers are larger than them. */
double amp_ceiling_copy(size_t nbytes);

#endif
