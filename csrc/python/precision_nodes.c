/* The precision settings as Python functions: names, exceptions and warnings of contract sections 4 and 5. The package's backends
 * modules make attributes of them. */
#include <stdlib.h>
#include <string.h>

#include "../core/precision.h"
#include "state.h"

/* Raised by the legacy getters in a mixed state. It is a RuntimeError, and by that name; being an AttributeError as well keeps
 * hasattr() and getattr() with a default from raising. */
static PyObject *mixed_error;

/* ---- arguments ---- */

static int bool_argument(PyObject *o, const char *name) {
    if (!PyBool_Check(o)) {
        PyErr_Format(PyExc_RuntimeError, "set_%s expects a bool, but got %s", name, Py_TYPE(o)->tp_name);
        return -1;
    }
    return o == Py_True;
}

/* The text of a str, borrowed. With a zero character inside it is cut to nothing, which no name equals. */
static const char *c_string(PyObject *o) {
    Py_ssize_t n;
    const char *text = PyUnicode_AsUTF8AndSize(o, &n);
    return text && (size_t)n != strlen(text) ? "" : text;
}

/* Exactly n strings, borrowed from the arguments. */
static int string_arguments(const char *function, PyObject *const *args, Py_ssize_t nargs, int n, const char **text) {
    bool fits = nargs == n;
    for (int i = 0; fits && i < n; i++) {
        fits = PyUnicode_Check(args[i]);
    }
    if (!fits) {
        PyErr_Format(PyExc_TypeError, "%s(): incompatible function arguments: it takes %d strings%s%s", function, n,
                     nargs ? ", and the last one given is of type " : "", nargs ? Py_TYPE(args[nargs - 1])->tp_name : "");
        return -1;
    }
    for (int i = 0; i < n; i++) {
        text[i] = c_string(args[i]);
        if (!text[i]) {
            return -1;
        }
    }
    return 0;
}

static int find_node(const char *backend, const char *op, PrecisionNode *node) {
    switch (amp_precision_find(backend, op, node)) {
    case NODE_FOUND: return 0;
    case NODE_NO_BACKEND:
        PyErr_Format(PyExc_RuntimeError, "Unknown backend: '%s' (there are generic, cuda and mkldnn)", backend);
        return -1;
    case NODE_NO_OP: PyErr_Format(PyExc_RuntimeError, "Unknown op: '%s' (there are all, matmul, conv and rnn)", op); return -1;
    case NODE_NO_PAIR: break;
    }
    PyErr_Format(PyExc_RuntimeError, "Invalid (backend, op) pair: ('%s', '%s'); generic has 'all' only", backend, op);
    return -1;
}

static int parse_precision(const char *name) {
    int precision = amp_precision_parse(name);
    if (precision < 0) {
        PyErr_Format(PyExc_RuntimeError, "Unknown precision: '%s' (there are 'ieee', 'tf32', 'bf16' and 'none')", name);
    }
    return precision;
}

static int refuse_bf16(void) {
    PyErr_SetString(PyExc_RuntimeError, "backend 'cuda' does not support precision 'bf16': use 'tf32', 'ieee' or 'none'");
    return -1;
}

int precision_argument(const char *text, int device) {
    if (!text) {
        return PRECISION_AS_SET;
    }
    int precision = parse_precision(text);
    if (precision == PRECISION_BF16 && device == AMP_CUDA) {
        precision = refuse_bf16();
    }
    return precision < 0 ? -2 : precision;
}

/* ---- nodes ---- */

static PyObject *get_node(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    const char *text[2];
    PrecisionNode node;
    if (string_arguments("_get_fp32_precision_getter", args, nargs, 2, text) < 0 || find_node(text[0], text[1], &node) < 0) {
        return NULL;
    }
    return PyUnicode_FromString(amp_precision_name(amp_precision_effective(amp_settings(), node, NULL)));
}

static PyObject *set_node(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    const char *text[3];
    PrecisionNode node;
    if (string_arguments("_set_fp32_precision_setter", args, nargs, 3, text) < 0) {
        return NULL;
    }
    int precision = parse_precision(text[2]);
    if (precision < 0 || find_node(text[0], text[1], &node) < 0) {
        return NULL;
    }
    if (!amp_precision_allowed(node, (Precision)precision)) {
        refuse_bf16();
        return NULL;
    }
    amp_precision_set(node, (Precision)precision);
    return Py_NewRef(args[2]);
}

