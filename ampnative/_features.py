"""Parts of PyTorch that are not there: asking for one says so, and what to do instead.

``import ampnative.onnx`` works (a script may import what it never uses); using anything of it raises.
"""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable, Iterable
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from . import _C
from ._features_names import NAMES, TENSOR_FAMILIES

__all__ = [
    "AbsentAttribute",
    "AbsentFeatureError",
    "answer",
    "cure_of",
    "importing",
    "refusing",
    "register",
    "register_names",
    "similar",
    "teach",
]


class AbsentFeatureError(NotImplementedError, AttributeError):
    """The feature is PyTorch's and not there. An AttributeError too, so that ``hasattr`` tells the truth."""


_EXPORT = "save the state_dict (ampnative.save, safetensors) and load it into the same model in PyTorch to export or to deploy it"
_NATIVE = "the ops are native already; run the function as it is"

# Module -> what to do instead.
MODULES = {
    "_dynamo": _NATIVE,
    "_dynamo.eval_frame": _NATIVE,
    "_inductor": _NATIVE,
    "ao": "16-bit training is what there is: autocast; quantise in PyTorch",
    "autograd.forward_ad": "use autograd.functional.jvp",
    "distributions": "use rand, randn, bernoulli, multinomial and the tensor methods normal_, exponential_, uniform_, or numpy.random",
    "export": _EXPORT,
    "futures": "use concurrent.futures",
    "fx": "there is no graph to transform; hooks of modules (register_forward_hook) see every call",
    "hub": "nothing is downloaded here; build the model and load its weights with serialization.load_safetensors",
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


def importing(frame: Any) -> bool:
    """Whether a finder's ``find_spec``, called by ``frame``, decides over an import. Others ask what there is
    (``importlib.util.find_spec``, pkgutil): a finder must answer them None, and raising would end a test for an optional part."""
    return frame.f_back is not None and frame.f_back.f_code.co_name == "_find_and_load_unlocked"


class _CureFinder:
    """The last of the finders: an import of a module that is PyTorch's and not here gets the answer of the attribute in its parent."""

    def __init__(self, package: str) -> None:
        self._below = f"{package}."

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if not fullname.startswith(self._below) or not importing(sys._getframe(1)):
            return
        parent, _, child = fullname.rpartition(".")
        try:
            found = getattr(sys.modules[parent], child)
        except NotImplementedError as error:
            raise ModuleNotFoundError(str(error), name=fullname) from None
        except AttributeError:
            return
        if callable(found):
            text = f"{fullname} is not available: it is no module here; write from {parent} import {child}"
            raise ModuleNotFoundError(text, name=fullname)


def _refuse(path: str, cure: str, frame: Any) -> NoReturn:
    """`frame`: of the one who asks. ``from module import name`` lets an ImportError through, and no AttributeError."""
    text = f"{path} is not available: {cure}"
    if frame.f_code.co_name == "_handle_fromlist":
        raise ImportError(text, name=path)
    raise AbsentFeatureError(text)


def refusing(module: str, cure: str) -> Callable[[str], Any]:
    """A ``__getattr__`` for a module that lacks what PyTorch's has. The module needs a ``__path__``: then ``from module import
    name`` asks it in a way that lets the message through.
    """

    def __getattr__(name: str) -> Any:
        path = f"{module}.{name}"
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        _refuse(path, cure, sys._getframe(1))

    return __getattr__


_WHOLE = ("amp", "nn.init")  # modules that lack no name of PyTorch's

shown_package: str | None = None  # a script that says torch is told of torch


def cure_of(module: str, name: str) -> str | None:
    """What to do instead of ``module.name``, in PyTorch's words for both; None for names that it does not have."""
    for patterns, cure in NAMES.get(module, ()):
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split()):
            return cure
    return None


def similar(name: str, names: Iterable[str]) -> str:
    """A question after the name that was meant, where one is near but for capitals, or is longer at the end."""
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches

    low = name.lower()
    known = {k.lower(): k for k in sorted(names, reverse=True) if k[:1] != "_"}
    near = get_close_matches(low, [k for k in known if abs(len(k) - len(low)) < 3 or k.startswith(low)], 1, 0.75)
    return f"Did you mean: '{known[near[0]]}'?" if near else ""


def _no_attribute(module: ModuleType, path: str, name: str) -> AttributeError:
    """For a name that is neither there nor known to be PyTorch's: all public ones are."""
    shown = f"{shown_package}.{path}".rstrip(".") if shown_package else module.__name__
    text = f"module '{shown}' has no attribute '{name}'"
    if name.startswith("_"):
        return AttributeError(text, name=name, obj=module)
    near = similar(name, dir(module))
    # Python asks after similar names too where it knows the object: once is enough.
    return AttributeError(f"{text}. PyTorch has no such name there{'. ' * bool(near)}{near}", name=name, obj=None if near else module)


def _hinting(module: ModuleType, path: str) -> Callable[[str], Any]:
    """A ``__getattr__`` that knows the names of NAMES, and asks the one that the module has for the others."""
    other = vars(module).get("__getattr__")

    def __getattr__(name: str) -> Any:
        if other is not None:
            try:
                return other(name)
            except NotImplementedError:
                raise
            except AttributeError:
                pass
        cure = None if name.startswith("_") else cure_of(path, name)
        if cure is None:
            raise _no_attribute(module, path, name)
        _refuse(f"{module.__name__}.{name}", cure, sys._getframe(1))

    return __getattr__


class AbsentAttribute(property):
    """An attribute of tensors that says what to do instead."""

    def __init__(self, name: str, cure: str) -> None:
        def get(tensor: Any) -> Any:
            raise AbsentFeatureError(f"Tensor.{name} is not available: {cure}")

        super().__init__(get, doc=f"Not available here: {cure}.")


def teach(module: ModuleType, path: str) -> None:
    """Lets a module say what to do instead of the names of NAMES[path] that it lacks."""
    module.__getattr__ = _hinting(module, path)  # type: ignore[method-assign]
    if type(module) is ModuleType:
        module.__class__ = _C.PackageModule
    vars(module).setdefault("__path__", [])


def register_names(package: str, tensor: type) -> None:
    """Lets modules and tensors say what to do instead of the names that they lack. Patterns with wildcards stand for modules only."""
    for path in (*NAMES, *_WHOLE):
        if path not in ("Tensor", "multiprocessing"):
            teach(sys.modules[f"{package}.{path}" if path else package], path)
    for patterns, cure in NAMES["Tensor"]:
        for name in patterns.split():
            for full in TENSOR_FAMILIES.get(name, (name,)):
                if not hasattr(tensor, full):
                    setattr(tensor, full, AbsentAttribute(full, cure))


def register(package: str) -> None:
    """Puts a module for each of MODULES into ``sys.modules`` and into its parent, unless there is one. Imports of others say what to do
    instead."""
    sys.meta_path.append(_CureFinder(package))
    for path, cure in MODULES.items():
        name = f"{package}.{path}"
        if name in sys.modules:
            continue
        module = ModuleType(name, f"Not available here: {cure}.")
        module.__path__ = []
        module.__spec__ = ModuleSpec(name, None, is_package=True)  # it can be imported: importlib.util.find_spec asks for this
        vars(module).update(_ANSWERS.get(path, {}))
        module.__getattr__ = refusing(name, cure)  # type: ignore[method-assign]
        sys.modules[name] = module
        parent, _, child = name.rpartition(".")
        setattr(sys.modules[parent], child, module)


def answer(module: str, **names: Any) -> None:
    """What such a module has all the same, that is made elsewhere."""
    vars(sys.modules[module]).update(names)
