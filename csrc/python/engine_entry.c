/* The backward pass as Python calls it: arguments checked, implicit gradients made. */
#include <string.h>

#include "classes.h"
#include "node.h"
#include "tensor_methods.h"

/* The gradient that a root starts with: given and checked, or 1 for a single element. New reference. */
static Tensor *root_gradient(const TensorMeta *root, PyObject *given) {
    if (given && given != Py_None) {
        if (!tensor_check(given)) {
            PyErr_Format(PyExc_TypeError, "gradients can be either Tensors or None, but got %s", Py_TYPE(given)->tp_name);
            return NULL;
        }
        Tensor *g = (Tensor *)given;
        if (g->v.ndim != root->ndim || memcmp(g->v.shape, root->shape, (size_t)g->v.ndim * sizeof(int64_t))) {
            PyObject *have = tensor_describe(g), *want = size_from_dims(root->ndim, root->shape);
            if (have && want) {
                PyErr_Format(PyExc_RuntimeError, "Mismatch in shape: grad_output[0] is a %U and output[0] has a shape of %R",
                             have, want);
            }
            Py_XDECREF(have);
            Py_XDECREF(want);
            return NULL;
        }
        if (g->v.ndim && g->v.device != root->device) {
            raise_devices("invalid gradient: expected device %S but got %S. Move it with .to()", root->device, g->v.device);
            return NULL;
        }
        return call_to(g, root->dtype, root->device);
    }
    if (amp_numel(root->ndim, root->shape) != 1) {
        PyErr_SetString(PyExc_RuntimeError, "grad can be implicitly created only for scalar outputs: pass the gradient, or "
                                            "reduce the output to one element first");
        return NULL;
    }
    if (!amp_is_floating(root->dtype)) {
        PyErr_Format(PyExc_RuntimeError, "grad can be implicitly created only for real scalar outputs but got %s",
                     amp_dtype_info[root->dtype].name);
        return NULL;
    }
    Tensor *one = tensor_new(root->ndim, root->shape, root->dtype, root->device);
    if (one && raw_fill(one, number_int(1)) < 0) {
        Py_CLEAR(one);
    }
    return one;
}

/* Once: gradients that are part of a graph keep it, and through it the parameters, alive. */
static int warn_of_cycle(void) {
    static bool warned;
    if (warned) {
        return 0;
    }
    warned = true;
    return PyErr_WarnEx(
        PyExc_UserWarning,
        "Using backward() with create_graph=True will create a reference cycle between a parameter and its "
        "gradient. Use autograd.grad() for gradients that you differentiate again, or set .grad to None after use.",
        1);
}

int engine_backward_objects(PyObject *roots, PyObject *gradients, bool keep_graph, bool create_graph, PyObject *inputs,
                            bool accumulate_grads, bool allow_unused, PyObject **out) {
    Py_ssize_t n = PyTuple_GET_SIZE(roots), m = PyTuple_GET_SIZE(inputs);
    Tensor **g = PyMem_Calloc((size_t)(n + m + 1), sizeof *g), **results = g ? g + n : NULL;
    Edge *edges = PyMem_Calloc((size_t)(n + m + 1), sizeof *edges);
    int failed = -1;
    if (!g || !edges) {
        PyErr_NoMemory();
        n = m = 0;
        goto done;
    }
    if (create_graph && accumulate_grads && warn_of_cycle() < 0) {
        goto done;
    }
    for (Py_ssize_t i = 0; i < n + m; i++) {
        PyObject *o = i < n ? PyTuple_GET_ITEM(roots, i) : PyTuple_GET_ITEM(inputs, i - n);
        TensorMeta meta;
        if (edge_parse(o, &edges[i], &meta) < 0) {
            goto done;
        }
        if (i >= n) {
            if (!edges[i].to) {
                PyErr_SetString(PyExc_RuntimeError, "One of the differentiated Tensors does not require grad");
                goto done;
            }
            if (accumulate_grads && tensor_check(o) && tensor_retain_grad((Tensor *)o) < 0) {
                goto done;
            }
            continue;
        }
        if (!edges[i].to) {
            PyErr_Format(PyExc_RuntimeError,
                         "element %zd of tensors does not require grad and does not have a grad_fn: nothing in its history "
                         "requires a gradient",
                         i);
            goto done;
        }
        if (!(g[i] = root_gradient(&meta, i < PyTuple_GET_SIZE(gradients) ? PyTuple_GET_ITEM(gradients, i) : NULL))) {
            goto done;
        }
    }
    failed = engine_backward((int)n, edges, g, keep_graph, create_graph, (int)m, edges + n, accumulate_grads, allow_unused,
                             accumulate_grads ? NULL : results);
    if (!failed && out) {
        *out = PyTuple_New(m);
        for (Py_ssize_t i = 0; *out && i < m; i++) {
            PyTuple_SET_ITEM(*out, i, results[i] ? Py_NewRef((PyObject *)results[i]) : Py_NewRef(Py_None));
        }
        failed = *out ? 0 : -1;
    }
done:
    for (Py_ssize_t i = 0; i < n + m; i++) {
        Py_XDECREF(g[i]);
        Py_XDECREF(edges[i].to);
    }
    PyMem_Free(g);
    PyMem_Free(edges);
    return failed;
}

