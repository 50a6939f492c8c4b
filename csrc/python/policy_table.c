/* The autocast policies as tables for Python, and what a policy and a dtype rule make of given dtypes. Nothing runs here. */
#include <string.h>

#include "../core/policy.h"
#include "autocast_region.h"
#include "run_op.h"

static PyObject *entry_dict(const char *entry, const char *row, Policy cuda, Policy cpu, const char *what) {
    return Py_BuildValue("{s:s,s:z,s:s,s:s,s:z}", "entry", entry, "row", row, "cuda", amp_policy_name(cuda), "cpu",
                         amp_policy_name(cpu), "absent", what);
}

static int append_entry(PyObject *list, PyObject *entry) {
    int failed = entry ? PyList_Append(list, entry) : -1;
    Py_XDECREF(entry);
    return failed;
}

static int append_row(PyObject *list, const char *entry, const OpRow *r) {
    return append_entry(list, entry_dict(entry, r->id, (Policy)r->cuda_policy, (Policy)r->cpu_policy, NULL));
}

enum { NO_ROW = -1 };

/* The row whose policy a row without an own list entry shares, or NO_ROW. */
static int through(int op) {
    static const int pairs[][2] = {
#define OP_THROUGH(id, other) {OP_##id, OP_##other},
#include "../core/ops_absent.def"
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (pairs[i][0] == op) {
            return pairs[i][1];
        }
    }
    return NO_ROW;
}

/* The first row whose name is that of an entry, or NULL. With `overload`, the part behind the entry's dot is not looked at. */
static const OpRow *row_of_entry(const char *entry, bool overload) {
    size_t n = overload ? strcspn(entry, ".") : strlen(entry);
    for (int i = 0; i < OP_COUNT; i++) {
        if (strlen(amp_rows[i].name) == n && !memcmp(amp_rows[i].name, entry, n)) {
            return &amp_rows[i];
        }
    }
    return NULL;
}

/* PyTorch's entries of ops that exist: a row's own name unless ops_absent.def gives others. */
static int existing_entries(PyObject *list) {
    static const struct {
        int op;
        const char *entry;
    } other[] = {
#define OP_ENTRY(id, entry) {OP_##id, entry},
#include "../core/ops_absent.def"
    };
    for (int i = 0; i < OP_COUNT; i++) {
        const OpRow *r = &amp_rows[i];
        bool renamed = false;
        for (size_t k = 0; k < sizeof other / sizeof *other; k++) {
            if (other[k].op == i) {
                renamed = true;
                if (append_row(list, other[k].entry, r) < 0) {
                    return -1;
                }
            }
        }
        bool listed = r->cuda_policy != POLICY_NONE || r->cpu_policy != POLICY_NONE;
        if (!renamed && listed && through(i) == NO_ROW && append_row(list, r->name, r) < 0) {
            return -1;
        }
    }
    return 0;
}

static PyObject *policy_entries(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    static const struct {
        const char *entry;
        Policy cuda, cpu;
        const char *what;
    } absent[] = {
#define OP_ABSENT(entry, cuda, cpu, what) {entry, POLICY_##cuda, POLICY_##cpu, what},
#include "../core/ops_absent.def"
    };
    PyObject *list = PyList_New(0);
    if (list && existing_entries(list) < 0) {
        Py_CLEAR(list);
    }
    for (size_t i = 0; list && i < sizeof absent / sizeof *absent; i++) {
        if (row_of_entry(absent[i].entry, false)) {
            continue; /* its row has said it */
        }
        const OpRow *row = row_of_entry(absent[i].entry, true);
        if (append_entry(list, entry_dict(absent[i].entry, row ? row->id : NULL, absent[i].cuda, absent[i].cpu,
                                          row ? NULL : absent[i].what)) < 0) {
            Py_CLEAR(list);
        }
    }
    return list;
}

/* ---- what an op would run in and return ---- */

