"""Modules that hold modules or parameters: Sequential, ModuleList, ModuleDict, ParameterList, ParameterDict."""

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


def _iterable(owner: Any, method: str, values: Any) -> Any:
    if not isinstance(values, Iterable):
        raise TypeError(f"{type(owner).__name__}.{method} should be called with an iterable, but got {type(values).__name__}")
    return values


def _pairs(owner: Any, values: Any) -> Iterable[tuple[str, Any]]:
    """The (key, value) pairs of a mapping, or of an iterable of pairs."""
    name = type(owner).__name__
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}.update should be called with an iterable of key/value pairs, but got {type(values).__name__}")
    if isinstance(values, (Mapping, ModuleDict, ParameterDict)):
        return values.items()
    pairs: list[Any] = list(values)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, Iterable):
            raise TypeError(f"{name} update sequence element #{index} should be Iterable; is {type(pair).__name__}")
        if len(tuple(pair)) != 2:
            raise ValueError(f"{name} update sequence element #{index} has length {len(tuple(pair))}; 2 is required")
    return pairs


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
        """Add a module behind the others; returns self."""
        self.add_module(str(len(self._modules)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add several modules behind the others; returns self."""
        for module in _iterable(self, "extend", modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Put a module at ``index``; those from there on move up. Returns self."""
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
        """Remove and return the module at ``index``; those behind it move down."""
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

    def _check_factor(self, factor: Any) -> None:
        if not isinstance(factor, int):
            raise TypeError(f"unsupported operand type(s) for *: {type(self)} and {type(factor)}")
        if factor <= 0:
            raise ValueError(f"Non-positive multiplication factor {factor} for {type(self)}")

    def __mul__(self, factor: int) -> Sequential:
        """The modules ``factor`` times one after the other: the same objects, not copies."""
        self._check_factor(factor)
        return Sequential(*(list(self) * factor))

    __rmul__ = __mul__

    def __imul__(self, factor: int) -> Sequential:
        self._check_factor(factor)
        self.extend(list(self) * (factor - 1))
        return self


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
        """Remove all modules."""
        self._modules.clear()

    def pop(self, key: str) -> Module:
        """Remove the module ``key`` and return it. KeyError if there is none."""
        return self._modules.pop(key)

    def keys(self) -> Iterable[str]:
        """The names, in order."""
        return self._modules.keys()

    def items(self) -> Iterable[tuple[str, Module]]:
        """(name, module) pairs, in order."""
        return self._modules.items()

    def values(self) -> Iterable[Module]:
        """The modules, in order."""
        return self._modules.values()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add or replace modules from a mapping or from (name, module) pairs."""
        for key, module in _pairs(self, modules):
            self[key] = module


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _parameter_line(key: Any, value: Any, kind_of: str = "") -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    size = "x".join(str(n) for n in value.shape)
    where = "" if value.device.type == "cpu" else f" ({value.device})"
    kind = "Parameter" if isinstance(value, Parameter) else "Tensor"
    return f"  ({key}): {kind} containing: [{kind_of or value.dtype} of size {size}{where}]"


class ParameterList(Module):
    """A list of parameters; tensors put in become parameters, other objects stay what they are."""

    def __init__(self, values: Iterable[Any] | None = None) -> None:
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return type(self)([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, self._name_at(index))

    def _name_at(self, index: int) -> str:
        index = operator.index(index)
        if not -self._size <= index < self._size:
            raise IndexError(f"index {index} is out of range")
        return str(index % self._size)

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._name_at(index), _as_parameter(value))

    def __iter__(self) -> Iterator[Any]:
        return iter(self[i] for i in range(self._size))

    def append(self, value: Any) -> ParameterList:
        """Add a value behind the others; a tensor becomes a parameter. Returns self."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add several values behind the others; returns self."""
        for value in _iterable(self, "extend", values):
            self.append(value)
        return self

    __iadd__ = extend

    def pop(self, index: int = -1) -> Any:
        """Remove and return the value at ``index``; those behind it move down."""
        values = list(self)
        value = values.pop(index)
        for i in range(self._size):
            delattr(self, str(i))
        self._size = 0
        self.extend(values)
        return value

    def extra_repr(self) -> str:
        return "\n".join(_parameter_line(i, self[i]) for i in range(self._size))


class ParameterDict(Module):
    """A dict of parameters by name, in the order of insertion; tensors put in become parameters, other objects stay what they
    are. TypeError for keys that are no strings, KeyError for names of methods.
    """

    def __init__(self, parameters: Any = None) -> None:
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def _attribute(self, key: Any) -> str:
        if not isinstance(key, str):
            raise TypeError(
                f"Index given to ParameterDict cannot be used as a key as it is not a string (type is '{type(key).__name__}')"
            )
        return key

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        return getattr(self, self._attribute(key))

    def __setitem__(self, key: str, value: Any) -> None:
        setattr(self, self._attribute(key), _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, self._attribute(key))

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: str) -> bool:
        return key in self._keys

    def keys(self) -> Iterable[str]:
        """The names, in order."""
        return self._keys.keys()

    def values(self) -> Iterable[Any]:
        """The values, in order."""
        return [self[key] for key in self._keys]

    def items(self) -> Iterable[tuple[str, Any]]:
        """(name, value) pairs, in order."""
        return [(key, self[key]) for key in self._keys]

    def get(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, or ``default``."""
        return self[key] if key in self._keys else default

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of ``key``, set to ``default`` first if missing."""
        if key not in self:
            self[key] = default
        return self[key]

    def pop(self, key: str) -> Any:
        """Remove ``key`` and return its value. KeyError if there is none."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last entry; (name, value)."""
        key = next(reversed(self._keys))
        return key, self.pop(key)

    def clear(self) -> None:
        """Remove all entries."""
        for key in list(self._keys):
            del self[key]

    def copy(self) -> ParameterDict:
        """Another dict of the same parameters."""
        return type(self)(dict(self.items()))

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dict with one value for all keys."""
        return type(self)((key, default) for key in keys)

    def update(self, parameters: Any) -> None:
        """Add the pairs of a mapping, a ParameterDict or an iterable of (key, value)."""
        for key, value in _pairs(self, parameters):
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        joined = self.copy()
        joined.update(other)
        return joined

    def __ror__(self, other: Any) -> ParameterDict:
        joined = type(self)(other)
        joined.update(self)
        return joined

    def __ior__(self, other: Any) -> ParameterDict:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_parameter_line(key, self[key], getattr(self[key], "type", str)()) for key in self._keys)
