"""Fourier transforms through NumPy, and complex numbers made of pairs. Complex tensors carry no gradient."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor
from ._common import joined_shape
from ._matrix import array, refuse_gradient, shown, tensor

_REAL_OF = {_C.complex64: _C.float32, _C.complex128: _C.float64, _C.complex32: _C.float16}
_COMPLEX_OF = {real: whole for whole, real in _REAL_OF.items()}
_NORMS = (None, "backward", "ortho", "forward")


def _prepared(name: str, x: Tensor, norm: str | None, real: bool = False) -> tuple[np.ndarray, Any]:
    """The values, and the real dtype of what is computed."""
    if x.dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        if x.is_floating_point() or x.is_complex():
            raise NotImplementedError(f"{name}: Unsupported dtype {shown(x.dtype)}: convert with .float(), or use autocast")
        x = x.to(_C.get_default_dtype())
    if real and x.is_complex():
        raise TypeError(f"{name} expects a real input tensor, but got {x.dtype}")
    if norm not in _NORMS:
        raise RuntimeError(f'{name}: Invalid normalization mode: "{norm}": it is "backward", "ortho" or "forward"')
    refuse_gradient(f"{name} (its other side is complex)", x)
    return array(x), _REAL_OF.get(x.dtype, x.dtype)


def _finished(values: np.ndarray, real: Any, like: Tensor) -> Tensor:
    dtype = (_COMPLEX_OF[real] if np.iscomplexobj(values) else real).dtype
    return tensor(values.astype(dtype, copy=False), like)


def _along(x: Tensor, dim: int) -> int:
    n = x.dim()
    if not n:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


def _check_points(n: int) -> None:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")


def _transform(name: str, function: Callable[..., Any], real: bool = False, half: bool = False) -> Callable[..., Tensor]:
    """One dimension. `half`: the input is the half of a spectrum, n counts the result."""

    def body(input: Tensor, n: int | None, dim: int, norm: str | None) -> Tensor:
        values, dtype = _prepared(name, input, norm, real)
        axis = _along(input, dim)
        points = n if n is not None else 2 * (input.size(axis) - 1) if half else input.size(axis)
        _check_points(points)
        return _finished(function(values, points, axis, norm), dtype, input)

    return body


fft_fft = _transform("fft", np.fft.fft)
fft_ifft = _transform("ifft", np.fft.ifft)
fft_rfft = _transform("rfft", np.fft.rfft, real=True)
fft_irfft = _transform("irfft", np.fft.irfft, half=True)
fft_hfft = _transform("hfft", np.fft.hfft, half=True)
fft_ihfft = _transform("ihfft", np.fft.ihfft, real=True)


def _dims(x: Tensor, s: Sequence[int] | None, dim: Sequence[int] | None) -> tuple[list[int], list[int]]:
    """Dimensions and sizes; -1 keeps a size."""
    if dim is None:
        count = x.dim() if s is None else len(s)
        if count > x.dim():
            raise RuntimeError(f"Got shape with {count} values but input tensor only has {x.dim()} dimensions.")
        dims = list(range(x.dim() - count, x.dim()))
    else:
        dims = [_along(x, d) for d in dim]
    if len(set(dims)) != len(dims):
        raise RuntimeError(f"FFT dims must be unique, but got {dim}")
    sizes = list(s) if s is not None else [-1] * len(dims)
    if len(sizes) != len(dims):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    return dims, sizes


def _transform_n(
    name: str, function: Callable[..., Any], real: bool = False, half: bool = False, two: bool = False
) -> Callable[..., Tensor]:
    """Several dimensions, of which with `two` the last two are the default."""

    def body(input: Tensor, s: Sequence[int] | None, dim: Sequence[int] | None, norm: str | None) -> Tensor:
        values, dtype = _prepared(name, input, norm, real)
        dims, sizes = _dims(input, s, (-2, -1) if two and dim is None else dim)
        if not dims:
            if half or real:
                raise RuntimeError(f"{name} must transform at least one axis")
            return _finished(values.astype(_COMPLEX_OF[dtype].dtype), dtype, input)
        sizes = [n if n != -1 else input.size(d) for n, d in zip(sizes, dims, strict=True)]
        if half and (s is None or s[-1] == -1):
            sizes[-1] = 2 * (input.size(dims[-1]) - 1)
        for n in sizes:
            _check_points(n)
        return _finished(function(values, sizes, dims, norm), dtype, input)

    return body


fft_fftn = _transform_n("fftn", np.fft.fftn)
fft_ifftn = _transform_n("ifftn", np.fft.ifftn)
fft_rfftn = _transform_n("rfftn", np.fft.rfftn, real=True)
fft_irfftn = _transform_n("irfftn", np.fft.irfftn, half=True)
def _hermitian(values: np.ndarray, sizes: Sequence[int], dims: Sequence[int], norm: Any) -> np.ndarray:
    return np.fft.hfft(np.fft.fftn(values, sizes[:-1], dims[:-1], norm), sizes[-1], dims[-1], norm)


def _half_of_hermitian(values: np.ndarray, sizes: Sequence[int], dims: Sequence[int], norm: Any) -> np.ndarray:
    return np.fft.ifftn(np.fft.ihfft(values, sizes[-1], dims[-1], norm), sizes[:-1], dims[:-1], norm)


fft_hfftn = _transform_n("hfftn", _hermitian, half=True)
fft_ihfftn = _transform_n("ihfftn", _half_of_hermitian, real=True)
fft_fft2 = _transform_n("fft2", np.fft.fftn, two=True)
fft_ifft2 = _transform_n("ifft2", np.fft.ifftn, two=True)
fft_rfft2 = _transform_n("rfft2", np.fft.rfftn, real=True, two=True)
fft_irfft2 = _transform_n("irfft2", np.fft.irfftn, half=True, two=True)


# ---- short-time transforms ----


def _window(name: str, window: Tensor | None, win_length: int, n_fft: int, dtype: Any) -> np.ndarray:
    """Of length n_fft, the given one in its middle."""
    if window is None:
        values = np.ones(win_length, dtype=dtype)
    elif window.shape != (win_length,):
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size {list(window.shape)}"
        )
    else:
        values = array(window).astype(dtype)
    left = (n_fft - win_length) // 2
    return np.pad(values, (left, n_fft - win_length - left))


def _lengths(name: str, n_fft: int, hop_length: int | None, win_length: int | None, window: Tensor | None) -> tuple[int, int]:
    hop = n_fft // 4 if hop_length is None else hop_length
    length = n_fft if win_length is None else win_length
    if hop <= 0:
        raise RuntimeError(f"{name}: expected hop_length > 0, but got hop_length={hop}")
    if not 0 < length <= n_fft:
        raise RuntimeError(f"{name}: expected 0 < win_length <= n_fft, but got win_length={length}")
    if window is None and n_fft > 1:
        warnings.warn(
            f"{name}: A window was not provided. A rectangular window will be applied, which is known to cause spectral leakage. Give "
            "window=torch.hann_window(n_fft), or torch.ones(n_fft) if that is meant.",
            stacklevel=3,
        )
    return hop, length


def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    center: bool,
    pad_mode: str,
    normalized: bool,
    onesided: bool | None,
    return_complex: bool | None,
    align_to_window: bool | None,
) -> Tensor:
    if center and align_to_window is not None:
        raise RuntimeError("stft only supports align_to_window for center = False.")
    hop, length = _lengths("stft", n_fft, hop_length, win_length, window)
    joint = input.dtype if window is None else _C.promote_types(input.dtype, window.dtype)
    if joint in (_C.float16, _C.bfloat16):
        raise NotImplementedError(f"stft doesn't support tensors of type {shown(joint)}: convert with .float(), or use autocast")
    if not joint.is_floating_point and not joint.is_complex:
        raise RuntimeError(f"stft: expected a tensor of floating point or complex values, but got {input.dtype}")
    if return_complex is None and not joint.is_complex:
        raise RuntimeError("stft requires the return_complex parameter be given for real inputs: give return_complex=True")
    if return_complex is False:
        warnings.warn("stft with return_complex=False is deprecated. Use view_as_real on the complex result.", stacklevel=2)
    refuse_gradient("stft (its result is complex)", input, *([] if window is None else [window]))
    if input.dim() not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {list(input.shape)}")
    values = array(input.to(joint))
    signal = values if values.ndim == 2 else values[None]
    if center:
        if pad_mode == "reflect" and n_fft // 2 >= signal.shape[1]:
            raise RuntimeError(
                "stft: Padding size should be less than the corresponding input dimension, but got: "
                f"padding {n_fft // 2} of {signal.shape[1]}"
            )
        modes = {"reflect": "reflect", "constant": "constant", "replicate": "edge", "circular": "wrap"}
        if pad_mode not in modes:
            raise NotImplementedError(f"stft: unrecognised padding mode {pad_mode}: it is one of {', '.join(modes)}")
        signal = np.pad(signal, ((0, 0), (n_fft // 2, n_fft // 2)), modes[pad_mode])  # type: ignore[call-overload]
    if not 0 < n_fft <= signal.shape[1]:
        raise RuntimeError(f"stft: expected 0 < n_fft <= {signal.shape[1]}, but got n_fft={n_fft}")
    frames = np.lib.stride_tricks.sliding_window_view(signal, n_fft, 1)[:, ::hop] * _window("stft", window, length, n_fft, signal.dtype)
    scale: Any = "ortho" if normalized else "backward"
    if np.iscomplexobj(frames) or onesided is False:
        if onesided and np.iscomplexobj(frames):
            raise RuntimeError("Cannot have onesided output if window or input is complex")
        spectrum = np.fft.fft(frames, axis=-1, norm=scale)
    else:
        spectrum = np.fft.rfft(frames, axis=-1, norm=scale)
    spectrum = spectrum.swapaxes(1, 2)
    result = _finished(spectrum if values.ndim == 2 else spectrum[0], _REAL_OF.get(joint, joint), input)
    return view_as_real(result) if return_complex is False else result


def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None,
    win_length: int | None,
    window: Tensor | None,
    center: bool,
    normalized: bool,
    onesided: bool | None,
    length: int | None,
    return_complex: bool,
) -> Tensor:
    if not input.is_complex():
        raise TypeError("istft requires a complex-valued input tensor matching the output from stft with return_complex=True.")
    hop, width = _lengths("istft", n_fft, hop_length, win_length, window)
    real = _REAL_OF[input.dtype]
    half = onesided if onesided is not None else input.size(-2) != n_fft
    if half and return_complex:
        raise RuntimeError("cannot have onesided output if window or input is complex")
    rows = n_fft // 2 + 1 if half else n_fft
    if input.dim() not in (2, 3) or input.size(-2) != rows or not input.size(-1):
        raise RuntimeError(f"istft: expected {rows} rows and at least one frame, but got {list(input.shape)}")
    values = array(input)
    spectrum = (values if values.ndim == 3 else values[None]).swapaxes(1, 2)
    scale: Any = "ortho" if normalized else "backward"
    one_half = spectrum[..., : n_fft // 2 + 1]  # tells a real signal
    frames = np.fft.ifft(spectrum, n_fft, norm=scale) if return_complex else np.fft.irfft(one_half, n_fft, norm=scale)
    weights = _window("istft", window, width, n_fft, real.dtype)
    count = frames.shape[1]
    total = n_fft + hop * (count - 1)
    signal, envelope = np.zeros((len(frames), total), dtype=frames.dtype), np.zeros(total)
    for t in range(count):
        signal[:, t * hop : t * hop + n_fft] += frames[:, t] * weights
        envelope[t * hop : t * hop + n_fft] += weights * weights
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - start
    signal, envelope = signal[:, start : min(end, total)], envelope[start : min(end, total)]
    if envelope.size and envelope.min() < 1e-11:
        raise RuntimeError(f"istft: window overlap add min: {envelope.min():g}: these windows do not cover the signal, which is lost there")
    signal = signal / envelope
    if length is not None and signal.shape[1] < length:
        signal = np.pad(signal, ((0, 0), (0, length - signal.shape[1])))
    return _finished(signal if values.ndim == 3 else signal[0], real, input)


# ---- pairs ----


def _check_pair(real: Tensor, imag: Tensor) -> None:
    allowed = (_C.float16, _C.float32, _C.float64)
    if real.dtype not in allowed or imag.dtype not in allowed:
        kind = NotImplementedError if real.device.type == "cpu" else RuntimeError
        raise kind(f"Expected both inputs to be Half, Float or Double tensors but got {shown(real.dtype)} and {shown(imag.dtype)}")
    if real.dtype != imag.dtype:
        raise RuntimeError(
            f"Expected object of scalar type {shown(real.dtype)} but got scalar type {shown(imag.dtype)} for second argument"
        )
    refuse_gradient("a complex tensor", real, imag)


def complex(real: Tensor, imag: Tensor) -> Tensor:
    _check_pair(real, imag)
    shape = joined_shape(real.shape, imag.shape)
    pairs = _C.functions.stack([real.expand(shape), imag.expand(shape)], -1)
    return pairs.view(_COMPLEX_OF[real.dtype]).squeeze(-1)


def polar(abs: Tensor, angle: Tensor) -> Tensor:
    _check_pair(abs, angle)
    if abs.dtype == _C.float16:
        size, phase = abs.float(), angle.float()
        return complex((size * phase.cos()).half(), (size * phase.sin()).half())
    return complex(abs * angle.cos(), abs * angle.sin())


def view_as_complex(input: Tensor) -> Tensor:
    if input.is_complex():
        raise TypeError(f"view_as_complex is not supported for complex tensors, but got {input.dtype}")
    if input.dtype not in _COMPLEX_OF:
        raise NotImplementedError(
            f"view_as_complex is only supported for half, float and double tensors, but got a tensor of scalar type: {shown(input.dtype)}"
        )
    if not input.dim():
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.size(-1) != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, but its shape is {list(input.shape)}")
    if input.stride(-1) != 1:
        raise RuntimeError("Tensor must have a last dimension with stride 1")
    if input.storage_offset() % 2 or any(s % 2 for s in input.stride()[:-1]):
        raise RuntimeError("Tensor must have a storage_offset and strides (but the last) divisible by 2: call .contiguous() first")
    refuse_gradient("view_as_complex", input)
    return input.view(_COMPLEX_OF[input.dtype]).squeeze(-1)


def view_as_real(input: Tensor) -> Tensor:
    if input.dtype not in _REAL_OF:
        raise TypeError(f"view_as_real is only supported for complex tensors, but got {input.dtype}")
    return input.unsqueeze(-1).view(_REAL_OF[input.dtype])
