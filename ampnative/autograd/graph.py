"""What the graph keeps for backward, and ways to keep it elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import Node, Tensor

__all__ = ["Node", "disable_saved_tensors_hooks", "save_on_cpu", "saved_tensors_hooks"]


class saved_tensors_hooks:
    """Context manager: what is recorded inside keeps ``pack_hook(tensor)`` in place of each saved tensor; backward calls
    ``unpack_hook`` on it and must get a tensor of the same shape, dtype and device. Leaves that require grad are kept as they are.

    ``pack_hook`` runs unrecorded and sees the tensor without its history. Innermost hooks win. For this thread only.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exception: object) -> None:
        _C._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Saved tensors stay on the CPU between forward and backward. ``pin_memory`` and ``device_type`` change nothing."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: (tensor.device, tensor.cpu()), lambda kept: kept[1].to(kept[0]))


class disable_saved_tensors_hooks:
    """Context manager: inside, entering ``saved_tensors_hooks`` is a RuntimeError with this message."""

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        _C._forbid_saved_tensors_hooks(self.error_message)

    def __exit__(self, *exception: object) -> None:
        _C._pop_saved_tensors_hooks()
