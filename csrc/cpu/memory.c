/* Caching allocator for devices that live in host memory.
 *
 *     size                where a block comes from                          where it goes when freed
 *     up to 32 KiB        carved from slabs: 1 MiB, then huge pages         its class's list, for ever
 *     above               mmap, huge pages advised from 2 MiB               its class's list: together at most CACHE_CAP bytes, the
 *                                                                           oldest go back to the system
 *
 * Blocks that are no whole number of huge pages come one by one at first; once a class has taken GROUP_AFTER bytes, so many at a time
 * as fill whole huge pages (2, 6, 10 or 14 MiB). Each goes back by itself.
 *
 * Classes: multiples of 64 bytes up to 512, then four steps per doubling (512 640 768 896 1024 ...), so at most 25 % is wasted.
 * Lists are last in, first out: the block that is handed out next is the one most likely in cache. A free block holds its links in its
 * own first 48 bytes; a block in use has no header, because its size comes back with free().
 *
 * One spin flag per device guards everything. It is held for some ten instructions, except while memory is fetched from the system.
 * Under AddressSanitizer blocks come straight from malloc, so that it sees what runs over. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../core/backend.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CACHING = 0 };
#else
enum { CACHING = 1 };
#endif

enum {
    ALIGNMENT = 64,
    FIRST_CLASSES = 9, /* index 1..8: 64..512 */
    SMALL_LIMIT = 32 << 10,
    SLAB_BYTES = 1 << 20,
    GROUP_AFTER = 8 << 20,
    HUGE_PAGE = 2 << 20,
    LARGEST_SHIFT = 46,
    CLASSES = FIRST_CLASSES + 4 * (LARGEST_SHIFT - 9)
};
static const int64_t CACHE_CAP = (int64_t)1 << 30;

typedef struct FreeBlock {
    struct FreeBlock *next, *prev;   /* in its class: next is older */
    struct FreeBlock *newer, *older; /* among all blocks that can be given back; unused in small ones */
    size_t bytes;
} FreeBlock;
_Static_assert(sizeof(FreeBlock) <= ALIGNMENT, "a free block holds its links");

typedef struct Arena {
    _Alignas(ALIGNMENT) atomic_flag lock;
    MemoryStats stats;
    char *slab; /* the part of the newest slab that is not carved yet */
    size_t slab_left;
    int64_t slabs;
    int64_t cached; /* bytes in the age list */
    FreeBlock *newest, *oldest;
    FreeBlock *list[CLASSES];
    int64_t fetched[CLASSES]; /* bytes that came one by one */
} Arena;

static Arena arenas[AMP_DEVICE_COUNT];
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

static void lock(Arena *arena) {
    for (int i = 0; atomic_flag_test_and_set_explicit(&arena->lock, memory_order_acquire); i++)
        if (i > 100) sched_yield(); /* its holder may need this CPU */
}

static void unlock(Arena *arena) { atomic_flag_clear_explicit(&arena->lock, memory_order_release); }

/* A fork must not copy a flag that another thread holds. */
static void lock_all(void) {
    for (int i = 0; i < AMP_DEVICE_COUNT; i++) lock(&arenas[i]);
}
static void unlock_all(void) {
    for (int i = 0; i < AMP_DEVICE_COUNT; i++) unlock(&arenas[i]);
}
static void register_fork_handlers(void) { pthread_atfork(lock_all, unlock_all, unlock_all); }

/* ------------------------------------------------------------------ classes */

/* Index of the class and its size in bytes; -1 if nothing that large can exist.
 *
 *     n - 1 =  1 x y ........    the two bits x y below the leading one choose the quarter of the doubling */
static inline int class_of(size_t nbytes, size_t *size) {
    if (nbytes <= 512) {
        size_t i = (nbytes + (nbytes == 0) + 63) >> 6;
        *size = i << 6;
        return (int)i;
    }
    *size = nbytes;
    if (nbytes > (size_t)1 << LARGEST_SHIFT) return -1;
    size_t last = nbytes - 1;
    int top = 63 - __builtin_clzll(last); /* >= 9 */
    size_t quarter = last >> (top - 2);   /* 4..7 */
    *size = (quarter + 1) << (top - 2);
    return FIRST_CLASSES + 4 * (top - 9) + (int)(quarter - 4);
}

static size_t class_size(int cls) {
    if (cls < FIRST_CLASSES) return (size_t)cls * ALIGNMENT;
    int step = cls - FIRST_CLASSES;
    return (size_t)(5 + step % 4) << (7 + step / 4);
}

/* ------------------------------------------------------------------ the system's memory */

