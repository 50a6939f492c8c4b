"""The device "cuda", and its emulation on the CPU.

Without a GPU nothing is available until :func:`emulate` (or the environment variable AMPNATIVE_EMULATE_CUDA=1) opts in.
Then tensors may live on "cuda": CUDA's autocast lists, defaults and dtypes, own memory statistics, computed by the CPU
kernels. The device name says so, and times measured there are CPU times.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import Any

from .. import _C
from . import amp, memory, random
from .memory import (
    get_per_process_memory_fraction,
    max_memory_cached,
    max_memory_reserved,
    mem_get_info,
    memory_cached,
    memory_stats,
    memory_summary,
    reset_accumulated_memory_stats,
    reset_max_memory_allocated,
    reset_max_memory_cached,
    set_per_process_memory_fraction,
)
from .random import get_rng_state, get_rng_state_all, initial_seed, seed, seed_all, set_rng_state, set_rng_state_all

__all__ = [
    "AcceleratorError",
    "Event",
    "OutOfMemoryError",
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "default_stream",
    "device",
    "device_count",
    "empty_cache",
    "emulate",
    "get_arch_list",
    "get_device_capability",
    "get_device_name",
    "get_device_properties",
    "get_gencode_flags",
    "get_per_process_memory_fraction",
    "get_rng_state",
    "get_rng_state_all",
    "init",
    "initial_seed",
    "ipc_collect",
    "is_available",
    "is_bf16_supported",
    "is_emulated",
    "is_initialized",
    "manual_seed",
    "manual_seed_all",
    "max_memory_allocated",
    "max_memory_cached",
    "max_memory_reserved",
    "mem_get_info",
    "memory",
    "memory_allocated",
    "memory_cached",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "random",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "seed",
    "seed_all",
    "set_device",
    "set_per_process_memory_fraction",
    "set_rng_state",
    "set_rng_state_all",
    "set_stream",
    "stream",
    "synchronize",
    "why_unavailable",
]

_CAPABILITY = (8, 0)  # the oldest generation with TF32 and bf16, which is what the emulation computes


def is_available() -> bool:
    """Whether tensors can be put on "cuda". Never raises."""
    return _C._cuda_emulated()


def is_emulated() -> bool:
    """Whether "cuda" is the CPU following CUDA's rules."""
    return _C._cuda_emulated()


def why_unavailable() -> str:
    """One sentence: why ``is_available()`` is False; empty if it is True."""
    if is_available():
        return ""
    return "this version of ampnative has no GPU backend; ampnative.cuda.emulate() runs CUDA's rules on the CPU"


class _Emulation:
    """What :func:`emulate` returns: leaving it as a context manager restores the state from before the call."""

    def __init__(self, before: tuple[bool, int]) -> None:
        self._before = before

    def __repr__(self) -> str:
        now, before = ("on" if state else "off" for state in (_C._cuda_emulated(), self._before))
        return f"<emulation of CUDA on the CPU: {now}; leaving `with` switches it {before}>"

    def __enter__(self) -> _Emulation:
        return self

    def __exit__(self, *exc_info: object) -> None:
        _C._set_cuda_emulated(self._before[0])
        _C._set_split_k(self._before[1])


def emulate(enabled: bool = True, *, split_k: int = 1) -> _Emulation:
    """Switch the emulation of CUDA on the CPU on (or off) for the process. Takes effect at once; as a context manager
    (``with emulate():``) it is undone at the end. Tensors made on "cuda" stay usable for reading after it is off.

    Args:
        split_k: 1 to 255. More than 1 shows what libraries do to 16-bit products with a long inner dimension: the sum is cut
            into that many parts, which are rounded to the 16-bit type before they are added, where
            ``backends.cuda.matmul.allow_fp16_reduced_precision_reduction`` (or bf16) allows it. Slow.

    Raises:
        TypeError: `enabled` is no bool, or `split_k` no int.
        ValueError: `split_k` is out of range.
    """
    if not isinstance(enabled, bool):
        raise TypeError(f"enabled must be a bool, got {type(enabled).__name__}")
    before = _C._cuda_emulated(), _C._get_split_k()
    _C._set_split_k(split_k)
    _C._set_cuda_emulated(enabled)
    return _Emulation(before)


def _require() -> None:
    if not is_available():
        raise RuntimeError(
            f"Found no NVIDIA driver: {why_unavailable()}. A script that cannot call it is run by `ampnative run --emulate-cuda`"
        )


def _index(device: Any) -> int:
    """Index of a device given as None, int, "cuda:0" or device object; checks that it exists."""
    _require()
    if device is None:
        return 0
    if isinstance(device, int) and not isinstance(device, bool):
        index = device
    else:
        parsed = _C.device(device)
        if parsed.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {parsed}")
        index = parsed.index or 0
    if index != 0:
        raise AssertionError(f"Invalid device id {index}: there is one device, cuda:0")
    return index


def init() -> None:
    """Raise RuntimeError if CUDA cannot be used."""
    _require()


def is_initialized() -> bool:
    """Whether CUDA is in use."""
    return is_available()


def device_count() -> int:
    """1 if available (also if emulated), else 0."""
    return int(is_available())


def current_device() -> int:
    """Index of the current device: 0."""
    return _index(None)


