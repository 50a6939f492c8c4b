"""The matrix functions that NumPy computes and that have a derivative. Derivatives are made of ops, so that they have one too."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor
from ..autograd.function import Function
from ._matrix import LinAlgError, array, cholesky_partial, lu, tensor, transposed, triangular

_matmul, _where = _C.functions.matmul, _C.functions.where


def _batch_text(info: np.ndarray) -> str:
    if info.ndim == 0:
        return ""
    return f"(Batch element {', '.join(str(i) for i in np.argwhere(info)[0])}): "


def inverse(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Inverses, and per matrix the number of its first zero pivot or 0; what is singular comes out as inf and NaN."""
    try:
        return np.linalg.inv(a), np.zeros(a.shape[:-2], dtype=np.int32)
    except np.linalg.LinAlgError:
        factors, _, info = lu(a)
    n = a.shape[-1]
    eye = np.broadcast_to(np.eye(n, dtype=a.dtype), a.shape)
    out = np.array(triangular(factors, triangular(factors, eye, False, True), True, False))
    for i in np.ndindex(info.shape):
        if not info[i]:
            out[i] = np.linalg.inv(a[i])
    return out, info


def check_inverse(name: str, info: np.ndarray) -> None:
    if info.any():
        step = info[tuple(np.argwhere(info)[0])] if info.ndim else info
        raise LinAlgError(
            f"{name}: {_batch_text(info)}The diagonal element {step} is zero, the inversion could not be completed because the input "
            "matrix is singular."
        )


