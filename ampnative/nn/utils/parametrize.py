"""Parametrizations: a parameter or buffer that is computed from others each time it is read."""

from __future__ import annotations

import contextlib
import copy
import copyreg
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ..._C import Tensor
from ...autograd.grad_mode import no_grad
from ..container import ModuleDict, ModuleList
from ..module import Module
from ..parameter import Parameter

__all__ = [
    "ParametrizationList",
    "cached",
    "is_parametrized",
    "register_parametrization",
    "remove_parametrizations",
    "transfer_parametrizations_and_params",
    "type_before_parametrizations",
]

_cache_users = 0
_cache: dict[tuple[int, str], Tensor] = {}


@contextmanager
def cached() -> Iterator[None]:
    """Inside, each parametrized tensor is computed once and remembered."""
    global _cache_users
    _cache_users += 1
    try:
        yield
    finally:
        _cache_users -= 1
        if not _cache_users:
            _cache.clear()


class ParametrizationList(ModuleList):
    """The modules that make one tensor, applied in turn to ``original`` (or to ``original0``, ``original1``, ... if the first has a
    ``right_inverse`` that returns several tensors).
    """

    def __init__(self, modules: Sequence[Module], original: Tensor, unsafe: bool = False) -> None:
        if not modules:
            raise ValueError("ParametrizationList requires one or more modules.")
        super().__init__(modules)
        self.unsafe = unsafe
        with no_grad():
            value: Any = original
            for module in reversed(list(self)):
                if hasattr(module, "right_inverse"):
                    with contextlib.suppress(NotImplementedError):  # as if there were none
                        value = module.right_inverse(value)
        self.is_tensor = isinstance(value, Tensor)
        if self.is_tensor:
            self._set_original("original", original, value)
        else:
            if not isinstance(value, Sequence):
                raise ValueError(
                    f"'right_inverse' must return a Tensor or a Sequence of tensors (list, tuple...). Got {type(value).__name__}"
                )
            self.ntensors = len(value)
            for i, part in enumerate(value):
                if not isinstance(part, Tensor):
                    raise ValueError(f"'right_inverse' must return a Tensor or a Sequence of tensors. Got element {i} of type "
                                     f"{type(part).__name__}.")  # fmt: skip
                self._set_original(f"original{i}", Parameter(part) if isinstance(original, Parameter) else part, part)
        if not unsafe:
            self._check(original)

    def _set_original(self, name: str, kept: Tensor, value: Tensor) -> None:
        """`kept` stays the same object, so that an optimizer that knows it still does."""
        if kept is not value:
            if kept.dtype != value.dtype and not self.unsafe:
                raise ValueError(
                    f"When `right_inverse` outputs one tensor, it may not change the dtype.\noriginal.dtype: {kept.dtype}\n"
                    f"right_inverse(original).dtype: {value.dtype}"
                )
            with no_grad():
                kept.data = value.detach()
        if isinstance(kept, Parameter):
            self.register_parameter(name, kept)
        else:
            self.register_buffer(name, kept)

    def _check(self, original: Tensor) -> None:
        with no_grad():
            made = self()
        if not isinstance(made, Tensor):
            raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
        for what in ("dtype", "shape"):
            before, after = getattr(original, what), getattr(made, what)
            if before != after:
                raise ValueError(
                    f"Registering a parametrization may not change the {what} of the tensor, unless `unsafe` flag is enabled.\n"
                    f"unparametrized {what}: {before}\nparametrized {what}: {after}"
                )

    def originals(self) -> list[Tensor]:
        """The tensors that are trained in place of the parametrized one."""
        names = ["original"] if self.is_tensor else [f"original{i}" for i in range(self.ntensors)]
        return [getattr(self, name) for name in names]

    def right_inverse(self, value: Tensor) -> None:
        """Set the originals so that the tensor becomes ``value``. RuntimeError if a module has no ``right_inverse``."""
        with no_grad():
            made: Any = value
            for module in reversed(list(self)):
                if not hasattr(module, "right_inverse"):
                    raise RuntimeError(f"parametrization {type(module).__name__} does not implement right_inverse.")
                made = module.right_inverse(made)
            parts = [made] if self.is_tensor else list(made)
            originals = self.originals()
            if len(parts) != len(originals):
                raise ValueError(f"'right_inverse' must return a sequence of {len(originals)} tensors, got {len(parts)}")
            for original, part in zip(originals, parts, strict=True):
                if not isinstance(part, Tensor):
                    raise ValueError(f"`right_inverse` should return a tensor. Got {type(part).__name__}")
                original.data = part.detach().clone()

    def forward(self) -> Tensor:
        modules = list(self)
        value = modules[0](*self.originals())
        for module in modules[1:]:
            value = module(value)
        return value


def _make_class(module: Module) -> None:
    """Gives the module a class of its own, on which the computed tensors are properties."""
    base = type(module)

    def getstate(self: Any) -> Any:
        raise RuntimeError(
            "Serialization of parametrized modules is only supported through state_dict(): save that, and parametrize a new module "
            "before loading it"
        )

    def deepcopy(self: Any, memo: dict[int, Any]) -> Any:
        twin = copyreg.__newobj__(type(self))  # type: ignore[attr-defined]
        memo[id(self)] = twin
        twin.__setstate__(copy.deepcopy(base.__getstate__(self), memo))
        # a class per instance: what is removed from the one must stay with the other
        names = {k: v for k, v in type(self).__dict__.items() if isinstance(v, property)}
        twin.__class__ = type(type(self).__name__, (base,), {**own, **names})
        return twin

    own = {"__getstate__": getstate, "__deepcopy__": deepcopy, "_unparametrized_class": base}
    module.__class__ = type(f"Parametrized{base.__name__}", (base,), own)
    module.parametrizations = ModuleDict()


