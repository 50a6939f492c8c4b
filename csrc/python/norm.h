/* What the normalisation cores share with their derivatives. */
#ifndef AMP_PYTHON_NORM_H
#define AMP_PYTHON_NORM_H
#include "run_op.h"

/* The plan of a call of norm_channels or norm_groups on an input of this shape. Returns how many statistics a row has. */
int norm_plan(const Arg *arg, bool by_channels, int ndim, const int64_t *shape, NormPlan *plan);
/* A dense view as one dimension; dims[2] becomes its shape and stride. */
View norm_flat(const View *v, int64_t *dims);

#endif
