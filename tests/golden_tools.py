"""Reading golden recordings: value specs, bits, outcomes, and how a result is compared with a record.

AMPNATIVE_GOLDEN_DIR names a folder of recordings (default: golden/ beside this file); AMPNATIVE_TEST_MODULE names the
library under test (default: ampnative). With AMPNATIVE_TEST_MODULE=torch the replay itself is checked: PyTorch must
pass its own recordings.
"""

import importlib
import json
import os
import warnings
from pathlib import Path
from typing import NoReturn

import ml_dtypes
import numpy as np
import pytest

torch = importlib.import_module(os.environ.get("AMPNATIVE_TEST_MODULE", "ampnative"))
IS_PYTORCH = torch.__name__ == "torch"
if IS_PYTORCH:
    torch.set_num_threads(1)

OWN_FOLDER = Path(__file__).parent / "golden"
FOLDER = Path(os.environ.get("AMPNATIVE_GOLDEN_DIR", OWN_FOLDER))

FLOATS = {
    "float64": np.dtype(np.float64),
    "float32": np.dtype(np.float32),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
OTHERS = ["bool", "uint8", "int8", "int16", "int32", "int64", "complex64", "complex128"]
UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
EXPONENT = {"float64": 0x7FF << 52, "float32": 0xFF << 23, "float16": 0x1F << 10, "bfloat16": 0xFF << 7}
NAN = "nan"

# Phrases of messages that the contract promises; other recorded words are PyTorch's own: only the type counts.
PROMISED = [
    "growth factor must be > 1.0",
    "backoff factor must be < 1.0",
    "CUDA is not available",
    "value cannot be converted",
    "must be a Tensor or an iterable of Tensors",
    "already been called on this optimizer",
    "is being called after step()",
    "Attempting to unscale FP16 gradients",
    "Closure use is not currently supported",
    "has already been called since the last update",
    "No inf checks were recorded for this optimizer",
    "No inf checks were recorded prior to update",
    "source state dict is empty",
    "may only be pickled at the beginning",
    "_scale is None",
    "_growth_tracker initialized before _scale",
    "is deprecated",
    "mix of the legacy and new APIs",
    "Unknown attribute",
    "expects a bool",
    "allow_splitk=False is not supported",
    "is non-finite, so it cannot be clipped",
    "empty generator",
    "Unexpected floating ScalarType",
    "unsafe to autocast",
    "Invalid device string",
    "Expected one of cpu, cuda",
    "must not be empty",
    "unknown device type for autocast",
    "unsupported scalarType",
    "unsupported autocast device_type",
    "target dtype is not supported",
    "requires a callable",
    "Expected `device_type` of type `str`",
    "does not support bfloat16",
]
PHRASE_COUNTS_FOR = {"RuntimeError", "ValueError", "AssertionError"}


class Record(dict):
    """One record, with the file it came from (name and content) and the reasons why our own rule was tested instead."""

    def __init__(self, data: dict, file: str, index: int, tables: dict):
        super().__init__(data)
        self.file = file
        self.index = index
        self.tables = tables
        self.ours: list[str] = []


def records(name: str, argument: str = "record") -> pytest.MarkDecorator:
    """Parametrises a test with every record of one file of the folder under test. Those that take `record` count."""
    path = FOLDER / f"{name}.json"
    if not path.exists():
        if FOLDER == OWN_FOLDER:
            raise FileNotFoundError(f"{path}: this recording belongs to the repository")
        return pytest.mark.parametrize(argument, [])
    with open(path) as file:
        whole = json.load(file)
    rows = whole["records"]
    return pytest.mark.parametrize(
        argument, [pytest.param(Record(row, name, index, whole), id=str(index)) for index, row in enumerate(rows)]
    )


def missing(*paths: str) -> list[str]:
    """The dotted names under the library that do not exist."""
    absent = []
    for path in paths:
        owner = torch
        for part in path.split("."):
            if not hasattr(owner, part):
                absent.append(path)
                break
            owner = getattr(owner, part)
    return absent


def not_there(what: str) -> NoReturn:
    """A record that asks for a name which does not exist. All that the own records need is there, so that a name that vanished is
    a failure; other recordings may ask for more."""
    if FOLDER == OWN_FOLDER and not IS_PYTORCH:
        pytest.fail(f"{what} not there any more")
    pytest.skip(f"{what} not there")


def resolve(path: str):
    """torch.<path>."""
    owner = torch
    for part in path.split("."):
        owner = getattr(owner, part)
    return owner


# Bits


def dtype_name(dtype) -> str:
    """'float16' for torch.float16 and for ampnative.float16."""
    return str(dtype).rpartition(".")[2]


def array(t) -> np.ndarray:
    """A copy of a tensor's values as an array of its own dtype (bfloat16 through ml_dtypes)."""
    t = t.detach()
    if IS_PYTORCH and t.dtype == torch.bfloat16:
        return t.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16).copy()
    return np.array(t.numpy())


