/* The words that every room uses. No Python here.
 *
 *   View    a strided window onto memory, as kernels see it
 *   Arg     one parsed argument of an op
 *   Call    what a backend slot gets: op, views, numbers, resolved numerics
 *   Status  the result of everything that can fail below the glue */
#ifndef AMP_CORE_H
#define AMP_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum DType {
#define DTYPE(id, name, numpy, bytes, category, shortname) AMP_##id,
#include "dtypes.def"
#undef DTYPE
    AMP_DTYPE_COUNT
} DType;

typedef enum Category { AMP_BOOLEAN, AMP_INTEGRAL, AMP_FLOATING, AMP_COMPLEX } Category;

typedef enum Status {
#define STATUS(code, exception, message) AMP_##code,
#include "status.def"
#undef STATUS
    AMP_STATUS_COUNT
} Status;

typedef enum Device { AMP_CPU, AMP_CUDA, AMP_META, AMP_DEVICE_COUNT } Device;

typedef struct DTypeInfo {
    const char *name, *numpy, *shortname;
    uint8_t itemsize, category;
} DTypeInfo;
extern const DTypeInfo amp_dtype_info[AMP_DTYPE_COUNT];

static inline size_t amp_itemsize(int dtype) { return amp_dtype_info[dtype].itemsize; }
double amp_held_by(double f, int dtype); /* f as a 16-bit dtype holds it; others leave it alone */
static inline bool amp_is_floating(int dtype) { return amp_dtype_info[dtype].category == AMP_FLOATING; }
static inline bool amp_is_complex(int dtype) { return amp_dtype_info[dtype].category == AMP_COMPLEX; }
static inline bool amp_is_integral(int dtype) { return amp_dtype_info[dtype].category <= AMP_INTEGRAL; } /* bool too */
static inline bool amp_is_16bit(int dtype) { return dtype == AMP_FLOAT16 || dtype == AMP_BFLOAT16; }

/* PyTorch's promotion of two dtypes of equal standing (no 0-dim or scalar rule); records: tests/golden/promotion.json. */
int amp_promote_dtypes(int a, int b);
/* The complex format whose parts are of a floating format (fp8: as float32), and the format of a complex one's parts (others: itself). */
int amp_complex_of(int dtype);
int amp_real_of(int dtype);

enum { AMP_MAX_DIMS = 64, AMP_INLINE_DIMS = 6 };

/* Strides count elements, may be 0 or negative in kernels. `shape` and `stride` point into memory owned by whoever made the View
 * (a Tensor's dims[], or an array on the caller's stack). A kernel may change neither. */
typedef struct View {
    char *data;
    int64_t numel;
    int64_t *shape, *stride;
    int8_t ndim, dtype, device;
    uint8_t layout; /* LAYOUT_* bits; kept true by whoever changes shape or stride */
} View;
enum { LAYOUT_CONTIGUOUS = 1 }; /* C order, no gaps; a tensor without elements is contiguous */

/* A Python number as the user gave it: integers keep 64 bits. */
typedef enum NumberKind { NUMBER_NONE, NUMBER_BOOL, NUMBER_INT, NUMBER_FLOAT, NUMBER_COMPLEX } NumberKind;
typedef struct Number {
    double f; /* value (real part) as double, also for ints and bools */
    union {
        int64_t i;   /* exact value of ints and bools */
        double imag; /* imaginary part, NUMBER_COMPLEX only */
    };
    uint8_t kind;
} Number;

/* How a product of fp32 or 16-bit values is formed; resolved once per op from the settings, never read from globals by kernels. */
typedef enum InputRounding { INPUT_IEEE, INPUT_TF32, INPUT_BF16 } InputRounding;
typedef struct Numerics {
    uint8_t fp32_inputs;     /* InputRounding of fp32 operands of products */
    uint8_t fp16_accumulate; /* 1: fp16 products accumulate in fp16 */
    uint8_t split_k;         /* partial sums, 1 = one chain */
    uint8_t round_partials;  /* 1: the partial sums are rounded to the 16-bit type before they are added */
    uint8_t round_result;    /* 1: a result wider than the 16-bit operands holds values of their type */
} Numerics;

enum { AMP_MAX_IN = 5, AMP_MAX_OUT = 3, AMP_MAX_NUM = 4 };

