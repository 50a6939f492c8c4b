"""Linear algebra under PyTorch's names. NumPy computes the decompositions and solvers, in float32, float64 and complex dtypes; 16-bit
tensors are refused there outside autocast on the CPU, which casts them.

Derivatives exist for what is differentiable by a short rule; the others say on an argument that requires grad that they have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from . import _C
from ._absent import absent_op
from ._C import Tensor
from ._function_names import with_out
from ._functions_products import matrix_power
from ._ops._common import one_integer
from ._ops._matrix import (
    LinAlgError,
    linalg_ldl_factor,
    linalg_ldl_factor_ex,
    linalg_lu,
    linalg_lu_factor,
    linalg_lu_factor_ex,
)

__all__ = [
    "LinAlgError", "cholesky", "cholesky_ex", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh",
    "householder_product", "inv", "inv_ex", "ldl_factor", "ldl_factor_ex", "ldl_solve", "lstsq", "lu", "lu_factor",
    "lu_factor_ex", "lu_solve", "matmul", "matrix_exp", "matrix_norm", "matrix_power", "matrix_rank", "matrix_sqrth",
    "multi_dot", "norm", "pinv", "qr", "slogdet", "solve", "solve_ex", "solve_triangular", "svd", "svdvals", "tensorinv",
    "tensorsolve", "vander", "vecdot", "vector_norm",
]  # fmt: skip

cholesky = _C.nn.linalg_cholesky
cholesky_ex = _C.nn.linalg_cholesky_ex
cond = _C.nn.linalg_cond
cross = _C.nn.linalg_cross
det = _C.nn.linalg_det
eig = _C.nn.linalg_eig
eigh = _C.nn.linalg_eigh
eigvals = _C.nn.linalg_eigvals
eigvalsh = _C.nn.linalg_eigvalsh
householder_product = _C.nn.linalg_householder_product
inv = _C.nn.linalg_inv
inv_ex = _C.nn.linalg_inv_ex
lstsq = _C.nn.linalg_lstsq
matmul = _C.functions.matmul
matrix_exp = _C.nn.linalg_matrix_exp
matrix_norm = _C.nn.linalg_matrix_norm
matrix_rank = _C.nn.linalg_matrix_rank
matrix_sqrth = _C.nn.linalg_matrix_sqrth
multi_dot = _C.nn.linalg_multi_dot
pinv = _C.nn.linalg_pinv
qr = _C.nn.linalg_qr
slogdet = _C.nn.linalg_slogdet
solve = _C.nn.linalg_solve
solve_triangular = _C.nn.linalg_solve_triangular
svd = _C.nn.linalg_svd
svdvals = _C.nn.linalg_svdvals
tensorinv = _C.nn.linalg_tensorinv
tensorsolve = _C.nn.linalg_tensorsolve
vecdot = _C.nn.linalg_vecdot
vector_norm = _C.nn.linalg_vector_norm


def norm(
    A: Tensor,
    ord: Any = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: Any = None,
) -> Tensor:
    """A vector's or a matrix's norm, by the number of dimensions: :func:`vector_norm` for one ``dim`` or a 1-D tensor,
    :func:`matrix_norm` for two; without ``ord`` the root of the sum of squares.

    Raises:
        RuntimeError: ``ord`` without ``dim`` on a tensor that is neither a vector nor a matrix.
    """
    dim = one_integer(dim)
    dims = (dim,) if isinstance(dim, int) else None if dim is None else tuple(dim)
    options = {"dtype": dtype} if dtype is not None else {}
    if out is not None:
        options["out"] = out
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, **options)
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}")
    if dims is None and A.dim() not in (1, 2):
        raise RuntimeError(f"linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got {A.dim()}D.")
    if isinstance(ord, str) or len(dims or A.shape) == 2:
        return matrix_norm(A, ord, dims if dims is not None else (-2, -1), keepdim, **options)
    return vector_norm(A, ord, dims, keepdim, **options)


@with_out()
def lu_factor_ex(
    A: Tensor, *, pivot: bool = True, check_errors: bool = False, out: tuple[Tensor, Tensor, Tensor] | None = None
) -> linalg_lu_factor_ex:
    """(LU, pivots, info): both factors in one matrix, row exchanges counted from 1, and the first zero pivot or 0."""
    from ._ops.linalg import lu_factor as factor

    return factor(A, pivot, check_errors, "linalg.lu_factor_ex")


@with_out()
def lu_factor(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, Tensor] | None = None) -> linalg_lu_factor:
    """(LU, pivots) of matrices (..., m, n): L below the diagonal (which holds U's), int32 row exchanges counted from 1."""
    from ._ops.linalg import lu_factor as factor

    return linalg_lu_factor(*factor(A, pivot, False, "linalg.lu_factor")[:2])


@with_out()
def lu(A: Tensor, *, pivot: bool = True, out: tuple[Tensor, Tensor, Tensor] | None = None) -> linalg_lu:
    """(P, L, U) with A = P L U; without ``pivot`` P is empty."""
    import numpy as np

    from ._ops import _matrix as m

    factors, pivots, _ = lu_factor_ex(A, pivot=pivot)
    rows, k = A.size(-2), min(A.size(-2), A.size(-1))
    low = factors[..., :, :k].tril(-1) + _C.functions.eye(rows, k, dtype=A.dtype, device=A.device)
    if not pivot:
        return linalg_lu(_C.functions.empty((0,), dtype=A.dtype, device=A.device), low, factors[..., :k, :].triu())
    order = m.permutation(m.array(pivots), rows)
    exchange = np.swapaxes(np.eye(rows, dtype=A.dtype.dtype)[order], -1, -2)
    return linalg_lu(m.tensor(exchange, A), low, factors[..., :k, :].triu())


@with_out()
def lu_solve(
    LU: Tensor, pivots: Tensor, B: Tensor, *, left: bool = True, adjoint: bool = False, out: Tensor | None = None
) -> Tensor:
    """X of A X = B (``left=False``: X A = B; ``adjoint``: with the conjugate transpose of A), from :func:`lu_factor`."""
    from ._ops.linalg import lu_solution

    return lu_solution(LU, pivots, B, left, adjoint)


def ldl_factor_ex(A: Tensor, *, hermitian: bool = False, check_errors: bool = False) -> linalg_ldl_factor_ex:
    """(LD, pivots, info): :func:`ldl_factor` that counts instead of raising, unless ``check_errors``: info is 0, or the number of the
    first zero block of D."""
    import numpy as np

    from ._ops import _ldl
    from ._ops import _matrix as m

    m.check("linalg.ldl_factor_ex", A, square=True)
    m.check_dtype("linalg.ldl_factor_ex", A)
    m.refuse_gradient("linalg.ldl_factor_ex", A)
    values = m.array(A)
    stack = values.reshape(math.prod(values.shape[:-2]), *values.shape[-2:])
    parts = [_ldl.factor(one, hermitian) for one in stack]
    info = np.array([part[2] for part in parts], np.int32).reshape(values.shape[:-2])
    if check_errors and info.any():
        raise LinAlgError(f"linalg.ldl_factor: the matrix is singular: block {int(info[info != 0][0])} of D is zero")
    factors = np.array([part[0] for part in parts], values.dtype).reshape(values.shape)
    pivots = np.array([part[1] for part in parts], np.int32).reshape(values.shape[:-1])
    return linalg_ldl_factor_ex(m.tensor(factors, A), m.tensor(pivots, A), m.tensor(info, A))


def ldl_factor(A: Tensor, *, hermitian: bool = False) -> linalg_ldl_factor:
    """(LD, pivots) of symmetric matrices (..., n, n), or Hermitian ones: A = L D L^T with rows and columns exchanged, in LAPACK's
    form, of which the lower triangle of A is read. For :func:`ldl_solve`.

    Raises:
        LinAlgError: D has a zero block. RuntimeError for what is no square matrix or requires grad.
    """
    return linalg_ldl_factor(*ldl_factor_ex(A, hermitian=hermitian, check_errors=True)[:2])


def ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False) -> Tensor:
    """X (..., n, k) of A X = B from :func:`ldl_factor`; stacks broadcast. RuntimeError for what does not fit or requires grad."""
    import numpy as np

    from ._ops import _ldl
    from ._ops import _matrix as m

    m.check("linalg.ldl_solve", LD, square=True)
    m.check("linalg.ldl_solve", B)
    m.refuse_gradient("linalg.ldl_solve", LD, B)
    if pivots.is_floating_point() or pivots.is_complex():
        raise RuntimeError(f"linalg.ldl_solve: Expected pivots to be integers. Got {m.shown(pivots.dtype)}")
    if pivots.shape != LD.shape[:-1]:
        raise RuntimeError(
            f"linalg.ldl_solve: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape {list(pivots.shape)}"
        )
    if LD.dtype != B.dtype:
        raise RuntimeError(f"linalg.ldl_solve: LD and B must have the same dtype, but they are {m.shown(LD.dtype)} and {m.shown(B.dtype)}")
    if B.size(-2) != LD.size(-1):
        raise RuntimeError(f"linalg.ldl_solve: shapes {list(LD.shape)} and {list(B.shape)} do not fit: B needs {LD.size(-1)} rows")
    batch = np.broadcast_shapes(tuple(LD.shape[:-2]), tuple(B.shape[:-2]))
    factors = np.broadcast_to(m.array(LD), (*batch, *LD.shape[-2:])).reshape(-1, *LD.shape[-2:])
    order = np.broadcast_to(m.array(pivots), (*batch, LD.size(-1))).reshape(-1, LD.size(-1))
    right = np.broadcast_to(m.array(B), (*batch, *B.shape[-2:])).reshape(-1, *B.shape[-2:])
    parts = [_ldl.solve(f, p, b, hermitian) for f, p, b in zip(factors, order, right, strict=True)]
    return m.tensor(np.array(parts, right.dtype).reshape(*batch, *B.shape[-2:]), B)


