"""Tensors from and to other libraries that speak DLPack, without copies."""

from __future__ import annotations

from typing import Any

from .._C import Tensor, from_dlpack

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule that another library's ``from_dlpack`` takes, once: it shares the tensor's memory. Libraries of today take the tensor
    itself. BufferError for what DLPack has no word for."""
    return tensor.__dlpack__()
