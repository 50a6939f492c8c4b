/* What autocast does to the arguments of one op: a pure function of the policy, the region's dtype and the arguments' dtypes. */
#ifndef AMP_POLICY_H
#define AMP_POLICY_H
#include "ops.h"

typedef enum PolicyError {
    POLICY_OK,
    POLICY_UNEXPECTED_DTYPE, /* promote met an eligible argument that is neither fp32 nor the autocast dtype */
    POLICY_REGION_IS_FP64,   /* promote has no rule for a region whose dtype is fp64, whatever the arguments are */
    POLICY_IS_BANNED
} PolicyError;

typedef struct PolicyResult {
    uint8_t error;    /* PolicyError */
    int8_t cast_to;   /* every eligible argument of another dtype is cast to this one; -1: no casts */
    int8_t set_dtype; /* value for the op's dtype argument if the caller gave none; -1: leave it alone */
    int offender;     /* index of the argument behind POLICY_UNEXPECTED_DTYPE, else -1 */
} PolicyResult;

/* dtypes[i], eligible[i]: one entry per tensor argument, lists flattened; n may be 0. */
PolicyResult amp_policy_target(Policy policy, int autocast_dtype, int n, const int8_t *dtypes, const uint8_t *eligible);

/* Floating, not fp64, on the region's device. fp8 counts as floating. */
bool amp_policy_eligible(int dtype, int tensor_device, int region_device);

/* The result's dtype by a row's rule. dtypes: of the inputs after autocast, without masks and indices; set_dtype: the op's dtype argument,
 * -1 for none. -1: the rule refuses the inputs, or there are none. */
int amp_rule_result(DTypeRule rule, int device, int n, const int8_t *dtypes, int set_dtype, int default_dtype);

const char *amp_policy_name(Policy policy);

#endif
