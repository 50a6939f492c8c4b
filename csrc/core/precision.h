/* The fp32 precision tree, its legacy switches and the reduced-precision switches; contract sections 4 and 5.
 *
 * Everything is one 64-bit word for the process. A reader loads it once and works on the copy, so that it never sees half of a change;
 * a writer changes its fields and stores them together (compare and exchange), so that no other writer's change is lost.
 *
 *     bit  0 .. 26   nine nodes of 3 bits (Precision)
 *         27 .. 28   matmul level                    29   legacy cuDNN flag
 *         30 .. 31   fp16 reductions: reduced, split-K        32 .. 33   bf16, likewise
 *         34 .. 41   one bit per row of AMP_SETTING_FLAGS
 *         42 .. 43   BLAS library                    44 .. 45   cuDNN depthwise kernel
 *         46         NVIDIA_TF32_OVERRIDE=0          47 .. 54   split-K parts of the emulated device, minus 1 */
#ifndef AMP_PRECISION_H
#define AMP_PRECISION_H
#include "core.h"

/* id, backend, op, parent, attribute of ampnative that writes it (reads it, too). The names pair as PyTorch's binding pairs them. */
#define AMP_PRECISION_NODES(X) \
    X(GENERIC, "generic", "all", GENERIC, "backends.fp32_precision") \
    X(CUDA, "cuda", "all", GENERIC, "backends.cudnn.fp32_precision") \
    X(CUDA_MATMUL, "cuda", "matmul", CUDA, "backends.cuda.matmul.fp32_precision") \
    X(CUDA_CONV, "cuda", "conv", CUDA, "backends.cudnn.conv.fp32_precision") \
    X(CUDA_RNN, "cuda", "rnn", CUDA, "backends.cudnn.rnn.fp32_precision") \
    X(MKLDNN, "mkldnn", "all", GENERIC, "backends.mkldnn.fp32_precision") \
    X(MKLDNN_MATMUL, "mkldnn", "matmul", MKLDNN, "backends.mkldnn.matmul.fp32_precision") \
    X(MKLDNN_CONV, "mkldnn", "conv", MKLDNN, "backends.mkldnn.conv.fp32_precision") \
    X(MKLDNN_RNN, "mkldnn", "rnn", MKLDNN, "backends.mkldnn.rnn.fp32_precision")

typedef enum PrecisionNode {
#define X(id, backend, op, parent, attribute) NODE_##id,
    AMP_PRECISION_NODES(X)
#undef X
        PRECISION_NODE_COUNT
} PrecisionNode;

/* NONE inherits. UNSET is what cuda's conv and rnn start with and nothing can write: it inherits as well, but reads TF32 where nothing
 * above it is set. */
typedef enum Precision {
    PRECISION_NONE,
    PRECISION_IEEE,
    PRECISION_TF32,
    PRECISION_BF16,
    PRECISION_UNSET,
    PRECISION_COUNT
} Precision;

typedef enum MatmulLevel { LEVEL_HIGHEST, LEVEL_HIGH, LEVEL_MEDIUM, LEVEL_COUNT } MatmulLevel;

typedef enum BlasLibrary { BLAS_CUBLAS, BLAS_CUBLASLT, BLAS_CK, BLAS_COUNT } BlasLibrary;

/* id, default, name in messages: plain switches. Only FP16_ACCUMULATION and MATH_SDP change a result. */
#define AMP_SETTING_FLAGS(X) \
    X(FP16_ACCUMULATION, 0, "allow_fp16_accumulation") \
    X(MATH_SDP, 0, "allow_fp16_bf16_reduction_math_sdp") \
    X(GROUPED_CUBLASLT, 0, "prefer_cublaslt_grouped_gemm") \
    X(CUDNN_ENABLED, 1, "enabled_cudnn") \
    X(CUDNN_BENCHMARK, 0, "benchmark_cudnn") \
    X(CUDNN_DETERMINISTIC, 0, "deterministic_cudnn") \
    X(MKLDNN_ENABLED, 1, "enabled_mkldnn") \
    X(MKLDNN_DETERMINISTIC, 0, "deterministic_mkldnn")

