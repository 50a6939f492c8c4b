"""Printing against texts that PyTorch 2.15 printed for the same numbers (print_cases.json), and tensors end to end."""

import json
import pathlib

import ml_dtypes
import numpy as np
import pytest

import ampnative as amp
from ampnative import _tensor_str

CASES = json.loads((pathlib.Path(__file__).parent / "print_cases.json").read_text())
USUAL = ("float32", "complex64", "int64", "bool")


@pytest.fixture(autouse=True)
def default_options():
    _tensor_str.set_printoptions(profile="default")
    yield
    _tensor_str.set_printoptions(profile="default")


def values(case):
    if case["dtype"].startswith("complex"):
        flat = np.array([complex(*v) for v in case["values"]], case["dtype"])
    elif case["dtype"] in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        flat = np.array(case["values"], np.float32).astype(getattr(ml_dtypes, case["dtype"]))
    else:
        flat = np.array(case["values"], case["dtype"])
    return flat.reshape(case["shape"])


def history(case):
    return "requires_grad=True" if case["requires_grad"] else ""


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_text_of_arrays(case):
    _tensor_str.set_printoptions(**case["options"])
    text = _tensor_str.describe(
        values(case),
        case["shape"],
        f"torch.{case['dtype']}",
        usual_dtype=case["dtype"] in USUAL,
        default_dtype=case["dtype"] == "float32",
        history=history(case),
    )
    assert text == case["text"]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_repr_of_tensors(case):
    amp.set_printoptions(**case["options"])
    tensor = amp.from_numpy(values(case))
    if case["requires_grad"]:
        tensor.requires_grad_()
    # The longer module name may move the suffixes to a line of their own.
    assert repr(tensor).split() == case["text"].replace("torch.", "ampnative.").split()


def test_history_and_device():
    x = amp.ones(2, requires_grad=True)
    assert repr(x * 2) == "tensor([2., 2.], grad_fn=<MulBackward0>)"
    assert repr(amp.ones(2, 3, device="meta")) == "tensor(..., device='meta', size=(2, 3))"
    with amp.cuda.emulate():
        y = amp.ones(2, device="cuda")
        assert repr(y) == "tensor([1., 1.], device='cuda:0')"


def test_printing_does_not_export():
    """A storage that NumPy can write to is not cached; looking at a tensor must not have that effect."""
    x = amp.ones(2)
    version = x._version
    repr(x)
    assert x._version == version


def test_options():
    with _tensor_str.printoptions(precision=2):
        assert repr(amp.tensor(1.2345)) == "tensor(1.23)"
        assert _tensor_str.get_printoptions()["precision"] == 2
    assert repr(amp.tensor(1.2345)) == "tensor(1.2345)"
    with pytest.raises(ValueError, match="unknown profile"):
        amp.set_printoptions(profile="long")
