"""Ready-made parametrizations: orthogonal, weight_norm and spectral_norm."""

from __future__ import annotations

from typing import Any

from ... import _C, linalg
from ..._C import Tensor
from ..._functions import allclose
from ..._functions_products import matrix_exp
from ..module import Module
from .parametrize import register_parametrization
from .weight_norm import as_matrix, default_dim, norm_except_dim, normalized, power_iterate, unit

_f: Any = _C.functions

__all__ = ["orthogonal", "spectral_norm", "weight_norm"]


class _WeightNorm(Module):
    def __init__(self, dim: int | None = 0) -> None:
        super().__init__()
        self.dim = -1 if dim is None else dim

    def forward(self, weight_g: Tensor, weight_v: Tensor) -> Tensor:
        return normalized(weight_v, weight_g, self.dim)

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """A parameter as norms (``original0``, over all dimensions but ``dim``; None: one norm) times directions (``original1``).
    Loads the state of the older ``nn.utils.weight_norm`` too. Returns the module.
    """
    register_parametrization(module, name, _WeightNorm(dim), unsafe=True)

    def accept_old_keys(state_dict: Any, prefix: str, *_: Any) -> None:
        for old, new in (("_g", "original0"), ("_v", "original1")):
            key = f"{prefix}{name}{old}"
            if key in state_dict:
                state_dict[f"{prefix}parametrizations.{name}.{new}"] = state_dict.pop(key)

    module._register_load_state_dict_pre_hook(accept_old_keys)
    return module