@with_out()
def solve_ex(
    A: Tensor, B: Tensor, *, left: bool = True, check_errors: bool = False, out: tuple[Tensor, Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """(result, info): :func:`solve` that counts instead of raising: info is 0, or the first zero pivot of a singular A."""
    from ._ops import _matrix as m

    try:
        x = solve(A, B, left=left)
        return x, _C.functions.zeros(tuple(A.shape[:-2]), dtype=_C.int32, device=A.device)
    except LinAlgError:
        if check_errors:
            raise
        info = m.lu(m.array(A))[2]
        return _C.functions.full_like(B, float("nan")), m.tensor(info, A)


def diagonal(A: Tensor, *, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The diagonals of matrices, a view."""
    return A.diagonal(offset, dim1, dim2)


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """Powers 0 to N - 1 of vectors: (..., n) -> (..., n, N)."""
    if x.dtype in (_C.bool, _C.float16, _C.bfloat16):
        raise NotImplementedError(f"linalg.vander supports floating point, complex, and integer tensors, but got {x.dtype}")
    count = x.size(-1) if N is None else N
    exponents = _C.functions.arange(count, device=x.device)
    return x.unsqueeze(-1) ** exponents


def __getattr__(name: str) -> Any:
    raise absent_op(f"linalg_{name}", f"linalg.{name}") or AttributeError(f"module 'ampnative.linalg' has no attribute '{name}'")
