"""The default generator's seed and state."""

from __future__ import annotations

import contextlib
import copyreg
from collections.abc import Iterator
from typing import Any

from . import _C
from ._C import Tensor, default_generator, manual_seed

__all__ = ["fork_rng", "get_rng_state", "initial_seed", "manual_seed", "seed", "set_rng_state"]


def seed() -> int:
    """Seeds the default generator from the system's entropy and returns the seed."""
    return default_generator.seed()


def initial_seed() -> int:
    """The seed that the default generator was given last."""
    return default_generator.initial_seed()


def get_rng_state() -> Tensor:
    """The default generator's state, a uint8 tensor that :func:`set_rng_state` takes back."""
    return default_generator.get_state()


def set_rng_state(new_state: _C.Tensor) -> None:
    """Restores a state from :func:`get_rng_state`. TypeError or RuntimeError for anything else."""
    default_generator.set_state(new_state)


@contextlib.contextmanager
def fork_rng(devices: Any = None, enabled: bool = True, device_type: str = "cuda") -> Iterator[None]:
    """Context manager: the default generator goes on afterwards as if nothing had been drawn inside. There is one generator for
    all devices, so that ``devices`` does not count."""
    state = get_rng_state()
    try:
        yield
    finally:
        if enabled:
            set_rng_state(state)


def _rebuild_generator(state: Tensor) -> _C.Generator:
    generator = _C.Generator()
    generator.set_state(state)
    return generator


def _reduce_generator(generator: _C.Generator) -> tuple:
    return _rebuild_generator, (generator.get_state(),)


copyreg.pickle(_C.Generator, _reduce_generator)  # copy() and deepcopy() use it too
