"""Hooks of modules: before and after forward, around backward, around saving and loading; of one module or of all.

A module without hooks is called by the C half directly. Registering one sets ``_hooked`` (or, for hooks of all modules, a flag of
the process), and calls then come through ``_call_with_hooks``.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .. import _C
from .._C import Tensor
from ..autograd.function import Function
from ..utils.hooks import RemovableHandle

__all__ = [
    "ModuleHooks",
    "register_module_backward_hook",
    "register_module_forward_hook",
    "register_module_forward_pre_hook",
    "register_module_full_backward_hook",
    "register_module_full_backward_pre_hook",
]


class Hook(NamedTuple):
    """A registered function, and how it wants to be called."""

    function: Callable
    with_kwargs: bool = False
    always_call: bool = False


class HookDict(OrderedDict):
    """id -> Hook. A class of its own because handles hold it weakly."""


_NONE: Mapping[int, Hook] = types.MappingProxyType({})
_CALL_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class _Everywhere(HookDict):
    """Hooks of all modules. The C half is told when the first comes; it is told of the last leaving by the next call."""


_all: dict[str, _Everywhere] = {name: _Everywhere() for name in _CALL_HOOKS}


def _register(hooks: HookDict, hook: Hook, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


class ModuleHooks:
    """The part of Module that is about hooks."""

    forward: Callable[..., Any]
    _hooked: bool
    _forward_hooks: Mapping[int, Hook]
    _forward_pre_hooks: Mapping[int, Hook]
    _backward_hooks: Mapping[int, Hook] = _NONE
    _backward_pre_hooks: Mapping[int, Hook] = _NONE
    _state_dict_hooks: Mapping[int, Hook] = _NONE
    _state_dict_pre_hooks: Mapping[int, Hook] = _NONE
    _load_state_dict_pre_hooks: Mapping[int, Hook] = _NONE
    _load_state_dict_post_hooks: Mapping[int, Hook] = _NONE
    _is_full_backward_hook: bool | None = None

    def _hooks(self, kind: str) -> HookDict:
        """The module's own dict of one kind of hooks, made when the first is registered."""
        found = getattr(self, kind)
        if found is _NONE:
            found = HookDict()
            setattr(self, kind, found)
        return found

    # ---- around calls ----

    def register_forward_pre_hook(self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False) -> RemovableHandle:
        """``hook(module, args)`` runs before ``forward`` and may return new args; with kwargs: ``(args, kwargs)``."""
        self._hooked = True
        return _register(self._hooks("_forward_pre_hooks"), Hook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self, hook: Callable, *, prepend: bool = False, with_kwargs: bool = False, always_call: bool = False
    ) -> RemovableHandle:
        """``hook(module, args, output)`` runs after ``forward`` and may return another output.

        ``always_call``: it also runs if ``forward`` raised.
        """
        self._hooked = True
        return _register(self._hooks("_forward_hooks"), Hook(hook, with_kwargs, always_call), prepend)

    def register_full_backward_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_output)`` runs before the module's backward, with the gradients of its output (a tuple; None for
        what has none), and may return others.
        """
        self._hooked = True
        return _register(self._hooks("_backward_pre_hooks"), Hook(hook), prepend)

    def register_full_backward_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """``hook(module, grad_input, grad_output)`` runs when the gradients of the module's positional tensor arguments are
        there (a tuple, one entry per argument, None for what is no tensor), and may return other gradients for them.
        """
        if self._is_full_backward_hook is False:
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module.")
        self._is_full_backward_hook = True
        self._hooked = True
        return _register(self._hooks("_backward_hooks"), Hook(hook), prepend)

    def register_backward_hook(self, hook: Callable) -> RemovableHandle:
        """Deprecated. Here it is ``register_full_backward_hook`` with a FutureWarning: the gradients are those of the whole
        module, not of its last op.
        """
        if self._is_full_backward_hook is True:
            raise RuntimeError("Cannot use both regular backward hooks and full backward hooks on a single Module.")
        _warn_regular()
        self._is_full_backward_hook = False
        self._hooked = True
        return _register(self._hooks("_backward_hooks"), Hook(hook))

    def _call_with_hooks(self, *args: Any, **kwargs: Any) -> Any:
        """The slow way of calling a module; the C half comes here while there are hooks."""
        everywhere = any(_all.values())
        if not everywhere:
            _C._set_all_modules_hooked(False)
            if not any(getattr(self, kind) for kind in _CALL_HOOKS):
                self._hooked = False
                return self.forward(*args, **kwargs)
        before, after, back_before, back_after = ({**_all[kind], **getattr(self, kind)} for kind in _CALL_HOOKS)
        for hook in before.values():
            args, kwargs = _run_pre_hook(self, hook, args, kwargs)
        backward = _BackwardHooks(self, list(back_before.values()), list(back_after.values())) if back_before or back_after else None
        if backward is not None:
            args = backward.watch_inputs(args)
        done: set[int] = set()
        try:
            output = self.forward(*args, **kwargs)
            for key, hook in after.items():
                done.add(key)
                new = hook.function(self, args, kwargs, output) if hook.with_kwargs else hook.function(self, args, output)
                output = output if new is None else new
        except Exception:
            for key, hook in after.items():
                if hook.always_call and key not in done:
                    _run_last_hook(self, hook, args, kwargs)
            raise
        return output if backward is None else backward.watch_output(output)

    # ---- around saving and loading ----

    def register_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """``hook(module, prefix, keep_vars)`` runs before the module's entries go into a state dict."""
        return _register(self._hooks("_state_dict_pre_hooks"), Hook(hook))

    def register_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata)`` runs when the module's entries and those of its children are in;
        it may edit the dict, and must return None.
        """

        @functools.wraps(hook)
        def checked(*args: Any) -> None:
            if hook(*args) is not None:
                raise RuntimeError("state_dict post-hook must return None: edit the state_dict in place")

        return _register(self._hooks("_state_dict_hooks"), Hook(checked))

    def _register_state_dict_hook(self, hook: Callable) -> RemovableHandle:
        """Like ``register_state_dict_post_hook``, but what it returns takes the place of the dict."""
        return _register(self._hooks("_state_dict_hooks"), Hook(hook))

    def register_load_state_dict_pre_hook(self, hook: Callable) -> RemovableHandle:
        """``hook(module, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)`` runs before
        the module's entries are loaded, and may edit the dict and the lists.
        """
        return self._register_load_state_dict_pre_hook(hook, with_module=True)

    def _register_load_state_dict_pre_hook(self, hook: Callable, with_module: bool = False) -> RemovableHandle:
        return _register(self._hooks("_load_state_dict_pre_hooks"), Hook(functools.partial(hook, self) if with_module else hook))

    def register_load_state_dict_post_hook(self, hook: Callable) -> RemovableHandle:
        """``hook(module, incompatible_keys)`` runs after the module and its children were loaded; it may edit the two lists, and
        must return None.
        """
        return _register(self._hooks("_load_state_dict_post_hooks"), Hook(hook))


# ---- hooks of all modules ----


def _register_everywhere(kind: str, hook: Hook) -> RemovableHandle:
    _C._set_all_modules_hooked(True)
    return _register(_all[kind], hook)


def register_module_forward_pre_hook(hook: Callable) -> RemovableHandle:
    """``hook(module, args)`` before every module's ``forward``, before the module's own hooks; for debugging and profiling."""
    return _register_everywhere("_forward_pre_hooks", Hook(hook))


def register_module_forward_hook(hook: Callable, *, with_kwargs: bool = False, always_call: bool = False) -> RemovableHandle:
    """``hook(module, args, output)`` after every module's ``forward``; it may return another output."""
    return _register_everywhere("_forward_hooks", Hook(hook, with_kwargs, always_call))


