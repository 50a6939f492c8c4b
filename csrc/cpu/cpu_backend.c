/* The CPU's table of slots. */
#include "cpu_backend.h"

static void *cpu_alloc(size_t nbytes) { return amp_host_alloc(AMP_CPU, nbytes); }
static void cpu_free(void *data, size_t nbytes) { amp_host_free(AMP_CPU, data, nbytes); }

const Backend amp_cpu_backend = {
    .alloc = cpu_alloc,
    .free = cpu_free,
    .copy = amp_copy,
    .fill = amp_fill,
    .unary = amp_unary,
    .binary = amp_binary,
    .ternary = amp_ternary,
    .reduce = amp_reduce,
    .scan = amp_scan,
    .gemm = amp_gemm,
    .conv = amp_conv,
    .fold = amp_fold,
    .softmax = amp_softmax,
    .cross_entropy = amp_cross_entropy,
    .cross_entropy_grad = amp_cross_entropy_grad,
    .normalize = amp_normalize,
    .normalize_grad = amp_normalize_grad,
    .attention = amp_attention,
    .attention_backward = amp_attention_backward,
    .embedding = amp_embedding,
    .index = amp_index,
    .index_put = amp_index_put,
    .gather = amp_gather,
    .sort = amp_sort,
    .search = amp_search,
    .arrange = amp_arrange,
    .nonzero = amp_nonzero,
    .pool = amp_pool,
    .resample = amp_resample,
    .random = amp_random_fill,
    .recurrent = amp_recurrent,
    .unscale = amp_list_unscale,
    .norms = amp_list_norms,
    .scale = amp_list_scale,
    .sgd = amp_list_sgd,
    .adam = amp_list_adam,
};
