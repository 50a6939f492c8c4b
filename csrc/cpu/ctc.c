/* The loss of connectionist temporal classification and its gradient, one sequence at a time: see ctc.h for states and rows.
 *
 * Of one sequence, `paths` holds: [0] its loss, as the gradient needs it, 7 unused, then the rows of times -1 .. T - 1. Before the first
 * step, and behind the last, there is one row from which one step by 0 or 1 states leads to where a path may begin or end. */
#include "ctc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"

enum { GRAIN = 4 * 1024, LEAD = 8 };

typedef struct Ctc {
    const CtcKernels *k;
    const CtcPlan *plan;
    const View *log_probs, *targets, *grad;
    View *loss, *gradient;
    const int64_t *start; /* of each sequence's labels */
    double *paths;
    int64_t path_step, times, classes;
    int no_memory;
} Ctc;

/* One sequence, and room for what its steps need. */
typedef struct Sequence {
    const int64_t *labels;
    int64_t n, steps, length, width;
    double *paths, *emit, *skip, *row[2], *share, *expected;
} Sequence;

/* Class 0 at time t of sequence n. */
static char *at(const View *v, int64_t t, int64_t n) {
    return (char *)v->data + (t * v->stride[0] + n * v->stride[1]) * (int64_t)amp_itemsize(v->dtype);
}

/* The number of sequence n. */
static char *of(const View *v, int64_t n) { return (char *)v->data + n * v->stride[0] * (int64_t)amp_itemsize(v->dtype); }

static double number_of(const View *v, int64_t n) {
    double d;
    amp_convert(v->dtype, of(v, n), 0, AMP_FLOAT64, (char *)&d, sizeof d, 1);
    return d;
}

static double log_prob(const Ctc *c, const char *row, int64_t label) {
    float f;
    double d;
    if (c->log_probs->dtype == AMP_FLOAT64) return memcpy(&d, row + label * (int64_t)sizeof d, sizeof d), d;
    return memcpy(&f, row + label * (int64_t)sizeof f, sizeof f), (double)f;
}

static void fill(double *x, int64_t n, double value) {
    for (int64_t i = 0; i < n; i++) x[i] = value;
}

static double *row_of(const Sequence *s, int64_t t) { return s->paths + LEAD + (t + 1) * 2 * s->width; }

