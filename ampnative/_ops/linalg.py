"""Decompositions and solvers. NumPy computes them in float32, float64 and their complex dtypes."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor
from . import _linalg_functions as functions
from . import _matrix as m
from ._common import joined_shape
from ._matrix import array, check, recording, refuse_gradient, tensor, transposed

_matmul = _C.functions.matmul


# ---- inverses and solutions ----


def linalg_inv(A: Tensor) -> Tensor:
    check("linalg.inv", A, square=True)
    return functions.Inverse.apply(A, "linalg.inv")[0]


inverse = linalg_inv


def linalg_inv_ex(A: Tensor, check_errors: bool) -> m.linalg_inv_ex:
    check("linalg.inv_ex", A, square=True)
    return m.linalg_inv_ex(*functions.Inverse.apply(A, "linalg.inv_ex" if check_errors else None))


def _same_batch(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    batch = joined_shape(a.shape[:-2], b.shape[:-2])
    return a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])


def linalg_solve(A: Tensor, B: Tensor, left: bool) -> Tensor:
    name = "linalg.solve"
    if A.dtype != B.dtype:
        raise RuntimeError(f"{name}: Expected A and B to have the same dtype, but found A of type {A.dtype} and B of type {B.dtype}")
    check(name, A, B, square=True)
    # a stack of vectors has A's leading sizes
    vector = B.dim() == 1 or (B.dim() == A.dim() - 1 and B.shape == A.shape[:-1])
    b = B.unsqueeze(-1) if vector else B
    if vector and not left:
        raise RuntimeError(f"{name}: Vector broadcasting of the left hand side is not supported for left=False. Got B of {list(B.shape)}")
    if b.size(-2 if left else -1) != A.size(-1):
        raise RuntimeError(f"{name}: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({list(A.shape)} and {list(B.shape)})")  # fmt: skip
    if not left:
        return transposed(functions.Solve.apply(*_same_batch(transposed(A), transposed(b))))
    x = functions.Solve.apply(*_same_batch(A, b))
    return x.squeeze(-1) if vector else x


def _solve_triangular(A: Tensor, B: Tensor, upper: bool, left: bool, unit: bool) -> Tensor:
    if B.dim() < 2 or B.size(-2 if left else -1) != A.size(-1):
        raise RuntimeError(f"linalg.solve_triangular: Incompatible shapes of A and B for the equation {'AX = B' if left else 'XA = B'} "
                           f"({list(A.shape)} and {list(B.shape)})")  # fmt: skip
    if left:
        return functions.SolveTriangular.apply(*_same_batch(A, B), upper, unit)
    return transposed(functions.SolveTriangular.apply(*_same_batch(transposed(A), transposed(B)), not upper, unit))


def linalg_solve_triangular(A: Tensor, B: Tensor, upper: bool, left: bool, unitriangular: bool) -> Tensor:
    check("linalg.solve_triangular", A, B, square=True)
    return _solve_triangular(A, B, upper, left, unitriangular)


def triangular_solve(b: Tensor, A: Tensor, upper: bool, transpose: bool, unitriangular: bool) -> m.triangular_solve:
    check("triangular_solve", A, b, square=True)
    warnings.warn(
        "torch.triangular_solve is deprecated and will be removed. Use torch.linalg.solve_triangular(A, B, upper=...), whose arguments "
        "stand the other way round and which returns the solution alone.",
        stacklevel=2,
    )
    x = _solve_triangular(transposed(A) if transpose else A, b, upper != transpose, True, unitriangular)
    return m.triangular_solve(x, A.clone())


def cholesky_solve(B: Tensor, L: Tensor, upper: bool) -> Tensor:
    check("cholesky_solve", L, B, square=True)
    low = transposed(L) if upper else L
    return _solve_triangular(transposed(low), _solve_triangular(low, B, False, True, False), True, True, False)


def cholesky_inverse(L: Tensor, upper: bool) -> Tensor:
    check("cholesky_inverse", L, square=True)
    eye = _C.functions.eye(L.size(-1), dtype=L.dtype, device=L.device)
    return cholesky_solve(eye.expand(*L.shape), L, upper)


def linalg_tensorinv(A: Tensor, ind: int) -> Tensor:
    if ind <= 0:
        raise RuntimeError(f"linalg.tensorinv: Expected a strictly positive integer for 'ind', but got {ind}")
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise RuntimeError(
            f"linalg.tensorinv: Expected self to satisfy the requirement prod(self.shape[ind:]) == prod(self.shape[:ind]), but got "
            f"{list(columns)} and {list(rows)}"
        )
    return linalg_inv(A.reshape(math.prod(rows), math.prod(columns))).reshape(*columns, *rows)


def linalg_tensorsolve(A: Tensor, B: Tensor, dims: Sequence[int] | None) -> Tensor:
    if dims:
        last = [d % A.dim() for d in dims]
        A = A.permute([d for d in range(A.dim()) if d not in last] + last)
    shape = A.shape[B.dim() :]
    size = math.prod(shape)
    if size != math.prod(B.shape) or size * size != A.numel():
        raise RuntimeError(
            "linalg.tensorsolve: Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == prod(self.shape[:other.ndim]), "
            f"but got {list(A.shape)} for other of shape {list(B.shape)}"
        )
    return linalg_solve(A.reshape(size, size), B.reshape(size), True).reshape(*shape)


# ---- determinants ----


def linalg_det(A: Tensor) -> Tensor:
    check("linalg.det", A, square=True)
    return functions.Det.apply(A)


def linalg_slogdet(A: Tensor) -> m.linalg_slogdet:
    check("linalg.slogdet", A, square=True)
    return m.linalg_slogdet(*functions.SignLogDet.apply(A))


def logdet(A: Tensor) -> Tensor:
    sign, logarithm = linalg_slogdet(A)
    return _C.functions.where(sign < 0, math.nan, logarithm)


# ---- decompositions ----


def linalg_cholesky(A: Tensor, upper: bool) -> Tensor:
    check("linalg.cholesky", A, square=True)
    low = functions.Cholesky.apply(A, "linalg.cholesky")[0]
    return transposed(low) if upper else low


def linalg_cholesky_ex(A: Tensor, upper: bool, check_errors: bool) -> m.linalg_cholesky_ex:
    check("linalg.cholesky_ex", A, square=True)
    low, info = functions.Cholesky.apply(A, "linalg.cholesky_ex" if check_errors else None)
    return m.linalg_cholesky_ex(transposed(low) if upper else low, info)


def linalg_qr(A: Tensor, mode: Any) -> m.linalg_qr:
    check("linalg.qr", A)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), 'r', or 'complete'")
    tall = A.size(-2) >= A.size(-1)
    if tall and (mode == "reduced" or (mode == "complete" and A.size(-2) == A.size(-1))):
        return m.linalg_qr(*functions.Qr.apply(A))
    refuse_gradient(f"linalg.qr (mode {mode!r} of matrices {A.size(-2)} x {A.size(-1)})", A)
    if mode == "r":
        return m.linalg_qr(_C.functions.empty((0,), dtype=A.dtype, device=A.device), tensor(np.linalg.qr(array(A), "r"), A))
    return m.linalg_qr(*(tensor(v, A) for v in np.linalg.qr(array(A), mode)))


def geqrf(A: Tensor) -> m.geqrf:
    check("geqrf", A)
    refuse_gradient("geqrf", A)
    h, tau = np.linalg.qr(array(A), "raw")
    return m.geqrf(tensor(h.swapaxes(-1, -2), A), tensor(tau, A))


def _reflected(A: Tensor, tau: Tensor) -> Tensor:
    """By products, which have derivatives. The reflections together are 1 - V T V^T, T upper triangular: with S what is above the
    diagonal of V^T V, and D = diag(tau), T = (1 + D S)^-1 D.
    """
    rows, columns, k = A.size(-2), A.size(-1), tau.size(-1)
    one = _C.functions.eye(rows, columns, dtype=A.dtype, device=A.device)
    v = A[..., :k].tril(-1) + one[:, :k]
    d = tau.unsqueeze(-1)
    left = d * (v.mT @ v).triu(1) + one[:k, :k]
    return one - v @ _C.nn.linalg_solve_triangular(left, d * (v.mT @ one), upper=True, unitriangular=True)


def linalg_householder_product(A: Tensor, tau: Tensor) -> Tensor:
    name = "linalg.householder_product"
    if A.dtype != tau.dtype:
        raise RuntimeError(f"torch.{name}: tau dtype {tau.dtype} does not match input dtype {A.dtype}")
    check(name, A)
    rows, columns, k = A.size(-2), A.size(-1), tau.size(-1)
    if not k <= columns <= rows or tau.shape[:-1] != A.shape[:-2]:
        raise RuntimeError(f"torch.{name}: input (..., m, n) and tau (..., k) with m >= n >= k, but got {list(A.shape)}, {list(tau.shape)}")
    if recording(A, tau):
        return _reflected(A, tau)
    eye = np.broadcast_to(np.eye(rows, columns, dtype=A.dtype.dtype), tuple(A.shape))
    return tensor(m.reflect(array(A), array(tau), eye, False), A)


orgqr = linalg_householder_product


def ormqr(input: Tensor, tau: Tensor, other: Tensor, left: bool, transpose: bool) -> Tensor:
    if input.dtype != tau.dtype or input.dtype != other.dtype:
        raise RuntimeError(f"torch.ormqr: Expected input, tau and other to have the same dtype, but got {input.dtype}, {tau.dtype} and "
                           f"{other.dtype}")  # fmt: skip
    check("ormqr", input)
    if other.dim() < 2 or other.size(-2 if left else -1) != input.size(-2) or tau.size(-1) > input.size(-1):
        raise RuntimeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2] and tau no longer than input is wide, "
            f"but got {list(input.shape)}, {list(tau.shape)} and {list(other.shape)}"
        )
    refuse_gradient("ormqr", input, tau, other)
    c = array(other)
    if left:
        return tensor(m.reflect(array(input), array(tau), c, transpose), input)
    turned = m.reflect(array(input), array(tau), c.swapaxes(-1, -2).conj(), not transpose)  # C Q = (Q^H C^H)^H
    return tensor(turned.swapaxes(-1, -2).conj(), input)


def linalg_svd(A: Tensor, full_matrices: bool, driver: str | None) -> m.linalg_svd:
    check("linalg.svd", A)
    if driver is not None and A.device.type == "cpu":
        raise RuntimeError(f"linalg.svd: keyword argument `driver=` is only supported on CUDA inputs, but got {driver!r}")
    if not full_matrices or A.size(-2) == A.size(-1):
        return m.linalg_svd(*functions.Svd.apply(A))
    refuse_gradient("linalg.svd with full_matrices=True (of matrices that are not square)", A)
    return m.linalg_svd(*(tensor(v, A) for v in np.linalg.svd(array(A), full_matrices=True)))


def svd(A: Tensor, some: bool, compute_uv: bool) -> m.svd:
    check("linalg.svd", A)
    if not compute_uv:
        rows, columns = A.size(-2), A.size(-1)
        zeros = [_C.functions.zeros((*A.shape[:-2], n, n), dtype=A.dtype, device=A.device) for n in (rows, columns)]
        return m.svd(zeros[0], linalg_svdvals(A, None), zeros[1])
    u, s, vh = linalg_svd(A, not some, None)
    return m.svd(u, s, transposed(vh) if not vh.is_complex() else tensor(array(vh).swapaxes(-1, -2).conj(), vh))


def linalg_svdvals(A: Tensor, driver: str | None) -> Tensor:
    check("linalg.svdvals", A)
    if recording(A):
        return functions.Svd.apply(A)[1]
    return tensor(np.linalg.svd(array(A), compute_uv=False), A)


def _half(UPLO: str) -> Any:
    if UPLO.upper() not in ("L", "U"):
        raise RuntimeError(f"Expected UPLO argument to be 'L' or 'U', but got {UPLO}")
    return UPLO.upper()


def linalg_eigh(A: Tensor, UPLO: str) -> m.linalg_eigh:
    check("linalg.eigh", A, square=True)
    return m.linalg_eigh(*functions.Eigh.apply(A, _half(UPLO)))


def linalg_eigvalsh(A: Tensor, UPLO: str) -> Tensor:
    check("linalg.eigvalsh", A, square=True)
    if recording(A):
        return functions.Eigh.apply(A, _half(UPLO))[0]
    return tensor(np.linalg.eigvalsh(array(A), _half(UPLO)), A)


def _complex(values: np.ndarray, like: Tensor) -> Tensor:
    """NumPy gives real arrays where all eigenvalues are real."""
    return tensor(values.astype(np.complex128 if like.dtype in (_C.float64, _C.complex128) else np.complex64), like)


def linalg_eig(A: Tensor) -> m.linalg_eig:
    check("linalg.eig", A, square=True)
    refuse_gradient("linalg.eig (its results are complex)", A)
    return m.linalg_eig(*(_complex(v, A) for v in np.linalg.eig(array(A))))


def linalg_eigvals(A: Tensor) -> Tensor:
    check("linalg.eigvals", A, square=True)
    refuse_gradient("linalg.eigvals (its results are complex)", A)
    return _complex(np.linalg.eigvals(array(A)), A)


def linalg_matrix_sqrth(A: Tensor) -> Tensor:
    check("linalg.matrix_sqrth", A, square=True)
    if recording(A):  # the slope of both halves
        A = 0.5 * (A + transposed(A))
    values, vectors = functions.Eigh.apply(A, "L")
    right = transposed(vectors) if not A.is_complex() else tensor(array(vectors).swapaxes(-1, -2).conj(), A)
    return _matmul(vectors * values.sqrt().unsqueeze(-2), right)


def linalg_matrix_exp(A: Tensor) -> Tensor:
    # PyTorch stacks powers of the matrix, and stack promotes under autocast on the CPU.
    x = _C.functions.cat([A])
    if x.dtype in (_C.float16, _C.bfloat16):
        return functions.Exponential.apply(x.float()).to(x.dtype)
    check("linalg.matrix_exp", x, square=True)
    return functions.Exponential.apply(x)


# ---- LU ----


def lu_factor(A: Tensor, pivot: bool, check_errors: bool, name: str) -> m.linalg_lu_factor_ex:
    check(name, A)
    refuse_gradient(name, A)
    factors, pivots, info = m.lu(array(A), pivot)
    if check_errors and info.any():
        raise RuntimeError(f"{name}: U[{int(info.max()) - 1},{int(info.max()) - 1}] is zero, and using it on lu_solve would divide by it")
    return m.linalg_lu_factor_ex(tensor(factors, A), tensor(pivots, A), tensor(info, A))


def lu_with_info(A: Tensor, pivot: bool, check_errors: bool) -> tuple[Tensor, ...]:
    return tuple(lu_factor(A, pivot, check_errors, "_lu_with_info"))


def lu_solution(LU: Tensor, pivots: Tensor, B: Tensor, left: bool, adjoint: bool) -> Tensor:
    check("linalg.lu_solve", LU, B, square=True)
    refuse_gradient("linalg.lu_solve", LU, B)
    if not left:  # X A = B  <=>  A^H X^H = B^H
        b = tensor(array(B).swapaxes(-1, -2).conj(), B)
        return tensor(array(lu_solution(LU, pivots, b, True, not adjoint)).swapaxes(-1, -2).conj(), B)
    factors, right = array(LU), array(B)
    order = m.permutation(array(pivots), factors.shape[-1])
    if not adjoint:
        batch = np.broadcast_shapes(order.shape[:-1], right.shape[:-2])
        rows = np.broadcast_to(order, (*batch, order.shape[-1]))[..., None]
        moved = np.take_along_axis(np.broadcast_to(right, (*batch, *right.shape[-2:])), rows, -2)
        return tensor(m.triangular(factors, m.triangular(factors, moved, False, True), True, False), B)
    turned = factors.swapaxes(-1, -2).conj()
    x = m.triangular(turned, m.triangular(turned, right, False, False), True, True)
    back = np.broadcast_to(order.argsort(-1), (*x.shape[:-2], order.shape[-1]))[..., None]
    return tensor(np.take_along_axis(x, back, -2), B)


def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor) -> Tensor:
    warnings.warn(
        "torch.lu_solve is deprecated and will be removed. Use torch.linalg.lu_solve(LU, pivots, B), whose arguments stand the other "
        "way round.",
        stacklevel=2,
    )
    return lu_solution(LU_data, LU_pivots, b, True, False)


# ---- rank, least squares, conditions ----


def _refuse_low(name: str, x: Tensor) -> None:
    if x.dtype in (_C.float16, _C.bfloat16):
        raise RuntimeError(f"{name}({m.shown(x.dtype)}{list(x.shape)}): expected a tensor of 32 bits or more: convert it with .float()")


def _epsilon(x: Tensor) -> float:
    return float(_C.finfo(x.dtype).eps)


def _number(value: Any) -> Any:
    return array(value) if isinstance(value, Tensor) else value


def _tolerances(x: Tensor, atol: Any, rtol: Any) -> tuple[Any, Any]:
    """Of singular values: absolute, and as a share of the largest. A given atol sets the default of rtol to 0."""
    atol, rtol = _number(atol), _number(rtol)
    if rtol is None:
        default = _epsilon(x) * max(x.size(-2), x.size(-1))
        rtol = default if atol is None else np.where(np.asarray(atol) > 0, 0.0, default)
    return 0.0 if atol is None else atol, rtol


def _sizes(x: Tensor, hermitian: bool) -> np.ndarray:
    """Singular values, the largest first."""
    if not hermitian:
        return np.linalg.svd(array(x), compute_uv=False)
    return -np.sort(-np.abs(np.linalg.eigvalsh(array(x))), -1)


def linalg_matrix_rank(A: Tensor, tol: Any, hermitian: bool, atol: Any, rtol: Any) -> Tensor:
    _refuse_low("linalg.matrix_rank", A)
    check("linalg.matrix_rank", A, square=hermitian)
    if tol is not None:
        atol, rtol = tol, 0.0
    values = _sizes(A, hermitian)
    if not A.numel():
        return _C.functions.zeros(tuple(A.shape[:-2]), dtype=_C.int64, device=A.device)
    absolute, relative = _tolerances(A, atol, rtol)
    limit = np.maximum(absolute, np.asarray(relative) * values[..., 0])
    return tensor(np.asarray((values > np.asarray(limit)[..., None]).sum(-1), dtype=np.int64), A)


def pseudo_inverse(A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    check("linalg.pinv", A, square=hermitian)
    if not A.numel():
        return _C.functions.zeros((*A.shape[:-2], A.size(-1), A.size(-2)), dtype=A.dtype, device=A.device)
    absolute, relative = _tolerances(A, atol, rtol)
    relative = np.asarray(relative, dtype=np.float64)
    if np.any(np.asarray(absolute) > 0):
        largest = _sizes(A, hermitian)[..., 0]
        relative = np.maximum(relative, np.divide(absolute, largest, out=np.zeros(largest.shape), where=largest > 0))
    relative = np.broadcast_to(relative, tuple(A.shape[:-2]))
    return functions.PseudoInverse.apply(A, relative, hermitian)


def linalg_pinv(A: Tensor, atol: Any, rtol: Any, hermitian: bool) -> Tensor:
    _refuse_low("linalg.pinv", A)
    result = pseudo_inverse(A, atol, rtol, hermitian)
    # PyTorch's is a matrix product at the end, which autocast lowers where it acts.
    none = result.new_zeros((0, 0))
    return result.to(_C.functions.mm(none, none).dtype)


def pinverse(A: Tensor, rcond: float) -> Tensor:
    _refuse_low("linalg.pinv", A)
    return pseudo_inverse(A, None, rcond, False)


def linalg_lstsq(A: Tensor, B: Tensor, rcond: float | None, driver: str | None) -> m.linalg_lstsq:
    name = "torch.linalg.lstsq"
    if A.dtype != B.dtype:
        raise RuntimeError(f"{name}: Expected input and other to have the same dtype, but got {A.dtype} and {B.dtype}")
    _refuse_low(name, A)
    check(name, A, B)
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(f"{name}: parameter `driver` should be one of (gels, gelsy, gelsd, gelss), but got {driver!r}")
    vector = B.dim() == A.dim() - 1
    b = B.unsqueeze(-1) if vector else B
    if b.dim() != A.dim() or b.size(-2) != A.size(-2):
        raise RuntimeError(f"{name}: A (..., m, n) and B (..., m, k) or (..., m), but got {list(A.shape)} and {list(B.shape)}")
    tolerance = _epsilon(A) * max(A.size(-2), A.size(-1)) if rcond is None else rcond
    a_stack = array(A).reshape(-1, *A.shape[-2:])
    b_stack = array(b).reshape(-1, *b.shape[-2:])
    solved = [np.linalg.lstsq(x, y, tolerance) for x, y in zip(a_stack, b_stack, strict=True)]
    batch = tuple(A.shape[:-2])
    values = np.stack([s[3] for s in solved]).reshape(*batch, -1) if solved else np.zeros((*batch, 0), a_stack.dtype)
    ranks = np.array([s[2] for s in solved], dtype=np.int64).reshape(batch)
    if recording(A, B):
        solution = _matmul(pseudo_inverse(A, None, tolerance, False), b)
    else:
        solution = tensor(np.stack([s[0] for s in solved]).reshape(*batch, A.size(-1), b.size(-1)), A)
    empty = _C.functions.empty((0,), dtype=A.dtype, device=A.device)
    residuals = empty
    if driver not in (None, "gelsy") and A.size(-2) > A.size(-1) and bool((ranks == A.size(-1)).all()):
        error = _matmul(A, solution) - b
        residuals = (error * error).sum(-2)
    with_rank = driver in (None, "gelsy", "gelsd", "gelss")
    return m.linalg_lstsq(
        solution.squeeze(-1) if vector else solution,
        residuals,
        tensor(ranks, A) if with_rank else _C.functions.empty((0,), dtype=_C.int64, device=A.device),
        tensor(values, A) if driver in ("gelsd", "gelss") else empty,
    )


def linalg_cond(A: Tensor, p: Any) -> Tensor:
    check("linalg.cond", A)
    if p is None or p in (2, -2):
        values = linalg_svdvals(A, None)
        if not A.numel():
            return _C.functions.zeros(tuple(A.shape[:-2]), dtype=values.dtype, device=A.device)
        return values[..., -1] / values[..., 0] if p == -2 else values[..., 0] / values[..., -1]
    check("linalg.cond", A, square=True)
    inverse, info = functions.Inverse.apply(A, None)
    norm = _C.nn.linalg_matrix_norm
    result = norm(A, p) * norm(inverse, p)
    return _C.functions.where(info > 0, math.inf, result)
