"""Matrices through NumPy: what is asked of arguments, the types of several results, and the factorisations that NumPy lacks.

All of it works on stacks of matrices, (..., m, n).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .. import _C
from .._C import Tensor

_SHOWN = {
    _C.float16: "Half", _C.bfloat16: "BFloat16", _C.float32: "Float", _C.float64: "Double", _C.int64: "Long", _C.int32: "Int",
    _C.bool: "Bool", _C.complex64: "ComplexFloat", _C.complex128: "ComplexDouble",
}  # fmt: skip


class LinAlgError(RuntimeError):
    """The matrix does not allow the computation: it is singular, not positive-definite, or an iteration did not converge."""


class linalg_svd(NamedTuple):
    """U (..., m, k), the singular values S (..., k) in descending order, and Vh (..., k, n), V transposed and
    conjugated.
    """

    U: Tensor
    S: Tensor
    Vh: Tensor


class svd(NamedTuple):
    """U, the singular values S in descending order, and V, not transposed."""

    U: Tensor
    S: Tensor
    V: Tensor


class linalg_qr(NamedTuple):
    """Q with orthonormal columns and the upper triangle R."""

    Q: Tensor
    R: Tensor


class geqrf(NamedTuple):
    """R and the reflectors of Q in one matrix, and their factors."""

    a: Tensor
    tau: Tensor


class linalg_eig(NamedTuple):
    """Eigenvalues (..., n), complex and in no order, and eigenvectors as columns (..., n, n)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_eigh(NamedTuple):
    """Real eigenvalues (..., n) in ascending order, and orthonormal eigenvectors as columns (..., n, n)."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class linalg_slogdet(NamedTuple):
    """Sign of the determinant (...), and the logarithm of its size."""

    sign: Tensor
    logabsdet: Tensor


class linalg_inv_ex(NamedTuple):
    """The inverse, and per matrix 0 or the number of the zero pivot (int32)."""

    inverse: Tensor
    info: Tensor


class linalg_cholesky_ex(NamedTuple):
    """The factor, and per matrix 0 or the order of the first minor that is not positive (int32)."""

    L: Tensor
    info: Tensor


class linalg_lu_factor(NamedTuple):
    """L and U in one matrix, and the row exchanges (int32, from 1)."""

    LU: Tensor
    pivots: Tensor


class linalg_lu_factor_ex(NamedTuple):
    """L and U in one matrix, the row exchanges (int32, from 1), and per matrix 0 or the number of the zero pivot."""

    LU: Tensor
    pivots: Tensor
    info: Tensor


class linalg_lu(NamedTuple):
    """Permutation P, lower L with ones on its diagonal, and upper U: A = P L U."""

    P: Tensor
    L: Tensor
    U: Tensor


class linalg_lstsq(NamedTuple):
    """The solution, and the residuals, rank and singular values where the driver gives them (else empty)."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class linalg_ldl_factor(NamedTuple):
    """L and D in one matrix, and the row exchanges (int32, from 1; negative ones: halves of 2 x 2 blocks of D)."""

    LD: Tensor
    pivots: Tensor


class linalg_ldl_factor_ex(NamedTuple):
    """L and D in one matrix, the row exchanges, and per matrix 0 or the number of the zero block of D."""

    LD: Tensor
    pivots: Tensor
    info: Tensor


class frexp(NamedTuple):
    """Mantissas in [0.5, 1), with signs, and int32 exponents of 2."""

    mantissa: Tensor
    exponent: Tensor


class histogram(NamedTuple):
    """Counts or sums of the bins (n), and the edges between and around them (n + 1)."""

    hist: Tensor
    bin_edges: Tensor


class triangular_solve(NamedTuple):
    """The solution, and a copy of the coefficients."""

    solution: Tensor
    cloned_coefficient: Tensor


# ---- arguments ----


def shown(dtype: Any) -> str:
    return _SHOWN.get(dtype, str(dtype))


def check(name: str, *tensors: Tensor, square: bool = False, matrices: bool = True) -> None:
    """All of one dtype, which has at least 32 bits and is floating or complex; the first is a stack of (square) matrices."""
    first = tensors[0]
    for t in tensors[1:]:
        if t.dtype != first.dtype:
            raise RuntimeError(
                f"{name}: Expected all tensors to have the same dtype, but found {' and '.join(shown(t.dtype) for t in tensors)}"
            )
    check_dtype(name, first)
    if matrices and first.dim() < 2:
        raise RuntimeError(f"{name}: The input tensor A must have at least 2 dimensions, but got {list(first.shape)}.")
    if square and first.size(-1) != first.size(-2):
        raise RuntimeError(
            f"{name}: A must be batches of square matrices, but they are {first.size(-2)} by {first.size(-1)} matrices"
        )


def check_dtype(name: str, x: Tensor) -> None:
    if x.dtype in (_C.float16, _C.bfloat16):
        raise NotImplementedError(
            f'"{name}" not implemented for \'{shown(x.dtype)}\': low precision dtypes are not supported. Convert with .float()'
        )
    if x.dtype not in (_C.float32, _C.float64, _C.complex64, _C.complex128):
        raise NotImplementedError(f"{name}: Expected a floating point or complex tensor as input. Got {shown(x.dtype)}")


