/* Selective checkpointing: what a policy wants kept of a region's ops is given back instead of computed when the region runs again.
 *
 *   first run    op -> results --selector(row id, args, results, in place)        MODE_SELECT is on in both
 *   second run   op -> selector(row id) -> results of then, or None: computed
 *
 * Composite rows are let through: the ops inside count. Ops inside of other rows don't. */
#ifndef AMP_SELECTIVE_H
#define AMP_SELECTIVE_H
#include "run_op.h"

int selective_init(PyObject *module);
int selective_run(OpCall *c); /* in place of the row's own class function */

#endif
