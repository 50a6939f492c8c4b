"""Facts about the CUDA backend."""

__all__ = ["is_built"]


def is_built() -> bool:
    """Whether this build can drive a GPU."""
    return False
