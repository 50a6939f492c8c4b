/* The precision settings in C: the tree, the legacy switches, what products make of them, and readers beside writers. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "precision.h"

static void fresh(void) {
    amp_settings_reset(false, false);
    amp_split_k_set(1);
}

static Precision reads(PrecisionNode node) { return amp_precision_effective(amp_settings(), node, NULL); }

static void test_initial(void) {
    Settings before = amp_settings();
    fresh();
    CHECK(before == amp_settings()); /* the word starts as a reset leaves it */
    for (int n = 0; n < PRECISION_NODE_COUNT; n++) {
        const bool unset = n == NODE_CUDA_CONV || n == NODE_CUDA_RNN;
        PrecisionNode from;
        CHECK(amp_precision_own(before, (PrecisionNode)n) == (unset ? PRECISION_UNSET : PRECISION_NONE));
        CHECK(amp_precision_effective(before, (PrecisionNode)n, &from) == (unset ? PRECISION_TF32 : PRECISION_NONE));
        CHECK((int)from == n);
    }
    CHECK(amp_level(before) == LEVEL_HIGHEST && amp_cudnn_tf32(before) && amp_split_k(before) == 1);
    CHECK(!amp_level_mixed(before) && !amp_matmul_tf32_mixed(before) && !amp_cudnn_tf32_mixed(before));
    CHECK(amp_reductions(before, AMP_FLOAT16).reduced && amp_reductions(before, AMP_BFLOAT16).split_k);
    CHECK(amp_flag(before, FLAG_CUDNN_ENABLED) && !amp_flag(before, FLAG_FP16_ACCUMULATION) && !amp_flag(before, FLAG_MATH_SDP));
    CHECK(amp_blas_library(before) == BLAS_CUBLAS && amp_depthwise_kernel(before) == 0);
}

static void test_tree(void) {
    PrecisionNode from;
    fresh();
    amp_precision_set(NODE_GENERIC, PRECISION_BF16);
    CHECK(reads(NODE_MKLDNN_MATMUL) == PRECISION_BF16 && reads(NODE_CUDA) == PRECISION_NONE);
    CHECK(reads(NODE_CUDA_CONV) == PRECISION_NONE); /* unset, too */
    amp_precision_set(NODE_CUDA, PRECISION_IEEE);
    CHECK(amp_precision_effective(amp_settings(), NODE_CUDA_RNN, &from) == PRECISION_IEEE && from == NODE_CUDA);
    amp_precision_set(NODE_CUDA, PRECISION_NONE);
    amp_precision_set(NODE_GENERIC, PRECISION_NONE);
    CHECK(reads(NODE_CUDA_RNN) == PRECISION_TF32);
    amp_precision_set(NODE_CUDA_RNN, PRECISION_NONE);
    CHECK(reads(NODE_CUDA_RNN) == PRECISION_NONE && reads(NODE_CUDA_CONV) == PRECISION_TF32);
    CHECK(!amp_precision_allowed(NODE_CUDA_MATMUL, PRECISION_BF16) && amp_precision_allowed(NODE_GENERIC, PRECISION_BF16));
    CHECK(amp_precision_parse("tf32") == PRECISION_TF32 && amp_precision_parse("TF32") < 0 && amp_precision_parse("unset") < 0);
    CHECK(amp_precision_find("mkldnn", "rnn", &from) == NODE_FOUND && from == NODE_MKLDNN_RNN);
    CHECK(amp_precision_find("generic", "rnn", &from) == NODE_NO_PAIR);
    CHECK(amp_precision_find("x", "rnn", &from) == NODE_NO_BACKEND && amp_precision_find("cuda", "x", &from) == NODE_NO_OP);
}

static void test_legacy(void) {
    fresh();
    amp_level_set(LEVEL_MEDIUM);
    CHECK(reads(NODE_CUDA_MATMUL) == PRECISION_TF32 && reads(NODE_MKLDNN_MATMUL) == PRECISION_BF16);
    CHECK(amp_matmul_tf32(amp_settings()) && !amp_level_mixed(amp_settings()) && !amp_matmul_tf32_mixed(amp_settings()));
    amp_matmul_tf32_set(false);
    CHECK(amp_level_mixed(amp_settings()) && !amp_matmul_tf32_mixed(amp_settings()));
    fresh();
    amp_cudnn_tf32_set(false);
    CHECK(reads(NODE_CUDA_CONV) == PRECISION_NONE && !amp_cudnn_tf32_mixed(amp_settings()));
    amp_precision_set(NODE_CUDA, PRECISION_TF32);
    CHECK(amp_cudnn_tf32_mixed(amp_settings()));
    amp_settings_reset(true, false);
    CHECK(amp_level(amp_settings()) == LEVEL_HIGH && reads(NODE_CUDA_MATMUL) == PRECISION_TF32);
    CHECK(amp_precision_own(amp_settings(), NODE_MKLDNN_MATMUL) == PRECISION_NONE);
}

static Numerics numerics(int device, int dtype, ProductKind kind, int precision) {
    Numerics n;
    CHECK(amp_product_numerics(device, dtype, kind, precision, &n) == AMP_OK);
    return n;
}

