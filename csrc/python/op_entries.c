/* The row table and the Python entries made from it: one function and one method per public name, overloads tried in order. */
#include <string.h>

#include "args.h"
#include "classes.h"
#include "derivatives/derivatives.h"
#include "op_docs.h"
#include "run_op.h"
#include "tensor_methods.h"

#define F     VARIANT_F
#define M     VARIANT_M
#define I     VARIANT_I
#define NN    VARIANT_NN
#define P     VARIANT_P
#define SAFE  OUT_SAFE
#define EXACT OUT_EXACT
#define KIND  OUT_KIND
#define BYTE  OUT_BYTE
#define ANY   OUT_ANY
#define IN0   SAVE_IN0
#define IN1   SAVE_IN1
#define IN2   SAVE_IN2
#define IN3   SAVE_IN3
#define OUT0  SAVE_OUT0
#define OUT1  SAVE_OUT1
#define CROSS SAVE_CROSS
#define META  SAVE_META
#define LIST  SAVE_LIST
OpRow amp_rows[OP_COUNT] = {
#define OP(id_, name_, variants_, signature_, cls, dtype, cuda, cpu, saves_, derivative_, fast_) \
    {.id = #id_, \
     .name = name_, \
     .signature = signature_, \
     .variants = (variants_), \
     .rule = RULE_##dtype, \
     .cuda_policy = POLICY_##cuda, \
     .cpu_policy = POLICY_##cpu, \
     .saves = (saves_), \
     .op = OP_##id_, \
     .run = run_##cls, \
     .derivative = derivative_, \
     .fast = fast_},
#include "../core/ops.def"
#undef OP
};
static const char *const class_names[OP_COUNT] = {
#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) #cls,
#include "../core/ops.def"
#undef OP
};
static const char *const derivative_names[OP_COUNT][2] = {
#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) {#derivative, #fast},
#include "../core/ops.def"
#undef OP
};
#undef F
#undef M
#undef I
#undef NN
#undef P
#undef SAFE
#undef EXACT
#undef KIND
#undef BYTE
#undef ANY

/* next[v][op]: the following overload with variant bit v, or -1. */
static int16_t next_overload[5][OP_COUNT];
static bool first_of_name[5][OP_COUNT];

static bool too_many(const OpRow *row, bool method, Py_ssize_t nargs) {
    return nargs + method > row->npositional && !(row->npositional && row->param[row->npositional - 1].varargs);
}

/* How well a call that does not fit reads as one of the row: by what of it was read, then by the number of arguments, then by how many
 * are missing. */
static int fitness(const OpRow *row, bool method, Py_ssize_t nargs, const ArgFrame *frame) {
    return (2 * frame->reached + !too_many(row, method, nargs)) * (MAX_ARGS + 1) + MAX_ARGS - frame->lacking;
}

/* Rows have the name of the function: messages about a call of the method that writes in place get its name. */
static __attribute__((noinline)) void name_in_place(const OpRow *row) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
        return;
    }
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    const size_t n = strlen(row->name);
    PyObject *text = value ? PyObject_Str(value) : NULL;
    const char *s = text ? PyUnicode_AsUTF8(text) : NULL;
    if (s && !strncmp(s, row->name, n) && s[n] == '(') {
        PyErr_Format(PyExc_TypeError, "%s_%s", row->name, s + n);
        Py_XDECREF(type);
        Py_XDECREF(value);
        Py_XDECREF(trace);
    } else {
        PyErr_Restore(type, value, trace);
    }
    Py_XDECREF(text);
}

/* The exception for a call that fits none of several overloads: what the one that understood most of it has to say, the last among
 * equals. NULL. */