/* All nodes as they are at one moment: (attribute, own, effective, attribute of the node that decided or ""). */
static bool on_cuda(PrecisionNode node) {
    return node == NODE_CUDA || node == NODE_CUDA_MATMUL || node == NODE_CUDA_CONV || node == NODE_CUDA_RNN;
}

static PyObject *list_nodes(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    Settings s = amp_settings();
    PyObject *list = PyList_New(PRECISION_NODE_COUNT);
    for (int n = 0; list && n < PRECISION_NODE_COUNT; n++) {
        PrecisionNode node = (PrecisionNode)n, from;
        Precision own = amp_precision_own(s, node), effective = amp_precision_effective(s, node, &from);
        Precision decided = amp_precision_own(s, from);
        bool nobody = decided == PRECISION_NONE || decided == PRECISION_UNSET;
        const char *source = nobody ? "" : amp_precision_attribute(from);
        if (on_cuda(node) && effective == PRECISION_TF32 && amp_nvidia_tf32_off(s)) {
            effective = PRECISION_IEEE;
            source = "NVIDIA_TF32_OVERRIDE=0";
        }
        PyObject *row = Py_BuildValue("(ssss)", amp_precision_attribute(node), amp_precision_name(own),
                                      amp_precision_name(effective), source);
        if (!row) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, n, row);
    }
    return list;
}

/* ---- legacy switches ---- */

/* `legacy` is the switch that was read and what it stands at, `node` the setting that contradicts it. */
static PyObject *raise_mixed(Settings s, const char *read, const char *legacy, const char *state, PrecisionNode node) {
    PyErr_Format(mixed_error,
                 "%s cannot be read: the settings are a mix of the legacy and new APIs. %s stands at %s, but %s is '%s'. Read "
                 "fp32_precision instead, or set both through one of the two APIs",
                 read, legacy, state, amp_precision_attribute(node), amp_precision_name(amp_precision_effective(s, node, NULL)));
    return NULL;
}

static PyObject *get_matmul_tf32(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    Settings s = amp_settings();
    if (amp_matmul_tf32_mixed(s)) {
        return raise_mixed(s, "backends.cuda.matmul.allow_tf32", "the level of set_float32_matmul_precision() / allow_tf32",
                           amp_level_name(amp_level(s)), NODE_CUDA_MATMUL);
    }
    return PyBool_FromLong(amp_matmul_tf32(s));
}

static PyObject *set_matmul_tf32(PyObject *Py_UNUSED(self), PyObject *o) {
    int allow = bool_argument(o, "allow_tf32_cublas");
    if (allow < 0) {
        return NULL;
    }
    amp_matmul_tf32_set(allow);
    Py_RETURN_NONE;
}

static PyObject *get_cudnn_tf32(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    Settings s = amp_settings();
    if (amp_cudnn_tf32_mixed(s)) {
        bool conv = (amp_precision_effective(s, NODE_CUDA_CONV, NULL) == PRECISION_TF32) != amp_cudnn_tf32(s);
        return raise_mixed(s, "backends.cudnn.allow_tf32", "its own flag", amp_cudnn_tf32(s) ? "True" : "False",
                           conv ? NODE_CUDA_CONV : NODE_CUDA_RNN);
    }
    return PyBool_FromLong(amp_cudnn_tf32(s));
}

static PyObject *set_cudnn_tf32(PyObject *Py_UNUSED(self), PyObject *o) {
    int allow = bool_argument(o, "allow_tf32_cudnn");
    if (allow < 0) {
        return NULL;
    }
    amp_cudnn_tf32_set(allow);
    Py_RETURN_NONE;
}

static PyObject *get_level(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    Settings s = amp_settings();
    MatmulLevel level = amp_level(s);
    if (amp_level_mixed(s)) {
        bool cuda = amp_matmul_tf32(s) && level == LEVEL_HIGHEST;
        return raise_mixed(s, "get_float32_matmul_precision()", "the level of set_float32_matmul_precision() / allow_tf32",
                           amp_level_name(level), cuda ? NODE_CUDA_MATMUL : NODE_MKLDNN_MATMUL);
    }
    return PyUnicode_FromString(amp_level_name(level));
}

