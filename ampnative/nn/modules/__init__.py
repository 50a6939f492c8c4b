"""The path under which PyTorch keeps its modules: everything of :mod:`ampnative.nn` that is a module class, and its files."""

import sys as _sys

from .. import *
from ..module import Module

_HERE = ("activation", "batchnorm", "container", "conv", "dropout", "flatten", "instancenorm", "linear", "loss", "normalization",
         "padding", "pooling", "rnn", "sparse", "transformer", "upsampling")  # fmt: skip

for _name in _HERE:
    _found = _sys.modules.get(f"{__name__.rpartition('.')[0]}.{_name}")
    if _found is not None:
        _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _found
