"""There is one device and one process: DataParallel runs the module as it is, DistributedDataParallel raises when it is made."""

from __future__ import annotations

from typing import Any

from ..module import Module

__all__ = ["DataParallel", "DistributedDataParallel", "data_parallel"]


class DataParallel(Module):
    """Runs ``module`` as it is, as PyTorch does with one device; names in ``state_dict`` begin with "module."."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
        super().__init__()
        self.module, self.dim = module, dim
        self.device_ids: list[int] = []

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)


class DistributedDataParallel(Module):
    """Raises NotImplementedError: there is one process; use the module as it is."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise NotImplementedError("DistributedDataParallel is not available: there is one process here. Use the model as it is")


def data_parallel(
    module: Module, inputs: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0, module_kwargs: Any = None
) -> Any:
    """``module(*inputs, **module_kwargs)``, as PyTorch does with one device; an input that is no tuple is the only one."""
    return module(*(inputs if isinstance(inputs, tuple) else (inputs,)), **(module_kwargs or {}))
