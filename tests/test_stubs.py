"""The type stubs beside the extension say what the module has."""

import ast
import importlib.machinery
import importlib.util
import types
from pathlib import Path

import pytest

import ampnative
import ampnative._C as C
import ampnative._functions as functions
from ampnative._features import AbsentAttribute

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / ".ci" / "stubs"
# What every class has, and what only the C side reads; deleting items is refused. The buffer methods have names from Python 3.12 on.
INHERITED = {
    "__setattr__", "__delattr__", "__doc__", "__module__", "__dict__", "__weakref__", "__delitem__", "__buffer__", "__release_buffer__",
}  # fmt: skip

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="these checks read the source tree")


def names_of(body: list[ast.stmt]) -> set[str]:
    """Names that statements of a stub define."""
    names = set()
    for node in body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign):
            names.add(ast.unparse(node.target))
        elif isinstance(node, ast.ImportFrom):
            names |= {a.asname for a in node.names if a.asname}
    return names


def stub(name: str) -> list[ast.stmt]:
    return ast.parse((ROOT / "ampnative" / name).read_text(encoding="utf-8")).body


def public(names) -> set[str]:
    return {n for n in names if not n.startswith("_")}


def class_of(body: list[ast.stmt], name: str) -> list[ast.stmt]:
    return next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == name)


def test_stubs_are_what_the_generator_makes():
    loader = importlib.machinery.SourceFileLoader("stubs_script", str(SCRIPT))
    spec = importlib.util.spec_from_loader("stubs_script", loader)
    script = importlib.util.module_from_spec(spec)
    loader.exec_module(script)
    difference = script.difference(ROOT)
    assert not difference, f"run python .ci/stubs\n{difference[:4000]}"


@pytest.mark.parametrize(
    "module, file", [(C.functions, "functions"), (C.nn, "nn"), (C.dtypes, "dtypes"), (C, "__init__")]
)
def test_names_of_modules(module, file):
    assert public(names_of(stub(f"_C/{file}.pyi"))) == public(vars(module))


def test_private_names_of_the_module_are_declared():
    private = {n for n in vars(C) if n.startswith("_") and not n.startswith("__")}
    assert private <= names_of(stub("_C/__init__.pyi"))


def test_names_of_the_python_functions():
    assert public(names_of(stub("_functions.pyi"))) == set(functions.__all__)


@pytest.mark.parametrize(
    "name", [n for n, v in vars(C).items() if isinstance(v, type) and not n.startswith("_return_")]
)
def test_members_of_classes(name):
    members = {n: m for n, m in vars(getattr(C, name)).items() if not isinstance(m, AbsentAttribute)}
    found, real = names_of(class_of(stub("_C/__init__.pyi"), name)), set(members)
    if name == "Tensor":
        assert found == real - INHERITED
    assert public(found) == public(real)
    assert not {n for n in found if not hasattr(getattr(C, name), n)}


def test_names_of_the_package():
    body = stub("__init__.pyi")
    stars = [node.module for node in body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"]
    found = names_of(body).union(*(names_of(stub(m.replace("_C.", "_C/") + ".pyi")) for m in stars))
    modules = {n for n, v in vars(ampnative).items() if isinstance(v, types.ModuleType)}  # by whoever imported them
    assert public(vars(ampnative)) - modules == public(found) - modules


def test_extension_wins_over_the_stub_folder():
    assert C.__file__.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
