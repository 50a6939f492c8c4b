"""Optimizer: parameter groups, state, saving, hooks. The arithmetic is in C, one call per group."""

from __future__ import annotations

import copy
import functools
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakValueDictionary

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import enable_grad
from ..utils.hooks import RemovableHandle


class _Required:
    def __repr__(self) -> str:
        return "<required parameter>"


required = _Required()


class _Hooks(OrderedDict):
    """id -> callable. A class of its own because handles hold it weakly."""


_for_all_before, _for_all_after = _Hooks(), _Hooks()
_optimizers: WeakValueDictionary[int, Optimizer] = WeakValueDictionary()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """``hook(optimizer, args, kwargs)`` runs before every step of every optimizer, before the hooks of its own, and may return
    (new_args, new_kwargs). ``args`` begin with the optimizer."""
    return _add_for_all(_for_all_before, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """``hook(optimizer, args, kwargs)`` runs after every step of every optimizer, after the hooks of its own."""
    return _add_for_all(_for_all_after, hook)


def _add_for_all(hooks: _Hooks, hook: Callable) -> RemovableHandle:
    handle = _add_hook(hooks, hook)
    for optimizer in list(_optimizers.values()):
        optimizer._wrap_step()
    return handle


class Optimizer:
    """Base of all optimizers.

    ``params``: tensors, (name, tensor) pairs, or dicts with "params" and options of their own; ``defaults``: options of
    groups that do not set them. Subclasses define ``step`` (most only ``_step_group``).
    """

    _step_supports_amp_scaling = False
    _counters: tuple[str, ...] = ()  # keys of a parameter's state that are 0-dim tensors on the CPU, whatever the parameter is

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any]) -> None:
        self.defaults = defaults
        self.state: dict[Any, Any] = defaultdict(dict)
        self.param_groups: list[dict[str, Any]] = []
        self._make_hooks()
        if isinstance(params, Tensor):
            raise TypeError(
                f"params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {type(params).__name__}"
            )
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            if isinstance(params, set):
                _warn_unordered()
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _make_hooks(self) -> None:
        _optimizers[id(self)] = self
        if _for_all_before or _for_all_after:
            self._wrap_step()
        self._step_pre_hooks, self._step_post_hooks = _Hooks(), _Hooks()
        self._state_dict_pre_hooks, self._state_dict_post_hooks = _Hooks(), _Hooks()
        self._load_state_dict_pre_hooks, self._load_state_dict_post_hooks = _Hooks(), _Hooks()

    # ---- groups ----

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group: a dict with "params" and any options that differ from the defaults."""
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        group = dict(param_group)
        params = group["params"]
        if isinstance(params, set):
            _warn_unordered()
        params = [params] if isinstance(params, Tensor) else list(params)
        params, names = _split_names(params)
        for param in params:
            if not isinstance(param, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {type(param).__name__}")
            if not (self.defaults.get("differentiable") or param.is_leaf or param.retains_grad):
                raise ValueError("can't optimize a non-leaf Tensor")
        named_before = any("param_names" in g for g in self.param_groups)
        if self.param_groups and named_before != (names is not None):
            raise ValueError("all optimizer param groups should be with/without names")
        if len({id(p) for p in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters: each occurrence is stepped",
                stacklevel=3,
            )
        used = {id(p) for g in self.param_groups for p in g["params"]}
        if any(id(p) in used for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        group["params"] = params
        if names is not None:
            group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            group.setdefault(name, default)
        self.param_groups.append(group)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients (``set_to_none=False``: fill them with zeros in place)."""
        for group in self.param_groups:
            if set_to_none:
                _C._clear_grads(group["params"])
                continue
            if _C._zero_grads(group["params"]):
                continue
            for param in group["params"]:
                if param.grad is not None:
                    if param.grad.grad_fn is not None or param.grad.requires_grad:
                        param.grad = param.grad.detach()
                    param.grad.zero_()

    # ---- stepping ----

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update all parameters from their gradients; those without are left alone. Returns the closure's value, if one
        is given.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        grad_scale = 1.0
        if "found_inf" in self.__dict__ or "grad_scale" in self.__dict__:
            skip, grad_scale = self._amp_request()
            if skip:
                self._prepare_state()
                return loss
        for group in self.param_groups:
            if self._step_usual(group, grad_scale):
                continue
            grads = _C._grads_of(group["params"])
            if grads is not None:
                self._step_group(group, group["params"], grads, grad_scale)
                continue
            for params, grads in _buckets(group["params"]):
                self._step_group(group, params, grads, grad_scale)
        return loss

    def _amp_request(self) -> tuple[bool, float]:
        """What GradScaler asked of this step: (skip it, divisor of the gradients). Any non-zero found_inf skips."""
        found_inf, grad_scale = getattr(self, "found_inf", None), getattr(self, "grad_scale", None)
        if not self._step_supports_amp_scaling:
            if found_inf is not None or grad_scale is not None:
                raise AssertionError("grad_scale and found_inf are for optimizers made with fused=True")
            return False, 1.0
        skip = found_inf is not None and float(found_inf) != 0
        return skip, 1.0 if grad_scale is None else float(grad_scale)

    def _prepare_state(self) -> None:
        """Makes the state that a first step would make: a skipped one leaves it behind too, as in PyTorch."""

    def _step_usual(self, group: dict[str, Any], grad_scale: float) -> bool:
        """The step of a group in which nothing is unusual, its gradients and state found in C; False, and nothing done, if
        something is: ``_step_group`` is called then.
        """
        return False

    def _step_group(self, group: dict[str, Any], params: list[Tensor], grads: list[Tensor], grad_scale: float) -> None:
        raise NotImplementedError(f"{type(self).__name__} defines neither step nor _step_group")

    # ---- hooks: an instance attribute `step` that wraps the method, made when the first hook comes ----

    def _wrap_step(self) -> None:
        if getattr(self.step, "_runs_hooks", False):
            return
        inner = self.step

        @functools.wraps(inner)
        def step(*given: Any, **kwargs: Any) -> Any:
            args: Any = (self, *given)
            for hook in (*_for_all_before.values(), *self._step_pre_hooks.values()):
                result = hook(self, args, kwargs)
                if result is not None:
                    if not (isinstance(result, tuple) and len(result) == 2):
                        raise RuntimeError(
                            f"{type(self).__name__}.step: a pre-hook returns None or (args, kwargs), got {result!r}"
                        )
                    args, kwargs = result
                    if not args or args[0] is not self:
                        raise TypeError(
                            f"{type(self).__name__}.step: the arguments that a pre-hook returns begin with the optimizer, got {args!r}"
                        )
            value = inner(*args[1:], **kwargs)
            for hook in (*self._step_post_hooks.values(), *_for_all_after.values()):
                hook(self, args, kwargs)
            return value

        step._runs_hooks = True  # type: ignore[attr-defined]
        self.step = step  # type: ignore[method-assign]

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` runs before every step and may return (new_args, new_kwargs). ``args`` begin with the
        optimizer."""
        self._wrap_step()
        return _add_hook(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """``hook(optimizer, args, kwargs)`` runs after every step."""
        self._wrap_step()
        return _add_hook(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer)`` runs before ``state_dict``."""
        return _add_hook(self._state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer, state_dict)`` runs after ``state_dict`` and may return another one."""
        return _add_hook(self._state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer, state_dict)`` runs before a state is loaded, on a shallow copy, and may return another one."""
        return _add_hook(self._load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """``hook(optimizer)`` runs after a state was loaded."""
        return _add_hook(self._load_state_dict_post_hooks, hook, prepend)

    # ---- saving ----

    def state_dict(self) -> dict[str, Any]:
        """{"state": parameter number -> its state, "param_groups": options, "params" as numbers}. Tensors are shared,
        not copied.
        """
        for hook in list(self._state_dict_pre_hooks.values()):
            hook(self)
        number: dict[int, int] = {}
        groups = []
        for group in self.param_groups:
            for param in group["params"]:
                number.setdefault(id(param), len(number))
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [number[id(p)] for p in group["params"]]
            groups.append(packed)
        if any(isinstance(key, Tensor) and id(key) not in number for key in self.state):
            raise KeyError("the state is of a parameter that is in no group any more: delete its entry of optimizer.state first")
        state = {number[id(key)] if isinstance(key, Tensor) else key: value for key, value in self.state.items()}
        saved: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in list(self._state_dict_post_hooks.values()):
            changed = hook(self, saved)
            saved = saved if changed is None else changed
        return saved

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over a saved state; its tensors are cast to the parameters' dtypes and devices (but for "step").

        ValueError if groups or their sizes do not match.
        """
        state_dict = dict(state_dict)
        for hook in list(self._load_state_dict_pre_hooks.values()):
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved_groups = copy.deepcopy(state_dict["param_groups"])
        if len(saved_groups) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved_groups, strict=False)):
            raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        by_number = {
            number: param
            for group, saved in zip(self.param_groups, saved_groups, strict=False)
            for number, param in zip(saved["params"], group["params"], strict=False)
        }
        state: dict[Any, Any] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            key = _as_number(key, by_number)
            param = by_number.get(key)
            state[key if param is None else param] = value if param is None else _cast_state(param, value, self._counters)
        groups = []
        for group, saved in zip(self.param_groups, saved_groups, strict=False):
            saved["params"] = group["params"]
            if "param_names" in group and "param_names" not in saved:
                saved["param_names"] = group["param_names"]
            groups.append(saved)
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in list(self._load_state_dict_post_hooks.values()):
            hook(self)

    def __getstate__(self) -> dict[str, Any]:
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._make_hooks()
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)
        self._step_supports_amp_scaling = bool(any(group.get("fused") for group in self.param_groups))

    def __repr__(self) -> str:
        lines = [type(self).__name__ + " ("]
        for index, group in enumerate(self.param_groups):
            lines += [""] * (index > 0) + [f"Parameter Group {index}"]
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])


def _add_hook(hooks: _Hooks, hook: Callable, prepend: bool = False) -> RemovableHandle:
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    if prepend:
        hooks.move_to_end(handle.id, last=False)
    return handle


def _warn_unordered() -> None:
    warnings.warn(
        "optimizer parameters need to be organized in ordered collections: a set changes its order. Use a list.",
        FutureWarning,
        stacklevel=4,
    )


def _split_names(params: list[Any]) -> tuple[list[Any], list[str] | None]:
    named = [isinstance(p, tuple) for p in params]
    if not any(named):
        return params, None
    if not all(named):
        raise ValueError("all optimizer params should be with/without names. Some param names are missing")
    return [p for _, p in params], [name for name, _ in params]


def _buckets(params: list[Tensor]) -> list[tuple[list[Tensor], list[Tensor]]]:
    """Parameters that have gradients, with them: one pair of lists per (device, dtype)."""
    found: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}
    for param in params:
        grad = param.grad
        if grad is not None:
            ps, gs = found.setdefault((param.device.type, param.dtype), ([], []))
            ps.append(param)
            gs.append(grad)
    return list(found.values())


def _as_number(key: Any, known: dict[Any, Any]) -> Any:
    """Formats with text keys bring parameter numbers back as strings."""
    return int(key) if isinstance(key, str) and key.isdigit() and key not in known else key


def _cast_state(param: Tensor, value: Any, counters: tuple[str, ...], key: str | None = None) -> Any:
    """One entry of a parameter's loaded state: the parameter's dtype and device, but for step counts and an optimizer's own counters."""
    if isinstance(value, dict):
        return {k: _cast_state(param, v, counters, k) for k, v in value.items()}
    if key in counters:
        if key == "step" or not (isinstance(value, Tensor) and param.is_floating_point()):
            return as_counter(value)
        return value.to("cpu", param.dtype)
    if key == "step":
        return value
    if isinstance(value, Tensor) or type(value).__module__ == "numpy":
        value = value if isinstance(value, Tensor) else _C.tensor(value)
        return value.to(param.device, param.dtype) if param.is_floating_point() else value.to(param.device)
    if isinstance(value, (list, tuple)):
        return type(value)(_cast_state(param, v, counters) for v in value)
    return value


def as_counter(value: Any) -> Tensor:
    """A step count or running product as the list functions want it: a 0-dim fp32 tensor on the CPU."""
    return _C.tensor(float(value), dtype=_C.float32, device="cpu")


def check_steps(states: Iterable[dict[str, Any]]) -> None:
    """RuntimeError for a step count that isn't a tensor: what saved states of long ago have, edited into a live one."""
    for state in states:
        if "step" in state and not isinstance(state["step"], Tensor):
            raise RuntimeError(
                f"API has changed, `state_steps` argument must contain a list of singleton tensors, not {state['step']!r}: "
                f"give state['step'] a tensor, or load the state by load_state_dict, which converts it"
            )


def check_options(name: str, defaults: dict[str, Any], params: list[dict[str, Any]]) -> bool:
    """Refuses combinations of foreach, fused and differentiable; returns whether the optimizer is fused."""
    if defaults.get("differentiable"):
        if defaults.get("fused"):
            raise RuntimeError("`fused` does not support `differentiable`")
        raise NotImplementedError(f"{name}: differentiable=True is not available here: steps are not recorded")
    if not defaults.get("fused"):
        return False
    if defaults.get("foreach"):
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")
    for group in params:
        for param in group["params"]:
            if not param.is_floating_point():
                raise RuntimeError("`fused=True` requires all the params to be floating point Tensors of supported devices")
    return True


def check_non_negative(what: str, value: Any) -> None:
    """ValueError unless the number, or one-element tensor, is 0 or more."""
    if what == "learning rate":
        check_rate(value)
    if not value >= 0.0:
        raise _invalid(what, value)


def check_not_negative(what: str, value: Any) -> None:
    """As :func:`check_non_negative`, but NaN may pass: what SGD asks of its options."""
    if what == "learning rate":
        check_rate(value)
    if value < 0.0:
        raise _invalid(what, value)


def check_rate(value: Any) -> None:
    """ValueError for a tensor of several learning rates."""
    if isinstance(value, Tensor) and value.numel() != 1:
        raise ValueError(f"Tensor lr must be 1-element, not of shape {tuple(value.shape)}")


def _invalid(what: str, value: Any) -> ValueError:
    return ValueError(f"Invalid {what} value: {value}" if what != "learning rate" else f"Invalid learning rate: {value}")


def check_betas(betas: Any) -> None:
    """ValueError unless the first two are in [0, 1)."""
    for index in (0, 1):
        if not 0.0 <= betas[index] < 1.0:
            raise ValueError(f"Invalid beta parameter at index {index}: {betas[index]}")
