"""Versions: of this package, and that there is no CUDA toolkit in it."""

from __future__ import annotations

__all__ = ["cuda", "debug", "git_version", "hip"]

debug = False
cuda = None
hip = None
rocm = None
xpu = None
git_version = "Unknown"


def __getattr__(name: str) -> str:
    if name == "__version__":  # that of the package: `ampnative run` changes it
        import ampnative

        return ampnative.__version__
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