static __attribute__((noinline)) PyObject *refuse_overloads(int op, int variant, PyObject *self, PyObject *const *args,
                                                            Py_ssize_t nargs, PyObject *kwnames) {
    ArgFrame frame;
    Arg arg[MAX_ARGS];
    int best = op, most = -1;
    for (; op >= 0; op = next_overload[variant][op]) {
        args_begin(&frame);
        frame.reached = frame.lacking = 0;
        int ok = args_parse(&amp_rows[op], self, args, nargs, kwnames, &frame, arg, false);
        args_done(&frame);
        if (ok < 0) {
            return NULL;
        }
        const int fit = fitness(&amp_rows[op], self != NULL, nargs, &frame);
        if (fit >= most) {
            most = fit;
            best = op;
        }
    }
    args_begin(&frame);
    int ok = args_parse(&amp_rows[best], self, args, nargs, kwnames, &frame, arg, true);
    args_done(&frame);
    if (ok > 0) { /* an argument is another one at each look */
        PyErr_Format(PyExc_TypeError, "%s(): the arguments changed while they were read", amp_rows[best].name);
    }
    return NULL;
}

static PyObject *call_overloads(int op, int variant, PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    const int first = op;
    for (;;) {
        const OpRow *row = &amp_rows[op];
        int next = next_overload[variant][op];
        ArgFrame frame;
        Arg arg[MAX_ARGS];
        args_begin(&frame);
        int ok = args_parse(row, self, args, nargs, kwnames, &frame, arg, next < 0 && op == first);
        if (ok > 0 && (variant == 1 || variant == 2) && row->out_index >= 0 && arg[row->out_index].kind != ARG_NONE) {
            PyErr_Format(PyExc_TypeError, "%s%s() got an unexpected keyword argument 'out'", row->name, variant == 2 ? "_" : "");
            ok = -1;
        }
        PyObject *result = ok > 0 ? run_op(row, arg, variant == 2) : NULL;
        args_done(&frame);
        if (ok) {
            return result;
        }
        if (next < 0) {
            if (op != first) {
                refuse_overloads(first, variant, self, args, nargs, kwnames);
            }
            if (variant == 2) {
                name_in_place(row);
            }
            return NULL;
        }
        op = next;
    }
}

/* One function object per name. Its self says which row is the first. As a kind of module it is what help(), inspect and pickle expect
 * of a function that is no method. */
static PyTypeObject *entry_type;
static Py_ssize_t entry_offset; /* of the row's number and the variant, behind what a module has */

static int *entry_code(PyObject *entry) { return (int *)(void *)((char *)entry + entry_offset); }

static PyObject *function_entry(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *kwnames) {
    const int *code = entry_code(self);
    return call_overloads(code[0], code[1], NULL, args, nargs, kwnames);
}

static int make_entry_type(void) {
    static PyType_Slot slots[] = {{0, NULL}};
    static PyType_Spec spec = {.name = "ampnative._C.functions_of_rows", .flags = Py_TPFLAGS_DEFAULT, .slots = slots};
    size_t end = (size_t)PyModule_Type.tp_basicsize;
    entry_offset = (Py_ssize_t)((end + sizeof(int) - 1) / sizeof(int) * sizeof(int));
    spec.basicsize = (int)(entry_offset + 2 * (Py_ssize_t)sizeof(int));
    entry_type = (PyTypeObject *)PyType_FromSpecWithBases(&spec, (PyObject *)&PyModule_Type);
    return entry_type ? 0 : -1;
}

static PyObject *make_entry(int row, int variant) {
    PyObject *entry = PyObject_CallFunction((PyObject *)entry_type, "s", "ampnative");
    if (entry) {
        entry_code(entry)[0] = row;
        entry_code(entry)[1] = variant;
    }
    return entry;
}

#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) \
    static PyObject *m_##id(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw) { \
        return call_overloads(OP_##id, 1, self, args, n, kw); \
    } \
    static PyObject *i_##id(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *kw) { \
        return call_overloads(OP_##id, 2, self, args, n, kw); \
    }
#include "../core/ops.def"
#undef OP
static const PyCFunctionWithKeywords method_entry[2][OP_COUNT] = {
    {
#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) \
    (PyCFunctionWithKeywords)(void (*)(void)) m_##id,
#include "../core/ops.def"
#undef OP
    },
    {
#define OP(id, name, variants, signature, cls, dtype, cuda, cpu, saves, derivative, fast) \
    (PyCFunctionWithKeywords)(void (*)(void)) i_##id,
#include "../core/ops.def"
#undef OP
    },
};