/* What a backend slot gets. Which fields mean what is stated per slot in backend.h. */
typedef struct Call {
    uint16_t op; /* OP_* of ops.h */
    uint8_t nin, nout, nnum;
    Numerics numerics;
    const View *in[AMP_MAX_IN]; /* absent optional inputs are NULL */
    View *out[AMP_MAX_OUT];
    Number num[AMP_MAX_NUM]; /* the op's non-tensor numbers in signature order; NUMBER_NONE where None was given */
    const View *const *list; /* tensor lists (index) */
    int64_t nlist;
    uint64_t dims; /* bit d set: dimension d takes part (reduce, softmax, scan) */
    void *extra;   /* slot-specific, e.g. the generator */
} Call;

/* An empty Call, field by field: what `= {0}` does, without the string instruction that compilers make of it, which costs more than a
 * small op. num[] beyond nnum and out[] beyond nout stay unset. */
static inline void amp_call_init(Call *c, int op) {
    c->op = (uint16_t)op;
    c->nin = c->nout = c->nnum = 0;
    c->numerics = (Numerics){0};
    for (int i = 0; i < AMP_MAX_IN; i++) {
        c->in[i] = NULL;
    }
    c->list = NULL;
    c->nlist = 0;
    c->dims = 0;
    c->extra = NULL;
}

/* A Call from one view into another. */
static inline void amp_call_one(Call *c, int op, const View *in, View *out) {
    amp_call_init(c, op);
    c->nin = in != NULL;
    c->nout = 1;
    c->in[0] = in;
    c->out[0] = out;
}

/* Products and sums that stay at the ends of int64 instead of leaving it: for sizes and steps as the user gave them. */
static inline int64_t amp_mul_clamped(int64_t a, int64_t b) {
    int64_t r;
    return !__builtin_mul_overflow(a, b, &r) ? r : (a < 0) != (b < 0) ? INT64_MIN : INT64_MAX;
}
static inline int64_t amp_add_clamped(int64_t a, int64_t b) {
    int64_t r;
    return !__builtin_add_overflow(a, b, &r) ? r : a < 0 ? INT64_MIN : INT64_MAX;
}
/* A stride between two elements that exist is smaller. Nothing steps along dimensions of one element, or of a tensor without elements:
 * their strides are cut to this (tensor.c), and so every stride in bytes, and a sum of them, fits. */
#define AMP_FAR_STRIDE ((int64_t)1 << 48)
static inline int64_t amp_near_stride(int64_t numel, int64_t size, int64_t stride) {
    if (numel > 0 && size > 1) return stride;
    return stride > AMP_FAR_STRIDE ? AMP_FAR_STRIDE : stride < -AMP_FAR_STRIDE ? -AMP_FAR_STRIDE : stride;
}

/* view.c */
int64_t amp_numel(int ndim, const int64_t *shape); /* -1 on overflow of int64 */
bool amp_is_contiguous(int ndim, const int64_t *shape, const int64_t *stride);
/* True if the elements fill their range exactly, in whatever order of dimensions. */
bool amp_is_dense(const View *v);
void amp_contiguous_strides(int ndim, const int64_t *shape, int64_t *stride);
/* Drops dimensions of size 1 and merges neighbours that are dense for all `n` views at once (all have the same shape).
 * shape/strides are written to the caller's arrays [AMP_MAX_DIMS]; returns the new number of dimensions. */
int amp_coalesce(int n, const View *const *views, int64_t *shape, int64_t strides[][AMP_MAX_DIMS]);
/* True if two different index tuples can address the same element (expanded or overlapping strides). Exact for the usual cases,
 * conservative (true) where deciding would be costly. */
bool amp_has_internal_overlap(const View *v);
/* True if the byte ranges of the two views meet. */
bool amp_ranges_meet(const View *a, const View *b);
/* True if dense views share memory otherwise than element by element in the same order. Views with gaps are not looked into: false. */
bool amp_overlap_in_part(const View *a, const View *b);
/* NumPy-style broadcast of shape b into out (which holds shape a on entry). Returns the new ndim or -1 if incompatible. */
int amp_broadcast_shapes(int nda, const int64_t *a, int ndb, const int64_t *b, int64_t *out);

#endif