def _property(name: str) -> property:
    def get(self: Any) -> Tensor:
        if not _cache_users:
            return self.parametrizations[name]()
        key = (id(self), name)
        if key not in _cache:
            _cache[key] = self.parametrizations[name]()
        return _cache[key]

    def put(self: Any, value: Tensor) -> None:
        self.parametrizations[name].right_inverse(value)

    return property(get, put)


def is_parametrized(module: Module, tensor_name: str | None = None) -> bool:
    """Whether the module has parametrizations, or one for that tensor."""
    found = module.__dict__.get("parametrizations")
    if not isinstance(found, ModuleDict):
        return False
    return len(found) > 0 if tensor_name is None else tensor_name in found


def register_parametrization(module: Any, tensor_name: str, parametrization: Module, *, unsafe: bool = False) -> Any:
    """From now on ``module.tensor_name`` is ``parametrization(original)``, with the original under
    ``module.parametrizations.tensor_name``. Assigning to it goes through ``right_inverse``, if there is one. More
    parametrizations are applied on top.

    ValueError if there is no such tensor, or (unless ``unsafe``) if dtype or shape change.
    """
    parametrization.train(module.training)
    if is_parametrized(module, tensor_name):
        _extend(module, tensor_name, parametrization, unsafe)
        return module
    if tensor_name not in module._parameters and tensor_name not in module._buffers:
        raise ValueError(
            f"Module '{module}' does not have a parameter, a buffer, or a parametrized element with name '{tensor_name}'"
        )
    parametrizations = ParametrizationList([parametrization], getattr(module, tensor_name), unsafe=unsafe)
    delattr(module, tensor_name)
    if not is_parametrized(module):
        _make_class(module)
    setattr(type(module), tensor_name, _property(tensor_name))
    module.parametrizations[tensor_name] = parametrizations
    return module


def _extend(module: Any, tensor_name: str, parametrization: Module, unsafe: bool) -> None:
    members = module.parametrizations[tensor_name]
    if not unsafe:
        with no_grad():
            value = getattr(module, tensor_name)
            made = parametrization(value)
            if not isinstance(made, Tensor):
                raise ValueError(f"A parametrization must return a tensor. Got {type(made).__name__}.")
            for what in ("dtype", "shape"):
                if getattr(made, what) != getattr(value, what):
                    raise ValueError(
                        f"Registering a parametrization may not change the {what} of the tensor, unless the `unsafe` flag is enabled."
                    )
    members.append(parametrization)
    members.unsafe = members.unsafe or unsafe


def remove_parametrizations(module: Any, tensor_name: str, leave_parametrized: bool = True) -> Any:
    """Make ``module.tensor_name`` a plain tensor again: its present value, or the original one. ValueError if it is not
    parametrized, or if there are several originals and the present value is not wanted.
    """
    if not is_parametrized(module, tensor_name):
        raise ValueError(f"Module {module} does not have a parametrization on {tensor_name}")
    members = module.parametrizations[tensor_name]
    if members.is_tensor:
        tensor = members.original
        if leave_parametrized:
            with no_grad():
                value = getattr(module, tensor_name)
            tensor.data = value.detach()
    elif leave_parametrized:
        value = getattr(module, tensor_name)
        tensor = Parameter(value.detach()) if value.requires_grad else value
    else:
        raise ValueError(
            "Cannot leave unparametrized (`leave_parametrized=False`) a tensor that is parametrized in terms of a sequence of tensors."
        )
    delattr(type(module), tensor_name)
    del module.parametrizations[tensor_name]
    if not is_parametrized(module):
        delattr(module, "parametrizations")
        module.__class__ = type(module)._unparametrized_class
    if isinstance(tensor, Parameter):
        module.register_parameter(tensor_name, tensor)
    else:
        module.register_buffer(tensor_name, tensor)
    return module


def type_before_parametrizations(module: Module) -> type:
    """The module's class without what parametrizing made of it."""
    return getattr(type(module), "_unparametrized_class", type(module))


def transfer_parametrizations_and_params(from_module: Module, to_module: Any, tensor_name: str | None = None) -> Any:
    """Parametrizes ``to_module`` as ``from_module`` is (one tensor, or all), with the same originals."""
    if not is_parametrized(from_module):
        return to_module
    source: Any = from_module
    for name in [tensor_name] if tensor_name is not None else list(source.parametrizations.keys()):
        members = source.parametrizations[name]
        if not hasattr(to_module, name):
            setattr(to_module, name, Parameter(members.originals()[0]))
        for member in members:
            register_parametrization(to_module, name, member)
        mine = to_module.parametrizations[name]
        for key, value in members._parameters.items():
            setattr(mine, key, value)
        for key, value in members._buffers.items():
            setattr(mine, key, value)
    return to_module
