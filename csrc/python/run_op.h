/* The one driver that every op goes through, and what a class function sees. */
#ifndef AMP_RUN_OP_H
#define AMP_RUN_OP_H
#include "tensor.h"

typedef enum ArgKind {
    ARG_NONE,
    ARG_TENSOR,
    ARG_TENSORS,
    ARG_NUMBER,
    ARG_INT,
    ARG_FLOAT,
    ARG_BOOL,
    ARG_INTS,
    ARG_STR,
    ARG_DTYPE,
    ARG_DEVICE,
    ARG_ANY
} ArgKind;

/* One argument as parsed. Objects are borrowed from the caller for the duration of the call; a Node that keeps an Arg owns copies. */
typedef struct Arg {
    uint8_t kind;
    int32_t n; /* ARG_TENSORS, ARG_INTS: length */
    union {
        Tensor *t;
        Tensor **ts;
        int64_t i; /* ARG_INT, ARG_BOOL, ARG_DTYPE, ARG_DEVICE */
        double f;
        int64_t *ints;
        const char *s; /* UTF-8, owned by the Python string */
        PyObject *o;
    };
    Number num; /* ARG_NUMBER; also filled for INT, FLOAT, BOOL */
} Arg;

enum { MAX_ARGS = 13, MAX_RESULTS = 3 };
enum { VARIANT_F = 1, VARIANT_M = 2, VARIANT_I = 4, VARIANT_NN = 8, VARIANT_P = 16, VARIANTS = 31 };
/* Which other dtype than the result's out= may have, where the dtype rule does not say it (see ops.def). */
enum { OUT_SAFE = 32, OUT_EXACT = 64, OUT_KIND = 128, OUT_BYTE = 256, OUT_ANY = 512 };
enum {
    SAVE_IN0 = 1,
    SAVE_IN1 = 2,
    SAVE_IN2 = 4,
    SAVE_IN3 = 8,
    SAVE_OUT0 = 16,
    SAVE_OUT1 = 32,
    SAVE_CROSS = 64,
    SAVE_META = 128,
    SAVE_LIST = 256
};

struct OpRow;
struct Back;

/* A call in flight. A class function reads row, arg, out and fills result; it may not keep arg. */
typedef struct OpCall {
    const struct OpRow *row;
    Arg *arg;
    Tensor *out;             /* out= or, in place, input 0; borrowed; NULL otherwise */
    Tensor *const *out_list; /* out= of several results: out is the first; else NULL */
    int nout;                /* tensors to write into */
    bool inplace;
    Tensor *result[MAX_RESULTS]; /* new references; result[i] is the i-th out (with an own reference) if out was given */
    int nresult;
    bool is_view;     /* result[0] shares arg[0]'s storage */
    Tensor *original; /* in place: input 0 before the write, where the derivative needs it; new reference */
    PyObject *object; /* a result that is no tensor (tuple); new reference */
} OpCall;
typedef int (*ClassFn)(OpCall *); /* 0, or -1 with an exception */
typedef void (*DerivativeFn)(struct Back *);

typedef struct Param {
    const char *name;
    PyObject *interned;
    uint8_t kind;  /* ArgKind */
    bool optional; /* type has `?` */
    bool varargs;  /* `int[]*` */
    uint8_t count; /* `Tensor[2]`: as many; 0: any number */
    bool keyword_only;
    bool has_default;
    bool strict : 1; /* a tensor, and no number: a later overload takes those, or they make no sense there */
    bool listed : 1; /* a shape: one integer stands for none, unless it is one of varargs */
    Arg fallback;
} Param;

typedef struct OpRow {
    const char *id, *name, *signature;
    uint8_t rule, cuda_policy, cpu_policy;
    uint16_t variants, saves, op;
    ClassFn run;
    DerivativeFn derivative, fast;
    /* compiled from the signature when the module is made */
    uint8_t nparams, npositional, ntensors; /* ntensors: parameters of kind TENSOR or TENSORS before out= */
    uint8_t tensor[MAX_ARGS];               /* their parameter numbers */
    uint8_t nnumbers, number[AMP_MAX_NUM];  /* parameter numbers that kernels get as Call.num */
    int8_t out_index, dtype_index, precision_index, dim_index, keepdim_index; /* parameter numbers by name, -1 if absent */
    Param param[MAX_ARGS];
} OpRow;
extern OpRow amp_rows[OP_COUNT];

