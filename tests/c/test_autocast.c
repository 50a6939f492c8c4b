/* Autocast state, cast policies and the loss-scale rule: the parts of the contract that are pure or thread-local. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "check.h"
#include "autocast.h"
#include "backend.h"
#include "policy.h"

static void check_defaults(void) {
    for (int d = 0; d < AUTOCAST_DEVICE_COUNT; d++) {
        CHECK(!amp_autocast_enabled((AutocastDevice)d));
        CHECK(amp_autocast_dtype((AutocastDevice)d) == amp_autocast_default_dtype((AutocastDevice)d));
    }
    CHECK(amp_autocast_default_dtype(AUTOCAST_CPU) == AMP_BFLOAT16 && amp_autocast_default_dtype(AUTOCAST_CUDA) == AMP_FLOAT16);
    CHECK(amp_autocast_default_dtype(AUTOCAST_HPU) == AMP_BFLOAT16 && amp_autocast_default_dtype(AUTOCAST_MPS) == AMP_FLOAT16);
    CHECK(amp_autocast_cache_enabled() && amp_mode == 0 && amp_grad_enabled == 1);
}

static void *in_thread(void *epoch) {
    check_defaults();
    amp_autocast_set_enabled(AUTOCAST_CPU, true);
    amp_autocast_set_cache_enabled(false);
    CHECK(amp_autocast_increment_nesting() == 1);
    if (amp_autocast_decrement_nesting() == 0) amp_autocast_clear_cache();
    *(uint64_t *)epoch = amp_autocast_epoch();
    return NULL;
}

static void test_state(void) {
    check_defaults();
    amp_mode |= MODE_OBSERVER;
    amp_autocast_set_enabled(AUTOCAST_CUDA, true);
    amp_autocast_set_enabled(AUTOCAST_CPU, true);
    amp_autocast_set_enabled(AUTOCAST_XPU, true);
    CHECK(amp_mode == (MODE_OBSERVER | MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA));
    amp_autocast_set_dtype(AUTOCAST_CUDA, AMP_BOOL); /* any dtype, also the one numbered 0 */
    CHECK(amp_autocast_dtype(AUTOCAST_CUDA) == AMP_BOOL && amp_autocast_dtype(AUTOCAST_CPU) == AMP_BFLOAT16);
    AutocastSnapshot saved;
    CHECK(amp_autocast_enter(AUTOCAST_CUDA, false, AMP_BFLOAT16, false, &saved) == 1);
    CHECK(amp_mode == (MODE_OBSERVER | MODE_AUTOCAST_CPU));
    CHECK(!amp_autocast_enabled(AUTOCAST_CUDA) && amp_autocast_dtype(AUTOCAST_CUDA) == AMP_BFLOAT16 &&
          !amp_autocast_cache_enabled());
    CHECK(amp_autocast_leave(&saved) == 0);
    CHECK(amp_autocast_enabled(AUTOCAST_CUDA) && amp_autocast_dtype(AUTOCAST_CUDA) == AMP_BOOL && amp_autocast_cache_enabled());
    CHECK(amp_mode == (MODE_OBSERVER | MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA));
    CHECK(amp_autocast_decrement_nesting() == -1 && amp_autocast_increment_nesting() == 0);

    uint64_t before = amp_autocast_epoch(), seen = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, &seen) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(seen == before + 1 && amp_autocast_epoch() == seen); /* one epoch for the process */
    CHECK(amp_autocast_cache_enabled());
    for (int d = 0; d < AUTOCAST_DEVICE_COUNT; d++) {
        amp_autocast_set_enabled((AutocastDevice)d, false);
        amp_autocast_set_dtype((AutocastDevice)d, amp_autocast_default_dtype((AutocastDevice)d));
    }
    amp_mode &= (uint8_t)~MODE_OBSERVER;
    check_defaults();
}

