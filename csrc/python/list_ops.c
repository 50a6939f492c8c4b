/* The optimizer tail: functions that take whole lists of tensors and make one backend call. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "list_gather.h"
#include "run_op.h"

/* Surely: strided tensors are looked at more closely by check_list. */
static inline bool writable(const TensorSet *s, int64_t i) {
    return (s->copy[i].layout & LAYOUT_CONTIGUOUS) && !s->tensor[i]->st->readonly;
}

/* Floating, one device; what is written has no element twice and no read-only memory. */
static int check_list(const TensorSet *s, int device, bool written, const char *what) {
    for (int64_t i = 0; i < s->n; i++) {
        const View *v = s->view[i];
        if (v->device == device && kernel_dtype(v->dtype) && (!written || writable(s, i))) {
            continue;
        }
        if (v->device != device) {
            return fail_device(what);
        }
        if (!kernel_dtype(v->dtype)) {
            return fail_dtype(what, v->dtype);
        }
        if (check_overlap(v, what) < 0 || check_writable(s->tensor[i], what) < 0) {
            return -1;
        }
    }
    return 0;
}

static int check_matches(const TensorSet *params, const TensorSet *other, bool written, const char *what, const char *name) {
    if (other->n != params->n) {
        PyErr_Format(PyExc_RuntimeError, "%s: %lld parameters but %lld entries in %s", what, (long long)params->n,
                     (long long)other->n, name);
        return -1;
    }
    bool plain = true;
    for (int64_t i = 0; i < params->n; i++) {
        const View *a = &params->copy[i], *b = &other->copy[i];
        bool alike = a->ndim == b->ndim && a->numel == b->numel;
        for (int d = 0; alike && d < a->ndim && a->ndim > 1; d++) { /* with one dimension, numel was all of it */
            alike = a->shape[d] == b->shape[d];
        }
        if (alike && a->dtype == b->dtype && a->device == b->device && (!written || writable(other, i))) {
            continue;
        }
        plain = false;
        if (!alike) {
            PyErr_Format(PyExc_RuntimeError, "%s: parameter %lld and its entry in %s have different shapes", what, (long long)i,
                         name);
            return -1;
        }
        if (a->dtype != b->dtype) {
            PyErr_Format(PyExc_RuntimeError, "%s: parameter %lld is %s but its entry in %s is %s", what, (long long)i,
                         amp_dtype_info[a->dtype].name, name, amp_dtype_info[b->dtype].name);
            return -1;
        }
    }
    return plain ? 0 : check_list(other, params->view[0]->device, written, what);
}

static int parse_bool(PyObject *o, bool *out) {
    int truth = PyObject_IsTrue(o);
    *out = truth > 0;
    return truth < 0 ? -1 : 0;
}

/* ---- norms and scaling, for clipping ---- */

static PyObject *doubles_to_list(const double *values, int64_t n) {
    PyObject *list = PyList_New((Py_ssize_t)n);
    for (int64_t i = 0; list && i < n; i++) {
        PyObject *f = PyFloat_FromDouble(values[i]);
        if (!f) {
            Py_CLEAR(list);
            break;
        }
        PyList_SET_ITEM(list, (Py_ssize_t)i, f);
    }
    return list;
}

/* Neighbours of one device in a list: where the run that starts at `begin` ends. */
static int64_t run_end(const TensorSet *s, int64_t begin) {
    int64_t end = begin;
    while (end < s->n && s->view[end]->device == s->view[begin]->device) {
        end++;
    }
    return end;
}

