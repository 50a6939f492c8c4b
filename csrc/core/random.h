/* Mersenne Twister as PyTorch's CPU generator uses it (records: tests/golden/rng.json). Not locked: the caller sees to it that one thread draws. */
#ifndef AMP_RANDOM_H
#define AMP_RANDOM_H
#include "backend.h"

uint32_t amp_generator_u32(Generator *g);                   /* one word */
uint64_t amp_generator_u64(Generator *g);                   /* two words, the first one on top */
float amp_generator_uniform24(Generator *g);                /* [0, 1) in steps of 2^-24, one word */
double amp_generator_uniform53(Generator *g);               /* [0, 1) in steps of 2^-53, two words */
double amp_generator_normal(Generator *g);                  /* standard normal; every second call uses the kept twin */
uint64_t amp_generator_below(Generator *g, uint64_t range); /* [0, range), randint's rule: from
                                                               2^28 on two words; 0 means 2^64 */

#endif
