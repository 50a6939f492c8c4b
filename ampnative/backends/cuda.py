"""Facts about the CUDA backend, and the switches of its matrix products. The emulated device obeys them."""

from __future__ import annotations

import enum
from typing import Any

from .. import _C
from . import _attention
from ._settings import SettingsObject, flag, node, switch

__all__ = [
    "allow_fp16_bf16_reduction_math_sdp",
    "can_use_cudnn_attention",
    "can_use_efficient_attention",
    "can_use_flash_attention",
    "cudnn_sdp_enabled",
    "enable_cudnn_sdp",
    "enable_flash_sdp",
    "enable_math_sdp",
    "enable_mem_efficient_sdp",
    "flash_sdp_enabled",
    "fp16_bf16_reduction_math_sdp_allowed",
    "is_built",
    "is_ck_sdpa_available",
    "is_flash_attention_available",
    "math_sdp_enabled",
    "matmul",
    "mem_efficient_sdp_enabled",
    "preferred_blas_library",
]


def is_built() -> bool:
    """Whether this build can drive a GPU."""
    return False


def _reductions(dtype: str) -> dict[str, property]:
    """`allow_<dtype>_reduced_precision_reduction` and its read-only split-K half."""
    name = f"allow_{dtype}_reduced_precision_reduction"
    get, put = getattr(_C, f"_get_cublas_{name}"), getattr(_C, f"_set_cublas_{name}")

    def setter(value: Any) -> None:
        pair = value if isinstance(value, (tuple, list)) else (value,)
        if not pair:
            raise TypeError(f"{name} expects at least one boolean argument, got an empty {type(value).__name__}")
        if len(pair) > 2:
            raise TypeError(f"{name} expects at most two boolean arguments (reduced, split_k), got {len(pair)}")
        for item in pair:
            if not isinstance(item, bool):
                raise TypeError(f"{name} expects a bool, or a tuple or list of one or two bools, got {value!r}")
        put(*pair)

    main = switch(
        lambda: get()[0],
        setter,
        f"Whether partial sums of a {dtype} product may be rounded to {dtype} before they are added. ``True``, ``False`` "
        "or ``(reduced, split_k)``; (False, False) needs ``preferred_blas_library('cublaslt')``. On the emulated device "
        "it shows with ``cuda.emulate(split_k=N)``. Raises TypeError for other types, RuntimeError for (True, False).",
    )
    split = property(lambda _: get()[1], doc=f"Whether a {dtype} product may be split along K. Read only.")
    return {name: main, name + "_split_k": split}


class _Matmul(SettingsObject):
    """Switches of matrix products on "cuda". Any other attribute is an AttributeError."""

    __slots__ = ()

    fp32_precision = node(
        "cuda",
        "matmul",
        'Precision of fp32 products: "ieee", "tf32" or "none" (inherit from `backends.cudnn.fp32_precision`). Reads what is '
        "in effect. Raises RuntimeError for another string, TypeError for no string.",
    )
    allow_tf32 = switch(
        _C._get_cublas_allow_tf32,
        _C._set_cublas_allow_tf32,
        "Legacy: whether fp32 products may round their inputs to TF32. Reading raises RuntimeError where `fp32_precision` "
        "settings contradict it; setting what is no bool raises RuntimeError.",
    )
    allow_fp16_accumulation = flag(
        "allow_fp16_accumulation",
        "Whether fp16 products accumulate in fp16: larger errors, sums beyond 65504 become inf. (Slow on the emulated device.)",
    )
    prefer_cublaslt_grouped_gemm = flag("prefer_cublaslt_grouped_gemm", "Can be set and read; there are no grouped products.")


for _name, _property in {**_reductions("fp16"), **_reductions("bf16")}.items():
    setattr(_Matmul, _name, _property)
matmul: Any = _Matmul("cuda.matmul")


def allow_fp16_bf16_reduction_math_sdp(enabled: bool) -> None:
    """Let plain attention on 16-bit inputs round its intermediate results to 16 bits. Off: it computes in fp32 and rounds once.

    Raises:
        RuntimeError: `enabled` is no bool.
    """
    _C._set_setting("allow_fp16_bf16_reduction_math_sdp", enabled)


def fp16_bf16_reduction_math_sdp_allowed() -> bool:
    """What :func:`allow_fp16_bf16_reduction_math_sdp` was last told; False at first."""
    return _C._get_setting("allow_fp16_bf16_reduction_math_sdp")


enable_math_sdp, math_sdp_enabled = _attention.switch(_attention.SDPBackend.MATH)
enable_flash_sdp, flash_sdp_enabled = _attention.switch(_attention.SDPBackend.FLASH_ATTENTION)
enable_mem_efficient_sdp, mem_efficient_sdp_enabled = _attention.switch(_attention.SDPBackend.EFFICIENT_ATTENTION)
enable_cudnn_sdp, cudnn_sdp_enabled = _attention.switch(_attention.SDPBackend.CUDNN_ATTENTION)


def can_use_flash_attention(params: Any, debug: bool = False) -> bool:
    """False: the kernels of "cuda" are not here."""
    return False


def can_use_efficient_attention(params: Any, debug: bool = False) -> bool:
    """False: the kernels of "cuda" are not here."""
    return False


def can_use_cudnn_attention(params: Any, debug: bool = False) -> bool:
    """False: the kernels of "cuda" are not here."""
    return False


def is_flash_attention_available() -> bool:
    """False: the kernels of "cuda" are not here."""
    return False


def is_ck_sdpa_available() -> bool:
    """False: the kernels of "cuda" are not here."""
    return False


class _BlasBackend(enum.Enum):
    Default = 0
    Cublas = 1
    Cublaslt = 2
    Ck = 3


_LIBRARIES = {
    "default": _BlasBackend.Cublas,
    "cublas": _BlasBackend.Cublas,
    "hipblas": _BlasBackend.Cublas,
    "cublaslt": _BlasBackend.Cublaslt,
    "hipblaslt": _BlasBackend.Cublaslt,
    "ck": _BlasBackend.Ck,
}


def preferred_blas_library(backend: str | _BlasBackend | None = None) -> _BlasBackend:
    """Choose the library of products on "cuda" and return the choice; None only asks. What depends on it here: switching
    split-K off needs "cublaslt".

    Raises:
        RuntimeError: an unknown name (they are lower-case) or type.
    """
    if backend is None:
        return _BlasBackend(_C._get_blas_library() + 1)
    if isinstance(backend, _BlasBackend):
        chosen = max(backend.value, _BlasBackend.Cublas.value)  # the default is cuBLAS
    elif isinstance(backend, str) and backend in _LIBRARIES:
        chosen = _LIBRARIES[backend].value
    else:
        raise RuntimeError(f"Unknown input value {backend!r}. Choose from: {', '.join(_LIBRARIES)}")
    _C._set_blas_library(chosen - 1)
    return _BlasBackend(chosen)
