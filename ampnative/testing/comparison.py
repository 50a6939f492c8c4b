"""assert_close: whether values agree within a tolerance, and where they do not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor

__all__ = ["assert_close", "default_tolerances"]

# relative, absolute; dtypes that are not listed (integers, bool) are compared exactly
_TOLERANCES = {
    _C.float16: (1e-3, 1e-5),
    _C.bfloat16: (1.6e-2, 1e-5),
    _C.float32: (1.3e-6, 1e-5),
    _C.float64: (1e-7, 1e-7),
    _C.complex64: (1.3e-6, 1e-5),
    _C.complex128: (1e-7, 1e-7),
}
_SCALARS = (bool, int, float, complex, np.bool_, np.number)
_PYTHON_DTYPES = {bool: _C.bool, int: _C.int64, float: _C.float64, complex: _C.complex128}


def default_tolerances(*dtypes: Any) -> tuple[float, float]:
    """(rtol, atol): the largest of the dtypes'."""
    pairs = [_TOLERANCES.get(d, (0.0, 0.0)) for d in dtypes]
    return max(p[0] for p in pairs), max(p[1] for p in pairs)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError unless ``|actual - expected| <= atol + rtol * |expected|`` everywhere and shape, dtype and device agree.

    Takes tensors, arrays, numbers, None, and sequences and mappings of those. Tolerances default to the dtype's (give both or
    none); integers must be equal. ``msg``: another text, or a function of the text.

    Raises:
        AssertionError: they differ; the text says where, and by how much.
        TypeError: values of kinds that cannot be compared.
        ValueError: only one of rtol and atol is given.
    """
    if (rtol is None) != (atol is None):
        missing = "atol" if atol is None else "rtol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or omitted, but got no {missing}.")
    options = dict(
        allow_subclasses=allow_subclasses, tolerances=None if rtol is None else (rtol, atol), equal_nan=equal_nan,
        check_device=check_device, check_dtype=check_dtype, check_stride=check_stride,
    )  # fmt: skip
    try:
        pairs = list(_pairs(actual, expected, ()))
        for a, b, path in pairs:
            text = _difference(a, b, options)
            if text:
                raise AssertionError(text + _place(path))
    except AssertionError as error:
        if msg is None:
            raise AssertionError(str(error)) from None
        raise AssertionError(msg if isinstance(msg, str) else msg(str(error))) from None


def _place(path: tuple) -> str:
    return "\n\nThe failure occurred for item " + "".join(f"[{key!r}]" for key in path) if path else ""


def _pairs(actual: Any, expected: Any, path: tuple) -> Iterator[tuple[Any, Any, tuple]]:
    text = (str, bytes)
    if isinstance(actual, Sequence) and isinstance(expected, Sequence) and not isinstance(actual, text):
        if len(actual) != len(expected):
            raise AssertionError(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}" + _place(path))
        for i, (a, b) in enumerate(zip(actual, expected, strict=True)):
            yield from _pairs(a, b, (*path, i))
    elif isinstance(actual, Mapping) and isinstance(expected, Mapping):
        if actual.keys() != expected.keys():
            raise AssertionError(
                "The keys of the mappings do not match:\n"
                f"Missing keys in the actual mapping: {sorted(expected.keys() - actual.keys(), key=str)}\n"
                f"Additional keys in the actual mapping: {sorted(actual.keys() - expected.keys(), key=str)}" + _place(path)
            )
        for key in actual:
            yield from _pairs(actual[key], expected[key], (*path, key))
    else:
        yield actual, expected, path


def _difference(actual: Any, expected: Any, options: dict[str, Any]) -> str:
    """What is different, or an empty text."""
    if actual is None or expected is None:
        return "" if actual is expected else f"None mismatch: {actual} is not {expected}"
    if isinstance(actual, _SCALARS) and isinstance(expected, _SCALARS):
        return _numbers(actual, expected, options)
    for kind in (Tensor, np.ndarray):
        if isinstance(actual, kind) and isinstance(expected, kind):
            alike = options["allow_subclasses"] or type(actual) is type(expected)
            if alike:
                return _tensors(actual, expected, options)
    raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _numbers(actual: Any, expected: Any, options: dict[str, Any]) -> str:
    if options["check_dtype"] and type(actual) is not type(expected):
        return f"The (d)types do not match: {type(actual)} != {type(expected)}."
    dtypes = [_PYTHON_DTYPES.get(type(v)) or _C.as_tensor(v).dtype for v in (actual, expected)]
    rtol, atol = options["tolerances"] or default_tolerances(*dtypes)
    return _scalar_text(actual, expected, rtol, atol, options["equal_nan"])


def _scalar_text(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> str:
    if a == b or (equal_nan and a != a and b != b):
        return ""
    error = abs(a - b) if not isinstance(a, bool) else abs(int(a) - int(b))
    finite = not (abs(complex(a)) == np.inf or abs(complex(b)) == np.inf)
    if finite and error <= atol + rtol * abs(b):
        return ""
    relative = error / abs(b) if b else np.inf
    equal = rtol == 0 and atol == 0
    limits = ("", "") if equal else (f" (up to {atol} allowed)", f" (up to {rtol} allowed)")
    return (
        f"Scalars are not {'equal' if equal else 'close'}!\n\nExpected {b} but got {a}.\nAbsolute difference: {error}{limits[0]}\n"
        f"Relative difference: {float(relative)}{limits[1]}"
    )


def _attribute(name: str, a: Any, b: Any) -> str:
    return f"The values for attribute '{name}' do not match: {a} != {b}."


def _tensors(actual: Any, expected: Any, options: dict[str, Any]) -> str:
    arrays = isinstance(actual, np.ndarray)
    if tuple(actual.shape) != tuple(expected.shape):
        return _attribute("shape", actual.shape, expected.shape)
    if not arrays and options["check_device"] and actual.device != expected.device:
        return _attribute("device", actual.device, expected.device)
    if options["check_dtype"] and actual.dtype != expected.dtype:
        return _attribute("dtype", actual.dtype, expected.dtype)
    if not arrays and options["check_stride"] and actual.stride() != expected.stride():
        return _attribute("stride()", actual.stride(), expected.stride())
    dtypes = [_C.as_tensor(t).dtype if arrays else t.dtype for t in (actual, expected)]
    rtol, atol = options["tolerances"] or default_tolerances(*dtypes)
    a, b = _values(actual, *dtypes), _values(expected, *dtypes)
    if a.ndim == 0:
        return _scalar_text(a.item(), b.item(), rtol, atol, options["equal_nan"])
    return _array_text(a, b, rtol, atol, options["equal_nan"])


def _values(tensor: Any, *dtypes: Any) -> np.ndarray:
    """As an array that holds both dtypes: complex128, float64, or the integers that they are."""
    if not isinstance(tensor, np.ndarray):
        tensor = tensor.detach().cpu()
        if any(d.is_complex for d in dtypes):
            return tensor.to(_C.complex128).numpy()
        if any(d.is_floating_point for d in dtypes):
            return tensor.double().numpy()
        return tensor.to(_C.int64).numpy()
    if any(d.is_complex or d.is_floating_point for d in dtypes):
        return tensor.astype(np.complex128 if any(d.is_complex for d in dtypes) else np.float64)
    return tensor.astype(np.int64)


def _array_text(a: np.ndarray, b: np.ndarray, rtol: float, atol: float, equal_nan: bool) -> str:
    with np.errstate(all="ignore"):
        error = np.abs(a - b)
        close = (a == b) | (np.isfinite(a) & np.isfinite(b) & (error <= atol + rtol * np.abs(b)))
        if equal_nan:
            close |= np.isnan(a) & np.isnan(b)
        if close.all():
            return ""
        relative = error / np.abs(b)
    wrong = ~close
    equal = rtol == 0 and atol == 0
    lines = [f"Mismatched elements: {wrong.sum()} / {wrong.size} ({wrong.mean():.1%})"]
    for name, values, limit in (("absolute", error, atol), ("relative", relative, rtol)):
        shown = np.where(wrong, values, -1.0)
        shown = np.where(np.isnan(shown), np.inf if not np.isnan(values[wrong]).all() else np.nan, shown)
        flat = int(np.nanargmax(shown)) if not np.isnan(shown).all() else int(np.flatnonzero(wrong)[0])
        index = tuple(int(i) for i in np.unravel_index(flat, wrong.shape))
        allowed = "" if equal else f" (up to {limit} allowed)"
        lines.append(f"Greatest {name} difference: {values[index].item()} at index {index}{allowed}")
    return f"Tensor-likes are not {'equal' if equal else 'close'}!\n\n" + "\n".join(lines)
