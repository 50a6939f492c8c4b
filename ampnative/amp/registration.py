"""Autocast for functions that are no ops of the table: policies for own functions, casts by hand, a fixed precision for
one module or function. Tensors and plain ndarrays alike."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from .. import _C
from .._C import autocast

__all__ = ["cast_args", "register_op", "wrap"]

_F = TypeVar("_F", bound=Callable[..., Any])
_POLICIES = ("lower", "fp32", "promote", "banned", "none")
_DEVICES = ("cpu", "cuda")


# ---- arguments ----


def _dtype(value: Any) -> _C.dtype | None:
    """The dtype of a floating Tensor or ndarray that is not float64: of what autocast may cast. None for all else."""
    if isinstance(value, _C.Tensor):
        return value.dtype if value.is_floating_point() and value.dtype is not _C.float64 else None
    if isinstance(value, np.ndarray):
        for dtype in (_C.float32, _C.float16, _C.bfloat16):
            if value.dtype.newbyteorder("=") == dtype.dtype:
                return dtype
    return None


def _device(value: Any) -> str:
    return value.device.type if isinstance(value, _C.Tensor) else "cpu"


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _leaves(item)
    elif isinstance(value, Mapping):
        yield from _leaves(list(value.values()))
    elif isinstance(value, (_C.Tensor, np.ndarray)):
        yield value


def _map(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with its tensors and arrays replaced; lists, tuples (named ones too) and mappings are rebuilt, others pass.
    A mapping that is no dict becomes one."""
    if isinstance(value, (_C.Tensor, np.ndarray)):
        return function(value)
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(_map(function, item) for item in value)
    if isinstance(value, (list, tuple)):
        kind = type(value) if type(value).__init__ in (list.__init__, tuple.__init__) else list if isinstance(value, list) else tuple
        return kind(_map(function, item) for item in value)
    if isinstance(value, Mapping):
        items = {key: _map(function, item) for key, item in value.items()}
        if type(value) is dict or not isinstance(value, dict):
            return items
        same_kind = copy.copy(value)  # a dict of a kind of its own: OrderedDict, defaultdict
        same_kind.update(items)
        return same_kind
    return value


def _to(value: Any, dtype: Any) -> Any:
    if isinstance(value, _C.Tensor):
        in_region = value.device.type in _DEVICES and _C.is_autocast_enabled(value.device.type)
        return _C._autocast_cast(value, dtype) if in_region else value.to(dtype)
    return value.astype(dtype.dtype, copy=False)


def _cast_one(device: str, target: Any, value: Any) -> Any:
    return _to(value, target) if _device(value) == device and _dtype(value) is not None else value


def _check_policy(policy: str) -> str:
    if policy == "keep":
        return "none"
    if policy not in _POLICIES:
        raise ValueError(f"unknown policy {policy!r}: use lower, fp32, promote, banned or none (keep)")
    return policy


def _check_device(device_type: str | None) -> str | None:
    if device_type is None:
        return None
    kind = device_type.partition(":")[0] if isinstance(device_type, str) else device_type
    if kind not in _DEVICES:
        raise ValueError(f"device_type must be 'cpu' or 'cuda', not {device_type!r}")
    return kind


def _check_float(dtype: Any) -> _C.dtype:
    if not isinstance(dtype, _C.dtype) or not dtype.is_floating_point:
        raise TypeError(f"dtype must be a floating dtype such as ampnative.float32, not {dtype!r}")
    return dtype


def _cast_for(policy: str, name: str, value: Any, device_type: str | None) -> tuple[Any, list[str]]:
    """`value` as autocast would give it to an op, and the devices whose region took part."""
    ruled = []
    for device in _DEVICES if device_type is None else (device_type,):
        if not _C.is_autocast_enabled(device):
            continue
        here = [v for v in _leaves(value) if _device(v) == device]
        if not here:
            continue
        ruled.append(device)
        dtypes = tuple(d for d in map(_dtype, here) if d is not None)
        target = _C._policy_target(policy, name, dtypes, device)
        if target is not None:
            value = _map(functools.partial(_cast_one, device, target), value)
    return value, ruled


