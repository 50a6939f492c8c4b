"""Saving and loading without pickle.

A saved file is an uncompressed zip. Each tensor or array is one ``.npy`` member (so ``np.load`` opens the file), and
the member ``index.json`` says how they are nested:

    index.json    {"format": "ampnative", "version": 1, "tree": node, "members": {name: [dtype, shape]}, "metadata": {number: node}}
    model/0.weight.npy ...

16-bit bfloat and fp8 values are stored as uint16 and uint8; "members" has their true dtype; "metadata" (if any) the ``_metadata``
of OrderedDicts, which are numbered in the order in which the tree has them. Loading trusts nothing:
sizes are checked against the file before memory is taken, every member's CRC is verified, and no code is ever run.
"""

from __future__ import annotations

import io
import math
import os
import struct
import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from . import _C
from ._replacing import replacing
from ._saved_nodes import ARRAY_KINDS, INDEX, STORED_AS, Bad, Decoder, Encoder, Misplaced, numpy_dtype

# json and zipfile are imported where they are used: whoever only trains does not wait for them.
if TYPE_CHECKING:
    import zipfile

__all__ = ["load", "load_checkpoint", "load_safetensors", "save", "save_checkpoint", "save_safetensors"]

_FORMAT = "ampnative"
_VERSION = 1
_MAX_INDEX = 64 << 20  # bytes
_CHUNK = 1 << 22  # bytes moved together
_CHECKPOINT = "ampnative checkpoint"
_PATH = (str, bytes, os.PathLike)


# ---- save ------------------------------------------------------------------------------------------------------------


def save(obj: Any, f: Any) -> None:
    """Write `obj` to a path or to an object with ``write``.

    `obj` may nest dicts (any key type that can be saved), OrderedDicts (with the ``_metadata`` of a state_dict), Counters,
    defaultdicts (of a built-in type or None), lists, tuples and sets of tensors, ndarrays, numbers, strings, bytes, bytearrays,
    None, dtypes, devices and Sizes. Tensors keep dtype, device, shape, ``requires_grad``, being a Parameter, and sharing where two
    of them are the same memory; a view of a part is saved on its own. A path is replaced all at once: after a crash it holds the
    old file or the new one.

    Plain ``np.load`` opens the file, too: one member per tensor or array, bfloat16 as uint16 and fp8 as uint8 (their bits),
    and ``index.json`` (bytes), which says how they are nested and what the true dtypes are. Only :func:`load` puts that back.

    Raises:
        TypeError: something in `obj` has another type; the text says where. Nothing was written.
        ValueError: `obj` contains itself, or is nested deeper than 200 levels.
        OSError: the file cannot be written; a file that was there before is untouched.
    """
    import json

    encoder = Encoder()
    tree = encoder.node(obj, ())
    index = {"format": _FORMAT, "version": _VERSION, "tree": tree, "members": encoder.members}
    if encoder.metadata:
        index["metadata"] = encoder.metadata
    text = json.dumps(index, allow_nan=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    if isinstance(f, _PATH):
        with replacing(f) as file:
            _write_zip(file, text, encoder.arrays)
    elif hasattr(f, "write"):
        _write_zip(f, text, encoder.arrays)
    else:
        raise TypeError(f"save() writes to a path or a file opened for writing, got {type(f).__name__}")


def _write_zip(file: Any, index: bytes, arrays: Mapping[str, np.ndarray]) -> None:
    import zipfile

    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED, allowZip64=True) as archive:
        # A fixed date: equal contents give equal files.
        with archive.open(zipfile.ZipInfo(INDEX), "w") as member:
            member.write(index)
        for name, array in arrays.items():
            with archive.open(zipfile.ZipInfo(name + ".npy"), "w", force_zip64=array.nbytes >= 1 << 31) as member:
                _write_npy(member, array)


def _write_npy(member: Any, array: np.ndarray) -> None:
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    header = {"descr": array.dtype.str, "fortran_order": fortran, "shape": array.shape}
    np.lib.format.write_array_header_1_0(member, header)
    flat = array.T if fortran else array
    if not flat.flags.c_contiguous:
        flat = np.ascontiguousarray(flat)
    raw = flat.reshape(-1).view(np.uint8).data if flat.size else memoryview(b"")
    for start in range(0, len(raw), _CHUNK):
        member.write(raw[start : start + _CHUNK])


# ---- load ------------------------------------------------------------------------------------------------------------


