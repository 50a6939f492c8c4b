"""Everything on "cuda" in the tree of fp32 precisions, and the cuDNN flags that scripts set for speed or repeatability.

There is no cuDNN here: `enabled`, `benchmark`, `benchmark_limit`, `deterministic` and `depthwise_kernel` can be set and read,
and have no effect. `fp32_precision` is the parent of `backends.cuda.matmul`, `conv` and `rnn`. Setting `allow_tf32` stores "tf32"
or "none" on `conv` and `rnn`, and from then on no parent reaches "tf32" nodes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ... import _C
from .. import _settings
from . import rnn

__all__ = ["conv", "flags", "is_acceptable", "is_available", "rnn", "set_flags", "version"]

# For type checkers; the class at the end gives the values.
enabled: bool
benchmark: bool
benchmark_limit: int
deterministic: bool
depthwise_kernel: str
allow_tf32: bool
fp32_precision: str

conv: Any = _settings.op_node("cudnn.conv", "cuda", "conv")

_limit: dict[str, int] = {}  # benchmark_limit, once it was set


def is_available() -> bool:
    """False: there is no cuDNN."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return


def is_acceptable(tensor: Any) -> bool:
    """False: there is no cuDNN for any tensor."""
    return False


def _set_benchmark_limit(value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool):
        raise RuntimeError(f"set_benchmark_limit_cudnn expects an int, but got {type(value).__name__}")
    _limit["benchmark"] = value


def _get_benchmark_limit() -> int:
    return _limit.get("benchmark", 10)


def _read() -> tuple[Any, ...]:
    return (
        _C._get_setting("enabled_cudnn"),
        _C._get_setting("benchmark_cudnn"),
        _get_benchmark_limit(),
        _C._get_setting("deterministic_cudnn"),
        _C._get_cudnn_allow_tf32(),
        _C._get_fp32_precision_getter("cuda", "all"),
        _C._get_depthwise_kernel(),
    )


def set_flags(
    _enabled: bool | None = None,
    _benchmark: bool | None = None,
    _benchmark_limit: int | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = "none",
    _depthwise_kernel: str | None = None,
) -> tuple[Any, ...]:
    """Set what is not None and return what was there before, for another call. Without arguments it sets `fp32_precision` to
    "none".

    Raises:
        RuntimeError: the legacy `allow_tf32` cannot be read, because newer settings contradict it; nothing is changed.
    """
    before = _read()
    with _settings.all_or_nothing():
        for name, value in (("enabled", _enabled), ("benchmark", _benchmark), ("deterministic", _deterministic)):
            if value is not None:
                _C._set_setting(f"{name}_cudnn", value)
        if _allow_tf32 is not None:
            _C._set_cudnn_allow_tf32(_allow_tf32)
        if _fp32_precision is not None:
            _C._set_fp32_precision_setter("cuda", "all", _fp32_precision)
        if _depthwise_kernel is not None:
            _C._set_depthwise_kernel(_depthwise_kernel)
        if _benchmark_limit is not None:
            _set_benchmark_limit(_benchmark_limit)
    return before


@contextlib.contextmanager
def flags(
    enabled: bool | None = False,
    benchmark: bool | None = False,
    benchmark_limit: int | None = 10,
    deterministic: bool | None = False,
    allow_tf32: bool | None = True,
    fp32_precision: str | None = "none",
    depthwise_kernel: str | None = "auto",
) -> Iterator[None]:
    """Context manager: these flags for the process, and back. None leaves a flag alone.

    As in PyTorch, leaving restores `conv` and `rnn` through `allow_tf32` alone (they hold "tf32" or "none" afterwards) and
    `fp32_precision` by the value that was in effect.

    Raises:
        RuntimeError: (entering or leaving) `allow_tf32` cannot be read, because newer settings contradict it.
    """
    before = set_flags(enabled, benchmark, benchmark_limit, deterministic, allow_tf32, fp32_precision, depthwise_kernel)
    try:
        yield
    finally:
        set_flags(*before)


_HERE = "ampnative.backends.cudnn"


class _Cudnn(_settings.SettingsModule):
    enabled = _settings.flag("enabled_cudnn", "No effect.", _HERE)
    benchmark = _settings.flag("benchmark_cudnn", "No effect.", _HERE)
    deterministic = _settings.flag("deterministic_cudnn", "No effect.", _HERE)
    benchmark_limit = _settings.switch(_get_benchmark_limit, _set_benchmark_limit, "No effect.", _HERE)
    depthwise_kernel = _settings.switch(_C._get_depthwise_kernel, _C._set_depthwise_kernel, "No effect.", _HERE)
    allow_tf32 = _settings.switch(
        _C._get_cudnn_allow_tf32,
        _C._set_cudnn_allow_tf32,
        "Legacy: whether convolutions and recurrent layers may use TF32. Reading raises RuntimeError where `fp32_precision` "
        "settings contradict it; setting what is no bool raises RuntimeError.",
        _HERE,
    )
    fp32_precision = _settings.node(
        "cuda",
        "all",
        'Precision of everything on "cuda": "ieee", "tf32" or "none" (inherit). Raises RuntimeError for another string, '
        "TypeError for no string.",
        _HERE,
    )


_settings.become(__name__, _Cudnn)
