"""Products whose arguments have several forms: of what they mean, ops are made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _C
from ._C import Tensor
from ._function_names import as_method, with_out
from ._ops import _matrix
from .nn.functional.distance import pairwise_distance

__all__ = [
    "_addmm_activation", "_lu_with_info", "chain_matmul", "cholesky", "det", "einsum", "inner", "lu", "matrix_exp", "matrix_power",
    "pairwise_distance", "qr", "slogdet", "tensordot",
]  # fmt: skip

_addmm_activation = _C.functions._addmm_activation
_lu_with_info = _C.functions._lu_with_info
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def _sublist(subscripts: Sequence[Any]) -> str:
    if isinstance(subscripts, Tensor):
        raise ValueError(
            "einsum(): a Tensor stands where the subscripts of the operand before it are due. Give an equation first, "
            'einsum("ij,jk", a, b), or numbers after each operand, einsum(a, [0, 1], b, [1, 2])'
        )
    letters = []
    for s in subscripts:
        if s is Ellipsis:
            letters.append("...")
        elif isinstance(s, int) and 0 <= s < len(_LETTERS):
            letters.append(_LETTERS[s])
        else:
            raise ValueError(f"einsum(): expected subscripts to be Ellipsis or ints within the range [0, 52), but got {s!r}")
    return "".join(letters)


def einsum(*args: Any) -> Tensor:
    """Sums of products over named dimensions.

    ``einsum("bij,bjk->bik", a, b)``: one letter per dimension and operand; letters that the output lacks are summed over, and
    without ``->`` the output has those that occur once, sorted. ``...`` stands for any number of broadcast dimensions; a
    letter repeated in one operand takes its diagonal. The operands may be one list. ``einsum(a, [0, 1], b, [1, 2], [0, 2])``
    says the same by numbers below 52 and Ellipsis.

    Raises:
        RuntimeError: the subscripts do not fit the operands, or dtypes differ in a product.
    """
    if len(args) < 2:
        raise ValueError(
            "einsum(): must specify the equation string and at least one operand, or at least one operand and its subscripts list"
        )
    if isinstance(args[0], Tensor):
        pairs, output = divmod(len(args), 2)
        operands = list(args[0 : 2 * pairs : 2])
        equation = ",".join(_sublist(s) for s in args[1 : 2 * pairs : 2])
        return _C.nn.einsum(equation + ("->" + _sublist(args[-1]) if output else ""), operands)
    given = args[1] if len(args) == 2 and isinstance(args[1], (list, tuple)) else args[1:]
    return _C.nn.einsum(args[0], list(given))


def tensordot(a: Tensor, b: Tensor, dims: Any = 2, out: Tensor | None = None) -> Tensor:
    """Sums over ``dims``: that many last dimensions of ``a`` with the first of ``b``, or a pair of lists of dimensions."""
    if isinstance(dims, Tensor):
        dims = dims.tolist()
    if isinstance(dims, int):
        if dims < 0:
            raise RuntimeError(f"tensordot expects dims >= 0, but got dims={dims}")
        if dims > min(a.dim(), b.dim()):
            raise RuntimeError(f"tensordot expects dims < ndim_a or ndim_b, but got dims={dims} for {a.dim()} and {b.dim()} dimensions")
        dims = list(range(a.dim() - dims, a.dim())), list(range(dims))
    left, right = ([d] if isinstance(d, int) else list(d) for d in dims)
    return _C.nn.tensordot(a, b, left, right, out=out)


def chain_matmul(*matrices: Tensor, out: Tensor | None = None) -> Tensor:
    """Deprecated: ``linalg.multi_dot``, with the matrices as separate arguments."""
    given = matrices[0] if len(matrices) == 1 and isinstance(matrices[0], (list, tuple)) else matrices
    return _C.nn.chain_matmul(list(given), out=out)


@with_out()
def inner(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sums of products over the last dimensions: (..., n), (more, n) -> (..., more); a 0-dim tensor multiplies."""
    if not input.dim() or not other.dim():
        return input * other
    if input.size(-1) != other.size(-1):
        raise RuntimeError(f"inner() the last dimension must match on both input tensors but got shapes {input.shape} and {other.shape}")
    if input.dim() == other.dim() == 1:
        return _C.functions.dot(input, other)
    return _C.nn.tensordot(input, other, [-1], [-1])


@with_out()
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The n-th power of square matrices (..., m, m), by repeated squaring; negative n: of the inverse."""
    if input.dim() < 2 or input.size(-1) != input.size(-2):
        raise RuntimeError(f"linalg.matrix_power: A must be batches of square matrices, but they are of shape {list(input.shape)}")
    if n < 0:
        return matrix_power(_C.nn.linalg_inv(input), -n)
    if n == 0:
        return _C.functions.zeros_like(input) + _C.functions.eye(input.size(-1), dtype=input.dtype, device=input.device)
    power, out = input, None
    while n:
        if n & 1:
            out = power if out is None else _C.functions.matmul(out, power)
        n >>= 1
        power = _C.functions.matmul(power, power) if n else power
    assert out is not None
    return out.clone() if out is input else out


def det(input: Tensor) -> Tensor:
    """Determinants: ``linalg.det``."""
    return _C.nn.linalg_det(input)


def slogdet(input: Tensor) -> _matrix.linalg_slogdet:
    """Signs and logarithms of the sizes of determinants: ``linalg.slogdet``."""
    return _C.nn.linalg_slogdet(input)


def matrix_exp(input: Tensor) -> Tensor:
    """Exponentials of square matrices: ``linalg.matrix_exp``."""
    return _C.nn.linalg_matrix_exp(input)


@with_out("any")
def lu(
    input: Tensor, pivot: bool = True, get_infos: bool = False, *, out: tuple[Tensor, ...] | None = None
) -> tuple[Tensor, ...]:
    """(LU, pivots) and, with ``get_infos``, per matrix 0 or the first zero pivot; ``linalg.lu`` gives the factors apart."""
    found = _lu_with_info(input, pivot, not get_infos)
    return found if get_infos else found[:2]


def _removed(name: str) -> RuntimeError:
    return RuntimeError(
        f"This function was deprecated since version 1.9 and is now removed: torch.{name}. Use torch.linalg.{name} instead, whose "
        "optional arguments differ."
    )


def cholesky(input: Tensor, upper: bool = False) -> Tensor:
    """Removed from PyTorch: raises RuntimeError. Use ``linalg.cholesky``."""
    raise _removed("cholesky")


def qr(input: Tensor, some: bool = True) -> tuple[Tensor, Tensor]:
    """Removed from PyTorch: raises RuntimeError. Use ``linalg.qr``."""
    raise _removed("qr")


for _name in ("inner", "matrix_power", "det", "slogdet", "matrix_exp", "lu", "cholesky", "qr"):
    setattr(Tensor, _name, as_method(globals()[_name]))
