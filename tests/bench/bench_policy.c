/* What autocast's decision costs an op, without Python: eligibility of each argument, the policy, the plan.
 *
 *     gcc -O3 -Icsrc/core tests/bench/bench_policy.c csrc/core/policy.c csrc/core/dtypes.c -lm -o bench_policy && ./bench_policy
 */
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "policy.h"

enum { ROUNDS = 50, CALLS = 1000000, ARGS = 3 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void) {
    static const int mixes[][ARGS] = {{AMP_FLOAT32, AMP_FLOAT32, AMP_FLOAT32},
                                      {AMP_BFLOAT16, AMP_BFLOAT16, AMP_BFLOAT16},
                                      {AMP_BFLOAT16, AMP_FLOAT32, AMP_INT64}};
    volatile int region = AMP_BFLOAT16; /* read anew each time: nothing is folded */
    int64_t sink = 0;
    for (int policy = POLICY_NONE; policy <= POLICY_BANNED; policy++) {
        double best = 1e9;
        for (int round = 0; round < ROUNDS; round++) {
            double begin = now();
            for (int i = 0; i < CALLS; i++) {
                const int *mix = mixes[i % 3];
                int8_t dtypes[ARGS];
                uint8_t eligible[ARGS];
                for (int k = 0; k < ARGS; k++) {
                    dtypes[k] = (int8_t)mix[k];
                    eligible[k] = amp_policy_eligible(mix[k], AMP_CPU, AMP_CPU);
                }
                PolicyResult r = amp_policy_target((Policy)policy, region, ARGS, dtypes, eligible);
                sink += r.cast_to + r.set_dtype + r.error;
            }
            double each = (now() - begin) / CALLS;
            best = each < best ? each : best;
        }
        printf("%-8s %6.2f ns\n", amp_policy_name((Policy)policy), best * 1e9);
    }
    return sink == 42; /* keeps the loop */
}
