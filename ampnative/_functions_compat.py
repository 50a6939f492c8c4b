"""Names that scripts mention and that change nothing here: memory formats, pinned memory, constructors by type."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from . import _C
from ._C import Tensor
from ._function_names import Names

_names = Names([])


class memory_format:
    """How the dimensions of a tensor may lie in memory. Accepted wherever PyTorch takes one; results are contiguous."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"ampnative.{self._name}"

    def __reduce__(self) -> str:
        return self._name


class layout(memory_format):
    """How a tensor stores its elements: ``strided``, the only one."""


contiguous_format, preserve_format = memory_format("contiguous_format"), memory_format("preserve_format")
channels_last, channels_last_3d = memory_format("channels_last"), memory_format("channels_last_3d")
strided = layout("strided")


def _layout(self: Tensor) -> layout:
    """Always ``strided``."""
    return strided


setattr(Tensor, "layout", property(_layout))  # noqa: B010  the stub has it as a property


@_names.method
def pin_memory(input: Tensor, device: Any = None) -> Tensor:
    """The tensor itself: there is no page-locked memory."""
    return input


@_names.method
def is_pinned(input: Tensor, device: Any = None) -> bool:
    """Always False."""
    return False


@_names.method
def share_memory_(input: Tensor) -> Tensor:
    """The tensor itself. RuntimeError: processes share no memory here; DataLoader workers and queues send copies."""
    raise RuntimeError("share_memory_(): processes share no memory here; send the tensor through a queue, which copies it")


@_names.method
def record_stream(input: Tensor, stream: Any) -> None:
    """Nothing: there is one stream."""


@_names.method
def new_tensor(input: Tensor, data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A copy of ``data`` in the dtype and on the device of ``input``, unless others are given."""
    made = _C.tensor(data, dtype=input.dtype if dtype is None else dtype, device=input.device if device is None else device)
    return made.requires_grad_(requires_grad)


@_names.method
def fill_diagonal_(input: Tensor, fill_value: float, wrap: bool = False) -> Tensor:
    """Writes ``fill_value`` to the main diagonal: of a matrix, with ``wrap`` once more below every square of a tall one; or of a
    cube of any number of dimensions. RuntimeError below two dimensions or for unequal sizes of more than two."""
    n = input.dim()
    if n < 2:
        raise RuntimeError(f"dimensions must larger than 1: fill_diagonal_ takes matrices and cubes, not {n} dimension(s)")
    if n > 2 and len(set(input.shape)) > 1:
        raise RuntimeError(f"all dimensions of input must be of equal length, but they are {list(input.shape)}")
    steps = min(input.shape)
    step = sum(input.stride())
    input.as_strided((steps,), (step,), input.storage_offset()).fill_(fill_value)
    rows, columns = input.shape[0], input.shape[-1]
    if wrap and n == 2 and rows > columns + 1:
        for start in range(columns + 1, rows, columns + 1):
            fill_diagonal_(input[start:], fill_value)
    return input


class _TypeOf(type):
    """``isinstance(t, torch.FloatTensor)`` asks for the dtype and the device."""

    dtype: Any
    place: str

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, Tensor) and value.dtype is cls.dtype and value.device.type == cls.place


def _constructor(name: str, dtype: Any, place: str) -> Any:
    def new(cls: type, *args: Any) -> Tensor:
        """Of a sequence or array: its copy; of sizes: uninitialised."""
        if len(args) == 1 and not isinstance(args[0], int):
            data = args[0] if isinstance(args[0], Tensor) else _C.tensor(args[0], dtype=dtype, device=place)
            return data.to(_C.device(place), dtype)
        sizes: Sequence[int] = args
        return _C.functions.empty(tuple(sizes), dtype=dtype, device=place)

    doc = f"PyTorch's older constructor of {dtype} tensors: of data, or of sizes (uninitialised). Use ``tensor`` or ``empty``."
    module = "ampnative" if place == "cpu" else "ampnative.cuda"
    return _TypeOf(name, (), {"__new__": new, "__doc__": doc, "dtype": dtype, "place": place, "__module__": module})


_KINDS = {
    "Float": _C.float32, "Double": _C.float64, "Half": _C.float16, "BFloat16": _C.bfloat16, "Long": _C.int64, "Int": _C.int32,
    "Short": _C.int16, "Char": _C.int8, "Byte": _C.uint8, "Bool": _C.bool, "ComplexFloat": _C.complex64,
    "ComplexDouble": _C.complex128,
}  # fmt: skip
_types = {
    (f"{kind}Tensor", place): _constructor(f"{kind}Tensor", dtype, place) for kind, dtype in _KINDS.items() for place in ("cpu", "cuda")
}
(FloatTensor, DoubleTensor, HalfTensor, BFloat16Tensor, LongTensor, IntTensor, ShortTensor, CharTensor, ByteTensor, BoolTensor) = (
    _types[f"{kind}Tensor", "cpu"] for kind in list(_KINDS)[:10]
)
for (_name, _place), _kind in _types.items():
    if _place == "cuda" and not _name.startswith("Complex"):
        setattr(sys.modules["ampnative.cuda"], _name, _kind)

_native_type = Tensor.type


def _type(self: Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Without a dtype PyTorch's name of the type, such as "torch.FloatTensor" or "torch.cuda.HalfTensor". With one, a conversion:
    a dtype, such a name, or the class of that name. ValueError for a name that is none."""
    if dtype is None:
        names = [name for (name, place), t in _types.items() if t.dtype is self.dtype and place == self.device.type]
        if not names:
            return _native_type(self)
        return f"torch.{'cuda.' if self.device.type == 'cuda' else ''}{names[0]}"
    if isinstance(dtype, str):
        path, _, name = dtype.rpartition(".")
        key = name, "cuda" if path.endswith("cuda") else "cpu"
        if key not in _types:
            raise ValueError(f"invalid type: '{dtype}'")
        dtype = _types[key]
    if isinstance(dtype, _TypeOf):
        return self.to(_C.device(dtype.place), dtype.dtype)
    if isinstance(dtype, type):
        raise ValueError(f"invalid type: '{dtype.__name__}': give a dtype")
    return _native_type(self, dtype)


_names.method(_type, "type")
