"""Ready-made parametrizations: weight_norm and spectral_norm."""

from __future__ import annotations

from typing import Any

from ..._C import Tensor
from ..module import Module
from .parametrize import register_parametrization
from .weight_norm import as_matrix, default_dim, norm_except_dim, normalized, power_iterate, unit

__all__ = ["spectral_norm", "weight_norm"]


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
            power_iterate(matrix, self._u, self._v, 15, eps)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.dim() == 1:
            return unit(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            power_iterate(matrix, self._u, self._v, self.n_power_iterations, self.eps)
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


def orthogonal(*args: Any, **kwargs: Any) -> Any:
    """Not available here: NotImplementedError."""
    raise NotImplementedError("parametrizations.orthogonal is not available here: use nn.init.orthogonal_, or spectral_norm")
