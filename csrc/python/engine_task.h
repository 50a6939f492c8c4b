/* The state of one backward pass: which nodes and leaves take part, what has arrived for them, and what runs next. For engine.c. */
#ifndef AMP_ENGINE_TASK_H
#define AMP_ENGINE_TASK_H
#include <string.h>

#include "node.h"

/* One node or leaf that takes part. */
typedef struct Slot_ {
    PyObject *key;   /* Node or leaf Tensor; borrowed: the graph above keeps it alive, and roots are held by the caller */
    int64_t waiting; /* gradients still to come */
    Tensor **sum;    /* one per output (leaves: one); strong, NULL: undefined so far */
    Tensor *first;   /* storage for the usual single output */
    bool is_leaf, needed;
} TaskSlot;

typedef struct Capture {
    PyObject *key; /* node or leaf */
    uint32_t nr;
    Tensor *result; /* strong */
} Capture;

enum { FIRST_SLOTS = 32 };

/* What small graphs never outgrow. Not on the stack, where passes that start passes would pile it up. */
typedef struct TaskRoom {
    int64_t table[2 * FIRST_SLOTS], heap[FIRST_SLOTS + 1];
    TaskSlot slot[FIRST_SLOTS];
    Capture capture;
} TaskRoom;

/* slot, table, heap and capture point into the room, or to heap blocks. */
typedef struct Task {
    TaskRoom *room;
    TaskSlot *slot;
    int64_t nslots, cap;
    int64_t *table; /* open addressing: slot number + 1 */
    int64_t mask;
    int64_t *heap, nheap;
    bool keep_graph, create_graph, accumulate;
    bool scaled;        /* a scaled loss has been passed: what is accumulated from here on carries its scale */
    uint8_t loss_flags; /* LOSS_*; those of an outer pass too, whose loss this one then belongs to */
    uint32_t loss_number;
    float loss_scale; /* NaN: of several losses with different scales */
    Node *slices;     /* while the node inside it runs */
    uint32_t rounded; /* of the node that ran last: Back.rounded */
    Capture *capture;
    int ncapture;
    int64_t number;
    PyObject *at_end; /* list of callbacks, or NULL */
} Task;

/* ---- slots by key ---- */

static inline uint64_t hash_pointer(const void *p) {
    uint64_t x = (uint64_t)(uintptr_t)p >> 4;
    return (x * 0x9E3779B97F4A7C15u) >> 20;
}

static inline int grow_table(Task *t) {
    int64_t size = 2 * (t->mask + 1);
    int64_t *table = PyMem_Calloc((size_t)size, sizeof *table);
    if (!table) {
        PyErr_NoMemory();
        return -1;
    }
    for (int64_t i = 0; i < t->nslots; i++) {
        int64_t h = (int64_t)hash_pointer(t->slot[i].key) & (size - 1);
        while (table[h]) {
            h = (h + 1) & (size - 1);
        }
        table[h] = i + 1;
    }
    if (t->table != t->room->table) {
        PyMem_Free(t->table);
    }
    t->table = table;
    t->mask = size - 1;
    return 0;
}

static inline int64_t find_slot(const Task *t, PyObject *key) {
    int64_t h = (int64_t)hash_pointer(key) & t->mask;
    while (t->table[h]) {
        if (t->slot[t->table[h] - 1].key == key) {
            return t->table[h] - 1;
        }
        h = (h + 1) & t->mask;
    }
    return -1;
}

static inline int64_t add_slot(Task *t, PyObject *key) {
    if (t->nslots == t->cap) {
        const bool first = t->slot == t->room->slot;
        int64_t cap = 2 * t->cap;
        TaskSlot *more = PyMem_Realloc(first ? NULL : t->slot, (size_t)cap * sizeof *more);
        if (!more) {
            PyErr_NoMemory();
            return -1;
        }
        if (first) {
            memcpy(more, t->slot, (size_t)t->nslots * sizeof *more);
        }
        for (int64_t i = 0; i < t->nslots; i++) { /* `first` moved with the block */
            if (more[i].sum && (more[i].is_leaf || ((Node *)more[i].key)->nout == 1)) {
                more[i].sum = &more[i].first;
            }
        }
        t->slot = more;
        t->cap = cap;
    }
    if (2 * (t->nslots + 1) > t->mask + 1 && grow_table(t) < 0) {
        return -1;
    }
    int64_t i = t->nslots++;
    bool leaf = !node_check(key);
    t->slot[i] = (TaskSlot){.key = key, .is_leaf = leaf};
    int64_t h = (int64_t)hash_pointer(key) & t->mask;
    while (t->table[h]) {
        h = (h + 1) & t->mask;
    }
    t->table[h] = i + 1;
    return i;
}