static int norms_run(const TensorSet *s, int64_t begin, int64_t end, double p, double *norms, const char *what) {
    for (int64_t i = begin; i < end; i++) {
        if (!kernel_dtype(s->view[i]->dtype)) {
            return fail_dtype(what, s->view[i]->dtype);
        }
    }
    const Backend *backend = backend_of(s->view[begin]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->norms) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    PyThreadState *saved = s->borrowed ? NULL : release_gil(tensor_set_bytes(s));
    Status status = backend->norms((TensorList){end - begin, s->view + begin}, p, norms + begin);
    take_gil(saved);
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

/* Tensors whose 2-norm was left beside them by unscaling are not read; the others are, in runs of neighbours on one device. */
static int norms_of(const TensorSet *s, double p, double *norms, const char *what) {
    int64_t begin = 0; /* [begin, i) is a run to be read */
    if (p == 2) {
        tensor_want_norms();
    }
    for (int64_t i = 0; i <= s->n; i++) {
        double norm = 0;
        bool kept = i < s->n && p == 2 && tensor_kept_norm(s->tensor[i], &norm);
        bool ends = i == s->n || kept || s->view[i]->device != s->view[begin]->device;
        if (ends && begin < i && norms_run(s, begin, i, p, norms, what) < 0) {
            return -1;
        }
        if (kept) {
            norms[i] = norm;
        }
        if (ends) {
            begin = i + kept;
        }
    }
    return 0;
}

/* The 2-norm of several together, correct to the last digits of a double without overflow. NaN wins over infinity. */
static double join_norms(const double *norms, int64_t n) {
    double most = 0, high = 0, low = 0;
    bool nan = false;
    int exponent;
    for (int64_t i = 0; i < n; i++) {
        nan |= isnan(norms[i]);
        most = norms[i] > most ? norms[i] : most;
    }
    if (nan || n == 1 || most == 0 || isinf(most)) {
        return nan ? (double)NAN : most;
    }
    frexp(most, &exponent);
    const double factor = ldexp(1.0, -(exponent / 2)),
                 rest = ldexp(1.0, -(exponent - exponent / 2)); /* one alone may not exist */
    for (int64_t i = 0; i < n; i++) {
        double x = norms[i] * factor * rest, square = x * x, sum = high + square;
        double error = high > square ? (high - sum) + square : (square - sum) + high;
        low += error + fma(x, x, -square);
        high = sum;
    }
    return ldexp(sqrt(high + low), exponent);
}

static PyObject *list_join_norms(PyObject *module, PyObject *list) {
    (void)module;
    if (!PyList_Check(list)) {
        PyErr_SetString(PyExc_TypeError, "_join_norms: expected a list of floats");
        return NULL;
    }
    Py_ssize_t n = PyList_GET_SIZE(list);
    double *norms = PyMem_Calloc((size_t)n + 1, sizeof *norms);
    if (!norms) {
        return PyErr_NoMemory();
    }
    for (Py_ssize_t i = 0; i < n; i++) {
        norms[i] = PyFloat_AsDouble(PyList_GET_ITEM(list, i));
    }
    double total = join_norms(norms, n);
    PyMem_Free(norms);
    return PyErr_Occurred() ? NULL : PyFloat_FromDouble(total);
}

static PyObject *kept_norm(PyObject *module, PyObject *tensor) {
    (void)module;
    double norm;
    return tensor_check(tensor) && tensor_kept_norm((Tensor *)tensor, &norm) ? PyFloat_FromDouble(norm) : Py_NewRef(Py_None);
}

static PyObject *has_twin(PyObject *module, PyObject *tensor) {
    (void)module;
    const Storage *st = tensor_check(tensor) ? ((Tensor *)tensor)->st : NULL;
    return PyBool_FromLong(st && st->twin && st->twinned == st->writes + 1);
}

static PyObject *list_norms(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_list_norms";
    double p;
    TensorSet tensors;
    if (arg_count(what, nargs, 2) < 0 || arg_double(args[1], &p) < 0 || tensor_set_gather(&tensors, args[0], what) < 0) {
        return NULL;
    }
    double small[INLINE_TENSORS];
    double *norms = tensors.n <= INLINE_TENSORS ? small : PyMem_Calloc((size_t)tensors.n, sizeof *norms);
    int failed = !norms;
    if (failed) {
        PyErr_NoMemory();
    }
    failed = failed || norms_of(&tensors, p, norms, what) < 0;
    PyObject *result = failed ? NULL : doubles_to_list(norms, tensors.n);
    if (norms != small) {
        PyMem_Free(norms);
    }
    tensor_set_release(&tensors);
    return result;
}

static int scale_run(TensorSet *s, int64_t begin, int64_t end, double factor, const char *what) {
    const Backend *backend = backend_of(s->view[begin]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->scale) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    PyThreadState *saved = NULL;
    if (s->borrowed) { /* while the tensors are still in the caches */
        list_bump(s);
    } else {
        saved = release_gil(tensor_set_bytes(s));
    }
    Status status = backend->scale((TensorList){end - begin, s->view + begin}, factor);
    take_gil(saved);
    for (int64_t i = begin; i < end && !s->borrowed; i++) {
        fetch_storages(s, i);
        tensor_bump(s->tensor[i]);
    }
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

static PyObject *list_scale_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_list_scale_";
    double factor;
    TensorSet tensors;
    if (arg_count(what, nargs, 2) < 0 || arg_double(args[1], &factor) < 0 || tensor_set_gather(&tensors, args[0], what) < 0) {
        return NULL;
    }
    int failed = 0;
    for (int64_t i = 0; i < tensors.n && !failed; i++) {
        const View *v = tensors.view[i];
        failed = !kernel_dtype(v->dtype)      ? fail_dtype(what, v->dtype)
                 : check_overlap(v, what) < 0 ? -1
                                              : check_writable(tensors.tensor[i], what);
    }
    for (int64_t begin = 0, end; begin < tensors.n && !failed; begin = end) {
        end = run_end(&tensors, begin);
        failed = scale_run(&tensors, begin, end, factor, what);
    }
    tensor_set_release(&tensors);
    return failed ? NULL : Py_NewRef(Py_None);
}

/* Gradients of a list of parameters, if they are what clip_by_norm does by itself: fp32 on one device with memory, of tensors that are no
 * subclass's, not under a loss scale. 1: so it is; 0: not so, or none; -1: exception. Nothing is held but after 1. *plain: all may be written to
 * without a closer look. */
static int gather_for_clip(TensorSet *s, PyObject *parameters, bool *plain) {
    if (!PyList_Check(parameters)) {
        return 0;
    }
    Py_ssize_t n = PyList_GET_SIZE(parameters);
    if (tensor_set_reserve(s, n) < 0) {
        return -1;
    }
    PyObject *const *item = ((PyListObject *)parameters)->ob_item;
    bool fits = true;
    int64_t bytes = 0;
    s->borrowed = true;
    fetch_first_grads(item, n);
    for (Py_ssize_t i = 0; i < n && fits; i++) {
        fetch_grads(item, n, i);
        Tensor *grad = grad_of(item[i]);
        fits = grad || tensor_check_exact(item[i]);
        if (!grad) {
            continue;
        }
        fits = tensor_check_exact((PyObject *)grad) && grad->v.dtype == AMP_FLOAT32 && grad->v.device != AMP_META &&
               storage_loss_scale(grad->st) == 0 && (s->n == 0 || grad->v.device == s->view[0]->device);
        if (fits) {
            *plain = *plain && (grad->v.layout & LAYOUT_CONTIGUOUS) && !grad->st->readonly;
            bytes += grad->v.numel * (int64_t)sizeof(float);
            list_borrow(s, grad, false);
        }
    }
    fits = fits && s->n > 0;
    if (!fits) {
        list_return(s, false);
    } else if (!gil_is_kept(s->n, bytes)) {
        list_own(s, false);
    }
    return fits;
}

static PyObject *clip_by_norm(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "clip_grad_norm_";
    double max_norm, small[INLINE_TENSORS];
    bool only_finite;
    TensorSet grads;
    if (arg_count(what, nargs, 3) < 0 || arg_double(args[1], &max_norm) < 0 || parse_bool(args[2], &only_finite) < 0) {
        return NULL;
    }
    bool plain = true;
    int fits = gather_for_clip(&grads, args[0], &plain);
    if (fits <= 0) {
        return fits < 0 ? NULL : Py_NewRef(Py_None);
    }
    Tensor *result = NULL;
    double *norms = grads.n <= INLINE_TENSORS ? small : PyMem_Malloc((size_t)grads.n * sizeof *norms);
    int failed = norms ? norms_of(&grads, 2.0, norms, what) : (PyErr_NoMemory(), -1);
    for (int64_t i = 0; i < grads.n && !failed && !plain; i++) {
        failed = check_overlap(grads.view[i], what) < 0 ? -1 : check_writable(grads.tensor[i], what);
    }
    if (!failed) {
        double total = join_norms(norms, grads.n);
        total = total < 0x1.ffffffp127 || isnan(total) ? total : (double)INFINITY; /* beyond that fp32 has infinity */
        double divisor = total + 1e-6, coefficient = divisor != 0 ? max_norm / divisor : copysign((double)INFINITY, max_norm);
        bool keep = only_finite && !isfinite(total);
        failed = keep ? 0 : scale_run(&grads, 0, grads.n, coefficient > 1 ? 1.0 : coefficient, what);
        result = failed ? NULL : tensor_new(0, NULL, AMP_FLOAT32, grads.view[0]->device);
        if (result) {
            memcpy(result->v.data, &(float){(float)total}, sizeof(float));
        }
    }
    if (norms != small) {
        PyMem_Free(norms);
    }
    tensor_set_release(&grads);
    return (PyObject *)result;
}

/* ---- optimizers ---- */

/* Names of what an optimizer's state holds for a parameter; made at import. */
enum { MOMENTUM_BUFFER, EXP_AVG, EXP_AVG_SQ, MAX_EXP_AVG_SQ, STEP, MU_PRODUCT, ENTRIES };
static const char *const entry_name[ENTRIES] = {"momentum_buffer", "exp_avg", "exp_avg_sq",
                                                "max_exp_avg_sq",  "step",    "mu_product"};
static PyObject *entry[ENTRIES];

typedef struct SgdLists {
    TensorSet params, grads, buffers;
    bool copies;   /* parameters may have been asked for 16-bit copies */
    int64_t bytes; /* of the parameters */
} SgdLists;

/* 0: all there; 1: something is missing, or unusual in a call that leaves the search to us; -1: exception. */
static int sgd_gather(SgdLists *l, PyObject *const *args, double grad_scale, const char *what) {
    bool is_state = PyDict_Check(args[2]);
    TensorSet *const set[] = {&l->buffers};
    if (args[1] == Py_None) {
        StepSets s = {.params = &l->params,
                      .grads = &l->grads,
                      .state_set = set,
                      .key = &entry[MOMENTUM_BUFFER],
                      .keys = is_state,
                      .writes_grads = grad_scale != 1};
        int fits = is_state || args[2] == Py_None ? list_gather_step(&s, args[0], is_state ? args[2] : NULL) : 0;
        l->copies = s.copies;
        l->bytes = s.bytes;
        return fits < 0 ? -1 : !fits;
    }
    l->copies = true;
    if (tensor_set_gather(&l->params, args[0], what) < 0 || tensor_set_gather(&l->grads, args[1], what) < 0) {
        return -1;
    }
    int missing = is_state ? tensor_set_lookup(set, &entry[MOMENTUM_BUFFER], 1, args[2], &l->params, what)
                           : tensor_set_gather(&l->buffers, args[2], what);
    if (missing || l->params.n == 0) {
        return missing;
    }
    int device = l->params.view[0]->device;
    l->bytes = tensor_set_bytes(&l->params);
    return !backend_of(device, what) || check_list(&l->params, device, true, what) < 0 ||
                   check_matches(&l->params, &l->grads, grad_scale != 1, what, "the gradients") < 0 ||
                   (args[2] != Py_None && check_matches(&l->params, &l->buffers, true, what, "the momentum buffers") < 0)
               ? -1
               : 0;
}

/* After a step has written the parameters, their 16-bit copies, and maybe the gradients. */
static void settle_step(TensorSet *params, TensorSet *grads, TwinSet *twins, bool grads_written, bool done) {
    const bool made = twins->n > 0;
    if (made) { /* the copies are good only for who was written once */
        list_bump(params);
        twin_set_hand_over(twins, params, done);
    }
    list_settle(params, !made);
    list_settle(grads, grads_written);
}

static int sgd_run(SgdLists *l, const SgdOptions *o, double grad_scale, const char *what) {
    const Backend *backend = backend_of(l->params.view[0]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->sgd) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    TwinSet twins = {0};
    if (l->copies && twin_set_make(&twins, &l->params) < 0) {
        return -1;
    }
    PyThreadState *saved = l->params.borrowed ? NULL : release_gil(l->bytes);
    Status status = backend->sgd(tensor_set_list(&l->params), tensor_set_list(&l->grads), tensor_set_list(&l->buffers),
                                 twin_set_list(&twins), o, grad_scale);
    take_gil(saved);
    settle_step(&l->params, &l->grads, &twins, grad_scale != 1, status == AMP_OK);
    list_settle(&l->buffers, true);
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

static PyObject *sgd_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_sgd_";
    SgdLists l;
    SgdOptions o;
    double grad_scale;
    if (arg_count(what, nargs, 11) < 0 || arg_double(args[3], &o.lr) < 0 || arg_double(args[4], &o.momentum) < 0 ||
        arg_double(args[5], &o.dampening) < 0 || arg_double(args[6], &o.weight_decay) < 0 ||
        parse_bool(args[7], &o.nesterov) < 0 || parse_bool(args[8], &o.maximize) < 0 || parse_bool(args[9], &o.first) < 0 ||
        arg_double(args[10], &grad_scale) < 0) {
        return NULL;
    }
    tensor_set_clear(&l.params);
    tensor_set_clear(&l.grads);
    tensor_set_clear(&l.buffers);
    int missing = sgd_gather(&l, args, grad_scale, what);
    bool failed = missing < 0 || (missing == 0 && l.params.n && sgd_run(&l, &o, grad_scale, what) < 0);
    tensor_set_release(&l.params);
    tensor_set_release(&l.grads);
    tensor_set_release(&l.buffers);
    return failed ? NULL : Py_NewRef(missing ? Py_False : Py_None);
}

/* Step counters and NAdam's running products are 0-dim fp32 or fp64 tensors in host memory. */
static int counter_check(const TensorSet *s, int64_t n, const char *what, const char *name) {
    if (s->n != n) {
        PyErr_Format(PyExc_RuntimeError, "%s: %lld parameters but %lld entries in %s", what, (long long)n, (long long)s->n, name);
        return -1;
    }
    for (int64_t i = 0; i < n; i++) {
        const View *v = s->view[i];
        if (v->numel != 1 || (v->dtype != AMP_FLOAT32 && v->dtype != AMP_FLOAT64) || v->device != AMP_CPU) {
            PyErr_Format(PyExc_RuntimeError, "%s: %s must be one-element float32 or float64 tensors on the CPU", what, name);
            return -1;
        }
    }
    return 0;
}

static double counter_get(const View *v) {
    if (v->dtype == AMP_FLOAT32) {
        return (double)read_float(v);
    }
    double d;
    memcpy(&d, v->data, sizeof d);
    return d;
}

static void counter_set(const View *v, double value) {
    if (v->dtype == AMP_FLOAT32) {
        float f = (float)value;
        memcpy(v->data, &f, sizeof f);
    } else {
        memcpy(v->data, &value, sizeof value);
    }
}

typedef struct AdamLists {
    TensorSet params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq, steps, mu_products;
    bool copies;   /* parameters may have been asked for 16-bit copies */
    int64_t bytes; /* of the parameters */
} AdamLists;

static int adam_check(const AdamLists *l, const AdamOptions *o, double grad_scale, const char *what) {
    if (check_list(&l->params, l->params.view[0]->device, true, what) < 0 ||
        check_matches(&l->params, &l->grads, grad_scale != 1, what, "the gradients") < 0 ||
        check_matches(&l->params, &l->exp_avg, true, what, "exp_avg") < 0 ||
        check_matches(&l->params, &l->exp_avg_sq, true, what, "exp_avg_sq") < 0 ||
        (o->amsgrad && check_matches(&l->params, &l->max_exp_avg_sq, true, what, "max_exp_avg_sq") < 0) ||
        counter_check(&l->steps, l->params.n, what, "step") < 0) {
        return -1;
    }
    return o->nadam ? counter_check(&l->mu_products, l->params.n, what, "mu_product") : 0;
}

#define ADAM_SETS(l) \
    { &(l).params, &(l).grads, &(l).exp_avg, &(l).exp_avg_sq, &(l).max_exp_avg_sq, &(l).steps, &(l).mu_products }

/* 0: all there; 1: something is missing, or unusual in a call that leaves the search to us; -1: exception. Nothing is held but after 0. */
static int adam_gather(AdamLists *l, PyObject *const *args, const AdamOptions *o, double grad_scale, const char *what) {
    enum { SETS = 7, STATES = 2, COUNTERS = 2 };
    TensorSet *const sets[SETS] = ADAM_SETS(*l);
    /* in the order in which the state is made */
    TensorSet *const stored[SETS - STATES] = {&l->steps, &l->mu_products, &l->exp_avg, &l->exp_avg_sq, &l->max_exp_avg_sq};
    PyObject *const keys[SETS - STATES] = {entry[STEP], o->nadam ? entry[MU_PRODUCT] : NULL, entry[EXP_AVG], entry[EXP_AVG_SQ],
                                           o->amsgrad ? entry[MAX_EXP_AVG_SQ] : NULL};
    const bool is_state = PyDict_Check(args[STATES]);
    if (args[1] == Py_None) {
        StepSets s = {.params = &l->params,
                      .grads = &l->grads,
                      .state_set = stored,
                      .key = keys,
                      .keys = SETS - STATES,
                      .counters = COUNTERS,
                      .writes_grads = grad_scale != 1};
        int fits = is_state ? list_gather_step(&s, args[0], args[STATES]) : 0;
        l->copies = s.copies;
        l->bytes = s.bytes;
        return fits < 0 ? -1 : !fits;
    }
    const int lists = is_state ? STATES : SETS;
    int gathered = 0, failed = 0;
    l->copies = true;
    while (gathered < lists && !failed) {
        failed = tensor_set_gather(sets[gathered], args[gathered], what);
        gathered += !failed;
    }
    if (!failed && is_state) {
        failed = tensor_set_lookup(stored, keys, SETS - STATES, args[STATES], &l->params, what);
        gathered = failed ? gathered : SETS;
    }
    if (!failed && l->params.n > 0) {
        failed = adam_check(l, o, grad_scale, what);
        l->bytes = tensor_set_bytes(&l->params);
    }
    while (failed && gathered > 0) {
        tensor_set_release(sets[--gathered]);
    }
    return failed;
}

static int adam_run(AdamLists *l, const AdamOptions *o, double grad_scale, const char *what) {
    const Backend *backend = backend_of(l->params.view[0]->device, what);
    if (!backend) {
        return -1;
    }
    if (!backend->adam) {
        return amp_raise(AMP_NO_KERNEL, what);
    }
    int64_t n = l->params.n;
    double small[2 * INLINE_TENSORS];
    double *step = n <= INLINE_TENSORS ? small : PyMem_Calloc((size_t)n, 2 * sizeof *step);
    TwinSet twins = {0};
    if (!step) {
        PyErr_NoMemory();
        return -1;
    }
    if (l->copies && twin_set_make(&twins, &l->params) < 0) {
        if (step != small) {
            PyMem_Free(step);
        }
        return -1;
    }
    double *mu = step + n;
    const bool ahead = l->params.borrowed; /* nobody can look: counted while the counters are in the caches */
    for (int64_t i = 0; i < n; i++) {
        step[i] = counter_get(l->steps.view[i]) + 1;
        mu[i] = o->nadam ? counter_get(l->mu_products.view[i]) : 1;
        if (ahead) {
            counter_set(l->steps.view[i], step[i]);
        }
    }
    PyThreadState *saved = l->params.borrowed ? NULL : release_gil(l->bytes);
    Status status = backend->adam(tensor_set_list(&l->params), tensor_set_list(&l->grads), tensor_set_list(&l->exp_avg),
                                  tensor_set_list(&l->exp_avg_sq), tensor_set_list(&l->max_exp_avg_sq), twin_set_list(&twins),
                                  step, o->nadam ? mu : NULL, o, grad_scale);
    take_gil(saved);
    for (int64_t i = 0; i < n && ahead && status != AMP_OK; i++) {
        counter_set(l->steps.view[i], step[i] - 1);
    }
    for (int64_t i = 0; i < n && !ahead && status == AMP_OK; i++) {
        if (i + FETCH_STORAGE < n) {
            fetch_line(l->steps.copy[i + FETCH_STORAGE].data, false);
        }
        counter_set(l->steps.view[i], step[i]);
    }
    for (int64_t i = 0; i < n && o->nadam && status == AMP_OK; i++) {
        counter_set(l->mu_products.view[i], mu[i]);
    }
    if (step != small) {
        PyMem_Free(step);
    }
    settle_step(&l->params, &l->grads, &twins, grad_scale != 1, status == AMP_OK);
    TensorSet *const states[] = {&l->exp_avg, &l->exp_avg_sq, &l->max_exp_avg_sq, &l->steps, &l->mu_products};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        list_settle(states[i], true);
    }
    return status == AMP_OK ? 0 : amp_raise(status, what);
}

