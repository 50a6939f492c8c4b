"""Modules that hold modules: Sequential, ModuleList, ModuleDict, ParameterList."""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, overload

from .._C import Tensor, sequential_forward
from .module import Module
from .parameter import Parameter


def _wrapped_index(index: int, size: int) -> int:
    index = operator.index(index)
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for {size} modules")
    return index % size


class _Numbered(Module):
    """Children with the names "0", "1", ..."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(list(self._modules.values()))

    def __getitem__(self, index: int | slice) -> Any:
        modules = list(self._modules.values())
        if isinstance(index, slice):
            return self._from_list(modules[index], list(self._modules)[index])
        return modules[_wrapped_index(index, len(modules))]

    def _from_list(self, modules: list[Module], names: list[str]) -> Any:
        same_type: Any = type(self)
        return same_type(modules)

    def _name_at(self, index: int) -> str:
        return list(self._modules)[_wrapped_index(index, len(self._modules))]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._name_at(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._name_at(index)]
        for name in names:
            delattr(self, name)
        self._replace(list(self._modules.values()))

    def _replace(self, modules: list[Module]) -> None:
        for name in list(self._modules):
            delattr(self, name)
        for position, module in enumerate(modules):
            self.add_module(str(position), module)

    def append(self, module: Module) -> Any:
        self.add_module(str(len(self._modules)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        for module in modules:
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        if not isinstance(module, Module):
            raise AssertionError(f"module should be of type: {Module}")
        modules = list(self._modules.values())
        size = len(modules)
        if not -size <= index <= size:
            raise IndexError(f"Index out of range: {index}")
        modules.insert(index, module)
        self._replace(modules)
        return self

    def pop(self, index: int) -> Module:
        module = self[index]
        del self[index]
        return module


class Sequential(_Numbered):
    """Calls its modules one after the other. Made from modules, or from one ordered dict of named modules."""

    @overload
    def __init__(self, *modules: Module) -> None: ...
    @overload
    def __init__(self, modules: Mapping[str, Module], /) -> None: ...
    def __init__(self, *args: Any) -> None:
        super().__init__()
        named = args[0].items() if len(args) == 1 and isinstance(args[0], Mapping) else ((str(i), m) for i, m in enumerate(args))
        for name, module in named:
            self.add_module(name, module)

    def forward(self, input: Any) -> Any:
        return sequential_forward(self._modules, input)

    def _from_list(self, modules: list[Module], names: list[str]) -> Sequential:
        return type(self)(dict(zip(names, modules, strict=False)))

    def __add__(self, other: Sequential) -> Sequential:
        if not isinstance(other, Sequential):
            return NotImplemented
        return Sequential(*self, *other)


class ModuleList(_Numbered):
    """A list of modules; it has no ``forward``."""

    def __init__(self, modules: Iterable[Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> ModuleList:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def __repr__(self) -> str:
        """Equal neighbours share an entry."""
        if not len(self):
            return f"{self._get_name()}()"
        entries: list[str] = []
        position = 0
        for text, equal in itertools.groupby(map(repr, self)):
            count = len(list(equal))
            label = f"({position})" if count == 1 else f"({position}-{position + count - 1})"
            entries.append(f"{label}: " + (f"{count} x " if count > 1 else "") + text.replace("\n", "\n  "))
            position += count
        return f"{self._get_name()}(\n  " + "\n  ".join(entries) + "\n)"


class ModuleDict(Module):
    """A dict of modules; it has no ``forward``."""

    def __init__(self, modules: Mapping[str, Module] | None = None) -> None:
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.add_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: str) -> bool:
        return key in self._modules

    def clear(self) -> None:
        self._modules.clear()

    def pop(self, key: str) -> Module:
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        for key, module in dict(modules).items():
            self[key] = module


class ParameterList(Module):
    """A list of parameters; tensors put in become parameters."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return ParameterList([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, str(_wrapped_index(index, self._size)))

    def __setitem__(self, index: int, value: Any) -> None:
        if isinstance(value, Tensor) and not isinstance(value, Parameter):
            value = Parameter(value)
        setattr(self, str(_wrapped_index(index, self._size)), value)

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(self._size))

    def append(self, value: Any) -> ParameterList:
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        for value in values:
            self.append(value)
        return self

    __iadd__ = extend

    def extra_repr(self) -> str:
        def line(index: int, value: Any) -> str:
            if not isinstance(value, Tensor):
                return f"({index}): Object of type: {type(value).__name__}"
            size = "x".join(str(n) for n in value.shape)
            return f"({index}): Parameter containing: [{value.dtype} of size {size}]"

        return "\n".join(line(i, self[i]) for i in range(self._size))
