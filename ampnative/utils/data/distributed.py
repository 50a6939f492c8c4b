"""PyTorch's path of DistributedSampler."""

from .sampler import DistributedSampler

__all__ = ["DistributedSampler"]
