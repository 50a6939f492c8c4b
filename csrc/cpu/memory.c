/* Caching allocator for devices that live in host memory.
 *
 *     size                where a block comes from                          where it goes when freed
 *     below 1 KiB         carved from pages of chunks                       its class's list, for ever
 *     up to 32 KiB        the lowest free one of its class's slabs,         its slab
 *                         which are pages of chunks, too
 *     above               mmap, huge pages advised from 2 MiB               its class's list: together at most CACHE_CAP bytes, the
 *                                                                           oldest go back to the system
 *
 * Blocks that are no whole number of huge pages come one by one at first; once a class has taken GROUP_AFTER bytes, so many at a time
 * as fill whole huge pages (2, 6, 10 or 14 MiB). Each goes back by itself.
 *
 * Classes: multiples of 64 bytes up to 512, then four steps per doubling (512 640 768 896 1024 ...), so at most 25 % is wasted.
 * Lists are last in, first out: the block that is handed out next is the one most likely in cache. A free block of a list holds its
 * links in its own first 48 bytes; a block in use has no header, because its size comes back with free().
 *
 * From 1 KiB on it matters more how the blocks of a model lie to each other: a thousand parameters made one after the other, and their
 * gradients and states, are walked one after the other in each step. Handed out by address, they lie one behind the other, whatever
 * was freed before, and in whatever order.
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
    LARGEST_SHIFT = 46,
    CLASSES = FIRST_CLASSES + 4 * (LARGEST_SHIFT - 9),
    SLAB_FIRST = FIRST_CLASSES + 3, /* of the classes that live in slabs */
    SLAB_CLASSES = 4 * 5 + 1,
    TINY_LIMIT = 896, /* and that of the class below them */
    SMALL_LIMIT = 32 << 10,
    PAGE = 4 << 10,
    SLAB_LEAST = 16 << 10, /* bytes of the first slab of a class */
    SLAB_BLOCKS = 64,
    COLOUR_BYTES = 256,
    COLOUR_BITS = 4,       /* 16 colours: a page */
    TINY_BYTES = 64 << 10, /* so many are carved at a time for blocks below slabs */
    FIRST_CHUNK = 256 << 10,
    HUGE_PAGE = 2 << 20,
    GROUP_AFTER = 8 << 20
};
static const int64_t CACHE_CAP = (int64_t)1 << 30;

typedef struct FreeBlock {
    struct FreeBlock *next, *prev;   /* in its class: next is older */
    struct FreeBlock *newer, *older; /* among all blocks that can be given back; unused in small ones */
    size_t bytes;
} FreeBlock;
_Static_assert(sizeof(FreeBlock) <= ALIGNMENT, "a free block holds its links");

/* Up to 64 blocks of one class, side by side. */
typedef struct Slab {
    uint64_t free;   /* bit i: block i */
    uint32_t begin;  /* offset in its chunk */
    uint32_t number; /* in its class */
} Slab;

/* Small blocks live in chunks of one huge page, which starts with this: from the address of a block one gets to its slab.
 *
 *     | Chunk | pages of a slab | pages to carve | pages of a slab | not used yet | */
typedef struct Chunk {
    uint8_t slab_at[HUGE_PAGE / PAGE]; /* by page */
    Slab slab[HUGE_PAGE / SLAB_LEAST];
    int slabs;
} Chunk;
_Static_assert(sizeof(Chunk) <= PAGE, "the header is one page");
_Static_assert(HUGE_PAGE / SLAB_LEAST <= UINT8_MAX + 1, "a byte counts the slabs of a chunk");

/* The slabs of one class in the order in which they came, which inside a chunk is that of their addresses. */
typedef struct SlabClass {
    Slab *lowest;   /* with a free block; NULL: none */
    Slab **slab;    /* by number */
    uint64_t *room; /* bit by number: has a free block */
    size_t slabs, capacity;
    size_t blocks;
} SlabClass;

