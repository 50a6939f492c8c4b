/* Pooling and separable resampling of planes. */
#ifndef AMP_POOLING_H
#define AMP_POOLING_H
#include "../core/backend.h"

Status amp_pool(const Call *call);
Status amp_resample(const Call *call);

/* ---- shared: planes (D, H, W) of 5-d views ---- */

/* Where plane i of N * C starts. */
static inline char *amp_plane_at(const View *v, int64_t i) {
    int64_t n = i / v->shape[1], c = i % v->shape[1];
    return v->data + (n * v->stride[0] + c * v->stride[1]) * (int64_t)amp_itemsize(v->dtype);
}
static inline int64_t amp_planes(const View *v) { return v->shape[0] * v->shape[1]; }
static inline int64_t amp_plane_size(const View *v) { return v->shape[2] * v->shape[3] * v->shape[4]; }
bool amp_plane_is_dense(const View *v);
/* Plane i as a dense array of `dtype`: the memory itself where it is one, else a copy in `buffer`. */
char *amp_plane_read(const View *v, int64_t i, int dtype, char *buffer);
/* Where a dense plane of `dtype` can be formed: the memory itself, else `buffer`; amp_plane_write then carries it over. */
char *amp_plane_place(const View *v, int64_t i, int dtype, char *buffer);
void amp_plane_write(const View *v, int64_t i, int dtype, const char *from);

#endif
