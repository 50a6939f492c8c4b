/* Optimizer steps over whole lists. The numbers of a step are formed in double and rounded to the compute type once; the element
 * arithmetic (list_template.h) follows the textbook order of operations, because a trained run is compared line by line. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cast.h"
#include "list.h"

enum { COPY_BLOCK = 2048 }; /* elements between two looks at a copy: they are still in the L1 cache */

static int64_t at_most(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- operands of a chunk ---- */

/* The views of one tensor in each list; NULL for an empty list. */
static void views_of(const TensorList *lists, int n, int64_t tensor, const View **views) {
    for (int i = 0; i < n; i++) views[i] = lists[i].n ? lists[i].v[tensor] : NULL;
}

/* Opens and reads the operands of a block into data[]; absent ones (NULL view) stay NULL. The view order is the kernel's. */
typedef struct Operands {
    ListStreams streams;
    int slot[LIST_STREAMS]; /* operand -> stream, -1: absent */
    int n;
} Operands;

static void open_operands(Operands *o, int n, const View *const *views, bool wide) {
    const View *present[LIST_STREAMS];
    int count = 0;
    o->n = n;
    for (int i = 0; i < n; i++) {
        o->slot[i] = views[i] ? count : -1;
        if (views[i]) present[count++] = views[i];
    }
    amp_list_open(&o->streams, count, present, wide);
}

/* Operands with a bit in `fresh` are only written. */
static void read_operands(Operands *o, int64_t begin, int64_t n, unsigned fresh, void **data) {
    for (int i = 0; i < o->n; i++) {
        ListStream *s = o->slot[i] < 0 ? NULL : &o->streams.s[o->slot[i]];
        data[i] = !s ? NULL : (fresh >> i) & 1 ? amp_list_place(s, begin) : amp_list_read(s, begin, n);
    }
}

static void write_operands(Operands *o, int64_t begin, int64_t n, unsigned kept) {
    for (int i = 0; i < o->n; i++)
        if (o->slot[i] >= 0 && !((kept >> i) & 1)) amp_list_write(&o->streams.s[o->slot[i]], begin, n);
}

enum { PARAM, GRAD, STATE1, STATE2, STATE3 };

/* ---- 16-bit copies of the parameters ---- */

static const int64_t STREAMED_BYTES = 32 << 20; /* copies that together are larger are written around the caches */

typedef struct Copies {
    TensorList list;
    bool stream;
} Copies;

static Copies copies_of(TensorList list) {
    int64_t bytes = 0;
    for (int64_t i = 0; i < list.n; i++) bytes += list.v[i] ? 2 * list.v[i]->numel : 0;
    return (Copies){list, bytes > STREAMED_BYTES};
}

static const View *copy_of(const Copies *c, int64_t tensor) { return c->list.n ? c->list.v[tensor] : NULL; }

static void write_copy(const Copies *c, const View *copy, const void *param, int64_t begin, int64_t n) {
    CastFn stream = c->stream ? amp_cast_stream(AMP_FLOAT32, copy->dtype) : NULL;
    char *to = copy->data + 2 * begin;
    if (stream) stream(param, to, n);
    else if (copy->dtype == AMP_FLOAT16) amp_list_rows()->store_f16(to, param, n);
    else amp_list_rows()->store_bf16(to, param, n);
}

/* ---- SGD ---- */

typedef struct SgdContext {
    TensorList list[STATE1 + 1]; /* PARAM, GRAD, STATE1 */
    Copies copies;
    SgdStep step;
} SgdContext;

static void sgd_blocks(void *ctx, const ListRun *run, int64_t begin, int64_t end) {
    const SgdContext *c = ctx;
    const int64_t tensor = run->tensor;
    const View *views[STATE1 + 1], *copy = copy_of(&c->copies, tensor);
    views_of(c->list, STATE1 + 1, tensor, views);
    const bool wide = run->wide;
    const ListKernels *k = amp_list_kernels(wide);
    const unsigned kept = c->step.grad_scale == 1.0 ? 1u << GRAD : 0, fresh = c->step.first ? 1u << STATE1 : 0;
    Operands o;
    void *x[STATE1 + 1];
    open_operands(&o, STATE1 + 1, views, wide);
    const int64_t block = copy ? at_most(o.streams.block, COPY_BLOCK) : o.streams.block;
    for (int64_t i = begin, n; i < end; i += n) {
        n = at_most(block, end - i);
        read_operands(&o, i, n, fresh, x);
        k->sgd((const ListSpan[]){{n, {x[PARAM], x[GRAD], x[STATE1]}}, {0}}, 1, &c->step);
        if (copy) write_copy(&c->copies, copy, x[PARAM], i, n);
        write_operands(&o, i, n, kept);
    }
}

static void sgd_spans(void *ctx, const ListRun *run, const ListSpan *span, int64_t count) {
    const SgdContext *c = ctx;
    amp_list_kernels(run->wide)->sgd(span, count, &c->step);
}

/* Operands up to `last`, bit by bit; gradients are written if they are divided. */
static unsigned written_of(int last, double grad_scale) {
    const unsigned all = ~(~0U << (last + 1));
    return grad_scale != 1.0 ? all : all & ~(1U << GRAD);
}

Status amp_list_sgd(TensorList params, TensorList grads, TensorList momentum, TensorList copies, const SgdOptions *options,
                    double grad_scale) {
    ListPlan plan;
    const TensorList lists[] = {params, grads, momentum, copies};
    Status status = amp_list_plan(&plan, lists, STATE1 + 1, true, written_of(STATE1, grad_scale), true);
    if (status != AMP_OK) return status;
    SgdContext c = {{params, grads, momentum},
                    copies_of(copies),
                    {.neg_lr = -options->lr,
                     .momentum = options->momentum,
                     .one_minus_dampening = 1.0 - options->dampening,
                     .weight_decay = options->weight_decay,
                     .grad_scale = grad_scale,
                     .nesterov = options->nesterov,
                     .maximize = options->maximize,
                     .first = options->first}};
    amp_list_run(&plan, sgd_blocks, sgd_spans, &c);
    amp_list_plan_free(&plan);
    return AMP_OK;
}

/* ---- Adam, AdamW, NAdam ---- */

typedef struct AdamContext {
    TensorList list[STATE3 + 1]; /* PARAM, GRAD, exp_avg, exp_avg_sq, max_exp_avg_sq */
    Copies copies;
    const AdamStep *step; /* one per tensor, or one for all */
    bool one_step;
} AdamContext;

static const AdamStep *step_of(const AdamContext *c, const ListRun *run) { return &c->step[c->one_step ? 0 : run->tensor]; }

static void adam_blocks(void *ctx, const ListRun *run, int64_t begin, int64_t end) {
    const AdamContext *c = ctx;
    const AdamStep *step = step_of(c, run);
    const int64_t tensor = run->tensor;
    const View *views[STATE3 + 1], *copy = copy_of(&c->copies, tensor);
    views_of(c->list, STATE3 + 1, tensor, views);
    const bool wide = run->wide;
    const ListKernels *k = amp_list_kernels(wide);
    const unsigned kept = step->grad_scale == 1.0 ? 1u << GRAD : 0;
    Operands o;
    void *x[STATE3 + 1];
    open_operands(&o, STATE3 + 1, views, wide);
    const int64_t block = copy ? at_most(o.streams.block, COPY_BLOCK) : o.streams.block;
    for (int64_t i = begin, n; i < end; i += n) {
        n = at_most(block, end - i);
        read_operands(&o, i, n, 0, x);
        k->adam((const ListSpan[]){{n, {x[PARAM], x[GRAD], x[STATE1], x[STATE2], x[STATE3]}}, {0}}, 1, step);
        if (copy) write_copy(&c->copies, copy, x[PARAM], i, n);
        write_operands(&o, i, n, kept);
    }
}

static void adam_spans(void *ctx, const ListRun *run, const ListSpan *span, int64_t count) {
    const AdamContext *c = ctx;
    amp_list_kernels(run->wide)->adam(span, count, step_of(c, run));
}

static AdamStep adam_step(const AdamOptions *o, double t, double grad_scale) {
    double correction1 = 1.0 - pow(o->beta1, t), correction2 = 1.0 - pow(o->beta2, t);
    return (AdamStep){.decay = o->decoupled ? 1.0 - o->lr * o->weight_decay : 1.0,
                      .weight_decay = o->decoupled ? 0.0 : o->weight_decay,
                      .weight1 = 1.0 - o->beta1,
                      .beta2 = o->beta2,
                      .weight2 = 1.0 - o->beta2,
                      .eps = o->eps,
                      .divisor = sqrt(correction2),
                      .factor = -o->lr / correction1,
                      .grad_scale = grad_scale,
                      .maximize = o->maximize};
}

/* NAdam's momentum warms up; the running product of its values is an fp32 state, so that a resumed run sees the same bits. */
static void nadam_step(AdamStep *s, const AdamOptions *o, double t, double *mu_product) {
    double mu = o->beta1 * (1.0 - 0.5 * pow(0.96, t * o->momentum_decay));
    double mu_next = o->beta1 * (1.0 - 0.5 * pow(0.96, (t + 1.0) * o->momentum_decay));
    double product = (double)((float)*mu_product * (float)mu);
    s->nadam = true;
    s->divisor = 1.0 - pow(o->beta2, t);
    s->grad_factor = -o->lr * (1.0 - mu) / (1.0 - product);
    s->factor = -o->lr * mu_next / (1.0 - product * mu_next);
    *mu_product = product;
}

Status amp_list_adam(TensorList params, TensorList grads, TensorList exp_avg, TensorList exp_avg_sq, TensorList max_exp_avg_sq,
                     TensorList copies, const double *step, double *mu_product, const AdamOptions *options, double grad_scale) {
    ListPlan plan;
    AdamStep small[LIST_SMALL / 4], *steps = small;
    /* Tensors of one group are nearly always at the same step: powers are taken once. */
    bool one_step = !options->nadam;
    for (int64_t i = 1; i < params.n && one_step; i++) one_step = step[i] == step[0];
    const TensorList lists[] = {params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq, copies};
    Status status = amp_list_plan(&plan, lists, STATE3 + 1, true, written_of(STATE3, grad_scale), one_step);
    if (status != AMP_OK) return status;
    const int64_t different = one_step ? params.n > 0 : params.n;
    if (different > LIST_SMALL / 4) {
        steps = (uint64_t)different > SIZE_MAX / sizeof *steps ? NULL : malloc((size_t)different * sizeof *steps);
        if (!steps) {
            status = AMP_NO_MEMORY;
            goto done;
        }
    }
    for (int64_t i = 0; i < different; i++) {
        steps[i] = i && !options->nadam && step[i] == step[i - 1] ? steps[i - 1] : adam_step(options, step[i], grad_scale);
        if (options->nadam) nadam_step(&steps[i], options, step[i], &mu_product[i]);
    }
    AdamContext c = {{params, grads, exp_avg, exp_avg_sq, max_exp_avg_sq}, copies_of(copies), steps, one_step};
    amp_list_run(&plan, adam_blocks, adam_spans, &c);
done:
    if (steps != small) free(steps);
    amp_list_plan_free(&plan);
    return status;
}