def cast_args(
    *args: Any, policy: str = "lower", dtype: _C.dtype | None = None, device_type: str | None = None
) -> tuple[Any, ...]:
    """The arguments as autocast would give them to an op: cast by a policy if this thread is inside a region of their
    device, untouched otherwise. float64, integers and whatever is no tensor and no ndarray pass; lists, tuples and dicts
    are looked into. Casts of tensors are differentiable, and weights go through the region's cache::

        def attention(q, k, v):
            q, k, v = amp.cast_args(q, k, v)
            ...

    Args:
        args: Tensors (any shape and device) and ndarrays (they count as "cpu"), also nested.
        policy: "lower" (the region's dtype), "fp32", "promote", "banned" or "none", see :func:`op_policy`.
        dtype: cast to this floating dtype, inside a region or not; the policy does not count.
        device_type: look at this device's region and tensors only ("cuda:0" means "cuda"); None: "cpu" and "cuda", each for its tensors.

    Returns:
        A tuple of as many values.

    Raises:
        ValueError: unknown policy or device.
        TypeError: `dtype` is no floating dtype.
        RuntimeError: the policy is "banned", or "promote" met the other 16-bit dtype.
    """
    policy = _check_policy(policy)
    device_type = _check_device(device_type)
    if dtype is None:
        return _cast_for(policy, "cast_args", args, device_type)[0]
    target = _check_float(dtype)

    def cast(value: Any) -> Any:
        return _to(value, target) if _dtype(value) is not None and device_type in (None, _device(value)) else value

    return tuple(_map(cast, arg) for arg in args)


# ---- own ops ----


def register_op(function: _F, policy: str | Mapping[str, str]) -> _F:
    """`function` as an op of autocast: inside a region its floating arguments arrive as the policy says, and autocast is
    off while it runs, as in the library's own ops. Outside it is called as it is. Gradients come back in the dtypes of
    the arguments as they were given.

    The function may be anyone's: of Tensors (a ``Function.apply``, say) or of plain ndarrays, which count as "cpu"::

        norm = amp.register_op(their_norm, "fp32")
        dense = amp.register_op(Dense.apply, {"cuda": "lower", "cpu": "none"})

    :func:`op_policy` answers for the result. A policy casts arguments; the dtype of what comes out is the function's
    affair: with ``register_op(np.matmul, "lower")``, float16 arguments give float16, bfloat16 ones float32 (ml_dtypes 0.6;
    its ``np.dot`` gives bfloat16). Both are slower than in float32, for NumPy has no fast 16-bit products.

    Args:
        function: any callable.
        policy: "lower", "fp32", "promote" (to the widest), "banned", or "none" ("keep"): the arguments stay, and so does
            autocast. Or one per device type; a device that is not named has "none".

    Raises:
        TypeError: no callable.
        ValueError: unknown policy or device.
    """
    if not callable(function):
        raise TypeError(f"register_op() takes a callable, not {type(function).__name__}")
    by_device = dict(policy) if isinstance(policy, Mapping) else dict.fromkeys(_DEVICES, policy)
    if not by_device.keys() <= set(_DEVICES):
        raise ValueError(f"policies are for 'cpu' and 'cuda', got {sorted(by_device, key=str)}")
    policies = {device: _check_policy(by_device.get(device, "none")) for device in _DEVICES}
    name = getattr(function, "__name__", type(function).__name__)

    @functools.wraps(function, updated=())
    def op(*args: Any, **kwargs: Any) -> Any:
        if not _C._is_any_autocast_enabled():
            return function(*args, **kwargs)
        given: Any = (args, kwargs)
        with contextlib.ExitStack() as regions:
            for device in _DEVICES:
                if policies[device] == "none":
                    continue
                given, ruled = _cast_for(policies[device], name, given, device)
                for ruling in ruled:
                    regions.enter_context(_switched_off(ruling))
            return function(*given[0], **given[1])

    op.__amp_policies__ = policies  # type: ignore[attr-defined]
    return op  # type: ignore[return-value]


