#ifndef AMP_EMULATED_H
#define AMP_EMULATED_H
#include "../core/backend.h"

/* Fills device cuda's table from the CPU's. Once, while the module is made. */
void amp_emulated_init(void);

#endif