static PyObject *adam_(PyObject *module, PyObject *const *args, Py_ssize_t nargs) {
    (void)module;
    static const char what[] = "_adam_";
    AdamOptions o;
    double grad_scale;
    if (arg_count(what, nargs, 18) < 0 || arg_double(args[7], &o.lr) < 0 || arg_double(args[8], &o.beta1) < 0 ||
        arg_double(args[9], &o.beta2) < 0 || arg_double(args[10], &o.eps) < 0 || arg_double(args[11], &o.weight_decay) < 0 ||
        arg_double(args[12], &o.momentum_decay) < 0 || parse_bool(args[13], &o.amsgrad) < 0 ||
        parse_bool(args[14], &o.maximize) < 0 || parse_bool(args[15], &o.decoupled) < 0 || parse_bool(args[16], &o.nadam) < 0 ||
        arg_double(args[17], &grad_scale) < 0) {
        return NULL;
    }
    AdamLists l;
    int missing = adam_gather(&l, args, &o, grad_scale, what);
    if (missing) {
        return missing < 0 ? NULL : Py_NewRef(Py_False);
    }
    bool failed = l.params.n > 0 && adam_run(&l, &o, grad_scale, what) < 0;
    TensorSet *const sets[] = ADAM_SETS(l);
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        tensor_set_release(sets[i]);
    }
    return failed ? NULL : Py_NewRef(Py_None);
}