static void test_products(void) {
    Numerics n;
    fresh();
    amp_level_set(LEVEL_MEDIUM);
    CHECK(numerics(AMP_CUDA, AMP_FLOAT32, PRODUCT_MATRIX, PRECISION_AS_SET).fp32_inputs == INPUT_TF32);
    CHECK(numerics(AMP_CPU, AMP_FLOAT32, PRODUCT_MATRIX, PRECISION_AS_SET).fp32_inputs == INPUT_BF16);
    CHECK(numerics(AMP_CPU, AMP_FLOAT32, PRODUCT_MATRIX, PRECISION_IEEE).fp32_inputs == INPUT_IEEE);
    CHECK(numerics(AMP_CPU, AMP_FLOAT32, PRODUCT_MATRIX, PRECISION_NONE).fp32_inputs == INPUT_BF16);
    CHECK(numerics(AMP_CUDA, AMP_FLOAT32, PRODUCT_VECTOR, PRECISION_AS_SET).fp32_inputs == INPUT_IEEE);
    CHECK(numerics(AMP_CUDA, AMP_FLOAT64, PRODUCT_MATRIX, PRECISION_AS_SET).fp32_inputs == INPUT_IEEE);
    amp_settings_reset(true, true); /* NVIDIA_TF32_OVERRIDE=0 */
    CHECK(numerics(AMP_CUDA, AMP_FLOAT32, PRODUCT_MATRIX, PRECISION_AS_SET).fp32_inputs == INPUT_IEEE);

    fresh();
    amp_split_k_set(8);
    n = numerics(AMP_CUDA, AMP_FLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET);
    CHECK(n.split_k == 8 && n.round_partials && !n.fp16_accumulate);
    CHECK(numerics(AMP_CPU, AMP_FLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET).split_k == 1);
    amp_reductions_set(AMP_FLOAT16, (Reductions){false, true});
    amp_flag_set(FLAG_FP16_ACCUMULATION, true);
    n = numerics(AMP_CUDA, AMP_FLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET);
    CHECK(n.split_k == 8 && !n.round_partials && n.fp16_accumulate);
    n = numerics(AMP_CUDA, AMP_BFLOAT16, PRODUCT_VECTOR, PRECISION_AS_SET);
    CHECK(n.split_k == 8 && n.round_partials && !n.fp16_accumulate);
    amp_reductions_set(AMP_BFLOAT16, (Reductions){false, false});
    CHECK(amp_product_numerics(AMP_CUDA, AMP_BFLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET, &n) == AMP_NEEDS_CUBLASLT);
    CHECK(amp_product_numerics(AMP_CUDA, AMP_BFLOAT16, PRODUCT_DOT, PRECISION_AS_SET, &n) == AMP_OK);
    CHECK(amp_product_numerics(AMP_CPU, AMP_BFLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET, &n) == AMP_OK);
    amp_blas_library_set(BLAS_CUBLASLT);
    n = numerics(AMP_CUDA, AMP_BFLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET);
    CHECK(n.split_k == 1 && !n.round_partials);
    amp_settings_reset(false, false);
    CHECK(amp_split_k(amp_settings()) == 8);
}

static void test_restore(void) {
    fresh();
    amp_level_set(LEVEL_HIGH);
    const Settings kept = amp_settings();
    fresh();
    CHECK(amp_settings_restore(kept) && amp_settings() == kept);
    static const Settings impossible[] = {
        ~(Settings)0,
        (Settings)1 << 55,
        7,                                             /* no such precision */
        4,                                             /* only conv and rnn can be unset */
        (Settings)PRECISION_BF16 << 3 * NODE_CUDA_RNN, /* cuda has no bf16 */
        (Settings)1 << 30,                             /* reduced without split-K */
        (Settings)3 << 27,
    };
    for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
        CHECK(!amp_settings_restore(impossible[i]));
        CHECK(amp_settings() == kept);
    }
}

/* ---- threads: every writer owns fields, so that a lost update shows; readers see only whole changes ---- */

enum { ROUNDS = 20000 };
static atomic_bool stop;

static void *write_level(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        const MatmulLevel level = (MatmulLevel)(i % LEVEL_COUNT);
        amp_level_set(level);
        const Settings s = amp_settings();
        CHECK(amp_level(s) == level);
        CHECK(!amp_level_mixed(s));
    }
    return NULL;
}

static void *write_reductions(void *unused) {
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        const Reductions r = {.reduced = i % 3 == 0, .split_k = i % 3 != 1};
        amp_reductions_set(AMP_FLOAT16, r);
        amp_split_k_set(i % 255 + 1);
        amp_cudnn_tf32_set(i % 2);
        const Settings s = amp_settings();
        const Reductions seen = amp_reductions(s, AMP_FLOAT16);
        CHECK(seen.reduced == r.reduced && seen.split_k == r.split_k && amp_split_k(s) == i % 255 + 1);
        CHECK(amp_cudnn_tf32(s) == (i % 2) && !amp_cudnn_tf32_mixed(s));
    }
    return NULL;
}

static void *read_whole(void *unused) {
    (void)unused;
    while (!stop) {
        const Settings s = amp_settings();
        CHECK(!amp_level_mixed(s) && !amp_matmul_tf32_mixed(s) && !amp_cudnn_tf32_mixed(s));
        const Reductions r = amp_reductions(s, AMP_FLOAT16);
        CHECK(!r.reduced || r.split_k);
        Numerics n;
        const Status status = amp_product_numerics(AMP_CUDA, AMP_FLOAT16, PRODUCT_MATRIX, PRECISION_AS_SET, &n);
        CHECK(status == AMP_NEEDS_CUBLASLT || !n.round_partials || n.split_k > 1);
    }
    return NULL;
}

static void test_threads(void) {
    void *(*const jobs[])(void *) = {read_whole, read_whole, write_level, write_reductions};
    pthread_t threads[4];
    fresh();
    for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, jobs[i], NULL) == 0);
    for (int i = 2; i < 4; i++) pthread_join(threads[i], NULL);
    stop = true;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    fresh();
}

int main(void) {
    test_initial();
    test_tree();
    test_legacy();
    test_products();
    test_restore();
    test_threads();
    printf("%d failures\n", (int)failures);
    return failures != 0;
}