def bits(t) -> list:
    """Unsigned bit patterns of a floating tensor, row-major; integers and bools as they are."""
    values = np.ascontiguousarray(array(t)).reshape(-1)
    if dtype_name(t.dtype) in FLOATS:
        return values.view(UNSIGNED[values.itemsize]).tolist()
    return [int(v) for v in values.tolist()]


def array_from_bits(values: list, dtype: str) -> np.ndarray:
    """Inverse of bits(), flat."""
    if dtype in FLOATS:
        return np.array(values, dtype=UNSIGNED[FLOATS[dtype].itemsize]).view(FLOATS[dtype])
    return np.array(values, dtype=dtype)


def tensor_from_array(values: np.ndarray):
    """A tensor that owns a copy of the array."""
    if IS_PYTORCH and values.dtype == FLOATS["bfloat16"]:
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16).clone()
    return torch.from_numpy(values).clone()


def tensor_from_bits(values: list, dtype: str, shape: list | tuple | None = None):
    """A tensor of the given bit patterns."""
    flat = array_from_bits(values, dtype)
    return tensor_from_array(flat if shape is None else flat.reshape(shape))


def without_payload(values: list, dtype: str) -> list:
    """Every NaN pattern replaced by one mark: any NaN is right where a NaN is recorded."""
    if dtype not in FLOATS:
        return list(values)
    mask = EXPONENT[dtype]
    mantissa = (mask & -mask) - 1
    return [NAN if v & mask == mask and v & mantissa else v for v in values]


def differences(got: list, want: list, dtype: str, limit: int = 5) -> list[str]:
    """'[index] got, expected' for patterns that differ, NaN payloads aside."""
    if len(got) != len(want):
        return [f"{len(got)} elements, expected {len(want)}"]
    pairs = zip(without_payload(got, dtype), without_payload(want, dtype), strict=True)
    hexed = (lambda v: v if v == NAN else hex(v)) if dtype in FLOATS else repr
    return [f"[{i}] got {hexed(a)}, expected {hexed(b)}" for i, (a, b) in enumerate(pairs) if a != b][:limit]


def assert_bits(got: list, want: list, dtype: str, what: str = "") -> None:
    """Bit equality, NaN payloads aside."""
    wrong = differences(got, want, dtype)
    assert not wrong, f"{what} ({dtype}): " + "; ".join(wrong)


def assert_close(got: list, want: list, dtype: str, rtol: float, atol: float = 0.0, what: str = "") -> None:
    """Values within rtol and atol; inf, NaN and zeros exactly (the sign of zero too)."""
    assert len(got) == len(want), f"{what}: {len(got)} elements, expected {len(want)}"
    a, b = (array_from_bits(v, dtype).astype(np.float64) for v in (got, want))
    for i, (x, y) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        if got[i] == want[i] or (np.isnan(x) and np.isnan(y)):
            continue
        special = not np.isfinite(x) or not np.isfinite(y) or (atol == 0 and (x == 0 or y == 0))
        assert not special and abs(x - y) <= rtol * abs(y) + atol, (
            f"{what}[{i}] ({dtype}): got {x!r}, expected {y!r}, rtol {rtol:g}, atol {atol:g}"
        )


# Value specs


def spec_of(t) -> dict:
    """A tensor as data: dtype, shape, bits."""
    return {"tensor": dtype_name(t.dtype), "shape": list(t.shape), "bits": bits(t)}


