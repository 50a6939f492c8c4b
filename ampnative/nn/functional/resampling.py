"""Padding, interpolation, sampling on grids."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from ... import _C
from ..._C import Tensor
from ..._C.functions import linspace, ones

pixel_shuffle = _C.nn.pixel_shuffle
pixel_unshuffle = _C.nn.pixel_unshuffle
channel_shuffle = _C.nn.channel_shuffle

# ---- padding ----

_PADS = {
    "reflect": [_C.nn.reflection_pad1d, _C.nn.reflection_pad2d, _C.nn.reflection_pad3d],
    "replicate": [_C.nn.replication_pad1d, _C.nn.replication_pad2d, _C.nn.replication_pad3d],
    "circular": [_C.nn._pad_circular] * 3,
}


def pad(input: Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Tensor:
    """``input`` with elements added at the ends of its last dimensions, a pair (before, after) for each, the last dimension
    first; negative numbers cut off.

    ``mode``: "constant" (``value``, 0 if None; any number of dimensions), "reflect", "replicate" or "circular" (the last 1, 2
    or 3 dimensions of (C, ...) or (N, C, ...)). RuntimeError for sizes that do not fit, NotImplementedError for combinations
    that do not exist.
    """
    if mode == "constant":
        return _C.functions.constant_pad_nd(input, pad, 0 if value is None else float(value))
    if isinstance(pad, int):
        raise TypeError("pad(): argument 'pad' (position 2) must be tuple of ints, not int")
    if len(pad) % 2:
        raise RuntimeError("Padding length must be divisible by 2: a pair per dimension, the last one first")
    if value is not None and value != 0:
        raise RuntimeError(f'Padding mode "{mode}" doesn\'t take in value argument')
    if mode not in _PADS:
        raise NotImplementedError(f"Unrecognised padding mode {mode}: constant, reflect, replicate and circular exist")
    nd, dims = len(pad) // 2, input.dim()
    if not 1 <= nd <= 3 or dims not in (nd + 1, nd + 2):
        raise NotImplementedError(
            f"Padding size {len(pad)} is not supported for {dims}D input tensor. A padding of 2, 4 or 6 numbers pads the last 1, 2 or "
            "3 dimensions of a tensor with one or two dimensions more"
        )
    return _PADS[mode][nd - 1](input, pad)


# ---- interpolation ----

_MODES = "nearest | linear | bilinear | bicubic | trilinear | lanczos | area | nearest-exact"
_ALIGNABLE = ("linear", "bilinear", "bicubic", "trilinear")
_UPSAMPLE: dict[tuple[int, str], Callable[..., Tensor]] = {
    (3, "nearest"): _C.nn.upsample_nearest1d,
    (4, "nearest"): _C.nn.upsample_nearest2d,
    (5, "nearest"): _C.nn.upsample_nearest3d,
    (3, "nearest-exact"): _C.nn._upsample_nearest_exact1d,
    (4, "nearest-exact"): _C.nn._upsample_nearest_exact2d,
    (5, "nearest-exact"): _C.nn._upsample_nearest_exact3d,
    (3, "linear"): _C.nn.upsample_linear1d,
    (4, "bilinear"): _C.nn.upsample_bilinear2d,
    (5, "trilinear"): _C.nn.upsample_trilinear3d,
    (4, "bicubic"): _C.nn.upsample_bicubic2d,
    (3, "area"): _C.nn.adaptive_avg_pool1d,
    (4, "area"): _C.nn.adaptive_avg_pool2d,
    (5, "area"): _C.nn.adaptive_avg_pool3d,
}
_ANTIALIASED: dict[str, Callable[..., Tensor]] = {
    "bilinear": _C.nn._upsample_bilinear2d_aa,
    "bicubic": _C.nn._upsample_bicubic2d_aa,
    "lanczos": _C.nn._upsample_lanczos2d_aa,
}
_NEEDS = {"linear": 3, "bilinear": 4, "bicubic": 4, "lanczos": 4, "trilinear": 5}


def _per_dimension(value: Any, name: str, input: Tensor) -> list:
    nd = input.dim() - 2
    for one in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(one, (str, bytes)):
            raise TypeError(f"interpolate(): argument '{name.removeprefix('output ')}' must be a number or one per dimension, not {one!r}")
    if not isinstance(value, (list, tuple)):
        return [value] * nd
    if len(value) != nd:
        raise ValueError(
            f"Input and {name} must have the same number of spatial dimensions, but got input with spatial dimensions of "
            f"{list(input.shape[2:])} and {name} of {'shape ' if name == 'scale_factor' else ''}{value}. Give (N, C, spatial...) and one "
            "number per spatial dimension"
        )
    return list(value)


def _bytes_resampled(
    function: Callable[..., Tensor], input: Tensor, size: list[int], align_corners: bool | None, scales: list[float | None]
) -> Tensor:
    """Images of bytes: rows first, then columns, each pass with weights of 16 bits and rounded to bytes, as PyTorch does."""
    for dim in (3, 2):
        n, scale = input.size(dim), scales[dim - 2]
        line = _C.functions.eye(n, dtype=_C.float64, device=input.device).reshape(1, 1, n, n)
        weight = function(line, [n, size[dim - 2]], align_corners, None, scale)[0, 0]
        bits = 0
        while bits < 22 and int(0.5 + float(weight.max()) * 2.0 ** (bits + 1)) < 2**15:
            bits += 1
        whole = (weight.abs() * 2.0**bits + 0.5).floor() * weight.sign()
        total = (input.double().transpose(dim, 3) @ whole).transpose(dim, 3) + 2.0 ** (bits - 1)  # exact: far below 2**53
        input = (total / 2.0**bits).floor().clamp(0, 255).to(_C.uint8)
    return input


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """(N, C, spatial...) to the spatial ``size`` or to ``scale_factor`` times its own.

    ``mode``: "nearest", "nearest-exact", "area" (1 to 3 spatial dimensions), "linear" (1), "bilinear", "bicubic", "lanczos" (2),
    "trilinear" (3). ``align_corners`` puts the corner elements of input and output on each other. ``antialias`` (bilinear,
    bicubic, lanczos) widens the filter when shrinking. ``recompute_scale_factor``: the scale that is used is that of the sizes.
    """
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: " + " | ".join(_ALIGNABLE))
    elif align_corners is None:
        align_corners = False
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is None and scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    if antialias and not (mode in _ANTIALIASED and input.dim() == 4):
        raise ValueError("Anti-alias option is restricted to bilinear, bicubic, and lanczos modes and requires a 4-D tensor as input")
    scales = None
    if size is not None:
        if recompute_scale_factor:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        size = _per_dimension(size, "output size", input)
    else:
        scales = _per_dimension(scale_factor, "scale_factor", input)
        size = [math.floor(own * float(scale)) for own, scale in zip(input.shape[2:], scales, strict=True)]
        if recompute_scale_factor:
            scales = None
    if mode == "lanczos" and align_corners:
        raise ValueError("Lanczos mode does not support align_corners=True")
    if mode == "lanczos" and input.dim() == 4 and not antialias:
        raise ValueError("lanczos mode requires antialias=True")
    function = _ANTIALIASED[mode] if antialias else _UPSAMPLE.get((input.dim(), mode))
    if function is None and mode in _NEEDS and input.dim() in (3, 4, 5):
        raise NotImplementedError(f"Got {input.dim()}D input, but {mode} mode needs {_NEEDS[mode]}D input")
    if function is None:
        raise NotImplementedError(
            f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.dim()}D) for the modes: {_MODES} (got {mode})"
        )
    if mode == "area":
        return function(input, size)
    scales = [None] * len(size) if scales is None else [float(s) for s in scales]
    if input.dtype == _C.uint8 and mode in ("bilinear", "bicubic"):
        return _bytes_resampled(function, input, size, align_corners, scales)
    return function(input, size, *scales) if align_corners is None else function(input, size, align_corners, *scales)


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """Deprecated spelling of :func:`interpolate`."""
    warnings.warn("`nn.functional.upsample` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode, align_corners)


def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Deprecated spelling of :func:`interpolate` with mode "nearest"."""
    warnings.warn("`nn.functional.upsample_nearest` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="nearest")


def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """Deprecated spelling of :func:`interpolate` with mode "bilinear" and align_corners=True."""
    warnings.warn("`nn.functional.upsample_bilinear` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=2)
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# ---- grids ----

_SAMPLING = {"bilinear": 0, "nearest": 1, "bicubic": 2}
_OUTSIDE = {"zeros": 0, "border": 1, "reflection": 2}


def _default_align(name: str) -> bool:
    warnings.warn(f"Default {name} behavior is align_corners=False. Name align_corners if another one is wanted.", stacklevel=3)
    return False


def grid_sample(
    input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """input (N, C, H, W) read at the positions grid (N, H', W', 2), or (N, C, D, H, W) at (N, D', H', W', 3): (N, C, ...').

    Coordinates run from -1 to 1 over the input, x first; both tensors have one floating dtype. ``mode``: "bilinear", "nearest",
    "bicubic". ``padding_mode``, for positions outside: "zeros", "border", "reflection". Differentiable by both.
    """
    if mode not in _SAMPLING:
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: '{mode}'")
    if padding_mode not in _OUTSIDE:
        raise ValueError(
            f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but got: '{padding_mode}'"
        )
    if align_corners is None:
        align_corners = _default_align("grid_sample")
    return _C.functions.grid_sampler(input, grid, _SAMPLING[mode], _OUTSIDE[padding_mode], align_corners)


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The grid (N, H, W, 2) for :func:`grid_sample` that maps an output of ``size`` (N, C, H, W) by theta (N, 2, 3); (N, D, H, W, 3)
    by theta (N, 3, 4) for five sizes. A batched product, under autocast as one."""
    if align_corners is None:
        align_corners = _default_align("affine_grid")
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    nd = len(size) - 2
    if nd not in (2, 3):
        raise NotImplementedError(
            f"affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. Got size {tuple(size)}."
        )
    if theta.dim() != 3 or tuple(theta.shape[1:]) != (nd, nd + 1):
        raise ValueError(
            f"Expected a batch of {nd}D affine matrices of shape Nx{nd}x{nd + 1} for size {tuple(size)}. Got {tuple(theta.shape)}."
        )
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {tuple(size)}")
    spatial = tuple(size[2:])
    base = ones(*spatial, nd + 1, dtype=theta.dtype, device=theta.device)
    for d, n in enumerate(reversed(spatial)):  # x first: it belongs to the last dimension
        edge = 0.0 if n <= 1 else 1.0 if align_corners else (n - 1) / n
        line = linspace(-edge, edge, n, dtype=theta.dtype, device=theta.device)
        base.select(nd, d).copy_(line.reshape(n, *[1] * d))
    base = base.reshape(1, -1, nd + 1).expand(size[0], math.prod(spatial), nd + 1)
    return base.bmm(theta.transpose(1, 2)).reshape(size[0], *spatial, nd)
