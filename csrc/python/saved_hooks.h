/* saved_tensors_hooks: what the graph keeps for backward goes through a pair of Python functions.
 *
 *   while recording   t --pack--> any object, kept in t's place          in backward   object --unpack--> tensor
 *
 * A leaf that requires grad is kept as it is: the graph holds it anyway, to accumulate into it. So is a Python number, whose tensor
 * promotes in its own way. */
#ifndef AMP_SAVED_HOOKS_H
#define AMP_SAVED_HOOKS_H
#include "node.h"

int saved_hooks_init(PyObject *module);
bool saved_hooks_active(void); /* in this thread */
/* What pack makes of t, to be kept in its place (new reference), or NULL with an exception. Runs unrecorded. */
PyObject *saved_pack(Tensor *t);
/* Whether saved_pack is to be called for t. A Python number is no tensor to a user. */
static inline bool saved_hooks_want(const Tensor *t) {
    return saved_hooks_active() && !(t->flags & TENSOR_WRAPPED) && (t->fn || !(t->flags & TENSOR_REQUIRES_GRAD));
}
/* The tensor that stood there (new reference, without history), or NULL with an exception. */
Tensor *saved_unpack(PyObject *packed);
/* Gives t (without history, not shared) the history that `e` leads to, for as long as a derivative runs; returns t. */
Tensor *saved_link(Tensor *t, const Edge *e);

#endif
