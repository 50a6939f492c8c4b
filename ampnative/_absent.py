"""Ops that PyTorch has and ampnative does not: asking for one says why, and what autocast would do with it."""

from __future__ import annotations

from typing import Any

from . import _C

__all__ = ["AbsentOpError", "absent_op"]


class AbsentOpError(NotImplementedError, AttributeError):
    """The op is PyTorch's and not here. An AttributeError too, so that ``hasattr`` tells the truth."""


_absent: dict[str, dict[str, Any]] | None = None


def _table() -> dict[str, dict[str, Any]]:
    global _absent
    if _absent is None:
        found: dict[str, dict[str, Any]] = {}
        for entry in _C._policy_entries():
            name = entry["entry"].partition(".")[0]
            if entry["absent"] and name not in found:
                found[name] = entry
        _absent = found
    return _absent


def absent_op(name: str, shown: str | None = None) -> AbsentOpError | None:
    """The exception for an op that is not there, by its name in autocast's lists; None for other names. `shown` is the name
    as the user wrote it."""
    entry = _table().get(name)
    if entry is None:
        return None
    return AbsentOpError(
        f"ampnative does not have {shown or name}. {entry['absent']} "
        f"Its autocast policy is {entry['cuda']!r} on cuda and {entry['cpu']!r} on cpu"
    )
