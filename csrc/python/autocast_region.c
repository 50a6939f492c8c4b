/* Autocast as Python sees it: the region object and the module-level functions. */
#include "autocast_region.h"
#include "with_methods.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

static PyObject *kw_device_type, *kw_dtype, *kw_enabled, *kw_cache_enabled, *text_cuda, *text_cpu;

/* ---- device strings ---- */

static int parse_device(PyObject *o, AutocastDevice *out, const char *unsupported) {
    if (!PyUnicode_Check(o)) {
        PyErr_Format(PyExc_TypeError, "device_type must be a str such as \"cuda\" or \"cpu\", not %s", Py_TYPE(o)->tp_name);
        return -1;
    }
    if (o == text_cpu) {
        *out = AUTOCAST_CPU;
        return 0;
    }
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(o, &size);
    if (!text) {
        return -1;
    }
    if ((size_t)size != strlen(text)) {
        PyErr_Format(PyExc_RuntimeError, "Invalid device string: %R", o);
        return -1;
    }
    switch (amp_autocast_device_parse(text, out)) {
    case AUTOCAST_PARSE_OK: return 0;
    case AUTOCAST_PARSE_EMPTY: PyErr_SetString(PyExc_RuntimeError, "Device string must not be empty"); return -1;
    case AUTOCAST_PARSE_INVALID: PyErr_Format(PyExc_RuntimeError, "Invalid device string: '%s'", text); return -1;
    case AUTOCAST_PARSE_UNKNOWN:
        PyErr_Format(PyExc_RuntimeError,
                     "Expected one of cpu, cuda, xpu, mps, xla, hpu, mtia, maia device type at start of device string: %s", text);
        return -1;
    default:
        if (!unsupported) {
            return 1;
        }
        PyErr_Format(PyExc_RuntimeError, unsupported, text);
        return -1;
    }
}

/* ---- module-level functions ---- */

/* TypeError for what is given for a dtype and is none: what it is, and how the one that was probably meant is spelled. */
static void refuse_dtype(const char *function, PyObject *got) {
    const char *text = PyUnicode_Check(got) ? PyUnicode_AsUTF8(got) : NULL, *name = text ? strrchr(text, '.') : NULL;
    name = name ? name + 1 : text;
    bool known = name && (!strcmp(name, "bfloat16") || !strcmp(name, "float16"));
    PyErr_Clear(); /* surrogates have no UTF-8: such text is no dtype's name either */
    PyErr_Format(PyExc_TypeError, "%s(): argument 'dtype' must be an ampnative.dtype, not %R (%s): write dtype=ampnative.%s%s",
                 function, got, Py_TYPE(got)->tp_name, known ? name : "bfloat16", known ? "" : " or dtype=ampnative.float16");
}

static const char unknown_device[] = "unknown device type for autocast: %s";
static const char no_dtype[] = "unsupported scalarType: device type %s has no autocast";

/* Arguments by position or by name into out[0 .. max); those that are not given stay NULL. 0, or -1 with TypeError. */
static int read_arguments(const char *function, const char *const *names, int max, PyObject *const *args, Py_ssize_t n,
                          PyObject *kwnames, PyObject **out) {
    if (n > max) {
        PyErr_Format(PyExc_TypeError, "%s() takes at most %d argument%s (%zd given)", function, max, max == 1 ? "" : "s", n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = args[i];
    }
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < max && PyUnicode_CompareWithASCIIString(name, names[i])) {
            i++;
        }
        if (i == max || out[i]) {
            PyErr_Format(PyExc_TypeError,
                         i == max ? "%s() got an unexpected keyword argument '%U'" : "%s() got multiple values for argument '%U'",
                         function, name);
            return -1;
        }
        out[i] = args[n + k];
    }
    return 0;
}

static const char *const device_and_enabled[] = {"device_type", "enabled"}, *const device_and_dtype[] = {"device_type", "dtype"};

/* The only argument, a device type. */
static PyObject *device_argument(const char *function, PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    PyObject *got = NULL;
    if (read_arguments(function, device_and_dtype, 1, args, n, kwnames, &got) < 0) {
        return NULL;
    }
    if (!got) {
        PyErr_Format(PyExc_TypeError, "%s() missing 1 required argument: 'device_type'", function);
    }
    return got;
}

static PyObject *is_enabled(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    AutocastDevice device = AUTOCAST_CUDA;
    PyObject *got = NULL;
    if (read_arguments("is_autocast_enabled", device_and_enabled, 1, args, n, kwnames, &got) < 0 ||
        (got && parse_device(got, &device, unknown_device) < 0)) {
        return NULL;
    }
    return PyBool_FromLong(amp_autocast_enabled(device));
}

/* (device_type, enabled), or the old form (enabled), which means "cuda". */
static PyObject *set_enabled(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    AutocastDevice device = AUTOCAST_CUDA;
    PyObject *got[2] = {NULL, NULL};
    if (n == 1 && !kwnames) {
        got[1] = args[0];
    } else if (read_arguments("set_autocast_enabled", device_and_enabled, 2, args, n, kwnames, got) < 0) {
        return NULL;
    }
    if (!got[1] || !PyBool_Check(got[1])) {
        PyErr_SetString(PyExc_TypeError, "set_autocast_enabled() takes (device_type: str, enabled: bool) or (enabled: bool)");
        return NULL;
    }
    if (got[0] && parse_device(got[0], &device, unknown_device) < 0) {
        return NULL;
    }
    amp_autocast_set_enabled(device, got[1] == Py_True);
    Py_RETURN_NONE;
}

static PyObject *get_dtype(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    AutocastDevice device;
    PyObject *got = device_argument("get_autocast_dtype", args, n, kwnames);
    return !got || parse_device(got, &device, no_dtype) < 0 ? NULL : dtype_object(amp_autocast_dtype(device));
}

static PyObject *set_dtype(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    AutocastDevice device;
    PyObject *got[2] = {NULL, NULL};
    if (read_arguments("set_autocast_dtype", device_and_dtype, 2, args, n, kwnames, got) < 0) {
        return NULL;
    }
    if (!got[0] || !got[1]) {
        PyErr_SetString(PyExc_TypeError, "set_autocast_dtype() takes (device_type: str, dtype: ampnative.dtype)");
        return NULL;
    }
    if (Py_TYPE(got[1]) != amp_state.dtype_type) {
        refuse_dtype("set_autocast_dtype", got[1]);
        return NULL;
    }
    int found = parse_device(got[0], &device, NULL);
    if (found < 0) {
        return NULL;
    }
    if (found == 0) {
        amp_autocast_set_dtype(device, dtype_parse(got[1]));
    }
    Py_RETURN_NONE;
}

