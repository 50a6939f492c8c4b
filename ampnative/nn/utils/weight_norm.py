"""weight_norm and spectral_norm as forward pre-hooks: the forms with the keys weight_g, weight_v and weight_orig, weight_u, weight_v."""

from __future__ import annotations

import warnings
from typing import Any

from ... import _C
from ..._C import Tensor
from ...autograd.grad_mode import no_grad
from ..module import Module
from ..parameter import Parameter


def norm_except_dim(v: Tensor, dim: int) -> Tensor:
    """2-norms over all dimensions but ``dim``, which keep their place with size 1; 0-d for dim -1."""
    if dim == -1:
        return v.norm()
    moved = v.transpose(0, dim).contiguous()
    norms = moved.reshape(moved.size(0), -1).norm(2, 1)
    return norms.reshape([moved.size(0)] + [1] * (v.dim() - 1)).transpose(0, dim)


def normalized(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """v scaled to the norms g."""
    return v * (g / norm_except_dim(v, dim))


def _find(module: Module, kind: type, name: str) -> tuple[int | None, Any]:
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook.function, kind) and getattr(hook.function, "name", None) == name:
            return key, hook.function
    return None, None


class WeightNorm:
    """The hook that makes ``name`` of ``name_g`` and ``name_v``."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Tensor:
        """The product of norm and direction."""
        return normalized(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: Any, name: str = "weight", dim: int | None = 0) -> Any:
    """Deprecated, see ``nn.utils.parametrizations.weight_norm``. Replaces a parameter by ``name_g`` (its norms, over all
    dimensions but ``dim``; None: one norm) and ``name_v`` (its direction); the product is formed before every forward.
    """
    warnings.warn(
        "`torch.nn.utils.weight_norm` is deprecated in favor of `torch.nn.utils.parametrizations.weight_norm`.",
        FutureWarning,
        stacklevel=2,
    )
    if _find(module, WeightNorm, name)[1] is not None:
        raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
    hook = WeightNorm(name, dim)
    weight = getattr(module, name)
    del module._parameters[name]
    module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, hook.dim).data))
    module.register_parameter(name + "_v", Parameter(weight.data))
    setattr(module, name, hook.compute_weight(module))
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: Any, name: str = "weight") -> Any:
    """Makes ``name`` a plain parameter again, with its present value. ValueError if it has no weight_norm."""
    key, hook = _find(module, WeightNorm, name)
    if hook is None:
        raise ValueError(f"weight_norm of '{name}' not found in {module}")
    weight = hook.compute_weight(module)
    delattr(module, name)
    del module._parameters[name + "_g"], module._parameters[name + "_v"], module._forward_pre_hooks[key]
    setattr(module, name, Parameter(weight.data))
    return module


def unit(x: Tensor, eps: float) -> Tensor:
    """x over its 2-norm (at least ``eps``)."""
    return x / x.norm().clamp(min=eps)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """(size of ``dim``, everything else)."""
    if dim != 0:
        weight = weight.permute(dim, *[d for d in range(weight.dim()) if d != dim])
    return weight.reshape(weight.size(0), -1)


def power_iterate(matrix: Tensor, u: Tensor, v: Tensor, count: int, eps: float) -> None:
    """Moves u and v, in place, towards the first singular vectors."""
    with no_grad():
        for _ in range(count):
            v.copy_(unit(matrix.t().mv(u), eps))
            u.copy_(unit(matrix.mv(v), eps))


class SpectralNorm:
    """The hook that divides ``name_orig`` by its largest singular value."""

    def __init__(self, name: str, n_power_iterations: int, dim: int, eps: float) -> None:
        if n_power_iterations <= 0:
            raise ValueError(f"Expected n_power_iterations to be positive, but got n_power_iterations={n_power_iterations}")
        self.name, self.n_power_iterations, self.dim, self.eps = name, n_power_iterations, dim, eps

    def compute_weight(self, module: Module, iterate: bool) -> Tensor:
        """The weight divided by its largest singular value; ``iterate``: improve its estimate first."""
        weight, u, v = (getattr(module, self.name + end) for end in ("_orig", "_u", "_v"))
        matrix = as_matrix(weight, self.dim)
        if iterate:
            power_iterate(matrix, u, v, self.n_power_iterations, self.eps)
            u, v = u.clone(), v.clone()  # the next forward moves the buffers in place
        return weight / u.dot(matrix.mv(v))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module, module.training))

    def save_version(self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any]) -> None:
        """Notes the layout of the saved state: 1, which has ``name_v`` and not ``name``."""
        local_metadata.setdefault("spectral_norm", {})[self.name + ".version"] = 1

    def load_older(
        self, module: Module, state_dict: Any, prefix: str, local_metadata: dict[str, Any], strict: bool, missing_keys: list[str], *_: Any
    ) -> None:
        """Makes ``name_v`` of a state that has ``name`` instead: the v of that u and that quotient of original and divided weight."""
        version = local_metadata.get("spectral_norm", {}).get(self.name + ".version")
        orig, u, v, divided = (prefix + self.name + end for end in ("_orig", "_u", "_v", ""))
        if (version or 0) >= 1 or (divided not in state_dict and all(key in state_dict for key in (orig, u, v))):
            return
        lacking = [key for key in (orig, divided, u) if key not in state_dict]
        if lacking:
            missing_keys += lacking if strict else []
            return
        with no_grad():
            sigma = (state_dict[orig] / state_dict.pop(divided)).mean()
            matrix, left = as_matrix(state_dict[orig], self.dim), state_dict[u]
            right = _C.nn.linalg_pinv(matrix).mv(left)
            state_dict[v] = right * (sigma / left.dot(matrix.mv(right)))


def default_dim(module: Module) -> int:
    """Of transposed convolutions the outputs are in dimension 1."""
    return 1 if any("ConvTranspose" in c.__name__ for c in type(module).__mro__) else 0


def spectral_norm(
    module: Any, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Any:
    """Divides a parameter by its largest singular value before every forward, estimated by power iteration while training. The
    parameter is ``name_orig``, the buffers are ``name_u`` and ``name_v``. See ``parametrizations.spectral_norm`` too.
    """
    if _find(module, SpectralNorm, name)[1] is not None:
        raise RuntimeError(f"Cannot register two spectral_norm hooks on the same parameter {name}")
    hook = SpectralNorm(name, n_power_iterations, default_dim(module) if dim is None else dim, eps)
    weight = module._parameters[name]
    if weight is None:
        raise ValueError(f"`SpectralNorm` cannot be applied as parameter `{name}` is None")
    with no_grad():
        rows, columns = as_matrix(weight, hook.dim).shape
        u = unit(weight.new_empty(rows).normal_(0, 1), eps)
        v = unit(weight.new_empty(columns).normal_(0, 1), eps)
    del module._parameters[name]
    module.register_parameter(name + "_orig", weight)
    setattr(module, name, weight.data)
    module.register_buffer(name + "_u", u)
    module.register_buffer(name + "_v", v)
    module.register_forward_pre_hook(hook)
    module._register_state_dict_hook(hook.save_version)
    module._register_load_state_dict_pre_hook(hook.load_older, with_module=True)
    return module


def remove_spectral_norm(module: Any, name: str = "weight") -> Any:
    """Makes ``name`` a plain parameter again, with its present value. ValueError if it has no spectral_norm."""
    key, hook = _find(module, SpectralNorm, name)
    if hook is None:
        raise ValueError(f"spectral_norm of '{name}' not found in {module}")
    with no_grad():
        weight = hook.compute_weight(module, False)
    delattr(module, name)
    del module._buffers[name + "_u"], module._buffers[name + "_v"], module._parameters[name + "_orig"]
    del module._forward_pre_hooks[key]
    for hooks in (module._state_dict_hooks, module._load_state_dict_pre_hooks):
        for number in [n for n, h in hooks.items() if getattr(getattr(h.function, "func", h.function), "__self__", None) is hook]:
            del hooks[number]
    module.register_parameter(name, Parameter(_C.Tensor.detach(weight)))
    return module