def load(f: Any, map_location: Any = None, *, weights_only: bool | None = None, mmap: bool | None = None) -> Any:
    """Read what :func:`save` wrote, from a path or a seekable binary file.

    Args:
        map_location: device for the tensors: None (where they were), "cpu", "cuda", a device, a dict such as
            ``{"cuda:0": "cpu"}``, or a function of (tensor, location) that returns a tensor, or None for "as saved".
        weights_only, mmap: accepted for PyTorch's sake. Nothing but data can be in a file, so both values are safe.

    Raises:
        TypeError: `map_location` has another type.
        RuntimeError: not such a file, truncated, corrupt, too long, of an unknown version, or a PyTorch pickle; or a
            tensor was saved on "cuda", which is not available (``map_location="cpu"`` helps).
    """
    place = _placer(map_location)
    if isinstance(f, _PATH):
        with open(f, "rb") as file:
            return _read(file, os.fsdecode(f), place)
    if not (hasattr(f, "read") and hasattr(f, "seek")):
        raise TypeError(f"load() reads from a path or a seekable file opened in binary mode, got {type(f).__name__}")
    return _read(f, getattr(f, "name", "the file"), place)


def _placer(map_location: Any) -> Callable[[Any, str], Any]:
    if map_location is None:
        return _put_back
    if isinstance(map_location, Mapping):
        table = {str(key): value for key, value in map_location.items()}

        def moved(tensor: Any, location: str) -> Any:
            target = table.get(location, location)
            _check_location(target, f"map_location[{location!r}]")
            return _put_back(tensor, str(target))

        return moved
    if callable(map_location):

        def place(tensor: Any, location: str) -> Any:
            placed = map_location(tensor, location)
            return _put_back(tensor, location) if placed is None else placed

        return place
    _check_location(map_location, "map_location")
    target = str(_C.device(map_location))
    return lambda tensor, location: _put_back(tensor, target)


def _check_location(value: Any, what: str) -> None:
    if not isinstance(value, (str, _C.device)):
        raise TypeError(f"{what} must name a device with a str or a device, got {value!r} of type {type(value).__name__}")


def _put_back(tensor: Any, location: str) -> Any:
    if location == "cpu":
        return tensor
    try:
        return tensor.to(location)
    except _C.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise RuntimeError(
            f"a tensor was saved on {location!r}, which cannot be used here: pass map_location='cpu' ({error})"
        ) from error


def _read(file: Any, name: str, place: Callable[[Any, str], Any]) -> Any:
    import zipfile

    try:
        size = file.seek(0, io.SEEK_END)
        file.seek(0)
        _check_kind(file.read(16), size)
        file.seek(0)
        with zipfile.ZipFile(file) as archive:
            _check_zip(archive, file, size)
            index = _read_index(archive)
            arrays = _read_members(archive, index["members"])
        return Decoder(arrays, index["members"], place, index.get("metadata", {})).node(index["tree"])
    except Misplaced as misplaced:
        raise misplaced.error from None
    except Bad as bad:
        raise RuntimeError(f"cannot load {name}: {bad}") from None
    except (zipfile.BadZipFile, EOFError, struct.error, NotImplementedError) as error:
        raise RuntimeError(f"cannot load {name}: it is truncated or corrupt ({error})") from error


def _check_kind(head: bytes, size: int) -> None:
    if head[:4] == b"PK\x03\x04":
        return
    cure = "Save the tensors with safetensors in PyTorch and use ampnative.serialization.load_safetensors"
    if head[:1] == b"\x80" or head[:2] in (b"(d", b"(l") or head[:4] == b"\x8a\x0al\xfc":
        raise Bad(f"it is a pickle, which could run code when read. {cure}")
    if len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < size:
        raise Bad("it looks like a safetensors file: use ampnative.serialization.load_safetensors")
    if head[:6] == b"\x93NUMPY":
        raise Bad("it is a single NumPy array: use numpy.load")
    raise Bad("it is empty" if not head else "it is no ampnative file")


