/* Connectionist temporal classification of checked arguments, and its gradient. Beside the loss, the way forward is a result: what the
 * gradient continues from. */
#include "classes.h"

enum { CTC_LOG_PROBS, CTC_TARGETS, CTC_STEPS, CTC_LENGTHS, CTC_BLANK, CTC_ZERO_INFINITY };
enum { GRAD_GRAD, GRAD_PATHS, GRAD_FORWARD };

/* What the kernels read: the plan, and dense tensors; new references. */
typedef struct CtcInputs {
    CtcPlan plan;
    Tensor *log_probs, *targets;
} CtcInputs;

static void inputs_clear(CtcInputs *in) {
    Py_CLEAR(in->log_probs);
    Py_CLEAR(in->targets);
}

/* Log probabilities need no order but that of the classes. */
static Tensor *dense_classes(Tensor *t) { return t->v.stride[2] == 1 ? (Tensor *)Py_NewRef(t) : raw_contiguous(t); }

static bool lengths_fit(const CtcPlan *plan, const Tensor *log_probs, const Tensor *targets) {
    int64_t left = targets->v.shape[0];
    bool padded = targets->v.ndim == 2;
    for (int64_t n = 0; n < log_probs->v.shape[1]; n++) {
        int64_t length = plan->lengths[n], room = padded ? targets->v.shape[1] : left;
        if (plan->steps[n] < 0 || plan->steps[n] > log_probs->v.shape[0] || length < 0 || length > room) {
            return false;
        }
        left -= padded ? 0 : length;
    }
    return true;
}

/* Arguments as CTC_LOG_PROBS ... count them. */
static int inputs_of(const Arg *arg, CtcInputs *in) {
    Tensor *x = arg[CTC_LOG_PROBS].t, *targets = arg[CTC_TARGETS].t;
    bool shaped = x->v.ndim == 3 && (targets->v.ndim == 1 || targets->v.ndim == 2) && targets->v.dtype == AMP_INT64 &&
                  targets->v.device == x->v.device;
    int64_t samples = shaped ? x->v.shape[1] : -1, most = 0;
    *in = (CtcInputs){.plan = {.steps = arg[CTC_STEPS].ints,
                               .lengths = arg[CTC_LENGTHS].ints,
                               .blank = arg[CTC_BLANK].i,
                               .zero_infinity = arg[CTC_ZERO_INFINITY].i != 0}};
    if (!shaped || arg[CTC_STEPS].n != samples || arg[CTC_LENGTHS].n != samples || in->plan.blank < 0 ||
        in->plan.blank >= x->v.shape[2] || (targets->v.ndim == 2 && targets->v.shape[0] < samples) ||
        !lengths_fit(&in->plan, x, targets)) {
        PyErr_SetString(PyExc_RuntimeError,
                        "_ctc_samples: expected log_probs (T, N, C) and int64 targets that hold the given lengths");
        return -1;
    }
    for (int64_t n = 0; n < samples; n++) {
        most = in->plan.lengths[n] > most ? in->plan.lengths[n] : most;
    }
    in->plan.width = amp_ctc_width(most);
    in->log_probs = dense_classes(x);
    in->targets = in->log_probs ? raw_contiguous(targets) : NULL;
    return in->targets ? 0 : -1;
}

static int64_t cost(const CtcInputs *in) { return in->log_probs->v.shape[0] * in->log_probs->v.shape[1] * in->plan.width * 64; }

int run_CTC(OpCall *c) {
    CtcInputs in;
    int status = -1;
    if (inputs_of(c->arg, &in) == 0) {
        const View *x = &in.log_probs->v;
        int64_t shape[2] = {x->shape[1], amp_ctc_path(&in.plan, x->shape[0])};
        Tensor *loss = result_new(c, 0, 1, shape, x->dtype, x->device, ALIAS_NEVER);
        Tensor *paths = loss ? result_new(c, 1, 2, shape, AMP_FLOAT64, x->device, ALIAS_NEVER) : NULL;
        if (paths) {
            Call call;
            amp_call_init(&call, c->row->op);
            call.nin = 2;
            call.nout = 2;
            call.in[0] = x;
            call.in[1] = &in.targets->v;
            call.out[0] = &loss->v;
            call.out[1] = &paths->v;
            call.extra = &in.plan;
            status = run_slot(x->device, AMP_BACKEND_SLOT(x->device, ctc), &call, cost(&in), c->row->name);
        }
        if (status && PyErr_ExceptionMatches(PyExc_IndexError)) {
            PyErr_Format(PyExc_RuntimeError, "ctc_loss: a target is out of range: labels of %lld classes lie in [0, %lld]",
                         (long long)x->shape[2], (long long)x->shape[2] - 1);
        }
    }
    inputs_clear(&in);
    return status;
}

int run_CTC_GRAD(OpCall *c) {
    CtcInputs in;
    Tensor *grad = c->arg[GRAD_GRAD].t, *paths = c->arg[GRAD_PATHS].t;
    int status = -1;
    if (inputs_of(c->arg + GRAD_FORWARD, &in) == 0) {
        const View *x = &in.log_probs->v;
        bool fits = grad->v.ndim == 1 && grad->v.shape[0] == x->shape[1] && paths->v.dtype == AMP_FLOAT64 &&
                    paths->v.layout == LAYOUT_CONTIGUOUS && paths->v.numel == x->shape[1] * amp_ctc_path(&in.plan, x->shape[0]);
        Tensor *out = fits ? result_new(c, 0, 3, x->shape, x->dtype, x->device, ALIAS_NEVER) : NULL;
        if (!fits) {
            PyErr_SetString(PyExc_RuntimeError,
                            "_ctc_samples_grad: expected a gradient per sequence, and the paths of the way forward");
        }
        if (out) {
            Call call;
            amp_call_init(&call, c->row->op);
            call.nin = 4;
            call.nout = 1;
            call.in[0] = x;
            call.in[1] = &in.targets->v;
            call.in[2] = &paths->v;
            call.in[3] = &grad->v;
            call.out[0] = &out->v;
            call.extra = &in.plan;
            status = run_slot(x->device, AMP_BACKEND_SLOT(x->device, ctc_grad), &call, cost(&in), c->row->name);
        }
    }
    inputs_clear(&in);
    return status;
}
