"""Deprecated names: ``ampnative.amp`` with the device fixed to "cpu"."""

from .autocast_mode import autocast
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast"]