def _check_zip(archive: zipfile.ZipFile, file: Any, size: int) -> None:
    from zipfile import ZIP_STORED

    entries = sorted(archive.infolist(), key=lambda entry: entry.header_offset)
    names = [entry.filename for entry in entries]
    if any(name == "data.pkl" or name.endswith("/data.pkl") for name in names):
        raise Bad(
            "it is a PyTorch file whose structure is a pickle, which could run code when read. Save the tensors with "
            "safetensors in PyTorch and use ampnative.serialization.load_safetensors"
        )
    if INDEX not in names:
        raise Bad(
            f"it has no {INDEX}"
            + (": it seems to be NumPy's .npz, use numpy.load" if any(n.endswith(".npy") for n in names) else "")
        )
    if len(set(names)) != len(names):
        raise Bad("two members have one name")
    # The directory ends with a 22-byte record; anything behind it, before it or between members was not written by
    # save().
    file.seek(max(size - 22, 0))
    if file.read(4) != b"PK\x05\x06" or archive.comment:
        raise Bad("bytes follow the end of the archive")
    end = 0
    for entry in entries:
        if entry.compress_type != ZIP_STORED or entry.file_size != entry.compress_size or entry.flag_bits & 1:
            raise Bad(f"member {entry.filename!r} is compressed or encrypted, which save() never does")
        if entry.header_offset < end or (end == 0 and entry.header_offset != 0):
            raise Bad("members overlap, or bytes precede the archive")
        end = entry.header_offset + 30 + len(entry.filename.encode("utf-8", "surrogatepass")) + entry.file_size
    if end > archive.start_dir:
        raise Bad("a member is longer than the file")