class _SpectralNorm(Module):
    _u: Tensor
    _v: Tensor

    def __init__(self, weight: Tensor, n_power_iterations: int = 1, dim: int = 0, eps: float = 1e-12) -> None:
        super().__init__()
        if not -weight.dim() <= dim < weight.dim():
            raise IndexError(f"Dimension out of range (expected to be in range of [-{weight.dim()}, {weight.dim() - 1}] but got {dim})")
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.dim, self.eps, self.n_power_iterations = dim % weight.dim(), eps, n_power_iterations
        if weight.dim() > 1:
            matrix = as_matrix(weight, self.dim).detach()
            self.register_buffer("_u", unit(matrix.new_empty(matrix.size(0)).normal_(0, 1), eps))
            self.register_buffer("_v", unit(matrix.new_empty(matrix.size(1)).normal_(0, 1), eps))
            power_iterate(matrix.t(), self._v, self._u, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return unit(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iterate(matrix.t(), self._v, self._u, self.n_power_iterations, self.eps)
        u, v = self._u.clone(), self._v.clone()  # the next forward moves the buffers in place
        return weight / u.dot(matrix.mv(v))

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """A parameter over its largest singular value (of the matrix with ``dim`` as rows), which power iteration estimates at each
    reading while training; of a vector, over its norm. Buffers ``_u`` and ``_v``. Returns the module.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    wanted = default_dim(module) if dim is None else dim
    register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, wanted, eps))
    return module


class _Orthogonal(Module):
    """Of the n x k matrix ``original`` (n >= k; a wide one is taken transposed) only what is below the diagonal counts.

    matrix_exp, cayley   Q = exp(S), or (1 - S/2)^-1 (1 + S/2), of the skew matrix S = L - L^H, L padded to n x n
    householder          Q = the product of the reflections whose vectors are 1 and the column below it; signs on the diagonal

    With ``use_trivialization`` the weight is base Q: any value can be assigned, as a new base with Q = 1.
    """

    base: Tensor

    def __init__(self, weight: Tensor, orthogonal_map: str, use_trivialization: bool) -> None:
        super().__init__()
        if weight.is_complex() and orthogonal_map == "householder":
            raise ValueError("The householder parametrization does not support complex tensors")
        self.shape, self.orthogonal_map = weight.shape, orthogonal_map
        if use_trivialization:
            self.register_buffer("base", None)

    def forward(self, original: Tensor) -> Tensor:
        wide = original.size(-2) < original.size(-1)
        x = original.mT if wide else original
        q = _reflections(x) if self.orthogonal_map == "householder" else self._of_skew(x.tril())
        if hasattr(self, "base"):
            q = self.base @ q
        return q.mT if wide else q

    def _of_skew(self, x: Tensor) -> Tensor:
        n, k = x.shape[-2:]
        square = _f.cat([x, x.new_zeros((*x.shape[:-1], n - k))], -1) if n > k else x
        skew = square - square.mH
        if self.orthogonal_map == "matrix_exp":
            return matrix_exp(skew)[..., :k]
        one = _f.eye(n, dtype=x.dtype, device=x.device)
        return linalg.solve(one - 0.5 * skew, one + 0.5 * skew)[..., :k]

    def right_inverse(self, value: Tensor) -> Tensor:
        if value.shape != self.shape:
            raise ValueError(f"Expected a matrix or batch of matrices of shape {self.shape}. Got a tensor of shape {value.shape}.")
        wide = value.size(-2) < value.size(-1)
        q = value.detach().mT if wide else value.detach()
        n, k = q.shape[-2:]
        if not hasattr(self, "base"):
            if self.orthogonal_map != "householder":
                raise NotImplementedError(
                    "It is not possible to assign to the matrix exponential or the Cayley parametrizations when "
                    "use_trivialization=False."
                )
            packed, tau = _f.geqrf(q)
            signs = packed.diagonal(0, -2, -1)
            signs.sign_()
            signs[tau == 0.0] *= -1  # no reflection was needed there, but forward makes one
            return packed.mT if wide else packed
        if n > k:
            q = _f.cat([q, _f.randn((*q.shape[:-2], n, n - k), dtype=q.dtype, device=q.device)], -1)
        self.base = q.clone() if n == k and _is_orthogonal(q) else _orthogonalised(q)
        start = _f.zeros_like(value)
        start.diagonal(0, -2, -1).fill_(-1.0)
        return start


def _reflections(x: Tensor) -> Tensor:
    below = x.tril(-1)
    tau = 2.0 / (1.0 + (below * below).sum(-2))
    return linalg.householder_product(below, tau) * x.diagonal(0, -2, -1).detach().sign().unsqueeze(-2)


def _orthogonalised(a: Tensor) -> Tensor:
    """The Q of a = QR with a positive diagonal of R."""
    packed, tau = _f.geqrf(a)
    return linalg.householder_product(packed, tau) * packed.diagonal(0, -2, -1).sgn().unsqueeze(-2)


def _is_orthogonal(q: Tensor) -> bool:
    n, k = q.shape[-2:]
    one = _f.eye(k, dtype=q.dtype, device=q.device)
    return allclose(q.mH @ q, one, atol=10.0 * n * _C.finfo(q.dtype).eps)


def orthogonal(
    module: Any, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Any:
    """A matrix, or a batch of them, with orthonormal columns (of a wide one: rows). ``orthogonal_map``: "matrix_exp" (the
    default of square ones), "cayley" or "householder". ``use_trivialization``: relative to a buffer ``base``, which is set to
    what is assigned; without it, only "householder" can be assigned to. Returns the module.

    ValueError if there is no such tensor, it has less than two dimensions, or for another map.
    """
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ValueError(f"Module '{module}' has no parameter or buffer with name '{name}'")
    if weight.ndim < 2:
        raise ValueError(f"Expected a matrix or batch of matrices. Got a tensor of {weight.ndim} dimensions.")
    if orthogonal_map is None:
        orthogonal_map = "matrix_exp" if weight.size(-2) == weight.size(-1) or weight.is_complex() else "householder"
    if orthogonal_map not in ("matrix_exp", "cayley", "householder"):
        raise ValueError(f'orthogonal_map has to be one of "matrix_exp", "cayley", "householder". Got: {orthogonal_map}')
    register_parametrization(module, name, _Orthogonal(weight, orthogonal_map, use_trivialization), unsafe=True)
    return module