/* Names and docstrings live as long as the process. */
static char *keep_text(const char *format, const char *a, const char *b) {
    size_t n = strlen(format) + strlen(a) + strlen(b) + 1;
    char *text = PyMem_Malloc(n);
    if (text) {
        PyOS_snprintf(text, n, format, a, b);
    }
    return text;
}

static void link_overloads(void) {
    for (int v = 0; v < 5; v++) {
        for (int i = 0; i < OP_COUNT; i++) {
            next_overload[v][i] = -1;
            first_of_name[v][i] = (amp_rows[i].variants & (1 << v)) != 0;
        }
        for (int i = 0; i < OP_COUNT; i++) {
            if (!(amp_rows[i].variants & (1 << v))) {
                continue;
            }
            for (int k = i + 1; k < OP_COUNT; k++) {
                if (amp_rows[k].variants & (1 << v) && !strcmp(amp_rows[k].name, amp_rows[i].name)) {
                    next_overload[v][i] = (int16_t)k;
                    first_of_name[v][k] = false;
                    break;
                }
            }
        }
    }
}

/* Whether a Python number may stand for a tensor: element by element, or as what is filled in. Of layers, products and losses it is a
 * mistake. */
static bool takes_numbers(const OpRow *row) {
    static const ClassFn classes[] = {run_BINARY, run_DIV_MODE, run_TERNARY,    run_CLAMP_TENSOR, run_MASKED_FILL,
                                      run_FILL,   run_COPY,     run_INDEX_FILL, run_SEARCH,       run_BERNOULLI_EACH};
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        if (row->run == classes[i]) {
            return true;
        }
    }
    return false;
}

/* clamp(min=t, max=u) of tensors, or of numbers, among which 0-dim tensors count then, and max(x, t) or max(x, dim): whether there is a
 * later overload with a number of the same name, or an integer, in the same place. */
static void find_strict(void) {
    for (int i = 0; i < OP_COUNT; i++) {
        for (int p = 0; p < amp_rows[i].nparams && !takes_numbers(&amp_rows[i]); p++) {
            amp_rows[i].param[p].strict |= amp_rows[i].param[p].kind == ARG_TENSOR;
        }
        for (int v = 0; v < 5; v++) {
            for (int k = next_overload[v][i]; k >= 0; k = next_overload[v][k]) {
                for (int p = 0; p < amp_rows[i].nparams && p < amp_rows[k].nparams; p++) {
                    Param *tensor = &amp_rows[i].param[p], *number = &amp_rows[k].param[p];
                    tensor->strict |= tensor->kind == ARG_TENSOR &&
                                      ((number->kind == ARG_NUMBER && tensor->interned == number->interned) ||
                                       number->kind == ARG_INT);
                }
            }
        }
    }
}

/* The docstring of the name that row i is the first of. */
static char *doc_of(int variant, int i, DocKind kind) {
    enum { MAX_OVERLOADS = 8 };
    const OpRow *rows[MAX_OVERLOADS];
    int n = 0;
    for (int k = i; k >= 0 && n < MAX_OVERLOADS; k = next_overload[variant][k]) {
        rows[n++] = &amp_rows[k];
    }
    return op_doc(rows, n, kind);
}

int op_entries_methods(PyMethodDef *out, int limit) {
    int n = 0;
    for (int i = 0; i < OP_COUNT; i++) {
        for (int inplace = 0; inplace < 2; inplace++) {
            if (!first_of_name[1 + inplace][i]) {
                continue;
            }
            if (n == limit) {
                PyErr_SetString(PyExc_SystemError, "too many methods for the table");
                return -1;
            }
            char *name = keep_text(inplace ? "%s%s_" : "%s%s", amp_rows[i].name, "");
            char *doc = doc_of(1 + inplace, i, inplace ? DOC_INPLACE : DOC_METHOD);
            if (!name || !doc) {
                PyErr_NoMemory();
                return -1;
            }
            out[n++] = (PyMethodDef){name, (PyCFunction)(void (*)(void))method_entry[inplace][i], METH_FASTCALL | METH_KEYWORDS,
                                     doc};
        }
    }
    return n;
}