static PyObject *set_level(PyObject *Py_UNUSED(self), PyObject *args, PyObject *kwargs) {
    static char *names[] = {"precision", NULL};
    PyObject *o;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:set_float32_matmul_precision", names, &o)) {
        return NULL;
    }
    const char *name = PyUnicode_Check(o) ? c_string(o) : PyBytes_Check(o) ? PyBytes_AS_STRING(o) : NULL;
    if (name && PyBytes_Check(o) && strlen(name) != (size_t)PyBytes_GET_SIZE(o)) {
        name = "";
    }
    if (!name) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_RuntimeError, "set_float32_matmul_precision expects a str, but got %s", Py_TYPE(o)->tp_name);
        }
        return NULL;
    }
    int level = amp_level_parse(name);
    if (level >= 0) {
        amp_level_set((MatmulLevel)level);
    } else if (PyErr_WarnFormat(
                   PyExc_UserWarning, 1,
                   "set_float32_matmul_precision: '%s' is not one of 'highest', 'high', or 'medium'; nothing is changed",
                   name) < 0) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* ---- reduced precision ---- */

static PyObject *get_reductions(int dtype) {
    Reductions r = amp_reductions(amp_settings(), dtype);
    return Py_BuildValue("(OO)", r.reduced ? Py_True : Py_False, r.split_k ? Py_True : Py_False);
}

static PyObject *set_reductions(int dtype, PyObject *const *args, Py_ssize_t nargs) {
    const char *name = dtype == AMP_FLOAT16 ? "allow_fp16_reduced_precision_reduction" : "allow_bf16_reduced_precision_reduction";
    if (nargs < 1 || nargs > 2 || !PyBool_Check(args[0]) || !PyBool_Check(args[nargs - 1])) {
        PyErr_Format(PyExc_TypeError, "%s expects a bool or a tuple of two", name);
        return NULL;
    }
    Reductions r = {.reduced = args[0] == Py_True, .split_k = nargs < 2 || args[1] == Py_True};
    if (r.reduced && !r.split_k) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s = (True, False): allow_splitk=False is not supported when reduced precision reductions are enabled. "
                     "Use (False, False), or True",
                     name);
        return NULL;
    }
    amp_reductions_set(dtype, r);
    Py_RETURN_NONE;
}

static PyObject *get_fp16_reductions(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return get_reductions(AMP_FLOAT16);
}
static PyObject *get_bf16_reductions(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return get_reductions(AMP_BFLOAT16);
}
static PyObject *set_fp16_reductions(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    return set_reductions(AMP_FLOAT16, args, nargs);
}
static PyObject *set_bf16_reductions(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    return set_reductions(AMP_BFLOAT16, args, nargs);
}

/* ---- plain switches and choices ---- */

static const char *const flag_names[SETTING_FLAG_COUNT] = {
#define X(id, initial, name) name,
    AMP_SETTING_FLAGS(X)
#undef X
};

static int find_name(const char *const *names, int n, const char *what, const char *name) {
    for (int i = 0; i < n; i++) {
        if (!strcmp(name, names[i])) {
            return i;
        }
    }
    PyErr_Format(PyExc_ValueError, "there is no %s '%s'", what, name);
    return -1;
}

static PyObject *get_flag(PyObject *Py_UNUSED(self), PyObject *name) {
    const char *text = PyUnicode_AsUTF8(name);
    int flag = text ? find_name(flag_names, SETTING_FLAG_COUNT, "setting", text) : -1;
    return flag < 0 ? NULL : PyBool_FromLong(amp_flag(amp_settings(), (SettingFlag)flag));
}

static PyObject *set_flag(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *name;
    PyObject *value;
    if (!PyArg_ParseTuple(args, "sO:_set_setting", &name, &value)) {
        return NULL;
    }
    int flag = find_name(flag_names, SETTING_FLAG_COUNT, "setting", name), on = flag < 0 ? -1 : bool_argument(value, name);
    if (on < 0) {
        return NULL;
    }
    amp_flag_set((SettingFlag)flag, on);
    Py_RETURN_NONE;
}

static PyObject *get_blas(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong((long)amp_blas_library(amp_settings()));
}

/* An integer of [low, high]; -1 with an exception. */
static long int_argument(PyObject *o, const char *what, long low, long high) {
    long value = PyLong_Check(o) && !PyBool_Check(o) ? PyLong_AsLong(o) : -1;
    if (value < low || value > high) {
        PyErr_Clear();
        PyErr_Format(PyLong_Check(o) && !PyBool_Check(o) ? PyExc_ValueError : PyExc_TypeError,
                     "%s must be an int from %ld to %ld, got %R", what, low, high, o);
        return -1;
    }
    return value;
}

