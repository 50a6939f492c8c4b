"""Everything on the CPU in the tree of fp32 precisions. The name is PyTorch's; the kernels are this library's own.

"tf32" rounds the inputs of fp32 products to 10 mantissa bits, "bf16" to 7, on every CPU; sums are fp32. `enabled` and
`deterministic` can be set and read, and have no effect.

Assigning `fp32_precision` writes this backend's own node. PyTorch 2.15 writes the root of the tree instead, so that CUDA changes
too; AMPNATIVE_TORCH_QUIRKS=1 copies that. Writing the own node is the default, because it is what the name says, what reading
shows and what :func:`flags` does.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

from .. import _C
from . import _settings

__all__ = ["conv", "flags", "is_available", "matmul", "rnn", "set_flags"]

# For type checkers; the class at the end gives the values.
enabled: bool
deterministic: bool
allow_tf32: bool | None
fp32_precision: str

matmul: Any = _settings.op_node("mkldnn.matmul", "mkldnn", "matmul")
conv: Any = _settings.op_node("mkldnn.conv", "mkldnn", "conv")
rnn: Any = _settings.op_node("mkldnn.rnn", "mkldnn", "rnn")


def is_available() -> bool:
    """True: products on the CPU obey the settings of this module."""
    return True


def is_acl_available() -> bool:
    """False: Arm's compute library is not used."""
    return False


def _set_allow_tf32(value: Any) -> None:
    if not isinstance(value, bool):
        raise RuntimeError(f"set_allow_tf32_mkldnn expects a bool, but got {type(value).__name__}")
    warnings.warn(
        "TF32 acceleration on top of oneDNN is for Intel GPUs, which ampnative does not have: mkldnn.allow_tf32 has no effect. "
        "For the CPU set backends.mkldnn.matmul.fp32_precision",
        UserWarning,
        stacklevel=3,
    )


def set_flags(
    _enabled: bool | None = None,
    _deterministic: bool | None = None,
    _allow_tf32: bool | None = None,
    _fp32_precision: str | None = "none",
) -> tuple[Any, ...]:
    """Set what is not None and return what was there before, for another call. Without arguments it sets `fp32_precision` to
    "none". Warns for `_allow_tf32`, which is for Intel GPUs."""
    before = (
        _C._get_setting("enabled_mkldnn"),
        _C._get_setting("deterministic_mkldnn"),
        None,
        _C._get_fp32_precision_getter("mkldnn", "all"),
    )
    with _settings.all_or_nothing():
        if _enabled is not None:
            _C._set_setting("enabled_mkldnn", _enabled)
        if _deterministic is not None:
            _C._set_setting("deterministic_mkldnn", _deterministic)
        if _fp32_precision is not None:
            _C._set_fp32_precision_setter("mkldnn", "all", _fp32_precision)
        if _allow_tf32 is not None:
            _set_allow_tf32(_allow_tf32)
    return before


@contextlib.contextmanager
def flags(
    enabled: bool | None = False,
    deterministic: bool | None = False,
    allow_tf32: bool | None = True,
    fp32_precision: str | None = "none",
) -> Iterator[None]:
    """Context manager: these flags for the process, and back. None leaves a flag alone; with `allow_tf32` not None it warns.
    Leaving restores `fp32_precision` by the value that was in effect, as in PyTorch."""
    before = set_flags(enabled, deterministic, allow_tf32, fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)


def _set_precision(value: Any) -> None:
    quirk = os.environ.get("AMPNATIVE_TORCH_QUIRKS") == "1"
    _C._set_fp32_precision_setter("generic" if quirk else "mkldnn", "all", value)


_HERE = "ampnative.backends.mkldnn"


class _Mkldnn(_settings.SettingsModule):
    enabled = _settings.flag("enabled_mkldnn", "No effect.", _HERE)
    deterministic = _settings.flag("deterministic_mkldnn", "No effect.", _HERE)
    allow_tf32 = _settings.switch(lambda: None, _set_allow_tf32, "For Intel GPUs: reads None, setting it warns.", _HERE)
    fp32_precision = _settings.switch(
        lambda: _C._get_fp32_precision_getter("mkldnn", "all"),
        _set_precision,
        'Precision of everything on the CPU: "ieee", "tf32", "bf16" or "none" (inherit). Raises RuntimeError for another '
        "string, TypeError for no string.",
        _HERE,
    )


_settings.become(__name__, _Mkldnn)