def _read_index(archive: zipfile.ZipFile) -> dict[str, Any]:
    import json

    if archive.getinfo(INDEX).file_size > _MAX_INDEX:
        raise Bad(f"its index is larger than {_MAX_INDEX} bytes")
    try:
        index = json.loads(archive.read(INDEX).decode("utf-8", "surrogatepass"), parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Bad(f"its index is not valid JSON ({error})") from None
    if not isinstance(index, dict) or index.get("format") != _FORMAT:
        raise Bad("its index is not ampnative's")
    if index.get("version") != _VERSION:
        raise Bad(
            f"it has format version {index.get('version')!r}, this ampnative reads version {_VERSION}. Install a "
            "newer ampnative"
        )
    members = index.get("members")
    if not isinstance(members, dict) or "tree" not in index or not isinstance(index.get("metadata", {}), dict):
        raise Bad("its index is incomplete")
    expected = {INDEX, *(name + ".npy" for name in members)}
    actual = set(archive.namelist())
    if expected != actual:
        raise Bad(f"members are missing or unexpected: {', '.join(sorted(expected ^ actual)[:3])}")
    return index


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _read_members(archive: zipfile.ZipFile, members: dict[str, Any]) -> dict[str, np.ndarray]:
    arrays = {}
    for name, description in members.items():
        try:
            dtype_name, shape = description
            dtype = np.dtype(STORED_AS.get(dtype_name, dtype_name))
            shape = tuple(shape)
            good = all(type(n) is int and n >= 0 for n in shape) and dtype.kind in ARRAY_KINDS
            if good:
                np.broadcast_to(np.empty((), dtype), shape)  # number and product of the dimensions, without memory
        except (TypeError, ValueError):
            good = False
        if not good:
            raise Bad(f"the index describes member {name!r} wrongly")
        arrays[name] = _read_npy(archive, name, dtype, shape)
    return arrays


def _read_npy(archive: zipfile.ZipFile, name: str, dtype: np.dtype, shape: tuple[int, ...]) -> np.ndarray:
    entry = archive.getinfo(name + ".npy")
    with archive.open(entry) as member:
        try:
            if np.lib.format.read_magic(member) != (1, 0):
                raise ValueError("unknown .npy version")
            found_shape, fortran, found_dtype = np.lib.format.read_array_header_1_0(member, max_header_size=65536)
            header = member.tell()
        except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
            raise Bad(f"member {name!r} is no array ({str(error)[:80]})") from None
        if found_shape != shape or found_dtype != dtype:
            raise Bad(f"member {name!r} is {found_dtype} {found_shape}, its index says {dtype} {shape}")
        nbytes = dtype.itemsize * math.prod(shape)
        if nbytes != entry.file_size - header:
            raise Bad(
                f"member {name!r} has {entry.file_size - header} bytes of data, {nbytes} are needed for {dtype} {shape}"
            )
        array = np.empty(shape, dtype, order="F" if fortran else "C")
        flat = array.T if fortran else array
        raw = flat.reshape(-1).view(np.uint8).data if nbytes else memoryview(bytearray())
        done = 0
        while done < nbytes:
            part = member.read(min(_CHUNK, nbytes - done))
            if not part:
                raise EOFError(f"member {name!r} ends early")
            raw[done : done + len(part)] = part
            done += len(part)
        if member.read(1):
            raise Bad(f"member {name!r} is too long")
    return array


# ---- checkpoints -----------------------------------------------------------------------------------------------------

_PARTS = ("model", "optimizer", "scaler", "scheduler")


def save_checkpoint(
    path: Any, *, model: Any = None, optimizer: Any = None, scaler: Any = None, scheduler: Any = None, extra: Any = None
) -> None:
    """Write the ``state_dict()`` of each given part, the random generator's state, the numerics (autocast's dtypes, the
    precision settings of ``backends``) and `extra` (anything :func:`save` takes) to one file. Call it between
    ``scaler.update()`` and the next forward pass.

    Raises:
        TypeError: a part has no ``state_dict``.
    """
    parts = dict(zip(_PARTS, (model, optimizer, scaler, scheduler)))
    states = {}
    for name, part in parts.items():
        if part is None:
            continue
        if not callable(getattr(part, "state_dict", None)):
            raise TypeError(f"{name} must have a state_dict() method, got {type(part).__name__}")
        states[name] = part.state_dict()
    rng = _C.default_generator.get_state()
    save({"kind": _CHECKPOINT, "states": states, "rng": rng, "numerics": _numerics(), "extra": extra}, path)


def _numerics() -> dict[str, Any]:
    dtypes = {device: str(_C.get_autocast_dtype(device)).rpartition(".")[2] for device in ("cpu", "cuda")}
    return {"autocast": dtypes, "cache": _C.is_autocast_cache_enabled(), "precision": _C._precision_state()}


def _restore_numerics(saved: dict[str, Any]) -> None:
    try:
        _C._set_precision_state(saved["precision"])
    except ValueError:
        text = "the checkpoint's precision settings are of another version of ampnative: the present ones stay"
        warnings.warn(text, stacklevel=3)
    for device, dtype in saved["autocast"].items():
        _C.set_autocast_dtype(device, getattr(_C.dtypes, dtype))
    _C.set_autocast_cache_enabled(saved["cache"])


def load_checkpoint(
    path: Any,
    *,
    model: Any = None,
    optimizer: Any = None,
    scaler: Any = None,
    scheduler: Any = None,
    map_location: Any = None,
    strict: bool = True,
    rng: bool = True,
    numerics: bool = True,
) -> Any:
    """Load a checkpoint into the given parts and return its `extra`.

    Args:
        strict: True: every given part must be in the file, and a scaler saved while disabled is refused. False: a part
            that is missing keeps its state; an enabled scaler then starts fresh (the switch from no AMP to AMP).
        rng: whether to restore the random generator's state.
        numerics: whether to restore this thread's autocast dtypes and the process's precision settings.

    Raises:
        RuntimeError: not a checkpoint, or the file is damaged.
        KeyError: (strict) a part is missing. No part was changed then.
    """
    data = load(path, map_location)
    if not isinstance(data, dict) or data.get("kind") != _CHECKPOINT:
        raise RuntimeError(f"cannot load {path}: it was not written by save_checkpoint; use load() for it")
    states = data["states"]
    parts = {name: part for name, part in zip(_PARTS, (model, optimizer, scaler, scheduler)) if part is not None}
    missing = [name for name in parts if name not in states]
    if missing and strict:
        raise KeyError(
            f"{path} has no state for {', '.join(missing)}; it has {', '.join(states) or 'none'}. strict=False skips "
            "them"
        )
    for name, part in parts.items():
        if name in missing or (name == "scaler" and not strict and not states[name]):
            continue
        part.load_state_dict(states[name])
    if rng:
        _C.default_generator.set_state(data["rng"])
    if numerics and "numerics" in data:
        _restore_numerics(data["numerics"])
    return data["extra"]


# ---- safetensors -----------------------------------------------------------------------------------------------------

#   | header length, u64 little-endian | JSON header, padded with spaces | all tensors, back to back |
_SAFE = {
    "bool": "BOOL",
    "uint8": "U8",
    "int8": "I8",
    "int16": "I16",
    "int32": "I32",
    "int64": "I64",
    "float16": "F16",
    "bfloat16": "BF16",
    "float32": "F32",
    "float64": "F64",
    "float8_e5m2": "F8_E5M2",
    "float8_e4m3fn": "F8_E4M3",
    "complex64": "C64",
}
_FROM_SAFE = {code: name for name, code in _SAFE.items()}
_MAX_HEADER = 100_000_000


def save_safetensors(tensors: Mapping[str, Any], path: Any, metadata: Mapping[str, str] | None = None) -> None:
    """Write a dict of tensors (or ndarrays) in the safetensors format, all or nothing.

    Raises:
        TypeError: a name is no str, a value no tensor, a dtype has no code in the format, or metadata is not str to
        str.
    """
    import json

    entries = []
    for name, value in tensors.items():
        if not isinstance(name, str) or name == "__metadata__":
            raise TypeError(f"tensor names must be str other than '__metadata__', got {name!r}")
        if not isinstance(value, (_C.Tensor, np.ndarray)):
            raise TypeError(f"{name!r} must be a Tensor or ndarray, got {type(value).__name__}")
        array = value.detach().cpu().numpy() if isinstance(value, _C.Tensor) else value
        code = _SAFE.get(array.dtype.name)
        if code is None:
            raise TypeError(f"{name!r} has dtype {array.dtype}, which safetensors has no code for")
        entries.append((name, code, array))
    entries.sort(key=lambda entry: (-entry[2].dtype.itemsize, entry[0]))  # keeps every tensor aligned
    header: dict[str, Any] = {}
    if metadata is not None:
        if not all(isinstance(k, str) and isinstance(v, str) for k, v in metadata.items()):
            raise TypeError("metadata must map str to str")
        header["__metadata__"] = dict(metadata)
    offset = 0
    for name, code, array in entries:
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [offset, offset + array.nbytes]}
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with replacing(path) as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, array in entries:
            if array.dtype.byteorder == ">":
                array = array.astype(array.dtype.newbyteorder("<"))
            if array.size:
                file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)