def register_module_full_backward_pre_hook(hook: Callable) -> RemovableHandle:
    """``hook(module, grad_output)`` before every module's backward."""
    return _register_everywhere("_backward_pre_hooks", Hook(hook))


def register_module_full_backward_hook(hook: Callable) -> RemovableHandle:
    """``hook(module, grad_input, grad_output)`` after every module's backward."""
    return _register_everywhere("_backward_hooks", Hook(hook))


def register_module_backward_hook(hook: Callable) -> RemovableHandle:
    """Deprecated: here ``register_module_full_backward_hook`` with a FutureWarning."""
    _warn_regular()
    return register_module_full_backward_hook(hook)


def _warn_regular() -> None:
    warnings.warn(
        "register_backward_hook is deprecated, and here it does what register_full_backward_hook does: the gradients are those of "
        "the whole module. Call that one.",
        FutureWarning,
        stacklevel=3,
    )


# ---- forward ----


def _run_pre_hook(module: Any, hook: Hook, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    if hook.with_kwargs:
        new = hook.function(module, args, kwargs)
        if new is None:
            return args, kwargs
        if not (isinstance(new, tuple) and len(new) == 2):
            raise RuntimeError(f"forward pre-hook must return None or a tuple of (new_args, new_kwargs), but got {new!r}.")
        return new
    new = hook.function(module, args)
    if new is None:
        return args, kwargs
    return new if isinstance(new, tuple) else (new,), kwargs


def _run_last_hook(module: Any, hook: Hook, args: tuple, kwargs: dict) -> None:
    """An always_call hook after a failed forward: its own failure must not hide the first one."""
    try:
        if hook.with_kwargs:
            hook.function(module, args, kwargs, None)
        else:
            hook.function(module, args, None)
    except Exception as error:
        warnings.warn(f"a forward hook with always_call=True raised {type(error).__name__}: {error}", stacklevel=3)


# ---- backward ----


class _Tap(Function):
    """The identity, of which a function sees (and may change) the gradients."""

    @staticmethod
    def forward(ctx: Any, see: Callable[[tuple], tuple], materialize: bool, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.see = see
        ctx.set_materialize_grads(materialize)
        return tuple(t.detach() for t in tensors)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return (None, None, *ctx.see(grads))


class _BackwardHooks:
    """One call of one module: taps on its arguments and its outputs, and what the outputs' tap saw last."""

    def __init__(self, module: Any, before: list[Hook], after: list[Hook]) -> None:
        self.module, self.before, self.after = module, before, after
        self.inputs: tuple = ()
        self.watched_inputs: list[int] = []
        self.watched_outputs: list[int] = []
        self.outputs: tuple = ()
        self.grad_output: tuple = ()

    def _watch(self, values: tuple, see: Callable[[tuple], tuple], materialize: bool) -> tuple[tuple, list[int]]:
        places = [i for i, v in enumerate(values) if isinstance(v, Tensor) and v.requires_grad]
        if not places or not _C.is_grad_enabled():
            return values, []
        tapped = _Tap.apply(see, materialize, *(values[i] for i in places))
        changed = list(values)
        for place, tensor in zip(places, tapped, strict=True):
            changed[place] = tensor
        return tuple(changed), places

    def watch_inputs(self, args: tuple) -> tuple:
        # what needs no gradient shows as zeros among the gradients; the other arguments as None
        self.inputs = tuple((v.shape, v.dtype, v.device) if isinstance(v, Tensor) else None for v in args)
        args, self.watched_inputs = self._watch(args, self._at_inputs, True)
        return args

    def watch_output(self, output: Any) -> Any:
        several = isinstance(output, tuple)
        if not several and not isinstance(output, Tensor):
            warnings.warn(
                "For backward hooks to be called, module output should be a Tensor or a tuple of Tensors but received "
                f"{type(output)}",
                stacklevel=4,
            )
            return output
        self.outputs, self.watched_outputs = self._watch(output if several else (output,), self._at_outputs, False)
        result = self.outputs if several else self.outputs[0]
        self.outputs = (None,) * len(self.outputs)
        return result

    def _at_outputs(self, grads: tuple) -> tuple:
        whole = list(self.outputs)
        for place, grad in zip(self.watched_outputs, grads, strict=True):
            whole[place] = grad
        given: tuple = tuple(whole)
        for hook in self.before:
            given = _replaced(hook.function(self.module, given), given, "Backward pre hook", "grad_output")
        self.grad_output = given
        if not self.watched_inputs:
            self._without_inputs()
        return tuple(given[place] for place in self.watched_outputs)

    def _without_inputs(self) -> None:
        if self.after:
            warnings.warn(
                "Full backward hook is firing when gradients are computed with respect to module outputs since no inputs require "
                "gradients: grad_input is all None",
                stacklevel=2,
            )
        for hook in self.after:
            new = hook.function(self.module, (None,) * len(self.inputs), self.grad_output)
            if new is not None and not (isinstance(new, tuple) and all(g is None for g in new)):
                raise RuntimeError(
                    "Backward hook for Modules where no input requires gradient should always return None or None for all "
                    "gradients."
                )

    def _at_inputs(self, grads: tuple) -> tuple:
        if not self.watched_outputs:  # of a kind that could not be watched
            return grads
        whole: list[Any] = [
            None if like is None else _C.functions.zeros(like[0], dtype=like[1], device=like[2])
            if i not in self.watched_inputs
            else None
            for i, like in enumerate(self.inputs)
        ]
        for place, grad in zip(self.watched_inputs, grads, strict=True):
            whole[place] = grad
        given: tuple = tuple(whole)
        for hook in self.after:
            new = hook.function(self.module, given, self.grad_output)
            given = _replaced(new, given, "Backward hook", "grad_input")
        return tuple(given[place] for place in self.watched_inputs)


def _replaced(new: Any, old: tuple, who: str, what: str) -> tuple:
    if new is None:
        return old
    new = new if isinstance(new, tuple) else (new,)
    if len(new) != len(old):
        raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(new)}, but expected {len(old)}")
    return new
