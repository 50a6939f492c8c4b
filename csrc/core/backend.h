/* The contract between the driver and a device: one table of kernel classes.
 *
 * Rules for every slot
 *   - All checks of shape, dtype and device were made at the front door; a slot trusts its Call. It returns a Status, never prints.
 *   - No Python, no GIL: a slot may run without it. Views stay valid for the whole call.
 *   - Any strides, also 0 (broadcast inputs) and negative; any alignment that is a multiple of the element size... and less: data that
 *     came from outside may be misaligned, so elements are read and written by memcpy or unaligned vector moves.
 *   - Outputs do not overlap inputs, except exactly (same data, same strides: in-place), which element-wise slots must allow.
 *   - Zero elements: succeed and do nothing (reductions write their identity).
 *   - 16-bit and fp8 inputs compute in fp32 and round once at the end; fp64 computes in fp64.
 *   - Results do not depend on the number of threads.
 *
 * "bits:" says which dtypes of in/out the driver may combine. */
#ifndef AMP_BACKEND_H
#define AMP_BACKEND_H
#include "core.h"

typedef Status (*Slot)(const Call *);

typedef enum RecurrentKind { RECURRENT_LSTM, RECURRENT_GRU, RECURRENT_TANH, RECURRENT_RELU, RECURRENT_KINDS } RecurrentKind;

/* One list of tensors for the optimizer-tail slots: contiguous or strided, gathered by the glue. */
typedef struct TensorList {
    int64_t n;
    const View *const *v; /* n views */
} TensorList;

typedef struct SgdOptions {
    double lr, momentum, dampening, weight_decay;
    bool nesterov, maximize;
    bool first; /* momentum buffers are new: buf = grad */
} SgdOptions;

typedef struct AdamOptions {
    double lr, beta1, beta2, eps, weight_decay, momentum_decay;
    bool amsgrad, maximize, decoupled; /* decoupled: AdamW's weight decay */
    bool nadam;
} AdamOptions;

/* ---- pooling and resampling: views are 5-d here, (N, C, D, H, W), with size 1 where the op has fewer spatial dimensions ----
 *
 * One spatial dimension: output i covers the input positions first[i] + k * step, k = 0 .. count[i] - 1, all inside the input.
 *
 *     input    [ 0 1 2 3 4 5 6 ]            first = 0 2 4   count = 3 3 3   step = 1
 *     output     |___|___|___|                                                        */
typedef struct PoolDim {
    int64_t in, out, step;        /* step: 1 for averages */
    const int64_t *first, *count; /* `out` entries; PoolPlan.per_plane and in > 1: `out` for each of the N * C planes */
    const int64_t *divide;        /* averages: what this dimension adds to the divisor, as a factor; NULL: count */
} PoolDim;
typedef enum PoolKind { POOL_MAX, POOL_AVERAGE, POOL_AVERAGE_GRAD, POOL_ADD_AT, POOL_PUT_AT } PoolKind;
typedef struct PoolPlan {
    PoolKind kind;
    bool per_plane;
    int64_t divisor; /* averages: divisor of every window; 0: the product of the dimensions' factors */
    PoolDim dim[3];
} PoolPlan;

/* One spatial dimension of a separable linear map: out[i] = sum over k of weight[i * taps + k] * in[index[i * taps + k]].
 * weight NULL: all 1. */
typedef struct ResampleDim {
    int64_t in, out, taps;
    const int64_t *index;
    const double *weight;
} ResampleDim;
typedef struct ResamplePlan {
    bool transposed; /* from a tensor of the sizes dim[].out to one of the sizes dim[].in: the derivative of the map */
    ResampleDim dim[3];
} ResamplePlan;
/* How the elements of a normalised tensor, dense in C order, share their statistics. By groups: (samples, groups, channels, length), one mean
 * per sample and group; by channels: (samples, channels, length), groups 1, one mean per channel. Weights count groups x channels. */
typedef struct NormPlan {
    int64_t samples, groups, channels, length;
    double eps, momentum; /* momentum: of the running statistics' update */
    bool by_channels;
    bool centered; /* false: the mean counts as 0 (RMS) */
    bool training; /* by channels: statistics of the input, not the running ones */
} NormPlan;

/* What attention needs beside its views. */
typedef struct AttentionPlan {
    double scale;
    bool causal; /* query i sees keys 0 .. i */
} AttentionPlan;

