"""Random numbers of the device. The emulated one draws from the CPU's generator, so that its state is the CPU's."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .. import _C
from .._C import Tensor

__all__ = ["get_rng_state", "get_rng_state_all", "initial_seed", "seed", "seed_all", "set_rng_state", "set_rng_state_all"]


def get_rng_state(device: Any = "cuda") -> Tensor:
    """The generator's state, a uint8 tensor. RuntimeError without CUDA."""
    from . import _require

    _require()
    return _C.default_generator.get_state()


def set_rng_state(new_state: Tensor, device: Any = "cuda") -> None:
    """Restores a state from :func:`get_rng_state`. Nothing without CUDA."""
    from . import is_available

    if is_available():
        _C.default_generator.set_state(new_state)


def get_rng_state_all() -> list[Tensor]:
    """The states of all devices: of one, or of none without CUDA."""
    from . import device_count

    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states: Iterable[Tensor]) -> None:
    """Restores states from :func:`get_rng_state_all`."""
    for state in new_states:
        set_rng_state(state)


def initial_seed() -> int:
    """The seed that the generator was given last. RuntimeError without CUDA."""
    from . import _require

    _require()
    return _C.default_generator.initial_seed()


def seed() -> None:
    """Seeds the generator from the system's entropy. Nothing without CUDA."""
    from . import is_available

    if is_available():
        _C.default_generator.seed()


def seed_all() -> None:
    """The same as :func:`seed`: there is one device."""
    seed()