/* Masks and indices take no part in dtype rules. */
static bool is_selector(const Param *p) {
    static const char *const names[] = {"index", "indices", "mask", "condition", "attn_mask"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (!strcmp(p->name, names[i])) {
            return true;
        }
    }
    return false;
}

enum { MOST = 64 }; /* dtypes in one question */

/* Which of the n dtypes are selectors: in the order of the row's tensor parameters, a list takes what the others leave. Class numbers
 * for a loss are selectors too. False if the row does not take n tensors. */
static bool assign(const OpRow *row, int n, const int8_t *dtypes, bool *selector) {
    int least = 0, most = 0, list = NO_ROW, at = 0;
    for (int i = 0; i < row->nparams; i++) {
        const Param *p = &row->param[i];
        if (i == row->out_index || (p->kind != ARG_TENSOR && p->kind != ARG_TENSORS)) {
            continue;
        }
        most++;
        least += !p->optional && !p->has_default;
        list = p->kind == ARG_TENSORS ? i : list;
    }
    if (n < least || (list == NO_ROW && n > most)) {
        return false;
    }
    for (int i = 0; i < row->nparams && at < n; i++) {
        const Param *p = &row->param[i];
        if (i == row->out_index || (p->kind != ARG_TENSOR && p->kind != ARG_TENSORS)) {
            continue;
        }
        for (int k = i == list ? n - most + 1 : 1; k > 0 && at < n; k--, at++) {
            selector[at] = is_selector(p) ||
                           (!strcmp(p->name, "target") && row->rule == RULE_EQUAL && amp_is_integral(dtypes[at]));
        }
    }
    return true;
}

static int answer(const OpRow *row, int n, int8_t *dtypes, const bool *selector, int device) {
    AutocastDevice region = device == AMP_CUDA ? AUTOCAST_CUDA : AUTOCAST_CPU;
    const OpRow *ruling = row;
    if (device == AMP_CUDA ? row->cuda_policy == POLICY_NONE : row->cpu_policy == POLICY_NONE) {
        ruling = through(row->op) == NO_ROW ? row : &amp_rows[through(row->op)];
    }
    uint8_t eligible[MOST];
    int8_t values[MOST];
    int set_dtype = -1, nvalues = 0;
    if (amp_autocast_enabled(region)) {
        for (int i = 0; i < n; i++) {
            eligible[i] = amp_policy_eligible(dtypes[i], device, device);
        }
        PolicyResult r = amp_policy_target((Policy)(device == AMP_CUDA ? ruling->cuda_policy : ruling->cpu_policy),
                                           amp_autocast_dtype(region), n, dtypes, eligible);
        if (r.error != POLICY_OK) {
            return autocast_raise(row->name, &r, dtypes);
        }
        for (int i = 0; i < n && r.cast_to >= 0; i++) {
            dtypes[i] = eligible[i] ? r.cast_to : dtypes[i];
        }
        set_dtype = r.set_dtype;
    }
    for (int i = 0; i < n; i++) {
        if (!selector[i]) {
            values[nvalues++] = dtypes[i];
        }
    }
    int result = amp_rule_result((DTypeRule)row->rule, device, nvalues, values, set_dtype, amp_state.default_dtype);
    if (result < 0) {
        PyErr_Format(PyExc_RuntimeError, "%s does not take tensors of %s%s", row->name,
                     nvalues ? amp_dtype_info[values[0]].name : "no dtype", nvalues > 1 ? " with the other dtypes" : "");
    }
    return result;
}

