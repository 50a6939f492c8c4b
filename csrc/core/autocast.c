/* Autocast's thread-local state. Plain data: a new thread starts disabled, with default dtypes, the cache on and depth 0. */
#include "autocast.h"

#include <stdatomic.h>
#include <string.h>

_Thread_local uint8_t amp_mode = 0;
_Thread_local uint8_t amp_grad_enabled = 1;

/* `enabled` has one bit per AutocastDevice. A new thread's state is all zero, so fields are stored such that zero is the default:
 * dtype + 1 (0 = the device's default), the cache flag inverted. */
typedef struct AutocastState {
    uint16_t enabled;
    uint8_t cache_off;
    int8_t dtype_plus_1[AUTOCAST_DEVICE_COUNT];
    int depth;
} AutocastState;
static _Thread_local AutocastState state;

static _Atomic uint64_t epoch = 1;

static const struct {
    const char *name;
    int8_t dtype;
} device_table[AUTOCAST_DEVICE_COUNT] = {
#define X(id, name, dtype) {name, AMP_##dtype},
    AMP_AUTOCAST_DEVICES(X)
#undef X
};

static uint8_t mode_bit(AutocastDevice device) {
    return device == AUTOCAST_CPU ? MODE_AUTOCAST_CPU : device == AUTOCAST_CUDA ? MODE_AUTOCAST_CUDA : 0;
}

bool amp_autocast_enabled(AutocastDevice device) { return (state.enabled >> device) & 1; }

/* Both are the thread's own; finding one takes a call, so functions look them up once. */
static void switch_to(AutocastState *s, uint8_t *mode, AutocastDevice device, bool enabled) {
    uint16_t bit = (uint16_t)(1u << device);
    if (enabled) {
        s->enabled |= bit;
        *mode |= mode_bit(device);
    } else {
        s->enabled &= (uint16_t)~bit;
        *mode &= (uint8_t)~mode_bit(device);
    }
}

void amp_autocast_set_enabled(AutocastDevice device, bool enabled) { switch_to(&state, &amp_mode, device, enabled); }

int amp_autocast_default_dtype(AutocastDevice device) { return device_table[device].dtype; }

int amp_autocast_dtype(AutocastDevice device) {
    int stored = state.dtype_plus_1[device];
    return stored ? stored - 1 : device_table[device].dtype;
}

void amp_autocast_set_dtype(AutocastDevice device, int dtype) { state.dtype_plus_1[device] = (int8_t)(dtype + 1); }

bool amp_autocast_cache_enabled(void) { return !state.cache_off; }

void amp_autocast_set_cache_enabled(bool enabled) { state.cache_off = !enabled; }

int amp_autocast_increment_nesting(void) { return ++state.depth; }

int amp_autocast_decrement_nesting(void) { return --state.depth; }

uint64_t amp_autocast_epoch(void) { return atomic_load_explicit(&epoch, memory_order_acquire); }

void amp_autocast_clear_cache(void) { atomic_fetch_add_explicit(&epoch, 1, memory_order_acq_rel); }

int amp_autocast_enter(AutocastDevice device, bool enabled, int dtype, bool cache_enabled, AutocastSnapshot *before) {
    AutocastState *s = &state;
    uint8_t *mode = &amp_mode;
    int stored = s->dtype_plus_1[device];
    before->device = (uint8_t)device;
    before->dtype = (int8_t)(stored ? stored - 1 : device_table[device].dtype);
    before->enabled = (s->enabled >> device) & 1;
    before->cache_enabled = !s->cache_off;
    before->mode = *mode & (MODE_AUTOCAST_CPU | MODE_AUTOCAST_CUDA);
    switch_to(s, mode, device, enabled);
    s->dtype_plus_1[device] = (int8_t)(dtype + 1);
    s->cache_off = !cache_enabled;
    return ++s->depth;
}

int amp_autocast_leave(const AutocastSnapshot *before) {
    AutocastState *s = &state;
    uint8_t *mode = &amp_mode;
    AutocastDevice device = (AutocastDevice)before->device;
    uint8_t bit = mode_bit(device);
    switch_to(s, mode, device, before->enabled);
    *mode = (uint8_t)((*mode & ~bit) | (before->mode & bit));
    s->dtype_plus_1[device] = (int8_t)(before->dtype + 1);
    s->cache_off = !before->cache_enabled;
    return --s->depth;
}

const char *amp_autocast_device_name(AutocastDevice device) { return device_table[device].name; }

/* ---- device strings: word[:index], word = letters and underscores, index = 0 or a number without leading zero ---- */

static bool is_word(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

static bool is_index(const char *s) {
    int64_t value = 0;
    if (*s == '0') return s[1] == '\0';
    if (*s == '\0') return false;
    for (; *s; s++) {
        if (*s < '0' || *s > '9') return false;
        value = value * 10 + (*s - '0');
        if (value > INT32_MAX) return false;
    }
    return true;
}

int amp_autocast_device_parse(const char *text, AutocastDevice *out) {
    static const char *const without[] = {"meta", "mkldnn", "opengl", "opencl", "ideep", "hip", "ve", "fpga", "vulkan", "lazy"};
    size_t n = 0;
    if (text[0] == '\0') return AUTOCAST_PARSE_EMPTY;
    while (is_word(text[n])) n++;
    if (n == 0 || (text[n] != '\0' && (text[n] != ':' || !is_index(text + n + 1)))) return AUTOCAST_PARSE_INVALID;
    for (int d = 0; d < AUTOCAST_DEVICE_COUNT; d++) {
        if (strlen(device_table[d].name) == n && memcmp(device_table[d].name, text, n) == 0) {
            *out = (AutocastDevice)d;
            return AUTOCAST_PARSE_OK;
        }
    }
    for (size_t i = 0; i < sizeof without / sizeof *without; i++)
        if (strlen(without[i]) == n && memcmp(without[i], text, n) == 0) return AUTOCAST_PARSE_UNSUPPORTED;
    return AUTOCAST_PARSE_UNKNOWN;
}
