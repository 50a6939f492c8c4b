"""Small functions and methods that scripts meet now and then: questions, older names, in-place functions, constants."""

from __future__ import annotations

import builtins
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import _C
from ._C import Tensor
from ._function_names import Names, with_out
from ._ops._matrix import array, recording, tensor
from ._ops._matrix import frexp as _Pair
from ._ops._undifferentiable import Scaled

__all__: list[str] = []  # functions that nothing here or in _functions.py hides; the package imports the other names itself
_names = Names(__all__)

e, inf, nan, newaxis, pi = math.e, math.inf, math.nan, None, math.pi

# Functions of the package that write over their first argument: the methods of the same names.
_IN_PLACE = (
    "abs acos acosh addmv arccos arccosh arcsin arcsinh arctan arctanh asin asinh atan atanh ceil clamp clip cos cosh deg2rad "
    "detach erf erfc exp exp2 expm1 fill fix floor frac gcd i0 lcm ldexp log log10 log1p log2 logit nan_to_num neg negative rad2deg "
    "reciprocal relu round rsqrt sigmoid sin sinc sinh sqrt square tan tanh trunc xlogy zero clamp_max clamp_min conj_physical"
)


def _in_place(name: str) -> Callable[..., Tensor]:
    def function(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return getattr(input, name)(*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"The method {name} of ``input``, which it writes over and returns."
    return function


for _name in _IN_PLACE.split():
    globals()[f"{_name}_"] = _names.function(_in_place(f"{_name}_"))


# ---- questions ----


@_names.both
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not zero. RuntimeError unless there is one."""
    return bool(input)


@_names.both
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


@_names.both
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are equal."""
    return input.shape == other.shape


@_names.both
def is_conj(input: Tensor) -> bool:
    """Always False: results are computed at once, nothing is left to be conjugated."""
    return False


@_names.both
def is_neg(input: Tensor) -> bool:
    """Always False: results are computed at once, nothing is left to be negated."""
    return False


@_names.both
def is_distributed(input: Tensor) -> bool:
    """Always False: there is one process."""
    return False


@_names.both
def resolve_conj(input: Tensor) -> Tensor:
    """The tensor itself: nothing is left to be conjugated."""
    return input


@_names.both
def resolve_neg(input: Tensor) -> Tensor:
    """The tensor itself: nothing is left to be negated."""
    return input


@_names.method
def is_shared(input: Tensor) -> bool:
    """Always False: memory belongs to this process."""
    return False


@_names.method
def to_dense(input: Tensor, dtype: Any = None, *, masked_grad: bool = True) -> Tensor:
    """The tensor itself, in ``dtype`` if given: all are dense."""
    return input if dtype is None else input.to(dtype)


@_names.method
def sparse_dim(input: Tensor) -> int:
    """Always 0: tensors are dense."""
    return 0


@_names.method
def dense_dim(input: Tensor) -> int:
    """The number of dimensions."""
    return input.dim()


for _name in ("is_ipu", "is_mkldnn", "is_mps", "is_mtia", "is_nested", "is_sparse_csr", "is_vulkan", "is_xla", "is_xpu"):
    setattr(Tensor, _name, property(lambda self: False, doc="Always False: tensors are strided, on cpu or cuda."))


@_names.function
def get_device(input: Tensor) -> int:
    """The number of the tensor's device, -1 on the CPU."""
    return -1 if input.device.type == "cpu" else input.device.index or 0


@_names.function
def typename(obj: Any) -> str:
    """The name of a tensor's type with its dtype, or of an object's or a class's type with its module."""
    if isinstance(obj, Tensor):
        return obj.type()
    kind = obj if isinstance(obj, type) else type(obj)
    return f"{kind.__module__}.{kind.__qualname__}"


@_names.function
def get_device_module(device: Any = None) -> Any:
    """``ampnative.cpu`` or ``ampnative.cuda``."""
    import ampnative

    kind = "cpu" if device is None else _C.device(device).type
    return getattr(ampnative, kind)


@_names.function
def compiled_with_cxx11_abi() -> bool:
    """Always True."""
    return True


@_names.function
def set_flush_denormal(mode: bool) -> bool:
    """False: denormal numbers are kept, the mode cannot be changed."""
    return False


@_names.function
def set_default_tensor_type(t: Any) -> None:
    """The dtype of a type such as ``FloatTensor``, or of its name, becomes the default dtype. Use ``set_default_dtype``."""
    import ampnative

    if isinstance(t, str):
        t = getattr(ampnative, t.rpartition(".")[2])
    _C.set_default_dtype(getattr(t, "dtype", t))


# ---- values ----


@_names.with_in_place
def clamp_max(input: Tensor, max: Any) -> Tensor:
    """No element above ``max``, a number or a tensor."""
    return input.clamp(max=max)


@_names.with_in_place
def clamp_min(input: Tensor, min: Any) -> Tensor:
    """No element below ``min``, a number or a tensor."""
    return input.clamp(min=min)


@_names.function
def fill(input: Tensor, value: Any) -> Tensor:
    """A tensor of the same shape and dtype, every element ``value``."""
    return _C.functions.zeros_like(input).fill_(value)


@_names.both
def ger(input: Tensor, vec2: Tensor) -> Tensor:
    """Older name of ``outer``."""
    return input.outer(vec2)


@_names.with_in_place
def conj_physical(input: Tensor) -> Tensor:
    """Complex conjugates, a new tensor; a real tensor is its own."""
    return input.conj()


@_names.function
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Tensor:
    """A tensor of no dimensions, of the default dtype unless another is given."""
    return _C.functions.full((), s, dtype=_C.get_default_dtype() if dtype is None else dtype, device=device).requires_grad_(requires_grad)


def range(start: float = 0, end: float | None = None, step: float = 1, *, dtype: Any = None, device: Any = None) -> Tensor:
    """``start``, ``start + step``, ... up to ``end``, which belongs to it. Deprecated: use ``arange``, which leaves the end out."""
    warnings.warn("torch.range is deprecated: use torch.arange, whose values do not include the end", UserWarning, stacklevel=2)
    if end is None:
        start, end = 0, start
    count = math.floor((end - start) / step) + 1
    steps = _C.functions.arange(count, dtype=_C.float64, device="cpu" if device is None else device)
    return (start + steps * step).to(_C.get_default_dtype() if dtype is None else dtype)


@_names.function
def randint_like(
    input: Tensor, low: int, high: int | None = None, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """Integers from ``low`` (0 if it is the only bound) to below ``high``, in the shape, dtype and on the device of ``input``."""
    first, last = (0, low) if high is None else (low, high)
    kind = input.dtype if dtype is None else dtype
    place = input.device if device is None else device
    return _C.functions.randint(first, last, tuple(input.shape), dtype=kind, device=place).requires_grad_(requires_grad)


_MANTISSA = {_C.float16: 11, _C.bfloat16: 8, _C.float32: 24, _C.float64: 53}


@_names.method
def random_(input: Tensor, low: int | None = None, high: int | None = None, *, generator: Any = None) -> Tensor:
    """Integers from ``low`` (0 if it is the only bound) to below ``high``; without bounds all that the dtype holds, floating ones
    exactly. RuntimeError unless the first is below the second."""
    first, last = (low or 0, high) if high is not None else (0, low)
    if last is None:
        if input.dtype == _C.int64:  # 2^63 itself is no int64
            drawn = _C.functions.randint(-(2**62), 2**62, tuple(input.shape), generator=generator, device="cpu") + 2**62
            return input.copy_(drawn)
        if input.dtype in _MANTISSA:
            last = 2 ** _MANTISSA[input.dtype] + 1
        else:
            last = 2 if input.dtype == _C.bool else int(_C.iinfo(input.dtype).max) + 1
    if first >= last:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={first} >= to={last}")
    return input.copy_(_C.functions.randint(first, last, tuple(input.shape), dtype=input.dtype, generator=generator, device="cpu"))


@_names.method
def where(input: Tensor, condition: Tensor, other: Any) -> Tensor:
    """``input`` where ``condition``, a bool tensor, is True, elsewhere ``other``, a tensor or a number; shapes broadcast."""
    return _C.functions.where(condition, input, other)


@_names.method
def log_normal_(input: Tensor, mean: float = 1.0, std: float = 2.0, *, generator: Any = None) -> Tensor:
    """Draws whose logarithms are normal with this mean and deviation."""
    flat = _C.functions.empty(input.numel(), dtype=input.dtype, device="cpu")
    for part in flat.split(8):  # short ones are drawn one by one, as PyTorch does here for all
        part.normal_(mean, std, generator=generator)
    return input.copy_(flat.exp_().reshape(input.shape))


@_names.both
@with_out(apart=True)
def frexp(input: Tensor, *, out: Any = None) -> Any:
    """(mantissa, exponent): input = mantissa * 2^exponent, the mantissa in [0.5, 1), the exponent int32. ``out``: two
    tensors of these dtypes, RuntimeError for others."""
    wide = input.float() if input.dtype in (_C.float16, _C.bfloat16) else input
    if not wide.is_floating_point():
        raise RuntimeError(f"torch.frexp() only supports floating-point dtypes, got {input.dtype}")
    mantissa, exponent = np.frexp(array(wide))
    powers = tensor(np.asarray(exponent, np.int32), input)
    result = tensor(mantissa, input).to(input.dtype)
    if recording(input):
        result = Scaled.apply(input, result, 2.0 ** -powers.to(input.dtype))
    return _Pair(result, powers)


@_names.function
def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """The coordinates, one tensor per dimension of ``shape``, of positions in the flattened tensor. ValueError unless they are integers."""
    if indices.is_floating_point() or indices.is_complex() or indices.dtype == _C.bool:
        raise ValueError(f"expected indices to be integer dtype, but got {indices.dtype}")
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    found = []
    for size in reversed(sizes):
        found.append(indices % size)
        indices = _C.functions.floor_divide(indices, size)
    return tuple(reversed(found))


@_names.both
def nonzero_static(input: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
    """As ``nonzero``, with exactly ``size`` rows: cut off, or filled up with ``fill_value``."""
    found = input.nonzero()[:size]
    return _C.functions.cat([found, found.new_full((size - found.size(0), found.size(1)), fill_value)])


@_names.method
def sum_to_size(input: Tensor, *size: Any) -> Tensor:
    """The sums over the dimensions that broadcasting from ``size`` to the tensor's shape would make. RuntimeError if it does not."""
    sizes = list(size[0]) if len(size) == 1 and not isinstance(size[0], int) else list(size)
    extra = input.dim() - len(sizes)
    if extra < 0 or any(want not in (1, have) for want, have in zip(sizes, input.shape[extra:], strict=True)):
        raise RuntimeError(f"size {{{sizes}}} is not expandable to size {{{list(input.shape)}}}.")
    input = input.sum(list(builtins.range(extra))) if extra else input
    dims = [d for d, (want, have) in enumerate(zip(sizes, input.shape, strict=True)) if want != have]
    return input.sum(dims, keepdim=True) if dims else input


@_names.method
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element becomes ``callable`` of it, a Python number: slow."""
    values = [callable(value) for value in input.detach().reshape(-1).tolist()]
    return input.copy_(_C.tensor(values, dtype=input.dtype, device="cpu").reshape(input.shape))


@_names.method
def map_(input: Tensor, tensor: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element becomes ``callable`` of it and the one of ``tensor``, Python numbers: slow."""
    pairs = zip(input.detach().reshape(-1).tolist(), tensor.detach().expand(input.shape).reshape(-1).tolist(), strict=True)
    return input.copy_(_C.tensor([callable(a, b) for a, b in pairs], dtype=input.dtype, device="cpu").reshape(input.shape))


@_names.method
def new(input: Tensor, *args: Any) -> Tensor:
    """Of sizes: uninitialised; of data: a copy; in the dtype and on the device of ``input``. Use ``new_empty`` or ``new_tensor``."""
    if not args or isinstance(args[0], (int, _C.Size)):
        return input.new_empty(tuple(args[0]) if args and isinstance(args[0], _C.Size) else args or (0,))
    return _C.tensor(args[0], dtype=input.dtype, device=input.device)


@_names.method
def as_subclass(input: Tensor, cls: type) -> Any:
    """The tensor as an instance of a subclass of Tensor, with the same memory."""
    made: Any = Tensor._make_subclass(cls, input.detach(), input.requires_grad)
    return made


@_names.method
def dim_order(input: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the longest step in memory to the shortest."""
    steps = input.stride()
    return tuple(sorted(builtins.range(input.dim()), key=lambda d: -steps[d]))


@_names.method
def const_data_ptr(input: Tensor) -> int:
    """The address of the first element."""
    return input.data_ptr()


@_names.method
def cfloat(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor as complex64."""
    return input.to(_C.complex64)


@_names.method
def cdouble(input: Tensor, memory_format: Any = None) -> Tensor:
    """The tensor as complex128."""
    return input.to(_C.complex128)


@_names.both
def unsafe_chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As ``chunk``."""
    return input.chunk(chunks, dim)


@_names.both
def unsafe_split(tensor: Tensor, split_size: int, dim: int = 0) -> tuple[Tensor, ...]:
    """As ``split``."""
    return tensor.split(split_size, dim)


@_names.both
def unsafe_split_with_sizes(input: Tensor, split_sizes: Sequence[int], dim: int = 0) -> tuple[Tensor, ...]:
    """As ``split``."""
    return input.split(split_sizes, dim)