static void *map_pages(size_t size) {
    if (size < HUGE_PAGE) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    /* Room to cut both ends off until the block starts on a huge page. */
    char *p = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - ((uintptr_t)p & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (before) munmap(p, before);
    munmap(p + before + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
    madvise(p + before, size, MADV_HUGEPAGE);
#endif
    return p + before;
}

/* `nbytes` is what was asked for, `size` its class. */
static void *system_alloc(size_t nbytes, size_t size) {
    void *p;
    if (CACHING && size > SMALL_LIMIT) return map_pages(size);
    return posix_memalign(&p, ALIGNMENT, CACHING ? size : nbytes + !nbytes) ? NULL : p;
}

static void system_free(void *data, size_t size) {
    if (!CACHING || size <= SMALL_LIMIT) free(data);
    else munmap(data, size);
}

/* ------------------------------------------------------------------ lists, flag held */

static void push(Arena *arena, int cls, FreeBlock *block, size_t size) {
    FreeBlock *head = arena->list[cls];
    block->next = head;
    arena->list[cls] = block;
    if (size <= SMALL_LIMIT) return;
    block->prev = NULL;
    if (head) head->prev = block;
    block->bytes = size;
    block->newer = NULL;
    block->older = arena->newest;
    if (arena->newest) arena->newest->newer = block;
    arena->newest = block;
    if (!arena->oldest) arena->oldest = block;
    arena->cached += (int64_t)size;
}

/* Takes a block that is not small out of both of its lists. */
static void unlink_block(Arena *arena, int cls, FreeBlock *block) {
    if (block->next) block->next->prev = block->prev;
    if (block->prev) block->prev->next = block->next;
    else arena->list[cls] = block->next;
    if (block->newer) block->newer->older = block->older;
    else arena->newest = block->older;
    if (block->older) block->older->newer = block->newer;
    else arena->oldest = block->newer;
    arena->cached -= (int64_t)block->bytes;
}

/* Gives cached blocks back, oldest first, until at most `keep` bytes are cached. */
static void shrink(Arena *arena, int64_t keep) {
    while (arena->oldest && arena->cached > keep) {
        FreeBlock *block = arena->oldest;
        size_t size;
        int cls = class_of(block->bytes, &size);
        unlink_block(arena, cls, block);
        arena->stats.reserved -= (int64_t)size;
        system_free(block, size);
    }
}

/* What is left of a slab that is too short for the next block becomes free blocks, largest first: nothing is lost. */
static void use_up_slab(Arena *arena) {
    while (arena->slab_left) {
        size_t size;
        int cls = class_of(arena->slab_left, &size);
        if (size > arena->slab_left) size = class_size(--cls);
        push(arena, cls, (FreeBlock *)(void *)arena->slab, size);
        arena->slab += size;
        arena->slab_left -= size;
    }
}

static void *carve(Arena *arena, size_t size) {
    if (arena->slab_left < size) {
        size_t bytes = arena->slabs ? HUGE_PAGE : SLAB_BYTES;
        char *slab = arena->slabs ? map_pages(bytes) : aligned_alloc(4096, bytes);
        if (!slab) return NULL;
        use_up_slab(arena);
        arena->slabs++;
        arena->slab = slab;
        arena->slab_left = bytes;
        arena->stats.reserved += (int64_t)bytes;
    }
    void *block = arena->slab;
    arena->slab += size;
    arena->slab_left -= size;
    return block;
}

/* One block of a class in demand; its neighbours, up to the end of a huge page, become free blocks. NULL: take one alone. */
static void *fetch_group(Arena *arena, int cls, size_t size) {
    size_t total = size;
    if (!CACHING || size % HUGE_PAGE == 0 || arena->fetched[cls] < GROUP_AFTER) return NULL;
    while (total % HUGE_PAGE) total += size; /* a class is 5, 6, 7 or 8 times a power of two */
    char *first = map_pages(total);
    if (!first) return NULL;
    for (size_t at = total - size; at > 0; at -= size) push(arena, cls, (FreeBlock *)(void *)(first + at), size);
    arena->stats.reserved += (int64_t)total;
    return first;
}

/* The class's list is empty. */
static void *fetch(Arena *arena, int cls, size_t nbytes, size_t size) {
    pthread_once(&fork_once, register_fork_handlers);
    if (CACHING && size <= SMALL_LIMIT) return carve(arena, size);
    void *group = fetch_group(arena, cls, size);
    if (group) return group;
    void *block = system_alloc(nbytes, size);
    if (!block) {
        shrink(arena, 0);
        block = system_alloc(nbytes, size);
    }
    if (block) arena->stats.reserved += (int64_t)size;
    if (block) arena->fetched[cls] += (int64_t)size;
    return block;
}

/* ------------------------------------------------------------------ entries */

void *amp_host_alloc(Device device, size_t nbytes) {
    Arena *arena = &arenas[device];
    size_t size;
    int cls = class_of(nbytes, &size);
    if (cls < 0) return NULL;
    lock(arena);
    FreeBlock *block = arena->list[cls];
    if (!block) block = fetch(arena, cls, nbytes, size);
    else if (size <= SMALL_LIMIT) arena->list[cls] = block->next;
    else unlink_block(arena, cls, block);
    if (block) {
        MemoryStats *s = &arena->stats;
        s->allocations++;
        s->allocated += (int64_t)size;
        if (s->allocated > s->peak) s->peak = s->allocated;
    }
    unlock(arena);
    return block;
}

void amp_host_free(Device device, void *data, size_t nbytes) {
    if (!data) return;
    Arena *arena = &arenas[device];
    size_t size;
    int cls = class_of(nbytes, &size);
    lock(arena);
    arena->stats.frees++;
    arena->stats.allocated -= (int64_t)size;
    if (CACHING) {
        push(arena, cls, data, size);
        if (arena->cached > CACHE_CAP) shrink(arena, CACHE_CAP);
    } else {
        arena->stats.reserved -= (int64_t)size;
        system_free(data, size);
    }
    unlock(arena);
}

MemoryStats amp_memory_stats(Device device) {
    Arena *arena = &arenas[device];
    lock(arena);
    MemoryStats stats = arena->stats;
    unlock(arena);
    return stats;
}

void amp_memory_reset_peak(Device device) {
    Arena *arena = &arenas[device];
    lock(arena);
    arena->stats.peak = arena->stats.allocated;
    unlock(arena);
}

/* Slabs stay: small blocks of one slab may be in use anywhere. */
void amp_memory_empty_cache(Device device) {
    Arena *arena = &arenas[device];
    lock(arena);
    shrink(arena, 0);
    unlock(arena);
}
