/* The CPU's slots. Emulated CUDA uses the same ones with its own allocator. */
#ifndef AMP_CPU_BACKEND_H
#define AMP_CPU_BACKEND_H
#include "arrange.h"
#include "elementwise.h"
#include "index.h"
#include "list.h"
#include "pooling.h"
#include "norm.h"
#include "recurrent.h"
#include "reduce.h"
#include "softmax.h"
#include "sort.h"

Status amp_gemm(const Call *call);
Status amp_attention(const Call *call);
Status amp_attention_backward(const Call *call);
Status amp_embedding(const Call *call);
Status amp_conv(const Call *call);
Status amp_fold(const Call *call);
Status amp_grid_sample(const Call *call);
Status amp_grid_sample_grad(const Call *call);
Status amp_ctc(const Call *call);
Status amp_ctc_grad(const Call *call);

#endif
