"""There is no compiler: the ops are native already. ``compile`` of a function gives it back, of a module a wrapper with PyTorch's keys;
both say so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ._features import refusing
from .nn.module import Module

__all__ = ["compile", "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "reset"]

__path__: list[str] = []
__getattr__ = refusing(__name__, "there is no compiler here; leave the call out")


def warn_no_compiler(what: str) -> None:
    """The warning that nothing is compiled."""
    warnings.warn(
        f"{what}: there is no compiler here, the ops are native already; everything runs as it is", UserWarning, stacklevel=3
    )


class OptimizedModule(Module):
    """What ``compile(module)`` returns: calls the module, and has its attributes; assigning one assigns it there. It is a module
    around it in all other ways: the keys of ``state_dict`` begin with ``_orig_mod.``, as PyTorch's do, and its hooks are its own.
    """

    _orig_mod: Module

    def __init__(self, module: Module) -> None:
        super().__init__()
        self._orig_mod = module

    @property
    def training(self) -> bool:
        """The module's."""
        return self._orig_mod.training

    @training.setter
    def training(self, mode: bool) -> None:
        if "_orig_mod" in self.__dict__:
            self._orig_mod.training = mode

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:  # what the wrapper lacks
        module = self.__dict__.get("_orig_mod")
        if module is None:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(module, name)

    def __setattr__(self, name: str, value: Any) -> None:
        own = name.startswith("_") or name in type(self).__dict__ or "_orig_mod" not in self.__dict__
        super().__setattr__(name, value) if own else setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        super().__delattr__(name) if name in self.__dict__ else delattr(self._orig_mod, name)

    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        return bool(self._orig_mod)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


def _wrapped(model: Any) -> Any:
    return OptimizedModule(model) if isinstance(model, Module) and not isinstance(model, OptimizedModule) else model


_BACKENDS = (
    "aot_eager", "aot_eager_decomp_partition", "aot_eager_decomp_partition_crossref", "aot_eager_decomp_partition_with_mode",
    "aot_eager_default_partitioner", "aot_ts", "cudagraphs", "eager", "eager_debug", "eager_noexcept", "inductor", "invoke_subgraph",
    "onnxrt", "openxla", "openxla_eval", "pre_dispatch_eager", "ts", "tvm",
)  # fmt: skip
_MODES = ("default", "lite", "reduce-overhead", "max-autotune-no-cudagraphs", "max-autotune")


def compile(
    model: Callable[..., Any] | None = None, *, backend: Any = "inductor", mode: str | None = None, options: Any = None, **others: Any
) -> Any:
    """A function itself, a Module in an :class:`OptimizedModule`; with a warning that nothing is compiled. Without a model: a
    decorator. PyTorch's options are accepted.

    Raises:
        AssertionError: ``model`` cannot be called. RuntimeError: a name of a backend or mode that is none; mode and options together.
    """
    if model is not None and not callable(model):
        raise AssertionError(f"A callable function is expected, but {type(model)} is provided.")
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if isinstance(backend, str) and backend not in _BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}. PyTorch has {', '.join(_BACKENDS)}")
    if mode is not None and backend == "inductor" and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    warn_no_compiler("compile()")
    return _wrapped if model is None else _wrapped(model)


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
