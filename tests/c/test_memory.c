/* The caching allocator: alignment, disjoint blocks, reuse, waste, statistics, cap, threads. Exit status 1 if anything fails. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "backend.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CACHING = 0 };
#else
enum { CACHING = 1 };
#endif

static uint64_t random_below(uint64_t *state, uint64_t n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % n;
}

/* Any size: aligned, writable to the last byte, at most 25 % (or one cache line) wasted. */
static void every_size(void) {
    for (int shift = 0; shift < 26; shift++)
        for (int64_t delta = -1; delta <= 1; delta++) {
            size_t n = (size_t)(((int64_t)1 << shift) + delta);
            int64_t before = amp_memory_stats(AMP_CPU).allocated;
            char *p = amp_host_alloc(AMP_CPU, n);
            CHECK(p && ((uintptr_t)p & 63) == 0);
            if (n) p[0] = 1, p[n - 1] = 2;
            int64_t taken = amp_memory_stats(AMP_CPU).allocated - before;
            CHECK(taken >= (int64_t)n && (taken <= 64 || taken <= (int64_t)n + (int64_t)(n / 4) + 64));
            amp_host_free(AMP_CPU, p, n);
            CHECK(amp_memory_stats(AMP_CPU).allocated == before);
        }
    CHECK(amp_host_alloc(AMP_CPU, SIZE_MAX) == NULL);
    CHECK(amp_host_alloc(AMP_CPU, (size_t)1 << 60) == NULL);
    amp_host_free(AMP_CPU, NULL, 10);
}

typedef struct Block {
    unsigned char *data;
    size_t n;
    unsigned char mark;
} Block;

/* Live blocks keep what was written into them, whatever is allocated and freed around them. */
static void *churn(void *argument) {
    enum { LIVE = 200 };
    Block *block = calloc(LIVE, sizeof *block);
    uint64_t state = (uint64_t)(uintptr_t)argument;
    for (int i = 0; i < 20000; i++) {
        Block *b = &block[random_below(&state, LIVE)];
        if (b->data) {
            CHECK(b->data[0] == b->mark && b->data[b->n - 1] == b->mark && b->data[b->n / 2] == b->mark);
            amp_host_free(AMP_CPU, b->data, b->n);
        }
        b->n = 1 + random_below(&state, (uint64_t)1 << (4 + random_below(&state, i % 50 ? 13 : 20)));
        b->mark = (unsigned char)random_below(&state, 256);
        b->data = amp_host_alloc(AMP_CPU, b->n);
        CHECK(b->data != NULL);
        if (b->n < 4096) memset(b->data, b->mark, b->n);
        else b->data[0] = b->data[b->n - 1] = b->data[b->n / 2] = b->mark;
    }
    for (int i = 0; i < LIVE; i++)
        if (block[i].data) amp_host_free(AMP_CPU, block[i].data, block[i].n);
    free(block);
    return NULL;
}

static void from_threads(void) {
    pthread_t threads[3];
    const int64_t before = amp_memory_stats(AMP_CPU).allocated;
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, churn, (void *)(uintptr_t)(i + 1));
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    CHECK(amp_memory_stats(AMP_CPU).allocated == before);
}

static void reuse(void) {
    static const size_t sizes[] = {64, 896, 1000, 4096, 32 << 10, 40000, 3 << 20};
    for (int i = 0; i < 7; i++) {
        char *a = amp_host_alloc(AMP_CPU, sizes[i]), *b = amp_host_alloc(AMP_CPU, sizes[i]);
        CHECK(a != b);
        amp_host_free(AMP_CPU, a, sizes[i]);
        amp_host_free(AMP_CPU, b, sizes[i]);
        if (!CACHING) continue;
        char *c = amp_host_alloc(AMP_CPU, sizes[i]), *d = amp_host_alloc(AMP_CPU, sizes[i]);
        const bool ordered = sizes[i] >= 1024 - 127 && sizes[i] <= 32 << 10;
        CHECK(ordered ? c == a && d == b : c == b && d == a); /* the lowest; last in, first out */
        amp_host_free(AMP_CPU, c, sizes[i]);
        amp_host_free(AMP_CPU, d, sizes[i]);
    }
}

static int by_address(const void *a, const void *b) {
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return (x > y) - (x < y);
}

/* Whatever was freed before, in whatever order: blocks of one size that are made one after the other lie one behind the other, but for
 * where a chunk ends; no two overlap, and memory that was there once is found again. */
static void order(void) {
    enum { COUNT = 3000, MOST_JUMPS = 32 };
    static const size_t sizes[] = {1000, 1280, 4096, 7000, 20480, 32 << 10};
    static char *block[COUNT], *sorted[COUNT];
    uint64_t state = 7;
    for (int k = 0; k < 6; k++) {
        const size_t n = sizes[k];
        const int count = n > 8192 ? COUNT / 8 : COUNT;
        int64_t reserved = 0;
        for (int round = 0; round < 4; round++) {
            int jumps = 0;
            for (int i = 0; i < count; i++) {
                block[i] = amp_host_alloc(AMP_CUDA, n);
                CHECK(block[i] && ((uintptr_t)block[i] & 63) == 0);
                memset(block[i], i % 251, n);
            }
            memcpy(sorted, block, (size_t)count * sizeof *block);
            qsort(sorted, (size_t)count, sizeof *sorted, by_address);
            for (int i = 1; i < count; i++) CHECK(sorted[i] >= sorted[i - 1] + n);
            for (int i = 0; i < count; i++) CHECK(block[i][0] == (char)(i % 251) && block[i][n - 1] == (char)(i % 251));
            for (int i = 1; i < count; i++)
                jumps += block[i] <= block[i - 1] || block[i] >= block[i - 1] + n + n / 4 + 8192; /* a slab ends */
            if (CACHING) CHECK(jumps <= MOST_JUMPS + (int)((size_t)count * n >> 20));
            if (round == 0) reserved = amp_memory_stats(AMP_CUDA).reserved;
            CHECK(amp_memory_stats(AMP_CUDA).reserved == reserved);
            for (int i = count - 1; i > 0; i--) {
                int j = round % 2 ? i : (int)random_below(&state, (uint64_t)i + 1);
                char *other = block[i];
                block[i] = block[j];
                block[j] = other;
            }
            for (int i = 0; i < count; i++) amp_host_free(AMP_CUDA, block[i], n);
        }
    }
    CHECK(amp_memory_stats(AMP_CUDA).allocated == 0);
}

