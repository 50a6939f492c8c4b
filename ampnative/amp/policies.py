"""Autocast's op policies as questions: which policy an op has, and what an op would run in and return."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

from .. import _C
from .._absent import absent_op

__all__ = ["op_policy", "ops", "result_dtype"]

POLICIES = ("lower", "fp32", "set_opt", "append", "promote", "banned", "none")

_PREFIXES = ("torch.", "ampnative.", "aten::", "nn.functional.", "functional.", "Tensor.")
# PyTorch's other spellings of what the lists name.
_SPELLINGS = {
    "grid_sample": "grid_sampler", "arccos": "acos", "arcsin": "asin", "arctan2": "atan2", "concat": "cat", "concatenate": "cat",
    "divide": "div", "multiply": "mul", "subtract": "sub", "__matmul__": "matmul", "__rmatmul__": "matmul", "__pow__": "pow",
    "__rpow__": "pow", "__rtruediv__": "reciprocal", "__rdiv__": "reciprocal", "multi_dot": "linalg_multi_dot",
}  # fmt: skip


def _device_type(device_type: str) -> str:
    if not isinstance(device_type, str):
        raise TypeError(f"device_type must be a str, not {type(device_type).__name__}")
    if device_type.partition(":")[0] not in ("cpu", "cuda"):
        raise ValueError(f"op policies are known for 'cpu' and 'cuda', not for {device_type!r}")
    return device_type.partition(":")[0]


def _plain(op: str | Callable[..., Any]) -> str:
    """An op's name in the lists' spelling: "linalg_svd" for torch.linalg.svd."""
    name = op if isinstance(op, str) else getattr(op, "__name__", None)
    if not isinstance(name, str):
        raise TypeError(f"an op is given by its name or its function, not by a {type(op).__name__}")
    for prefix in _PREFIXES:
        name = name.removeprefix(prefix)
    for namespace in ("linalg", "fft"):
        if name.startswith(namespace + "."):
            name = f"{namespace}_{name[len(namespace) + 1 :]}"
    return _SPELLINGS.get(name, name)


def _rows(name: str) -> list[dict[str, Any]]:
    """The rows of the op table for a name or an entry such as "sum.dim_IntList"."""
    ids = [e["row"] for e in _C._policy_entries() if name in (e["entry"], e["entry"].partition(".")[0]) and e["row"]]
    exact = "." in name
    return [r for r in _C.op_rows() if r["id"] in ids or (r["name"] == name and not exact)]


def _exists(name: str) -> bool:
    import ampnative

    space, _, rest = name.partition("_")
    if space in ("linalg", "fft") and callable(vars(getattr(ampnative, space)).get(rest)):
        return True
    return any(callable(vars(owner).get(name)) for owner in (ampnative, ampnative.nn.functional, _C.Tensor))


def _unknown(name: str) -> ValueError:
    names = {e["entry"].partition(".")[0] for e in _C._policy_entries()} | {r["name"] for r in _C.op_rows()}
    close = difflib.get_close_matches(name, names, 1)
    return ValueError(f"no op is called {name!r}" + (f": do you mean {close[0]!r}?" if close else ""))


def ops(device_type: str) -> dict[str, str]:
    """What autocast's lists for a device hold: PyTorch's entry (name, or name.overload) -> policy, ordered by policy.

    The lists are PyTorch 2.15's, with ops that ampnative does not have yet. All other ops follow their inputs.

    Args:
        device_type: "cpu" or "cuda".

    Raises:
        ValueError: another device type.
    """
    device = _device_type(device_type)
    listed = {e["entry"]: e[device] for e in _C._policy_entries() if e[device] != "none"}
    return dict(sorted(listed.items(), key=lambda item: (POLICIES.index(item[1]), item[0])))


def op_policy(name: str | Callable[..., Any], device_type: str) -> str:
    """What autocast on a device does to an op: "lower", "fp32", "set_opt", "append", "promote", "banned" or "none".

    ======= ==========================================================================================================
    lower   floating arguments are cast to the region's dtype
    fp32    they are cast to float32
    set_opt the op is asked to return float32, its arguments stay
    append  likewise, by an overload that takes the result's dtype
    promote they are cast to float32 if one of them is float32, else to the region's dtype
    banned  the op raises
    none    the op follows its inputs; it may reach an op that does not
    ======= ==========================================================================================================

    float64 arguments are never cast. In-place forms (``add_``) follow their inputs.

    Args:
        name: the op, as PyTorch's lists name it ("pow.Tensor_Scalar") or as users do ("pow", "linalg.svd",
            "nn.functional.conv2d"), or its function, also one of :func:`register_op`. Listed ops that ampnative does not
            have yet are answered too.
        device_type: "cpu" or "cuda".

    Raises:
        ValueError: no such op; another device type.
    """
    device = _device_type(device_type)
    registered = getattr(name, "__amp_policies__", None)
    if registered is not None:
        return registered[device]
    plain = _plain(name)
    if plain.endswith("_") and not plain.startswith("__") and _exists(plain):
        return "none"
    entries = _C._policy_entries()
    for match in (plain, None):
        found = {e[device] for e in entries if (e["entry"] if match else e["entry"].partition(".")[0]) == plain}
        listed = found - {"none"}
        if listed:
            return listed.pop()
        if found:
            return "none"
    rows = _rows(plain)
    if rows:
        policies: list[str] = [r[device] for r in rows if r[device] != "none"]
        return policies[0] if policies else "none"
    if _exists(plain):
        return "none"
    raise _unknown(plain)


def _default_device(values: tuple[Any, ...]) -> str:
    for value in values:
        if isinstance(value, _C.Tensor) and value.device.type in ("cpu", "cuda"):
            return value.device.type
    return "cuda" if _C.is_autocast_enabled("cuda") else "cpu"


def result_dtype(op: str | Callable[..., Any], *dtypes: Any, device_type: str | None = None) -> _C.dtype:
    """The dtype that an op would return on tensors of these dtypes in this thread's current autocast state.

    It is worked out from the op's policy and dtype rule; nothing runs. Tensors count as having dimensions, other
    arguments as left at their defaults, and masks, indices and class numbers as being of the dtype that the op takes. Of
    several results it is the first one's. For ops with policy "lower", "fp32" or "promote" it is also the dtype in which
    the op runs::

        with amp.autocast("cuda"):
            amp.result_dtype("matmul", torch.float32, torch.float32)  # float16

    Args:
        op: name or function, see :func:`op_policy`; not one of :func:`register_op`, whose result is its own business.
        dtypes: one per tensor argument, in order; a tensor stands for its dtype.
        device_type: "cpu" or "cuda"; None: that of the first tensor among `dtypes`, else "cuda" where autocast is on for
            it, else "cpu".

    Raises:
        RuntimeError: the op would refuse these dtypes, or autocast would.
        NotImplementedError: the op is not there yet.
        ValueError: no such op; another device type.
        TypeError: the op does not take that many tensors.
    """
    device = _default_device(dtypes) if device_type is None else _device_type(device_type)
    if hasattr(op, "__amp_policies__"):
        raise TypeError(f"{getattr(op, '__name__', op)} is an own function: op_policy() knows its policy, but not what it returns")
    given = tuple(d.dtype if isinstance(d, _C.Tensor) else d for d in dtypes)
    name = _plain(op)
    inplace = name.endswith("_") and not name.startswith("__")
    rows = [r for r in _rows(name.removesuffix("_")) if r["variants"] & 4] if inplace else _rows(name)
    if not rows:
        absent = absent_op(name.partition(".")[0], name)
        raise absent if absent is not None else _unknown(name)
    if not given:
        raise TypeError(f"{name} was asked about without a tensor: give one dtype per tensor argument")
    if inplace:
        return _inplace_dtype(name, rows, given, device)
    for row in rows:
        answer = _C._result_dtype(row["id"], given, device)
        if answer is not None:
            return answer
    raise TypeError(f"{name} does not take {len(given)} tensors")


def _inplace_dtype(name: str, rows: list[dict[str, Any]], given: tuple[Any, ...], device: str) -> _C.dtype:
    on = _C.is_autocast_enabled(device)
    _C.set_autocast_enabled(device, False)  # autocast does not touch in-place forms
    try:
        for row in rows:
            computed = _C._result_dtype(row["id"], given, device)
            if computed is not None:
                break
        else:
            raise TypeError(f"{name} does not take {len(given)} tensors")
    finally:
        _C.set_autocast_enabled(device, on)
    if not _C.can_cast(computed, given[0]):
        raise RuntimeError(f"{name}: result type {computed} can't be cast to the desired output type {given[0]}")
    return given[0]
