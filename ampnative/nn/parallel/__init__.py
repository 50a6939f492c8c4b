"""There is one device and one process: DataParallel and DistributedDataParallel raise when they are made."""

from __future__ import annotations

from typing import Any

from ..module import Module

__all__ = ["DataParallel", "DistributedDataParallel"]


class _Refused(Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError(
            f"{type(self).__name__} is not available: there is one device and one process here. Use the model as it is"
        )


class DataParallel(_Refused):
    """Raises NotImplementedError: use the module as it is."""


class DistributedDataParallel(_Refused):
    """Raises NotImplementedError: use the module as it is."""
