"""How what is saved becomes nodes of JSON and arrays, and how it is made of them again."""

from __future__ import annotations

import binascii
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from . import _C
from .nn.parameter import Parameter, is_lazy

__all__ = ["ARRAY_KINDS", "INDEX", "STORED_AS", "Bad", "Decoder", "Encoder", "Misplaced", "numpy_dtype"]

INDEX = "index.json"  # the member that holds the tree, and the name that no array may have
_MAX_DEPTH = 200

# dtypes that .npy cannot name: what they are stored as
STORED_AS = {"bfloat16": "uint16", "float8_e5m2": "uint8", "float8_e4m3fn": "uint8"}
ARRAY_KINDS = "biufcSUMm"

# what a defaultdict may make its values with: names of types, since a file holds no code
_FACTORIES = {kind.__name__: kind for kind in (bool, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)}


class Bad(Exception):
    """What is wrong with a file; becomes a RuntimeError with the file's name."""


class Misplaced(Exception):
    """A tensor could not be put where map_location says: the error that says why, which is not the file's fault."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


# ---- objects to nodes ------------------------------------------------------------------------------------------------

# A node is None, a bool, an int, a finite float, a str, a list of nodes, or an object with one telling key:
#   dict odict counter [[key, value], ...]   defaultdict [name of the factory or null, [[key, value], ...]]
#   tuple set frozenset size [...]   float "inf" "-inf" "nan"   complex [re, im]   bytes bytearray base64
#   dtype name   device name   scalar [NumPy dtype, node]
#   array member   tensor {"member", "device", "requires_grad", "object"[, "parameter"]}; equal "object" numbers mean the same object


class Encoder:
    """Makes nodes of objects, and collects the arrays in them."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self.members: dict[str, list[Any]] = {}
        self._by_memory: dict[tuple[Any, ...], str] = {}
        self._objects: dict[int, int] = {}
        self._keep: list[Any] = []  # ids stay unique while the encoder lives
        self._open: set[int] = set()
        self.metadata: dict[str, Any] = {}
        self._odicts = 0

    def node(self, value: Any, path: tuple[str, ...]) -> Any:
        """The node of `value`, which stands at `path`; TypeError or ValueError if it cannot be saved."""
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, _C.Tensor):
            return self._tensor(value, path)
        if isinstance(value, np.ndarray):
            return {"array": self._member(path, value, _array_name(value, path))}
        if kind in (dict, OrderedDict, Counter, defaultdict, list, tuple, set, frozenset, _C.Size):
            return self._container(value, kind, path)
        if kind is complex:
            return {"complex": [self.node(value.real, path), self.node(value.imag, path)]}
        if kind in (bytes, bytearray):
            return {kind.__name__: binascii.b2a_base64(value, newline=False).decode("ascii")}
        if isinstance(value, np.generic):
            return self._scalar(value, path)
        if isinstance(value, _C.dtype):
            return {"dtype": _dtype_name(value)}
        if isinstance(value, _C.device):
            return {"device": str(value)}
        raise TypeError(f"cannot save {_where(path)} of type {kind.__module__}.{kind.__qualname__}{_cure(value)}")

    def _container(self, value: Any, kind: type, path: tuple[str, ...]) -> Any:
        if id(value) in self._open:
            raise ValueError(f"cannot save {_where(path)}: it contains itself")
        if len(path) > _MAX_DEPTH:
            raise ValueError(f"cannot save: nested deeper than {_MAX_DEPTH} levels")
        self._open.add(id(value))
        try:
            if kind is dict:
                return {"dict": self._pairs(value, path)}
            if kind is Counter:
                return {"counter": self._pairs(value, path)}
            if kind is defaultdict:
                return {"defaultdict": [_factory_name(value.default_factory, path), self._pairs(value, path)]}
            if kind is OrderedDict:
                number, metadata = str(self._odicts), getattr(value, "_metadata", None)
                self._odicts += 1
                pairs = self._pairs(value, path)
                if metadata is not None:
                    self.metadata[number] = self.node(metadata, (*path, "_metadata"))
                return {"odict": pairs}
            nodes = [self.node(item, (*path, str(index))) for index, item in enumerate(value)]
        finally:
            self._open.discard(id(value))
        return nodes if kind is list else {"size" if kind is _C.Size else kind.__name__: nodes}

    def _pairs(self, value: Mapping[Any, Any], path: tuple[str, ...]) -> list[list[Any]]:
        return [[self._key(key, path), self.node(item, (*path, _name_part(key)))] for key, item in value.items()]

    def _key(self, key: Any, path: tuple[str, ...]) -> Any:
        if isinstance(key, (_C.Tensor, np.ndarray)):
            raise TypeError(f"cannot save {_where(path)}: a {type(key).__name__} as dictionary key")
        return self.node(key, path)

    def _scalar(self, value: np.generic, path: tuple[str, ...]) -> Any:
        name = value.dtype.name
        if value.dtype.kind in "biufc" or name in STORED_AS:
            return {"scalar": [name, self.node(value.item() if value.dtype.kind in "biufc" else float(value), path)]}
        return {"scalar_array": self._member(path, np.asarray(value), _array_name(np.asarray(value), path))}

    def _tensor(self, tensor: Any, path: tuple[str, ...]) -> Any:
        if tensor.device.type == "meta":
            raise TypeError(f"cannot save {_where(path)}: a tensor on device meta has no data")
        number = self._objects.setdefault(id(tensor), len(self._objects))
        self._keep.append(tensor)
        memory = (str(tensor.device), tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        shared = tensor.numel() > 0
        member = self._by_memory.get(memory) if shared else None
        if member is None:
            array = tensor.detach().cpu().numpy()
            member = self._member(path, array, _dtype_name(tensor.dtype))
            if shared:
                self._by_memory[memory] = member
        node = {"member": member, "device": str(tensor.device), "requires_grad": bool(tensor.requires_grad), "object": number}
        if isinstance(tensor, Parameter) and not is_lazy(tensor):
            node["parameter"] = True  # files without it, of earlier versions, have plain tensors
        return {"tensor": node}

    def _member(self, path: tuple[str, ...], array: np.ndarray, dtype: str) -> str:
        name = base = "/".join(path) or "data"
        count = 1
        while name in self.arrays or name + ".npy" == INDEX:
            count += 1
            name = f"{base}~{count}"
        if dtype in STORED_AS:
            array = (
                array.view(STORED_AS[dtype]) if array.ndim else array.reshape(1).view(STORED_AS[dtype]).reshape(())
            )
        self.arrays[name] = array
        self.members[name] = [dtype, list(array.shape)]
        return name


def _dtype_name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


def _factory_name(factory: Any, path: tuple[str, ...]) -> str | None:
    if factory is None:
        return None
    name = getattr(factory, "__name__", "")
    if _FACTORIES.get(name) is not factory:
        raise TypeError(
            f"cannot save {_where(path)}: a defaultdict that makes its values with {factory!r}. It can be one of "
            f"{', '.join(_FACTORIES)} or None; else convert it with dict(...)"
        )
    return name


def _array_name(array: np.ndarray, path: tuple[str, ...]) -> str:
    if array.dtype.name in STORED_AS:
        return array.dtype.name
    if array.dtype.kind not in ARRAY_KINDS:
        raise TypeError(
            f"cannot save {_where(path)}: an array of dtype {array.dtype}. Arrays of numbers, bools, strings and "
            "dates can be saved"
        )
    return array.dtype.str


def _where(path: tuple[str, ...]) -> str:
    return "".join(f"[{part!r}]" for part in path) or "an object"


def _cure(value: Any) -> str:
    if callable(getattr(value, "state_dict", None)):
        return ": save its .state_dict()"
    if isinstance(value, Mapping):
        return ": convert it with dict(...)"
    if getattr(value, "__dict__", None) and not callable(value) and not isinstance(value, ModuleType):  # argparse.Namespace, say
        return ": convert it with vars(...)"
    return ". Tensors, arrays, numbers, strings, bytes, None, and dicts, lists, tuples and sets of them can be saved"


def _name_part(key: Any) -> str:
    """One part of a member's name: no separator, no part that a file system would take for a folder."""
    text = key if type(key) is str else repr(key)
    safe = "".join(c if c.isprintable() and c not in "/\\:%" else f"%{ord(c):02X}" for c in text[:100])
    return safe.replace("..", "%2E.") or "%"


class Decoder:
    """Makes objects of nodes and of the arrays that were read."""

    def __init__(
        self, arrays: dict[str, np.ndarray], members: dict[str, Any], place: Callable[[Any, str], Any], metadata: dict[str, Any]
    ) -> None:
        self._arrays, self._members, self._place, self._metadata = arrays, members, place, metadata
        self._odicts = 0
        self._objects: dict[int, Any] = {}
        self._shared: dict[tuple[str, str], Any] = {}
        self._taken: set[str] = set()

    def node(self, node: Any) -> Any:
        """The object that a node stands for; Bad if it stands for none."""
        if node is None or isinstance(node, (bool, int, float, str)):
            return node
        try:
            if isinstance(node, list):
                return [self.node(item) for item in node]
            ((kind, value),) = node.items()
            return getattr(self, f"_read_{kind}")(value)
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise Bad(f"its index has a bad entry ({str(error)[:80]})") from error

    def _read_dict(self, pairs: Any) -> dict[Any, Any]:
        return {self.node(key): self.node(value) for key, value in pairs}

    def _read_counter(self, pairs: Any) -> Counter[Any]:
        return Counter(self._read_dict(pairs))

    def _read_defaultdict(self, node: Any) -> defaultdict[Any, Any]:
        name, pairs = node
        return defaultdict(None if name is None else _FACTORIES[name], self._read_dict(pairs))

    def _read_odict(self, pairs: Any) -> OrderedDict[Any, Any]:
        number = str(self._odicts)
        self._odicts += 1
        result = OrderedDict((self.node(key), self.node(value)) for key, value in pairs)
        if number in self._metadata:
            result._metadata = self.node(self._metadata[number])  # type: ignore[attr-defined]
        return result

    def _read_tuple(self, nodes: Any) -> tuple[Any, ...]:
        return tuple(self.node(item) for item in nodes)

    def _read_set(self, nodes: Any) -> set[Any]:
        return {self.node(item) for item in nodes}

    def _read_frozenset(self, nodes: Any) -> frozenset[Any]:
        return frozenset(self.node(item) for item in nodes)

    def _read_size(self, nodes: Any) -> Any:
        return _C.Size([self.node(item) for item in nodes])

    def _read_float(self, text: str) -> float:
        return {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}[text]

    def _read_complex(self, parts: Any) -> complex:
        real, imaginary = parts
        return complex(self.node(real), self.node(imaginary))

    def _read_bytes(self, text: str) -> bytes:
        return binascii.a2b_base64(text.encode("ascii"), strict_mode=True)

    def _read_bytearray(self, text: str) -> bytearray:
        return bytearray(self._read_bytes(text))

    def _read_dtype(self, name: str) -> Any:
        dtype = getattr(_C, name)
        if not isinstance(dtype, _C.dtype):
            raise ValueError(f"{name} is no dtype")
        return dtype

    def _read_device(self, name: str) -> Any:
        return _C.device(name)

    def _read_scalar(self, pair: Any) -> Any:
        name, value = pair
        dtype = numpy_dtype(name)
        if dtype.kind not in "biufc" and name not in STORED_AS:
            raise ValueError(f"{name} is no dtype of a number")
        return dtype.type(self.node(value))

    def _read_scalar_array(self, member: str) -> Any:
        return self._read_array(member)[()]

    def _read_array(self, member: str) -> np.ndarray:
        array = self._arrays[member]
        name = self._members[member][0]
        return array.view(numpy_dtype(name)) if name in STORED_AS else array

    def _read_tensor(self, node: Any) -> Any:
        number = node["object"]
        found = self._objects.get(number)
        if found is not None:
            return found
        key = (node["member"], node["device"])
        memory = self._shared.get(key)
        if memory is None:
            array = _C.from_numpy(self._read_array(node["member"]))
            try:
                memory = self._shared[key] = self._place(array, node["device"])
            except Exception as error:
                raise Misplaced(error) from error
        tensor = Parameter(memory, node["requires_grad"]) if node.get("parameter") else memory.detach()
        if node["requires_grad"]:
            tensor.requires_grad_(True)
        self._objects[number] = tensor
        return tensor


def numpy_dtype(name: str) -> np.dtype:
    """The dtype of that name, bfloat16 and fp8 included."""
    if name in STORED_AS:
        import ml_dtypes

        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(name)
