"""Functions of the op table as Python's own tools see them: help(), inspect, pickle."""

import inspect
import pickle
import pydoc
import types

import pytest

import ampnative
from ampnative.nn import functional as F


@pytest.mark.parametrize("name", ["add", "mm", "softmax", "relu", "cat"])
def test_help_shows_a_function(name):
    text = pydoc.plaintext.document(getattr(ampnative, name))
    assert "instance" not in text.split("\n")[0] and text.startswith(f"{name}(")
    assert "Tensor" in text and getattr(ampnative, name).__module__ == "ampnative"


def test_help_of_functional():
    text = pydoc.plaintext.document(F.relu)
    assert "instance" not in text.split("\n")[0] and F.relu.__module__ == "ampnative.nn.functional"


def test_a_function_kept_in_a_class_is_no_method():
    class Layer:
        act = F.relu

    assert Layer().act is F.relu
    assert str(inspect.signature(ampnative.add)) == "(input, other, *, alpha=1, out=None)"


@pytest.mark.parametrize("home", [ampnative, F, ampnative.linalg])
def test_functions_are_pickled_by_name(home):
    found = [f for f in vars(home).values() if isinstance(f, types.BuiltinFunctionType)]
    assert len(found) > 3
    for f in found:
        assert pickle.loads(pickle.dumps(f)) is f