/* The sequences of connectionist temporal classification: of each, time steps and labels. */
typedef struct CtcPlan {
    const int64_t *steps, *lengths;
    int64_t blank, width; /* width: amp_ctc_width of the longest target */
    bool zero_infinity;   /* a loss that is infinite counts as 0 */
} CtcPlan;
/* States of one kind at one time, beside each other. */
static inline int64_t amp_ctc_width(int64_t labels) { return (labels + 2 + 7) / 8 * 8; }
/* Numbers that are kept of one sequence from the way forward. */
static inline int64_t amp_ctc_path(const CtcPlan *plan, int64_t times) { return 8 + (times + 1) * 2 * plan->width; }

/* How a kernel lies over an image: one number per spatial dimension, which are the last ones of all views. */
typedef struct ConvShape {
    int64_t stride[3], dilation[3], kernel[3], groups;
    int64_t padding[3]; /* before the first element; what is behind follows from the sizes */
} ConvShape;

typedef struct Backend {
    /* Memory. alloc returns 64-byte aligned storage (NULL: out of memory); nbytes 0 gives a valid pointer. free takes the same nbytes. */
    void *(*alloc)(size_t nbytes);
    void (*free)(void *data, size_t nbytes);

    /* out[0] = in[0], converted. Same shape, any two dtypes, any strides. fp64 -> 16 bits rounds once. float -> int truncates. */
    Slot copy;
    /* out[0] = num[0] everywhere, converted to out's dtype. */
    Slot fill;
    /* out[0] = f(in[0]); same shape. bits: in == out, or out bool for isnan isinf isfinite signbit logical_not. num = the op's numbers
     * (clamp: num[0] min, num[1] max; round: decimals; gelu: num[0].i 1 = tanh form; nan_to_num: nan, posinf, neginf, ...). */
    Slot unary;
    /* out[0] = f(in[0], in[1]); all of out's shape (broadcast by stride 0). bits: inputs and output of one dtype, or output bool for
     * comparisons and logical ops. If that dtype is 16-bit, an input whose strides are all 0 may be FLOAT32 instead: a scalar that
     * takes part unrounded. add/sub/rsub: num[0] = alpha; pow: num[0] = the exponent where that is a Python number. */
    Slot binary;
    /* out[0] = f(in[0], in[1], in[2]); same rules. where: in[0] is bool. addcmul/addcdiv: num[0] = value. masked_fill: in[1] bool,
     * in[2] of out's dtype. */
    Slot ternary;
    /* out[0] = reduction of in[0] over the dimensions in `dims`; out[0] has in[0]'s ndim with size 1 there. bits: sum mean prod
     * vector_norm: any floating/integral in -> any of those out (accumulate in fp32 for 16 bits and fp32, fp64, or int64; round once);
     * max min amax amin: same dtype, NaN wins; any all count_nonzero: any in -> bool/int64; argmax argmin: out int64 (first
     * occurrence, NaN is largest/smallest; `dims` has one bit or all). max_dim min_dim: out[0] values, out[1] int64 indices.
     * var std: num[0] = correction, two-pass. vector_norm: num[0] = order (inf, -inf, 0, 1, 2, p); a 2-norm does not overflow when
     * the result fits. The OP_x_dim rows and their OP_x twins are treated alike. */
    Slot reduce;
    /* cumsum, cumprod, logcumsumexp along the single dimension in `dims`; out dtype = in dtype (16 bits: the running value stays fp32).
     * cummax, cummin: out[0] values, out[1] int64 positions; of equal values the latest, from the first NaN on NaN. */
    Slot scan;
    /* out[0] = num[1] * in[0] @ in[1] + num[0] * in[2]. Views 2-d (M,K)(K,N) or 3-d with one batch; in[2] (out's shape, any strides, or
     * NULL) joins in fp32 before the single rounding; num[0] beta, num[1] alpha; beta 0 must not read in[2]. bits: in[0] and in[1]
     * one dtype; in[2] and out[0] of that dtype or FLOAT32. Call.numerics applies. Integers: exact, wrapping. K = 0 gives beta * in[2]. */
    Slot gemm;
    /* Convolutions of 1 to 3 spatial dimensions; extra = const ConvShape * (kernel unset). All views dense, of one dtype; in[2] is a bias
     * per channel of out[0], any stride, or NULL, and joins before the single rounding. Call.numerics applies. With x (N, G C, ...),
     * w (G O, C, ...), y (N, G O, ...):
     *   convolution   out[0] = y from in[0] = x, in[1] = w        conv_input   out[0] = x from in[0] = y, in[1] = w
     *   conv_weight   out[0] = w from in[0] = y, in[1] = x
     * Sums of fp32 over the batch are formed in blocks. Integers: exact, wrapping; bool, fp8: AMP_BAD_DTYPE. */
    Slot conv;
    /* im2col: out[0] (N, C * taps, L) = the windows of in[0] (N, C, H, W), any dtype. col2im: out[0] (N, C, H, W) = the sums of what in[0]
     * (N, C * taps, L) holds for each pixel; num[0], num[1] = windows per dimension. Dense views; extra = const ConvShape * (2-d). */
    Slot fold;
    /* softmax, log_softmax along `dims` (one bit): out[0] from in[0], bits: in == out or out FLOAT32 from 16-bit in.
     * softmax_grad, log_softmax_grad: in[0] = grad, in[1] = output, out[0] = input's gradient. */
    Slot softmax;
    /* Cross entropy of class numbers along `dims` (one bit). in[0] = logits, any floating dtype and strides; the rest dense: in[1] int64 class
     * per row (AMP_BAD_INDEX), in[2] FLOAT64 weight per class or NULL; num[0] = class that counts for nothing, num[1] = share spread over all
     * classes. out[0] FLOAT64 loss per row, weighted; out[1] FLOAT64 (2, rows): largest logit, sum of exp(logit - largest). */
    Slot cross_entropy;
    /* The same inputs, in[3] = what out[1] was, in[4] FLOAT64: gradient per row, or one for all. out[0] = the logits' gradient. */
    Slot cross_entropy_grad;
    /* extra = CtcPlan*. in[0] = log_probs (T, N, C), FLOAT32 or FLOAT64, dense along the classes; in[1] int64 labels, dense, (N, S) or one
     * sequence's behind the other's (AMP_BAD_INDEX). out[0] (N) = loss, out[1] FLOAT64, dense, amp_ctc_path numbers per sequence. */
    Slot ctc;
    /* The same inputs, in[2] = what out[1] was, in[3] (N) = gradient per loss, any floating dtype. out[0] = the gradient of log_probs, as if
     * they came from log_softmax, dense along the classes. */
    Slot ctc_grad;
    /* extra = NormPlan*. in[0] and out[0] dense, any floating dtypes; in[1] weight, in[2] bias (1-d, any floating dtype, or NULL);
     * out[0] = (in[0] - mean) rstd weight + bias; out[1] FLOAT64, dense, per row: mean, rstd = 1 / sqrt(var + eps), and, if it has room, the
     * biased variance. list: by channels, the running mean and variance (or none): written in training, else read. */
    Slot normalize;
    /* extra = NormPlan*. in[0] = grad, in[1] = input, dense; in[2] = statistics as above; in[3] = weight or NULL; gradients, each of which
     * may be NULL: out[0] of the input, dense; out[1] of the weight, out[2] of the bias, 1-d. */
    Slot normalize_grad;
    /* out[0] (B, H, L, Ev) = softmax(in[0] @ in[1]^T * scale + in[3]) @ in[2], extra = const AttentionPlan *. in[0] (B, H, L, E); in[1]
     * (B, G, S, E) and in[2] (B, G, S, Ev), G divides H: neighbours among the H share a key; B stands for any number of dimensions, without
     * heads for none. in[3]: NULL, or a mask of shape (B, H, L, S), bool (false hides) or added to the scores: float32 or in[0]'s dtype. A
     * row whose mask hides all gives zeros. out[1] float32 (B, H, L), dense: log2 of the sum of each row's exp(scores), inf for such a
     * row. bits: in[0..2] and out[0] of one dtype, fp32 or 16 bits; bf16 chances may be rounded before they meet the values. All sizes
     * above 0. */
    Slot attention;
    /* Its gradients, each of which may be NULL: out[0..2] of in[0..2], of their shapes and dtype. in[4]: gradient of the output; list: the
     * output and the logarithms, as above. */
    Slot attention_backward;
    /* embedding: out[0] (..., D) = rows of in[0] (V, D) at in[1] (...). embedding_grad: out[0] (V, D) = sums of the rows of in[0] (..., D) with
     * the same index, 0 for the index num[0], divided by their number if num[1]. All dense, in[1] int64, 0 .. V-1 (AMP_BAD_INDEX). */
    Slot embedding;
    /* Advanced indexing. in[0]: source with the indexed dimensions first, shape (I1..Ik, R...); list: k int64 index views, all of one
     * shape B; out[0]: shape (B..., R...). Negative indices count from the end. AMP_BAD_INDEX before anything is written. */
    Slot index;
    /* The reverse: out[0] (I1..Ik, R...) is written in place from in[0] (B..., R...), same dtype. num[0].i: 1 = accumulate (in order,
     * 16 bits in fp32 per addition), 0 = assign (last wins). AMP_BAD_INDEX before anything is written. */
    Slot index_put;
    /* gather: out[0][i][j] = in[0][index[i][j]][j] for the dimension in `dims`; in[1] = int64 index, out's shape.
     * scatter_add: out[0] (already holds input) += in[0]=src at in[1]=index; scatter: = (the last of several stays); scatter_into:
     * = op(out, src), num[0].i = OP_mul, OP_maximum or OP_minimum, rounded each time. AMP_BAD_POSITION: negative or too large. */
    Slot gather;
    /* Along the dimension in `dims`; out[0] values (in[0]'s dtype), out[1] int64 positions. NaN is greatest, both zeros are equal, of
     * equal elements the first comes first. sort: num[0].i = descending. topk: as many as out has there, num[0].i = largest. One
     * result: kthvalue (num[0].i = k, from 1), median (lower; NaN if there is one), nanmedian, mode (smallest, its last position). */
    Slot sort;
    /* searchsorted: out[0] int64 or int32 = place of each in[1] in the sorted lines in[0] along its last dimension (1-d: one line for
     * all, else in[1]'s other dimensions); in[2] NULL, or int64 positions that sort in[0]. num[0].i = right. */
    Slot search;
    /* tril triu: num[0] = diagonal (last two dims); flip: `dims`; arange linspace eye: out[0] from num; */
    Slot arrange;
    /* nonzero: count first (extra = int64_t* count, out[0] NULL), then out[0] (count, ndim) int64. */
    Slot nonzero;
    /* extra = const PoolPlan*, see there. Index tensors are int64 and count positions inside a plane (D, H, W).
     * POOL_MAX: out[0] = largest value of each window, NaN wins; out[1] (may be NULL) = its position, the first of equals.
     * POOL_AVERAGE: out[0] = sum of each window / divisor. POOL_AVERAGE_GRAD: in[0] = gradient of the outputs, out[0] = the input's.
     * POOL_ADD_AT, POOL_PUT_AT: out[0] = zeros, with in[0] added or written at in[1] in each plane, later values last;
     * AMP_BAD_POSITION for a position outside the plane. bits: in[0] and out[0] of one dtype, not complex; sums run in fp64. */
    Slot pool;
    /* extra = const ResamplePlan*. out[0] = the map of in[0], one dtype, in fp64 with one rounding. Without weights and not
     * transposed it copies elements of any dtype. */
    Slot resample;
    /* An image at points: all views dense, of one dtype, FLOAT32 or FLOAT64. in[0] (N, C, H, W), in[1] grid (N, H', W', 2), in [-1, 1], x first;
     * out[0] (N, C, H', W'). num[0].i = 1: nearest, else bilinear; num[1].i = outside: 0 zeros, 1 border, 2 reflection; num[2].i = align_corners.
     * grid_sample_grad: in[2] = gradient; out[0] that of in[0], out[1] of in[1], either may be NULL. */
    Slot grid_sample, grid_sample_grad;
    /* uniform(num[0], num[1]), normal(num[0] mean, num[1] std), bernoulli_fill(num[0]), exponential(num[0]), randint (num[0] low, num[1]
     * high), randperm, bernoulli (in[0] = probabilities; AMP_BAD_VALUE outside [0, 1]), poisson (in[0] = rates) and dropout masks
     * (uniform draws as bernoulli of keep): out[0] is filled in order of its elements in memory. extra = Generator*. The streams are PyTorch's for a seed. */
    Slot random;

    /* The element-wise part of one time step of a recurrent cell on `b` rows. num[0].i: RecurrentKind, num[1].i: 1 = gradients.
     * Matrices of b rows, dense along the row, any pitch; H features, G gates (LSTM 4, GRU 3, else 1). bits: floating, mixed.
     *   in[0] (b, GH) input's gates, in[1] (b, GH) hidden state's gates, in[2] (GH) bias of the latter or NULL, in[3] (b, H) cell (LSTM) or
     *   hidden state (GRU) before; out[0] (b, H) hidden state, out[1] (b, H) cell (LSTM), out[2] (b, 4H) work or NULL; the GRU has no cell,
     *   its work is out[1]. State outputs may be in[3] itself.
     * Gradients: in[0] (b, H) of the hidden state; in[1] work, without gates the hidden state itself; in[2] (b, H) cell or hidden state
     *   before; in[3] (b, H) of the cell (LSTM). out[0] (b, GH) of the input's gates. LSTM: out[1] (b, H) of the cell before, may be in[3].
     *   GRU: out[1] (b, 3H) of the hidden state's gates, out[2] (b, H) of the hidden state before without their part. */
    Slot recurrent;

    /* Optimizer tail; each walks whole lists in one parallel region. All views of one position have the same shape.
     * unscale: grads *= *inv_scale in the compute type, *found_inf = 1 if any element is not finite (before the product). Unless NULL,
     * norms[i] = the bits that `norms` with p = 2 would give for tensor i afterwards, or -1 where they are not known. */
    Status (*unscale)(TensorList grads, float inv_scale, float *found_inf, double *norms);
    /* norms[i] = p-norm of tensor i, formed in fp32 (fp64 for fp64), not overflowing when the result fits. */
    Status (*norms)(TensorList tensors, double p, double *norms);
    /* each tensor *= factor rounded to the compute type, 16 bits through fp32; a factor of 1 leaves memory alone. */
    Status (*scale)(TensorList tensors, double factor);
    Status (*zero)(TensorList tensors); /* all elements; floating */
    /* params, grads, (momentum buffers or n = 0). grad_scale: divide gradients by it first and write them back (1 = leave alone).
     * fp32 arithmetic for 16 bits, fp64 for fp64, one rounding. copies: n = 0, or for each parameter NULL or a contiguous fp16 or bf16
     * view that gets the new values too, rounded; such a parameter is fp32 and contiguous. */
    Status (*sgd)(TensorList params, TensorList grads, TensorList momentum, TensorList copies, const SgdOptions *options,
                  double grad_scale);
    /* step[i]: 1-based step number of tensor i. max_exp_avg_sq has n = 0 without amsgrad. NAdam: mu_product[i] is read and updated. */
    Status (*adam)(TensorList params, TensorList grads, TensorList exp_avg, TensorList exp_avg_sq, TensorList max_exp_avg_sq,
                   TensorList copies, const double *step, double *mu_product, const AdamOptions *options, double grad_scale);
} Backend;