static inline Tensor **sums_of(TaskSlot *s) {
    if (!s->sum) {
        int n = s->is_leaf ? 1 : ((Node *)s->key)->nout;
        if (n == 1) {
            s->sum = &s->first;
        } else {
            s->sum = PyMem_Calloc((size_t)n, sizeof *s->sum);
            if (!s->sum) {
                PyErr_NoMemory();
            }
        }
    }
    return s->sum;
}

static inline uint64_t seq_of(const Task *t, int64_t i) { return ((Node *)t->slot[i].key)->seq; }

static inline void heap_push(Task *t, int64_t i) {
    int64_t k = t->nheap++;
    while (k > 0 && seq_of(t, t->heap[(k - 1) / 2]) < seq_of(t, i)) {
        t->heap[k] = t->heap[(k - 1) / 2];
        k = (k - 1) / 2;
    }
    t->heap[k] = i;
}

static inline int64_t heap_pop(Task *t) {
    int64_t top = t->heap[0], last = t->heap[--t->nheap], k = 0;
    for (;;) {
        int64_t child = 2 * k + 1;
        if (child >= t->nheap) {
            break;
        }
        if (child + 1 < t->nheap && seq_of(t, t->heap[child + 1]) > seq_of(t, t->heap[child])) {
            child++;
        }
        if (seq_of(t, t->heap[child]) <= seq_of(t, last)) {
            break;
        }
        t->heap[k] = t->heap[child];
        k = child;
    }
    t->heap[k] = last;
    return top;
}

static TaskRoom *spare_room; /* of the pass that ended last, or NULL; GIL held */

/* Field by field: most of the room is written before it is read. -1 with MemoryError. */
static inline int task_begin(Task *t, int ninputs, const Edge *inputs) {
    t->nslots = t->nheap = t->ncapture = 0;
    t->scaled = false;
    t->loss_scale = 0;
    t->loss_flags = 0;
    t->slices = NULL;
    t->rounded = 0;
    t->at_end = NULL;
    t->room = spare_room ? spare_room : PyMem_Malloc(sizeof *t->room);
    spare_room = NULL;
    if (!t->room) {
        PyErr_NoMemory();
        return -1;
    }
    t->slot = t->room->slot;
    t->cap = FIRST_SLOTS;
    t->table = t->room->table;
    t->mask = 2 * FIRST_SLOTS - 1;
    memset(t->table, 0, sizeof t->room->table);
    t->heap = t->room->heap;
    t->capture = ninputs ? PyMem_Calloc((size_t)ninputs, sizeof *t->capture) : &t->room->capture;
    t->ncapture = t->capture ? ninputs : 0;
    for (int i = 0; i < t->ncapture; i++) {
        t->capture[i] = (Capture){.key = inputs[i].to, .nr = inputs[i].nr};
    }
    if (!t->capture) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static inline void task_free(Task *t) {
    TaskRoom *room = t->room;
    if (!room) {
        return;
    }
    for (int i = 0; i < t->ncapture; i++) {
        Py_XDECREF(t->capture[i].result);
    }
    for (int64_t i = 0; i < t->nslots; i++) {
        TaskSlot *s = &t->slot[i];
        if (s->sum) {
            int n = s->is_leaf ? 1 : ((Node *)s->key)->nout;
            for (int k = 0; k < n; k++) {
                Py_XDECREF(s->sum[k]);
            }
            if (s->sum != &s->first) {
                PyMem_Free(s->sum);
            }
        }
    }
    if (t->slot != room->slot) {
        PyMem_Free(t->slot);
    }
    if (t->table != room->table) {
        PyMem_Free(t->table);
    }
    if (t->heap != room->heap) {
        PyMem_Free(t->heap);
    }
    if (t->capture != &room->capture) {
        PyMem_Free(t->capture);
    }
    if (spare_room) {
        PyMem_Free(room);
    } else {
        spare_room = room;
    }
    Py_XDECREF(t->at_end);
}
#endif
