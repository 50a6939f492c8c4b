"""The dicts behind ``module._parameters``, ``_buffers`` and ``_modules``: edits show up as attributes of the module at
once.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any, SupportsIndex

from .. import _C

_MISSING = object()


class Registry(dict):
    """A dict that mirrors its entries as instance attributes of its owner. Pickles and copies as a plain dict."""

    __slots__ = ("_owner",)

    def __init__(self, owner: Any, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = ()) -> None:
        self._owner = weakref.ref(owner)
        self.update(items)

    def __setitem__(self, name: str, value: Any) -> None:
        owner = self._owner()
        if owner is not None:
            owner._mirror(name, value)
        super().__setitem__(name, value)

    def __delitem__(self, name: str) -> None:
        super().__delitem__(name)
        owner = self._owner()
        if owner is not None:
            owner._mirror(name)

    def pop(self, name: str, default: Any = _MISSING) -> Any:
        """Remove ``name`` and the attribute; the value, or ``default``. KeyError without one."""
        if name not in self and default is not _MISSING:
            return default
        value = self[name]
        del self[name]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove the last entry and its attribute; (name, value). KeyError if empty."""
        if not self:
            raise KeyError("popitem(): dictionary is empty")
        name = next(reversed(self))
        return name, self.pop(name)

    def clear(self) -> None:
        """Remove all entries and their attributes."""
        for name in list(self):
            del self[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        """The entry ``name``, set to ``default`` first if missing."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, items: Any = (), /, **more: Any) -> None:
        """Set entries, and their attributes, as dict.update does."""
        for name, value in dict(items, **more).items():
            self[name] = value

    def __ior__(self, other: Any) -> Registry:  # type: ignore[misc]
        self.update(other)
        return self

    def copy(self) -> dict[str, Any]:
        """A plain dict with the same entries."""
        return dict(self)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple:
        return dict, (dict(self),)


_C._set_registry_type(Registry)
