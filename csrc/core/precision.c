/* The settings word: fields, inheritance, what the legacy switches write and when they contradict the tree. */
#include "precision.h"

#include <stdatomic.h>
#include <string.h>

enum {
    NODE_BITS = 3,
    LEVEL_AT = NODE_BITS * PRECISION_NODE_COUNT, /* 27 */
    CUDNN_AT = 29,
    FP16_AT = 30, /* reduced, then split-K */
    BF16_AT = 32,
    FLAGS_AT = 34,
    BLAS_AT = 42,
    DEPTHWISE_AT = 44,
    NVIDIA_AT = 46,
    SPLIT_AT = 47,
    USED_BITS = 55
};
_Static_assert(LEVEL_AT + 2 == CUDNN_AT && FLAGS_AT + SETTING_FLAG_COUNT <= BLAS_AT, "fields of the settings word overlap");

#define FIELD(value, at) ((Settings)(value) << (at))
static const Settings SPLIT_FIELD = FIELD(0xff, SPLIT_AT);

#define FLAG_INITIAL(id, initial, name) | FIELD(initial, FLAGS_AT + FLAG_##id)
enum { CONV_AT = NODE_BITS * NODE_CUDA_CONV, RNN_AT = NODE_BITS * NODE_CUDA_RNN };
#define INITIAL \
    (FIELD(PRECISION_UNSET, CONV_AT) | FIELD(PRECISION_UNSET, RNN_AT) | FIELD(1, CUDNN_AT) | FIELD(3, FP16_AT) | \
     FIELD(3, BF16_AT) AMP_SETTING_FLAGS(FLAG_INITIAL))
static _Atomic Settings word = INITIAL;

static const struct {
    const char *backend, *op, *attribute;
    uint8_t parent;
} nodes[PRECISION_NODE_COUNT] = {
#define X(id, backend, op, parent, attribute) {backend, op, attribute, NODE_##parent},
    AMP_PRECISION_NODES(X)
#undef X
};
static const char *const precision_names[PRECISION_COUNT] = {"none", "ieee", "tf32", "bf16", "unset"};
static const char *const level_names[LEVEL_COUNT] = {"highest", "high", "medium"};

/* ---- the word ---- */

/* Relaxed: the word is all there is to see, and no other memory is published through it. */
Settings amp_settings(void) { return atomic_load_explicit(&word, memory_order_relaxed); }

static unsigned get(Settings s, int at, int bits) { return (unsigned)(s >> at) & ((1u << bits) - 1); }

static Settings with(Settings s, int at, int bits, unsigned value) {
    const Settings mask = FIELD((1u << bits) - 1, at);
    return (s & ~mask) | FIELD(value, at);
}

static int node_at(PrecisionNode node) { return NODE_BITS * (int)node; }

/* One change: the bits of `mask` become those of `value`, the others stay as whoever wrote last left them. */
static void change(Settings mask, Settings value) {
    Settings before = amp_settings();
    while (!atomic_compare_exchange_weak_explicit(&word, &before, (before & ~mask) | (value & mask), memory_order_relaxed,
                                                  memory_order_relaxed)) {
    }
}

static void change_field(int at, int bits, unsigned value) { change(FIELD((1u << bits) - 1, at), FIELD(value, at)); }

void amp_settings_reset(bool allow_tf32_override, bool nvidia_tf32_off) {
    Settings s = with(INITIAL, NVIDIA_AT, 1, nvidia_tf32_off);
    if (allow_tf32_override) {
        s = with(with(s, node_at(NODE_CUDA_MATMUL), NODE_BITS, PRECISION_TF32), LEVEL_AT, 2, LEVEL_HIGH);
    }
    change(~SPLIT_FIELD, s);
}

bool amp_settings_restore(Settings s) {
    bool possible = !(s >> USED_BITS) && get(s, LEVEL_AT, 2) < LEVEL_COUNT && get(s, BLAS_AT, 2) < BLAS_COUNT &&
                    get(s, DEPTHWISE_AT, 2) < 3 && get(s, FP16_AT, 2) != 1 && get(s, BF16_AT, 2) != 1 &&
                    get(s, SPLIT_AT, 8) < 255;
    for (int n = 0; n < PRECISION_NODE_COUNT && possible; n++) {
        const Precision own = amp_precision_own(s, (PrecisionNode)n);
        const bool may_be_unset = n == NODE_CUDA_CONV || n == NODE_CUDA_RNN;
        possible = own < PRECISION_UNSET ? amp_precision_allowed((PrecisionNode)n, own) : own == PRECISION_UNSET && may_be_unset;
    }
    if (possible) change(~(Settings)0, s);
    return possible;
}

