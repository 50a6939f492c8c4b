/* Functions of one 16-bit number, looked up.
 *
 * There are 65536 such numbers. What a kernel makes of each is kept in a table of 128 KB, made at the first use on many elements and kept
 * as long as the process lives: the same bits, at about one element per cycle. Numbers that occur together differ little in their
 * exponents, so that only some KB of a table are in use at a time. */
#include <stdatomic.h>
#include <stdlib.h>

#include "elementwise.h"

enum { NUMBERS = 1 << 16 };

/* What computes more than a few operations for an element. LOOKED_UP: functions of one number, without numbers of the call, which would
 * be part of the function. */
static const enum {
    QUICK,
    LONG,
    LOOKED_UP
} kind[KERNEL_COUNT] = {
    [OP_exp] = LOOKED_UP,
    [OP_exp2] = LOOKED_UP,
    [OP_expm1] = LOOKED_UP,
    [OP_log] = LOOKED_UP,
    [OP_log2] = LOOKED_UP,
    [OP_log10] = LOOKED_UP,
    [OP_log1p] = LOOKED_UP,
    [OP_sin] = LOOKED_UP,
    [OP_cos] = LOOKED_UP,
    [OP_tan] = LOOKED_UP,
    [OP_asin] = LOOKED_UP,
    [OP_acos] = LOOKED_UP,
    [OP_atan] = LOOKED_UP,
    [OP_sinh] = LOOKED_UP,
    [OP_cosh] = LOOKED_UP,
    [OP_tanh] = LOOKED_UP,
    [OP_asinh] = LOOKED_UP,
    [OP_acosh] = LOOKED_UP,
    [OP_atanh] = LOOKED_UP,
    [OP_erf] = LOOKED_UP,
    [OP_erfc] = LOOKED_UP,
    [OP_erfinv] = LOOKED_UP,
    [OP_lgamma] = LOOKED_UP,
    [OP_digamma] = LOOKED_UP,
    [OP_i0] = LOOKED_UP,
    [OP_i1] = LOOKED_UP,
    [OP_i0e] = LOOKED_UP,
    [OP_i1e] = LOOKED_UP,
    [OP_ndtri] = LOOKED_UP,
    [OP_entr] = LOOKED_UP,
    [OP_sinc] = LOOKED_UP,
    [OP_sigmoid] = LOOKED_UP,
    [OP_silu] = LOOKED_UP,
    [OP_mish] = LOOKED_UP,
    [OP_selu] = LOOKED_UP,
    [OP_logsigmoid] = LOOKED_UP,
    [OP_gelu] = LOOKED_UP,
    [KERNEL_gelu_tanh] = LOOKED_UP,
    [OP_tanhshrink] = LOOKED_UP,
    [OP_elu] = LONG,
    [OP_celu] = LONG,
    [OP_softplus] = LONG,
    [OP_elu_grad] = LONG,
    [OP_softplus_grad] = LONG,
    [OP_gelu_grad] = LONG,
    [KERNEL_gelu_tanh_grad] = LONG,
    [OP_silu_grad] = LONG,
    [OP_mish_grad] = LONG,
    [OP_glu] = LONG,
    [OP_pow] = LONG,
    [OP_hypot] = LONG,
    [OP_atan2] = LONG,
    [OP_logaddexp] = LONG,
    [OP_xlogy] = LONG,
    [OP_bce_logits_kernel] = LONG,
    [OP_bce_logits_grad] = LONG,
};

bool amp_takes_long(int id) { return kind[id] != QUICK; }

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
    if (out->numel < AMP_TABLE_FROM || kind[id] != LOOKED_UP || out->dtype != dtype ||
        (dtype != AMP_FLOAT16 && dtype != AMP_BFLOAT16))
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
