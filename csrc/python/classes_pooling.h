/* Shared by classes_pooling.c and classes_resample.c: spatial arguments and the 5-d views of the pool and resample slots. */
#ifndef AMP_CLASSES_POOLING_H
#define AMP_CLASSES_POOLING_H
#include "classes.h"

enum { AMP_MAX_SPATIAL = 3 };
/* Spatial sizes stay below this, so that sums with kernels and paddings, which are below 2^31, do not overflow. */
#define LARGEST ((int64_t)1 << 60)

/* (N, C, D, H, W) with size 1 where a tensor of (C, ...) or (N, C, ...) has no such dimension. */
typedef struct PlaneView {
    View v;
    int64_t shape[5], stride[5];
} PlaneView;
/* The last nd dimensions of t are the spatial ones, and nd + 1 or nd + 2 there are in all. */
void plane_view(PlaneView *p, const Tensor *t, int nd);
/* result_new of t's batch and channels with the spatial sizes `size` (nd entries). */
Tensor *result_planes(OpCall *c, int i, const Tensor *t, int nd, const int64_t *size, int dtype);
/* "[2, 3, 8]" for error texts; a new str or NULL. */
PyObject *sizes_text(int n, const int64_t *size);
/* A list argument of one entry or one per spatial dimension, all from `low` to 2^31 - 1. 0 or -1. */
int spatial_list(const OpCall *c, int index, int nd, int64_t *out, int64_t low);
/* Integers of a number format that can be averaged, compared or moved: not bool, not complex. 0 or -1. */
int refuse_dtype(const OpCall *c, const Tensor *t, bool integers);

#endif