static PyObject *result_dtype(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 3 || !PyUnicode_Check(args[0]) || !PyTuple_Check(args[1]) || PyTuple_GET_SIZE(args[1]) > MOST) {
        PyErr_SetString(PyExc_TypeError, "_result_dtype() takes (row: str, dtypes: tuple of at most 64, device)");
        return NULL;
    }
    int n = (int)PyTuple_GET_SIZE(args[1]), device = device_parse(args[2]);
    if (device != AMP_CPU && device != AMP_CUDA) {
        if (device >= 0) {
            PyErr_SetString(PyExc_ValueError, "autocast has op policies for \"cpu\" and \"cuda\"");
        }
        return NULL;
    }
    int8_t dtypes[MOST];
    bool selector[MOST] = {false};
    for (int i = 0; i < n; i++) {
        int dtype = dtype_parse(PyTuple_GET_ITEM(args[1], i));
        if (dtype < 0) {
            return NULL;
        }
        dtypes[i] = (int8_t)dtype;
    }
    for (int i = 0; i < OP_COUNT; i++) {
        if (PyUnicode_CompareWithASCIIString(args[0], amp_rows[i].id) == 0) {
            if (!assign(&amp_rows[i], n, dtypes, selector)) {
                Py_RETURN_NONE;
            }
            int result = answer(&amp_rows[i], n, dtypes, selector, device);
            return result < 0 ? NULL : dtype_object(result);
        }
    }
    PyErr_Format(PyExc_ValueError, "no op row is called %U", args[0]);
    return NULL;
}

static int policy_parse(PyObject *o) {
    for (int p = POLICY_NONE; PyUnicode_Check(o) && p <= POLICY_BANNED; p++) {
        if (PyUnicode_CompareWithASCIIString(o, amp_policy_name((Policy)p)) == 0) {
            return p;
        }
    }
    PyErr_Format(PyExc_ValueError, "unknown policy %R: use lower, fp32, promote, banned or none", o);
    return -1;
}

/* For ops that are Python functions: the caller looked which arguments are eligible. */
static PyObject *policy_target(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs) {
    if (nargs != 4 || !PyUnicode_Check(args[1]) || !PyTuple_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "_policy_target() takes (policy: str, name: str, dtypes: tuple, device)");
        return NULL;
    }
    int policy = policy_parse(args[0]), device = policy < 0 ? -1 : device_parse(args[3]);
    const char *name = PyUnicode_AsUTF8(args[1]);
    if (device < 0 || !name) {
        return NULL;
    }
    Py_ssize_t n = PyTuple_GET_SIZE(args[2]);
    int8_t *dtypes = PyMem_Malloc((size_t)n + 1);
    uint8_t *eligible = PyMem_Malloc((size_t)n + 1);
    PyObject *answer = NULL;
    if (!dtypes || !eligible) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        int dtype = dtype_parse(PyTuple_GET_ITEM(args[2], i));
        if (dtype < 0) {
            goto done;
        }
        dtypes[i] = (int8_t)dtype;
        eligible[i] = 1;
    }
    PolicyResult r = amp_policy_target((Policy)policy, amp_autocast_dtype(device == AMP_CUDA ? AUTOCAST_CUDA : AUTOCAST_CPU),
                                       (int)n, dtypes, eligible);
    if (r.error != POLICY_OK) {
        autocast_raise(name, &r, dtypes);
    } else {
        answer = r.cast_to < 0 ? Py_NewRef(Py_None) : dtype_object(r.cast_to);
    }
done:
    PyMem_Free(dtypes);
    PyMem_Free(eligible);
    return answer;
}

int policy_table_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"_policy_entries", policy_entries, METH_NOARGS,
         "_policy_entries()\n--\n\nPyTorch's autocast lists, a list of dicts: entry, row (None: absent), cuda, cpu, absent."},
        {"_policy_target", (PyCFunction)(void (*)(void))policy_target, METH_FASTCALL,
         "_policy_target(policy, name, dtypes, device, /)\n--\n\nWhat the policy casts eligible arguments of these dtypes to in "
         "this "
         "thread's region; None: nothing."},
        {"_result_dtype", (PyCFunction)(void (*)(void))result_dtype, METH_FASTCALL,
         "_result_dtype(row, dtypes, device, /)\n--\n\nDtype that an op row would return in this thread's autocast state; None "
         "if it does not take so many tensors."},
        {NULL, NULL, 0, NULL},
    };
    return PyModule_AddFunctions(module, methods);
}