def cholesky(a: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower factors, and per matrix the order of its first minor that is not positive-definite, or 0."""
    low = np.tril(a)
    whole = low + np.tril(a, -1).swapaxes(-1, -2).conj()
    try:
        return np.linalg.cholesky(whole), np.zeros(a.shape[:-2], dtype=np.int32)
    except np.linalg.LinAlgError:
        info = np.zeros(a.shape[:-2], dtype=np.int32)
        for i in np.ndindex(info.shape):
            low[i], info[i] = cholesky_partial(whole[i])
        return low, info


def check_cholesky(name: str, info: np.ndarray) -> None:
    if info.any():
        order = info[tuple(np.argwhere(info)[0])] if info.ndim else info
        raise LinAlgError(
            f"{name}: {_batch_text(info)}The factorization could not be completed because the input is not positive-definite "
            f"(the leading minor of order {order} is not positive-definite)."
        )


class Inverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, name: str | None) -> Any:
        values, info = inverse(array(a))
        if name is not None:
            check_inverse(name, info)
        out, flags = tensor(values, a), tensor(info, a)
        ctx.save_for_backward(out)
        ctx.mark_non_differentiable(flags)
        return out, flags

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        (out,) = ctx.saved_tensors
        y = transposed(out)
        return -_matmul(_matmul(y, g), y), None


class Solve(Function):
    """x of a x = b, both (..., n, .) of equal leading sizes."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        try:
            x = tensor(np.linalg.solve(array(a), array(b)), a)
        except np.linalg.LinAlgError:
            raise LinAlgError("torch.linalg.solve: The solver failed because the input matrix is singular.") from None
        ctx.save_for_backward(a, x)
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, x = ctx.saved_tensors
        back = Solve.apply(transposed(a), g)
        return -_matmul(back, transposed(x)), back


class SolveTriangular(Function):
    """As Solve, where a's other half, and with `unit` its diagonal, is not looked at."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, upper: bool, unit: bool) -> Tensor:
        x = tensor(triangular(array(a), array(b), upper, unit), a)
        ctx.save_for_backward(a, x)
        ctx.form = upper, unit
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, x = ctx.saved_tensors
        upper, unit = ctx.form
        back = SolveTriangular.apply(transposed(a), g, not upper, unit)
        slope = -_matmul(back, transposed(x))
        half = slope.triu(int(unit)) if upper else slope.tril(-int(unit))
        return half, back, None, None


def _cofactors(a: np.ndarray) -> np.ndarray:
    """The slope of det at any matrix: from a = u s v, det(u) det(v) u diag(product of the other singular values) v."""
    u, s, v = np.linalg.svd(a)
    n = s.shape[-1]
    others = np.where(np.eye(n, dtype=bool), 1, s[..., None, :]).prod(-1)
    sign = np.linalg.det(u) * np.linalg.det(v)
    return sign[..., None, None] * (u * others[..., None, :]) @ v


class Det(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        out = tensor(np.asarray(np.linalg.det(array(a))), a)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, out = ctx.saved_tensors
        spread = g.unsqueeze(-1).unsqueeze(-1)
        if bool((out != 0).all()):
            return spread * out.unsqueeze(-1).unsqueeze(-1) * transposed(_C.nn.linalg_inv(a))
        if _C.is_grad_enabled():
            raise RuntimeError("det: a singular matrix has no second derivative here: call backward() without create_graph")
        return spread * tensor(_cofactors(array(a)).astype(array(a).dtype), a)


class SignLogDet(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        sign, logarithm = (tensor(np.asarray(v), a) for v in np.linalg.slogdet(array(a)))
        ctx.save_for_backward(a, logarithm)
        ctx.mark_non_differentiable(sign)
        return sign, logarithm

    @staticmethod
    def backward(ctx: Any, _: Any, g: Tensor) -> Any:
        a, logarithm = ctx.saved_tensors
        spread = g.unsqueeze(-1).unsqueeze(-1)
        if not bool((logarithm == -math.inf).any()):
            return spread * transposed(_C.nn.linalg_inv(a))
        if _C.is_grad_enabled():
            raise RuntimeError("slogdet: a singular matrix has no second derivative here: call backward() without create_graph")
        with np.errstate(divide="ignore", invalid="ignore"):  # a singular matrix's inverse is infinite, or NaN
            slope = _cofactors(array(a)) / np.asarray(np.linalg.det(array(a)))[..., None, None]
        return spread * tensor(slope.astype(array(a).dtype), a)


class Cholesky(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, name: str | None) -> Any:
        values, info = cholesky(array(a))
        if name is not None:
            check_cholesky(name, info)
        out, flags = tensor(values, a), tensor(info, a)
        ctx.save_for_backward(out)
        ctx.mark_non_differentiable(flags)
        return out, flags

    @staticmethod
    def backward(ctx: Any, g: Tensor, _: Any) -> Any:
        (low,) = ctx.saved_tensors
        middle = _matmul(transposed(low), g)
        middle = middle.tril() - 0.5 * (middle.tril() - middle.tril(-1))
        middle = 0.5 * (middle + transposed(middle))
        above = transposed(low)
        left = SolveTriangular.apply(above, middle, True, False)  # L^-T M
        return transposed(SolveTriangular.apply(above, transposed(left), True, False)), None


def _off_diagonal(values: Tensor) -> Tensor:
    """1 / (v[j] - v[i]) at (i, j), 0 on the diagonal."""
    difference = values.unsqueeze(-2) - values.unsqueeze(-1)
    diagonal = _C.functions.eye(values.size(-1), dtype=_C.float32, device=values.device) > 0
    return _where(diagonal, 0.0, 1 / _where(diagonal, 1.0, difference))


def _diagonal(values: Tensor) -> Tensor:
    eye = _C.functions.eye(values.size(-1), dtype=values.dtype, device=values.device)
    return values.unsqueeze(-1) * eye


class Eigh(Function):
    """Eigenvalues in rising order, and eigenvectors as columns. Equal eigenvalues have no slope of vectors: inf or NaN."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, half: Any) -> Any:
        values, vectors = (tensor(v, a) for v in np.linalg.eigh(array(a), half))
        ctx.save_for_backward(values, vectors)
        ctx.set_materialize_grads(False)
        return values, vectors

    @staticmethod
    def backward(ctx: Any, g_values: Tensor | None, g_vectors: Tensor | None) -> Any:
        values, vectors = ctx.saved_tensors
        middle = None if g_values is None else _diagonal(g_values)
        if g_vectors is not None:
            turned = _matmul(transposed(vectors), g_vectors) * _off_diagonal(values)
            middle = turned if middle is None else middle + turned
        if middle is None:
            return None, None
        slope = _matmul(_matmul(vectors, middle), transposed(vectors))
        return (slope + transposed(slope)) / 2, None  # of all slopes on symmetric matrices the symmetric one


class Svd(Function):
    """U (m, k), S (k), Vh (k, n) with k = min(m, n)."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        out = tuple(tensor(v, a) for v in np.linalg.svd(array(a), full_matrices=False))
        ctx.save_for_backward(*out)
        ctx.set_materialize_grads(False)
        return out

    @staticmethod
    def backward(ctx: Any, gu: Tensor | None, gs: Tensor | None, gvh: Tensor | None) -> Any:
        u, s, vh = ctx.saved_tensors
        ut, v = transposed(u), transposed(vh)
        middle = None if gs is None else _diagonal(gs)
        inverse_gaps = _off_diagonal(s * s)
        if gu is not None:
            turned = _matmul(ut, gu)
            part = (turned - transposed(turned)) * inverse_gaps * s.unsqueeze(-2)
            middle = part if middle is None else middle + part
        if gvh is not None:
            turned = _matmul(vh, transposed(gvh))
            part = s.unsqueeze(-1) * (turned - transposed(turned)) * inverse_gaps
            middle = part if middle is None else middle + part
        if middle is None:
            return None
        result = _matmul(_matmul(u, middle), vh)
        if gu is not None and u.size(-2) > u.size(-1):
            outside = gu / s.unsqueeze(-2)
            result = result + _matmul(outside - _matmul(u, _matmul(ut, outside)), vh)
        if gvh is not None and vh.size(-1) > vh.size(-2):
            outside = gvh / s.unsqueeze(-1)
            result = result + _matmul(u, outside - _matmul(_matmul(outside, v), vh))
        return result


class Qr(Function):
    """Q (m, n) and R (n, n) of matrices with m >= n."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Any:
        out = tuple(tensor(v, a) for v in np.linalg.qr(array(a), "reduced"))
        ctx.save_for_backward(*out)
        return out

    @staticmethod
    def backward(ctx: Any, gq: Tensor, gr: Tensor) -> Any:
        q, r = ctx.saved_tensors
        middle = _matmul(r, transposed(gr)) - _matmul(transposed(gq), q)
        symmetric = middle.tril() + transposed(middle.tril(-1))
        right = gq + _matmul(q, symmetric)
        return transposed(SolveTriangular.apply(r, transposed(right), True, False))  # right R^-T


class PseudoInverse(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, rtol: np.ndarray, hermitian: bool) -> Tensor:
        out = tensor(np.linalg.pinv(array(a), rtol, hermitian), a)
        ctx.save_for_backward(a, out)
        return out

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, p = ctx.saved_tensors
        pt, gt = transposed(p), transposed(g)
        result = -_matmul(_matmul(pt, g), pt)
        spare = _matmul(gt, _matmul(p, pt))
        result = result + spare - _matmul(a, _matmul(p, spare))
        spare = _matmul(_matmul(pt, p), gt)
        return result + spare - _matmul(_matmul(spare, p), a), None, None


def exponential(a: np.ndarray) -> np.ndarray:
    """exp of matrices: halved until small, the Taylor series to the last bit, squared back."""
    out = np.empty_like(a)
    for i in np.ndindex(a.shape[:-2]):
        x = a[i]
        size = np.abs(x).sum(0).max(initial=0)
        halvings = max(0, int(np.ceil(np.log2(size))) + 1) if np.isfinite(size) and size > 0 else 0
        x = x / 2.0**halvings
        term = total = np.eye(x.shape[-1], dtype=x.dtype)
        for k in range(1, 20):
            term = term @ x / k
            total = total + term
        for _ in range(halvings):
            total = total @ total
        out[i] = total
    return out


class Exponential(Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        values = array(a)
        wide = np.complex128 if a.is_complex() else np.float64
        return tensor(exponential(values.astype(wide)).astype(values.dtype), a)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        (a,) = ctx.saved_tensors
        # The slope in direction g stands in the corner of exp [[a^T, g], [0, a^T]].
        n, at = a.size(-1), transposed(a)
        upper = _C.functions.cat([at, g], -1)
        lower = _C.functions.cat([_C.functions.zeros_like(at), at], -1)
        return Exponential.apply(_C.functions.cat([upper, lower], -2))[..., :n, n:]