def _tensor(spec):
    t = tensor_from_bits(spec["bits"], spec["tensor"], spec["shape"])
    return t.requires_grad_() if spec.get("requires_grad") else t


_BUILDERS = {
    "tensor": _tensor,
    "list": lambda s: [build(v) for v in s["list"]],
    "tuple": lambda s: tuple(build(v) for v in s["tuple"]),
    "generator": lambda s: (build(v) for v in s["generator"]),
    "float": lambda s: float.fromhex(s["float"]),
    "np.float32": lambda s: np.float32(float.fromhex(s["np.float32"])),
    "np.float64": lambda s: np.float64(float.fromhex(s["np.float64"])),
    "ndarray": lambda s: np.array([float.fromhex(v) for v in s["ndarray"]], dtype=np.float32),
    "int": lambda s: s["int"],
    "bool": lambda s: s["bool"],
    "str": lambda s: s["str"],
    "none": lambda s: None,
}


def build(spec: dict):
    """The Python object that a value spec describes."""
    (kind,) = [k for k in spec if k in _BUILDERS]
    return _BUILDERS[kind](spec)


def shown(value):
    """The spec of a result."""
    if isinstance(value, torch.Tensor):
        return spec_of(value)
    if isinstance(value, bool) or value is None or isinstance(value, (int, str)):
        return value
    if isinstance(value, float):
        return {"float": float(value).hex()}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [shown(v) for v in value]}
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return {"object": type(value).__name__}


def normal(value):
    """A shown value with NaN payloads removed, so that == compares."""
    if isinstance(value, dict):
        if "tensor" in value and "bits" in value:
            return {
                "tensor": value["tensor"],
                "shape": value["shape"],
                "bits": without_payload(value["bits"], value["tensor"]),
            }
        return {k: normal(v) for k, v in value.items()}
    if isinstance(value, list):
        return [normal(v) for v in value]
    return value


# Outcomes


def outcome(fn, show=lambda v: v) -> dict:
    """Calls fn: its shown value, or {"error", "message"}; plus the warnings it gave as [category, message]."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = {"value": show(fn())}
        except Exception as exc:
            result = {"error": type(exc).__name__, "message": str(exc)}
    result["warnings"] = [[w.category.__name__, str(w.message)] for w in caught]
    return result


def promised_phrase(recorded: str) -> str | None:
    """The part of a recorded phrase that the contract promises, or None."""
    for phrase in PROMISED:
        if phrase.lower() in recorded.lower():
            return phrase
        if recorded.lower() in phrase.lower():
            return recorded
    return None


def _phrase_missing(recorded: str | None, message: str) -> str | None:
    phrase = promised_phrase(recorded) if recorded else None
    return phrase if phrase and phrase.lower() not in message.lower() else None


def outcome_difference(got: dict, want: dict) -> str | None:
    """What differs between an outcome and its record; None if nothing does."""
    if "error" in want or "error" in got:
        if got.get("error") != want.get("error"):
            return f"got {_brief(got)}, expected {_brief(want)}"
        lost = _phrase_missing(want.get("phrase"), got["message"]) if want["error"] in PHRASE_COUNTS_FOR else None
        if lost:
            return f"{got['error']} {got['message']!r} lacks the phrase {lost!r}"
    elif normal(got.get("value")) != normal(want.get("value")):
        return f"got {_brief(got)}, expected {_brief(want)}"
    return warnings_difference(got, want)


def warnings_difference(got: dict, want: dict) -> str | None:
    """Warnings must agree in number, order and category, and carry the promised phrases."""
    given, expected = got.get("warnings", []), want.get("warnings", [])
    if [w[0] for w in given] != [w[0] for w in expected]:
        return f"warnings {given}, expected {expected}"
    for (_, message), (_, phrase) in zip(given, expected, strict=True):
        lost = _phrase_missing(phrase, message)
        if lost:
            return f"warning {message!r} lacks the phrase {lost!r}"
    return None


def _brief(result: dict) -> str:
    text = (
        f"{result['error']} ({result.get('message', result.get('phrase'))})" if "error" in result else repr(result.get("value"))
    )
    return text if len(text) < 300 else text[:300] + "..."
