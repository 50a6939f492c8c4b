"""All parameters of a model as one vector, and back."""

from __future__ import annotations

from collections.abc import Iterable

from ... import _C
from ..._C import Tensor


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements in one 1-d tensor, in the order of the parameters; differentiable. TypeError if they are on several devices."""
    tensors = list(parameters)
    _check_device(tensors)
    return _C.functions.cat([t.reshape(-1) for t in tensors])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """Makes consecutive parts of ``vec`` the data of the parameters (they share its memory)."""
    if not isinstance(vec, Tensor):
        raise TypeError(f"expected torch.Tensor, but got: {type(vec).__name__}")
    tensors = list(parameters)
    _check_device(tensors)
    start = 0
    for tensor in tensors:
        count = tensor.numel()
        tensor.data = vec[start : start + count].reshape(tensor.shape).detach()
        start += count


def _check_device(tensors: list[Tensor]) -> None:
    if len({str(t.device) for t in tensors}) > 1:
        raise TypeError("Found two parameters on different devices, this is currently not supported: move them to one")