static double *room_for(Ctc *c, Sequence *s) {
    int64_t w = s->width = c->plan->width;
    double *room = calloc((size_t)(8 * w + 3 * LEAD + c->classes), sizeof *room);
    if (!room) {
        __atomic_store_n(&c->no_memory, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    s->emit = room;
    s->skip = s->emit + w;
    s->row[0] = s->skip + w + LEAD;
    s->row[1] = s->row[0] + 2 * w;
    s->share = s->row[1] + 2 * w;
    s->expected = s->share + 2 * w;
    return room;
}

static void begin(const Ctc *c, Sequence *s, int64_t n) {
    s->n = n;
    s->steps = c->plan->steps[n];
    s->length = c->plan->lengths[n];
    s->labels = (const int64_t *)(const void *)c->targets->data + c->start[n];
    s->paths = c->paths + n * c->path_step;
    fill(s->emit, s->width, -(double)INFINITY);
    fill(s->skip, s->width + 1, -(double)INFINITY);
    for (int64_t i = 1; i < s->length; i++)
        if (s->labels[i] != c->plan->blank && s->labels[i] != s->labels[i - 1]) s->skip[i + 1] = 0.0;
}

static double emit_at(const Ctc *c, const Sequence *s, int64_t t) {
    const char *row = at(c->log_probs, t, s->n);
    for (int64_t i = 0; i < s->length; i++) s->emit[i + 1] = log_prob(c, row, s->labels[i]);
    return log_prob(c, row, c->plan->blank);
}

static void forward_sequence(const Ctc *c, Sequence *s) {
    int64_t w = s->width;
    fill(s->paths, LEAD + 2 * w, -(double)INFINITY);
    row_of(s, -1)[w] = 0.0;
    for (int64_t t = 0; t < s->steps; t++) {
        double blank = emit_at(c, s, t);
        c->k->forward(row_of(s, t - 1), row_of(s, t), s->emit, s->skip, blank, w);
    }
    const double *last = row_of(s, s->steps - 1);
    double label = last[s->length], blank = last[w + s->length], top = label > blank ? label : blank, loss = (double)INFINITY;
    if (!(label == -(double)INFINITY && blank == -(double)INFINITY)) loss = -(log(exp(label - top) + exp(blank - top)) + top);
    s->paths[0] = loss;
    if (c->plan->zero_infinity && loss == (double)INFINITY) loss = 0.0;
    amp_convert(AMP_FLOAT64, (const char *)&loss, 0, c->loss->dtype, of(c->loss, s->n), 0, 1);
}

static void backward_sequence(const Ctc *c, Sequence *s) {
    int64_t w = s->width;
    double grad = number_of(c->grad, s->n), loss = s->paths[0];
    bool impossible = loss == (double)INFINITY, none = impossible ? c->plan->zero_infinity : grad == 0.0;
    double *after = s->row[0], *now = s->row[1];
    fill(after, 2 * w, -(double)INFINITY);
    after[w + s->length] = 0.0;
    for (int64_t t = c->times - 1; t >= 0; t--) {
        if (none || t >= s->steps) {
            memset(at(c->gradient, t, s->n), 0, (size_t)c->classes * amp_itemsize(c->gradient->dtype));
            continue;
        }
        if (impossible) {
            fill(s->expected, c->classes, (double)NAN);
            c->k->slope(at(c->log_probs, t, s->n), at(c->gradient, t, s->n), s->expected, grad, c->classes);
            continue;
        }
        double blank = emit_at(c, s, t), *swap = after, blanks = 0.0;
        c->k->backward(after, now, row_of(s, t), s->share, s->emit, s->skip, blank, loss, w);
        after = now;
        now = swap;
        for (int64_t i = 0; i <= s->length; i++) blanks += s->share[w + i];
        s->expected[c->plan->blank] = blanks;
        for (int64_t i = 0; i < s->length; i++) s->expected[s->labels[i]] += s->share[i + 1];
        c->k->slope(at(c->log_probs, t, s->n), at(c->gradient, t, s->n), s->expected, grad, c->classes);
        for (int64_t i = 0; i < s->length; i++) s->expected[s->labels[i]] = 0.0;
    }
    fill(s->expected, c->classes, 0.0);
}

static void sequences(void *context, int64_t first, int64_t last) {
    Ctc *c = context;
    Sequence s = {0};
    double *room = room_for(c, &s);
    for (int64_t n = first; room && n < last; n++) {
        begin(c, &s, n);
        if (c->gradient) backward_sequence(c, &s);
        else forward_sequence(c, &s);
    }
    free(room);
}

static Status find_labels(const Ctc *c, int64_t *start, int64_t samples) {
    const int64_t *label = (const int64_t *)(const void *)c->targets->data;
    for (int64_t n = 0, next = 0; n < samples; n++) {
        start[n] = c->targets->ndim == 2 ? n * c->targets->shape[1] : next;
        next += c->plan->lengths[n];
        for (int64_t i = 0; i < c->plan->lengths[n]; i++)
            if (label[start[n] + i] < 0 || label[start[n] + i] >= c->classes) return AMP_BAD_INDEX;
    }
    return AMP_OK;
}

static Status run(Ctc *c, const Call *call) {
    int64_t samples = c->log_probs->shape[1];
    if (c->log_probs->dtype != AMP_FLOAT32 && c->log_probs->dtype != AMP_FLOAT64) return AMP_BAD_DTYPE;
    if (samples == 0) return AMP_OK;
    c->plan = call->extra;
    c->k = amp_ctc_kernels(c->log_probs->dtype);
    c->times = c->log_probs->shape[0];
    c->classes = c->log_probs->shape[2];
    c->path_step = amp_ctc_path(c->plan, c->times);
    int64_t *start = malloc((size_t)samples * sizeof *start);
    if (!start) return AMP_NO_MEMORY;
    Status status = find_labels(c, start, samples);
    if (status == AMP_OK) {
        c->start = start;
        amp_parallel_for(samples, GRAIN / ((c->times + 1) * c->plan->width) + 1, sequences, c);
        status = c->no_memory ? AMP_NO_MEMORY : AMP_OK;
    }
    free(start);
    return status;
}

Status amp_ctc(const Call *call) {
    Ctc c = {.log_probs = call->in[0], .targets = call->in[1], .loss = call->out[0]};
    c.paths = (double *)(void *)call->out[1]->data;
    return run(&c, call);
}

Status amp_ctc_grad(const Call *call) {
    Ctc c = {.log_probs = call->in[0], .targets = call->in[1], .grad = call->in[3], .gradient = call->out[0]};
    c.paths = (double *)(void *)call->in[2]->data;
    return run(&c, call);
}