/* ---- gradients of a list of parameters ---- */

/* A list of all gradients, or None if any parameter has none or the parameters are on several devices. */
static PyObject *grads_of(PyObject *module, PyObject *params) {
    (void)module;
    if (!PyList_Check(params) && !PyTuple_Check(params)) {
        PyErr_SetString(PyExc_TypeError, "_grads_of: expected a list of tensors");
        return NULL;
    }
    Py_ssize_t n = PySequence_Fast_GET_SIZE(params);
    PyObject *grads = PyList_New(n);
    int device = -1;
    for (Py_ssize_t i = 0; grads && i < n; i++) {
        PyObject *p = PySequence_Fast_GET_ITEM(params, i);
        Tensor *grad = tensor_check(p) ? ((Tensor *)p)->grad : NULL;
        bool fits = grad && (i == 0 || grad->v.device == device);
        device = grad ? grad->v.device : device;
        if (!fits) {
            Py_DECREF(grads);
            return Py_NewRef(Py_None);
        }
        PyList_SET_ITEM(grads, i, Py_NewRef((PyObject *)grad));
    }
    return grads;
}

/* The gradients of a list of parameters; false: one of them is more than plain numbers of the set's device. *plain: all may be written
 * to without a closer look. */
static bool gather_plain_grads(TensorSet *s, PyObject *params, bool *plain) {
    int64_t bytes = 0;
    PyObject *const *item = ((PyListObject *)params)->ob_item;
    const Py_ssize_t n = PyList_GET_SIZE(params);
    s->borrowed = true;
    fetch_first_grads(item, n);
    for (Py_ssize_t i = 0; i < n; i++) {
        fetch_grads(item, n, i);
        Tensor *grad = grad_of(item[i]);
        if (!grad && tensor_check_exact(item[i])) {
            continue;
        }
        if (!grad || !tensor_check_exact((PyObject *)grad) || tensor_requires_grad(grad) || (grad->flags & TENSOR_INFERENCE) ||
            !kernel_dtype(grad->v.dtype) || (s->n && grad->v.device != s->view[0]->device)) {
            return false;
        }
        *plain = *plain && (grad->v.layout & LAYOUT_CONTIGUOUS) && !grad->st->readonly;
        bytes += grad->v.numel * (int64_t)amp_itemsize(grad->v.dtype);
        list_borrow(s, grad, true);
    }
    if (!gil_is_kept(s->n, bytes)) {
        list_own(s, true);
    }
    return true;
}

