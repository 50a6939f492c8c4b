/* What attention's class functions and its derivative share. */
#ifndef AMP_ATTENTION_GLUE_H
#define AMP_ATTENTION_GLUE_H
#include "derivatives/derivatives.h"

/* softmax(q @ k^T * factor + mask): (..., L, S); rows that a mask hides wholly are zero. mask may be NULL. */
Tensor *attention_chances(Back *b, Tensor *q, Tensor *k, Tensor *mask, bool causal, double factor);
/* (..., H, S, E) with every head `heads` / H times in a row. */
Tensor *attention_repeat_heads(Back *b, Tensor *x, int64_t heads);
/* The mask broadcast to the scores, in *view; NULL without a mask. shape, strides: AMP_MAX_DIMS entries each. */
const View *attention_mask_view(const View *mask, const View *query, const View *key, View *view, int64_t *shape,
                                int64_t *strides);
/* For run_slot. */
int64_t attention_cost(const View *query, const View *key);

#endif
