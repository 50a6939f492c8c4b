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

/* What LAPACK and the Fourier transforms compute in. */
static bool is_wide(int dtype) { return !amp_is_integral(dtype) && amp_itemsize(amp_real_of(dtype)) >= 4; }

int amp_rule_result(DTypeRule rule, int device, int n, const int8_t *dtypes, int set_dtype, int default_dtype) {
    if (n == 0) return rule == RULE_BOOL ? AMP_BOOL : rule == RULE_INDEX ? AMP_INT64 : set_dtype;
    int first = dtypes[0], common = first;
    bool equal = true;
    for (int i = 1; i < n; i++) {
        equal = equal && dtypes[i] == first;
        common = amp_promote_dtypes(common, dtypes[i]);
    }
    switch (rule) {
    case RULE_BOOL: return AMP_BOOL;
    case RULE_INDEX: return AMP_INT64;
    case RULE_EQUAL: return equal ? first : -1;
    case RULE_REAL: return amp_real_of(first);
    case RULE_SECOND: return dtypes[n > 1];
    case RULE_PAIR: return n > 1 && dtypes[1] != first ? -1 : first;
    case RULE_PROMOTE: return common;
    case RULE_WIDE: return equal && is_wide(first) ? first : -1;
    case RULE_WIDE_REAL: return equal && is_wide(first) ? amp_real_of(first) : -1;
    case RULE_WIDE_COMPLEX: return equal && is_wide(first) ? amp_complex_of(amp_real_of(first)) : -1;
    case RULE_COMPLEX: return equal && (is_wide(first) || first == AMP_FLOAT16) ? amp_complex_of(first) : -1;
    case RULE_BITS: return amp_is_integral(common) ? common : -1;
    default: break;
    }
    if (set_dtype >= 0) return set_dtype;
    if (rule == RULE_INEXACT) return amp_is_integral(first) ? -1 : first;
    if (rule == RULE_FLOAT || (rule == RULE_CPU_SAME && device != AMP_CPU))
        return amp_is_integral(common) ? default_dtype : common;
    if (rule == RULE_SUM) return amp_is_integral(first) ? AMP_INT64 : first;
    return first;
}

const char *amp_policy_name(Policy policy) {
    static const char *const name[] = {"none", "lower", "fp32", "set_opt", "append", "promote", "banned"};
    return (size_t)policy < sizeof name / sizeof *name ? name[policy] : "none";
}
