"""There is no compiler: the ops are native already. ``compile`` gives back what it was given, and says so once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ._features import refusing

__all__ = ["compile", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset"]

__path__: list[str] = []
__getattr__ = refusing(__name__, "there is no compiler here; leave the call out")


def warn_no_compiler(what: str) -> None:
    """The warning that nothing is compiled."""
    warnings.warn(
        f"{what}: there is no compiler here, the ops are native already; everything runs as it is", UserWarning, stacklevel=3
    )


def compile(model: Callable[..., Any] | None = None, **options: Any) -> Any:
    """``model`` itself (a function or a Module), with a warning. Without a model: a decorator. Options are accepted."""
    warn_no_compiler("compile()")
    return (lambda function: function) if model is None else model


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """``fn`` itself; without one, a decorator. Nothing is compiled in any case."""
    return (lambda function: function) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """``fn`` itself."""
    return fn


def is_compiling() -> bool:
    """False."""
    return False


def is_dynamo_compiling() -> bool:
    """False."""
    return False


def is_exporting() -> bool:
    """False."""
    return False


def reset() -> None:
    """Nothing to forget."""


def cudagraph_mark_step_begin() -> None:
    """Nothing to mark."""
