/* Copies that transpose: false, and nothing is done, where another way has to be taken. */
#ifndef AMP_COPY_TRANSPOSED_H
#define AMP_COPY_TRANSPOSED_H
#include "../core/core.h"

bool amp_copy_transposed(View *out, const View *in);
#endif
