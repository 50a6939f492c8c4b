/* Doors between the files behind autograd.Function and grad mode. */
#ifndef AMP_FUNCTION_H
#define AMP_FUNCTION_H
#include "node.h"

int function_init(PyObject *module);  /* _FunctionBase, and grad_mode_init */
int grad_mode_init(PyObject *module); /* _no_grad _enable_grad _set_grad _inference_mode, and the raw switches */

#endif