/* One table per device; NULL slot = AMP_NO_KERNEL. */
extern const Backend *amp_backend[AMP_DEVICE_COUNT];
extern const Backend amp_cpu_backend; /* cpu/cpu_backend.c */

/* cpu/memory.c: caching block allocator with statistics, one arena per device that lives in host memory. */
void *amp_host_alloc(Device device, size_t nbytes);
void amp_host_free(Device device, void *data, size_t nbytes);
typedef struct MemoryStats {
    int64_t allocated, peak, reserved, allocations, frees;
} MemoryStats;
MemoryStats amp_memory_stats(Device device);
void amp_memory_reset_peak(Device device);
void amp_memory_empty_cache(Device device);

/* core/pool.c: worker threads. fn(ctx, begin, end) is called on disjoint ranges that cover [0, n) exactly, in chunks of at least
 * `grain`; the caller takes part and can finish everything alone. Nested calls run serially; a forked child makes
 * workers of its own at its first call. */
typedef void (*RangeFn)(void *ctx, int64_t begin, int64_t end);
void amp_parallel_for(int64_t n, int64_t grain, RangeFn fn, void *ctx);
void amp_set_num_threads(int n);
int amp_get_num_threads(void);

/* cpu/cpu_features.c */
typedef enum Isa { ISA_BASELINE, ISA_AVX2, ISA_AVX512, ISA_AVX512_BF16, ISA_AMX } Isa;
Isa amp_isa(void); /* level in use: what CPU and OS allow, capped by AMPNATIVE_ISA */
const char *amp_isa_name(Isa isa);
int amp_isa_parse(const char *name);   /* -1: unknown */
int amp_isa_set_cap(const char *name); /* tests; -1: unknown name */
Isa amp_isa_best(void);                /* without the cap */

/* core/random.c */
typedef struct Generator Generator;
Generator *amp_generator_new(uint64_t seed);
void amp_generator_free(Generator *g);
void amp_generator_seed(Generator *g, uint64_t seed);
uint64_t amp_generator_initial_seed(const Generator *g);
size_t amp_generator_state_size(void);
void amp_generator_get_state(const Generator *g, void *state);
int amp_generator_set_state(Generator *g, const void *state, size_t n); /* -1: not a state */
Status amp_random_fill(const Call *call);                               /* the random slot */

/* core/scale.c: the update rule. Pure. */
typedef struct ScaleUpdate {
    float scale;
    int32_t tracker;
} ScaleUpdate;
ScaleUpdate amp_update_scale(float scale, int32_t tracker, float found_inf, double growth_factor, double backoff_factor,
                             int64_t growth_interval);
/* fp64 reciprocal rounded to fp32. */
float amp_inverse_scale(float scale);

#endif