/* Runs a row on parsed arguments: autocast, class function, recording. New reference to a Tensor, a tuple or None. */
PyObject *run_op(const OpRow *row, Arg *arg, bool inplace);
/* The same for C callers that want the first Tensor result. args: row->nparams entries, absent ones ARG_NONE. */
Tensor *run_op_tensor(OpId op, Arg *arg);

/* Typed shorthands for C code: new reference or NULL with an exception; a NULL tensor argument returns NULL at once (the exception is
 * already set). */
/* A zeroed Arg array and setters for the rest. */
static inline Arg arg_tensor(Tensor *t) { return (Arg){.kind = t ? ARG_TENSOR : ARG_NONE, .t = t}; }
/* *a = arg_tensor(t), for ops that small tensors live from: an Arg that is built elsewhere first is read back in wider pieces than it was
 * written in, which a CPU cannot forward from its store buffer. */
static inline void arg_put(Arg *a, Tensor *t) {
    a->kind = t ? ARG_TENSOR : ARG_NONE;
    a->n = 0;
    a->t = t;
    a->num.f = 0;
    a->num.i = 0;
    a->num.kind = NUMBER_NONE;
}
Arg arg_int(int64_t i);
Arg arg_float(double f);
Arg arg_bool(bool on);
static inline Arg arg_ints(int64_t *ints, int n) { return (Arg){.kind = ARG_INTS, .n = n, .ints = ints}; }
Tensor *call_unary(OpId op, Tensor *a);
Tensor *call_binary(OpId op, Tensor *a, Tensor *b);
Tensor *call_scalar(OpId op, Tensor *a, double number); /* the second operand is a wrapped number */
Tensor *call_cast(Tensor *a, int dtype);                /* a itself (new reference) if it has that dtype; recorded otherwise */
Tensor *call_to(Tensor *a, int dtype, int device);
Tensor *call_reshape(Tensor *a, int ndim, const int64_t *shape);
Tensor *call_expand(Tensor *a, int ndim, const int64_t *shape);
Tensor *call_transpose(Tensor *a, int dim0, int dim1);
Tensor *call_permute(Tensor *a, const int64_t *dims);
Tensor *call_unsqueeze(Tensor *a, int dim);
Tensor *call_sum(Tensor *a, const int64_t *dims, int ndims, bool keepdim); /* ndims 0: all */
Tensor *call_mean(Tensor *a);
Tensor *call_clone(Tensor *a);
Tensor *call_contiguous(Tensor *a);
int call_inplace(OpId op, Tensor *self, Tensor *other); /* self op= other; 0 or -1 */
int call_copy(Tensor *dst, Tensor *src);                /* dst.copy_(src) */

/* Runs one backend slot for `device`, releasing the GIL when `cost` (bytes touched, or flops / 8) is large. 0 or -1. */
int run_slot(int device, Slot Backend_slot, const Call *call, int64_t cost, const char *name);

/* Gives the GIL away and takes it back around a kernel that reads Views inside Tensors. */
PyThreadState *run_slot_unlock(void);
void run_slot_lock(PyThreadState *thread);

/* RuntimeError, -1, for a tensor that shares memory with a read-only array. */
int check_writable(const Tensor *t, const char *what);

/* Waits, without the GIL, until no kernel runs unlocked: before a Tensor's View changes under other threads' eyes. */
void run_slot_settle(void);

/* Promotion over tensors (0-dim and wrapped rules, golden/promotion.json). n >= 1. */
int promote_tensors(int n, Tensor *const *t);
/* Resolves a dim that may be negative; -1 with IndexError. ndim 0 counts as 1. */
int wrap_dim(int64_t dim, int ndim);

#endif
