"""Settings of the numerics, for the process: which precision fp32 products may use, and what 16-bit products may do.

The fp32 precision is a tree. A node that holds "none" inherits from its parent::

    backends.fp32_precision
        backends.cudnn.fp32_precision                (everything on "cuda")
            backends.cuda.matmul.fp32_precision
            backends.cudnn.conv.fp32_precision
            backends.cudnn.rnn.fp32_precision
        backends.mkldnn.fp32_precision               (everything on "cpu")
            backends.mkldnn.matmul.fp32_precision
            backends.mkldnn.conv.fp32_precision
            backends.mkldnn.rnn.fp32_precision

Reading gives the value in effect, writing changes one node. :func:`describe` prints the tree. Every op reads the settings once,
when it starts, and all of them at one moment; a change is seen by all threads, also one made by a context manager.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from .. import _C
from . import _settings, cpu, cuda, cudnn, mha, mkldnn, mps

__all__ = ["cpu", "cuda", "cudnn", "describe", "disable_global_flags", "flags", "flags_frozen", "mha", "mkldnn", "mps", "set_flags"]

fp32_precision: str  # for type checkers; the class at the end gives the value


def disable_global_flags() -> None:
    """From now on the flags of `backends`, `backends.cudnn` and `backends.mkldnn` can only be set by context managers: an
    assignment is a RuntimeError. The nodes of single ops stay free."""
    _settings.freeze(True)


def flags_frozen() -> bool:
    """Whether :func:`disable_global_flags` was called."""
    return _settings.frozen


__allow_nonbracketed_mutation = _settings.thawed


def set_flags(_fp32_precision: str | None = "none") -> tuple[str]:
    """Set the root of the tree (None: leave it) and return what it was, for another call."""
    before = (_C._get_fp32_precision_getter("generic", "all"),)
    if _fp32_precision is not None:
        _C._set_fp32_precision_setter("generic", "all", _fp32_precision)
    return before


@contextlib.contextmanager
def flags(fp32_precision: str | None = "none") -> Iterator[None]:
    """Context manager: the root of the tree, for the process, and back."""
    before = set_flags(fp32_precision)
    try:
        yield
    finally:
        set_flags(*before)


def _source(own: str, effective: str, decided: str, attribute: str) -> str:
    if decided == attribute:
        return "its own"
    if decided:
        return decided + (" (bf16, which cuda does not have)" if effective == "none" else "")
    return "the default of an unset node" if own == "unset" else "the default"


_SWITCHES: dict[str, Callable[[], Any]] = {
    "get_float32_matmul_precision()": _C.get_float32_matmul_precision,
    "backends.cuda.matmul.allow_tf32": _C._get_cublas_allow_tf32,
    "backends.cudnn.allow_tf32": _C._get_cudnn_allow_tf32,
    "fp16 products (reduced sums allowed, split-K allowed)": _C._get_cublas_allow_fp16_reduced_precision_reduction,
    "bf16 products (reduced sums allowed, split-K allowed)": _C._get_cublas_allow_bf16_reduced_precision_reduction,
    "backends.cuda.matmul.allow_fp16_accumulation": lambda: _C._get_setting("allow_fp16_accumulation"),
    "fp16 and bf16 reductions in attention": cuda.fp16_bf16_reduction_math_sdp_allowed,
    "preferred BLAS library": lambda: cuda.preferred_blas_library().name,
}


def describe(file: TextIO | None = None) -> None:
    """Print every node with its own value, the value in effect and where that comes from, then the other switches. Never
    raises, in a mixed state either. "none" inherits from the parent (at the root: fp32 as it is); "unset" is "none" with a
    default of its own, until the first assignment.

    Args:
        file: where to print; sys.stdout by default.
    """
    file = sys.stdout if file is None else file
    rows = [("setting", "own", "in effect", "from")]
    for attribute, own, effective, decided in _C._precision_nodes():
        rows.append((attribute, own, effective, _source(own, effective, decided, attribute)))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip(), file=file)
    print(file=file)
    for label, read in _SWITCHES.items():
        try:
            print(f"{label}: {read()}", file=file)
        except RuntimeError as error:
            reason = str(error).partition("cannot be read: ")[2].partition(". Read ")[0]
            print(f"{label}: cannot be read, {reason or error}", file=file)


def _reset() -> None:
    """Everything as in a new process: for tests."""
    _C._reset_precision()
    _settings.freeze(False)
    mha.set_fastpath_enabled(True)
    cudnn._limit.clear()


class _Backends(_settings.SettingsModule):
    fp32_precision = _settings.node(
        "generic",
        "all",
        'Root of the tree: "ieee", "tf32", "bf16" or "none". Raises RuntimeError for another string, TypeError for no string.',
        "ampnative.backends",
    )


_settings.become(__name__, _Backends)
