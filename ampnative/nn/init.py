"""Initialisation of tensors in place; every function returns its tensor. With one seed the numbers are PyTorch's."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import no_grad


def _unrecorded(function: Callable[[], Any], tensor: Tensor) -> Tensor:
    with no_grad():
        function()
    return tensor


def uniform_(tensor: Tensor, a: float = 0.0, b: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform draws in [a, b). RuntimeError if a > b, NotImplementedError for integer tensors."""
    return _unrecorded(lambda: tensor.uniform_(a, b, generator=generator), tensor)


def normal_(tensor: Tensor, mean: float = 0.0, std: float = 1.0, generator: Any = None) -> Tensor:
    """Normal draws with the given mean and standard deviation. RuntimeError for a negative one."""
    return _unrecorded(lambda: tensor.normal_(mean, std, generator=generator), tensor)


def constant_(tensor: Tensor, val: float) -> Tensor:
    """Every element becomes ``val``, converted to the tensor's dtype."""
    return _unrecorded(lambda: tensor.fill_(val), tensor)


def ones_(tensor: Tensor) -> Tensor:
    """Every element becomes 1."""
    return constant_(tensor, 1.0)


def zeros_(tensor: Tensor) -> Tensor:
    """Every element becomes 0."""
    return _unrecorded(tensor.zero_, tensor)


def eye_(tensor: Tensor) -> Tensor:
    """The identity matrix (n, m); ValueError unless 2-dimensional."""
    if tensor.ndim != 2:
        raise ValueError(f"eye_ needs a tensor of 2 dimensions, not {tensor.ndim}")
    return _unrecorded(lambda: tensor.copy_(_C.functions.eye(*tensor.shape, dtype=tensor.dtype, device=tensor.device)), tensor)


def _normal_cdf(x: float) -> float:
    return (1.0 + math.erf(x / math.sqrt(2.0))) / 2.0


def _redraw_normal(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> None:
    """Normal values; all are drawn anew, as often as needed, and replace those outside [a, b]."""
    tensor.normal_(mean, std, generator=generator)
    outside = (tensor < a) | (tensor > b)
    while outside.any().item():
        tensor.copy_(_where(outside, _empty_like(tensor).normal_(mean, std, generator=generator), tensor))
        outside = (tensor < a) | (tensor > b)


def _reject_uniform(tensor: Tensor, mean: float, std: float, a: float, b: float, generator: Any) -> None:
    """For rare intervals: uniform values in [a, b], each kept with the ratio of the density to its largest there."""
    low, high = (a - mean) / std, (b - mean) / std
    peak = min(max(0.0, low), high)
    low, high = max(low, peak - _FAR), min(high, peak + _FAR)
    missing = _C.functions.ones_like(tensor, dtype=_C.bool)
    while missing.any().item():
        x = _empty_like(tensor).uniform_(low, high, generator=generator)
        kept = _empty_like(tensor).uniform_(generator=generator) <= ((peak * peak - x * x) / 2).exp()
        tensor.copy_(_where(missing & kept, x, tensor))
        missing = missing & ~kept
    tensor.mul_(std).add_(mean).clamp_(min=a, max=b)


_where, _empty_like = _C.functions.where, _C.functions.empty_like
_FAR = 40.0  # standard deviations from the densest point of an interval at which its tail is cut: nothing lies there
_OFTEN = 0.3  # share of normal values inside the interval from which on drawing them is the better way


def trunc_normal_(
    tensor: Tensor, mean: float = 0.0, std: float = 1.0, a: float = -2.0, b: float = 2.0, generator: Any = None
) -> Tensor:
    """Normal draws conditioned to lie in [a, b] (absolute bounds, not multiples of ``std``). Warns where the mean is
    more than 2 std outside.
    """
    if mean < a - 2 * std or mean > b + 2 * std:
        warnings.warn(
            "mean is more than 2 std from [a, b] in nn.init.trunc_normal_: the values may be distributed wrongly.",
            stacklevel=2,
        )
    inside = _normal_cdf((b - mean) / std) - _normal_cdf((a - mean) / std)
    draw = _redraw_normal if inside > _OFTEN else _reject_uniform
    return _unrecorded(lambda: draw(tensor, mean, std, a, b, generator), tensor)


_GAINS = {
    "linear": 1.0,
    "conv1d": 1.0,
    "conv2d": 1.0,
    "conv3d": 1.0,
    "conv_transpose1d": 1.0,
    "conv_transpose2d": 1.0,
    "conv_transpose3d": 1.0,
    "sigmoid": 1.0,
    "tanh": 5.0 / 3,
    "relu": math.sqrt(2.0),
    "selu": 3.0 / 4,
}


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """The factor that keeps the variance over a layer with this nonlinearity: 1 for "linear", convolutions and
    "sigmoid", 5/3 for "tanh", sqrt(2) for "relu", sqrt(2 / (1 + param^2)) for "leaky_relu" (slope 0.01 by default),
    3/4 for "selu".

    ValueError for other words.
    """
    if nonlinearity == "leaky_relu":
        if param is None:
            slope = 0.01
        elif isinstance(param, bool) or not isinstance(param, (int, float)):
            raise ValueError(f"negative_slope {param} not a valid number")
        else:
            slope = param
        return math.sqrt(2.0 / (1 + slope**2))
    if nonlinearity not in _GAINS:
        raise ValueError(f"Unsupported nonlinearity {nonlinearity}")
    return _GAINS[nonlinearity]


def _calculate_fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    if tensor.ndim < 2:
        raise ValueError("Fan in and fan out can not be computed for tensor with fewer than 2 dimensions")
    receptive = math.prod(tensor.shape[2:])
    return tensor.shape[1] * receptive, tensor.shape[0] * receptive


def _fan(tensor: Tensor, mode: str) -> int:
    if mode.lower() not in ("fan_in", "fan_out"):
        raise ValueError(f"Mode {mode} not supported, please use one of ['fan_in', 'fan_out']")
    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    return fan_in if mode.lower() == "fan_in" else fan_out


def xavier_uniform_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Uniform with variance 2 gain^2 / (fan_in + fan_out) (Glorot and Bengio, 2010).

    fan_in and fan_out are shape[1] and shape[0] times the product of the trailing sizes. ValueError below 2
    dimensions.
    """
    bound = math.sqrt(3.0) * gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor))))
    return uniform_(tensor, -bound, bound, generator)


def xavier_normal_(tensor: Tensor, gain: float = 1.0, generator: Any = None) -> Tensor:
    """Normal with variance 2 gain^2 / (fan_in + fan_out) (Glorot and Bengio, 2010). ValueError below 2 dimensions."""
    return normal_(tensor, 0.0, gain * math.sqrt(2.0 / float(sum(_calculate_fan_in_and_fan_out(tensor)))), generator)


def _nothing_to_do(tensor: Tensor) -> bool:
    if 0 in tensor.shape:
        warnings.warn("Initializing zero-element tensors is a no-op", stacklevel=3)
        return True
    return False


def kaiming_uniform_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Uniform with variance gain^2 / fan (He et al., 2015), gain = calculate_gain(nonlinearity, a).

    ``mode``: "fan_in" keeps the variance forward, "fan_out" backward. ValueError for other words or below 2
    dimensions.
    """
    if _nothing_to_do(tensor):
        return tensor
    bound = math.sqrt(3.0) * (calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)))
    return uniform_(tensor, -bound, bound, generator)


