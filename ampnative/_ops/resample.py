"""Sampling at positions that a tensor gives, and shuffles of pixels and channels."""

from __future__ import annotations

import functools
import itertools
import math
import operator

from .. import _C
from .._C import Tensor, autocast
from .._C.functions import where

_BILINEAR, _NEAREST, _BICUBIC = range(3)
_ZEROS, _BORDER, _REFLECTION = range(3)
_SCALAR_NAMES = {"float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double"}


def _check(input: Tensor, grid: Tensor) -> None:
    if input.device != grid.device:
        raise RuntimeError(f"grid_sampler(): expected input and grid to be on same device, but got {input.device} and {grid.device}")
    if not input.is_floating_point():
        dtype = str(input.dtype).partition(".")[2]
        raise NotImplementedError(f"\"grid_sampler\" not implemented for '{dtype}'. Convert the input with .float()")
    if input.dtype != grid.dtype:
        names = [_SCALAR_NAMES.get(str(t.dtype).partition(".")[2], str(t.dtype)) for t in (input, grid)]
        raise RuntimeError(f"grid_sampler(): expected scalar type {names[0]} but found {names[1]}: give input and grid one dtype")
    shapes = f"got input with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}"
    if input.dim() not in (4, 5) or grid.dim() != input.dim():
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but {shapes}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but {shapes}")
    if grid.shape[-1] != input.dim() - 2:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {input.dim() - 2} in last dimension, but {shapes}")
    if 0 in input.shape[2:]:
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but {shapes}")


def _clip(x: Tensor, size: int) -> Tensor:
    """x inside [0, size - 1]; slope 0 from the edges on."""
    return where(x > 0, where(x < size - 1, x, size - 1.0), 0.0)


def _reflect(x: Tensor, size: int, align_corners: bool) -> Tensor:
    """x mirrored at the outer pixels' centres (align_corners) or edges until it lies between them."""
    low, high = (0.0, size - 1.0) if align_corners else (-0.5, size - 0.5)
    span = high - low
    if span == 0:
        return x * 0.0
    distance = (x - low).abs()
    extra = distance.fmod(span)
    odd = (distance / span).floor().fmod(2.0) == 1
    return where(odd, span - extra, extra) + low


def _inside(x: Tensor, size: int, padding_mode: int, align_corners: bool) -> Tensor:
    if padding_mode == _ZEROS:
        return x
    return _clip(_reflect(x, size, align_corners) if padding_mode == _REFLECTION else x, size)


def _take(flat: Tensor, position: list[Tensor], sizes: tuple[int, ...]) -> Tensor:
    """Elements of flat (N, C, product of sizes) at whole positions (N, P) per dimension; 0 outside. (N, C, P)."""
    first = position[0]
    index, outside = first.detach().new_zeros(first.shape).long(), first != first  # no NaN
    for at, size in zip(position, sizes, strict=True):
        gone = (at < 0) | (at >= size)
        outside = outside | gone | at.isnan()
        index = index * size + at.masked_fill(outside, 0.0).long()
    n, points = index.shape
    shape = (n, flat.shape[1], points)
    return flat.gather(2, index.unsqueeze(1).expand(shape)).masked_fill(outside.unsqueeze(1), 0.0)


def _cubic_weights(t: Tensor) -> list[Tensor]:
    """Weights of the four neighbours at distances t + 1, t, 1 - t, 2 - t; slope -0.75 at distance 1."""
    a = -0.75

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]


def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    _check(input, grid)
    if not 0 <= interpolation_mode <= 2 or not 0 <= padding_mode <= 2:
        modes = f"{interpolation_mode} and {padding_mode}"
        raise RuntimeError(f"grid_sampler(): interpolation_mode and padding_mode are 0, 1 or 2, got {modes}")
    dtype, (n, channels), sizes = input.dtype, input.shape[:2], tuple(input.shape[2:])
    shape = (n, channels, *grid.shape[1:-1])
    if 0 in shape:
        return input.new_zeros(shape) + input.sum() * 0 + grid.sum() * 0
    if input.element_size() <= 2:
        input, grid = input.float(), grid.float()
    if len(sizes) == 2 and interpolation_mode != _BICUBIC:
        return _C.nn._grid_sample(input, grid, interpolation_mode, padding_mode, align_corners).to(dtype)
    return _of_ops(input, grid, interpolation_mode, padding_mode, align_corners).to(dtype)


