"""help() tells what a user needs: each public op, function, class and method has a text of its own."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import ampnative
from ampnative import _C

TABLE = Path(__file__).parents[1] / "csrc" / "core" / "ops_doc.def"
FUNCTION, METHOD, IN_PLACE, NN, PRIVATE = (1 << i for i in range(5))

DOCUMENTED = re.findall(r'^OP_DOC\("(\w+)"', TABLE.read_text(), re.MULTILINE) if TABLE.is_file() else []

pytestmark = pytest.mark.skipif(not TABLE.is_file(), reason="these checks read the source tree")
ROWS = defaultdict(list)
for _row in _C.op_rows():
    if not _row["variants"] & PRIVATE:
        ROWS[_row["name"]].append(_row)


def test_the_table_is_in_order_and_names_each_op_once():
    assert sorted(DOCUMENTED, key=str.encode) == DOCUMENTED  # the core searches it by halves
    assert len(set(DOCUMENTED)) == len(DOCUMENTED)


def test_every_public_op_has_a_text():
    missing = [name for name in ROWS if not name.startswith("_") and name not in DOCUMENTED]
    assert missing == []
    assert set(DOCUMENTED) <= {row["name"] for row in _C.op_rows()}  # private ones too: linalg calls them by other names


def entries(name: str) -> Iterator[tuple[str, Any, list[dict]]]:
    """The places where an op can be called: what it is called there, the object and its overloads."""
    places = [
        (FUNCTION, _C.functions, name),
        (METHOD, ampnative.Tensor, name),
        (IN_PLACE, ampnative.Tensor, name + "_"),
        (NN, _C.nn, name),
    ]
    for variant, place, spelling in places:
        rows = [row for row in ROWS[name] if row["variants"] & variant]
        if rows:
            yield f"{place.__name__}.{spelling}", getattr(place, spelling), rows


def test_each_entry_shows_its_overloads_and_the_text():
    for name in DOCUMENTED:
        for spelling, entry, rows in entries(name):
            signatures, _, text = entry.__doc__.partition("\n\n")
            assert len(signatures.splitlines()) == len(rows), spelling
            assert len(text) > 8 and text.rstrip().endswith("."), spelling


def test_inspect_understands_ops_with_one_overload():
    for name in ROWS:
        for spelling, entry, rows in entries(name):
            if len(rows) > 1:
                continue  # overloads
            parameters = [part.split("=")[0].split()[-1] for part in rows[0]["signature"].split(", ") if part != "*"]
            shown = list(inspect.signature(entry).parameters)
            method = not spelling.startswith("ampnative._C.")
            if method:  # accessed through the class: self is shown; methods do not take out=
                parameters = ["self", *(p for p in parameters[1:] if p != "out")]
            assert shown == parameters, spelling


def modules() -> list[ModuleType]:
    found = [ampnative]
    for info in pkgutil.walk_packages(ampnative.__path__, "ampnative."):
        if not any(part.startswith("_") for part in info.name.split(".")):
            found.append(importlib.import_module(info.name))
    return found


MODULES = modules()


def ours(thing: Any) -> bool:
    return (getattr(thing, "__module__", None) or "").split(".")[0] == "ampnative"


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    for name in sorted({*vars(module), *getattr(module, "__all__", ())}):  # those of __all__ may be made when asked for
        if not name.startswith("_"):
            thing = getattr(module, name)
            if ours(thing) and callable(thing):
                yield name, thing


def own_text(thing: Any) -> str:
    """Without what dataclasses and named tuples make up: their signature."""
    text = vars(thing).get("__doc__") if isinstance(thing, type) else getattr(thing, "__doc__", None)
    return re.sub(rf"\A{getattr(thing, '__name__', '')}\(.*\)\Z", "", (text or "").strip(), flags=re.DOTALL)


def methods(cls: type) -> Iterator[tuple[str, str, list[Any]]]:
    """The public methods and properties that classes of ours define: where, the name, and the functions it overrides last."""
    for name in dir(cls):
        definers = [base for base in cls.__mro__ if name in vars(base)]
        if name.startswith("_") or not ours(definers[0]):
            continue
        members = [vars(base)[name] for base in definers]
        functions = [m.__func__ if isinstance(m, (staticmethod, classmethod)) else m for m in members]
        described = inspect.isdatadescriptor(functions[0]) and not inspect.ismemberdescriptor(functions[0])  # not __slots__
        if (callable(functions[0]) or described) and not isinstance(functions[0], type):
            yield f"{definers[0].__module__}.{definers[0].__name__}", name, functions


def test_public_names_of_the_package():
    """A class says itself what it is; a method that overrides a documented one may leave that to its base."""
    missing = {module.__name__ for module in MODULES if not module.__doc__}
    for module in MODULES:
        for name, thing in public(module):
            if not own_text(thing):
                missing.add(f"{thing.__module__}.{name}")
            if isinstance(thing, type):
                for where, method, functions in methods(thing):
                    if not any(own_text(function) for function in functions):
                        missing.add(f"{where}.{method}")
    assert not missing, "no docstring of their own: " + ", ".join(sorted(missing))
