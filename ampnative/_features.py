"""Parts of PyTorch that are not there: asking for one says so, and what to do instead.

``import ampnative.onnx`` works (a script may import what it never uses); using anything of it raises.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

__all__ = ["AbsentFeatureError", "absent_function", "refusing", "register"]


class AbsentFeatureError(NotImplementedError, AttributeError):
    """The feature is PyTorch's and not there. An AttributeError too, so that ``hasattr`` tells the truth."""


_FUNCTIONAL = "loop over the batch and stack the results; autograd.grad gives derivatives"
_EXPORT = "save the state_dict (ampnative.save, safetensors) and load it into the same model in PyTorch to export or to deploy it"
_NATIVE = "the ops are native already; run the function as it is"

# Module -> what to do instead.
MODULES = {
    "_dynamo": _NATIVE,
    "_dynamo.eval_frame": _NATIVE,
    "_inductor": _NATIVE,
    "ao": "16-bit training is what there is: autocast; quantise in PyTorch",
    "distributions": "use rand, randn, bernoulli, multinomial and the tensor methods normal_, exponential_, uniform_, or numpy.random",
    "export": _EXPORT,
    "futures": "use concurrent.futures",
    "fx": "there is no graph to transform; hooks of modules (register_forward_hook) see every call",
    "hub": "nothing is downloaded here; build the model and load its weights with ampnative.load",
    "library": "an op of your own is an autograd.Function; amp.register_op gives it an autocast policy",
    "masked": "use where, masked_fill and boolean indices",
    "monitor": "use ampnative.debug",
    "mtia": "the devices are cpu and cuda",
    "nested": "pad to one length and use a mask, or loop",
    "onnx": _EXPORT,
    "overrides": "subclass Tensor or Module instead",
    "package": "use pickle or ampnative.save",
    "profiler": "use time.perf_counter, or ampnative.debug for a report of the ops and their dtypes",
    "quantization": "16-bit training is what there is: autocast; quantise in PyTorch",
    "sparse": "tensors are dense: use index_select, scatter_add or scipy.sparse on the NumPy side",
    "utils.bottleneck": "use cProfile",
    "utils.cpp_extension": "write an autograd.Function on NumPy arrays (.numpy() and from_numpy share memory)",
    "utils.mobile_optimizer": _EXPORT,
    "utils.tensorboard": "write scalars to a file and plot them, or use the tensorboardX package",
}

# What such a module answers all the same: scripts ask it by the way.
_ANSWERS: dict[str, dict[str, Any]] = {
    "_dynamo": {"reset": lambda: None, "config": SimpleNamespace()},
    "_inductor": {"config": SimpleNamespace()},  # settings may be made, and change nothing
    "onnx": {"is_in_onnx_export": lambda: False},
}

# Function or class of the package itself -> what to do instead.
FUNCTIONS = {
    "cond": "use a Python if",
    "jvp": _FUNCTIONAL,
    "sparse_coo_tensor": MODULES["sparse"],
    "sparse_csr_tensor": MODULES["sparse"],
    "vmap": _FUNCTIONAL,
    "while_loop": "use a Python while",
}


def refusing(module: str, cure: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module that lacks what PyTorch's has. The module needs a ``__path__``: then ``from module import
    name`` asks it in a way that lets the message through.
    """

    def __getattr__(name: str) -> Any:
        path = f"{module}.{name}"
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        text = f"{path} is not available: {cure}"
        if sys._getframe(1).f_code.co_name == "_handle_fromlist":
            raise ImportError(text, name=path)
        raise AbsentFeatureError(text)

    return __getattr__


def absent_function(name: str) -> AbsentFeatureError | None:
    """The exception for a function of the package that is not there; None for other names."""
    return AbsentFeatureError(f"ampnative.{name} is not available: {FUNCTIONS[name]}") if name in FUNCTIONS else None


def register(package: str) -> None:
    """Puts a module for each of MODULES into ``sys.modules`` and into its parent, unless there is one."""
    for path, cure in MODULES.items():
        name = f"{package}.{path}"
        if name in sys.modules:
            continue
        module = ModuleType(name, f"Not available here: {cure}.")
        module.__path__ = []
        vars(module).update(_ANSWERS.get(path, {}))
        module.__getattr__ = refusing(name, cure)  # type: ignore[method-assign]
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)


def answer(module: str, **names: Any) -> None:
    """What such a module has all the same, that is made elsewhere."""
    vars(sys.modules[module]).update(names)
