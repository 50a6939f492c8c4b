"""Checkpointing: the intermediate values of a part of a model are computed again in backward instead of being kept.

``use_reentrant=True`` runs the part without recording, and backward runs a backward of its own. ``use_reentrant=False`` records as
usual, but what the graph would keep is thrown away and computed when backward first asks for it; it is the better one.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .. import _C
from .._C import Tensor, autocast
from ..autograd import graph
from ..autograd.function import Function
from ..autograd.grad_mode import enable_grad, no_grad
from ._selective_checkpoint import (
    SAC_IGNORED_OPS,
    CheckpointPolicy,
    SelectiveCheckpointContext,
    create_selective_checkpoint_contexts,
)

__all__ = [
    "SAC_IGNORED_OPS",
    "CheckpointError",
    "CheckpointFunction",
    "CheckpointPolicy",
    "SelectiveCheckpointContext",
    "check_backward_validity",
    "checkpoint",
    "checkpoint_sequential",
    "create_selective_checkpoint_contexts",
    "detach_variable",
    "noop_context_fn",
    "set_checkpoint_debug_enabled",
    "set_checkpoint_early_stop",
]

_early_stop_wish: bool | None = None
_debug_wish: bool | None = None


class CheckpointError(RuntimeError):
    """The recomputation did not save the tensors that the first run saved."""


@contextlib.contextmanager
def set_checkpoint_early_stop(enable: bool) -> Iterator[None]:
    """Context manager around calls of ``checkpoint``: whether recomputing stops as soon as everything is there."""
    global _early_stop_wish
    before, _early_stop_wish = _early_stop_wish, enable
    try:
        yield
    finally:
        _early_stop_wish = before


@contextlib.contextmanager
def set_checkpoint_debug_enabled(enabled: bool | None) -> Iterator[None]:
    """Context manager around calls of ``checkpoint``: overrides ``debug``."""
    global _debug_wish
    before, _debug_wish = _debug_wish, enabled
    try:
        yield
    finally:
        _debug_wish = before


def noop_context_fn() -> tuple[Any, Any]:
    """Two context managers that do nothing."""
    return contextlib.nullcontext(), contextlib.nullcontext()


class _Surroundings:
    """Autocast state and random state of a moment, to be entered again later."""

    def __init__(self, preserve_rng_state: bool) -> None:
        self.autocast: list[dict[str, Any]] = [
            dict(device_type=device, enabled=_C.is_autocast_enabled(device), dtype=_C.get_autocast_dtype(device),
                 cache_enabled=_C.is_autocast_cache_enabled())
            for device in ("cuda", "cpu")
        ]  # fmt: skip
        self.rng = _C.default_generator.get_state() if preserve_rng_state else None

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        before = _C.default_generator.get_state() if self.rng is not None else None
        try:
            if self.rng is not None:
                _C.default_generator.set_state(self.rng)
            with autocast(**self.autocast[0]), autocast(**self.autocast[1]):
                yield
        finally:
            if before is not None:
                _C.default_generator.set_state(before)


# ---- recording as usual, without keeping ----


class _Stop(Exception):
    """Everything that backward needs has been computed again."""


class _KeepArguments(Function):
    """Its context keeps the tensor arguments as the graph keeps tensors: an outer checkpoint throws them away too."""

    @staticmethod
    def forward(ctx: Any, contexts: list[Any], anchor: Tensor, *tensors: Tensor) -> Tensor:
        ctx.save_for_backward(*tensors)
        contexts.append(ctx)
        return anchor.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        raise AssertionError("nothing depends on this node")


class _Slot:
    """Stands in the graph for tensor number ``index`` that a frame would have kept."""

    __slots__ = ("frame", "index")

    def __init__(self, frame: _Frame, index: int) -> None:
        self.frame, self.index = frame, index


def _described(tensor: Tensor) -> dict[str, Any]:
    return {"shape": tensor.shape, "dtype": tensor.dtype, "device": tensor.device}


class _Frame:
    """One call of a checkpointed function."""

    def __init__(
        self, function: Callable, args: tuple, kwargs: dict[str, Any], options: dict[str, Any], recompute_context: Any
    ) -> None:
        self.function, self.kwargs, self.recompute_context = function, kwargs, recompute_context
        self.early_stop = options["early_stop"] if _early_stop_wish is None else _early_stop_wish
        self.check = options["determinism_check"]
        self.surroundings = _Surroundings(options["preserve_rng_state"])
        self.saved: list[dict[str, Any]] = []
        self.values: dict[int, Tensor] = {}
        self._keep(args)

    def _keep(self, args: tuple) -> None:
        # Leaves that require a gradient and what is no tensor stay as they are; the rest goes where saved tensors go.
        self.args = list(args)
        self.places = [i for i, a in enumerate(args) if isinstance(a, Tensor) and not (a.is_leaf and a.requires_grad)]
        self.requires = [args[i].requires_grad for i in self.places]
        self.kept: Any = None
        if self.places:
            contexts: list[Any] = []
            anchor = _C.functions.empty((0,), requires_grad=True, device="cpu")
            _KeepArguments.apply(contexts, anchor, *(args[i] for i in self.places))
            self.kept = contexts[0]
            for i in self.places:
                self.args[i] = None

    def _arguments(self) -> list[Any]:
        args = list(self.args)
        if self.places:
            for i, tensor, requires_grad in zip(self.places, self.kept.saved_tensors, self.requires, strict=True):
                tensor = tensor.detach()
                # not a leaf in the first run, so not one now
                args[i] = tensor.requires_grad_().view_as(tensor) if requires_grad else tensor
        return args

    # the first run

    def pack(self, tensor: Tensor) -> _Slot:
        self.saved.append(_described(tensor))
        return _Slot(self, len(self.saved) - 1)

    def unpack(self, slot: _Slot) -> Tensor:
        if slot.index not in self.values:
            self.recompute()
        return self.values.pop(slot.index)

    # the second

    def recompute(self) -> None:
        self.values = {}
        found: list[Tensor] = []

        def pack(tensor: Tensor) -> Tensor:
            found.append(tensor if tensor.is_leaf else tensor.detach())  # the history of this run is of no use to anybody
            if self.early_stop and len(found) == len(self.saved):
                raise _Stop
            return tensor

        with enable_grad():
            args = self._arguments()
            watched = graph.saved_tensors_hooks(pack, lambda kept: kept)
            with self.surroundings.again(), self.recompute_context, contextlib.suppress(_Stop), watched:
                self.function(*args, **self.kwargs)
        self._compare(found)
        self.values = dict(enumerate(found))

    def _compare(self, found: list[Tensor]) -> None:
        if len(found) != len(self.saved):
            raise CheckpointError(
                "checkpoint: A different number of tensors was saved during the original forward and recomputation.\n"
                f"Number of tensors saved during forward: {len(self.saved)}\n"
                f"Number of tensors saved during recomputation: {len(found)}.\n"
                "The function must do the same both times: look for state that changes from call to call"
            )
        if self.check == "none":
            return
        different = [(i, a, _described(b)) for i, (a, b) in enumerate(zip(self.saved, found, strict=True)) if a != _described(b)]
        if different:
            lines = "\n".join(
                f"tensor at position {i}:\nsaved metadata: {a}\nrecomputed metadata: {b}" for i, a, b in different
            )
            raise CheckpointError(
                "checkpoint: Recomputed values for the following tensors have different metadata than during the forward pass.\n" + lines
            )


def _checkpoint_recorded(
    function: Callable, args: tuple, kwargs: dict[str, Any], context_fn: Callable[[], tuple[Any, Any]], options: dict[str, Any]
) -> Any:
    forward_context, recompute_context = context_fn()
    if not _C.is_grad_enabled():
        with forward_context:
            return function(*args, **kwargs)
    frame = _Frame(function, args, kwargs, options, recompute_context)
    with forward_context, graph.saved_tensors_hooks(frame.pack, frame.unpack):
        return function(*args, **kwargs)


# ---- without recording ----


def detach_variable(inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    """The tensors without their history, with their ``requires_grad``; the rest as it is."""
    if not isinstance(inputs, tuple):
        raise RuntimeError(f"Only tuple of tensors is supported. Got Unsupported input type: {type(inputs).__name__}")
    return tuple(x.detach().requires_grad_(x.requires_grad) if isinstance(x, Tensor) else x for x in inputs)


def check_backward_validity(inputs: Any) -> None:
    """Warns if no input requires a gradient."""
    if not any(isinstance(x, Tensor) and x.requires_grad for x in inputs):
        warnings.warn("None of the inputs have requires_grad=True. Gradients will be None", stacklevel=2)


class CheckpointFunction(Function):
    """The reentrant form: ``apply(function, preserve_rng_state, *args)``."""

    @staticmethod
    def forward(ctx: Any, run_function: Callable, preserve_rng_state: bool, *args: Any) -> Any:
        check_backward_validity(args)
        ctx.run_function = run_function
        ctx.surroundings = _Surroundings(preserve_rng_state)
        ctx.places = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        ctx.others = [None if isinstance(a, Tensor) else a for a in args]
        ctx.save_for_backward(*(args[i] for i in ctx.places))
        with no_grad():
            return run_function(*args)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        if _C._backward_has_inputs():
            raise RuntimeError(
                "When use_reentrant=True, checkpoint is incompatible with .grad() or passing an `inputs` parameter to .backward(): "
                "set use_reentrant=False, or call .backward() without `inputs`"
            )
        args = list(ctx.others)
        for place, tensor in zip(ctx.places, ctx.saved_tensors, strict=True):
            args[place] = tensor
        detached = detach_variable(tuple(args))
        with enable_grad(), ctx.surroundings.again():
            outputs = ctx.run_function(*detached)
        pairs = [
            (output, grad)
            for output, grad in zip(outputs if isinstance(outputs, tuple) else (outputs,), grads, strict=False)
            if isinstance(output, Tensor) and output.requires_grad
        ]
        if not pairs:
            raise RuntimeError("none of output has requires_grad=True, this checkpoint() is not necessary")
        roots, weights = zip(*pairs, strict=True)
        _C._engine_backward(roots, weights, False, False, (), True, True)
        return (None, None, *(x.grad if isinstance(x, Tensor) else None for x in detached))


# ---- both ----


def checkpoint(
    function: Callable,
    *args: Any,
    use_reentrant: bool | None = None,
    context_fn: Callable[[], tuple[Any, Any]] = noop_context_fn,
    determinism_check: str = "default",
    debug: bool = False,
    early_stop: bool = True,
    **kwargs: Any,
) -> Any:
    """``function(*args, **kwargs)``, of which backward computes the intermediate values again, in the autocast state and with the
    random numbers of the first time (``preserve_rng_state=False``: without the latter).

    Args:
        use_reentrant: False: needs no input that requires a gradient, works with ``autograd.grad``, keyword arguments, nested
            structures and higher derivatives. True: none of that. Please say which; None warns and means True.
        context_fn: gives two context managers, for the first run and for the second (``use_reentrant=False`` only).
        determinism_check: "default": shapes, dtypes and devices must be the same the second time (CheckpointError); "none".
        early_stop: stop the second run when all saved tensors are there.
        debug: accepted; the error says which tensors differ in any case.

    Raises:
        ValueError: unknown keyword arguments (``use_reentrant=True``), or an unknown ``determinism_check``.
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint: the use_reentrant parameter should be passed explicitly: use_reentrant=False is recommended, True is the "
            "present default",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    debug = debug if _debug_wish is None else _debug_wish
    if use_reentrant:
        if kwargs:
            raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
        if context_fn is not noop_context_fn or debug:
            raise ValueError("Passing `context_fn` or `debug` is only supported when use_reentrant=False.")
        return CheckpointFunction.apply(function, preserve, *args)
    if determinism_check not in ("default", "none"):
        raise ValueError(f"determinism_check should be one of ['default', 'none'], but got {determinism_check}")
    options = {"preserve_rng_state": preserve, "determinism_check": determinism_check, "early_stop": early_stop}
    return _checkpoint_recorded(function, args, kwargs, context_fn, options)


def checkpoint_sequential(functions: Any, segments: int, input: Any, use_reentrant: bool | None = None, **kwargs: Any) -> Any:
    """A Sequential (or list of functions) in ``segments`` equal parts, all but the last checkpointed.

    Takes ``preserve_rng_state``; other keyword arguments are a ValueError.
    """
    if use_reentrant is None:
        warnings.warn(
            "checkpoint_sequential: the use_reentrant parameter should be passed explicitly: use_reentrant=False is recommended, True "
            "is the present default",
            stacklevel=2,
        )
        use_reentrant = True
    preserve = kwargs.pop("preserve_rng_state", True)
    if kwargs:
        raise ValueError("Unexpected keyword arguments: " + ",".join(kwargs))
    stages = list(functions.children() if hasattr(functions, "children") else functions)

    def run(start: int, end: int) -> Callable:
        def forward(x: Any) -> Any:
            for stage in stages[start:end]:
                x = stage(x)
            return x

        return forward

    size, start = len(stages) // segments, 0
    for start in range(0, size * (segments - 1), size):
        input = checkpoint(run(start, start + size), input, use_reentrant=use_reentrant, preserve_rng_state=preserve)
    return run(size * (segments - 1), len(stages))(input)
