"""The path under which PyTorch keeps its modules: everything of :mod:`ampnative.nn` that is a module class, and its files."""

import sys as _sys

from .. import *
from ..module import Module
from . import module as module

_HERE = ("activation", "adaptive", "container", "conv", "distance", "dropout", "flatten", "lazy", "linear", "loss", "padding",
         "pooling", "transformer", "upsampling")  # fmt: skip
# PyTorch's files whose classes are in a file of another name here.
_ELSEWHERE = {
    "batchnorm": "norm", "fold": "conv", "instancenorm": "norm", "normalization": "norm", "rnn": "recurrent", "sparse": "embedding",
    "channelshuffle": "upsampling", "pixelshuffle": "upsampling",
}  # fmt: skip

for _name, _file in {**dict(zip(_HERE, _HERE)), **_ELSEWHERE}.items():
    _sys.modules[f"{__name__}.{_name}"] = globals()[_name] = _sys.modules[f"{__name__.rpartition('.')[0]}.{_file}"]

# Classes that are in another file there: lazy layers with their layers.
_sys.modules[f"{__name__}.activation"].MultiheadAttention = globals()["MultiheadAttention"]  # type: ignore[attr-defined]
for _name in _sys.modules[f"{__name__}.lazy"].__all__:
    _layer = getattr(globals().get(_name), "cls_to_become", None)
    if _layer is not None:
        setattr(_sys.modules[_layer.__module__], _name, globals()[_name])
