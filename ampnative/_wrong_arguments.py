"""Functions written in Python meet a wrong argument by its lack of an attribute, or by what it has in place of a tensor's. To the caller
that is a TypeError which names the argument: it is made here, after the fact, so that good calls are not checked."""

from __future__ import annotations

import importlib
import inspect
import operator
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from . import _C
from ._C import Tensor
from ._ops._common import no_tensor

__all__ = ["explain", "guard_functions", "guard_methods", "guarded"]

_HOMES = ("ampnative.nn.functional.", "ampnative.utils.dlpack")  # whose functions the package shows as well
_guards: dict[tuple[FunctionType, bool], Any] = {}
_places: dict[tuple[FunctionType, bool], tuple[str, str]] = {}  # the first module and name that a guard stands at


def guarded(function: Any, method: bool = False) -> Any:
    """The function with the check behind it; one and the same object for each function."""
    made = _guards.get((function, method))
    if made is None:
        made = _guards[function, method] = _C.Guard(function, method)
    return made


def _is_of(value: Any, module: str) -> bool:
    """Whether a function is one of the module's, and not another public module's that it shows as well."""
    return value.__module__ == module or "._" in value.__module__ or value.__module__.startswith(_HOMES)


def _takes_tensors(value: Any) -> bool:
    return type(value) is FunctionType and any("Tensor" in str(kind) for name, kind in value.__annotations__.items() if name != "return")


def guard_functions(namespace: dict[str, Any]) -> None:
    """Puts the check behind a module's public functions that take tensors."""
    for name, value in list(namespace.items()):
        if name[:1] != "_" and _takes_tensors(value) and _is_of(value, namespace["__name__"]):
            namespace[name] = guarded(value)
            _places.setdefault((value, False), (namespace["__name__"], name))


def guard_methods() -> None:
    """Puts the check behind Tensor's methods that are written in Python."""
    for name, value in list(vars(Tensor).items()):
        if name[:2] != "__" and _takes_tensors(value):
            setattr(Tensor, name, guarded(value, True))
            _places.setdefault((value, True), (Tensor.__module__, f"Tensor.{name}"))


def _at(module: str, name: str) -> Any:
    return operator.attrgetter(name)(importlib.import_module(module))


def reduced(function: FunctionType, method: bool) -> tuple[Any, tuple[Any, ...]]:
    """What pickle and copy keep of a guard."""
    place = _places.get((function, method))
    return (_at, place) if place else (guarded, (function, method))


def _is_own(error: BaseException) -> bool:
    """Whether nobody's code but the package's was between the call and the error: what a user's function raises is left alone."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").split(".")[0] == __name__.split(".")[0]:
        trace = trace.tb_next
    return trace is None


def _wants_tensors(annotation: str, value: Any) -> bool:
    return "Tensor" in annotation and "Callable" not in annotation and not (value is None and "None" in annotation)


def _arguments(function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, int, str, Any]]:
    """Name, position from 0, annotation and value of each argument that was given. TypeError if the function does not take them."""
    bound = inspect.signature(function).bind(*args, **kwargs)
    for position, (name, value) in enumerate(bound.arguments.items()):
        parameter = bound.signature.parameters[name]
        several = value if parameter.kind is parameter.VAR_POSITIONAL else [value]
        for i, one in enumerate(several):
            yield name, position + i, str(parameter.annotation), one


def explain(
    function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any], error: AttributeError | RuntimeError, method: bool
) -> TypeError | None:
    """The TypeError for a call that failed at an argument which should be a Tensor and is not; None if it failed at something else."""
    if not _is_own(error):
        return None
    try:
        given = _arguments(function, args, kwargs)
        found = [a for a in given if not isinstance(a[3], Tensor) and _wants_tensors(a[2], a[3])]
    except TypeError:
        return None
    guilty = [a for a in found if a[2] == "Tensor"]
    lacking = getattr(error, "obj", None)
    if not guilty and hasattr(Tensor, getattr(error, "name", None) or ""):
        guilty = [a for a in found if a[3] is lacking or (isinstance(a[3], (list, tuple)) and any(o is lacking for o in a[3]))]
    if not guilty:
        return None
    name, position, kind, value = guilty[0]
    place = "" if name in kwargs else f" (position {position + (not method)})"
    argument = f"{function.__name__}(): argument '{name}'{place}"
    if kind != "Tensor" and value is not lacking:
        return TypeError(f"{argument} must be a sequence of Tensors, but has a {type(lacking).__name__} in it")
    return no_tensor(argument, value)
