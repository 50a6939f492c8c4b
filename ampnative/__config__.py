"""How the library was built."""

from . import _C

__all__ = ["parallel_info", "show"]


def _threads() -> str:
    count = _C.get_num_threads()
    return "1 thread" if count == 1 else f"{count} threads"


def show() -> str:
    """A few lines about the build."""
    return f"ampnative: C11, NumPy buffers, {_threads()}, no CUDA toolkit linked"


def parallel_info() -> str:
    """A few lines about threads."""
    return f"ampnative: own pool, {_threads()}; results do not depend on their number"