static int add_rows(PyObject *sub, int variant) {
    /* by VARIANT bit: pickle finds a function by name there */
    static const char *const home_of[] = {"ampnative", NULL, NULL, "ampnative.nn.functional", "ampnative._C.nn"};
    for (int i = 0; i < OP_COUNT; i++) {
        if (!first_of_name[variant][i]) {
            continue;
        }
        PyMethodDef *def = PyMem_Malloc(sizeof *def); /* lives as long as the process */
        char *doc = doc_of(variant, i, DOC_FUNCTION);
        PyObject *code = make_entry(i, variant);
        PyObject *module_name = PyUnicode_FromString(home_of[variant]);
        PyObject *function = NULL;
        if (def && doc && code && module_name) {
            *def = (PyMethodDef){amp_rows[i].name, (PyCFunction)(void (*)(void))function_entry, METH_FASTCALL | METH_KEYWORDS,
                                 doc};
            function = PyCFunction_NewEx(def, code, module_name);
        }
        Py_XDECREF(code);
        Py_XDECREF(module_name);
        int failed = function ? PyModule_AddObjectRef(sub, amp_rows[i].name, function) : -1;
        Py_XDECREF(function);
        if (failed) {
            return -1;
        }
    }
    return 0;
}

/* A submodule of function objects; `also` is a second variant to include, or -1. */
static int add_functions(PyObject *module, const char *name, int variant, int also) {
    char *full = keep_text("ampnative._C.%s%s", name, "");
    PyObject *sub = full ? PyModule_New(full) : NULL;
    if (!sub) {
        return -1;
    }
    int failed = add_rows(sub, variant) < 0 || (also >= 0 && add_rows(sub, also) < 0) ||
                 PyModule_AddObjectRef(module, name, sub) < 0 ||
                 PyDict_SetItemString(PyImport_GetModuleDict(), full, sub) < 0; /* so that `from ._C.functions import *` works */
    Py_DECREF(sub);
    return failed ? -1 : 0;
}

static PyObject *op_rows(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    static const char *const policies[] = {"none", "lower", "fp32", "set_opt", "append", "promote", "banned"};
    static const char *const rules[] = {"same",    "inexact", "real",      "equal",        "pair",    "second",
                                        "promote", "bits",    "float",     "cpu_same",     "bool",    "sum",
                                        "index",   "wide",    "wide_real", "wide_complex", "complex", "own"};
    PyObject *list = PyList_New(0);
    for (int i = 0; list && i < OP_COUNT; i++) {
        const OpRow *r = &amp_rows[i];
        PyObject *row = Py_BuildValue("{s:s,s:s,s:i,s:s,s:s,s:s,s:s,s:s,s:i,s:s,s:s}", "id", r->id, "name", r->name, "variants",
                                      r->variants & VARIANTS, "signature", r->signature, "class", class_names[i], "dtype",
                                      rules[r->rule], "cuda", policies[r->cuda_policy], "cpu", policies[r->cpu_policy], "saves",
                                      r->saves, "derivative", derivative_names[i][0], "fast", derivative_names[i][1]);
        if (!row || PyList_Append(list, row) < 0) {
            Py_CLEAR(list);
        }
        Py_XDECREF(row);
    }
    return list;
}

int op_entries_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"op_rows", op_rows, METH_NOARGS,
         "op_rows()\n--\n\nThe rows of the op table, a list of dicts: what tests and printed tables are made from."},
        {NULL, NULL, 0, NULL},
    };
    link_overloads();
    for (int i = 0; i < OP_COUNT; i++) {
        if (amp_rows[i].fast == f_none) {
            amp_rows[i].fast = NULL;
        }
        if (args_compile(&amp_rows[i]) < 0) {
            return -1;
        }
    }
    find_strict();
    return make_entry_type() < 0 || PyModule_AddFunctions(module, methods) < 0 || add_functions(module, "functions", 0, -1) < 0 ||
                   add_functions(module, "nn", 4, 3) < 0
               ? -1
               : 0;
}
