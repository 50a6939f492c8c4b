"""How the library was built."""

from . import _C

__all__ = ["parallel_info", "show"]


def show() -> str:
    """A few lines about the build."""
    return f"ampnative: C11, NumPy buffers, {_C.get_num_threads()} threads, no CUDA toolkit linked"


def parallel_info() -> str:
    """A few lines about threads."""
    return f"ampnative: own pool, {_C.get_num_threads()} threads; results do not depend on their number"