static PyObject *is_any_enabled(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    for (int device = 0; device < AUTOCAST_DEVICE_COUNT; device++) {
        if (amp_autocast_enabled((AutocastDevice)device)) {
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

static PyObject *is_cache_enabled(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyBool_FromLong(amp_autocast_cache_enabled());
}

static PyObject *set_cache_enabled(PyObject *Py_UNUSED(self), PyObject *on) {
    if (!PyBool_Check(on)) {
        PyErr_Format(PyExc_TypeError, "set_autocast_cache_enabled() takes a bool, not %s", Py_TYPE(on)->tp_name);
        return NULL;
    }
    amp_autocast_set_cache_enabled(on == Py_True);
    Py_RETURN_NONE;
}

static PyObject *increment(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(amp_autocast_increment_nesting());
}

static PyObject *decrement(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    return PyLong_FromLong(amp_autocast_decrement_nesting());
}

static PyObject *clear(PyObject *Py_UNUSED(self), PyObject *Py_UNUSED(ignored)) {
    autocast_cache_clear();
    Py_RETURN_NONE;
}

/* What the slow path does to one argument, for ops that are Python functions. */
static PyObject *cast_argument(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n) {
    int dtype = n == 2 ? dtype_parse(args[1]) : -1;
    if (n != 2 || !tensor_check(args[0]) || dtype < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_TypeError, "_autocast_cast() takes (tensor, dtype)");
        }
        return NULL;
    }
    Tensor *t = (Tensor *)args[0];
    if (t->v.dtype == dtype) {
        return Py_NewRef(args[0]);
    }
    return (PyObject *)autocast_cached_cast(t, dtype, t->v.device == AMP_CUDA ? AUTOCAST_CUDA : AUTOCAST_CPU);
}

static PyObject *is_available(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t n, PyObject *kwnames) {
    AutocastDevice device;
    PyObject *got = device_argument("is_autocast_available", args, n, kwnames);
    int found = got ? parse_device(got, &device, NULL) : -1;
    return found < 0 ? NULL : PyBool_FromLong(found == 0);
}

/* ---- the region ---- */

enum { INLINE_SAVES = 4 };

/* One per entry that has not been left: an instance may be entered while entered, and by several threads at once. */
typedef struct Entry {
    AutocastSnapshot state;
    unsigned long thread;
} Entry;

typedef struct Region {
    PyObject_HEAD
    PyObject *device_text; /* as given */
    PyObject *not_dtype;   /* what was given for a dtype and is none; NULL where it is one. Such a region cannot be entered */
    PyObject *not_bool;    /* the same of `enabled`, whose truth the field has */
    PyObject *dict, *weak;
    uint8_t device;
    int8_t dtype;
    bool enabled, cache;
    int depth, cap;
    Entry *saved; /* inline_saved, or a heap block */
    Entry inline_saved[INLINE_SAVES];
} Region;

static PyTypeObject *region_type;
static Region *spare_region; /* the one freed last, as region_new leaves it, with its reference to the type; or NULL; GIL held */

/* dtype: the one asked for, or NULL. */
static int warn_dtype(PyObject *device_text, PyObject *dtype) {
    PyObject *upper = PyObject_CallMethod(device_text, "upper", NULL);
    int failed = upper ? PyErr_WarnFormat(PyExc_UserWarning, 1,
                                          "In %U autocast, but the target dtype is not supported. Disabling autocast.\n%U "
                                          "Autocast only supports dtypes of bfloat16, float16 currently. Asked for: %R",
                                          upper, upper, dtype ? dtype : Py_None)
                       : -1;
    Py_XDECREF(upper);
    return failed;
}

/* PyTorch finds on entry that it is no bool, and so does region_enter. */
static int region_keep_enabled(Region *r, PyObject *enabled) {
    int truth = enabled ? PyObject_IsTrue(enabled) : 1;
    if (truth < 0) {
        return -1;
    }
    r->enabled = truth;
    Py_XSETREF(r->not_bool, enabled && !PyBool_Check(enabled) ? Py_NewRef(enabled) : NULL);
    return 0;
}

/* In place of what was asked for. */
static void region_disable(Region *r) {
    r->enabled = false;
    Py_CLEAR(r->not_bool);
}

/* PyTorch's checks, in PyTorch's order: which one fires first is visible. */
static int region_setup(Region *r, PyObject *device_type, PyObject *dtype, PyObject *enabled, PyObject *cache) {
    AutocastDevice device;
    if (!PyUnicode_Check(device_type)) {
        PyErr_Format(PyExc_ValueError, "Expected `device_type` of type `str`, got: `%s`", Py_TYPE(device_type)->tp_name);
        return -1;
    }
    bool with_dtype = dtype && dtype != Py_None;
    int found = parse_device(device_type, &device,
                             with_dtype ? "User specified an unsupported autocast device_type '%s'" : no_dtype);
    if (found < 0) {
        return -1;
    }
    if (device == AUTOCAST_PRIVATEUSEONE) {
        PyErr_SetString(PyExc_AssertionError, "Tried to use AMP with the `privateuseone` backend, which nobody has registered a "
                                              "module for. Use \"cpu\" or \"cuda\"");
        return -1;
    }
    if (cache && cache != Py_None && !PyBool_Check(cache)) {
        PyErr_Format(PyExc_TypeError, "cache_enabled must be a bool or None, not %s", Py_TYPE(cache)->tp_name);
        return -1;
    }
    if (region_keep_enabled(r, enabled) < 0) {
        return -1;
    }
    Py_CLEAR(r->not_dtype);
    r->device = (uint8_t)device;
    r->cache = cache && cache != Py_None ? cache == Py_True : amp_autocast_cache_enabled();
    int id = with_dtype ? dtype_parse(dtype) : amp_autocast_dtype(device);
    if (id < 0) { /* PyTorch finds out on entry, and so does region_enter */
        if (!PyErr_ExceptionMatches(PyExc_TypeError)) {
            return -1;
        }
        PyErr_Clear();
        r->not_dtype = Py_NewRef(dtype);
        id = amp_autocast_dtype(device);
    }
    r->dtype = (int8_t)id;
    r->device_text = Py_NewRef(device_type);
    if (!r->enabled) {
        return 0;
    }
    if (device == AUTOCAST_CUDA && PyUnicode_Compare(device_type, text_cuda) == 0) { /* not so "cuda:0" */
        if (!amp_state.cuda_emulated) {
            if (PyErr_WarnEx(PyExc_UserWarning,
                             "User provided device_type of 'cuda', but CUDA is not available. Disabling. "
                             "ampnative.cuda.emulate() runs CUDA's rules on the CPU",
                             1) < 0) {
                return -1;
            }
            region_disable(r);
        }
        return 0;
    }
    if (r->not_dtype || !amp_is_16bit(r->dtype)) {
        if (warn_dtype(device_type, dtype) < 0) {
            return -1;
        }
        region_disable(r);
    }
    return 0;
}

static PyObject *region_new(PyTypeObject *type, PyObject *Py_UNUSED(args), PyObject *Py_UNUSED(kwargs)) {
    Region *r;
    if (spare_region && type == region_type) {
        r = spare_region;
        spare_region = NULL;
        Py_SET_REFCNT(r, 1);
        PyObject_GC_Track(r);
        return (PyObject *)r;
    }
    r = (Region *)type->tp_alloc(type, 0);
    if (r) {
        r->saved = r->inline_saved;
        r->cap = INLINE_SAVES;
        r->device_text = Py_NewRef(Py_None);
    }
    return (PyObject *)r;
}

/* (device_type, dtype=None, enabled=True, cache_enabled=None) from positional values and (name, value) pairs. */
static int region_args(PyObject *const *args, Py_ssize_t n, PyObject *kwnames, PyObject **out) {
    PyObject *const names[4] = {kw_device_type, kw_dtype, kw_enabled, kw_cache_enabled};
    if (n > 4) {
        PyErr_Format(PyExc_TypeError, "autocast() takes at most 4 arguments (%zd given)", n);
        return -1;
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        out[i] = args[i];
    }
    for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); k++) {
        PyObject *name = PyTuple_GET_ITEM(kwnames, k);
        int i = 0;
        while (i < 4 && name != names[i]) {
            i++;
        }
        for (i = i < 4 ? i : 0; i < 4 && name != names[i] && PyUnicode_Compare(name, names[i]); i++) {
        }
        if (i == 4 || out[i]) {
            PyErr_Format(PyExc_TypeError,
                         i == 4 ? "autocast() got an unexpected keyword argument '%U'"
                                : "autocast() got multiple values for argument '%U'",
                         name);
            return -1;
        }
        out[i] = args[n + k];
    }
    if (!out[0]) {
        PyErr_SetString(PyExc_TypeError, "autocast() missing 1 required argument: 'device_type' (\"cpu\" or \"cuda\")");
        return -1;
    }
    return 0;
}

