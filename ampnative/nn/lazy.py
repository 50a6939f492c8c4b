"""Layers that learn the size of their input from the first input, and then become the ordinary layer."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, cast

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import no_grad
from .conv import Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d
from .linear import Linear
from .module import Module
from .norm import BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = [
    "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d", "LazyConv1d", "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d",
    "LazyConvTranspose2d", "LazyConvTranspose3d", "LazyInstanceNorm1d", "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LazyLinear",
    "LazyModuleMixin",
]  # fmt: skip


class LazyModuleMixin(Module):
    """Before a module class in the list of bases: its Uninitialized parameters and buffers get their shapes at the first call, by
    ``initialize_parameters`` with the call's arguments; the module is a ``cls_to_become`` from then on.

    Loading a ``state_dict`` gives them the saved shapes. RuntimeError if some are left after ``initialize_parameters``.
    """

    cls_to_become: type | None = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._load_hook: Any = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook: Any = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Override: ``materialize`` what is uninitialised, by the arguments of the call."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module alone has no shape yet."""
        return any(is_lazy(t) for t in (*self._parameters.values(), *self._buffers.values()))

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        lazy = {name: t for name, t in (*self._parameters.items(), *self._buffers.items()) if is_lazy(t)}
        found: dict[str, Any] = {}
        super()._save_to_state_dict(found, prefix, True)
        for name, t in found.items():
            kept = keep_vars or name[len(prefix) :] in lazy or not isinstance(t, Tensor)
            destination[name] = t if kept else t.detach()

    def _lazy_load_hook(self, state_dict: Mapping[str, Any], prefix: str, *rest: Any) -> None:
        for name, t in (*self._parameters.items(), *self._buffers.items()):
            saved = state_dict.get(prefix + name)
            if is_lazy(t) and saved is not None and not is_lazy(saved):
                with no_grad():
                    cast(Any, t).materialize(saved.shape)

    def _infer_parameters(self, module: Any, args: tuple, kwargs: dict[str, Any]) -> None:
        module.initialize_parameters(*args, **kwargs)
        if module.has_uninitialized_params():
            raise RuntimeError(
                f"module {type(self).__name__} has not been fully initialized: initialize_parameters must give every parameter a shape"
            )
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def share_memory(self) -> Module:
        """RuntimeError while shapes are missing."""
        if self.has_uninitialized_params():
            raise RuntimeError("Can't share memory on an uninitialized parameter or buffer. Call `forward` first, which gives it a shape")
        return super().share_memory()


class LazyLinear(LazyModuleMixin, Linear):
    """:class:`Linear` whose ``in_features`` is the last size of the first input."""

    cls_to_become = Linear
    weight: Any
    bias: Any

    def __init__(self, out_features: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """As the ordinary layer; nothing before the first input."""
        if not self.has_uninitialized_params() and self.in_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Shapes by the last size of ``input``, values as the ordinary layer draws them."""
        if self.has_uninitialized_params():
            with no_grad():
                self.in_features = input.shape[-1]
                self.weight.materialize((self.out_features, self.in_features))
                if self.bias is not None:
                    self.bias.materialize((self.out_features,))
                self.reset_parameters()
        if self.in_features == 0:
            self.in_features = self.weight.shape[-1]


class _LazyConvNd(LazyModuleMixin):
    """What the lazy convolutions share: ``in_channels`` is the size of the first input's dimension of channels."""

    spatial: int
    transposed: bool
    weight: Any
    bias: Any
    in_channels: int

    def __init__(self, out_channels: int, kernel_size: int | Sequence[int], *args: Any, **kwargs: Any) -> None:
        super().__init__(0, 0, kernel_size, *args, **kwargs)
        self.out_channels = out_channels
        kind = {"device": self.weight.device, "dtype": self.weight.dtype}
        self.weight = UninitializedParameter(**kind)
        if self.bias is not None:
            self.bias = UninitializedParameter(**kind)

    def reset_parameters(self) -> None:
        """As the ordinary layer; nothing before the first input."""
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        """Shapes by the channels of ``input``, values as the ordinary layer draws them. RuntimeError for another number of
        dimensions, ValueError for channels that the groups do not divide."""
        me: Any = self
        if self.has_uninitialized_params():
            self.in_channels = self._channels(input)
            if self.in_channels % me.groups != 0:
                raise ValueError(f"in_channels must be divisible by groups: {self.in_channels} is not by {me.groups}")
            pair = (self.out_channels, self.in_channels // me.groups)
            if self.transposed:
                pair = (self.in_channels, self.out_channels // me.groups)
            with no_grad():
                self.weight.materialize((*pair, *me.kernel_size))
                if self.bias is not None:
                    self.bias.materialize((self.out_channels,))
                self.reset_parameters()
        if self.in_channels == 0:
            self.in_channels = self.weight.shape[0] if self.transposed else self.weight.shape[1] * me.groups

    def _channels(self, input: Tensor) -> int:
        alone = self.spatial + 1
        if input.dim() not in (alone, alone + 1):
            raise RuntimeError(
                f"Expected {alone}D (unbatched) or {alone + 1}D (batched) input to {type(self).__name__}, but got input of size: "
                f"{input.shape}"
            )
        return input.shape[input.dim() - alone]


class _LazyNorm(LazyModuleMixin):
    """What the lazy norms of channels share: ``num_features`` is the size of the first input's dimension of channels."""

    num_features: int
    running_mean: Any
    running_var: Any
    num_batches_tracked: Any

    def __init__(
        self,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: Any = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(0, eps, momentum, False, False)
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(device=device, dtype=dtype)
            self.bias = UninitializedParameter(device=device, dtype=dtype) if bias else None
        if track_running_stats:
            self.running_mean = UninitializedBuffer(device=device, dtype=dtype)
            self.running_var = UninitializedBuffer(device=device, dtype=dtype)
            self.num_batches_tracked = _C.functions.zeros((), dtype=_C.int64, device=device)

    def reset_parameters(self) -> None:
        """As the ordinary layer; nothing before the first input."""
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()  # type: ignore[misc]

    def initialize_parameters(self, input: Tensor) -> None:
        """Shapes by ``input.shape[1]``; weight 1, bias 0, statistics as at the start."""
        if self.has_uninitialized_params():
            self.num_features = input.shape[1]
            with no_grad():
                for t in (*self._parameters.values(), *self._buffers.values()):
                    if is_lazy(t):
                        cast(Any, t).materialize((self.num_features,))
                self.reset_parameters()
        if self.num_features == 0:
            known = [t for t in (*self._parameters.values(), self.running_mean) if t is not None]
            self.num_features = known[0].shape[0] if known else 0


def _lazy(base: type, layer: Any, size: str, text: str) -> Any:
    """`size`: the argument of `layer` that is left out."""
    arguments = inspect.signature(base if base is _LazyNorm else layer)
    others = arguments.replace(parameters=[p for p in arguments.parameters.values() if p.name != size])
    doc = f":class:`{layer.__name__}` whose ``{size}`` is {text}."
    members = {"cls_to_become": layer, "__module__": __name__, "__doc__": doc, "__signature__": others}
    return type(f"Lazy{layer.__name__}", (base, layer), members)


LazyConv1d, LazyConv2d, LazyConv3d, LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = (
    _lazy(_LazyConvNd, layer, "in_channels", "the first input's number of channels")
    for layer in (Conv1d, Conv2d, Conv3d, ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)
)
LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = (
    _lazy(_LazyNorm, layer, "num_features", "``shape[1]`` of the first input")
    for layer in (BatchNorm1d, BatchNorm2d, BatchNorm3d, InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)
)
