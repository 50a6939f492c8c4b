/* The worker pool: every element once, nested and concurrent calls, changing thread counts, fork, exit. Meant for ThreadSanitizer too.
 * Exit status 1 if anything fails. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "backend.h"

enum { N = 10000 };

typedef struct Work {
    unsigned char *count; /* plain bytes: a race between chunks is for the sanitizer to see */
    int64_t n, grain;
    atomic_int short_chunks;
} Work;

static void count_range(void *ctx, int64_t begin, int64_t end) {
    Work *w = ctx;
    if (end - begin < w->grain && end - begin < w->n) atomic_fetch_add(&w->short_chunks, 1);
    for (int64_t i = begin; i < end; i++) w->count[i]++;
}

static void once_each(int64_t n, int64_t grain) {
    Work w = {.count = calloc((size_t)n + 1, 1), .n = n, .grain = grain};
    amp_parallel_for(n, grain, count_range, &w);
    int64_t wrong = 0;
    for (int64_t i = 0; i < n; i++) wrong += w.count[i] != 1;
    CHECK(wrong == 0);
    CHECK(w.count[n < 0 ? 0 : n] == 0);
    CHECK(atomic_load(&w.short_chunks) == 0);
    free(w.count);
}

static void covers(void) {
    static const int64_t sizes[] = {0, 1, 2, 3, 7, 8, 63, 64, 65, 1000, N}, grains[] = {-1, 0, 1, 2, 3, 64, 999, 1 << 20};
    for (int threads = 1; threads <= 5; threads++) {
        amp_set_num_threads(threads);
        CHECK(amp_get_num_threads() == threads);
        for (int i = 0; i < 11; i++)
            for (int g = 0; g < 8; g++) once_each(sizes[i], grains[g]);
    }
    amp_set_num_threads(0);
    CHECK(amp_get_num_threads() == 1);
    amp_set_num_threads(1 << 30);
    CHECK(amp_get_num_threads() == 256);
}

/* Huge ranges: no overflow in the bounds of chunks. */
static void sum_lengths(void *ctx, int64_t begin, int64_t end) { atomic_fetch_add((_Atomic int64_t *)ctx, end - begin); }
static void huge(void) {
    _Atomic int64_t total = 0;
    amp_set_num_threads(3);
    amp_parallel_for(INT64_MAX, 1, sum_lengths, &total);
    CHECK(total == INT64_MAX);
}

static void nested_range(void *ctx, int64_t begin, int64_t end) {
    (void)ctx;
    for (int64_t i = begin; i < end; i++) once_each(100, 1);
}
static void nested(void) {
    amp_set_num_threads(3);
    amp_parallel_for(50, 1, nested_range, NULL);
}

/* Many short jobs in a row: a worker that is late must not take part in the wrong one. */
static void many_jobs(void) {
    amp_set_num_threads(4);
    for (int i = 0; i < 3000; i++) once_each(1 + i % 40, 1);
}

static void *caller(void *argument) {
    (void)argument;
    for (int i = 0; i < 300; i++) once_each(500, 7);
    return NULL;
}
static void concurrent(void) {
    pthread_t threads[4];
    amp_set_num_threads(3);
    for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, caller, NULL);
    for (int i = 0; i < 4; i++) {
        amp_set_num_threads(2 + i % 2);
        pthread_join(threads[i], NULL);
    }
}

/* Workers that sleep are woken and, if they are late, not waited for. */
static void sleeping(void) {
    amp_set_num_threads(2);
    for (int i = 0; i < 20; i++) {
        usleep(2000);
        once_each(N, 10);
    }
}

static void in_child(void) {
    for (int i = 0; i < 3; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) {
            atomic_store(&failures, 0);
#if defined(__SANITIZE_THREAD__)
            amp_set_num_threads(1); /* the sanitizer refuses threads in a child */
#endif
            for (int j = 0; j < 50; j++) once_each(N, 10);
            exit(atomic_load(&failures) != 0); /* with workers of its own: leaving must not hang */
        }
        int status = -1;
        CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
        once_each(N, 10);
    }
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], "--print-threads") == 0) { /* what the environment decides */
        printf("%d\n", amp_get_num_threads());
        return 0;
    }
    covers();
    huge();
    nested();
    many_jobs();
    concurrent();
    sleeping();
    in_child();
    return atomic_load(&failures) != 0;
}