/* ---- the tree ---- */

const char *amp_precision_name(Precision precision) { return precision_names[precision]; }

int amp_precision_parse(const char *name) {
    for (int p = 0; p < PRECISION_UNSET; p++)
        if (!strcmp(name, precision_names[p])) return p;
    return -1;
}

bool amp_precision_is_cuda(PrecisionNode node) { return !strcmp(nodes[node].backend, "cuda"); }

bool amp_precision_allowed(PrecisionNode node, Precision precision) {
    return precision != PRECISION_BF16 || !amp_precision_is_cuda(node);
}

const char *amp_precision_attribute(PrecisionNode node) { return nodes[node].attribute; }

Precision amp_precision_own(Settings s, PrecisionNode node) { return (Precision)get(s, node_at(node), NODE_BITS); }

Precision amp_precision_effective(Settings s, PrecisionNode node, PrecisionNode *from) {
    const bool unset = amp_precision_own(s, node) == PRECISION_UNSET;
    PrecisionNode at = node;
    Precision p = amp_precision_own(s, at);
    while ((p == PRECISION_NONE || p == PRECISION_UNSET) && at != NODE_GENERIC) {
        at = (PrecisionNode)nodes[at].parent;
        p = amp_precision_own(s, at);
    }
    if (from) *from = p == PRECISION_NONE ? node : at;
    if (p == PRECISION_NONE) return unset ? PRECISION_TF32 : PRECISION_NONE;
    return amp_precision_allowed(node, p) ? p : PRECISION_NONE;
}

void amp_precision_set(PrecisionNode node, Precision precision) { change_field(node_at(node), NODE_BITS, precision); }

NodeLookup amp_precision_find(const char *backend, const char *op, PrecisionNode *node) {
    bool backend_known = false, op_known = false;
    for (int n = 0; n < PRECISION_NODE_COUNT; n++) {
        const bool same_backend = !strcmp(nodes[n].backend, backend), same_op = !strcmp(nodes[n].op, op);
        if (same_backend && same_op) {
            *node = (PrecisionNode)n;
            return NODE_FOUND;
        }
        backend_known |= same_backend;
        op_known |= same_op;
    }
    return !backend_known ? NODE_NO_BACKEND : !op_known ? NODE_NO_OP : NODE_NO_PAIR;
}

/* ---- legacy switches ---- */

static bool is_tf32(Settings s, PrecisionNode node) { return amp_precision_effective(s, node, NULL) == PRECISION_TF32; }

const char *amp_level_name(MatmulLevel level) { return level_names[level]; }

int amp_level_parse(const char *name) {
    for (int level = 0; level < LEVEL_COUNT; level++)
        if (!strcmp(name, level_names[level])) return level;
    return -1;
}

MatmulLevel amp_level(Settings s) { return (MatmulLevel)get(s, LEVEL_AT, 2); }

static const Settings LEVEL_FIELD = FIELD(3, LEVEL_AT);
static Settings node_field(PrecisionNode node) { return FIELD((1u << NODE_BITS) - 1, node_at(node)); }
static Settings node_value(PrecisionNode node, Precision p) { return FIELD(p, node_at(node)); }

void amp_level_set(MatmulLevel level) {
    static const uint8_t cuda[LEVEL_COUNT] = {PRECISION_IEEE, PRECISION_TF32, PRECISION_TF32},
                         mkldnn[LEVEL_COUNT] = {PRECISION_IEEE, PRECISION_TF32, PRECISION_BF16};
    change(LEVEL_FIELD | node_field(NODE_CUDA_MATMUL) | node_field(NODE_MKLDNN_MATMUL),
           FIELD(level, LEVEL_AT) | node_value(NODE_CUDA_MATMUL, (Precision)cuda[level]) |
               node_value(NODE_MKLDNN_MATMUL, (Precision)mkldnn[level]));
}

bool amp_level_mixed(Settings s) {
    const MatmulLevel level = amp_level(s);
    const Precision mkldnn = amp_precision_effective(s, NODE_MKLDNN_MATMUL, NULL);
    return (is_tf32(s, NODE_CUDA_MATMUL) && level == LEVEL_HIGHEST) || (mkldnn == PRECISION_BF16 && level != LEVEL_MEDIUM) ||
           (mkldnn == PRECISION_TF32 && level != LEVEL_HIGH);
}

bool amp_matmul_tf32(Settings s) { return is_tf32(s, NODE_CUDA_MATMUL); }

void amp_matmul_tf32_set(bool allow) {
    change(LEVEL_FIELD | node_field(NODE_CUDA_MATMUL), FIELD(allow ? LEVEL_HIGH : LEVEL_HIGHEST, LEVEL_AT) |
                                                           node_value(NODE_CUDA_MATMUL, allow ? PRECISION_TF32 : PRECISION_IEEE));
}

