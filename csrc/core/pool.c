/* Worker threads.
 *
 * One job at a time. Which of its chunks are taken and its number share one atomic word, the ticket:
 *
 *     63              32 31           16 15            0
 *    +------------------+---------------+---------------+
 *    | number of the job| taken at back | next at front |    next at front = CLOSED while a job is being set up
 *    +------------------+---------------+---------------+
 *
 * The caller takes chunks from the front and workers from the back: a thread finds much of what it has in its cache from the job before
 * again, and lines that two threads write by turns are few.
 *
 * A thread reads the ticket, reads the job's fields, then takes the chunk by compare-and-swap. Fields change only while the ticket is
 * closed, and every opening has a new number: if the swap succeeds, the fields that were read belong to the chunk that was taken.
 * So a thread that was held up for any time between the reads and the swap can do no harm, and nobody has to wait for it. (Fields are
 * stored with release and loaded with acquire: who sees a new field also sees that the old ticket was closed.)
 *
 * What must stay true
 *   - The caller takes chunks until none is left, then waits only for chunks that others have already begun. With no worker awake
 *     (one CPU, all asleep, creation failed) the caller does everything.
 *   - `busy` is held from setting a job up to its end; whoever finds it taken (a nested call, another thread) runs serially. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "backend.h"

enum {
    MAX_THREADS = 256,
    CHUNKS_PER_THREAD = 16, /* small enough to balance beside a busy neighbour; taking one costs some 50 ns */
    CLOSED = 0xffff,
    BACK_SHIFT = 16,
    NUMBER_SHIFT = 32,
    SPIN_NS = 70000,   /* a worker looks for work this long before it sleeps: longer than the gap between two ops */
    WAIT_PAUSES = 4000 /* the caller spins this often for chunks under way before it gives up its time slice */
};
_Static_assert(MAX_THREADS *CHUNKS_PER_THREAD < CLOSED, "chunk numbers fit the ticket");

static _Atomic uint64_t ticket = CLOSED;
static _Atomic(RangeFn) job_fn;
static _Atomic(void *) job_ctx;
static _Atomic int64_t job_n;
static _Atomic int job_chunks;
static _Atomic int job_unfinished; /* chunks not finished yet */

static atomic_bool busy;
static atomic_int threads; /* 0: not decided yet */
static int workers;        /* created so far; guarded by `busy` */

static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t wake = PTHREAD_COND_INITIALIZER;
static atomic_int sleepers;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* ------------------------------------------------------------------ how many */

static int clamp_threads(long n) { return n < 1 ? 1 : n > MAX_THREADS ? MAX_THREADS : (int)n; }

/* 0: unset or not a positive number. OMP_NUM_THREADS may be a list ("4,2"): the first entry counts. */
static int threads_from_env(const char *name) {
    const char *text = getenv(name);
    char *end;
    if (!text) return 0;
    errno = 0;
    long n = strtol(text, &end, 10);
    if (end == text || errno || n < 1) return 0;
    return clamp_threads(n);
}

static int threads_from_machine(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return clamp_threads(CPU_COUNT(&set));
#endif
    return clamp_threads(sysconf(_SC_NPROCESSORS_ONLN));
}

int amp_get_num_threads(void) {
    int n = atomic_load_explicit(&threads, memory_order_relaxed);
    if (n) return n;
    n = threads_from_env("AMPNATIVE_NUM_THREADS");
    if (!n) n = threads_from_env("OMP_NUM_THREADS");
    if (!n) n = threads_from_machine();
    int undecided = 0; /* an explicit setting that came in between wins */
    atomic_compare_exchange_strong(&threads, &undecided, n);
    return atomic_load_explicit(&threads, memory_order_relaxed);
}

void amp_set_num_threads(int n) { atomic_store(&threads, clamp_threads(n)); }

/* ------------------------------------------------------------------ chunks */

/* How many chunks are taken; CLOSED or more if none may be. */
static inline int taken(uint64_t t) { return (int)(t & CLOSED) + (int)(t >> BACK_SHIFT & CLOSED); }

/* Takes and runs one chunk. False: nothing to take. */
static bool run_one_chunk(bool from_back) {
    uint64_t t = atomic_load_explicit(&ticket, memory_order_acquire);
    for (;;) {
        int chunks = atomic_load_explicit(&job_chunks, memory_order_acquire);
        if (taken(t) >= chunks) return false;
        int chunk = from_back ? chunks - 1 - (int)(t >> BACK_SHIFT & CLOSED) : (int)(t & CLOSED);
        uint64_t next = t + (from_back ? (uint64_t)1 << BACK_SHIFT : 1);
        RangeFn fn = atomic_load_explicit(&job_fn, memory_order_acquire);
        void *ctx = atomic_load_explicit(&job_ctx, memory_order_acquire);
        int64_t n = atomic_load_explicit(&job_n, memory_order_acquire);
        if (!atomic_compare_exchange_weak_explicit(&ticket, &t, next, memory_order_acq_rel, memory_order_acquire)) continue;
        int64_t size = n / chunks, larger = n % chunks; /* the first `larger` chunks have one element more */
        int64_t begin = chunk * size + (chunk < larger ? chunk : larger);
        fn(ctx, begin, begin + size + (chunk < larger));
        atomic_fetch_sub_explicit(&job_unfinished, 1, memory_order_acq_rel);
        return true;
    }
}

