"""Padding modules. ``padding`` is one int for all sides, or a pair for each spatial dimension, the last dimension first."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from .._C import Tensor
from . import functional as F
from .module import Module


class _Pad(Module):
    _dims, _mode = 0, "constant"

    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__()
        self.padding: tuple[int, ...] = tuple(padding) if isinstance(padding, Iterable) else (padding,) * (2 * self._dims)

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, self._mode)

    def extra_repr(self) -> str:
        return f"{self.padding}"


class _ConstantPadNd(_Pad):
    def __init__(self, padding: int | Sequence[int], value: float) -> None:
        super().__init__(padding)
        self.value = value

    def forward(self, input: Tensor) -> Tensor:
        return F.pad(input, self.padding, "constant", self.value)

    def extra_repr(self) -> str:
        return f"padding={self.padding}, value={self.value}"


class _ReflectionPadNd(_Pad):
    _mode = "reflect"


class _ReplicationPadNd(_Pad):
    _mode = "replicate"


class _CircularPadNd(_Pad):
    _mode = "circular"


class _ZeroPad(_ConstantPadNd):
    def __init__(self, padding: int | Sequence[int]) -> None:
        super().__init__(padding, 0.0)

    def extra_repr(self) -> str:
        return f"{self.padding}"


_WORDS = {
    "ConstantPad": (_ConstantPadNd, "Adds ``value`` at the ends of"),
    "ZeroPad": (_ZeroPad, "Adds zeros at the ends of"),
    "ReflectionPad": (_ReflectionPadNd, "Mirrors the input at the ends of"),
    "ReplicationPad": (_ReplicationPadNd, "Repeats the outermost elements of"),
    "CircularPad": (_CircularPadNd, "Continues the input from its other end along"),
}


def _make(name: str, dims: int) -> Any:
    base, text = _WORDS[name]
    doc = f"{text} the last {dims} dimension(s)."
    return type(f"{name}{dims}d", (base,), {"_dims": dims, "__doc__": doc, "__module__": __name__})


ConstantPad1d, ConstantPad2d, ConstantPad3d = (_make("ConstantPad", n) for n in (1, 2, 3))
ZeroPad1d, ZeroPad2d, ZeroPad3d = (_make("ZeroPad", n) for n in (1, 2, 3))
ReflectionPad1d, ReflectionPad2d, ReflectionPad3d = (_make("ReflectionPad", n) for n in (1, 2, 3))
ReplicationPad1d, ReplicationPad2d, ReplicationPad3d = (_make("ReplicationPad", n) for n in (1, 2, 3))
CircularPad1d, CircularPad2d, CircularPad3d = (_make("CircularPad", n) for n in (1, 2, 3))
