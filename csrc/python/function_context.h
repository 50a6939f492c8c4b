/* What the files behind autograd.Function share: the ctx object. */
#ifndef AMP_FUNCTION_CONTEXT_H
#define AMP_FUNCTION_CONTEXT_H
#include "function.h"

typedef struct Kept {
    Tensor *t;        /* strong; NULL: None was saved, or `packed` */
    PyObject *packed; /* strong; what saved_pack made of it, or NULL */
    uint32_t version; /* of its storage when apply ended */
    int output;       /* number of the own output that t stands for, or -1 */
    int input;        /* packed: number of the argument that it was, or -1 */
} Kept;

typedef struct Context {
    PyObject_HEAD
    PyObject *to_save, *dirty, *non_differentiable; /* tuples as given, or NULL */
    PyObject *needs_input_grad;                     /* tuple of bool, one per argument, or what a user put there */
    Kept *kept;
    int nkept;
    bool materialize, released;
    Node *running; /* borrowed; the node while its backward method runs */
    Node *slices;  /* borrowed; the one that has it inside meanwhile, or NULL */
} Context;

/* function_outputs.c: links what forward returned, `raw`, a tuple, to the graph; `first` (NULL: nothing is recorded) is the node as it was
 * made before forward ran. New tuple of what apply returns. */
PyObject *function_finish(Context *ctx, PyObject *args, PyObject *raw, Node *first);

#endif