/* p.grad.zero_() for every parameter of a list that has a gradient. False, and nothing done, if that takes more than zeros. */
static PyObject *zero_grads(PyObject *module, PyObject *params) {
    (void)module;
    static const char what[] = "zero_grad";
    TensorSet grads;
    if (!PyList_Check(params)) {
        Py_RETURN_FALSE;
    }
    if (tensor_set_reserve(&grads, PyList_GET_SIZE(params)) < 0) {
        return NULL;
    }
    const Backend *backend = NULL;
    Status status = AMP_OK;
    bool failed = false, plain = true, fits = gather_plain_grads(&grads, params, &plain);
    if (fits && grads.n) {
        int device = grads.view[0]->device;
        if (grads.borrowed && (!plain || device == AMP_META)) {
            list_own(&grads, true); /* what raises may run anything */
        }
        backend = backend_of(device, what);
        failed = !backend || (!plain && check_list(&grads, device, true, what) < 0);
        fits = !failed && backend->zero;
    }
    if (fits && grads.n) {
        PyThreadState *saved = grads.borrowed ? NULL : release_gil(tensor_set_bytes(&grads));
        status = backend->zero(tensor_set_list(&grads));
        take_gil(saved);
        list_settle(&grads, true);
        for (Py_ssize_t i = 0; status == AMP_OK && i < PyList_GET_SIZE(params); i++) {
            tensor_forget_losses(PyList_GET_ITEM(params, i));
        }
    }
    if (!fits && grads.borrowed) {
        list_return(&grads, true);
    } else {
        tensor_set_release(&grads);
    }
    if (status != AMP_OK) {
        amp_raise(status, what);
    }
    return failed || status != AMP_OK ? NULL : PyBool_FromLong(fits);
}