def recording(*tensors: Tensor) -> bool:
    return _C.is_grad_enabled() and any(t.requires_grad for t in tensors)


def refuse_gradient(name: str, *tensors: Tensor) -> None:
    """For ops without a derivative: nobody shall find out from a missing gradient."""
    if recording(*tensors):
        raise RuntimeError(f"{name} has no derivative here, but an argument requires grad: call it on .detach(), or under no_grad()")


def array(x: Tensor) -> np.ndarray:
    return x.detach().cpu().numpy()


def tensor(values: Any, like: Tensor) -> Tensor:
    """On the device of `like`, with the array's own dtype."""
    return _C.from_numpy(np.ascontiguousarray(values).reshape(np.shape(values))).to(like.device)


def transposed(x: Tensor) -> Tensor:
    return x.transpose(-2, -1)


# ---- factorisations ----


def lu(a: np.ndarray, pivot: bool = True) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """L below and U on and above the diagonal of one array; rows exchanged per step, from 1; the first zero pivot, from 1, or 0.

    Step k:     columns 0 .. k-1 are done
         k
      [  .        the largest |entry| of column k at or below row k becomes the pivot p,
    k [  p u u    the entries below it the multipliers l,
      [  l x x    and  x -= l u
    """
    a = a.copy()
    *batch, m, n = a.shape
    stack = a.reshape(-1, m, n)
    steps = min(m, n)
    rows = np.arange(len(stack))
    pivots = np.tile(np.arange(1, steps + 1, dtype=np.int32), (len(stack), 1))
    info = np.zeros(len(stack), dtype=np.int32)
    with np.errstate(all="ignore"):
        for k in range(steps):
            if pivot:
                chosen = k + np.abs(stack[:, k:, k]).argmax(1)
                pivots[:, k] = chosen + 1
                stack[rows, k], stack[rows, chosen] = stack[rows, chosen], stack[rows, k]
            p = stack[:, k, k]
            info[(p == 0) & (info == 0)] = k + 1
            below = stack[:, k + 1 :, k]
            stack[:, k + 1 :, k] = np.where(p[:, None] == 0, below, below / np.where(p == 0, 1, p)[:, None])
            stack[:, k + 1 :, k + 1 :] -= stack[:, k + 1 :, k, None] * stack[:, k, None, k + 1 :]
    return stack.reshape(a.shape), pivots.reshape(*batch, steps), info.reshape(batch)


def permutation(pivots: np.ndarray, m: int) -> np.ndarray:
    """The order of rows that the exchanges lead to: row i of the result is row order[i] of the original."""
    *batch, steps = pivots.shape
    order = np.tile(np.arange(m), (max(int(np.prod(batch)), 0), 1))
    flat, rows = pivots.reshape(-1, steps), np.arange(len(order))
    for k in range(steps):
        other = flat[:, k] - 1
        order[rows, k], order[rows, other] = order[rows, other], order[rows, k]
    return order.reshape(*batch, m)


def triangular(a: np.ndarray, b: np.ndarray, upper: bool, unit: bool) -> np.ndarray:
    """x of a x = b by substitution; a zero on the diagonal divides, as in BLAS."""
    n = a.shape[-1]
    x = np.array(np.broadcast_to(b, (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:])))
    with np.errstate(all="ignore"):
        for i in range(n - 1, -1, -1) if upper else range(n):
            done = slice(i + 1, n) if upper else slice(0, i)
            row = x[..., i, :] - (a[..., i, None, done] @ x[..., done, :])[..., 0, :]
            x[..., i, :] = row if unit else row / a[..., i, i, None]
    return x


def cholesky_partial(a: np.ndarray) -> tuple[np.ndarray, int]:
    """L as far as it goes for one matrix, and the order of the leading minor that is not positive-definite (0: all are)."""
    low = np.tril(a)
    for k in range(len(a)):
        left = low[k, :k]
        p = (low[k, k] - left @ left.conj()).real
        if not p > 0:
            low[k, k] = p
            return low, k + 1
        low[k, k] = np.sqrt(p)
        low[k + 1 :, k] = (low[k + 1 :, k] - low[k + 1 :, :k] @ left.conj()) / low[k, k]
    return low, 0


def reflect(h: np.ndarray, tau: np.ndarray, c: np.ndarray, transpose: bool) -> np.ndarray:
    """Q c or Q^H c, where Q = H(1) .. H(k), H(i) = 1 - tau[i] v v^H, and v is column i of h below a 1 on the diagonal."""
    c = np.array(c)
    k = tau.shape[-1]
    for i in range(k) if transpose else range(k - 1, -1, -1):
        v = np.array(h[..., :, i])
        v[..., :i] = 0
        v[..., i] = 1
        t = tau[..., i].conj() if transpose else tau[..., i]
        c -= t[..., None, None] * v[..., :, None] * (v.conj()[..., None, :] @ c)
    return c
