"""There are no process groups: training runs in one process. ``is_available()`` is False, and everything else raises."""

from __future__ import annotations

from ._features import refusing

__all__ = ["is_available", "is_initialized", "is_torchelastic_launched"]

__path__: list[str] = []
__getattr__ = refusing(
    __name__,
    "there are no process groups here; run in one process, without DistributedDataParallel. utils.data.DistributedSampler works with "
    "num_replicas and rank given",
)


def is_available() -> bool:
    """False."""
    return False


def is_initialized() -> bool:
    """False."""
    return False


def is_torchelastic_launched() -> bool:
    """False."""
    return False


def is_gloo_available() -> bool:
    """False."""
    return False


def is_mpi_available() -> bool:
    """False."""
    return False


def is_nccl_available() -> bool:
    """False."""
    return False
