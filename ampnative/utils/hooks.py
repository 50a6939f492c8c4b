"""Handles with which a registered hook can be removed."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

_ids = itertools.count()


class RemovableHandle:
    """What registering a hook returns. Also a context manager that removes the hook at its end."""

    def __init__(self, hooks: dict[int, Any]) -> None:
        self.id = next(_ids)
        self._hooks = _reference(hooks)

    def remove(self) -> None:
        """Takes the hook away; harmless when it is gone already."""
        hooks = self._hooks()
        if hooks is not None:
            hooks.pop(self.id, None)

    def __getstate__(self) -> tuple[Any, int]:
        return self._hooks(), self.id  # a copied handle belongs to the copied hooks

    def __setstate__(self, state: tuple[Any, int]) -> None:
        global _ids
        hooks, self.id = state
        self._hooks = _reference({} if hooks is None else hooks)
        _ids = itertools.count(max(next(_ids), self.id + 1))  # hooks to come must not take its place

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exception: object) -> None:
        self.remove()


def _reference(hooks: dict[int, Any]) -> Callable[[], dict[int, Any] | None]:
    try:
        return weakref.ref(hooks)
    except TypeError:  # a plain dict
        return lambda: hooks


def register(hooks: dict[int, Any], hook: Callable) -> RemovableHandle:
    """Adds ``hook`` to the dict of hooks. TypeError if it is not callable."""
    if not callable(hook):
        raise TypeError(f"a hook must be callable, not {type(hook).__name__}")
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle
