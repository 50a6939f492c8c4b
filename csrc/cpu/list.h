/* Kernels that walk whole lists of tensors: unscale, norms, scale, optimizer steps. backend.h says what each slot means. */
#ifndef AMP_CPU_LIST_H
#define AMP_CPU_LIST_H
#include "../core/backend.h"

Status amp_list_unscale(TensorList grads, float inv_scale, float *found_inf, double *norms);
Status amp_list_norms(TensorList tensors, double p, double *norms);
Status amp_list_scale(TensorList tensors, double factor);
Status amp_list_zero(TensorList tensors);
Status amp_list_sgd(TensorList params, TensorList grads, TensorList momentum, TensorList copies, const SgdOptions *options,
                    double grad_scale);
Status amp_list_adam(TensorList params, TensorList grads, TensorList exp_avg, TensorList exp_avg_sq, TensorList max_exp_avg_sq,
                     TensorList copies, const double *step, double *mu_product, const AdamOptions *options, double grad_scale);

/* ---- shared by list.c, list_optim.c and list_kernels.c ---- */

/* The list cut into runs, and those into chunks of at most LIST_CHUNK elements; chunk numbers run through the whole list:
 *
 *     run 0               run 1      run 2
 *    | 0 | 1 | 2 | 3 |   | 4 |      | 5 | 6 |        run[].first = 0 4 5 7
 *
 * A run is one tensor, or where results do not depend on it (`join`) several that lie one behind the other in memory, in every list:
 * small ones come from one slab and often do. Unjoined, the cut depends on sizes only, so partial sums per chunk depend on neither the
 * number of threads nor on addresses. */
enum { LIST_CHUNK = 8192, LIST_BLOCK = 512, LIST_SMALL = 64, LIST_STREAMS = 5 };
typedef struct ListRun {
    int64_t first;  /* its first chunk */
    int64_t tensor; /* its first tensor: contiguous, if there are more */
    int64_t numel;
    bool direct; /* operands can be used where they are: contiguous, all fp32 or all fp64, aligned, and without a 16-bit copy */
    bool wide;   /* fp64 */
} ListRun;
/* `n` elements of each operand; NULL: there is none. */
typedef struct ListSpan {
    int64_t n;
    char *at[LIST_STREAMS];
} ListSpan;
typedef struct ListPlan {
    int64_t n, chunks, grain; /* n runs */
    bool join;
    int operands;
    unsigned written;        /* bit per operand */
    const TensorList *lists; /* the caller's, as long as the plan is in use */
    const View *const *v;    /* of the first list */
    ListRun *run;            /* and an empty one behind them; in `small` if they fit */
    ListSpan *span;          /* of the direct runs; as many entries as `run` */
    ListRun small[LIST_SMALL + 1];
    ListSpan small_span[LIST_SMALL + 1];
} ListPlan;
/* `operands` lists, and then perhaps one of 16-bit copies. They have equal lengths or are empty; entries may be NULL but in the first.
 * `written`: which operands are written, bit by bit. AMP_BAD_DTYPE, with nothing to free: one has no kernel. */
Status amp_list_plan(ListPlan *plan, const TensorList *lists, int operands, bool copies, unsigned written, bool join);
void amp_list_plan_free(ListPlan *plan);

/* body(ctx, run, begin, end): elements [begin, end) of one run; begin is a multiple of LIST_CHUNK.
 * spans(ctx, run, span, count): the same for direct runs, or NULL: `count` spans, which belong to `run` and, in a plan that joins, to
 * those behind it. span[count] is what comes next, or empty. */
typedef void (*ListBody)(void *ctx, const ListRun *run, int64_t begin, int64_t end);
typedef void (*ListSpans)(void *ctx, const ListRun *run, const ListSpan *span, int64_t count);
/* Where a run writes what another one writes or reads, everything happens in the order of the list, on one thread. */
void amp_list_run(const ListPlan *plan, ListBody body, ListSpans spans, void *ctx);

/* One view, walked in blocks of elements in the compute type (float, or double if `wide`). Where memory already holds that, a block
 * is the memory itself; else it is a converted copy in `buffer`, written back by close. */
typedef struct ListStream {
    const View *v;
    bool dense, direct, wide;
    void *buffer; /* LIST_BLOCK elements */
} ListStream;
typedef struct ListStreams {
    int n;
    ListStream s[LIST_STREAMS];
    int64_t block; /* elements per block: LIST_BLOCK, or no limit if every stream is direct */
    _Alignas(64) char buffer[LIST_STREAMS][LIST_BLOCK * sizeof(double)];
} ListStreams;
void amp_list_open(ListStreams *streams, int n, const View *const *views, bool wide);
void *amp_list_read(ListStream *s, int64_t begin, int64_t n);
void *amp_list_place(ListStream *s, int64_t begin); /* for values that will only be written */
void amp_list_write(ListStream *s, int64_t begin, int64_t n);

static inline bool amp_list_dtype_ok(int dtype) {
    return dtype == AMP_FLOAT32 || dtype == AMP_FLOAT64 || dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16;
}

/* What one optimizer step needs, formed in double and rounded to the compute type inside the kernel. */
typedef struct SgdStep {
    double neg_lr, momentum, one_minus_dampening, weight_decay, grad_scale;
    bool nesterov, maximize, first;
} SgdStep;
typedef struct AdamStep {
    double decay;                        /* decoupled: p *= decay; 1 = none */
    double weight_decay;                 /* coupled: g += p * weight_decay; 0 = none */
    double weight1, beta2, weight2, eps; /* weight = 1 - beta */
    double divisor;                      /* sqrt(second moment) / divisor; NAdam: second moment / divisor before the root */
    double factor;                       /* p += factor * exp_avg / denominator */
    double grad_factor;                  /* NAdam: p += grad_factor * g / denominator first */
    double grad_scale;
    bool maximize, nadam;
} AdamStep;

/* Kernels over contiguous values of one compute type. The same bits at every instruction-set level. */
typedef struct ListKernels {
    /* Over `count` spans; while one ends, the beginning of the next is fetched, span[count] included: hardware finds the rest of a
     * stream by itself, but no new one in time. */
    bool (*unscale)(const ListSpan *span, int64_t count, double inv_scale); /* true: met inf or NaN. 1 leaves the values alone */
    void (*scale)(const ListSpan *span, int64_t count, double factor);
    void (*zero)(const ListSpan *span, int64_t count);
    void (*sgd)(const ListSpan *span, int64_t count, const SgdStep *s); /* param, grad, buffer or NULL */
    void (*adam)(const ListSpan *span, int64_t count,
                 const AdamStep *s); /* param, grad, exp_avg, exp_avg_sq, its maximum or NULL */
    /* one block: in double, 32 running sums. `next`: what comes next, at least n elements, or NULL; *bad is set, never cleared */
    double (*unscale_squares)(void *x, int64_t n, double inv_scale, const char *next, bool *bad);
    double (*sum_squares)(const void *x, int64_t n);
} ListKernels;
const ListKernels *amp_list_kernels(bool wide);

/* 16-bit values and fp32, n of them, any alignment. */
typedef struct ListRows {
    void (*load_f16)(float *to, const char *from, int64_t n);
    void (*store_f16)(char *to, const float *from, int64_t n);
    void (*load_bf16)(float *to, const char *from, int64_t n);
    void (*store_bf16)(char *to, const float *from, int64_t n);
} ListRows;
const ListRows *amp_list_rows(void);

#endif
