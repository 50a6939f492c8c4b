"""Comparing results in tests, and random tensors for them."""

from .comparison import assert_close
from .creation import make_tensor

__all__ = ["assert_close", "make_tensor"]
