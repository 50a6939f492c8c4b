"""A tensor on several devices."""

from __future__ import annotations

from typing import Any

__all__: list[str] = []


class _MultiDeviceReplicator:
    """Copies of one tensor, made at most once per device."""

    def __init__(self, master_tensor: Any) -> None:
        self.master = master_tensor
        self._per_device: dict[Any, Any] = {}

    def get(self, device: Any) -> Any:
        """The master's value on `device`; never the master itself."""
        copy = self._per_device.get(device)
        if copy is None:
            copy = self._per_device[device] = self.master.to(device=device, copy=True)
        return copy