static bool work_waits(void) { return taken(atomic_load(&ticket)) < atomic_load_explicit(&job_chunks, memory_order_relaxed); }

static bool takes_part(int index) { return index < atomic_load_explicit(&threads, memory_order_relaxed) - 1; }

static void worker_sleep(int index) {
    pthread_mutex_lock(&sleep_lock);
    atomic_fetch_add(&sleepers, 1); /* before the last look: a job opened after that look sees a sleeper and wakes it */
    while (!takes_part(index) || !work_waits()) pthread_cond_wait(&wake, &sleep_lock);
    atomic_fetch_sub(&sleepers, 1);
    pthread_mutex_unlock(&sleep_lock);
}

static void *worker(void *argument) {
    int index = (int)(intptr_t)argument;
    for (;;) {
        int64_t deadline = now_ns() + SPIN_NS;
        while (takes_part(index)) {
            bool ran = false;
            while (run_one_chunk(true)) ran = true;
            if (ran) deadline = now_ns() + SPIN_NS;
            for (int i = 0; i < 32 && !work_waits(); i++) relax();
            if (!work_waits() && now_ns() > deadline) break;
        }
        worker_sleep(index);
    }
    return NULL;
}

/* ------------------------------------------------------------------ start, fork */

/* The child has one thread: no workers, no job, nobody asleep. */
static void after_fork_in_child(void) {
    workers = 0;
    atomic_store(&sleepers, 0);
    atomic_store(&job_unfinished, 0);
    atomic_store(&ticket, (atomic_load(&ticket) | CLOSED));
    pthread_mutex_init(&sleep_lock, NULL);
    pthread_cond_init(&wake, NULL);
    atomic_store(&busy, false);
}

static void register_fork_handler(void) { pthread_atfork(NULL, NULL, after_fork_in_child); }

/* Called with `busy` held. Workers are detached and never end: at exit they sleep or spin and hold nothing. All signals are blocked
 * in them, so that handlers run in threads that belong to the program. */
static void start_workers(int wanted) {
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_once(&fork_once, register_fork_handler);
    if (pthread_attr_init(&attr)) return;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (workers < wanted) {
        pthread_t thread;
        if (pthread_create(&thread, &attr, worker, (void *)(intptr_t)workers)) break; /* fewer hands, same result */
        workers++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
}

/* ------------------------------------------------------------------ the one entry */

static void wait_for_chunks_under_way(void) {
    for (int i = 0; atomic_load_explicit(&job_unfinished, memory_order_acquire); i++) {
        if (i < WAIT_PAUSES) relax();
        else sched_yield(); /* the thread that has the chunk may need this CPU */
    }
}

static void open_job(RangeFn fn, void *ctx, int64_t n, int chunks) {
    uint64_t t = atomic_load_explicit(&ticket, memory_order_relaxed) | CLOSED;
    atomic_store(&ticket, t);
    atomic_store_explicit(&job_fn, fn, memory_order_release);
    atomic_store_explicit(&job_ctx, ctx, memory_order_release);
    atomic_store_explicit(&job_n, n, memory_order_release);
    atomic_store_explicit(&job_chunks, chunks, memory_order_release);
    atomic_store_explicit(&job_unfinished, chunks, memory_order_release);
    atomic_store(&ticket, ((t >> NUMBER_SHIFT) + 1) << NUMBER_SHIFT); /* the next number, no chunk taken */
    if (atomic_load(&sleepers)) {
        pthread_mutex_lock(&sleep_lock);
        pthread_cond_broadcast(&wake);
        pthread_mutex_unlock(&sleep_lock);
    }
}

void amp_parallel_for(int64_t n, int64_t grain, RangeFn fn, void *ctx) {
    if (n <= 0) return;
    int hands = amp_get_num_threads();
    int64_t chunks = grain > 1 ? n / grain : n; /* every chunk gets at least `grain` elements */
    if (chunks > (int64_t)hands * CHUNKS_PER_THREAD) chunks = (int64_t)hands * CHUNKS_PER_THREAD;
    bool expected = false;
    if (hands < 2 || chunks < 2 || !atomic_compare_exchange_strong(&busy, &expected, true)) {
        fn(ctx, 0, n);
        return;
    }
    if (workers < hands - 1) start_workers(hands - 1);
    open_job(fn, ctx, n, (int)chunks);
    while (run_one_chunk(false)) continue;
    wait_for_chunks_under_way();
    atomic_store_explicit(&busy, false, memory_order_release);
}