def kaiming_normal_(
    tensor: Tensor, a: float = 0, mode: str = "fan_in", nonlinearity: str = "leaky_relu", generator: Any = None
) -> Tensor:
    """Normal with variance gain^2 / fan (He et al., 2015); arguments and errors as ``kaiming_uniform_``."""
    if _nothing_to_do(tensor):
        return tensor
    return normal_(tensor, 0.0, calculate_gain(nonlinearity, a) / math.sqrt(_fan(tensor, mode)), generator)


def orthogonal_(tensor: Tensor, gain: float = 1, generator: Any = None) -> Tensor:
    """A matrix with orthonormal rows or columns, whichever are fewer (trailing dimensions flattened), times ``gain``
    (Saxe et al., 2013). ValueError below 2 dimensions.
    """
    if tensor.ndim < 2:
        raise ValueError("Only tensors with 2 or more dimensions are supported")
    if tensor.numel() == 0:
        return tensor
    rows, cols = tensor.shape[0], tensor.numel() // tensor.shape[0]
    wide = _C.float64 if tensor.dtype == _C.float64 else _C.float32
    drawn = _C.functions.empty((rows, cols), dtype=wide, device="cpu").normal_(0, 1, generator=generator).numpy()
    q, r = np.linalg.qr(drawn.T if rows < cols else drawn)
    q = q * np.sign(np.diag(r))
    q = np.ascontiguousarray(q.T if rows < cols else q).reshape(tuple(tensor.shape))

    def write() -> None:
        tensor.copy_(_C.from_numpy(q))
        tensor.mul_(gain)

    return _unrecorded(write, tensor)


def dirac_(tensor: Tensor, groups: int = 1) -> Tensor:
    """Weights of a convolution, (out, in / groups, kernel of 1 to 3 dimensions), that hands its channels through: 1 in the middle of
    the kernel from channel i to channel i of each group, 0 elsewhere.

    ValueError for other dimensions, or when ``groups`` does not divide ``out``.
    """
    if tensor.ndim not in (3, 4, 5):
        raise ValueError("Only tensors with 3, 4, or 5 dimensions are supported")
    if tensor.shape[0] % groups != 0:
        raise ValueError("dim 0 must be divisible by groups")
    per_group = tensor.shape[0] // groups
    middle = tuple(size // 2 for size in tensor.shape[2:])

    def write() -> None:
        tensor.zero_()
        for group in range(groups):
            for channel in range(min(per_group, tensor.shape[1])):
                tensor[(group * per_group + channel, channel, *middle)] = 1

    return _unrecorded(write, tensor)


def sparse_(tensor: Tensor, sparsity: float, std: float = 0.01, generator: Any = None) -> Tensor:
    """A matrix of normal draws with mean 0 of which in each column the share ``sparsity``, rounded up, is set to 0 (Martens, 2010).

    ValueError unless 2-dimensional.
    """
    if tensor.ndim != 2:
        raise ValueError("Only tensors with 2 dimensions are supported")
    rows, columns = tensor.shape
    zeros = math.ceil(sparsity * rows)

    def write() -> None:
        tensor.normal_(0, std, generator=generator)
        for column in range(columns):
            tensor[_C.functions.randperm(rows, device="cpu")[:zeros].to(tensor.device), column] = 0

    return _unrecorded(write, tensor)


def _deprecated(name: str) -> Callable[..., Tensor]:
    function = globals()[name + "_"]

    def old(*args: Any, **kwargs: Any) -> Tensor:
        warnings.warn(f"nn.init.{name} is now deprecated in favor of nn.init.{name}_", FutureWarning, stacklevel=2)
        return function(*args, **kwargs)

    old.__name__ = name
    old.__doc__ = f"Old name of ``{name}_``."
    return old


for _name in (
    "uniform",
    "normal",
    "constant",
    "eye",
    "xavier_uniform",
    "xavier_normal",
    "kaiming_uniform",
    "kaiming_normal",
    "orthogonal",
    "dirac",
    "sparse",
):
    globals()[_name] = _deprecated(_name)
del _name
