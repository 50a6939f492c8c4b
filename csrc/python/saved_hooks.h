/* saved_tensors_hooks: what the graph keeps for backward goes through a pair of Python functions.
 *
 *   while recording   t --pack--> any object, kept in t's place          in backward   object --unpack--> tensor
 *
 * pack sees the tensor itself, so that it can tell a parameter from an activation. A Python number is kept as it is: its tensor promotes
 * in its own way, and is none to a user. So are the statistics in float64 of norms and losses. unpack may give another floating dtype, which
 * becomes the one that was packed: hooks compress. */
#ifndef AMP_SAVED_HOOKS_H
#define AMP_SAVED_HOOKS_H
#include "node.h"

int saved_hooks_init(PyObject *module);
bool saved_hooks_active(void); /* in this thread */
/* What pack makes of t, to be kept in its place (new reference), or NULL with an exception. Runs unrecorded. `maker`: t is output `nr`
 * of the node that keeps it. pack sees an alias then, with that history, which it has no more where pack gives it back as it is: the node
 * would keep itself alive. */
PyObject *saved_pack(Tensor *t, Node *maker, int nr);
/* Whether saved_pack is to be called for t. */
static inline bool saved_hooks_want(const Tensor *t) { return saved_hooks_active() && !(t->flags & TENSOR_WRAPPED); }
/* The tensor that stood there (new reference), or NULL with an exception. It has the history that `e` (may be NULL: none) leads to, for
 * as long as a derivative runs. */
Tensor *saved_unpack(PyObject *packed, const Edge *e);

#endif