/* p.grad = None for every parameter of a list. A destructor may run and change the list: the size is read anew each time. */
static PyObject *clear_grads(PyObject *module, PyObject *params) {
    (void)module;
    if (!PyList_Check(params) && !PyTuple_Check(params)) {
        PyErr_SetString(PyExc_TypeError, "_clear_grads: expected a list of tensors");
        return NULL;
    }
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(params); i++) {
        PyObject *p = PySequence_Fast_GET_ITEM(params, i);
        if (tensor_check(p)) {
            Py_CLEAR(((Tensor *)p)->grad);
        }
    }
    Py_RETURN_NONE;
}

#define FAST(function) ((PyCFunction)(void (*)(void))(function))
static PyMethodDef methods[] = {
    {"_list_norms", FAST(list_norms), METH_FASTCALL,
     "_list_norms(tensors, p, /)\n--\n\nThe list of float p-norms, formed in fp32 (fp64 for fp64); devices may be mixed."},
    {"_list_scale_", FAST(list_scale_), METH_FASTCALL,
     "_list_scale_(tensors, factor, /)\n--\n\nMultiplies every tensor in place."},
    {"_kept_norm", kept_norm, METH_O,
     "_kept_norm(tensor, /)\n--\n\nThe 2-norm that unscaling left beside the tensor, or None if it is not known any more."},
    {"_has_twin", has_twin, METH_O, "_has_twin(tensor, /)\n--\n\nWhether an optimizer left a 16-bit copy for the next cast."},
    {"_join_norms", list_join_norms, METH_O, "_join_norms(norms, /)\n--\n\nThe 2-norm of a list of norms, a float."},
    {"_clip_by_norm_", FAST(clip_by_norm), METH_FASTCALL,
     "_clip_by_norm_(parameters, max_norm, only_finite, /)\n--\n\nScales fp32 gradients of one device so that their joint 2-norm "
     "is at "
     "most max_norm; the norm before, a 0-dim tensor. With only_finite they stay as they are if it is inf or NaN. None, and "
     "nothing "
     "done, for anything else than a list of plain parameters with such gradients."},
    {"_sgd_", FAST(sgd_), METH_FASTCALL,
     "_sgd_(params, grads, momentum_buffers, lr, momentum, dampening, weight_decay, nesterov, maximize, first, grad_scale, "
     "/)\n--\n\n"
     "One step of SGD on lists of tensors; momentum_buffers may be None. As a dict it is an optimizer's state, and buffers are "
     "its "
     "entries 'momentum_buffer': False, and nothing done, if one is missing. grads None: the parameters' own, where there are "
     "any; "
     "False, and nothing done, if something is unusual."},
    {"_adam_", FAST(adam_), METH_FASTCALL,
     "_adam_(params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq, steps, mu_products, lr, beta1, beta2, eps, weight_decay, "
     "momentum_decay, amsgrad, maximize, decoupled, nadam, grad_scale, /)\n--\n\n"
     "One step of the Adam family on lists of tensors; max_exp_avg_sq and mu_products may be None. steps are 0-dim tensors and "
     "are counted up. exp_avg as a dict is an optimizer's state (the lists after it are not looked at then): False, and nothing "
     "done, "
     "if an entry is missing. grads None, with a dict: the parameters' own, where there are any; False, and nothing done, if "
     "something is unusual."},
    {"_grads_of", grads_of, METH_O,
     "_grads_of(params, /)\n--\n\nThe list of gradients, or None if any parameter has none or they are on several devices."},
    {"_zero_grads", zero_grads, METH_O,
     "_zero_grads(params, /)\n--\n\nZeros every gradient in place. False, and nothing done, if one is not a plain tensor, or has "
     "a "
     "history."},
    {"_clear_grads", clear_grads, METH_O, "_clear_grads(params, /)\n--\n\np.grad = None for each of the list."},
    {NULL, NULL, 0, NULL},
};

int list_ops_init(PyObject *module) {
    for (int i = 0; i < ENTRIES; i++) {
        if (!entry[i] && !(entry[i] = PyUnicode_InternFromString(entry_name[i]))) {
            return -1;
        }
    }
    return PyModule_AddFunctions(module, methods);
}
