/* What the driver does inside a region: the casts of arguments, and the cache of weight casts. */
#include "autocast_region.h"

#include <stddef.h>
#include <string.h>
#include <structmember.h>

#include "derivatives/derivatives.h"
#include "node.h"
#include "observer.h"

/* ---- casts ---- */

/* A cast may be kept only for fp32 leaf weights that want gradients; a kept one is right while the epoch and the weight's
 * write count are those of its making. */
static bool cacheable(const Tensor *t, int dtype, AutocastDevice device) {
    return dtype == amp_autocast_dtype(device) && t->v.dtype == AMP_FLOAT32 && t->flags & TENSOR_REQUIRES_GRAD && !t->fn &&
           !t->base && amp_autocast_cache_enabled() && !(amp_mode & MODE_INFERENCE);
}

/* Casts made with gradients on even under no_grad, so that a later use with gradients still reaches the weight. */
static Tensor *cast_with_grad(Tensor *t, int dtype) {
    uint8_t grad = amp_grad_enabled;
    amp_grad_enabled = 1;
    Tensor *cast = call_cast(t, dtype);
    amp_grad_enabled = grad;
    return cast;
}

Tensor *autocast_cached_cast(Tensor *t, int dtype, AutocastDevice device) {
    if (!cacheable(t, dtype, device)) {
        return call_cast(t, dtype);
    }
    Meta *m = tensor_meta(t);
    if (!m) {
        return NULL;
    }
    uint64_t epoch = amp_autocast_epoch();
    CastSlot *slot = &m->cast[0];
    for (int i = 0; i < CAST_SLOTS; i++) {
        CastSlot *s = &m->cast[i];
        if (s->cast && s->cast->v.dtype == dtype) {
            if (s->epoch == epoch && s->writes == t->st->writes) {
                Tensor *kept = (Tensor *)Py_NewRef((PyObject *)s->cast); /* the observer may run code that empties the cache */
                if (amp_mode & MODE_OBSERVER && observer_cache_hit(t, dtype) < 0) {
                    Py_CLEAR(kept);
                }
                return kept;
            }
            slot = s;
            break;
        }
        if (!s->cast) {
            slot = s;
        }
    }
    Tensor *cast = cast_with_grad(t, dtype);
    if (!cast) {
        return NULL;
    }
    Py_XSETREF(slot->cast, (Tensor *)Py_NewRef((PyObject *)cast));
    slot->epoch = epoch;
    slot->writes = t->st->writes;
    region_remember(t);
    if (!PyObject_GC_IsTracked((PyObject *)t)) {
        PyObject_GC_Track((PyObject *)t);
    }
    return cast;
}

/* ---- leaves with kept casts: freed when the epoch advances ---- */

static PyObject *remembered; /* list of weak references; process-wide, GIL held */

/* Making an object may run the collector, and with it code that empties the cache: what is remembered is read afterwards. */
void region_remember(Tensor *t) {
    PyObject *ref = PyWeakref_NewRef((PyObject *)t, NULL), *list = remembered ? NULL : PyList_New(0);
    if (list && !remembered) {
        remembered = Py_NewRef(list);
    }
    if (!ref || !remembered || PyList_Append(remembered, ref) < 0) {
        PyErr_Clear(); /* the cast lives until the weight's next one: memory, not correctness */
    }
    Py_XDECREF(list);
    Py_XDECREF(ref);
}

void autocast_cache_clear(void) {
    amp_autocast_clear_cache();
    PyObject *list = remembered;
    remembered = NULL;
    for (Py_ssize_t i = 0; list && i < PyList_GET_SIZE(list); i++) {
        PyObject *o = PyWeakref_GetObject(PyList_GET_ITEM(list, i));
        if (o && tensor_check(o) && ((Tensor *)o)->meta) {
            Py_INCREF(o);
            Meta *m = ((Tensor *)o)->meta;
            for (int k = 0; k < CAST_SLOTS; k++) {
                Py_CLEAR(m->cast[k].cast);
            }
            Py_DECREF(o);
        }
    }
    Py_XDECREF(list);
}

/* ---- the driver's slow path ---- */

int autocast_raise(const char *name, const PolicyResult *r, const int8_t *dtypes) {
    if (r->error == POLICY_IS_BANNED && strcmp(name, "binary_cross_entropy") != 0) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s is unsafe to autocast: its policy is \"banned\". Disable autocast around the call and give it float32 "
                     "inputs",
                     name);
        return -1;
    }
    if (r->error == POLICY_IS_BANNED) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s is unsafe to autocast: in 16 bits its logarithm of a probability can be inf. Many models use a sigmoid "
                     "layer right before it: combine the two "
                     "with binary_cross_entropy_with_logits or BCEWithLogitsLoss, which are safe, or disable autocast around the "
                     "call and give it float32 inputs",
                     name);
        return -1;
    }
    if (r->error == POLICY_REGION_IS_FP64) {
        PyErr_Format(PyExc_RuntimeError,
                     "%s: Unexpected floating ScalarType in at::autocast::prioritize: an autocast region with dtype float64 has "
                     "no rule for it",
                     name);
        return -1;
    }
    PyErr_Format(PyExc_RuntimeError,
                 "%s: Unexpected floating ScalarType %s under autocast: this op takes float32 and the region's own dtype. Cast "
                 "the argument first",
                 name, r->offender >= 0 ? amp_dtype_info[dtypes[r->offender]].name : "?");
    return -1;
}