typedef enum SettingFlag {
#define X(id, initial, name) FLAG_##id,
    AMP_SETTING_FLAGS(X)
#undef X
        SETTING_FLAG_COUNT
} SettingFlag;

/* A copy of all settings. */
typedef uint64_t Settings;
Settings amp_settings(void);
/* As in a new process: the initial settings, the environment's override of the matmul level, NVIDIA's override. Split-K stays. */
void amp_settings_reset(bool allow_tf32_override, bool nvidia_tf32_off);
/* A word that amp_settings() gave before. False, and nothing changed, if it is no possible state. */
bool amp_settings_restore(Settings s);

/* ---- the tree ---- */

const char *amp_precision_name(Precision precision);                 /* "none", "ieee", "tf32", "bf16"; UNSET: "unset" */
int amp_precision_parse(const char *name);                           /* what can be written; -1: unknown */
bool amp_precision_allowed(PrecisionNode node, Precision precision); /* cuda nodes have no bf16 */
bool amp_precision_is_cuda(PrecisionNode node);
const char *amp_precision_attribute(PrecisionNode node);
Precision amp_precision_own(Settings s, PrecisionNode node);
/* Own value, else the parents'; a cuda node that ends at bf16 has NONE. *from: the node that decided (the node itself if none did). */
Precision amp_precision_effective(Settings s, PrecisionNode node, PrecisionNode *from);
void amp_precision_set(PrecisionNode node, Precision precision);

typedef enum NodeLookup { NODE_FOUND, NODE_NO_BACKEND, NODE_NO_OP, NODE_NO_PAIR } NodeLookup;
NodeLookup amp_precision_find(const char *backend, const char *op, PrecisionNode *node);

/* ---- legacy switches. A getter is MIXED where the new settings contradict what it would say. ---- */

const char *amp_level_name(MatmulLevel level);
int amp_level_parse(const char *name); /* -1: unknown */
MatmulLevel amp_level(Settings s);
void amp_level_set(MatmulLevel level);
bool amp_level_mixed(Settings s);
bool amp_matmul_tf32(Settings s);
void amp_matmul_tf32_set(bool allow);
bool amp_matmul_tf32_mixed(Settings s);
bool amp_cudnn_tf32(Settings s);
void amp_cudnn_tf32_set(bool allow);
bool amp_cudnn_tf32_mixed(Settings s);

/* ---- reduced precision ---- */

typedef struct Reductions {
    bool reduced, split_k; /* (true, false) does not exist */
} Reductions;
Reductions amp_reductions(Settings s, int dtype); /* FLOAT16 or BFLOAT16 */
void amp_reductions_set(int dtype, Reductions r);

bool amp_flag(Settings s, SettingFlag flag);
void amp_flag_set(SettingFlag flag, bool on);
BlasLibrary amp_blas_library(Settings s);
void amp_blas_library_set(BlasLibrary library);
int amp_depthwise_kernel(Settings s); /* 0 auto, 1 cudnn, 2 native */
void amp_depthwise_kernel_set(int kernel);
bool amp_nvidia_tf32_off(Settings s);
int amp_split_k(Settings s); /* 1 .. 255 */
void amp_split_k_set(int parts);

/* ---- what products make of it ---- */

typedef enum ProductKind {
    PRODUCT_MATRIX,
    PRODUCT_VECTOR, /* matrix times vector: fp32 operands are never rounded */
    PRODUCT_DOT,    /* no GEMM: no setting applies */
    PRODUCT_CONV    /* the conv nodes; the settings of 16-bit reductions are about GEMMs */
} ProductKind;
enum { PRECISION_AS_SET = -1 };
/* How a product of `dtype` operands on `device` is formed; asked once per op. `precision`: the call's own Precision, or
 * PRECISION_AS_SET. AMP_NEEDS_CUBLASLT: split-K is off, which cuBLAS alone cannot promise. */
Status amp_product_numerics(int device, int dtype, ProductKind kind, int precision, Numerics *out);

#endif