/* For subclasses, whose calls go through tp_new and tp_init. */
static int region_init(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *device_type, *dtype = NULL, *enabled = NULL, *cache = NULL;
    static char *names[] = {"device_type", "dtype", "enabled", "cache_enabled", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O|OOO:autocast", names, &device_type, &dtype, &enabled, &cache)) {
        return -1;
    }
    Region *r = (Region *)self;
    Py_CLEAR(r->device_text);
    int failed = region_setup(r, device_type, dtype, enabled, cache);
    if (!r->device_text) {
        r->device_text = Py_NewRef(Py_None);
    }
    return failed;
}

/* autocast(...) without a tuple and a dict in between. */
static PyObject *region_vectorcall(PyObject *type, PyObject *const *args, size_t nargsf, PyObject *kwnames) {
    PyObject *got[4] = {NULL, NULL, NULL, NULL};
    if (region_args(args, PyVectorcall_NARGS(nargsf), kwnames, got) < 0) {
        return NULL;
    }
    Region *r = (Region *)region_new((PyTypeObject *)type, NULL, NULL);
    if (!r) {
        return NULL;
    }
    Py_CLEAR(r->device_text);
    if (region_setup(r, got[0], got[1], got[2], got[3]) < 0) {
        if (!r->device_text) {
            r->device_text = Py_NewRef(Py_None);
        }
        Py_CLEAR(r);
    }
    return (PyObject *)r;
}

static int region_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((Region *)self)->dict);
    Py_VISIT(((Region *)self)->not_dtype);
    Py_VISIT(((Region *)self)->not_bool);
    return 0;
}

static int region_clear(PyObject *self) {
    Py_CLEAR(((Region *)self)->dict);
    Py_CLEAR(((Region *)self)->not_dtype);
    Py_CLEAR(((Region *)self)->not_bool);
    return 0;
}

