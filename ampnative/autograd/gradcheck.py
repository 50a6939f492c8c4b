"""Derivatives checked against central differences."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _C

__all__ = ["GradcheckError", "gradcheck", "gradgradcheck"]

# The plain and the fast derivative of an op are the same formula: in float64 they differ by reordered sums only.
_SAME = 1e-9


class GradcheckError(RuntimeError):
    """A derivative that does not agree with finite differences."""


def _as_tuple(value: Any) -> tuple:
    return tuple(value) if isinstance(value, (tuple, list)) else (value,)


def _differentiable(values: tuple) -> list:
    return [t for t in values if isinstance(t, _C.Tensor) and t.requires_grad]


def _array(tensor: Any) -> np.ndarray:
    return tensor.detach().cpu().double().numpy().copy()


def _write(tensor: Any, values: np.ndarray) -> None:
    """In place and unseen by autograd, so that a function which closes over its inputs notices too."""
    tensor.data.copy_(_C.from_numpy(np.asarray(values)))


def _grad(outputs: list, inputs: list, grad_outputs: list, create_graph: bool = False) -> list[np.ndarray]:
    roots, gradients = tuple(outputs), tuple(grad_outputs)
    found = _C._engine_backward(roots, gradients, True, create_graph, tuple(inputs), False, True)
    for tensor, g in zip(inputs, found, strict=True):
        if g is not None and g.shape != tensor.shape:
            raise GradcheckError(f"the gradient of an input of shape {tuple(tensor.shape)} has shape {tuple(g.shape)}")
    return [np.zeros(tuple(t.shape)) if g is None else _array(g) for t, g in zip(inputs, found, strict=True)]


def _evaluate(function: Callable, arguments: tuple, outputs_like: list[int]) -> list[np.ndarray]:
    results = _as_tuple(function(*arguments))
    return [_array(results[i]).reshape(-1) for i in outputs_like]


def _numerical(function: Callable, arguments: tuple, inputs: list, which: list[int], eps: float) -> list[list[np.ndarray]]:
    """jacobian[input][output], each (elements of input, elements of output), by central differences."""
    jacobians = []
    for tensor in inputs:
        values = _array(tensor)
        rows = []
        for index in np.ndindex(values.shape):
            sides = []
            for step in (eps, -eps):
                shifted = values.copy()
                shifted[index] += step
                _write(tensor, shifted)
                sides.append(_evaluate(function, arguments, which))
            _write(tensor, values)
            rows.append([(up - down) / (2.0 * eps) for up, down in zip(*sides, strict=True)])
        sizes = [column.size for column in (rows[0] if rows else _evaluate(function, arguments, which))]
        jacobians.append([np.array([row[k] for row in rows]).reshape(values.size, size) for k, size in enumerate(sizes)])
    return jacobians


def _one_hot(output: Any, k: int) -> Any:
    values = np.zeros(tuple(output.shape))
    values.reshape(-1)[k] = 1.0
    return _C.from_numpy(values).to(device=output.device, dtype=output.dtype)


def _analytical(output: Any, inputs: list, create_graph: bool) -> list[np.ndarray]:
    """A matrix (elements of input, elements of output) per input, from the plain derivatives if ``create_graph``, else the fast."""
    columns = [_grad([output], inputs, [_one_hot(output, k)], create_graph) for k in range(output.numel())]
    return [
        np.array([c[i].reshape(-1) for c in columns]).reshape(output.numel(), tensor.numel()).T for i, tensor in enumerate(inputs)
    ]


def _compare(found: np.ndarray, expected: np.ndarray, atol: float, rtol: float, what: str) -> None:
    if not np.allclose(found, expected, rtol=rtol, atol=atol, equal_nan=True):
        raise GradcheckError(f"{what}\nnumerical:\n{expected}\nanalytical:\n{found}")


def _check_slow(
    function: Callable,
    arguments: tuple,
    inputs: list,
    outputs: tuple,
    which: list[int],
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    numerical = _numerical(function, arguments, inputs, which, eps)
    for o, number in enumerate(which):
        fast = _analytical(outputs[number], inputs, False)
        again = _analytical(outputs[number], inputs, False)
        plain = _analytical(outputs[number], inputs, True)
        for i in range(len(inputs)):
            where = f"output {number} with respect to input {i}"
            if not np.allclose(fast[i], again[i], rtol=0.0, atol=nondet_tol, equal_nan=True):
                raise GradcheckError(
                    f"Backward is not reentrant, i.e., running backward with same input and grad_output multiple times gives "
                    f"different values: {where}, beyond nondet_tol={nondet_tol}"
                )
            _compare(fast[i], numerical[i][o], atol, rtol, f"Jacobian mismatch for {where}")
            if not np.allclose(plain[i], fast[i], rtol=_SAME, atol=_SAME, equal_nan=True):
                raise GradcheckError(
                    f"the derivative differs when it is recorded (create_graph=True): {where}\nrecorded:\n{plain[i]}\n"
                    f"not recorded:\n{fast[i]}"
                )


def _check_fast(
    function: Callable, arguments: tuple, inputs: list, outputs: tuple, which: list[int], eps: float, atol: float, rtol: float
) -> None:
    """One random direction of the inputs and one of each output instead of all."""
    rng = np.random.default_rng(0)
    for o, number in enumerate(which):
        direction = np.asarray(rng.standard_normal(tuple(outputs[number].shape)))
        weight = _C.from_numpy(direction).to(device=outputs[number].device, dtype=outputs[number].dtype)
        for i, tensor in enumerate(inputs):
            values = _array(tensor)
            shift = np.asarray(rng.standard_normal(values.shape))
            sides = []
            for step in (eps, -eps):
                _write(tensor, values + step * shift)
                sides.append(_evaluate(function, arguments, which)[o])
            _write(tensor, values)
            expected = np.dot((sides[0] - sides[1]) / (2.0 * eps), direction.reshape(-1))
            for create_graph in (False, True):
                found = np.sum(_grad([outputs[number]], [tensor], [weight], create_graph)[0] * shift)
                size = max(1.0, float(np.sqrt(values.size * direction.size)))
                _compare(
                    np.asarray(found),
                    np.asarray(expected),
                    atol * size,
                    rtol,
                    f"Jacobian mismatch (fast mode) for output {number} with respect to input {i}",
                )


def _check_inputs(arguments: tuple) -> list:
    inputs = _differentiable(arguments)
    if not inputs:
        raise ValueError(
            "gradcheck expects at least one input tensor to require gradient, but none of the them have requires_grad=True."
        )
    for i, tensor in enumerate(arguments):
        if isinstance(tensor, _C.Tensor) and tensor.requires_grad:
            if tensor.dtype != _C.float64:
                warnings.warn(
                    f"Input #{i} requires gradient and is not a double precision floating point: finite differences of "
                    f"{tensor.dtype} are too coarse, so the check will likely fail",
                    stacklevel=4,
                )
            if not tensor.is_leaf:
                tensor.retain_grad()
    return inputs


def _run(
    function: Callable,
    arguments: tuple,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
    check_grad_dtypes: bool,
    fast_mode: bool,
) -> None:
    inputs = _check_inputs(arguments)
    outputs = _as_tuple(function(*arguments))
    floating = [i for i, o in enumerate(outputs) if isinstance(o, _C.Tensor) and o.dtype.is_floating_point]
    which = [i for i in floating if outputs[i].requires_grad]
    if not which:
        for matrices in _numerical(function, arguments, inputs, floating, eps):
            for matrix in matrices:
                _compare(np.zeros_like(matrix), matrix, atol, rtol, "Numerical gradient for function expected to be zero")
        return
    if fast_mode:
        _check_fast(function, arguments, inputs, outputs, which, eps, atol, rtol)
    else:
        _check_slow(function, arguments, inputs, outputs, which, eps, atol, rtol, nondet_tol)
    if check_grad_dtypes:
        for number in which:
            found = _C._engine_backward(
                (outputs[number],), (_C.functions.ones_like(outputs[number]),), True, False, tuple(inputs), False, True
            )
            for tensor, g in zip(inputs, found, strict=True):
                if g is not None and g.dtype != tensor.dtype:
                    raise GradcheckError(f"the gradient of an input of dtype {tensor.dtype} has dtype {g.dtype}")


def gradcheck(
    func: Callable,
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool = False,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
) -> bool:
    """Compares the gradients of ``func(*inputs)`` with central differences of width ``2 * eps``.

    Every input that requires a gradient (float64, please) and every floating output takes part, each output alone, so that the
    other outputs of one node are undefined. The derivative is run unrecorded and recorded, and both must agree. ``fast_mode``
    checks one random direction. Returns True; a mismatch raises GradcheckError, or returns False without ``raise_exception``.
    """
    if check_batched_grad or check_batched_forward_grad or check_forward_ad:
        raise NotImplementedError(
            "gradcheck: batched gradients and forward-mode differentiation do not exist here; leave those checks off"
        )
    arguments = _as_tuple(inputs)
    if not check_backward_ad:
        return True
    try:
        _run(func, arguments, eps, atol, rtol, nondet_tol, check_grad_dtypes, fast_mode)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(
    func: Callable,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
) -> bool:
    """The same check for second derivatives: of the gradients of ``func(*inputs)``, weighted by ``grad_outputs`` (random by
    default), with respect to both the inputs and the weights."""
    if check_fwd_over_rev or not check_rev_over_rev:
        raise NotImplementedError("gradgradcheck: forward-mode differentiation does not exist here")
    arguments = _as_tuple(inputs)
    if grad_outputs is None:
        outputs = [o for o in _as_tuple(func(*arguments)) if isinstance(o, _C.Tensor) and o.requires_grad]
        weights = tuple(_weight_like(o, gen_non_contig_grad_outputs) for o in outputs)
    else:
        weights = _as_tuple(grad_outputs)
    count = len(arguments)

    def first_derivative(*both):
        given, gradients = both[:count], both[count:]
        outputs = [o for o in _as_tuple(func(*given)) if isinstance(o, _C.Tensor) and o.requires_grad]
        wanted = tuple(_differentiable(given))
        found = _C._engine_backward(tuple(outputs), tuple(gradients), True, True, wanted, False, True)
        return tuple(g for g in found if g is not None)

    return gradcheck(
        first_derivative,
        arguments + weights,
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=check_undefined_grad,
        check_grad_dtypes=check_grad_dtypes,
        check_batched_grad=check_batched_grad,
        fast_mode=fast_mode,
        masked=masked,
    )


def _weight_like(output: Any, strided: bool) -> Any:
    shape = tuple(output.shape)
    if strided and shape:
        wide = _C.functions.randn(*shape[:-1], 2 * shape[-1], dtype=output.dtype).to(device=output.device)
        return wide[..., ::2].requires_grad_()
    return _C.functions.randn(shape, dtype=output.dtype).to(device=output.device).requires_grad_()
