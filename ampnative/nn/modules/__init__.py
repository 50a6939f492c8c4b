"""The path under which PyTorch keeps its modules: everything of :mod:`ampnative.nn` that is a module class, and its files."""

import sys as _sys

from .. import *
from ..module import Module

_HERE = ("activation", "container", "conv", "distance", "dropout", "flatten", "linear", "loss", "padding", "pooling",
         "transformer", "upsampling")  # fmt: skip
# PyTorch's files whose classes are in a file of another name here.
_ELSEWHERE = {
    "batchnorm": "norm", "fold": "conv", "instancenorm": "norm", "normalization": "norm", "rnn": "recurrent", "sparse": "embedding",
}  # fmt: skip

for _name, _file in {**dict(zip(_HERE, _HERE)), **_ELSEWHERE}.items():
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _sys.modules[f"{__name__.rpartition('.')[0]}.{_file}"]
