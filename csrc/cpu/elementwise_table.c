/* Functions of one 16-bit number, looked up.
 *
 * There are 65536 such numbers. What a kernel makes of each is kept in a table of 128 KB, made at the first use on many elements and kept
 * as long as the process lives: the same bits, at about one element per cycle. Numbers that occur together differ little in their
 * exponents, so that only some KB of a table are in use at a time. */
#include <stdatomic.h>
#include <stdlib.h>

#include "elementwise.h"

enum { NUMBERS = 1 << 16 };

/* What takes longer than a look. Without numbers of the call: they would be part of the function. */
static const bool has_table[KERNEL_COUNT] = {
    [OP_exp] = true,        [OP_exp2] = true,       [OP_expm1] = true,  [OP_log] = true,
    [OP_log2] = true,       [OP_log10] = true,      [OP_log1p] = true,  [OP_sin] = true,
    [OP_cos] = true,        [OP_tan] = true,        [OP_asin] = true,   [OP_acos] = true,
    [OP_atan] = true,       [OP_sinh] = true,       [OP_cosh] = true,   [OP_tanh] = true,
    [OP_asinh] = true,      [OP_acosh] = true,      [OP_atanh] = true,  [OP_erf] = true,
    [OP_erfc] = true,       [OP_erfinv] = true,     [OP_lgamma] = true, [OP_digamma] = true,
    [OP_i0] = true,         [OP_i1] = true,         [OP_i0e] = true,    [OP_i1e] = true,
    [OP_sinc] = true,       [OP_sigmoid] = true,    [OP_silu] = true,   [OP_mish] = true,
    [OP_selu] = true,       [OP_logsigmoid] = true, [OP_gelu] = true,   [KERNEL_gelu_tanh] = true,
    [OP_tanhshrink] = true,
};

bool amp_takes_long(int id) {
    switch (id) {
    case OP_elu:
    case OP_celu:
    case OP_softplus:
    case OP_elu_grad:
    case OP_softplus_grad:
    case OP_gelu_grad:
    case KERNEL_gelu_tanh_grad:
    case OP_silu_grad:
    case OP_mish_grad:
    case OP_glu:
    case OP_pow:
    case OP_hypot:
    case OP_atan2:
    case OP_logaddexp:
    case OP_xlogy:
    case OP_bce_logits_kernel:
    case OP_bce_logits_grad: return true;
    default: return has_table[id];
    }
}

/* By kernel, of float16 and of bfloat16; NULL until made, then the same for ever. */
static _Atomic(uint16_t *) tables[2][KERNEL_COUNT];

static void look_up(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params) {
    const uint16_t *table = params->table, *a = (const uint16_t *)(const void *)in[0];
    uint16_t *o = (uint16_t *)(void *)out;
    (void)scalar;
    for (int64_t i = 0; i < n; i++) o[i] = table[a[i]];
}

/* NULL: out of memory. */
static uint16_t *make_table(const ElementLoop *loop, int dtype) {
    int64_t shape[1] = {NUMBERS}, stride[1] = {1};
    uint16_t *table = malloc(NUMBERS * sizeof *table);
    if (!table) return NULL;
    for (int i = 0; i < NUMBERS; i++) table[i] = (uint16_t)i;
    View all = {.data = (char *)table,
                .numel = NUMBERS,
                .shape = shape,
                .stride = stride,
                .ndim = 1,
                .dtype = (int8_t)dtype,
                .layout = LAYOUT_CONTIGUOUS};
    const View *in[1] = {&all};
    amp_element_loop(loop, &all, in);
    return table;
}

bool amp_look_up(ElementLoop *loop, Params *params, int id, const View *in, const View *out) {
    const int dtype = in->dtype;
    if (out->numel < AMP_TABLE_FROM || !has_table[id] || out->dtype != dtype || (dtype != AMP_FLOAT16 && dtype != AMP_BFLOAT16))
        return false;
    _Atomic(uint16_t *) *place = &tables[dtype == AMP_BFLOAT16][id];
    uint16_t *table = atomic_load_explicit(place, memory_order_acquire);
    if (!table) {
        uint16_t *made = make_table(loop, dtype);
        if (!made) return false;
        if (atomic_compare_exchange_strong_explicit(place, &table, made, memory_order_acq_rel, memory_order_acquire))
            table = made;
        else free(made); /* another thread was faster */
    }
    params->table = table;
    loop->kernel = look_up;
    loop->type[0] = loop->type[1] = dtype;
    return true;
}