static PyObject *py_engine_backward(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *roots, *gradients, *inputs, *out = NULL;
    int keep, create, accumulate_grads, unused;
    if (!PyArg_ParseTuple(args, "O!O!ppO!pp", &PyTuple_Type, &roots, &PyTuple_Type, &gradients, &keep, &create, &PyTuple_Type,
                          &inputs, &accumulate_grads, &unused)) {
        return NULL;
    }
    if (engine_backward_objects(roots, gradients, keep, create, inputs, accumulate_grads, unused, &out) < 0) {
        return NULL;
    }
    return out;
}

static PyObject *mark_loss_scaled(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    if (nargs != 3 || !tensor_check(args[0]) || !tensor_check(args[1]) || ((Tensor *)args[1])->v.dtype != AMP_FLOAT32 ||
        ((Tensor *)args[1])->v.numel != 1) {
        PyErr_SetString(PyExc_TypeError, "_mark_loss_scaled() takes a loss, the scale, a float32 tensor, and a number");
        return NULL;
    }
    const unsigned long number = PyLong_AsUnsignedLongMask(args[2]);
    if (number == (unsigned long)-1 && PyErr_Occurred()) {
        return NULL;
    }
    Node *n = ((Tensor *)args[0])->fn;
    if (n && ((Tensor *)args[1])->v.device != AMP_META) {
        n->state |= NODE_LOSS_SCALED;
        memcpy(&n->loss_scale, ((Tensor *)args[1])->v.data, sizeof n->loss_scale);
        n->loss_number = (uint32_t)number;
    }
    Py_RETURN_NONE;
}

static PyObject *loss_scales(PyObject *module, PyObject *gradients) {
    (void)module;
    if (!PyList_Check(gradients)) {
        PyErr_SetString(PyExc_TypeError, "_loss_scales() takes a list");
        return NULL;
    }
    PyObject *scales = PyList_New(0);
    float last = 0;
    for (Py_ssize_t i = 0; scales && i < PyList_GET_SIZE(gradients); i++) {
        PyObject *g = PyList_GET_ITEM(gradients, i);
        float scale = tensor_check(g) ? storage_loss_scale(((Tensor *)g)->st) : 0;
        if (scale == 0 || scale == last) {
            continue;
        }
        last = scale;
        PyObject *number = PyFloat_FromDouble((double)scale);
        if (!number || PyList_Append(scales, number) < 0) {
            Py_CLEAR(scales);
        }
        Py_XDECREF(number);
    }
    return scales;
}

static PyObject *loss_marks(PyObject *Py_UNUSED(module), PyObject *gradient) {
    const Storage *st = tensor_check(gradient) ? ((Tensor *)gradient)->st : NULL;
    if (!st || !(st->loss_flags & LOSS_KNOWN)) {
        Py_RETURN_NONE;
    }
    const bool sure = !(st->loss_flags & LOSS_UNSURE), all = st->loss_count == st->loss_last - st->loss_first + 1;
    PyObject *half = st->loss_flags & LOSS_HALF ? Py_True : st->loss_flags & LOSS_PYTHON ? Py_None : Py_False;
    return Py_BuildValue("IINNO", st->loss_first, st->loss_last, PyBool_FromLong(sure), PyBool_FromLong(sure && all), half);
}

static PyObject *backward_has_inputs(PyObject *Py_UNUSED(module), PyObject *Py_UNUSED(args)) {
    return PyBool_FromLong(engine_for_inputs());
}

int engine_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"_engine_backward", py_engine_backward, METH_VARARGS,
         "_engine_backward(roots, gradients, keep_graph, create_graph, inputs, accumulate, allow_unused, /)\n--\n\n"
         "The backward pass over tuples of Tensors; returns the tuple of the inputs' gradients."},
        {"_mark_loss_scaled", (PyCFunction)(void (*)(void))mark_loss_scaled, METH_FASTCALL,
         "_mark_loss_scaled(loss, scale, number, /)\n--\n\nGradients that a backward pass accumulates through this tensor carry "
         "the "
         "scale and the number."},
        {"_loss_marks", loss_marks, METH_O,
         "_loss_marks(gradient, /)\n--\n\n(first, last, sure, all, half): the numbers of the first and the last scaled loss in a "
         "gradient, whether that is sure, whether all between them are in it, and whether a float16 gradient was on the way "
         "(None: "
         "Python code was, which may have made one). "
         "None: "
         "nothing is known."},
        {"_loss_scales", loss_scales, METH_O,
         "_loss_scales(gradients, /)\n--\n\nThe loss scales that gradients of a list carry, unchanged since their accumulation; "
         "NaN: "
         "parts of one carry different scales. Neighbours that are alike count once."},
        {"_backward_has_inputs", backward_has_inputs, METH_NOARGS,
         "_backward_has_inputs()\n--\n\nWhether the pass that runs in this thread was asked for the gradients of given tensors."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, methods);
}
