/* Enums and the row table made from ops.def. */
#ifndef AMP_OPS_H
#define AMP_OPS_H
#include "core.h"

typedef enum OpId {
#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) OP_##id,
#include "ops.def"
#undef OP
    OP_COUNT
} OpId;

/* Autocast policies: what happens to an op's arguments inside a region (policy.c). */
typedef enum Policy {
    POLICY_NONE,
    POLICY_LOWER,
    POLICY_FP32,
    POLICY_SET_OPT,
    POLICY_APPEND,
    POLICY_PROMOTE,
    POLICY_BANNED
} Policy;

/* Dtype of an op's result (the dtype column of ops.def). */
typedef enum DTypeRule {
    RULE_SAME,
    RULE_INEXACT,
    RULE_REAL,
    RULE_EQUAL,
    RULE_PAIR,
    RULE_SECOND,
    RULE_PROMOTE,
    RULE_BITS,
    RULE_FLOAT,
    RULE_CPU_SAME,
    RULE_BOOL,
    RULE_SUM,
    RULE_INDEX,
    RULE_WIDE,
    RULE_WIDE_REAL,
    RULE_WIDE_COMPLEX,
    RULE_COMPLEX,
    RULE_OWN
} DTypeRule;

#endif