@contextlib.contextmanager
def _switched_off(device: str) -> Iterator[None]:
    """Without a region's depth: the cache stays as it is."""
    enabled = _C.is_autocast_enabled(device)
    _C.set_autocast_enabled(device, False)
    try:
        yield
    finally:
        _C.set_autocast_enabled(device, enabled)


# ---- one precision for one module or function ----


class _InPrecision:
    """Calls `function` in a fixed precision. Holds no state of a thread; can be copied and pickled with its module."""

    def __init__(self, function: Callable[..., Any], owner: Any, dtype: _C.dtype, device_type: str | None) -> None:
        self.function, self.owner, self.dtype, self.device_type = function, owner, dtype, device_type

    def _device_type(self, given: Any) -> str:
        if self.device_type is not None:
            return self.device_type
        tensors = [v for v in _leaves(given) if isinstance(v, _C.Tensor)]
        if not tensors and self.owner is not None:
            tensors = list(self.owner.parameters())
        return tensors[0].device.type if tensors else "cpu"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given: Any = (args, kwargs)
        device = self._device_type(given)
        lower = self.dtype in (_C.float16, _C.bfloat16)

        def cast(value: Any) -> Any:
            by_hand = not lower or isinstance(value, np.ndarray)  # in 16 bits the region's ops cast what they need
            return _to(value, self.dtype) if by_hand and _dtype(value) is not None and _device(value) == device else value

        given = _map(cast, given)
        owner = () if self.owner is None else (self.owner,)
        with autocast(device, dtype=self.dtype if lower else None, enabled=lower):
            return self.function(*owner, *given[0], **given[1])


def wrap(module_or_function: Any, dtype: _C.dtype | None, device_type: str | None = None) -> Any:
    """One module or function in a precision of its own, whatever region it is called in.

    float32 (and float64): autocast is off inside and floating inputs are cast to it. float16, bfloat16: an autocast region
    of that dtype. Regions around it and inside it go on as before::

        amp.wrap(model.head, torch.float32)      # the head in full precision, its neighbours in 16 bits
        loss_fn = amp.wrap(loss_fn, torch.float32)

    A module is changed in place and returned: its ``forward`` runs in the precision, names in ``state_dict`` stay, and it
    can be copied. Wrapping it again replaces the precision; ``dtype=None`` takes it away. A function is not changed: the
    result is a new one.

    Args:
        module_or_function: a Module, or a callable of Tensors or ndarrays (which are cast to `dtype`).
        dtype: a floating dtype, or None for a module.
        device_type: whose autocast; None: that of the first tensor given, else of the module's first parameter, else
            "cpu".

    Raises:
        TypeError: no module and no callable; no floating dtype.
        ValueError: another device type.
    """
    from ..nn import Module

    is_module = isinstance(module_or_function, Module)
    if not is_module and not callable(module_or_function):
        raise TypeError(f"wrap() takes a module or a function, not {type(module_or_function).__name__}")
    if is_module and dtype is None:
        if isinstance(vars(module_or_function).get("forward"), _InPrecision):
            del module_or_function.forward
        return module_or_function
    target = _check_float(dtype)
    device_type = _check_device(device_type)
    if is_module:
        before = vars(module_or_function).get("forward")
        owner = module_or_function
        if isinstance(before, _InPrecision):
            function, owner = before.function, before.owner
        elif before is not None:  # a forward of this instance alone is bound already
            function, owner = before, None
        else:
            function = type(module_or_function).forward
        module_or_function.forward = _InPrecision(function, owner, target, device_type)
        return module_or_function
    run = _InPrecision(module_or_function, None, target, device_type)

    @functools.wraps(module_or_function, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return run(*args, **kwargs)

    return wrapped