def _of_ops(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Tensor:
    (n, channels), sizes = input.shape[:2], tuple(input.shape[2:])
    points = grid.reshape(n, -1, len(sizes))
    position = []
    for d, size in enumerate(sizes):  # the last coordinate is the first dimension's
        x = points.select(2, len(sizes) - 1 - d)
        position.append((x + 1) * ((size - 1) / 2) if align_corners else ((x + 1) * size - 1) / 2)
    flat = input.reshape(n, channels, math.prod(sizes))
    if interpolation_mode == _BICUBIC:
        out = _sample_cubic(flat, position, sizes, padding_mode, align_corners)
    else:
        position = [_inside(x, size, padding_mode, align_corners) for x, size in zip(position, sizes, strict=True)]
        out = _sample_nearest(flat, position, sizes) if interpolation_mode == _NEAREST else _sample_linear(flat, position, sizes)
    return out.reshape((n, channels, *grid.shape[1:-1]))


def plane_gradients(
    grad: Tensor, input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int, align_corners: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Gradients of the kernel for two dimensions that can be differentiated again."""
    input, grid = input.view(input.shape), grid.view(grid.shape)
    wanted = tuple(x for x in (input, grid) if x.requires_grad)
    with autocast(input.device.type, enabled=False):
        out = _of_ops(input, grid, interpolation_mode, padding_mode, align_corners)
        found = iter(_C._engine_backward((out,), (grad.to(out.dtype),), True, True, wanted, False, True))
    return next(found) if input.requires_grad else None, next(found) if grid.requires_grad else None


grid_sampler_2d = grid_sampler_3d = grid_sampler


def _sample_nearest(flat: Tensor, position: list[Tensor], sizes: tuple[int, ...]) -> Tensor:
    out = _take(flat, [x.round() for x in position], sizes)
    for x in position:  # the grid takes part with slope zero
        if x.requires_grad:
            out = out + x.sign().masked_fill(x == x, 0.0).unsqueeze(1)
    return out


def _sample_linear(flat: Tensor, position: list[Tensor], sizes: tuple[int, ...]) -> Tensor:
    low = [x.detach().floor() for x in position]
    share = [x - whole for x, whole in zip(position, low, strict=True)]
    values = []
    for corner in itertools.product((0, 1), repeat=len(sizes)):
        parts = [s if up else 1 - s for up, s in zip(corner, share, strict=True)]
        weight = functools.reduce(operator.mul, parts)
        values.append(_take(flat, [x + up for x, up in zip(low, corner, strict=True)], sizes) * weight.unsqueeze(1))
    return functools.reduce(operator.add, values)


def _sample_cubic(flat: Tensor, position: list[Tensor], sizes: tuple[int, ...], padding_mode: int, align_corners: bool) -> Tensor:
    weights, neighbours = [], []
    for x, size in zip(position, sizes, strict=True):
        low = x.detach().floor()
        weights.append([w.unsqueeze(1) for w in _cubic_weights(x - low)])
        neighbours.append([_inside(low + k, size, padding_mode, align_corners) for k in (-1, 0, 1, 2)])

    def along(d: int, chosen: list[Tensor]) -> Tensor:
        if d == len(sizes):
            return _take(flat, chosen, sizes)
        parts = [along(d + 1, [*chosen, at]) * w for at, w in zip(neighbours[d], weights[d], strict=True)]
        return parts[0] + parts[1] + parts[2] + parts[3]

    return along(0, [])


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    r = upscale_factor
    if input.dim() < 3:
        raise RuntimeError(f"pixel_shuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_shuffle expects a positive upscale_factor, but got {r}")
    *batch, channels, height, width = input.shape
    if channels % (r * r):
        raise RuntimeError(
            "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of upscale_factor, but "
            f"input.size(-3)={channels} is not divisible by {r * r}"
        )
    k = len(batch)
    parts = input.reshape(*batch, channels // (r * r), r, r, height, width)
    order = (*range(k), k, k + 3, k + 1, k + 4, k + 2)
    return parts.permute(order).clone().reshape(*batch, channels // (r * r), height * r, width * r)


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    r = downscale_factor
    if input.dim() < 3:
        raise RuntimeError(f"pixel_unshuffle expects input to have at least 3 dimensions, but got input with {input.dim()} dimension(s)")
    if r <= 0:
        raise RuntimeError(f"pixel_unshuffle expects a positive downscale_factor, but got {r}")
    *batch, channels, height, width = input.shape
    for name, at, size in (("height", -2, height), ("width", -1, width)):
        if size % r:
            raise RuntimeError(
                f"pixel_unshuffle expects {name} to be divisible by downscale_factor, but input.size({at})={size} is not divisible by {r}"
            )
    k = len(batch)
    parts = input.reshape(*batch, channels, height // r, r, width // r, r)
    order = (*range(k), k, k + 2, k + 4, k + 1, k + 3)
    return parts.permute(order).reshape(*batch, channels * r * r, height // r, width // r)


def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    if input.dim() <= 2:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    n, channels, *rest = input.shape
    if channels % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {channels} channels and {groups} groups.")
    return input.reshape(n, groups, channels // groups, *rest).transpose(1, 2).reshape(input.shape)
