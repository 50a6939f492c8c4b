"""Convolutions and their windows. The convolutions are the C functions themselves."""

from __future__ import annotations

from collections.abc import Sequence

from ... import _C
from ..._C import Tensor

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_tbc",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "fold",
    "unfold",
]

conv1d = _C.nn.conv1d
conv2d = _C.nn.conv2d
conv3d = _C.nn.conv3d
conv_transpose1d = _C.nn.conv_transpose1d
conv_transpose2d = _C.nn.conv_transpose2d
conv_transpose3d = _C.nn.conv_transpose3d
conv_tbc = _C.nn.conv_tbc
_im2col, _col2im = _C.nn.im2col, _C.nn.col2im


def unfold(
    input: Tensor,
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The windows of images as columns: (N, C, H, W) -> (N, C * kernel height * kernel width, windows); N may be missing.

    Any dtype. RuntimeError for other shapes, sizes that are not positive and windows that do not fit.
    """
    if input.dim() == 3:
        return _im2col(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    return _im2col(input, kernel_size, dilation, padding, stride)


def fold(
    input: Tensor,
    output_size: int | Sequence[int],
    kernel_size: int | Sequence[int],
    dilation: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    stride: int | Sequence[int] = 1,
) -> Tensor:
    """The sums of windows as images of `output_size` (H, W), where windows overlap: the adjoint of :func:`unfold`.

    (N, C * kernel height * kernel width, windows) -> (N, C, H, W); N may be missing. Sums of 16-bit dtypes are formed in
    float32. RuntimeError where the sizes do not belong together.
    """
    if input.dim() == 2:
        return _col2im(input.unsqueeze(0), output_size, kernel_size, dilation, padding, stride).squeeze(0)
    return _col2im(input, output_size, kernel_size, dilation, padding, stride)
