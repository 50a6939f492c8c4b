"""Derivatives of functions: Jacobians, Hessians, and their products with vectors.

``func`` takes tensors and returns a tensor or a tuple of them; ``inputs`` and ``v`` are a tensor or a tuple, and results have the
structure of what they are for. With ``create_graph`` they can be differentiated again. ``strict``: RuntimeError instead of zeros where
a result does not depend on an input. TypeError for what is no tensor, RuntimeError for vectors that do not fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import Tensor
from . import grad as _grad
from .grad_mode import enable_grad, set_grad_enabled

__all__ = ["hessian", "hvp", "jacobian", "jvp", "vhp", "vjp"]

_Tensors = tuple[Tensor, ...]


def _as_tuple(values: Any, what: str, name: str) -> tuple[bool, _Tensors]:
    """Whether it was a tuple, and the tuple."""
    found = tuple(values) if isinstance(values, (tuple, list)) else (values,)
    for i, value in enumerate(found):
        if not isinstance(value, Tensor):
            where = "" if len(found) == 1 else f" at index {i}"
            raise TypeError(
                f"The {what} given to {name} must be either a Tensor or a tuple of Tensors but the given {what}{where} has type "
                f"{type(value)}."
            )
    return isinstance(values, (tuple, list)), found


def _attached(inputs: _Tensors, create_graph: bool) -> _Tensors:
    """Tensors of their own to differentiate by; with `create_graph` made from the given ones."""
    found = [t.view_as(t) if create_graph else t.detach() for t in inputs]
    return tuple(t if t.requires_grad else t.requires_grad_() for t in found)


def _finished(value: Any, create_graph: bool, several: bool) -> Any:
    parts = value if create_graph else tuple(t.detach() for t in value)
    return tuple(parts) if several else parts[0]


def _vector(v: Any, like: _Tensors, name: str, missing: str) -> _Tensors | None:
    """The vector as a tuple; None if it may be left out: for one tensor of one element."""
    if v is None:
        if len(like) != 1 or like[0].numel() != 1:
            raise RuntimeError(f"The vector v can only be None if {missing} a single Tensor with a single element.")
        return None
    _, vectors = _as_tuple(v, "v", name)
    if len(like) == 1 and len(vectors) != 1:
        raise RuntimeError("The given v should contain a single Tensor.")
    if len(vectors) != len(like):
        raise RuntimeError(f"v is a tuple of invalid length: should be {len(like)} but got {len(vectors)}.")
    for i, (given, wanted) in enumerate(zip(vectors, like, strict=True)):
        if given.shape != wanted.shape:
            entry = f"Entry {i} in " if len(like) > 1 else ""
            raise RuntimeError(f"{entry}v has invalid size: should be {wanted.shape} but got {given.shape}.")
    return vectors


def _gradients(outputs: tuple[Tensor | None, ...], inputs: _Tensors, weights: Any, create_graph: bool) -> tuple[Tensor | None, ...]:
    """None where nothing depends on the input."""
    weights = (None,) * len(outputs) if weights is None else weights
    pairs = [(output, weight) for output, weight in zip(outputs, weights, strict=True) if output is not None and output.requires_grad]
    if not pairs:
        return (None,) * len(inputs)
    roots, grads = zip(*pairs, strict=True)
    return _grad(roots, inputs, grads, retain_graph=True, create_graph=create_graph, allow_unused=True)


def _filled(grads: tuple[Tensor | None, ...], like: _Tensors, strict: bool, message: str) -> _Tensors:
    """Zeros for what is None; with `strict` the error, in which {} is the number of the input."""
    if strict and None in [None if g is None else 0 for g in grads]:
        raise RuntimeError(message.format(next(i for i, g in enumerate(grads) if g is None)))
    return tuple(_C.functions.zeros_like(t) if g is None else g for g, t in zip(grads, like, strict=True))


def _check_outputs(outputs: _Tensors, strict: bool) -> None:
    for i, output in enumerate(outputs):
        if strict and not output.requires_grad:
            raise RuntimeError(
                f"Output {i} of the user-provided function does not require gradients. The outputs must be computed in a differentiable "
                "manner from the input when running in strict mode."
            )


def _check_dependence(results: Any, strict: bool, create_graph: bool, name: str) -> None:
    for i, result in enumerate(results):
        if strict and create_graph and not result.requires_grad:
            raise RuntimeError(
                f"The {name} of the user-provided function is independent of input {i}. This is not allowed in strict mode when "
                "create_graph=True."
            )


_INDEPENDENT = "Output of the user-provided function is independent of input {}. This is not allowed in strict mode."
_CONSTANT = (
    "While computing the hessian, found that the jacobian of the user-provided function with respect to input {} is independent of the "
    "input. This is not allowed in strict mode"
)


def vjp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(outputs, v^T J): ``v`` has the shapes of the outputs, and may be left out for a single number."""
    again = create_graph or _C.is_grad_enabled()
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", "vjp")
        leaves = _attached(given, create_graph)
        many, outputs = _as_tuple(func(*leaves), "outputs of the user-provided function", "vjp")
        _check_outputs(outputs, strict)
        vectors = _vector(v, outputs, "vjp", "the user-provided function returns")
    with set_grad_enabled(again):
        found = _filled(_gradients(outputs, leaves, vectors, create_graph), leaves, strict, _INDEPENDENT)
        _check_dependence(found, strict, create_graph, "vjp")
    return _finished(outputs, create_graph, many), _finished(found, create_graph, several)


def jvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(outputs, J v): ``v`` has the shapes of the inputs, and may be left out for a single number. Made of two backward passes, so the
    ops of ``func`` need second derivatives."""
    again = create_graph or _C.is_grad_enabled()
    with enable_grad():
        _, given = _as_tuple(inputs, "inputs", "jvp")
        leaves = _attached(given, create_graph)
        vectors = _vector(v, leaves, "jvp", "the input to the user-provided function is")
        vectors = (_C.functions.ones_like(leaves[0]),) if vectors is None else vectors
        many, outputs = _as_tuple(func(*leaves), "outputs of the user-provided function", "jvp")
        _check_outputs(outputs, strict)
        weights = tuple(_C.functions.zeros_like(t).requires_grad_() for t in outputs)
        grads = _gradients(outputs, leaves, weights, True)  # linear in the weights: their coefficients are J
        _filled(grads, leaves, strict, _INDEPENDENT)
    with set_grad_enabled(again):
        found = _filled(_gradients(grads, weights, vectors, create_graph), outputs, False, "")
        _check_dependence(found, strict, create_graph, "jvp")
    return _finished(outputs, create_graph, many), _finished(found, create_graph, many)


def jacobian(
    func: Callable, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False, strategy: str = "reverse-mode"
) -> Any:
    """For each output and input a tensor of the output's sizes followed by the input's: all first derivatives, one backward pass per
    element of the outputs. ``vectorize`` is accepted and changes nothing; so does ``strategy="forward-mode"``, which needs it."""
    _check_strategy(strategy, vectorize)
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", "jacobian")
        leaves = _attached(given, create_graph)
        many, outputs = _as_tuple(func(*leaves), "outputs of the user-provided function", "jacobian")
        _check_outputs(outputs, strict)
        rows = []
        for output in outputs:
            columns: list[list[Tensor]] = [[] for _ in leaves]
            for element in output.reshape(-1).unbind() if output.numel() else ():
                found = _filled(_gradients((element,), leaves, None, create_graph), leaves, strict, _INDEPENDENT)
                _check_dependence(found, strict, create_graph, "jacobian")
                for column, part in zip(columns, found, strict=True):
                    column.append(part)
            row = tuple(
                (_C.functions.stack(column) if column else leaf.new_zeros((0, *leaf.shape))).reshape((*output.shape, *leaf.shape))
                for column, leaf in zip(columns, leaves, strict=True)
            )
            rows.append(_finished(row, create_graph, several))
    return tuple(rows) if many else rows[0]


def _check_strategy(strategy: str, vectorize: bool) -> None:
    if strategy not in ("forward-mode", "reverse-mode"):
        raise AssertionError(f'Expected strategy to be either "forward-mode" or "reverse-mode", got {strategy!r}')
    if strategy == "forward-mode" and not vectorize:
        raise NotImplementedError(
            "Computing Jacobian using forward-AD or forward-over-reverse Hessian is only implemented for `vectorize=True`."
        )


def _single(output: Any, name: str) -> Tensor:
    if not isinstance(output, Tensor):
        raise RuntimeError(f"The function given to {name} should return a single Tensor")
    if output.numel() != 1:
        raise RuntimeError(f"The Tensor returned by the function given to {name} should contain a single element")
    return output.squeeze()


def hessian(
    func: Callable,
    inputs: Any,
    create_graph: bool = False,
    strict: bool = False,
    vectorize: bool = False,
    outer_jacobian_strategy: str = "reverse-mode",
) -> Any:
    """For each pair of inputs a tensor of the sizes of both: all second derivatives of a function that returns one number.
    ``vectorize`` and ``outer_jacobian_strategy`` as for :func:`jacobian`."""
    _check_strategy(outer_jacobian_strategy, vectorize)
    several, given = _as_tuple(inputs, "inputs", "hessian")

    def first(*tensors: Tensor) -> _Tensors:
        found = jacobian(lambda *t: _single(func(*t), "hessian"), tensors, create_graph=True)
        if strict:
            for i, part in enumerate(found):
                if not part.requires_grad:
                    raise RuntimeError(_CONSTANT.format(i))
        return found

    found = jacobian(first, given, create_graph=create_graph)
    return found if several else found[0][0]


def vhp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(output, v^T H) for a function that returns one number: ``v`` has the shapes of the inputs, and may be left out for a single
    number."""
    return _hessian_product("vhp", func, inputs, v, create_graph, strict)


def hvp(func: Callable, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> tuple[Any, Any]:
    """(output, H v), which is :func:`vhp`: a Hessian is symmetric."""
    return _hessian_product("hvp", func, inputs, v, create_graph, strict)


def _hessian_product(name: str, func: Callable, inputs: Any, v: Any, create_graph: bool, strict: bool) -> tuple[Any, Any]:
    again = create_graph or _C.is_grad_enabled()
    with enable_grad():
        several, given = _as_tuple(inputs, "inputs", name)
        leaves = _attached(given, create_graph)
        vectors = _vector(v, leaves, name, "the input to the user-provided function is")
        vectors = (_C.functions.ones_like(leaves[0]),) if vectors is None else vectors
        output = func(*leaves)
        number = _single(output, name)
        _check_outputs((number,), strict)
        first = _filled(_gradients((number,), leaves, None, True), leaves, strict, _INDEPENDENT)
        for i, part in enumerate(first):
            if strict and not part.requires_grad:
                raise RuntimeError(_CONSTANT.format(i))
    with set_grad_enabled(again):
        found = _filled(_gradients(first, leaves, vectors, create_graph), leaves, strict, _CONSTANT)
        _check_dependence(found, strict, create_graph, name)
    return _finished((output,), create_graph, False), _finished(found, create_graph, several)