void autocast_keep_done(AutocastKeep *k) {
    for (int i = 0; i < k->n; i++) {
        Py_DECREF(k->t[i]);
    }
    PyMem_Free(k->list);
    if (k->t != k->few) {
        PyMem_Free(k->t);
    }
}

/* The argument in the wanted dtype, kept alive in keep. There is room: the caller counted. */
static int replace(Tensor **t, int dtype, AutocastDevice device, int region, AutocastKeep *keep) {
    if ((*t)->v.dtype == dtype || !amp_policy_eligible((*t)->v.dtype, (*t)->v.device, region) || (*t)->flags & TENSOR_WRAPPED) {
        return 0;
    }
    Tensor *cast = autocast_cached_cast(*t, dtype, device);
    if (!cast) {
        return -1;
    }
    keep->t[keep->n++] = cast;
    *t = cast;
    return 0;
}

static int replace_all(const OpRow *row, Arg *arg, int dtype, AutocastDevice device, int region, AutocastKeep *keep) {
    for (int i = row->nparams - 1; i >= 0; i--) { /* so that backward reaches the first argument first, as in PyTorch */
        if (arg[i].kind == ARG_TENSOR && replace(&arg[i].t, dtype, device, region, keep) < 0) {
            return -1;
        }
        if (arg[i].kind != ARG_TENSORS || arg[i].n == 0) {
            continue;
        }
        if (!keep->list) { /* the caller's list is the caller's: casts go into a copy */
            keep->list = PyMem_Malloc((size_t)arg[i].n * sizeof *keep->list);
            if (!keep->list) {
                PyErr_NoMemory();
                return -1;
            }
            memcpy(keep->list, arg[i].ts, (size_t)arg[i].n * sizeof *keep->list);
            arg[i].ts = keep->list;
        }
        for (int k = 0; k < arg[i].n; k++) {
            if (replace(&arg[i].ts[k], dtype, device, region, keep) < 0) {
                return -1;
            }
        }
    }
    return 0;
}

static int apply_region(const OpRow *row, Arg *arg, int region, AutocastKeep *keep, int total, int8_t *dtypes,
                        uint8_t *eligible) {
    AutocastDevice device = region == AMP_CPU ? AUTOCAST_CPU : AUTOCAST_CUDA;
    uint8_t bit = region == AMP_CPU ? MODE_AUTOCAST_CPU : MODE_AUTOCAST_CUDA;
    Policy policy = (Policy)(region == AMP_CPU ? row->cpu_policy : row->cuda_policy);
    if (!(amp_mode & bit) || policy == POLICY_NONE) {
        return 0;
    }
    int n = 0;
    bool here = false;
    for (int i = 0; i < row->nparams; i++) {
        int count = arg[i].kind == ARG_TENSOR ? 1 : arg[i].kind == ARG_TENSORS ? arg[i].n : 0;
        Tensor *const *t = arg[i].kind == ARG_TENSOR ? &arg[i].t : arg[i].ts;
        for (int k = 0; k < count; k++, n++) {
            dtypes[n] = t[k]->v.dtype;
            here |= t[k]->v.device == region && !(t[k]->flags & TENSOR_WRAPPED);
            eligible[n] = amp_policy_eligible(t[k]->v.dtype, t[k]->v.device, region) && !(t[k]->flags & TENSOR_WRAPPED);
        }
    }
    if (!here) {
        return 0;
    }
    PolicyResult r = amp_policy_target(policy, amp_autocast_dtype(device), total, dtypes, eligible);
    if (r.error != POLICY_OK) {
        return autocast_raise(row->name, &r, dtypes);
    }
    amp_mode &= (uint8_t)~bit; /* what the op calls inside is not autocast again; run_op restores the byte */
    if (r.set_dtype >= 0 && row->dtype_index >= 0 && arg[row->dtype_index].kind == ARG_NONE) {
        arg[row->dtype_index] = (Arg){.kind = ARG_DTYPE, .i = r.set_dtype};
    }
    return r.cast_to >= 0 ? replace_all(row, arg, r.cast_to, device, region, keep) : 0;
}

int autocast_apply(const OpRow *row, Arg *arg, AutocastKeep *keep) {
    enum { FEW = 32 };
    int8_t few_dtypes[FEW], *dtypes = few_dtypes;
    uint8_t few_eligible[FEW], *eligible = few_eligible;
    int total = 0, failed = 0;
    for (int i = 0; i < row->nparams; i++) {
        total += arg[i].kind == ARG_TENSOR ? 1 : arg[i].kind == ARG_TENSORS ? arg[i].n : 0;
    }
    if (2 * total > (int)(sizeof keep->few / sizeof *keep->few)) { /* at most one cast per argument and device */
        keep->t = PyMem_Malloc(2 * (size_t)total * sizeof *keep->t);
    }
    if (total > FEW) {
        dtypes = PyMem_Malloc((size_t)total);
        eligible = PyMem_Malloc((size_t)total);
    }
    if (!keep->t || !dtypes || !eligible) {
        keep->t = keep->t ? keep->t : keep->few;
        PyErr_NoMemory();
        failed = -1;
    }
    for (int region = AMP_CPU; region <= AMP_CUDA && !failed; region++) {
        failed = apply_region(row, arg, region, keep, total, dtypes, eligible);
    }
    if (total > FEW) {
        PyMem_Free(dtypes);
        PyMem_Free(eligible);
    }
    return failed;
}
