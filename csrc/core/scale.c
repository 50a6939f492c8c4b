/* The loss scale's update rule and its reciprocal, as pure functions. Both are formed in fp64 and rounded
 * to fp32 once; another route gives other bits for factors that are not powers of two. */
#include <math.h>

#include "backend.h"

/* +1 that wraps from 2^31 - 1 to -2^31. */
static int32_t next_tracker(int32_t tracker) { return tracker == INT32_MAX ? INT32_MIN : tracker + 1; }

ScaleUpdate amp_update_scale(float scale, int32_t tracker, float found_inf, double growth_factor, double backoff_factor,
                             int64_t growth_interval) {
    /* Any non-zero flag counts, NaN too: a flag summed over devices may be anything. No floor: the scale may reach 0. */
    if (found_inf != 0.0f) return (ScaleUpdate){(float)((double)scale * backoff_factor), 0};
    int32_t next = next_tracker(tracker);
    /* Equality, not "at least": an interval lowered to what the tracker has already reached never grows. */
    if (next != growth_interval) return (ScaleUpdate){scale, next};
    float grown = (float)((double)scale * growth_factor);
    return (ScaleUpdate){isfinite(grown) ? grown : scale, 0};
}

float amp_inverse_scale(float scale) { return (float)(1.0 / (double)scale); }
