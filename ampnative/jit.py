"""There is no TorchScript. The marks that models carry for it change nothing; ``script``, ``trace`` and the like raise."""

from typing import Any, Final

from ._features import refusing

__all__ = ["Final", "annotate", "export", "ignore", "is_scripting", "is_tracing", "unused"]

__path__: list[str] = []
__getattr__ = refusing(
    __name__, "there is no TorchScript here; call the model as it is, and save its state_dict with ampnative.save"
)


def is_scripting() -> bool:
    """False."""
    return False


def is_tracing() -> bool:
    """False."""
    return False


def annotate(the_type: Any, the_value: Any) -> Any:
    """``the_value``."""
    return the_value


def export(fn: Any) -> Any:
    """``fn`` itself."""
    return fn


def unused(fn: Any) -> Any:
    """``fn`` itself."""
    return fn


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """The function itself; with options, a decorator."""
    return drop if callable(drop) else lambda fn: fn
