/* Element-wise kernels and the loop that feeds them.
 *
 * A kernel sees dense runs in its own formats; an input whose bit is set in `scalar` is one value for the whole run (never all of
 * them, unless n is 1). Output and inputs may coincide. The loop brings any dtype, stride and alignment into that form. */
#ifndef AMP_ELEMENTWISE_H
#define AMP_ELEMENTWISE_H
#include "../core/backend.h"
#include "../core/numeric.h"
#include "../core/ops.h"

typedef struct Params {
    double f[3]; /* the first numbers of the call; what is absent is 0 */
    int64_t i[3];
    AmpComplex c;  /* num[0] */
    unsigned wide; /* inputs of a kernel on a 16-bit format that are one float32 value, which is in one[] */
    float one[3];
    int *zero_divisor;     /* set to 1 by integer division kernels that met a zero */
    const uint16_t *table; /* of amp_look_up */
} Params;

typedef void (*Kernel)(const char *const *in, char *out, int64_t n, unsigned scalar, const Params *params);

/* Kernels that are variants of an op by its numbers; numbered behind the ops. */
enum {
    KERNEL_gelu_tanh = OP_COUNT,
    KERNEL_gelu_tanh_grad,
    KERNEL_round_up,
    KERNEL_round_down,
    KERNEL_clamp_low,
    KERNEL_clamp_high,
    KERNEL_logit_clamped,
    KERNEL_add_alpha,
    KERNEL_sub_alpha,
    KERNEL_cube,
    KERNEL_reciprocal_square,
    KERNEL_COUNT
};

/* The kernel `id` (OP_* or KERNEL_*) on FLOAT32, FLOAT64, INT64 or COMPLEX128; NULL: there is none. */
Kernel amp_kernel_f32(int id);
Kernel amp_kernel_f64(int id);
Kernel amp_kernel_i64(int id);
Kernel amp_kernel_c128(int id);
/* On BOOL, UINT8 ... INT64 themselves; NULL: compute in INT64. The numbers of the call have to fit the type. */
Kernel amp_kernel_integer(int id, int dtype);
/* Ops that have a kernel on a 16-bit format itself; NULL: convert. */
Kernel amp_kernel_bf16(int id);
Kernel amp_kernel_f16(int id);
Kernel amp_find_kernel(int compute_dtype, int id);
Kernel amp_kernel_select(size_t itemsize); /* in[0] bool ? in[1] : in[2], by element size */

enum { AMP_MAX_OPERANDS = 4 };

/* out[0] = kernel(in[0..nin)); type[0] is the format the kernel writes, type[1 + k] the one it reads as input k. A NULL kernel copies. */
typedef struct ElementLoop {
    Kernel kernel;
    int nin;
    bool takes_long; /* several times as long as memory takes: fewer elements are worth a thread */
    int type[AMP_MAX_OPERANDS];
    const Params *params;
} ElementLoop;
void amp_element_loop(const ElementLoop *loop, View *out, const View *const *in);

/* Whether kernel `id` computes more than a few operations for an element. */
bool amp_takes_long(int id);
enum { AMP_TABLE_FROM = 8 * 1024 };
/* A call of kernel `id` on many 16-bit numbers, which `loop` would do by the kernel: makes it a loop by a table, which gives the same
 * bits. False, and nothing changed: that is not worth it, or there is no memory. */
bool amp_look_up(ElementLoop *loop, Params *params, int id, const View *in, const View *out);

Status amp_copy(const Call *call);
Status amp_fill(const Call *call);
Status amp_unary(const Call *call);
Status amp_binary(const Call *call);
Status amp_ternary(const Call *call);

#endif
