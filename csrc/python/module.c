/* ampnative._C: makes the one process-wide state and fills the module. */
#include <errno.h>
#include <string.h>

#include "../cpu/ceiling.h"
#include "../cpu/cpu_features.h"
#include "../cuda/emulated.h"
#include "anomaly.h"
#include "autocast_region.h"
#include "default_device.h"
#include "function.h"
#include "guard.h"
#include "interop.h"
#include "node.h"
#include "observer.h"
#include "outputs.h"
#include "package_module.h"
#include "saved_hooks.h"
#include "selective.h"
#include "tensor_methods.h"
#include "with_methods.h"

State amp_state = {.default_dtype = AMP_FLOAT32};

/* ---- small functions of the module ---- */

static PyObject *set_default_dtype(PyObject *Py_UNUSED(self), PyObject *dtype) {
    int id = dtype_parse(dtype);
    if (id < 0) {
        return NULL;
    }
    if (!amp_is_floating(id)) {
        PyErr_Format(PyExc_TypeError, "only floating-point types are supported as the default type, not %s",
                     amp_dtype_info[id].name);
        return NULL;
    }
    amp_state.default_dtype = id;
    Py_RETURN_NONE;
}

static PyObject *get_default_dtype(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return dtype_object(amp_state.default_dtype);
}

static PyObject *promote_types(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:promote_types", &a, &b)) {
        return NULL;
    }
    int x = dtype_parse(a), y = x < 0 ? -1 : dtype_parse(b);
    return y < 0 ? NULL : dtype_object(amp_promote_dtypes(x, y));
}

static PyObject *can_cast(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:can_cast", &a, &b)) {
        return NULL;
    }
    int from = dtype_parse(a), to = from < 0 ? -1 : dtype_parse(b);
    if (to < 0) {
        return NULL;
    }
    bool both_integral = amp_is_integral(from) && amp_is_integral(to);
    return PyBool_FromLong((amp_dtype_info[from].category <= amp_dtype_info[to].category || both_integral) &&
                           !(to == AMP_BOOL && from != AMP_BOOL));
}

/* A tensor, or a Python number as a wrapped tensor. New reference. */
static Tensor *operand(PyObject *o) {
    if (tensor_check(o)) {
        return (Tensor *)Py_NewRef(o);
    }
    Number n;
    if (number_from_object(o, &n) < 0) {
        return NULL;
    }
    return tensor_from_number(n, number_default_dtype(&n), AMP_CPU, true);
}

static PyObject *result_type(PyObject *Py_UNUSED(self), PyObject *args) {
    PyObject *a, *b;
    if (!PyArg_ParseTuple(args, "OO:result_type", &a, &b)) {
        return NULL;
    }
    PyObject *const given[2] = {a, b};
    for (int i = 0; i < 2; i++) {
        if (!tensor_check(given[i]) && !PyNumber_Check(given[i])) {
            PyErr_Format(PyExc_TypeError, "result_type(): argument '%s' (position %d) must be Tensor or Number, not %s",
                         i ? "tensor2" : "tensor1", i + 1, Py_TYPE(given[i])->tp_name);
            return NULL;
        }
    }
    Tensor *t[2] = {operand(a), NULL};
    t[1] = t[0] ? operand(b) : NULL;
    PyObject *result = t[1] ? dtype_object(promote_tensors(2, t)) : NULL;
    Py_XDECREF(t[0]);
    Py_XDECREF(t[1]);
    return result;
}

/* Of whatever int() takes, such as time.time(); a generator's own method wants an integer. */
static PyObject *manual_seed(PyObject *Py_UNUSED(self), PyObject *seed) {
    PyObject *number = PyNumber_Long(seed),
             *generator = number ? PyObject_GetAttrString(amp_state.module, "default_generator") : NULL;
    PyObject *result = generator ? PyObject_CallMethod(generator, "manual_seed", "O", number) : NULL;
    Py_XDECREF(generator);
    Py_XDECREF(number);
    return result;
}

static PyObject *cuda_emulated(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(amp_state.cuda_emulated);
}

static PyObject *set_cuda_emulated(PyObject *Py_UNUSED(self), PyObject *on) {
    int truth = PyObject_IsTrue(on);
    if (truth < 0) {
        return NULL;
    }
    amp_state.cuda_emulated = (uint8_t)truth;
    Py_RETURN_NONE;
}

