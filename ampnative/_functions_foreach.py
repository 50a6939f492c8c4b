"""Functions of lists of tensors, ``_foreach_add_(tensors, 2.0)``: what loops over master weights and averages use.

``tensors`` and other lists of tensors: lists or tuples, of one length, not empty (RuntimeError). Those that end in "_" write to the first
list and return it, the others return a tuple. Each tensor is computed by the op of that name, as a loop would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _C
from ._C import Tensor

_Tensors = Sequence[Tensor]
_Number = bool | int | float | complex
_MISSING: Any = object()
_f = _C.functions


def _fit(name: str, *given: Any) -> TypeError:
    kinds = ", ".join(type(value).__name__ for value in given)
    return TypeError(f"{name}() received an invalid combination of arguments - got ({kinds}): see ampnative._functions_foreach")


def _tensors(name: str, given: Any, position: int = 0) -> _Tensors:
    if not isinstance(given, (list, tuple)):
        raise _fit(name, given)
    for index, tensor in enumerate(given):
        if not isinstance(tensor, Tensor):
            raise TypeError(f"expected Tensor as element {index} in argument {position}, but got {type(tensor).__name__}")
    return given


def _lists(name: str, *given: Any) -> list[_Tensors]:
    lists = [_tensors(name, tensors, position) for position, tensors in enumerate(given)]
    if not lists[0]:
        raise RuntimeError(f"Tensor list must have at least one tensor: {name}() got none")
    for other in lists[1:]:
        if len(other) != len(lists[0]):
            raise RuntimeError(f"Tensor lists must have the same number of tensors, got {len(lists[0])} and {len(other)}")
    return lists


def _scalars(name: str, given: Any, count: int) -> list[Any]:
    """One number for each tensor, of a number, a sequence of them or a packed tensor (count)."""
    if isinstance(given, Tensor):
        if given.dim() != 1:
            raise RuntimeError(f"Expected packed scalar Tensor to be of dimension 1. Got {given.dim()} instead.")
        if given.numel() != count:
            raise RuntimeError(f"Expected length of scalars to match input of length {count} but got {given.numel()} instead.")
        return given.tolist()
    if isinstance(given, _Number):
        return [given] * count
    if not isinstance(given, (list, tuple)) or not all(isinstance(value, _Number) for value in given):
        raise _fit(name, given)
    if len(given) != count:
        raise RuntimeError(f"Tensor list must have same number of elements as scalar list: {count} and {len(given)}")
    return list(given)


def _number(name: str, given: Any) -> Any:
    """A number, or what a 0-d tensor without a gradient holds."""
    if isinstance(given, Tensor) and given.dim() == 0 and not given.requires_grad:
        return given.item()
    if not isinstance(given, _Number):
        raise _fit(name, given)
    return given


def _only(name: str, other: Any, scalar: Any, scalars: Any) -> Any:
    """The one operand that is given, under whichever of its names."""
    if [other is _MISSING, scalar is _MISSING, scalars is _MISSING].count(False) != 1:
        raise _fit(name, *(value for value in (other, scalar, scalars) if value is not _MISSING))
    if scalar is not _MISSING:
        return _number(name, scalar)
    if scalars is not _MISSING and not (isinstance(scalars, (list, tuple)) and all(isinstance(s, _Number) for s in scalars)):
        raise _fit(name, scalars)
    return other if scalars is _MISSING else scalars


def _operands(name: str, tensors: _Tensors, other: Any, keeps_tensor: bool) -> list[Any]:
    """What stands beside each tensor: of lists one for each, else the same for all."""
    if isinstance(other, Tensor):
        if other.dim() != 0 and keeps_tensor:
            size = f"{other.dim()} dimensions and {other.numel()} elements"
            raise RuntimeError(f"scalar tensor expected to be 0 dim but it has {size}.")
        if other.dim() != 0:
            raise _fit(name, tensors, other)
        return [other if keeps_tensor else _number(name, other)] * len(tensors)
    if isinstance(other, (list, tuple)) and other and isinstance(other[0], Tensor):
        return list(_lists(name, tensors, other)[1])
    return _scalars(name, other, len(tensors))


def _named(name: str, place: bool, function: Callable[..., Any], doc: str) -> Callable[..., Any]:
    function.__name__ = function.__qualname__ = f"_foreach_{name}{'_' * place}"
    function.__doc__ = doc
    return function


def _unary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    op, op_ = getattr(Tensor, name), getattr(Tensor, name + "_")

    def new(self: _Tensors) -> tuple[Tensor, ...]:
        return tuple(op(t) for t in _lists(f"_foreach_{name}", self)[0])

    def place(self: _Tensors) -> _Tensors:
        for t in _lists(f"_foreach_{name}_", self)[0]:
            op_(t)
        return self

    return _named(name, False, new, f"``{name}`` of each."), _named(name, True, place, f"``{name}_`` of each.")


def _clamped(limit: str, larger: Callable[[Tensor, Tensor], Tensor]) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """The larger, or smaller, of a tensor and a tensor or number."""

    def op(t: Tensor, other: Any) -> Tensor:
        if isinstance(other, complex):
            raise NotImplementedError(f"clamp is not supported for complex types: the limit is {other}")
        return larger(t, other) if isinstance(other, Tensor) else t.clamp(**{limit: other})

    def op_(t: Tensor, other: Any) -> Tensor:
        wanted = t.requires_grad or (isinstance(other, Tensor) and other.requires_grad)
        kept = t.clone() if wanted and _C.is_grad_enabled() else t  # what a derivative keeps is not written to
        result = op(kept, kept if other is t else other)
        if not _C.can_cast(result.dtype, t.dtype):
            raise RuntimeError(f"result type {result.dtype} can't be cast to the desired output type {t.dtype}")
        return t.copy_(result)

    return op, op_


def _add(t: Tensor, other: Any, **alpha: Any) -> Tensor:
    """``add``, to which a 0-d tensor without ``alpha`` is a number: its kind can change the dtype of the sum, not its dtype."""
    number = isinstance(other, Tensor) and other.dim() == 0 and not other.requires_grad and not alpha
    return t.add(other.item() if number else other, **alpha)


_OPS = {
    **{name: (getattr(Tensor, name), getattr(Tensor, name + "_")) for name in ("sub", "mul", "div", "pow")},
    "add": (_add, Tensor.add_),
    **dict.fromkeys(("maximum", "clamp_min"), _clamped("min", _f.maximum)),
    **dict.fromkeys(("minimum", "clamp_max"), _clamped("max", _f.minimum)),
}


def _binary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    op, op_ = _OPS[name]
    keeps_tensor = name in ("add", "mul", "div")

    def pairs(full: str, tensors: Any, other: Any, more: dict[str, Any]) -> zip:
        _lists(full, tensors)
        operands = _operands(full, tensors, other, keeps_tensor)
        alpha = name in ("add", "sub") and (isinstance(operands[0], Tensor))
        if set(more) - ({"alpha"} if alpha else set()):
            raise _fit(full, tensors, other, *more)
        return zip(tensors, operands, strict=True)

    def new(
        self: _Tensors, other: Any = _MISSING, *, scalar: Any = _MISSING, scalars: Any = _MISSING, **more: Any
    ) -> tuple[Tensor, ...]:
        full = f"_foreach_{name}"
        return tuple(op(t, o, **more) for t, o in pairs(full, self, _only(full, other, scalar, scalars), more))

    def place(self: _Tensors, other: Any = _MISSING, *, scalar: Any = _MISSING, scalars: Any = _MISSING, **more: Any) -> _Tensors:
        full = f"_foreach_{name}_"
        for t, o in pairs(full, self, _only(full, other, scalar, scalars), more):
            op_(t, o, **more)
        return self

    def power(self: Any, exponent: Any) -> tuple[Tensor, ...]:
        if isinstance(self, (Tensor, _Number)):
            base = _number("_foreach_pow", self)
            return tuple(_f.pow(base, e) for e in _lists("_foreach_pow", exponent)[0])
        return new(self, exponent)

    def power_(self: _Tensors, exponent: Any) -> _Tensors:
        return place(self, exponent)

    operand = "one number, 0-d tensor, or list with one operand for each"
    if name == "pow":
        base = "``self``: a list, or one number or 0-d tensor for all"
        return (
            _named(name, False, power, f"``pow`` of each and ``exponent``: {operand}. {base}."),
            _named(name, True, power_, f"``pow_`` of each and ``exponent``: {operand}."),
        )
    operand += " (a number also as ``scalar``, a list of them as ``scalars``)"
    operand += "; ``alpha`` times a tensor" if name in ("add", "sub") else ""
    return (
        _named(name, False, new, f"``{name}`` of each and ``other``: {operand}."),
        _named(name, True, place, f"``{name}_`` of each and ``other``: {operand}."),
    )


def _ternary(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    op, op_ = getattr(Tensor, name), getattr(Tensor, name + "_")

    def parts(full: str, *given: Any, value: Any, scalars: Any) -> zip:
        lists = _lists(full, *given)
        return zip(*lists, _scalars(full, value if scalars is None else scalars, len(lists[0])), strict=True)

    def new(self: _Tensors, tensor1: _Tensors, tensor2: _Tensors, value: Any = 1, *, scalars: Any = None) -> tuple[Tensor, ...]:
        found = parts(f"_foreach_{name}", self, tensor1, tensor2, value=value, scalars=scalars)
        return tuple(op(t, a, b, value=s) for t, a, b, s in found)

    def place(self: _Tensors, tensor1: _Tensors, tensor2: _Tensors, value: Any = 1, *, scalars: Any = None) -> _Tensors:
        for t, a, b, s in parts(f"_foreach_{name}_", self, tensor1, tensor2, value=value, scalars=scalars):
            op_(t, a, b, value=s)
        return self

    doc = f"``{name}`` of each of three lists; ``value`` (or ``scalars``): one number, a list of them, or a tensor (count)."
    return _named(name, False, new, doc), _named(name, True, place, doc)


def _weights(name: str, weight: Any, weights: Any, tensors: _Tensors, ends: Any) -> zip:
    given = _only(name, weights if weight is _MISSING else weight, _MISSING, _MISSING)
    starts, others = _lists(name, tensors, ends)
    return zip(starts, others, _operands(name, starts, given, False), strict=True)


def _foreach_lerp(self: _Tensors, tensors1: _Tensors, weight: Any = _MISSING, *, weights: Any = _MISSING) -> tuple[Tensor, ...]:
    """``lerp`` of each towards ``tensors1``; ``weight``: one number, 0-d tensor, or list with one weight for each (also as ``weights``)."""
    return tuple(a.lerp(b, w) for a, b, w in _weights("_foreach_lerp", weight, weights, self, tensors1))


def _foreach_lerp_(self: _Tensors, tensors1: _Tensors, weight: Any = _MISSING, *, weights: Any = _MISSING) -> _Tensors:
    """``lerp_`` of each towards ``tensors1``; ``weight`` as in ``_foreach_lerp``."""
    for a, b, w in _weights("_foreach_lerp_", weight, weights, self, tensors1):
        a.lerp_(b, w)
    return self


def _foreach_copy_(self: _Tensors, src: _Tensors, non_blocking: bool = False) -> _Tensors:
    """Copies each of ``src`` into its place, cast to that dtype."""
    for to, value in zip(*_lists("_foreach_copy_", self, src), strict=True):
        to.copy_(value, non_blocking)
    return self


def _foreach_zero_(self: _Tensors) -> _Tensors:
    """Fills each with zeros."""
    for t in _lists("_foreach_zero_", self)[0]:
        t.zero_()
    return self


def _foreach_clone(self: _Tensors) -> tuple[Tensor, ...]:
    """A copy of each."""
    return tuple(t.clone() for t in _lists("_foreach_clone", self)[0])


def _foreach_norm(self: _Tensors, ord: float = 2, dtype: Any = None) -> tuple[Tensor, ...]:
    """The vector norm of each, 0-d."""
    if not isinstance(ord, (int, float)):
        raise TypeError(f"_foreach_norm(): argument 'ord' (position 2) must be Number, not {type(ord).__name__}")
    return tuple(_C.nn.linalg_vector_norm(t, ord, dtype=dtype) for t in _lists("_foreach_norm", self)[0])


def _foreach_max(self: _Tensors) -> tuple[Tensor, ...]:
    """The largest element of each, 0-d."""
    return tuple(t.max() for t in _lists("_foreach_max", self)[0])


_foreach_abs, _foreach_abs_ = _unary("abs")
_foreach_acos, _foreach_acos_ = _unary("acos")
_foreach_asin, _foreach_asin_ = _unary("asin")
_foreach_atan, _foreach_atan_ = _unary("atan")
_foreach_ceil, _foreach_ceil_ = _unary("ceil")
_foreach_cos, _foreach_cos_ = _unary("cos")
_foreach_cosh, _foreach_cosh_ = _unary("cosh")
_foreach_erf, _foreach_erf_ = _unary("erf")
_foreach_erfc, _foreach_erfc_ = _unary("erfc")
_foreach_exp, _foreach_exp_ = _unary("exp")
_foreach_expm1, _foreach_expm1_ = _unary("expm1")
_foreach_floor, _foreach_floor_ = _unary("floor")
_foreach_frac, _foreach_frac_ = _unary("frac")
_foreach_lgamma, _foreach_lgamma_ = _unary("lgamma")
_foreach_log, _foreach_log_ = _unary("log")
_foreach_log10, _foreach_log10_ = _unary("log10")
_foreach_log1p, _foreach_log1p_ = _unary("log1p")
_foreach_log2, _foreach_log2_ = _unary("log2")
_foreach_neg, _foreach_neg_ = _unary("neg")
_foreach_reciprocal, _foreach_reciprocal_ = _unary("reciprocal")
_foreach_round, _foreach_round_ = _unary("round")
_foreach_rsqrt, _foreach_rsqrt_ = _unary("rsqrt")
_foreach_sigmoid, _foreach_sigmoid_ = _unary("sigmoid")
_foreach_sign, _foreach_sign_ = _unary("sign")
_foreach_sin, _foreach_sin_ = _unary("sin")
_foreach_sinh, _foreach_sinh_ = _unary("sinh")
_foreach_sqrt, _foreach_sqrt_ = _unary("sqrt")
_foreach_tan, _foreach_tan_ = _unary("tan")
_foreach_tanh, _foreach_tanh_ = _unary("tanh")
_foreach_trunc, _foreach_trunc_ = _unary("trunc")
_foreach_add, _foreach_add_ = _binary("add")
_foreach_sub, _foreach_sub_ = _binary("sub")
_foreach_mul, _foreach_mul_ = _binary("mul")
_foreach_div, _foreach_div_ = _binary("div")
_foreach_maximum, _foreach_maximum_ = _binary("maximum")
_foreach_minimum, _foreach_minimum_ = _binary("minimum")
_foreach_clamp_max, _foreach_clamp_max_ = _binary("clamp_max")
_foreach_clamp_min, _foreach_clamp_min_ = _binary("clamp_min")
_foreach_pow, _foreach_pow_ = _binary("pow")
_foreach_addcdiv, _foreach_addcdiv_ = _ternary("addcdiv")
_foreach_addcmul, _foreach_addcmul_ = _ternary("addcmul")