static PyObject *set_blas(PyObject *Py_UNUSED(self), PyObject *o) {
    long library = int_argument(o, "the BLAS library", 0, BLAS_COUNT - 1);
    if (library < 0) {
        return NULL;
    }
    amp_blas_library_set((BlasLibrary)library);
    Py_RETURN_NONE;
}

static const char *const depthwise_names[] = {"auto", "cudnn", "native"};

static PyObject *get_depthwise(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyUnicode_FromString(depthwise_names[amp_depthwise_kernel(amp_settings())]);
}

static PyObject *set_depthwise(PyObject *Py_UNUSED(self), PyObject *o) {
    const char *name = PyUnicode_Check(o) ? c_string(o) : NULL;
    if (!name) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_RuntimeError, "set_cudnn_depthwise_kernel expects a string, but got %s", Py_TYPE(o)->tp_name);
        }
        return NULL;
    }
    for (int i = 0; i < 3; i++) {
        if (!strcmp(name, depthwise_names[i])) {
            amp_depthwise_kernel_set(i);
            Py_RETURN_NONE;
        }
    }
    PyErr_Format(PyExc_RuntimeError, "Unknown cuDNN depthwise kernel mode: '%s'. There are auto, cudnn and native", name);
    return NULL;
}

static PyObject *get_split_k(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(amp_split_k(amp_settings()));
}

static PyObject *set_split_k(PyObject *Py_UNUSED(self), PyObject *o) {
    long parts = int_argument(o, "split_k", 1, 255);
    if (parts < 0) {
        return NULL;
    }
    amp_split_k_set((int)parts);
    Py_RETURN_NONE;
}

/* ---- the whole state ---- */

static PyObject *get_state(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromUnsignedLongLong(amp_settings());
}

static PyObject *set_state(PyObject *Py_UNUSED(self), PyObject *o) {
    unsigned long long state = PyLong_AsUnsignedLongLong(o);
    if (PyErr_Occurred()) {
        return NULL;
    }
    if (!amp_settings_restore(state)) {
        PyErr_Format(PyExc_ValueError, "%R is no state of the precision settings", o);
        return NULL;
    }
    Py_RETURN_NONE;
}

/* A switch of the environment: "1" or "0"; anything else is ignored with a warning. 0, or -1 with an exception. */
static int environment_switch(const char *name, bool *on) {
    const char *value = getenv(name);
    *on = value && !strcmp(value, "1");
    if (!value || *on || !strcmp(value, "0")) {
        return 0;
    }
    return PyErr_WarnFormat(PyExc_UserWarning, 1, "Ignoring invalid value for boolean flag %s: '%s' (valid are 0 and 1)", name,
                            value);
}

static PyObject *reset(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    bool allow;
    const char *nvidia = getenv("NVIDIA_TF32_OVERRIDE");
    if (environment_switch("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", &allow) < 0) {
        return NULL;
    }
    amp_settings_reset(allow, nvidia && !strcmp(nvidia, "0"));
    Py_RETURN_NONE;
}

/* ---- the module's part ---- */

#define FAST(function) ((PyCFunction)(void (*)(void))(function)), METH_FASTCALL

