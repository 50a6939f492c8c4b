"""PyTorch's automatic mixed precision, natively in C on NumPy buffers.

Names are PyTorch's: ``import ampnative as torch``. Ops are rows of one table in the native core; their dtypes under
autocast, their gradients and their docstrings come from there.
"""

import importlib

from . import _core_check  # isort: skip  first, so that a missing core is named
from . import (
    _C,
    _features,
    _wrong_arguments,
    accelerator,
    amp,
    autograd,
    backends,
    compiler,
    cpu,
    cuda,
    debug,
    distributed,
    fft,
    func,
    jit,
    linalg,
    mps,
    nn,
    optim,
    random,
    return_types,
    serialization,
    special,
    testing,
    utils,
    version,
    xpu,
)
from ._aten import ops
from ._C import (
    Generator,
    Size,
    Tensor,
    _amp_foreach_non_finite_check_and_unscale_,
    _amp_update_scale_,
    as_tensor,
    asarray,
    autocast_decrement_nesting,
    autocast_increment_nesting,
    can_cast,
    clear_autocast_cache,
    default_generator,
    device,
    dtype,
    finfo,
    from_dlpack,
    from_numpy,
    frombuffer,
    get_autocast_dtype,
    get_default_device,
    get_default_dtype,
    get_float32_matmul_precision,
    get_num_threads,
    iinfo,
    is_anomaly_check_nan_enabled,
    is_anomaly_enabled,
    is_autocast_cache_enabled,
    is_autocast_enabled,
    is_grad_enabled,
    is_inference_mode_enabled,
    manual_seed,
    promote_types,
    result_type,
    set_anomaly_enabled,
    set_autocast_cache_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
    set_default_device,
    set_default_dtype,
    set_float32_matmul_precision,
    set_num_threads,
    tensor,
)
from ._C.dtypes import *
from ._C.functions import *
from ._C.functions import _convolution
from ._functions import *
from ._functions_compat import (
    BFloat16Tensor,
    BoolTensor,
    ByteTensor,
    CharTensor,
    DoubleTensor,
    FloatTensor,
    HalfTensor,
    IntTensor,
    LongTensor,
    ShortTensor,
    channels_last,
    channels_last_3d,
    contiguous_format,
    layout,
    memory_format,
    preserve_format,
    strided,
)
from ._functions_foreach import (
    _foreach_abs,
    _foreach_abs_,
    _foreach_acos,
    _foreach_acos_,
    _foreach_add,
    _foreach_add_,
    _foreach_addcdiv,
    _foreach_addcdiv_,
    _foreach_addcmul,
    _foreach_addcmul_,
    _foreach_asin,
    _foreach_asin_,
    _foreach_atan,
    _foreach_atan_,
    _foreach_ceil,
    _foreach_ceil_,
    _foreach_clamp_max,
    _foreach_clamp_max_,
    _foreach_clamp_min,
    _foreach_clamp_min_,
    _foreach_clone,
    _foreach_copy_,
    _foreach_cos,
    _foreach_cos_,
    _foreach_cosh,
    _foreach_cosh_,
    _foreach_div,
    _foreach_div_,
    _foreach_erf,
    _foreach_erf_,
    _foreach_erfc,
    _foreach_erfc_,
    _foreach_exp,
    _foreach_exp_,
    _foreach_expm1,
    _foreach_expm1_,
    _foreach_floor,
    _foreach_floor_,
    _foreach_frac,
    _foreach_frac_,
    _foreach_lerp,
    _foreach_lerp_,
    _foreach_lgamma,
    _foreach_lgamma_,
    _foreach_log,
    _foreach_log1p,
    _foreach_log1p_,
    _foreach_log2,
    _foreach_log2_,
    _foreach_log10,
    _foreach_log10_,
    _foreach_log_,
    _foreach_max,
    _foreach_maximum,
    _foreach_maximum_,
    _foreach_minimum,
    _foreach_minimum_,
    _foreach_mul,
    _foreach_mul_,
    _foreach_neg,
    _foreach_neg_,
    _foreach_norm,
    _foreach_pow,
    _foreach_pow_,
    _foreach_reciprocal,
    _foreach_reciprocal_,
    _foreach_round,
    _foreach_round_,
    _foreach_rsqrt,
    _foreach_rsqrt_,
    _foreach_sigmoid,
    _foreach_sigmoid_,
    _foreach_sign,
    _foreach_sign_,
    _foreach_sin,
    _foreach_sin_,
    _foreach_sinh,
    _foreach_sinh_,
    _foreach_sqrt,
    _foreach_sqrt_,
    _foreach_sub,
    _foreach_sub_,
    _foreach_tan,
    _foreach_tan_,
    _foreach_tanh,
    _foreach_tanh_,
    _foreach_trunc,
    _foreach_trunc_,
    _foreach_zero_,
)
from ._functions_products import (
    _addmm_activation,
    _lu_with_info,
    chain_matmul,
    cholesky,
    det,
    einsum,
    inner,
    lu,
    matrix_exp,
    matrix_power,
    pairwise_distance,
    qr,
    slogdet,
    tensordot,
)
from ._functions_random import (
    alpha_dropout,
    alpha_dropout_,
    dropout_,
    embedding_renorm_,
    feature_alpha_dropout,
    feature_alpha_dropout_,
    feature_dropout,
    feature_dropout_,
    multinomial,
    normal,
)
from ._functions_recurrent import gru, lstm, rnn_relu, rnn_tanh
from ._functions_small import e, inf, nan, newaxis, pi, range
from ._functions_spectral import (
    adjoint,
    angle,
    bartlett_window,
    blackman_window,
    conj,
    hamming_window,
    hann_window,
    imag,
    kaiser_window,
    real,
)
from ._switches import (
    are_deterministic_algorithms_enabled,
    get_deterministic_debug_mode,
    get_num_interop_threads,
    is_deterministic_algorithms_warn_only_enabled,
    is_warn_always_enabled,
    set_deterministic_debug_mode,
    set_num_interop_threads,
    set_warn_always,
    use_deterministic_algorithms,
)
from ._tensor_str import set_printoptions
from .amp import GradScaler, autocast
from .autograd import enable_grad, inference_mode, no_grad, set_grad_enabled
from .compiler import compile
from .cuda import AcceleratorError, Event, OutOfMemoryError, Stream
from .nn.functional import celu_, rrelu, rrelu_, selu_, threshold_
from .random import get_rng_state, initial_seed, seed, set_rng_state
from .serialization import load, save
from .utils.dlpack import to_dlpack

__version__ = "0.1.0"


_features.register(__name__)
_features.answer(f"{__name__}._dynamo", OptimizedModule=compiler.OptimizedModule)
_features.answer(f"{__name__}._dynamo.eval_frame", OptimizedModule=compiler.OptimizedModule)


def __getattr__(name: str):
    from ._absent import absent_op

    if name in ("__config__", "multiprocessing"):  # loaded by the first who asks
        return importlib.import_module(f"{__name__}.{name}")
    raise absent_op(name) or AttributeError(f"module 'ampnative' has no attribute '{name}'")


_wrong_arguments.guard_methods()
for _module in (__name__, "ampnative.nn.functional", "ampnative.linalg", "ampnative.special", "ampnative.fft", "ampnative.utils.dlpack"):
    _wrong_arguments.guard_functions(vars(importlib.import_module(_module)))


_features.register_names(__name__, Tensor)
