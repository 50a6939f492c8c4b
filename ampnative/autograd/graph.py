"""Nodes of the graph and hooks on them; what the graph keeps for backward, and ways to keep it elsewhere."""

from __future__ import annotations

import abc
import functools
import threading
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from contextlib import ContextDecorator, contextmanager
from typing import Any, Literal, NamedTuple

from .. import _C
from .._C import Tensor
from ..utils.hooks import RemovableHandle

__all__ = [
    "GradientEdge",
    "Node",
    "allow_mutation_on_saved_tensors",
    "disable_saved_tensors_hooks",
    "get_gradient_edge",
    "increment_version",
    "queue_callback",
    "register_multi_grad_hook",
    "save_on_cpu",
    "saved_tensors_hooks",
]


class Node(abc.ABC):
    """What every ``grad_fn`` is: ``isinstance(tensor.grad_fn, Node)``. Leaves have an accumulator at the end of ``next_functions``."""

    @abc.abstractmethod
    def name(self) -> str:
        """Such as "MulBackward0"."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """Where the inputs' gradients go: (node, output number) for each."""

    @property
    @abc.abstractmethod
    def metadata(self) -> MutableMapping[str, Any]:
        """For whoever wants to note something about the node."""

    @abc.abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """``fn(grad_inputs, grad_outputs)`` runs after the node and may return a tuple in place of grad_inputs."""

    @abc.abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """``fn(grad_outputs)`` runs before the node and may return a tuple in its place."""


Node.register(_C.Node)
Node.register(_C.AccumulateGrad)


class GradientEdge(NamedTuple):
    """A place where a gradient goes in: output number ``output_nr`` of ``node``. ``backward`` and ``grad`` take it in place of a
    tensor, whose memory it doesn't keep.
    """

    node: Node
    output_nr: int
    ownership_token: Any = None


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge that the gradient of ``tensor`` goes through. RuntimeError if it needs none."""
    return GradientEdge(*_C._gradient_edge(tensor))


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Counts a write to ``tensor`` (or to each of them) that the library did not see, so that backward doesn't use stale values."""
    for t in (tensor,) if isinstance(tensor, Tensor) else tensor:
        _C._increment_version(t)


def queue_callback(callback: Callable[[], Any]) -> None:
    """Called inside a hook: ``callback()`` runs when the whole backward pass has ended. RuntimeError outside of a pass."""
    _C._queue_callback(callback)


class _MultiHandle(RemovableHandle):
    def __init__(self, handles: tuple[RemovableHandle, ...]) -> None:
        self.handles = handles

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __getstate__(self) -> Any:
        return self.handles

    def __setstate__(self, state: Any) -> None:
        self.handles = state


class _Gathering:
    """Gradients of one backward pass until the last that will come is there."""

    def __init__(self, nodes: list[Any]) -> None:
        self.gradients: list[Tensor | None] = [None] * len(nodes)
        self.missing = sum(_C._graph_task_reaches(node) for node in nodes)


def register_multi_grad_hook(
    tensors: Sequence[Tensor], fn: Callable[..., Any], *, mode: Literal["all", "any"] = "all"
) -> RemovableHandle:
    """"all": ``fn(gradients)``, a list with None for tensors that a pass doesn't reach, runs once per pass, when all have come.
    "any": ``fn(gradient)`` runs for the first that comes. Returns a handle with ``remove()``. ValueError for another mode.
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    nodes = []
    for t in tensors:
        if not t.requires_grad:
            raise AssertionError("Expected gradient function to be set: a tensor does not require grad, it gets no gradient")
        nodes.append(get_gradient_edge(t).node)
    lock = threading.Lock()
    passes: dict[int, _Gathering] = {}
    last = -1

    def gather(i: int, gradient: Tensor) -> None:
        task = _C._graph_task()
        with lock:
            gathering = passes.get(task)
            if gathering is None:
                gathering = passes[task] = _Gathering(nodes)
                queue_callback(lambda: passes.pop(task, None))
            gathering.gradients[i] = gradient
            gathering.missing -= 1
        if gathering.missing == 0:
            del passes[task]
            fn(gathering.gradients)

    def first(gradient: Tensor) -> None:
        nonlocal last
        task = _C._graph_task()
        with lock:
            if task == last:
                return
            last = task
        fn(gradient)

    if mode == "any":
        return _MultiHandle(tuple(t.register_hook(first) for t in tensors))
    return _MultiHandle(tuple(t.register_hook(functools.partial(gather, i)) for i, t in enumerate(tensors)))


@contextmanager
def allow_mutation_on_saved_tensors() -> Iterator[None]:
    """Inside, the graph keeps copies, also of parameters: what it saved may be written to before backward."""
    with saved_tensors_hooks(lambda tensor: tensor.clone(), lambda kept: kept):
        yield


class saved_tensors_hooks:
    """Context manager: what is recorded inside keeps ``pack_hook(tensor)`` in place of each saved tensor; backward calls
    ``unpack_hook`` on it, once, and must get a tensor of the same shape and device; of a floating tensor it may have another floating
    dtype, and is converted to the one that was packed. The statistics that norms and losses keep in float64 don't pass through hooks.

    ``pack_hook`` runs unrecorded and sees the tensor itself (a parameter is a parameter), or of an operation's own result an alias; it
    must not write to it. Writes to a tensor that was packed are not found any more. Innermost hooks win. For this thread only.
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]) -> None:
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        _C._push_saved_tensors_hooks(self.pack_hook, self.unpack_hook)

    def __exit__(self, *exception: object) -> None:
        _C._pop_saved_tensors_hooks()


class save_on_cpu(saved_tensors_hooks):
    """Saved tensors stay on the CPU between forward and backward. ``pin_memory`` and ``device_type`` change nothing."""

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda") -> None:
        super().__init__(lambda tensor: (tensor.device, tensor.cpu()), lambda kept: kept[1].to(kept[0]))


class disable_saved_tensors_hooks(ContextDecorator):
    """Context manager and decorator: inside, entering ``saved_tensors_hooks`` is a RuntimeError with this message; so is entering this
    inside of those.
    """

    def __init__(self, error_message: str) -> None:
        self.error_message = error_message

    def __enter__(self) -> None:
        _C._forbid_saved_tensors_hooks(self.error_message)

    def __exit__(self, *exception: object) -> None:
        _C._pop_saved_tensors_hooks()
