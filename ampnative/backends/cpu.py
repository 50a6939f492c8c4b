"""What the CPU can do."""

from .. import _C

__all__ = ["get_cpu_capability"]


def get_cpu_capability() -> str:
    """The instruction set in use, in PyTorch's words: "DEFAULT", "AVX2" or "AVX512". ``ampnative info`` says it more exactly."""
    name = _C.isa_name()
    return "AVX2" if name == "avx2" else "DEFAULT" if name == "baseline" else "AVX512"