def set_device(device: Any) -> None:
    """Accepts the one device that exists; a negative index is ignored."""
    if not (isinstance(device, int) and device < 0):
        _index(device)


def synchronize(device: Any = None) -> None:
    """Wait for the device's work. Emulated work is done when its call returns."""
    _index(device)


def get_device_name(device: Any = None) -> str:
    """Name of the device, which says when it is emulated."""
    return get_device_properties(device).name


def get_device_capability(device: Any = None) -> tuple[int, int]:
    """(major, minor) compute capability; (8, 0) when emulated."""
    _index(device)
    return _CAPABILITY


@dataclass(frozen=True)
class _DeviceProperties:
    name: str
    major: int
    minor: int
    total_memory: int  # bytes
    multi_processor_count: int


def get_device_properties(device: Any = None) -> _DeviceProperties:
    """name, major, minor, total_memory (bytes), multi_processor_count."""
    _index(device)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    name = f"emulated on the CPU ({_C.isa_name()}, {_C.get_num_threads()} threads)"
    return _DeviceProperties(name, *_CAPABILITY, memory, _C.get_num_threads())


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether bfloat16 can be computed with."""
    return is_available()


# ---- memory ----------------------------------------------------------------------------------------------------------


def memory_allocated(device: Any = None) -> int:
    """Bytes in tensors on the device now."""
    return _C._memory_stats("cuda")[0]


def max_memory_allocated(device: Any = None) -> int:
    """Largest number of bytes in tensors since the start or ``reset_peak_memory_stats()``."""
    return _C._memory_stats("cuda")[1]


def memory_reserved(device: Any = None) -> int:
    """Bytes that the allocator holds, cached blocks included."""
    return _C._memory_stats("cuda")[2]


def reset_peak_memory_stats(device: Any = None) -> None:
    """Let ``max_memory_allocated()`` start again from what is allocated now.

    Raises:
        RuntimeError: CUDA is not available.
    """
    _index(device)
    _C._memory_reset_peak("cuda")


def empty_cache() -> None:
    """Give cached blocks back to the system."""
    _C._memory_empty_cache("cuda")


# ---- random numbers --------------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    """Seed the device's generator. The emulated device draws from the CPU's generator, so that one is seeded. Without
    CUDA it does nothing."""
    if is_available():
        _C.manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """The same as :func:`manual_seed`: there is one device."""
    manual_seed(seed)


class AcceleratorError(RuntimeError):
    """An error of a device. Scripts catch it; nothing here raises it."""


OutOfMemoryError = _C.OutOfMemoryError


# ---- events, streams, device -----------------------------------------------------------------------------------------


class Event:
    """A point in time. Emulated work is synchronous, so a recorded event is complete at once and its times are CPU
    times.

    Args:
        enable_timing: needed for :meth:`elapsed_time`.
    """

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        self._timing = bool(enable_timing)
        self._time: float | None = None

    def record(self, stream: Any = None) -> None:
        """Note the present time. Raises RuntimeError without CUDA."""
        _require()
        self._time = time.perf_counter()

    def query(self) -> bool:
        """True: all work before the event is done."""
        return True

    def wait(self, stream: Any = None) -> None:
        """Nothing to wait for."""

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds from this event to `end_event`.

        Raises:
            ValueError: one of them was made without ``enable_timing=True``, or never recorded.
        """
        if not (self._timing and end_event._timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._time is None or end_event._time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (end_event._time - self._time) * 1e3


class Stream:
    """A queue of work; emulated work runs in program order, so streams only carry the interface."""

    def __init__(self, device: Any = None, priority: int = 0) -> None:
        self.device_index = _index(device)

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def query(self) -> bool:
        """True: all work is done."""
        return True

    def wait_stream(self, stream: Any) -> None:
        """Nothing to wait for."""

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for."""

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event` (a new one by default) and return it."""
        event = Event() if event is None else event
        event.record(self)
        return event


def current_stream(device: Any = None) -> Stream:
    """The stream in use."""
    return Stream(device)


def default_stream(device: Any = None) -> Stream:
    """The default stream."""
    return Stream(device)


def set_stream(stream: Stream) -> None:
    """Accepted: there is one stream."""


def ipc_collect() -> None:
    """Nothing: there is one process."""


def get_arch_list() -> list[str]:
    """The architectures that the package was built for: none, the device is emulated."""
    return []


def get_gencode_flags() -> str:
    """Flags of nvcc: none."""
    return ""


class stream:
    """Context manager that selects a stream (None: no change)."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        return None

    def __exit__(self, *exc_info: object) -> None:
        return None


class device:
    """Context manager that selects a device (negative: no change).

    Raises:
        RuntimeError, AssertionError: (on entering) no CUDA, or no such device.
    """

    def __init__(self, device: Any) -> None:
        self.idx = device

    def __enter__(self) -> None:
        set_device(self.idx)

    def __exit__(self, *exc_info: object) -> None:
        return None


# PyTorch's other paths of these.
for _name in ("empty_cache", "max_memory_allocated", "memory_allocated", "memory_reserved", "reset_peak_memory_stats"):
    setattr(memory, _name, globals()[_name])
for _name in ("manual_seed", "manual_seed_all"):
    setattr(random, _name, globals()[_name])

if os.environ.get("AMPNATIVE_EMULATE_CUDA") == "1":
    emulate()
