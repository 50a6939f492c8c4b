"""Run an untouched PyTorch script: ``import torch...`` finds ampnative.

A finder in front of all others answers for the name "torch" and everything below it. It loads the ampnative module of
the same path and puts that very object into ``sys.modules`` under torch's name, so ``torch.nn is ampnative.nn`` and no
module exists twice.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import io
import os
import runpy
import sys
from collections.abc import Sequence
from types import ModuleType, TracebackType
from typing import Any

from . import _features

__all__ = ["install", "run_module", "run_script"]

_LIKE = "2.15.0"  # the PyTorch release that was recorded
# Modules that stand for nothing in PyTorch.
_OWN = frozenset(
    {"__main__", "_absent", "_deprecated", "_features", "_replacing", "_run", "_saved_nodes", "_switches", "_wrong_arguments"}
    | {"cli", "recipe"}
)


class _Alias(importlib.abc.Loader):
    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def exec_module(self, module: ModuleType) -> None:
        # The import system takes whatever lies in sys.modules afterwards; `module` was only its placeholder.
        sys.modules[module.__name__] = self._module


class _TorchFinder(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        head, _, rest = fullname.partition(".")
        if head != "torch":
            return None
        importing = _features.importing(sys._getframe(1))
        own = "ampnative" + ("." + rest if rest else "")
        if rest in _OWN:  # whoever asks: the finders behind this one would find its file
            raise _missing(fullname)
        try:
            module = importlib.import_module(own)
        except ModuleNotFoundError as error:
            if error.name is None or not (own == error.name or own.startswith(error.name + ".")):
                raise
            if not importing:
                return None
            if ": " in str(error):  # what to do instead, if it is PyTorch's
                raise ModuleNotFoundError(str(error), name=fullname) from None
            raise _missing(fullname) from None
        _explain_missing(module, fullname)
        return importlib.machinery.ModuleSpec(fullname, _Alias(module), is_package=hasattr(module, "__path__"))


def _missing(fullname: str) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"ampnative does not have the module {fullname!r}", name=fullname)


def _explain_missing(module: ModuleType, fullname: str) -> None:
    """Let a missing attribute say whose it is."""
    if "__getattr__" in vars(module):
        return

    def __getattr__(name: str) -> Any:
        near = _features.similar(name, vars(module))
        text = f"ampnative does not have {fullname}.{name}{'. ' * bool(near)}{near}"
        raise AttributeError(text, name=name, obj=None if near else module)

    vars(module)["__getattr__"] = __getattr__


def install() -> None:
    """Let ``import torch`` and its submodules find ampnative in this process. A PyTorch that is installed is not seen
    any more. ``torch.__version__`` then names the PyTorch release whose behaviour this is: "2.15.0+ampnative.0.1.0".

    Raises:
        RuntimeError: PyTorch itself has been imported already.
    """
    import ampnative

    _features.shown_package = "torch"
    # Scripts ask whether PyTorch is new enough: the answer is the version whose behaviour this is.
    if not ampnative.__version__.startswith(_LIKE):
        ampnative.__version__ = f"{_LIKE}+ampnative.{ampnative.__version__}"
    present = sys.modules.get("torch")
    if present is not None and present is not ampnative:
        raise RuntimeError("PyTorch is imported already in this process; ampnative cannot take its name any more")
    if not any(isinstance(finder, _TorchFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchFinder())
        _teach_child_processes()


class _InstallOnArrival:
    """Unpickling it calls install()."""

    def __reduce__(self) -> tuple[Any, ...]:
        return install, ()


def _teach_child_processes() -> None:
    """Let processes that ``multiprocessing`` starts afresh (spawn, forkserver) find ampnative as well. The first thing
    such a child reads is a dict; only then it imports the script."""
    from multiprocessing import set_forkserver_preload, spawn

    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**prepare(name), "ampnative": _InstallOnArrival()}

    spawn.get_preparation_data = get_preparation_data
    set_forkserver_preload([])  # by default the script itself, in a process that reads no such dict


def _hide_launcher(previous: Any) -> Any:
    """An excepthook that shows a traceback as ``python script.py`` would: without the frames that lead to the script,
    and without those of this module at its end."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        trace = _script_part(trace)
        previous(kind, error.with_traceback(trace), trace)

    hook.hides_launcher = True  # type: ignore[attr-defined]
    return hook


def _script_part(trace: TracebackType | None) -> TracebackType | None:
    starts = (run_script.__code__, run_module.__code__)
    entry = trace
    while entry is not None and entry.tb_frame.f_code not in starts:
        entry = entry.tb_next
    if entry is None:  # not from a script that this module runs
        return trace
    entry = entry.tb_next
    while entry is not None and _file(entry).startswith(("<frozen runpy", "<frozen importlib")):
        entry = entry.tb_next
    first = last = entry
    while entry is not None:
        if _file(entry) != __file__ and not _file(entry).startswith("<frozen importlib"):
            last = entry
        entry = entry.tb_next
    if last is not None and last.tb_next is not None and _ends_here(last.tb_next):
        last.tb_next = None
    return first


def _file(trace: TracebackType) -> str:
    return trace.tb_frame.f_code.co_filename


def _ends_here(trace: TracebackType) -> bool:
    """Whether this module raised, and not the import system by itself."""
    entry: TracebackType | None = trace
    while entry is not None:
        if _file(entry) == __file__:
            return True
        entry = entry.tb_next
    return False


def _start() -> None:
    install()
    if not hasattr(sys.excepthook, "hides_launcher"):
        sys.excepthook = _hide_launcher(sys.excepthook)


def run_script(path: str, args: Sequence[str]) -> None:
    """Execute a file as ``__main__`` with ``sys.argv = [path, *args]``, as ``python path args`` does: ``__file__`` and tracebacks
    have the absolute path."""
    _start()
    sys.argv[:] = [path, *args]
    path = os.path.join(os.getcwd(), path)
    if os.path.isdir(path):
        sys.path[0], path = path, os.path.join(path, "__main__.py")
    else:
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=__builtins__, __cached__=None, __spec__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def run_module(name: str, args: Sequence[str]) -> None:
    """Execute a module as ``__main__``, as ``python -m name args`` does."""
    _start()
    sys.argv[:] = [name, *args]
    sys.path[0] = os.getcwd()
    runpy.run_module(name, run_name="__main__", alter_sys=True)