static PyMethodDef functions[] = {
    {"_get_fp32_precision_getter", FAST(get_node),
     "_get_fp32_precision_getter(backend, op, /)\n--\n\nThe effective value of a node."},
    {"_set_fp32_precision_setter", FAST(set_node),
     "_set_fp32_precision_setter(backend, op, precision, /)\n--\n\nStores a value on one node and returns it."},
    {"_precision_nodes", list_nodes, METH_NOARGS,
     "_precision_nodes()\n--\n\n(attribute, own value, effective value, attribute that decided or '') of every node."},
    {"_get_cublas_allow_tf32", get_matmul_tf32, METH_NOARGS,
     "_get_cublas_allow_tf32()\n--\n\nWhether products on cuda may round inputs to TF32; RuntimeError in a mixed state."},
    {"_set_cublas_allow_tf32", set_matmul_tf32, METH_O,
     "_set_cublas_allow_tf32(enabled, /)\n--\n\nSets the matmul level and the cuda.matmul node."},
    {"_get_cudnn_allow_tf32", get_cudnn_tf32, METH_NOARGS,
     "_get_cudnn_allow_tf32()\n--\n\nThe legacy cuDNN flag; RuntimeError in a mixed state."},
    {"_set_cudnn_allow_tf32", set_cudnn_tf32, METH_O,
     "_set_cudnn_allow_tf32(enabled, /)\n--\n\nSets the legacy cuDNN flag and cuda's conv and rnn nodes."},
    {"get_float32_matmul_precision", get_level, METH_NOARGS,
     "get_float32_matmul_precision()\n--\n\n'highest', 'high' or 'medium'. Raises RuntimeError where fp32_precision settings "
     "contradict the level."},
    {"set_float32_matmul_precision", (PyCFunction)(void (*)(void))set_level, METH_VARARGS | METH_KEYWORDS,
     "set_float32_matmul_precision(precision)\n--\n\nHow fp32 products are formed, for the process: 'highest' in fp32; 'high' "
     "with inputs rounded to TF32; 'medium' with inputs rounded to TF32 on cuda and to bf16 on the CPU. Any other string warns "
     "and changes nothing. Raises RuntimeError for what is no string."},
    {"_get_cublas_allow_fp16_reduced_precision_reduction", get_fp16_reductions, METH_NOARGS,
     "_get_cublas_allow_fp16_reduced_precision_reduction()\n--\n\n(reduced, split_k) of fp16 products."},
    {"_set_cublas_allow_fp16_reduced_precision_reduction", FAST(set_fp16_reductions),
     "_set_cublas_allow_fp16_reduced_precision_reduction(enabled, allow_splitk=True, /)\n--\n\nSets both for fp16 products."},
    {"_get_cublas_allow_bf16_reduced_precision_reduction", get_bf16_reductions, METH_NOARGS,
     "_get_cublas_allow_bf16_reduced_precision_reduction()\n--\n\n(reduced, split_k) of bf16 products."},
    {"_set_cublas_allow_bf16_reduced_precision_reduction", FAST(set_bf16_reductions),
     "_set_cublas_allow_bf16_reduced_precision_reduction(enabled, allow_splitk=True, /)\n--\n\nSets both for bf16 products."},
    {"_get_setting", get_flag, METH_O, "_get_setting(name, /)\n--\n\nOne of the plain switches."},
    {"_set_setting", set_flag, METH_VARARGS, "_set_setting(name, enabled, /)\n--\n\nSets one of the plain switches."},
    {"_get_blas_library", get_blas, METH_NOARGS, "_get_blas_library()\n--\n\n0 cuBLAS, 1 cuBLASLt, 2 CK."},
    {"_set_blas_library", set_blas, METH_O, "_set_blas_library(n, /)\n--\n\n0 cuBLAS, 1 cuBLASLt, 2 CK."},
    {"_get_depthwise_kernel", get_depthwise, METH_NOARGS, "_get_depthwise_kernel()\n--\n\n'auto', 'cudnn' or 'native'."},
    {"_set_depthwise_kernel", set_depthwise, METH_O, "_set_depthwise_kernel(name, /)\n--\n\n'auto', 'cudnn' or 'native'."},
    {"_get_split_k", get_split_k, METH_NOARGS, "_get_split_k()\n--\n\nPartial sums of 16-bit products on the emulated device."},
    {"_set_split_k", set_split_k, METH_O, "_set_split_k(n, /)\n--\n\nPartial sums of 16-bit products on the emulated device."},
    {"_precision_state", get_state, METH_NOARGS, "_precision_state()\n--\n\nAll precision settings as one opaque number."},
    {"_set_precision_state", set_state, METH_O,
     "_set_precision_state(state, /)\n--\n\nRestores what _precision_state() gave; ValueError for anything else."},
    {"_reset_precision", reset, METH_NOARGS,
     "_reset_precision()\n--\n\nAll precision settings as in a new process; the environment is read again."},
    {NULL, NULL, 0, NULL},
};

int precision_init(PyObject *module) {
    PyObject *bases = PyTuple_Pack(2, PyExc_RuntimeError, PyExc_AttributeError);
    mixed_error = bases ? PyErr_NewExceptionWithDoc("ampnative.RuntimeError",
                                                    "Legacy and new precision settings contradict each other.", bases, NULL)
                        : NULL;
    Py_XDECREF(bases);
    PyObject *done = mixed_error ? reset(NULL, NULL) : NULL;
    Py_XDECREF(done);
    return done ? PyModule_AddFunctions(module, functions) : -1;
}
