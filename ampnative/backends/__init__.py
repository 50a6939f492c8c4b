"""Which backends exist. Nothing here changes a result: the fp32 precision settings are not part of this version."""

from . import cuda, cudnn

__all__ = ["cuda", "cudnn"]