bool amp_matmul_tf32_mixed(Settings s) { return (amp_level(s) != LEVEL_HIGHEST) != is_tf32(s, NODE_CUDA_MATMUL); }

bool amp_cudnn_tf32(Settings s) { return get(s, CUDNN_AT, 1); }

void amp_cudnn_tf32_set(bool allow) {
    const Precision p = allow ? PRECISION_TF32 : PRECISION_NONE;
    change(FIELD(1, CUDNN_AT) | node_field(NODE_CUDA_CONV) | node_field(NODE_CUDA_RNN),
           FIELD(allow, CUDNN_AT) | node_value(NODE_CUDA_CONV, p) | node_value(NODE_CUDA_RNN, p));
}

bool amp_cudnn_tf32_mixed(Settings s) {
    return is_tf32(s, NODE_CUDA_CONV) != amp_cudnn_tf32(s) || is_tf32(s, NODE_CUDA_RNN) != amp_cudnn_tf32(s);
}

/* ---- reduced precision ---- */

static int reductions_at(int dtype) { return dtype == AMP_BFLOAT16 ? BF16_AT : FP16_AT; }

Reductions amp_reductions(Settings s, int dtype) {
    const unsigned pair = get(s, reductions_at(dtype), 2);
    return (Reductions){.reduced = pair & 1, .split_k = pair >> 1};
}

void amp_reductions_set(int dtype, Reductions r) {
    change_field(reductions_at(dtype), 2, (unsigned)r.reduced | (unsigned)r.split_k << 1);
}

bool amp_flag(Settings s, SettingFlag flag) { return get(s, FLAGS_AT + (int)flag, 1); }
void amp_flag_set(SettingFlag flag, bool on) { change_field(FLAGS_AT + (int)flag, 1, on); }
BlasLibrary amp_blas_library(Settings s) { return (BlasLibrary)get(s, BLAS_AT, 2); }
void amp_blas_library_set(BlasLibrary library) { change_field(BLAS_AT, 2, library); }
int amp_depthwise_kernel(Settings s) { return (int)get(s, DEPTHWISE_AT, 2); }
void amp_depthwise_kernel_set(int kernel) { change_field(DEPTHWISE_AT, 2, (unsigned)kernel); }
bool amp_nvidia_tf32_off(Settings s) { return get(s, NVIDIA_AT, 1); }
int amp_split_k(Settings s) { return (int)get(s, SPLIT_AT, 8) + 1; }
void amp_split_k_set(int parts) { change_field(SPLIT_AT, 8, (unsigned)(parts - 1)); }

/* ---- products ---- */

static InputRounding rounding_of(Precision p) {
    return p == PRECISION_TF32 ? INPUT_TF32 : p == PRECISION_BF16 ? INPUT_BF16 : INPUT_IEEE;
}

Status amp_product_numerics(int device, int dtype, ProductKind kind, int precision, Numerics *out) {
    *out = (Numerics){.fp32_inputs = INPUT_IEEE, .split_k = 1};
    if (kind == PRODUCT_DOT) return AMP_OK;
    const Settings s = amp_settings();
    if (dtype == AMP_FLOAT32 && (kind == PRODUCT_MATRIX || kind == PRODUCT_CONV)) {
        const bool cuda = device == AMP_CUDA, conv = kind == PRODUCT_CONV;
        const PrecisionNode node = cuda   ? (conv ? NODE_CUDA_CONV : NODE_CUDA_MATMUL)
                                   : conv ? NODE_MKLDNN_CONV
                                          : NODE_MKLDNN_MATMUL;
        Precision p = (Precision)precision;
        if (precision == PRECISION_AS_SET || p == PRECISION_NONE) {
            p = amp_precision_effective(s, node, NULL);
        }
        out->fp32_inputs = (uint8_t)(cuda && amp_nvidia_tf32_off(s) ? INPUT_IEEE : rounding_of(p));
    }
    if (device != AMP_CUDA || !amp_is_16bit(dtype) || kind == PRODUCT_CONV) return AMP_OK;
    const Reductions r = amp_reductions(s, dtype);
    if (!r.split_k && amp_blas_library(s) != BLAS_CUBLASLT) return AMP_NEEDS_CUBLASLT;
    out->fp16_accumulate = dtype == AMP_FLOAT16 && amp_flag(s, FLAG_FP16_ACCUMULATION);
    out->split_k = (uint8_t)(r.split_k ? amp_split_k(s) : 1);
    out->round_partials = r.reduced && out->split_k > 1;
    return AMP_OK;
}
