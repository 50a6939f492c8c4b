"""Pruning: elements of a parameter that are held at zero by a mask.

A pruned parameter ``name`` is kept, whole, as ``name_orig``; the buffer ``name_mask`` has ones and zeros, and before each call the
attribute ``name`` becomes their product.
"""

from __future__ import annotations

import numbers
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from ... import _C
from ..._C import Tensor
from ..module import Module

__all__ = [
    "BasePruningMethod", "CustomFromMask", "Identity", "L1Unstructured", "LnStructured", "PruningContainer", "RandomStructured",
    "RandomUnstructured", "custom_from_mask", "global_unstructured", "identity", "is_pruned", "l1_unstructured", "ln_structured",
    "random_structured", "random_unstructured", "remove",
]  # fmt: skip


def _check_amount(amount: Any) -> None:
    if not isinstance(amount, numbers.Real) or amount is True:  # all, or one?
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    if float(amount) < 0 or (not isinstance(amount, numbers.Integral) and float(amount) > 1):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _how_many(amount: Any, size: int) -> int:
    """The number to prune of `size`: itself, or a share."""
    if isinstance(amount, numbers.Integral):
        if int(amount) > size:
            raise ValueError(f"amount={amount} should be smaller than the number of parameters to prune={size}")
        return int(amount)
    return round(amount * size)


def _methods(module: Module) -> Iterator[tuple[int, BasePruningMethod]]:
    for key, hook in list(module._forward_pre_hooks.items()):
        if isinstance(hook.function, BasePruningMethod):
            yield key, hook.function


class BasePruningMethod(ABC):
    """Base of pruning methods: override ``compute_mask``, and set ``PRUNING_TYPE`` to "unstructured" (of what is not pruned yet,
    single elements), "structured" (of the channels along ``self.dim`` that have anything left) or "global" (of everything).
    """

    PRUNING_TYPE: str
    _tensor_name: str
    # It stands in _forward_pre_hooks itself, where programs look for it by its class.
    with_kwargs = always_call = False

    @property
    def function(self) -> BasePruningMethod:
        """Itself, the function of the hook."""
        return self

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The new mask: ``default_mask`` with more zeros, chosen by ``t``, both of one shape."""

    def apply_mask(self, module: Module) -> Tensor:
        """The product of mask and original; gradients flow to the original."""
        name = self._tensor_name
        return getattr(module, name + "_mask").to(getattr(module, name + "_orig").dtype) * getattr(module, name + "_orig")

    @classmethod
    def apply(cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any) -> Any:
        """Prunes ``module.name`` by ``cls(*args, **kwargs)``, on top of what is pruned already; returns the method (a
        :class:`PruningContainer` from the second on). ``importance_scores``: rank by these, of the parameter's shape.
        """
        before = [(key, method) for key, method in _methods(module) if method._tensor_name == name]
        own = cls(*args, **kwargs)
        own._tensor_name = name
        method: BasePruningMethod = own
        if before:
            old = before[0][1]
            method = PruningContainer(*(old if isinstance(old, PruningContainer) else (old,)))
            method.add_pruning_method(own)
        current = getattr(module, name)
        scores = current if importance_scores is None else importance_scores
        if scores.shape != current.shape:
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, got {scores.shape} vs {current.shape}"
            )
        mask = getattr(module, name + "_mask").clone() if before else _C.functions.ones_like(current.detach())
        mask = method.compute_mask(scores.detach(), mask)
        if not before:
            del module._parameters[name]
            module.register_parameter(name + "_orig", current)
        module.register_buffer(name + "_mask", mask)
        setattr(module, name, method.apply_mask(module))
        for key, _ in before:
            module._forward_pre_hooks.pop(key)  # type: ignore[attr-defined]
        handle = module.register_forward_pre_hook(method)
        module._forward_pre_hooks[handle.id] = method  # type: ignore[index]
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """``t`` with the elements zeroed that the method chooses, by ``importance_scores`` or by itself."""
        scores = t if importance_scores is None else importance_scores
        if scores.shape != t.shape:
            raise AssertionError(f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}")
        mask = _C.functions.ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores, mask)

    def remove(self, module: Module) -> None:
        """Makes the pruning permanent: the parameter has its name again, with zeros. The hook is the caller's to remove."""
        name = self._tensor_name
        pruned = self.apply_mask(module)
        delattr(module, name)
        original = module._parameters[name + "_orig"]
        original.data = pruned.detach()
        del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
        setattr(module, name, original)


class PruningContainer(BasePruningMethod):
    """Several methods that prune one parameter one after the other."""

    PRUNING_TYPE = "container"

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[BasePruningMethod, ...] = ()
        if args:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: Any) -> None:
        """One more. TypeError for what is none, ValueError if it prunes a parameter of another name."""
        if not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer {self}. Found "
                f"'{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self) -> int:
        return len(self._pruning_methods)

    def __iter__(self) -> Iterator[BasePruningMethod]:
        return iter(self._pruning_methods)

    def __getitem__(self, index: Any) -> Any:
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask after the last method, which chooses among what the others left."""
        method = self._pruning_methods[-1]
        mask = default_mask.clone()
        where: Any
        if method.PRUNING_TYPE == "unstructured":
            where = mask == 1
        elif method.PRUNING_TYPE == "structured":
            if not hasattr(method, "dim"):
                raise AttributeError(f"Pruning methods of PRUNING_TYPE 'structured' need to have the attribute `dim`; {method} has none")
            dim = method.dim % t.dim()
            others = [d for d in range(t.dim()) if d != dim]
            where = (*[slice(None)] * dim, (mask.sum(others) != 0).nonzero().reshape(-1))
        elif method.PRUNING_TYPE == "global":
            where = slice(None)
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask[where] = method.compute_mask(t[where], mask[where]).to(mask.dtype)
        return mask


class Identity(BasePruningMethod):
    """Prunes nothing: the parameter gets a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _ByAmount(BasePruningMethod):
    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount


class _SingleElements(_ByAmount):
    PRUNING_TYPE = "unstructured"
    _largest = False

    def _scores(self, t: Tensor) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _how_many(self.amount, t.numel())
        mask = default_mask.clone()
        if count:
            mask.view(-1)[self._scores(t).reshape(-1).topk(count, largest=self._largest).indices] = 0
        return mask


class RandomUnstructured(_SingleElements):
    """``amount`` elements (a number, or a share in [0, 1]) at random."""

    _largest = True

    def _scores(self, t: Tensor) -> Tensor:
        return _C.functions.rand_like(t)


class L1Unstructured(_SingleElements):
    """The ``amount`` elements (a number, or a share in [0, 1]) that are smallest in absolute value."""

    def _scores(self, t: Tensor) -> Tensor:
        return t.abs()


class _Channels(_ByAmount):
    PRUNING_TYPE = "structured"

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def _kept(self, t: Tensor, pruned: int) -> Tensor:
        raise NotImplementedError

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if t.dim() <= 1:
            raise ValueError(
                f"Structured pruning can only be applied to multidimensional tensors. Found tensor of shape {t.shape} with {t.dim()} dims"
            )
        if not -t.dim() <= self.dim < t.dim():
            raise IndexError(f"Invalid index {self.dim} for tensor of size {t.shape}")
        size = t.size(self.dim)
        count = _how_many(self.amount, size)
        if not count:
            return default_mask
        mask = _C.functions.zeros_like(t)
        mask.index_fill_(self.dim, self._kept(t, count), 1)
        return mask.to(default_mask.dtype) * default_mask


class RandomStructured(_Channels):
    """``amount`` channels (a number, or a share in [0, 1]) along ``dim``, at random."""

    def _kept(self, t: Tensor, pruned: int) -> Tensor:
        luck = _C.functions.rand(t.size(self.dim), device="cpu")
        return (luck > luck.kthvalue(pruned).values).nonzero().reshape(-1).to(t.device)


class LnStructured(_Channels):
    """The ``amount`` channels (a number, or a share in [0, 1]) along ``dim`` with the smallest norms of order ``n``."""

    def __init__(self, amount: float, n: Any, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _kept(self, t: Tensor, pruned: int) -> Tensor:
        others = [d for d in range(t.dim()) if d != self.dim % t.dim()]
        return t.norm(self.n, others).topk(t.size(self.dim) - pruned).indices


class CustomFromMask(BasePruningMethod):
    """What a given mask of ones and zeros says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if default_mask.shape != self.mask.shape:
            raise AssertionError(f"the mask has shape {self.mask.shape}, the parameter {default_mask.shape}")
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Gives the parameter ``name`` a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prunes elements at random, see :class:`RandomUnstructured`; with a seed they are PyTorch's. Returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prunes the elements smallest in absolute value (or in ``importance_scores``), see :class:`L1Unstructured`; returns the module."""
    L1Unstructured.apply(module, name, amount=amount, importance_scores=importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prunes channels at random, see :class:`RandomStructured`; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(module: Module, name: str, amount: float, n: Any, dim: int, importance_scores: Tensor | None = None) -> Module:
    """Prunes the channels of smallest norm, see :class:`LnStructured`; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores=importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes where ``mask`` is 0; returns the module."""
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(parameters: Any, pruning_method: type, importance_scores: Any = None, **kwargs: Any) -> None:
    """Prunes elements of several parameters, (module, name) pairs, as if they were one: ``amount`` of all. ``importance_scores``: a
    dict of scores for some of the pairs. TypeError for a method that isn't "unstructured".
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    pairs = [tuple(pair) for pair in parameters]
    given = {} if importance_scores is None else importance_scores
    if not isinstance(given, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            f'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. Found method {pruning_method} of type '
            f"{method.PRUNING_TYPE}"
        )
    tensors = [getattr(module, name).detach() for module, name in pairs]
    scores = [given.get(pair, tensor).detach().reshape(-1) for pair, tensor in zip(pairs, tensors, strict=True)]
    masks = [getattr(module, name + "_mask", _C.functions.ones_like(t)) for (module, name), t in zip(pairs, tensors, strict=True)]
    method._tensor_name = "all"
    mask = PruningContainer(method).compute_mask(_C.functions.cat(scores), _C.functions.cat([m.reshape(-1) for m in masks]))
    parts = mask.split([t.numel() for t in tensors])
    for (module, name), part, tensor in zip(pairs, parts, tensors, strict=True):
        custom_from_mask(module, name, part.reshape(tensor.shape))


def remove(module: Module, name: str) -> Module:
    """Makes the pruning of a parameter permanent; returns the module. ValueError if it isn't pruned."""
    for key, method in _methods(module):
        if method._tensor_name == name:
            method.remove(module)
            module._forward_pre_hooks.pop(key)  # type: ignore[attr-defined]
            return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether the module or one below it has a pruned parameter."""
    return any(True for child in module.modules() for _ in _methods(child))