static void test_device_strings(void) {
    static const struct {
        const char *text;
        int result, device;
    } cases[] = {{"cpu", AUTOCAST_PARSE_OK, AUTOCAST_CPU},
                 {"cuda:0", AUTOCAST_PARSE_OK, AUTOCAST_CUDA},
                 {"cuda:99999", AUTOCAST_PARSE_OK, AUTOCAST_CUDA},
                 {"privateuseone:1", AUTOCAST_PARSE_OK, AUTOCAST_PRIVATEUSEONE},
                 {"", AUTOCAST_PARSE_EMPTY, 0},
                 {"CPU", AUTOCAST_PARSE_UNKNOWN, 0},
                 {"_x", AUTOCAST_PARSE_UNKNOWN, 0},
                 {"cpux", AUTOCAST_PARSE_UNKNOWN, 0},
                 {"cp", AUTOCAST_PARSE_UNKNOWN, 0},
                 {"custom", AUTOCAST_PARSE_UNKNOWN, 0},
                 {"meta", AUTOCAST_PARSE_UNSUPPORTED, 0},
                 {"vulkan:0", AUTOCAST_PARSE_UNSUPPORTED, 0},
                 {"lazy", AUTOCAST_PARSE_UNSUPPORTED, 0},
                 {"cuda:", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda:-1", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda:01", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda:1a", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda::1", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda:1:", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda:99999999999999999999", AUTOCAST_PARSE_INVALID, 0},
                 {" cuda", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda ", AUTOCAST_PARSE_INVALID, 0},
                 {"cuda0", AUTOCAST_PARSE_INVALID, 0},
                 {":0", AUTOCAST_PARSE_INVALID, 0},
                 {"\xc3\xa9", AUTOCAST_PARSE_INVALID, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        AutocastDevice device = AUTOCAST_DEVICE_COUNT;
        int result = amp_autocast_device_parse(cases[i].text, &device);
        if (result != cases[i].result) fprintf(stderr, "'%s' -> %d\n", cases[i].text, result);
        CHECK(result == cases[i].result);
        CHECK(device == (result == AUTOCAST_PARSE_OK ? (AutocastDevice)cases[i].device : AUTOCAST_DEVICE_COUNT));
    }
    CHECK(strcmp(amp_autocast_device_name(AUTOCAST_PRIVATEUSEONE), "privateuseone") == 0);
}

static PolicyResult target(Policy policy, int region, int first, int second) {
    int8_t dtypes[] = {(int8_t)first, (int8_t)second};
    uint8_t eligible[] = {amp_policy_eligible(first, AMP_CUDA, AMP_CUDA), amp_policy_eligible(second, AMP_CUDA, AMP_CUDA)};
    return amp_policy_target(policy, region, 2, dtypes, eligible);
}

static void test_policies(void) {
    enum { H = AMP_FLOAT16, B = AMP_BFLOAT16, F = AMP_FLOAT32, D = AMP_FLOAT64, I = AMP_INT64 };
    CHECK(amp_policy_eligible(F, AMP_CPU, AMP_CPU) && amp_policy_eligible(AMP_FLOAT8_E5M2, AMP_CUDA, AMP_CUDA));
    CHECK(!amp_policy_eligible(F, AMP_CPU, AMP_CUDA) && !amp_policy_eligible(D, AMP_CPU, AMP_CPU));
    CHECK(!amp_policy_eligible(I, AMP_CPU, AMP_CPU) && !amp_policy_eligible(AMP_BOOL, AMP_CPU, AMP_CPU));
    CHECK(!amp_policy_eligible(AMP_COMPLEX64, AMP_CPU, AMP_CPU));

    CHECK(target(POLICY_LOWER, H, F, B).cast_to == H && target(POLICY_FP32, H, F, B).cast_to == F);
    CHECK(target(POLICY_NONE, H, F, B).cast_to == -1 && target(POLICY_NONE, H, F, B).set_dtype == -1);
    CHECK(target(POLICY_SET_OPT, H, B, F).set_dtype == F && target(POLICY_SET_OPT, H, B, F).cast_to == -1);
    CHECK(target(POLICY_SET_OPT, H, D, F).set_dtype == -1); /* only the first argument counts */
    CHECK(target(POLICY_APPEND, H, B, F).set_dtype == F && target(POLICY_APPEND, H, D, F).set_dtype == D);
    CHECK(target(POLICY_BANNED, H, F, F).error == POLICY_IS_BANNED);
    CHECK(amp_policy_target(POLICY_SET_OPT, H, 0, NULL, NULL).set_dtype == -1);
    CHECK(amp_policy_target(POLICY_APPEND, H, 0, NULL, NULL).set_dtype == -1);
    CHECK(strcmp(amp_policy_name(POLICY_SET_OPT), "set_opt") == 0 && strcmp(amp_policy_name(POLICY_NONE), "none") == 0);

    static const struct {
        int region, a, b, cast_to, error;
    } promote[] = {{H, H, H, H, POLICY_OK},
                   {H, H, F, F, POLICY_OK},
                   {H, F, F, F, POLICY_OK},
                   {H, D, H, H, POLICY_OK},
                   {H, I, D, H, POLICY_OK},
                   {F, H, B, F, POLICY_OK},
                   {H, F, B, F, POLICY_OK}, /* fp32 settles it before bf16 is looked at */
                   {H, B, F, -1, POLICY_UNEXPECTED_DTYPE},
                   {H, B, B, -1, POLICY_UNEXPECTED_DTYPE},
                   {H, AMP_FLOAT8_E5M2, F, -1, POLICY_UNEXPECTED_DTYPE},
                   {AMP_INT32, H, F, -1, POLICY_UNEXPECTED_DTYPE},
                   {AMP_INT32, F, H, F, POLICY_OK},
                   {D, F, F, -1, POLICY_REGION_IS_FP64},
                   {D, I, I, -1, POLICY_REGION_IS_FP64}};
    for (size_t i = 0; i < sizeof promote / sizeof *promote; i++) {
        PolicyResult r = target(POLICY_PROMOTE, promote[i].region, promote[i].a, promote[i].b);
        CHECK(r.cast_to == promote[i].cast_to && r.error == promote[i].error);
        CHECK(r.offender == (r.error == POLICY_UNEXPECTED_DTYPE ? 0 : -1));
    }
    CHECK(target(POLICY_PROMOTE, H, H, B).offender == 1);
}

static void check_update(float scale, int32_t tracker, float found, double growth, double backoff, int64_t interval,
                         float new_scale, int32_t new_tracker) {
    ScaleUpdate u = amp_update_scale(scale, tracker, found, growth, backoff, interval);
    CHECK(memcmp(&u.scale, &new_scale, 4) == 0);
    CHECK(u.tracker == new_tracker);
}

static void test_scale(void) {
    check_update(65536, 1999, 0, 2, 0.5, 2000, 131072, 0);
    check_update(65536, 1998, 0, 2, 0.5, 2000, 65536, 1999);
    check_update(65536, 1999, 1, 2, 0.5, 2000, 32768, 0);
    check_update(65536, 5, 0, 2, 0.5, 3, 65536, 6); /* equality, not "at least" */
    check_update(65536, 0, 0, 2, 0.5, 0, 65536, 1);
    check_update(65536, 0, 0, 2, 0.5, (INT64_C(1) << 32) + 1, 65536, 1);
    check_update(65536, INT32_MAX, 0, 2, 0.5, 3, 65536, INT32_MIN);
    check_update(0x1p127f, 0, 0, 2, 0.5, 1, 0x1p127f, 0); /* growth to infinity is not applied */
    check_update(0x1p-149f, 3, 1, 2, 0.5, 5, 0.0f, 0);    /* backoff has no floor */
    check_update(8, 3, NAN, 2, 0.5, 5, 4, 0);
    check_update(8, 3, -0.0f, 2, 0.5, 5, 8, 4);
    check_update(8, 3, 0x1p-149f, 2, 0.5, 5, 4, 0);
    /* the factor is not rounded to fp32 first */
    check_update(3.0f, 0, 0, 1.0 + 0x1p-24, 0.5, 1, (float)(3.0 * (1.0 + 0x1p-24)), 0);
    CHECK(amp_inverse_scale(3.0f) == (float)(1.0 / 3.0));
    CHECK(isinf(amp_inverse_scale(0.0f)) && isinf(amp_inverse_scale(0x1p-149f)) && amp_inverse_scale(INFINITY) == 0.0f);
}

/* ---- from threads ---- */

enum { THREADS = 8, ROUNDS = 20000 };

/* A hash of what policies, rules and the update say to inputs drawn from `seed`: equal seeds, equal hashes, whoever else asks. */
static uint64_t answers(uint32_t seed) {
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < ROUNDS; i++) {
        int8_t dtypes[3];
        uint8_t eligible[3];
        for (int k = 0; k < 3; k++) {
            seed = seed * 1664525u + 1013904223u;
            dtypes[k] = (int8_t)((seed >> 16) % AMP_DTYPE_COUNT);
            eligible[k] = amp_policy_eligible(dtypes[k], AMP_CPU, AMP_CPU);
        }
        Policy policy = (Policy)((seed >> 8) % (POLICY_BANNED + 1));
        PolicyResult r = amp_policy_target(policy, AMP_BFLOAT16, 3, dtypes, eligible);
        int rule = amp_rule_result((DTypeRule)((seed >> 4) % (RULE_OWN + 1)), AMP_CPU, 3, dtypes, r.set_dtype, AMP_FLOAT32);
        ScaleUpdate u = amp_update_scale((float)(seed >> 10), (int32_t)(seed % 5), (float)(seed & 1), 2.0, 0.5, 3);
        uint32_t scale;
        memcpy(&scale, &u.scale, sizeof scale);
        hash = (hash ^ r.error ^ (uint64_t)(r.cast_to + 1) << 8 ^ (uint64_t)(rule + 1) << 16 ^ (uint64_t)scale << 24 ^
                (uint64_t)(uint32_t)u.tracker) *
               1099511628211u;
    }
    return hash;
}

typedef struct Job {
    uint32_t seed;
    uint64_t hash;
} Job;

/* In a region of its own while it asks. */
static void *ask(void *job) {
    Job *j = job;
    for (int i = 0; i < 50; i++) {
        AutocastSnapshot saved;
        CHECK(amp_autocast_enter(AUTOCAST_CPU, true, j->seed & 1 ? AMP_FLOAT16 : AMP_BFLOAT16, true, &saved) == 1);
        CHECK(amp_autocast_enabled(AUTOCAST_CPU) && amp_mode == MODE_AUTOCAST_CPU);
        CHECK(amp_autocast_dtype(AUTOCAST_CPU) == (j->seed & 1 ? AMP_FLOAT16 : AMP_BFLOAT16));
        if (amp_autocast_leave(&saved) == 0) amp_autocast_clear_cache();
        check_defaults();
    }
    j->hash = answers(j->seed);
    return NULL;
}

static void test_threads(void) {
    pthread_t thread[THREADS];
    Job job[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        job[i] = (Job){.seed = i};
        CHECK(pthread_create(&thread[i], NULL, ask, &job[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK(pthread_join(thread[i], NULL) == 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        CHECK(job[i].hash == answers(i));
        CHECK(i == 0 || job[i].hash != job[i - 1].hash);
    }
}

int main(void) {
    test_threads();
    test_state();
    test_device_strings();
    test_policies();
    test_scale();
    if (failures) fprintf(stderr, "%d checks failed\n", failures);
    return failures != 0;
}