/* Many blocks of one class: disjoint although they come together, and all given back. */
static void groups(void) {
    enum { COUNT = 300 };
    static const size_t sizes[] = {40 << 10, 100000, 448 << 10, (5 << 20) / 4, (5 << 20) / 2};
    static unsigned char *block[COUNT];
    for (int k = 0; k < 5; k++) {
        const size_t n = sizes[k];
        const int count = (int)((24 << 20) / n < COUNT ? (24 << 20) / n : COUNT);
        for (int i = 0; i < count; i++) {
            block[i] = amp_host_alloc(AMP_CUDA, n);
            CHECK(block[i] && ((uintptr_t)block[i] & 63) == 0);
            memset(block[i], i % 251, n);
        }
        for (int i = 0; i < count; i++) CHECK(block[i][0] == i % 251 && block[i][n / 2] == i % 251 && block[i][n - 1] == i % 251);
        CHECK(amp_memory_stats(AMP_CUDA).reserved >= amp_memory_stats(AMP_CUDA).allocated);
        for (int i = 0; i < count; i += 2) amp_host_free(AMP_CUDA, block[i], n);
        amp_memory_empty_cache(AMP_CUDA); /* every second one, out of the middle of others */
        for (int i = 1; i < count; i += 2) CHECK(block[i][0] == i % 251 && block[i][n - 1] == i % 251);
        for (int i = 1; i < count; i += 2) amp_host_free(AMP_CUDA, block[i], n);
        amp_memory_empty_cache(AMP_CUDA);
        CHECK(amp_memory_stats(AMP_CUDA).reserved == 0 && amp_memory_stats(AMP_CUDA).allocated == 0);
    }
}

/* Devices are counted apart; the peak follows; emptying the cache gives everything large back. */
static void statistics(void) {
    const MemoryStats cpu = amp_memory_stats(AMP_CPU), start = amp_memory_stats(AMP_CUDA);
    CHECK(start.allocated == 0 && start.reserved == 0 && start.peak == 0);
    char *a = amp_host_alloc(AMP_CUDA, 1 << 20), *b = amp_host_alloc(AMP_CUDA, 4 << 20);
    MemoryStats s = amp_memory_stats(AMP_CUDA);
    CHECK(s.allocated == 5 << 20 && s.peak == 5 << 20 && s.reserved == 5 << 20 && s.allocations == 2 && s.frees == 0);
    amp_host_free(AMP_CUDA, b, 4 << 20);
    s = amp_memory_stats(AMP_CUDA);
    CHECK(s.allocated == 1 << 20 && s.peak == 5 << 20 && s.frees == 1);
    CHECK(s.reserved == (CACHING ? 5 << 20 : 1 << 20));
    amp_memory_reset_peak(AMP_CUDA);
    CHECK(amp_memory_stats(AMP_CUDA).peak == 1 << 20);
    amp_memory_empty_cache(AMP_CUDA);
    CHECK(amp_memory_stats(AMP_CUDA).reserved == 1 << 20);
    amp_host_free(AMP_CUDA, a, 1 << 20);
    amp_memory_empty_cache(AMP_CUDA);
    CHECK(amp_memory_stats(AMP_CUDA).reserved == 0 && amp_memory_stats(AMP_CUDA).allocated == 0);
    const MemoryStats now = amp_memory_stats(AMP_CPU);
    CHECK(now.allocated == cpu.allocated && now.allocations == cpu.allocations && now.reserved == cpu.reserved);
}

/* At most 1 GiB stays cached. The pages are never touched, so this costs address space only. */
static void cap(void) {
    enum { BLOCKS = 6 };
    const size_t n = (size_t)256 << 20;
    char *block[BLOCKS];
    for (int i = 0; i < BLOCKS; i++) CHECK((block[i] = amp_host_alloc(AMP_CUDA, n)) != NULL);
    CHECK(amp_memory_stats(AMP_CUDA).reserved == BLOCKS * (int64_t)n);
    for (int i = 0; i < BLOCKS; i++) amp_host_free(AMP_CUDA, block[i], n);
    CHECK(amp_memory_stats(AMP_CUDA).reserved <= (int64_t)1 << 30);
    amp_memory_empty_cache(AMP_CUDA);
    CHECK(amp_memory_stats(AMP_CUDA).reserved == 0);
}

int main(void) {
    statistics();
    every_size();
    reuse();
    cap();
    groups();
    order();
    from_threads();
    return atomic_load(&failures) != 0;
}
