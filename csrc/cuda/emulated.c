/* Device cuda without a GPU: CUDA's contract on the CPU's kernels. Memory is the host's, in an arena of its own, so that it has its own
 * statistics; how products are formed arrives in Call, which the CPU's slots honour. */
#include "emulated.h"

static void *emulated_alloc(size_t nbytes) { return amp_host_alloc(AMP_CUDA, nbytes); }

static void emulated_free(void *data, size_t nbytes) { amp_host_free(AMP_CUDA, data, nbytes); }

static Backend emulated;
const Backend *amp_backend[AMP_DEVICE_COUNT] = {[AMP_CPU] = &amp_cpu_backend, [AMP_CUDA] = &emulated};

void amp_emulated_init(void) {
    emulated = amp_cpu_backend;
    emulated.alloc = emulated_alloc;
    emulated.free = emulated_free;
}
