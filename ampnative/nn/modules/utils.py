"""One number as many, and state_dicts without a prefix."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any


def _ntuple(n: int, name: str = "parse") -> Callable[[Any], tuple]:
    def parse(x: Any) -> tuple:
        return tuple(x) if isinstance(x, Iterable) else (x,) * n

    parse.__name__ = name
    return parse


_single = _ntuple(1, "_single")
_pair = _ntuple(2, "_pair")
_triple = _ntuple(3, "_triple")
_quadruple = _ntuple(4, "_quadruple")


def consume_prefix_in_state_dict_if_present(state_dict: dict[str, Any], prefix: str) -> None:
    """Strips ``prefix``, such as "module." of a wrapped model, in place from the keys that start with it and from those of
    ``state_dict._metadata``. Stripped keys come last, or replace the entry of that name.
    """
    for key in [key for key in state_dict if key.startswith(prefix)]:
        state_dict[key[len(prefix) :]] = state_dict.pop(key)
    metadata = getattr(state_dict, "_metadata", None)
    if metadata is None:
        return
    # A module's key there lacks the dot: that of the wrapped model is the prefix without it.
    whole = prefix.removesuffix(".")
    for key in [key for key in metadata if key == whole or key.startswith(prefix)]:
        metadata[key[len(prefix) :]] = metadata.pop(key)
