/* Connectionist temporal classification: the loss of one sequence is minus the logarithm of the summed probability of all paths through
 * the states of its target, blanks before, between and behind its S labels.
 *
 *     states     _ a _ b _        a path moves by 0 or 1 states per step, or by 2 from one label to the next if they differ
 *
 * A row holds a float64 logarithm for each state at one time, labels first, both parts w >= S + 2 wide; state j of the labels is label
 * j - 1, so that all neighbours lie in the same place or beside it. What no state uses emits -inf and stays out of the others' sums:
 *
 *     labels   .  a  b  .  .  .  .  .       blanks   _  _  _  .  .  .  .  .
 *     j        0  1  2          w - 1                0  1  2          w - 1
 *
 * emit: what each label's state emits at this time, -inf at 0 and beyond S; skip: 0 where label j may follow label j - 1 directly, else
 * -inf, w + 1 of them. */
#ifndef AMP_CTC_H
#define AMP_CTC_H
#include "cpu_backend.h"

typedef struct CtcKernels {
    /* now[s]: all paths that are in s now, by those before. Reads before[-1]. */
    void (*forward)(const double *before, double *now, const double *emit, const double *skip, double blank, int64_t w);
    /* now[s]: all that may follow from being in s now, its own emission included, by those after; share[s] = how likely a path is in s,
     * given the target: alpha is this time's row of the way forward. */
    void (*backward)(const double *after, double *now, const double *alpha, double *share, const double *emit, const double *skip,
                     double blank, double loss, int64_t w);
    /* out[c] = (exp(log_probs[c]) - expected[c]) grad */
    void (*slope)(const char *log_probs, char *out, const double *expected, double grad, int64_t n);
} CtcKernels;

const CtcKernels *amp_ctc_kernels(int dtype);
#endif
