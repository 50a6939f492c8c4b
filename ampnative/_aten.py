"""``ops.aten``: PyTorch's names of ops below the functions, with which policies of selective checkpointing name them."""

from __future__ import annotations

from typing import Any

from . import _C
from ._C import Tensor
from ._features import AbsentFeatureError

__all__ = ["OpOverload", "OpOverloadPacket", "op_called", "ops"]


class OpOverload:
    """Such as ``ops.aten.mm.default``. There is one object of each, so that they can be compared and stand in sets."""

    def __init__(self, packet: OpOverloadPacket, overload: str) -> None:
        self.overloadpacket, self._overloadname = packet, overload

    def name(self) -> str:
        """Such as "aten::mm", with the overload's name behind a dot if it is not the default one."""
        behind = "" if self._overloadname == "default" else f".{self._overloadname}"
        return f"aten::{self.overloadpacket.__name__}{behind}"

    def __str__(self) -> str:
        return f"aten.{self.overloadpacket.__name__}.{self._overloadname}"

    def __repr__(self) -> str:
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overloadpacket(*args, **kwargs)


class OpOverloadPacket:
    """Such as ``ops.aten.mm``: its attributes are the overloads."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __getattr__(self, overload: str) -> OpOverload:
        if overload.startswith("__"):
            raise AttributeError(f"'{self}' has no attribute '{overload}'")
        found = self.__dict__[overload] = OpOverload(self, overload)
        return found

    def __str__(self) -> str:
        return f"aten.{self.__name__}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        for module in (_C.functions, _C.nn):
            function = getattr(module, self.__name__, None)
            if function is not None:
                return function(*args, **kwargs)
        raise NotImplementedError(f"{self}: there is no function of this name here; the name may stand in policies")


class _Aten:
    def __getattr__(self, name: str) -> OpOverloadPacket:
        if name.startswith("__"):
            raise AttributeError(f"'ops.aten' has no attribute '{name}'")
        found = self.__dict__[name] = OpOverloadPacket(name)
        return found


class _Ops:
    def __init__(self) -> None:
        self.aten = _Aten()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"'ops' has no attribute '{name}'")
        raise AbsentFeatureError(
            f"ops.{name} is not available: an op of your own is an autograd.Function; amp.register_op gives it an autocast policy"
        )


ops = _Ops()

_NAMES = [row["name"] for row in _C.op_rows()]
_IDS = [row["id"] for row in _C.op_rows()]
# Rows whose names in PyTorch are others.
_OTHERS = {
    "add": "add.Tensor", "sub": "sub.Tensor", "mul": "mul.Tensor", "div": "div.Tensor", "pow": "pow.Tensor_Scalar",
    "softmax": "_softmax.default", "log_softmax": "_log_softmax.default", "sum_dim": "sum.dim_IntList", "mean_dim": "mean.dim",
    "prod_dim": "prod.dim_int", "max_dim": "max.dim", "min_dim": "min.dim", "norm_channels": "native_batch_norm.default",
    "norm_groups": "native_layer_norm.default", "index": "index.Tensor", "where": "where.self", "prelu_kernel": "_prelu_kernel.default",
}  # fmt: skip


def op_called(row: int, args: tuple[Any, ...], in_place: bool = False) -> tuple[OpOverload, tuple[Any, ...]]:
    """What PyTorch calls the op of a row, and its arguments in PyTorch's order."""
    given = list(args)
    while given and given[-1] is None:
        given.pop()
    kind = _IDS[row]
    if kind == "linear":
        input, weight, bias = args[:3]
        product = (input, weight.mT)
        return (ops.aten.mm.default, product) if bias is None else (ops.aten.addmm.default, (bias, *product))
    if kind == "attention":
        return getattr(ops.aten, _attention(args[0])).default, tuple(given)
    name, _, overload = (_OTHERS.get(kind) or _NAMES[row]).partition(".")
    return getattr(getattr(ops.aten, name + "_" * in_place), overload or "default"), tuple(given)


def _attention(query: Tensor) -> str:
    if query.device.type != "cuda":
        return "_scaled_dot_product_flash_attention_for_cpu"
    return f"_scaled_dot_product_{'efficient' if query.dtype == _C.float32 else 'flash'}_attention"
