/* Anomaly detection: nodes remember where they were made, and the backward pass says which one failed or made NaN. While it is off there
 * is one flag to test per node. */
#ifndef AMP_ANOMALY_H
#define AMP_ANOMALY_H
#include "node.h"

extern bool anomaly_enabled; /* in the whole process, as in PyTorch */

int anomaly_init(PyObject *module);
/* Keeps the Python stack in the metadata of a new node, and the node whose derivative made it. 0 or -1. */
int anomaly_note(Node *n);
/* From now on nodes are made by the derivative of n (NULL: by none); the one before, borrowed. */
Node *anomaly_enter(Node *n);
/* After n ran: looks for NaN in what it made. 0, or -1 with PyTorch's RuntimeError. */
int anomaly_check(const Node *n, Tensor *const *grad);
/* An exception is set: warns where n was made. The exception stays. */
void anomaly_report(Node *n);

#endif