static int memory_device(PyObject *o) {
    int device = device_parse(o);
    if (device == AMP_META) {
        PyErr_SetString(PyExc_ValueError, "device meta has no memory");
        return -1;
    }
    return device;
}

static PyObject *memory_stats(PyObject *Py_UNUSED(self), PyObject *o) {
    int device = memory_device(o);
    if (device < 0) {
        return NULL;
    }
    MemoryStats s = amp_memory_stats((Device)device);
    return Py_BuildValue("(LLLLL)", (long long)s.allocated, (long long)s.peak, (long long)s.reserved, (long long)s.allocations,
                         (long long)s.frees);
}

static PyObject *memory_reset_peak(PyObject *Py_UNUSED(self), PyObject *o) {
    int device = memory_device(o);
    if (device < 0) {
        return NULL;
    }
    amp_memory_reset_peak((Device)device);
    Py_RETURN_NONE;
}

static PyObject *memory_empty_cache(PyObject *Py_UNUSED(self), PyObject *o) {
    int device = memory_device(o);
    if (device < 0) {
        return NULL;
    }
    amp_memory_empty_cache((Device)device);
    Py_RETURN_NONE;
}

static PyObject *isa_name(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyUnicode_FromString(amp_isa_name(amp_isa()));
}

static PyObject *set_isa(PyObject *Py_UNUSED(self), PyObject *name) {
    const char *text = PyUnicode_Check(name) ? PyUnicode_AsUTF8(name) : NULL;
    if (!text || amp_isa_set_cap(text) < 0) {
        if (!PyErr_Occurred()) {
            PyErr_Format(PyExc_ValueError, "unknown instruction-set level %R: use baseline, avx2, avx512, avx512_bf16 or amx",
                         name);
        }
        return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *get_num_threads(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(amp_get_num_threads());
}

static PyObject *set_num_threads(PyObject *Py_UNUSED(self), PyObject *n) {
    if ((!PyLong_Check(n) && !(array_scalar_check(n) && PyIndex_Check(n))) || PyBool_Check(n)) {
        PyErr_Format(PyExc_RuntimeError, "set_num_threads expects an int, but got %s", Py_TYPE(n)->tp_name);
        return NULL;
    }
    PyObject *number = PyNumber_Index(n);
    int overflow = 0;
    const long count = number ? PyLong_AsLongAndOverflow(number, &overflow) : -1;
    Py_XDECREF(number);
    if (!number || (count == -1 && PyErr_Occurred())) {
        return NULL;
    }
    if (overflow || count > INT32_MAX || count < INT32_MIN) {
        PyErr_Format(PyExc_ValueError, "set_num_threads: %R does not fit an int of 32 bits. It takes 1 to 4096", n);
        return NULL;
    }
    if (count <= 0 || count > 4096) {
        PyErr_SetString(PyExc_RuntimeError, "set_num_threads expects a positive integer of at most 4096");
        return NULL;
    }
    amp_set_num_threads((int)count);
    Py_RETURN_NONE;
}

static PyObject *ceiling(PyObject *Py_UNUSED(self), PyObject *args) {
    const char *kind;
    Py_ssize_t nbytes = 0;
    if (!PyArg_ParseTuple(args, "s|n:_ceiling", &kind, &nbytes)) {
        return NULL;
    }
    const bool bf16 = strcmp(kind, "bf16") == 0, copy = strcmp(kind, "copy") == 0;
    if ((!bf16 && !copy && strcmp(kind, "fp32") != 0) || (copy && nbytes <= 0)) {
        PyErr_Format(PyExc_ValueError, "_ceiling: expected 'fp32', 'bf16' or 'copy' with its bytes, got '%s', %zd", kind, nbytes);
        return NULL;
    }
    double rate;
    Py_BEGIN_ALLOW_THREADS rate = copy ? amp_ceiling_copy((size_t)nbytes) : amp_ceiling_flops(bf16);
    Py_END_ALLOW_THREADS return rate > 0 ? PyFloat_FromDouble(rate) : PyErr_NoMemory();
}

static PyMethodDef functions[] = {
    {"set_default_dtype", set_default_dtype, METH_O,
     "set_default_dtype(dtype, /)\n--\n\nSets the dtype of Python floats and of factories without dtype=."},
    {"get_default_dtype", get_default_dtype, METH_NOARGS,
     "get_default_dtype()\n--\n\nThe dtype of Python floats and of factories without dtype=."},
    {"promote_types", promote_types, METH_VARARGS, "promote_types(type1, type2, /)\n--\n\nThe smallest dtype that both go to."},
    {"can_cast", can_cast, METH_VARARGS,
     "can_cast(from_, to, /)\n--\n\nWhether an in-place op may write one dtype into the other."},
    {"result_type", result_type, METH_VARARGS,
     "result_type(tensor1, tensor2, /)\n--\n\nThe dtype of an operation on the two, tensors or numbers."},
    {"manual_seed", manual_seed, METH_O,
     "manual_seed(seed, /)\n--\n\nSeeds the default generator with int(seed) and returns it."},
    {"_cuda_emulated", cuda_emulated, METH_NOARGS, "_cuda_emulated()\n--\n\nWhether device cuda runs on the CPU."},
    {"_set_cuda_emulated", set_cuda_emulated, METH_O, "_set_cuda_emulated(on, /)\n--\n\nSwitches the emulation of device cuda."},
    {"_memory_stats", memory_stats, METH_O,
     "_memory_stats(device, /)\n--\n\n(allocated, peak, reserved, allocations, frees) of a device, in bytes and counts."},
    {"_memory_reset_peak", memory_reset_peak, METH_O, "_memory_reset_peak(device, /)\n--\n\nStarts the peak anew."},
    {"_memory_empty_cache", memory_empty_cache, METH_O, "_memory_empty_cache(device, /)\n--\n\nGives unused blocks back."},
    {"isa_name", isa_name, METH_NOARGS, "isa_name()\n--\n\nThe instruction-set level in use."},
    {"_set_isa", set_isa, METH_O, "_set_isa(name, /)\n--\n\nCaps the instruction-set level: for tests."},
    {"_ceiling", ceiling, METH_VARARGS,
     "_ceiling(kind, nbytes=0, /)\n--\n\nWhat all threads together reach here: 'fp32' or 'bf16' operations per second from "
     "registers, or bytes per second, read plus written, that a 'copy' of nbytes moves."},
    {"get_num_threads", get_num_threads, METH_NOARGS, "get_num_threads()\n--\n\nThreads that kernels may use."},
    {"set_num_threads", set_num_threads, METH_O,
     "set_num_threads(n, /)\n--\n\nSets the threads that kernels may use, 1 to 4096; RuntimeError for anything else (ValueError "
     "beyond 32 bits)."},
    {NULL, NULL, 0, NULL},
};

/* ---- parts of the state ---- */

/* Named pairs, and the rows whose results they are. */
static const struct {
    OpId op;
    const char *type;
} pairs[] = {
    {OP_max_dim, "max"},
    {OP_min_dim, "min"},
    {OP_sort, "sort"},
    {OP_topk, "topk"},
    {OP_kthvalue, "kthvalue"},
    {OP_median_dim, "median"},
    {OP_nanmedian_dim, "nanmedian"},
    {OP_mode, "mode"},
    {OP_cummax, "cummax"},
    {OP_cummin, "cummin"},
    {OP_COUNT, "aminmax"}, /* made in Python */
};

/* The submodule return_types: one struct sequence per name, of (values, indices), or (min, max). */
static int return_types_init(PyObject *module) {
    static PyStructSequence_Field fields[] = {{"values", "elements of the input"}, {"indices", "where they stand"}, {NULL, NULL}};
    static PyStructSequence_Field extremes[] = {{"min", "least elements"}, {"max", "greatest elements"}, {NULL, NULL}};
    static char names[sizeof pairs / sizeof *pairs][48];
    PyObject *sub = PyModule_New("ampnative._C.return_types");
    int failed = sub ? 0 : -1;
    for (size_t i = 0; !failed && i < sizeof pairs / sizeof *pairs; i++) {
        PyOS_snprintf(names[i], sizeof names[i], "ampnative.return_types.%s", pairs[i].type);
        bool ends = pairs[i].op == OP_COUNT;
        const char *doc = ends ? "The pair (min, max) that aminmax returns, by name or in order."
                               : "The pair (values, indices) that the op of this name returns, by name or in order.";
        PyStructSequence_Desc desc = {names[i], doc, ends ? extremes : fields, 2};
        PyObject *type = (PyObject *)PyStructSequence_NewType(&desc);
        if (pairs[i].op < OP_COUNT) {
            amp_state.return_types[pairs[i].op] = type;
        }
        failed = type ? PyModule_AddObjectRef(sub, pairs[i].type, type) : -1;
    }
    failed = failed || PyDict_SetItemString(PyImport_GetModuleDict(), "ampnative._C.return_types", sub) < 0 ||
             PyModule_AddObjectRef(module, "return_types", sub) < 0;
    Py_XDECREF(sub);
    return failed ? -1 : 0;
}

/* A submodule of the dtype objects alone, so that the package can import them without naming each. */
static int dtypes_module_init(PyObject *module) {
    static const char name[] = "ampnative._C.dtypes";
    PyObject *sub = PyModule_New(name), *dict = PyModule_GetDict(module), *key, *value;
    Py_ssize_t at = 0;
    int failed = sub ? 0 : -1;
    while (!failed && PyDict_Next(dict, &at, &key, &value)) {
        if (Py_TYPE(value) == amp_state.dtype_type) {
            failed = PyObject_SetAttr(sub, key, value);
        }
    }
    failed = failed || PyDict_SetItemString(PyImport_GetModuleDict(), name, sub) < 0 ||
             PyModule_AddObjectRef(module, "dtypes", sub) < 0;
    Py_XDECREF(sub);
    return failed ? -1 : 0;
}

static int check_environment(void) {
    const char *isa = amp_isa_error();
    if (isa) {
        PyErr_Format(PyExc_ImportError, "%s", isa);
        return -1;
    }
    const char *threads = getenv("AMPNATIVE_NUM_THREADS");
    char *end = NULL;
    errno = 0;
    if (threads && (strtol(threads, &end, 10) < 1 || *end || errno)) {
        PyErr_Format(PyExc_ImportError, "AMPNATIVE_NUM_THREADS must be a positive integer, not '%s'", threads);
        return -1;
    }
    const char *emulate = getenv("AMPNATIVE_EMULATE_CUDA");
    if (emulate && *emulate && strcmp(emulate, "0") != 0 && strcmp(emulate, "1") != 0) {
        PyErr_Format(PyExc_ImportError, "AMPNATIVE_EMULATE_CUDA must be 1 (on) or 0, not '%s'", emulate);
        return -1;
    }
    amp_state.cuda_emulated = emulate && !strcmp(emulate, "1");
    return 0;
}

static int module_exec(PyObject *module) {
    if (amp_state.module) {
        PyErr_SetString(PyExc_ImportError, "ampnative._C can be loaded once per process: it keeps one process-wide state, and "
                                           "does not support sub-interpreters");
        return -1;
    }
    if (check_environment() < 0) {
        return -1;
    }
    amp_state.module = Py_NewRef(module);
    amp_emulated_init();
    if (error_init(module) < 0 || op_entries_init(module) < 0 || types_init(module) < 0 || with_methods_init(module) < 0 ||
        package_module_init(module) < 0 || guard_init(module) < 0 || default_device_init(module) < 0 ||
        dtypes_module_init(module) < 0 || tensor_init(module) < 0 || node_init(module) < 0 || saved_hooks_init(module) < 0 ||
        selective_init(module) < 0 || anomaly_init(module) < 0 || outputs_init(module) < 0 || return_types_init(module) < 0 ||
        array_init(module) < 0 || interop_init(module) < 0 || observer_init(module) < 0 || engine_init(module) < 0 ||
        autocast_init(module) < 0 || policy_table_init(module) < 0 || function_init(module) < 0 || list_ops_init(module) < 0 ||
        scaler_ops_init(module) < 0 || module_base_init(module) < 0 || precision_init(module) < 0 || recurrent_init(module) < 0 ||
        PyModule_AddFunctions(module, functions) < 0) {
        return -1;
    }
    return 0;
}

PyMODINIT_FUNC PyInit__C(void) {
    static PyModuleDef_Slot slots[] = {
        {Py_mod_exec, (void *)module_exec},
#if PY_VERSION_HEX >= 0x030c0000
        {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED}, /* one process-wide state, as NumPy */
#endif
        {0, NULL},
    };
    static PyModuleDef def = {
        .m_base = PyModuleDef_HEAD_INIT,
        .m_name = "ampnative._C",
        .m_doc = "The native core of ampnative: tensors, autograd, autocast, optimizer kernels.",
        .m_slots = slots,
    };
    return PyModuleDef_Init(&def);
}
