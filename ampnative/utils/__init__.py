"""Utilities."""

from . import checkpoint, data, dlpack

__all__ = ["checkpoint", "data", "dlpack"]