def load_safetensors(path: Any, map_location: Any = None) -> dict[str, Any]:
    """Read a safetensors file into a dict of tensors, in the order of its header.

    Raises:
        RuntimeError: the file breaks the format (header size, offsets, gaps, length), or has a dtype that ampnative
        lacks.
    """
    place = _placer(map_location)
    with open(path, "rb") as file:
        try:
            return _read_safetensors(file, os.fstat(file.fileno()).st_size, place)
        except Bad as bad:
            raise RuntimeError(f"cannot load {os.fsdecode(path)}: {bad}") from None


def _read_safetensors(file: BinaryIO, size: int, place: Callable[[Any, str], Any]) -> dict[str, Any]:
    import json

    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(size - 8, _MAX_HEADER) or length < 2:
        raise Bad(
            f"its header length {length} does not fit a file of {size} bytes: it is truncated or no safetensors file"
        )
    try:
        header = json.loads(
            file.read(length).decode("utf-8"), object_pairs_hook=_no_doubles, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise Bad(f"its header is not valid JSON ({str(error)[:80]})") from None
    if not isinstance(header, dict):
        raise Bad("its header is no JSON object")
    header.pop("__metadata__", None)
    plan = [(name, *_safe_entry(name, entry)) for name, entry in header.items()]
    end = 0
    for name, _, _, start, stop in sorted(plan, key=lambda item: item[3:]):
        if start != end:
            raise Bad(f"the data of {name!r} starts at {start}, {end} was expected: tensors overlap or leave a gap")
        end = stop
    if 8 + length + end != size:
        raise Bad(f"its header describes {8 + length + end} bytes, the file has {size}: it is truncated or too long")
    result = {}
    for name, dtype, shape, start, stop in plan:
        array = np.empty(shape, dtype)
        if stop > start:
            file.seek(8 + length + start)
            raw = array.reshape(-1).view(np.uint8).data
            if file.readinto(raw) != stop - start:  # type: ignore[attr-defined]
                raise Bad(f"the data of {name!r} ends early")
        result[name] = place(_C.from_numpy(array), "cpu")
    return result


def _no_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a name occurs twice")
    return result


def _safe_entry(name: str, entry: Any) -> tuple[np.dtype, tuple[int, ...], int, int]:
    try:
        code, shape, (start, stop) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
    except (TypeError, KeyError, ValueError):
        raise Bad(f"the entry of {name!r} is malformed") from None
    if not all(type(n) is int and n >= 0 for n in (*shape, start, stop)):
        raise Bad(f"the entry of {name!r} has a shape or offset that is no natural number")
    if code not in _FROM_SAFE:
        raise Bad(f"{name!r} has dtype {code!r}, which ampnative has no tensors for")
    dtype = numpy_dtype(_FROM_SAFE[code])
    if dtype.itemsize * math.prod(shape) != stop - start:
        raise Bad(f"{name!r} is {code} {list(shape)}, but its data has {stop - start} bytes")
    return dtype, shape, start, stop
