/* Autocast policies as PyTorch 2.15 has them. No state: whoever calls gathers dtypes and eligibility and carries out the plan. */
#include "policy.h"

bool amp_policy_eligible(int dtype, int tensor_device, int region_device) {
    return tensor_device == region_device && dtype != AMP_FLOAT64 && amp_is_floating(dtype);
}

/* Starts at the autocast dtype; fp32 is the top of this order, so the first fp32 (argument or region dtype) settles it and what
 * stands behind is not looked at. Before that, an eligible argument that is not the autocast dtype has no place in the order. */
static PolicyResult promote(PolicyResult r, int autocast_dtype, int n, const int8_t *dtypes, const uint8_t *eligible) {
    if (autocast_dtype == AMP_FLOAT64) {
        r.error = POLICY_REGION_IS_FP64;
        return r;
    }
    int target = autocast_dtype;
    for (int i = 0; i < n && target != AMP_FLOAT32; i++) {
        if (!eligible[i] || dtypes[i] == autocast_dtype) continue;
        if (dtypes[i] != AMP_FLOAT32) {
            r.error = POLICY_UNEXPECTED_DTYPE;
            r.offender = i;
            return r;
        }
        target = AMP_FLOAT32;
    }
    r.cast_to = (int8_t)target;
    return r;
}

PolicyResult amp_policy_target(Policy policy, int autocast_dtype, int n, const int8_t *dtypes, const uint8_t *eligible) {
    PolicyResult r = {.error = POLICY_OK, .cast_to = -1, .set_dtype = -1, .offender = -1};
    switch (policy) {
    case POLICY_LOWER: r.cast_to = (int8_t)autocast_dtype; break;
    case POLICY_FP32: r.cast_to = AMP_FLOAT32; break;
    case POLICY_SET_OPT:
        if (n > 0 && eligible[0]) r.set_dtype = AMP_FLOAT32;
        break;
    case POLICY_APPEND:
        if (n > 0) r.set_dtype = eligible[0] ? (int8_t)AMP_FLOAT32 : dtypes[0];
        break;
    case POLICY_PROMOTE: return promote(r, autocast_dtype, n, dtypes, eligible);
    case POLICY_BANNED: r.error = POLICY_IS_BANNED; break;
    case POLICY_NONE: break;
    }
    return r;
}

const char *amp_policy_name(Policy policy) {
    static const char *const name[] = {"none", "lower", "fp32", "set_opt", "append", "promote", "banned"};
    return (size_t)policy < sizeof name / sizeof *name ? name[policy] : "none";
}