static void region_dealloc(PyObject *self) {
    Region *r = (Region *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (r->weak) {
        PyObject_ClearWeakRefs(self);
    }
    Py_CLEAR(r->dict);
    Py_CLEAR(r->not_dtype);
    Py_CLEAR(r->not_bool);
    Py_SETREF(r->device_text, Py_NewRef(Py_None));
    if (r->saved != r->inline_saved) {
        PyMem_Free(r->saved);
        r->saved = r->inline_saved;
        r->cap = INLINE_SAVES;
    }
    if (!spare_region && type == region_type) {
        r->depth = 0;
        spare_region = r;
        return;
    }
    Py_DECREF(r->device_text);
    type->tp_free(self);
    Py_DECREF(type);
}

/* TypeError for what the region was made with and cannot be entered with. */
static void refuse_region(const Region *r) {
    if (r->not_dtype) {
        refuse_dtype("autocast", r->not_dtype);
        return;
    }
    PyErr_Format(PyExc_TypeError, "autocast(): argument 'enabled' must be bool, not %R (%s): write enabled=%s", r->not_bool,
                 Py_TYPE(r->not_bool)->tp_name, r->enabled ? "True" : "False");
}

static PyObject *region_enter(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    Region *r = (Region *)self;
    if (r->not_dtype || r->not_bool) {
        refuse_region(r);
        return NULL;
    }
    if (r->depth == r->cap) {
        int cap = 2 * r->cap;
        Entry *more = PyMem_Malloc((size_t)cap * sizeof *more);
        if (!more) {
            return PyErr_NoMemory();
        }
        memcpy(more, r->saved, (size_t)r->depth * sizeof *more);
        if (r->saved != r->inline_saved) {
            PyMem_Free(r->saved);
        }
        r->saved = more;
        r->cap = cap;
    }
    Entry *entry = &r->saved[r->depth++];
    amp_autocast_enter((AutocastDevice)r->device, r->enabled, r->dtype, r->cache, &entry->state);
    entry->thread = PyThread_get_thread_ident();
    return Py_NewRef(self);
}

/* Restores what this thread saved last, else (a generator that moved to another thread) what was saved last of all, and takes it off the
 * stack. The thread's new depth of regions. */
static int leave_last(Region *r) {
    unsigned long me = PyThread_get_thread_ident();
    int i = r->depth - 1;
    while (i >= 0 && r->saved[i].thread != me) {
        i--;
    }
    i = i < 0 ? r->depth - 1 : i;
    int depth = amp_autocast_leave(&r->saved[i].state);
    r->depth--;
    for (; i < r->depth; i++) {
        r->saved[i] = r->saved[i + 1];
    }
    return depth;
}

static PyObject *region_exit(PyObject *self, PyObject *const *Py_UNUSED(args), Py_ssize_t n, PyObject *kwnames) {
    static const char *const names[] = {"exc_type", "exc_val", "exc_tb"};
    Region *r = (Region *)self;
    if ((n != 3 || kwnames) && with_methods_exit_names("autocast", names, n, kwnames) < 0) {
        return NULL;
    }
    if (r->depth == 0) {
        PyErr_SetString(PyExc_RuntimeError, "this autocast instance is left without having been entered");
        return NULL;
    }
    if (leave_last(r) == 0) {
        autocast_cache_clear();
    }
    Py_RETURN_FALSE;
}

/* instance(func): a wrapper that runs func inside the region; made in Python, because functools knows how. */
static PyObject *region_call(PyObject *self, PyObject *args, PyObject *kwargs) {
    PyObject *module = PyImport_ImportModule("ampnative.amp.autocast_mode");
    PyObject *decorate = module ? PyObject_GetAttrString(module, "autocast_decorator") : NULL;
    PyObject *result = NULL;
    if (decorate) {
        if (PyTuple_GET_SIZE(args) != 1 || (kwargs && PyDict_GET_SIZE(kwargs)) || !PyCallable_Check(PyTuple_GET_ITEM(args, 0)) ||
            tensor_check(PyTuple_GET_ITEM(args, 0))) {
            PyErr_SetString(PyExc_TypeError, "autocast as a decorator requires a callable: write `@autocast(...)` above a "
                                             "function, or `with autocast(...):` around the code");
        } else {
            result = PyObject_CallFunctionObjArgs(decorate, self, PyTuple_GET_ITEM(args, 0), NULL);
        }
    }
    Py_XDECREF(decorate);
    Py_XDECREF(module);
    return result;
}

static PyObject *region_get_device(PyObject *self, void *Py_UNUSED(closure)) { return Py_NewRef(((Region *)self)->device_text); }

static PyObject *region_get_dtype(PyObject *self, void *Py_UNUSED(closure)) {
    Region *r = (Region *)self;
    return r->not_dtype ? Py_NewRef(r->not_dtype) : dtype_object(r->dtype);
}

static PyObject *region_get_enabled(PyObject *self, void *Py_UNUSED(closure)) {
    Region *r = (Region *)self;
    return r->not_bool ? Py_NewRef(r->not_bool) : PyBool_FromLong(r->enabled);
}

static PyObject *region_get_cache(PyObject *self, void *Py_UNUSED(closure)) { return PyBool_FromLong(((Region *)self)->cache); }

static int region_set_dtype(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    int id = value ? dtype_parse(value) : -1;
    if (id < 0) {
        if (!PyErr_Occurred()) {
            PyErr_SetString(PyExc_AttributeError, "fast_dtype cannot be deleted");
        }
        return -1;
    }
    ((Region *)self)->dtype = (int8_t)id;
    Py_CLEAR(((Region *)self)->not_dtype);
    return 0;
}

static int region_set_enabled(PyObject *self, PyObject *value, void *Py_UNUSED(closure)) {
    if (!value) {
        PyErr_SetString(PyExc_AttributeError, "_enabled cannot be deleted");
        return -1;
    }
    return region_keep_enabled((Region *)self, value);
}

/* Copies are made without __init__: a subclass may have one of its own. Entries are the thread's, not the copy's. */
static PyObject *region_reduce(PyObject *self, PyObject *Py_UNUSED(ignored)) {
    Region *r = (Region *)self;
    if (r->not_dtype || r->not_bool) {
        refuse_region(r);
        return NULL;
    }
    PyObject *module = PyImport_ImportModule("ampnative.amp.autocast_mode");
    PyObject *rebuild = module ? PyObject_GetAttrString(module, "rebuild_autocast") : NULL;
    Py_XDECREF(module);
    return rebuild ? Py_BuildValue("(N(OONOOO))", rebuild, (PyObject *)Py_TYPE(self), r->device_text, dtype_object(r->dtype),
                                   r->enabled ? Py_True : Py_False, r->cache ? Py_True : Py_False, r->dict ? r->dict : Py_None)
                   : NULL;
}

static int region_type_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"__enter__", region_enter, METH_NOARGS,
         "__enter__($self, /)\n--\n\nSaves the thread's state and switches to this region's."},
        {"__exit__", (PyCFunction)(void (*)(void))region_exit, METH_FASTCALL | METH_KEYWORDS,
         "__exit__($self, /, exc_type, exc_val, exc_tb)\n--\n\nRestores what the matching __enter__ saved; exceptions "
         "propagate."},
        {"__reduce__", region_reduce, METH_NOARGS, NULL},
        {NULL, NULL, 0, NULL},
    };
    static PyGetSetDef getset[] = {
        {"device", region_get_device, NULL, "The device type as given.", NULL},
        {"fast_dtype", region_get_dtype, region_set_dtype, "The region's dtype.", NULL},
        {"_enabled", region_get_enabled, region_set_enabled, "Whether the region switches autocast on.", NULL},
        {"_cache_enabled", region_get_cache, NULL, "Whether weight casts are kept.", NULL},
        {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, NULL, NULL},
        {NULL, NULL, NULL, NULL, NULL},
    };
    static PyMemberDef members[] = {
        {"__dictoffset__", T_PYSSIZET, offsetof(Region, dict), READONLY, NULL},
        {"__weaklistoffset__", T_PYSSIZET, offsetof(Region, weak), READONLY, NULL},
        {NULL, 0, 0, 0, NULL},
    };
    static PyType_Slot slots[] = {
        {Py_tp_new, region_new},
        {Py_tp_init, region_init},
        {Py_tp_dealloc, region_dealloc},
        {Py_tp_traverse, region_traverse},
        {Py_tp_clear, region_clear},
        {Py_tp_call, region_call},
        {Py_tp_methods, methods},
        {Py_tp_getset, getset},
        {Py_tp_members, members},
        {Py_tp_doc,
         "autocast(device_type, dtype=None, enabled=True, cache_enabled=None)\n--\n\n"
         "Inside `with autocast(...)`, listed ops run in the region's 16-bit dtype or in float32 as their policy says.\n"
         "Also a decorator. State is per thread; regions nest; an instance may be entered again while it is entered.\n\n"
         "device_type: \"cpu\" or \"cuda\". dtype: None takes the current one (cpu bfloat16, cuda float16). cache_enabled: keep "
         "the\n"
         "casts of float32 leaf weights until the outermost region is left; None takes the current setting."},
        {0, NULL},
    };
    static PyType_Spec spec = {
        .name = "ampnative.amp.autocast_mode.autocast",
        .basicsize = sizeof(Region),
        .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
        .slots = slots,
    };
    PyTypeObject *type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &spec, NULL);
    if (!type) {
        return -1;
    }
    type->tp_vectorcall = region_vectorcall;
    region_type = (PyTypeObject *)Py_NewRef(type);
    int failed = with_methods_add(type) < 0 ? -1 : PyModule_AddObjectRef(module, "autocast", (PyObject *)type);
    Py_DECREF(type);
    return failed;
}

