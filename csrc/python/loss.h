/* What the losses share with their derivatives. */
#ifndef AMP_PYTHON_LOSS_H
#define AMP_PYTHON_LOSS_H

typedef enum Reduce { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM } Reduce;

/* The arguments of cross_entropy_rows, and the statistics it returns beside the loss: FLOAT64, largest logit of each row, sum of
 * exp(logit - largest) of each row, then what a mean divides by. */
enum { ENTROPY_INPUT, ENTROPY_TARGET, ENTROPY_WEIGHT, ENTROPY_IGNORE, ENTROPY_REDUCTION, ENTROPY_SMOOTHING };

#endif
