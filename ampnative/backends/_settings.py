"""What the settings modules share: attributes that are switches of the native core, and the freezing of global flags."""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C

frozen = False


def freeze(on: bool) -> None:
    """Forbid (or allow) assignments to the flags of `backends`, `backends.cudnn` and `backends.mkldnn`."""
    global frozen
    frozen = on


@contextlib.contextmanager
def thawed() -> Iterator[None]:
    """Assignments are allowed inside."""
    before = frozen
    freeze(False)
    try:
        yield
    finally:
        freeze(before)


@contextlib.contextmanager
def all_or_nothing() -> Iterator[None]:
    """If the block fails, the settings that it has changed already are as before."""
    before = _C._precision_state()
    try:
        yield
    except BaseException:
        _C._set_precision_state(before)
        raise


class _Attributes:
    """Attributes that are properties. A property whose getter raises an AttributeError is asked again, so that its own
    message is seen and not that of a missing attribute."""

    def __getattr__(self, name: str) -> Any:
        found = getattr(type(self), name, None)
        if isinstance(found, property) and found.fget is not None:
            return found.fget(self)
        raise AttributeError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        return f"module '{self.__name__}' has no attribute '{name}'"


class SettingsModule(_Attributes, types.ModuleType):
    """A module with properties. Other names can be assigned as on any module; its own ``__getattr__`` is asked last."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            own = self.__dict__.get("__getattr__")
            if own is None:
                raise
            return own(name)


def become(name: str, kind: type[SettingsModule]) -> None:
    """Give the module of that name the properties of `kind`."""
    sys.modules[name].__class__ = kind


class SettingsObject(_Attributes):
    """An object that has its properties and nothing else. Its values are the process's, so that a copy is itself."""

    __slots__ = ("_path",)

    def __init__(self, path: str) -> None:
        object.__setattr__(self, "_path", path)

    def _unknown(self, name: str) -> str:
        return f"Unknown attribute {name}: backends.{self._path} has {', '.join(_names(self))}"

    def __copy__(self) -> SettingsObject:
        return self

    def __deepcopy__(self, memo: Any) -> SettingsObject:
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        found = getattr(type(self), name, None)
        if not isinstance(found, property) or found.fset is None:
            read_only = isinstance(found, property)
            raise AttributeError(f"{name} is read only (Unknown attribute)" if read_only else self._unknown(name))
        found.fset(self, value)

    def __dir__(self) -> list[str]:
        return [*object.__dir__(self), *_names(self)]

    def __repr__(self) -> str:
        return f"<settings backends.{self._path}: {', '.join(_readings(self))}>"


def _names(owner: object) -> list[str]:
    return [n for n in dir(type(owner)) if isinstance(getattr(type(owner), n), property)]


def _readings(owner: object) -> Iterator[str]:
    for name in _names(owner):
        try:
            yield f"{name}={getattr(owner, name)!r}"
        except RuntimeError:
            yield f"{name}=(mixed)"


def switch(get: Callable[[], Any], put: Callable[[Any], object], doc: str, guards: str = "") -> property:
    """A property of a settings module or object. `guards`: name of the module whose frozen flags it obeys."""

    def setter(_: object, value: Any) -> None:
        if guards and frozen:
            raise RuntimeError(
                f"not allowed to set {guards} flags after disable_global_flags(); use the context manager {guards}.flags()"
            )
        put(value)

    return property(lambda _: get(), setter, None, doc)


def flag(name: str, doc: str, guards: str = "") -> property:
    """A plain bool of the core."""
    return switch(lambda: _C._get_setting(name), lambda v: _C._set_setting(name, v), doc, guards)


def node(backend: str, op: str, doc: str, guards: str = "") -> property:
    """The fp32 precision of one node: reads the effective value, writes the node's own."""
    return switch(
        lambda: _C._get_fp32_precision_getter(backend, op),
        lambda v: _C._set_fp32_precision_setter(backend, op, v),
        doc,
        guards,
    )


_OP_DOC = """Precision of fp32 {op} on this backend: "ieee", "tf32", {bf16}or "none" (inherit). Reads what is in effect.

Raises:
    RuntimeError: another string.
    TypeError: no string.
"""


def op_node(path: str, backend: str, op: str) -> Any:
    """An object whose only attribute is `fp32_precision`."""
    doc = _OP_DOC.format(op=op, bf16='"bf16" ' if backend == "mkldnn" else "")
    kind = type("_FP32Precision", (SettingsObject,), {"__slots__": (), "fp32_precision": node(backend, op, doc)})
    return kind(path)
