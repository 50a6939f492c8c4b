"""How tensors are printed: PyTorch's rules, worked on ndarrays so that they can be tested without tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

# precision: digits after the point; threshold: elements above which the middle is left out; edgeitems: elements kept at
# each end then; linewidth: characters per line; sci_mode: scientific notation, None decides by the values.
_DEFAULT = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}
_PROFILES: dict[str, dict[str, Any]] = {
    "default": _DEFAULT,
    "short": {**_DEFAULT, "precision": 2, "edgeitems": 2},
    "full": {**_DEFAULT, "threshold": math.inf},
}
_options = SimpleNamespace(**_DEFAULT)


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """Set how tensors are printed; what is None stays as it is, except ``sci_mode``, which None sets back to automatic.

    ``profile`` is "default", "short" or "full" (ValueError otherwise) and applies before the other arguments.
    """
    global _options
    options = vars(_options)
    if profile is not None:
        if profile not in _PROFILES:
            raise ValueError(f"unknown profile {profile!r}: choose from {', '.join(_PROFILES)}")
        options = _PROFILES[profile]
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changed = {k: v for k, v in given.items() if v is not None}
    _options = SimpleNamespace(**{**options, **changed, "sci_mode": sci_mode})


def get_printoptions() -> dict[str, Any]:
    """The current options as a dict that ``set_printoptions`` takes."""
    return dict(vars(_options))


@contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """``set_printoptions(**kwargs)`` for the duration of a ``with`` block."""
    global _options
    saved = _options
    try:
        set_printoptions(**kwargs)
        yield
    finally:
        _options = saved


# One formatter is chosen for all elements that will be shown, so that columns line up.


def _needs_exponent(smallest: float, largest: float, integral: bool) -> bool:
    return largest / smallest > 1000.0 or largest > 1.0e8 or (not integral and smallest < 1.0e-4)


def _float_formatter(values: np.ndarray) -> tuple[Callable[[float], str], int]:
    """A function that formats one number, and the width of a column, for real float64 values of any shape."""
    precision = _options.precision
    counted = values[np.isfinite(values) & (values != 0)]
    width, exponent, integral = 1, False, True
    if counted.size:
        magnitude = np.abs(counted)
        smallest, largest = float(magnitude.min()), float(magnitude.max())
        integral = bool((counted == np.ceil(counted)).all())
        with np.errstate(over="ignore"):
            exponent = _needs_exponent(smallest, largest, integral)
        if _options.sci_mode is not None:
            exponent = _options.sci_mode
        spec = f".{precision}e" if exponent else ".0f" if integral else f".{precision}f"
        point = 1 if integral and not exponent else 0
        width = max(len(format(v, spec)) for v in counted.tolist()) + point

    def show(value: float) -> str:
        if exponent:
            text = format(value, f".{precision}e")
        elif integral:
            text = format(value, ".0f") + ("." if math.isfinite(value) else "")
        else:
            text = format(value, f".{precision}f")
        return text.rjust(width)

    return show, width


def _formatter(shown: np.ndarray) -> tuple[Callable[[Any], str], int]:
    kind = shown.dtype.kind
    if kind in "biu":
        width = max((len(str(v)) for v in shown.ravel().tolist()), default=1)
        return (lambda value: str(value).rjust(width)), width
    if kind == "c":
        flat = shown.ravel().astype(np.complex128)
        show_real, real_width = _float_formatter(flat.real)
        show_imag, imag_width = _float_formatter(flat.imag)

        def show(value: complex) -> str:
            imag = show_imag(value.imag).lstrip() + "j"
            return show_real(value.real) + (imag if imag[0] in "+-" else "+" + imag)

        return show, real_width + imag_width + 1
    return _float_formatter(shown.ravel().astype(np.float64))


def _ends(array: np.ndarray) -> np.ndarray:
    """The elements that remain when the middle of every long dimension is left out."""
    edge = _options.edgeitems
    for axis, size in enumerate(array.shape):
        if size > 2 * edge:
            array = np.take(array, [*range(edge), *range(size - edge, size)], axis=axis)
    return array


def _vector(array: np.ndarray, indent: int, show: Callable[[Any], str], width: int, summarize: bool) -> str:
    edge, size = _options.edgeitems, len(array)
    if summarize and not edge:
        items = ["..."]
    elif summarize and size > 2 * edge:
        items = [*map(show, array[:edge].tolist()), " ...", *map(show, array[size - edge :].tolist())]
    else:
        items = [show(v) for v in array.tolist()]
    per_line = max(1, (_options.linewidth - indent) // (width + 2))
    lines = [", ".join(items[i : i + per_line]) for i in range(0, len(items), per_line)]
    return "[" + (",\n" + " " * (indent + 1)).join(lines) + "]"


def _nested(array: np.ndarray, indent: int, show: Callable[[Any], str], width: int, summarize: bool) -> str:
    if array.ndim == 0:
        return show(array.item())
    if array.ndim == 1:
        return _vector(array, indent, show, width, summarize)
    edge, size = _options.edgeitems, len(array)
    if summarize and size > 2 * edge:
        parts = [_nested(array[i], indent + 1, show, width, summarize) for i in range(edge)]
        parts.append("...")
        parts += [_nested(array[i], indent + 1, show, width, summarize) for i in range(size - edge, size)]
    else:
        parts = [_nested(row, indent + 1, show, width, summarize) for row in array]
    return "[" + ("," + "\n" * (array.ndim - 1) + " " * (indent + 1)).join(parts) + "]"


def format_array(array: np.ndarray, indent: int = 0) -> str:
    """The numbers of an ndarray (bool, integer, float, complex or ml_dtypes; any shape) in brackets.

    Continuation lines are indented by ``indent``.
    """
    if array.dtype.kind not in "biufc" or (array.dtype.itemsize == 1 and array.dtype.kind == "f"):
        array = array.astype(np.float32)
    summarize = array.size > _options.threshold
    show, width = _formatter(_ends(array) if summarize else array)
    return _nested(array, indent, show, width, summarize)


def assemble(body: str, suffixes: Sequence[str], prefix: str = "tensor(") -> str:
    """``prefix + body``, then the suffixes, each on the last line if it fits and on a new one if not, and a bracket."""
    indent = len(prefix)
    text = prefix + body
    column = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if column + len(suffix) + 2 > _options.linewidth:
            text += ",\n" + " " * indent + suffix
            column = indent + len(suffix)
        else:
            text += ", " + suffix
            column += len(suffix) + 2
    return text + ")"


def describe(
    array: np.ndarray | None,
    shape: Sequence[int],
    dtype: str,
    *,
    usual_dtype: bool,
    default_dtype: bool,
    device: str = "",
    history: str = "",
) -> str:
    """The full text for the values ``array`` (None: a meta tensor).

    usual_dtype: the dtype is one that a literal would get (default float, its complex, int64, bool); default_dtype: it
    is the default float; device and history: suffixes such as ``device='cuda:0'`` and ``requires_grad=True``, or "".
    """
    suffixes = [device] if device else []
    show_dtype = not usual_dtype
    if array is None:
        body = "..."
        suffixes.append(f"size={tuple(shape)}")
        show_dtype = not default_dtype
    elif array.size == 0:
        body = "[]"
        if len(shape) != 1:
            suffixes.append(f"size={tuple(shape)}")
        show_dtype = not default_dtype
    else:
        body = format_array(array, len("tensor("))
        if not _options.edgeitems:
            suffixes.append(f"size={tuple(shape)}")
    if show_dtype:
        suffixes.append(f"dtype={dtype}")
    if history:
        suffixes.append(history)
    return assemble(body, suffixes)


def tensor_repr(t: Any) -> str:
    """The text of a Tensor on any device; reads the values without recording anything."""
    from . import _C

    default = _C.get_default_dtype()
    complex_default = _C.complex128 if default is _C.float64 else _C.complex64
    history = ""
    if t.grad_fn is not None:
        name = t.grad_fn.name() if callable(getattr(t.grad_fn, "name", None)) else type(t.grad_fn).__name__
        history = f"grad_fn=<{name}>"
    elif t.requires_grad:
        history = "requires_grad=True"
    device = t.device
    return describe(
        None if device.type == "meta" else _C._peek(t),
        tuple(t.shape),
        str(t.dtype),
        usual_dtype=t.dtype in (default, complex_default, _C.int64, _C.bool),
        default_dtype=t.dtype is default,
        device="" if device.type == "cpu" else f"device='{device}'",
        history=history,
    )