typedef struct Arena {
    _Alignas(ALIGNMENT) atomic_flag lock;
    MemoryStats stats;
    Chunk *chunk; /* the newest, and what is not used of it */
    size_t chunk_used, chunk_bytes;
    char *tiny; /* pages that are not carved yet */
    size_t tiny_left;
    SlabClass slab_class[SLAB_CLASSES];
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

/* From the start of a huge page on. */
static char *map_aligned(size_t size) {
    /* Room to cut both ends off. */
    char *p = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return NULL;
    size_t before = (HUGE_PAGE - ((uintptr_t)p & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
    if (before) munmap(p, before);
    munmap(p + before + size, HUGE_PAGE - before);
    return p + before;
}

static char *map_pages(size_t size) {
    if (size < HUGE_PAGE) {
        char *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    char *p = map_aligned(size);
#ifdef MADV_HUGEPAGE
    if (p) madvise(p, size, MADV_HUGEPAGE);
#endif
    return p;
}

/* `nbytes` is what was asked for, `size` its class. */
static void *system_alloc(size_t nbytes, size_t size) {
    void *p;
    if (CACHING) return map_pages(size);
    return posix_memalign(&p, ALIGNMENT, nbytes + !nbytes) ? NULL : p;
}

static void system_free(void *data, size_t size) {
    if (CACHING) munmap(data, size);
    else free(data);
}

/* ------------------------------------------------------------------ lists, flag held */

static void push(Arena *arena, int cls, FreeBlock *block, size_t size) {
    FreeBlock *head = arena->list[cls];
    block->next = head;
    arena->list[cls] = block;
    if (size <= TINY_LIMIT) return;
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

/* ------------------------------------------------------------------ chunks and slabs, flag held */

/* What is left of the pages to carve becomes free blocks, largest first: nothing is lost. */
static void use_up_tiny(Arena *arena) {
    while (arena->tiny_left) {
        size_t size;
        int cls = class_of(arena->tiny_left < TINY_LIMIT ? arena->tiny_left : TINY_LIMIT, &size);
        if (size > arena->tiny_left) size = class_size(--cls);
        push(arena, cls, (FreeBlock *)(void *)arena->tiny, size);
        arena->tiny += size;
        arena->tiny_left -= size;
    }
}

static bool new_chunk(Arena *arena) {
    pthread_once(&fork_once, register_fork_handlers);
    /* What does little never takes a huge page. */
    const size_t bytes = arena->chunk ? HUGE_PAGE : FIRST_CHUNK;
    Chunk *chunk = (Chunk *)(void *)(arena->chunk ? map_pages(bytes) : map_aligned(bytes));
    if (!chunk) return false;
    if (arena->chunk) { /* too short for what is wanted now */
        use_up_tiny(arena);
        arena->tiny = (char *)arena->chunk + arena->chunk_used;
        arena->tiny_left = arena->chunk_bytes - arena->chunk_used;
    }
    arena->chunk = chunk;
    arena->chunk_used = PAGE;
    arena->chunk_bytes = bytes;
    arena->stats.reserved += (int64_t)bytes;
    return true;
}

/* Whole pages, at least `least` bytes and at most `most`; *bytes are there. NULL: out of memory. */
static char *take_pages(Arena *arena, size_t least, size_t most, size_t *bytes) {
    if (arena->chunk_bytes - arena->chunk_used < least && !new_chunk(arena)) return NULL;
    const size_t left = arena->chunk_bytes - arena->chunk_used;
    char *pages = (char *)arena->chunk + arena->chunk_used;
    *bytes = most < left ? most : left;
    arena->chunk_used += *bytes;
    return pages;
}

static void *carve(Arena *arena, size_t size) {
    if (arena->tiny_left < size) {
        size_t bytes;
        char *pages = take_pages(arena, PAGE, TINY_BYTES, &bytes);
        if (!pages) return NULL;
        use_up_tiny(arena);
        arena->tiny = pages;
        arena->tiny_left = bytes;
    }
    void *block = arena->tiny;
    arena->tiny += size;
    arena->tiny_left -= size;
    return block;
}

static bool reserve_slab(SlabClass *c) {
    if (c->slabs < c->capacity) return true;
    const size_t capacity = c->capacity ? 2 * c->capacity : 64;
    Slab **slab = realloc(c->slab, capacity * sizeof *slab);
    if (!slab) return false;
    c->slab = slab;
    uint64_t *room = realloc(c->room, capacity / 64 * sizeof *room);
    if (!room) return false;
    memset(room + c->capacity / 64, 0, (capacity - c->capacity) / 64 * sizeof *room);
    c->room = room;
    c->capacity = capacity;
    return true;
}

/* Bytes in front of the first block of a slab, different from slab to slab.
 *
 * A step walks parameters, gradients and states side by side. If they all began at the same place of their pages, they would meet in
 * the same sets of the first cache all the way; some caches moreover tell the lines of a set apart by a hash of 8 address bits (AMD's
 * prediction of ways), and where two arrays agree in it, they throw each other out with every line: three times as slow. */
static size_t colour_of(size_t number) {
    return (size_t)((uint32_t)number * UINT32_C(0x9e3779b1) >> (32 - COLOUR_BITS)) * COLOUR_BYTES;
}

static size_t whole_pages(size_t bytes) { return (bytes + PAGE - 1) & ~(size_t)(PAGE - 1); }

/* One more slab, of as many blocks as the class has; no other has a free one. */
static bool new_slab(Arena *arena, SlabClass *c, size_t size) {
    const size_t colour = colour_of(c->slabs), blocks = c->blocks < SLAB_BLOCKS ? c->blocks : SLAB_BLOCKS;
    const size_t least = colour + size > SLAB_LEAST ? whole_pages(colour + size) : SLAB_LEAST;
    const size_t wanted = whole_pages(colour + blocks * size), most = wanted > least ? wanted : least;
    size_t bytes;
    char *data = reserve_slab(c) ? take_pages(arena, least, most, &bytes) : NULL;
    if (!data) return false;
    Chunk *chunk = arena->chunk;
    Slab *slab = &chunk->slab[chunk->slabs];
    const size_t begin = (size_t)(data - (char *)chunk), fit = (bytes - colour) / size;
    const size_t count = fit < SLAB_BLOCKS ? fit : SLAB_BLOCKS;
    *slab = (Slab){~UINT64_C(0) >> (SLAB_BLOCKS - count), (uint32_t)(begin + colour), (uint32_t)c->slabs};
    memset(chunk->slab_at + begin / PAGE, chunk->slabs, bytes / PAGE);
    chunk->slabs++;
    c->blocks += count;
    c->room[c->slabs / 64] |= UINT64_C(1) << c->slabs % 64;
    c->slab[c->slabs++] = slab;
    c->lowest = slab;
    return true;
}

/* The lowest one is full. */
static void next_slab(SlabClass *c) {
    size_t word = c->lowest->number / 64;
    c->room[word] &= ~(UINT64_C(1) << c->lowest->number % 64);
    while (word < (c->slabs + 63) / 64 && !c->room[word]) word++;
    c->lowest = word < (c->slabs + 63) / 64 ? c->slab[64 * word + (size_t)__builtin_ctzll(c->room[word])] : NULL;
}

static inline Chunk *chunk_of(const void *inside) { return (Chunk *)((uintptr_t)inside & ~(uintptr_t)(HUGE_PAGE - 1)); }

static inline void *take_block(Arena *arena, int cls, size_t size) {
    SlabClass *c = &arena->slab_class[cls - SLAB_FIRST];
    Slab *slab = c->lowest;
    if (!slab) {
        if (!new_slab(arena, c, size)) return NULL;
        slab = c->lowest;
    }
    void *block = (char *)chunk_of(slab) + slab->begin + (size_t)__builtin_ctzll(slab->free) * size;
    slab->free &= slab->free - 1;
    if (!slab->free) next_slab(c);
    return block;
}

/* Which block of its slab: a class is 5, 6, 7 or 8 times a power of two. Dividing takes longer. */
static inline uint32_t block_at(int cls, uint32_t offset) {
    /* 2^18 / 5 ... 8 rounded up: exact for up to 8 * SLAB_BLOCKS */
    static const uint32_t inverse[] = {52429, 43691, 37450, 32768};
    const int step = cls - FIRST_CLASSES;
    return (offset >> (7 + step / 4)) * inverse[step % 4] >> 18;
}

static inline void give_block(Arena *arena, int cls, const void *block) {
    SlabClass *c = &arena->slab_class[cls - SLAB_FIRST];
    Chunk *chunk = chunk_of(block);
    const uint32_t offset = (uint32_t)((const char *)block - (const char *)chunk);
    Slab *slab = &chunk->slab[chunk->slab_at[offset / PAGE]];
    if (!slab->free) c->room[slab->number / 64] |= UINT64_C(1) << slab->number % 64;
    slab->free |= UINT64_C(1) << block_at(cls, offset - slab->begin);
    if (!c->lowest || slab->number < c->lowest->number) c->lowest = slab;
}

/* ------------------------------------------------------------------ large blocks, flag held */

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
    if (CACHING && size <= TINY_LIMIT) return carve(arena, size);
    pthread_once(&fork_once, register_fork_handlers);
    void *block = fetch_group(arena, cls, size);
    if (block) return block;
    block = system_alloc(nbytes, size);
    if (block) arena->stats.reserved += (int64_t)size;
    if (block) arena->fetched[cls] += (int64_t)size;
    return block;
}

/* ------------------------------------------------------------------ entries */

static inline bool in_slabs(size_t size) { return CACHING && size > TINY_LIMIT && size <= SMALL_LIMIT; }

/* NULL: the system has no memory. */
static inline void *find(Arena *arena, int cls, size_t nbytes, size_t size) {
    if (in_slabs(size)) return take_block(arena, cls, size);
    FreeBlock *block = arena->list[cls];
    if (!block) return fetch(arena, cls, nbytes, size);
    if (size <= TINY_LIMIT) arena->list[cls] = block->next;
    else unlink_block(arena, cls, block);
    return block;
}

static inline void *alloc(Arena *arena, int cls, size_t nbytes, size_t size) {
    lock(arena);
    void *block = find(arena, cls, nbytes, size);
    if (!block) {
        shrink(arena, 0);
        block = find(arena, cls, nbytes, size);
    }
    if (block) {
        MemoryStats *s = &arena->stats;
        s->allocations++;
        s->allocated += (int64_t)size;
        if (s->allocated > s->peak) s->peak = s->allocated;
    }
    unlock(arena);
    return block;
}

static inline void give_back(Arena *arena, int cls, void *data, size_t size) {
    lock(arena);
    arena->stats.frees++;
    arena->stats.allocated -= (int64_t)size;
    if (in_slabs(size)) {
        give_block(arena, cls, data);
    } else if (CACHING) {
        push(arena, cls, data, size);
        if (arena->cached > CACHE_CAP) shrink(arena, CACHE_CAP);
    } else {
        arena->stats.reserved -= (int64_t)size;
        system_free(data, size);
    }
    unlock(arena);
}

/* Apart, so that what is tiny does not carry their registers. */
static __attribute__((noinline)) void *alloc_in_slab(Arena *arena, int cls, size_t size) { return alloc(arena, cls, size, size); }
static __attribute__((noinline)) void free_in_slab(Arena *arena, int cls, void *data, size_t size) {
    give_back(arena, cls, data, size);
}

void *amp_host_alloc(Device device, size_t nbytes) {
    Arena *arena = &arenas[device];
    size_t size;
    int cls = class_of(nbytes, &size);
    if (cls < 0) return NULL;
    return in_slabs(size) ? alloc_in_slab(arena, cls, size) : alloc(arena, cls, nbytes, size);
}

void amp_host_free(Device device, void *data, size_t nbytes) {
    if (!data) return;
    Arena *arena = &arenas[device];
    size_t size;
    int cls = class_of(nbytes, &size);
    if (in_slabs(size)) free_in_slab(arena, cls, data, size);
    else give_back(arena, cls, data, size);
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

/* Chunks stay: small blocks of one chunk may be in use anywhere. */
void amp_memory_empty_cache(Device device) {
    Arena *arena = &arenas[device];
    lock(arena);
    shrink(arena, 0);
    unlock(arena);
}
