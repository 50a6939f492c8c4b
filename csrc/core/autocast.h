/* Autocast's state: per thread and per device type whether it is on and with which dtype. */
#ifndef AMP_AUTOCAST_H
#define AMP_AUTOCAST_H
#include "core.h"

/* One row per device type that has autocast: id, name, default dtype. */
#define AMP_AUTOCAST_DEVICES(X) \
    X(CPU, "cpu", BFLOAT16) \
    X(CUDA, "cuda", FLOAT16) \
    X(XPU, "xpu", FLOAT16) \
    X(IPU, "ipu", FLOAT16) \
    X(HPU, "hpu", BFLOAT16) \
    X(XLA, "xla", BFLOAT16) \
    X(MPS, "mps", FLOAT16) \
    X(MTIA, "mtia", FLOAT16) \
    X(MAIA, "maia", BFLOAT16) \
    X(PRIVATEUSEONE, "privateuseone", FLOAT16)

typedef enum AutocastDevice {
#define X(id, name, dtype) AUTOCAST_##id,
    AMP_AUTOCAST_DEVICES(X)
#undef X
        AUTOCAST_DEVICE_COUNT
} AutocastDevice;

/* The one byte that run_op tests: while it is 0, no feature is consulted. */
enum { MODE_AUTOCAST_CPU = 1, MODE_AUTOCAST_CUDA = 2, MODE_OBSERVER = 4, MODE_INFERENCE = 8, MODE_SELECT = 16 };
/* Hidden, so that a function looks for its thread's memory once, whatever it reads there. */
__attribute__((visibility("hidden"))) extern _Thread_local uint8_t amp_mode;
__attribute__((visibility("hidden"))) extern _Thread_local uint8_t amp_grad_enabled; /* 1 in a new thread */

bool amp_autocast_enabled(AutocastDevice device);
void amp_autocast_set_enabled(AutocastDevice device, bool enabled); /* keeps amp_mode in step */
int amp_autocast_dtype(AutocastDevice device);
void amp_autocast_set_dtype(AutocastDevice device, int dtype); /* any dtype, no support check */
int amp_autocast_default_dtype(AutocastDevice device);
bool amp_autocast_cache_enabled(void);
void amp_autocast_set_cache_enabled(bool enabled);

/* Depth of regions in this thread, over all device types. Both return the new depth, which may go negative. The region code clears
 * the cache when a decrement gives exactly 0. */
int amp_autocast_increment_nesting(void);
int amp_autocast_decrement_nesting(void);

/* A cached cast is valid while the epoch it was stamped with is the current one. One number for the whole process: leaving the
 * outermost region in any thread empties the cache of all. */
uint64_t amp_autocast_epoch(void);
void amp_autocast_clear_cache(void);

/* What entering a region saves and leaving it restores. */
typedef struct AutocastSnapshot {
    uint8_t device;
    int8_t dtype;
    bool enabled, cache_enabled;
    uint8_t mode; /* the region bits of amp_mode: inside an op they are off although autocast is on */
} AutocastSnapshot;
/* Enters a region, whose `before` is for the call that leaves it; both return the new depth. The snapshot is written field by field where
 * it stays: a small struct that is copied whole is read before its bytes are in the cache. */
int amp_autocast_enter(AutocastDevice device, bool enabled, int dtype, bool cache_enabled, AutocastSnapshot *before);
int amp_autocast_leave(const AutocastSnapshot *before);

const char *amp_autocast_device_name(AutocastDevice device);

/* "cuda" or "cuda:0": the index is allowed and ignored. `out` is written for AUTOCAST_PARSE_OK only. */
typedef enum AutocastParse {
    AUTOCAST_PARSE_OK,
    AUTOCAST_PARSE_EMPTY,      /* "" */
    AUTOCAST_PARSE_INVALID,    /* not word[:index]: spaces, signs, leading zeros, an index beyond int32 */
    AUTOCAST_PARSE_UNKNOWN,    /* well-formed, but no device type */
    AUTOCAST_PARSE_UNSUPPORTED /* a device type without autocast, such as "meta" */
} AutocastParse;
int amp_autocast_device_parse(const char *text, AutocastDevice *out);

#endif