int autocast_init(PyObject *module) {
    static PyMethodDef methods[] = {
        {"is_autocast_enabled", (PyCFunction)(void (*)(void))is_enabled, METH_FASTCALL | METH_KEYWORDS,
         "is_autocast_enabled(device_type='cuda')\n--\n\nWhether autocast is on in this thread."},
        {"set_autocast_enabled", (PyCFunction)(void (*)(void))set_enabled, METH_FASTCALL | METH_KEYWORDS,
         "set_autocast_enabled(device_type, enabled)\n--\n\nSwitches autocast in this thread without a region."},
        {"get_autocast_dtype", (PyCFunction)(void (*)(void))get_dtype, METH_FASTCALL | METH_KEYWORDS,
         "get_autocast_dtype(device_type)\n--\n\nThe dtype that this thread's autocast casts to."},
        {"set_autocast_dtype", (PyCFunction)(void (*)(void))set_dtype, METH_FASTCALL | METH_KEYWORDS,
         "set_autocast_dtype(device_type, dtype)\n--\n\nSets that dtype; any dtype is accepted."},
        {"_is_any_autocast_enabled", is_any_enabled, METH_NOARGS,
         "_is_any_autocast_enabled()\n--\n\nWhether autocast is on for any device type."},
        {"is_autocast_cache_enabled", is_cache_enabled, METH_NOARGS,
         "is_autocast_cache_enabled()\n--\n\nWhether weight casts are kept."},
        {"set_autocast_cache_enabled", set_cache_enabled, METH_O,
         "set_autocast_cache_enabled(enabled, /)\n--\n\nSwitches the keeping of weight casts in this thread."},
        {"autocast_increment_nesting", increment, METH_NOARGS,
         "autocast_increment_nesting()\n--\n\nRaises this thread's depth of regions and returns it."},
        {"autocast_decrement_nesting", decrement, METH_NOARGS,
         "autocast_decrement_nesting()\n--\n\nLowers the depth and returns it; it may go negative."},
        {"clear_autocast_cache", clear, METH_NOARGS, "clear_autocast_cache()\n--\n\nDrops all kept weight casts of the process."},
        {"_autocast_cast", (PyCFunction)(void (*)(void))cast_argument, METH_FASTCALL,
         "_autocast_cast(tensor, dtype, /)\n--\n\nThe tensor in another dtype, a leaf weight through the cache."},
        {"is_autocast_available", (PyCFunction)(void (*)(void))is_available, METH_FASTCALL | METH_KEYWORDS,
         "is_autocast_available(device_type)\n--\n\nWhether the device type has autocast."},
        {NULL, NULL, 0, NULL},
    };
    kw_device_type = PyUnicode_InternFromString("device_type");
    kw_dtype = PyUnicode_InternFromString("dtype");
    kw_enabled = PyUnicode_InternFromString("enabled");
    kw_cache_enabled = PyUnicode_InternFromString("cache_enabled");
    text_cuda = PyUnicode_InternFromString("cuda");
    text_cpu = PyUnicode_InternFromString("cpu");
    if (!kw_device_type || !kw_dtype || !kw_enabled || !kw_cache_enabled || !text_cuda || !text_cpu) {
        return -1;
    }
    return PyModule_AddFunctions(module, methods) < 0 || region_type_init(module) < 0 ? -1 : 0;
}
