"""testing.assert_close and make_tensor, against PyTorch's texts and numbers."""

import importlib

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

testing = importlib.import_module(torch.__name__ + ".testing")
close = testing.assert_close
t = torch.tensor

EQUAL = [
    (t([1.0, 2.0]), t([1.0, 2.0]), {}),
    (t([1.0]), t([1.0000001]), {}),
    (t([1.0], dtype=torch.float16), t([1.0], dtype=torch.float16), {}),
    (t([1.0, 2.0]), t([1.0, 2.0]).double(), {"check_dtype": False}),
    (t(float("nan")), t(float("nan")), {"equal_nan": True}),
    (t([float("inf"), 1.0]), t([float("inf"), 1.0]), {}),
    (t([1.0]), t([1.1]), {"rtol": 0.2, "atol": 0}),
    ([t(1.0), {"a": t(2.0)}], [t(1.0), {"a": t(2.0)}], {}),
    (torch.nn.Parameter(t([1.0])), t([1.0]), {}),
    (None, None, {}),
    (1, 1.0, {"check_dtype": False}),
    (1j, 1j, {}),
    (torch.ones(0), torch.ones(0), {}),
    (np.ones(2), np.ones(2), {}),
]


@pytest.mark.parametrize("actual, expected, options", EQUAL)
def test_close(actual, expected, options):
    close(actual, expected, **options)


DIFFERENT = [  # the words of torch 2.15.0
    (t([[1.0, 2.0], [4.0, 8.0]]), t([[1.0, 4.0], [4.0, 16.0]]), {}, "Tensor-likes are not close!\n\n"
     "Mismatched elements: 2 / 4 (50.0%)\nGreatest absolute difference: 8.0 at index (1, 1) (up to 1e-05 allowed)\n"
     "Greatest relative difference: 0.5 at index (0, 1) (up to 1.3e-06 allowed)"),
    (t([1, 2]), t([1, 4]), {}, "Tensor-likes are not equal!\n\nMismatched elements: 1 / 2 (50.0%)\n"
     "Greatest absolute difference: 2 at index (1,)\nGreatest relative difference: 0.5 at index (1,)"),
    (1.0, 2.0, {}, "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-07 allowed)\n"
     "Relative difference: 0.5 (up to 1e-07 allowed)"),
    (1, 2, {}, "Scalars are not equal!\n\nExpected 2 but got 1.\nAbsolute difference: 1\nRelative difference: 0.5"),
    (t(1.0), t(2.0), {}, "Scalars are not close!\n\nExpected 2.0 but got 1.0.\nAbsolute difference: 1.0 (up to 1e-05 allowed)\n"
     "Relative difference: 0.5 (up to 1.3e-06 allowed)"),
    (torch.ones(2, 3), torch.ones(3, 2).t(), {"check_stride": True}, "The values for attribute 'stride()' do not match: (3, 1) != (1, 2)."),
    (t(float("nan")), t(float("nan")), {}, "Scalars are not close!\n\nExpected nan but got nan.\nAbsolute difference: nan"
     " (up to 1e-05 allowed)\nRelative difference: nan (up to 1.3e-06 allowed)"),
    ([t(1.0), t(2.0)], [t(1.0)], {}, "The length of the sequences mismatch: 2 != 1"),
    ({"a": 1.0}, {"b": 1.0}, {}, "The keys of the mappings do not match:\nMissing keys in the actual mapping: ['b']\n"
     "Additional keys in the actual mapping: ['a']"),
    ({"a": [1.0, 2.0]}, {"a": [1.0, 4.0]}, {}, "Scalars are not close!\n\nExpected 4.0 but got 2.0.\n"
     "Absolute difference: 2.0 (up to 1e-07 allowed)\nRelative difference: 0.5 (up to 1e-07 allowed)\n\n"
     "The failure occurred for item ['a'][1]"),
    (t([True]), t([False]), {}, "Tensor-likes are not equal!\n\nMismatched elements: 1 / 1 (100.0%)\n"
     "Greatest absolute difference: 1 at index (0,)\nGreatest relative difference: inf at index (0,)"),
    (t([1.0]), t([2.0]), {"msg": "my words"}, "my words"),
    (1, 1.0, {}, "The (d)types do not match: <class 'int'> != <class 'float'>."),
]  # fmt: skip


@pytest.mark.parametrize("actual, expected, options, text", DIFFERENT)
def test_not_close(actual, expected, options, text):
    with pytest.raises(AssertionError) as caught:
        close(actual, expected, **options)
    assert str(caught.value) == text


def test_attributes_message_and_kinds():
    with pytest.raises(AssertionError, match="attribute 'shape' do not match"):
        close(torch.ones(2), torch.ones(1))
    with pytest.raises(AssertionError, match="attribute 'dtype' do not match"):
        close(torch.ones(2), torch.ones(2).double())
    with pytest.raises(AssertionError, match="HEAD\nTensor-likes are not close!"):
        close(torch.ones(2), torch.zeros(2), msg=lambda text: "HEAD\n" + text)
    with pytest.raises(AssertionError, match="None mismatch"):
        close(None, torch.ones(1))
    with pytest.raises(ValueError, match="must be either specified or omitted, but got no atol"):
        close(1.0, 1.0, rtol=0.1)
    for a, b in ((torch.ones(1), 1.0), (torch.ones(1), [1.0]), ("a", "a"), (np.ones(2), torch.ones(2))):
        with pytest.raises(TypeError, match="No comparison pair was able to handle inputs"):
            close(a, b)
    with pytest.raises(TypeError):
        close(torch.nn.Parameter(torch.ones(1)), torch.ones(1), allow_subclasses=False)


@pytest.mark.parametrize("dtype, rtol", [("float16", 1e-3), ("bfloat16", 1.6e-2), ("float32", 1.3e-6), ("float64", 1e-7)])
def test_tolerances(dtype, rtol):
    dtype = getattr(torch, dtype)
    expected = torch.full((1,), 1024.0, dtype=dtype)
    eps = torch.finfo(dtype).eps
    step = max(1, int(0.9 * rtol / eps)) * eps  # a number that the dtype has, just inside the tolerance
    if step < rtol:
        close(expected * (1 + step), expected)
    with pytest.raises(AssertionError):
        close(expected * (1 + 4 * max(rtol, eps)), expected)


# torch 2.15.0, seed 0
MADE = {"float32": [-0.0674, 4.8280, -7.4074], "int64": [-4, -8, -6], "bool": [False, True, True]}


def test_make_tensor():
    torch.manual_seed(0)
    made = testing.make_tensor(3, dtype=torch.float32, device="cpu")
    assert made.tolist() == pytest.approx([-0.0674, 4.8280, -7.4074], abs=1e-4)
    torch.manual_seed(0)
    made = testing.make_tensor(2, 2, dtype=torch.float32, device="cpu", low=0, high=1, requires_grad=True, noncontiguous=True)
    assert made.reshape(-1).tolist() == pytest.approx([0.7682, 0.1320, 0.6341, 0.8964], abs=1e-4)
    assert made.stride() == (4, 2) and made.is_leaf and made.requires_grad
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool):
        made = testing.make_tensor((50,), dtype=dtype, device="cpu")
        low, high = (0, 1) if dtype == torch.bool else (0, 9) if dtype == torch.uint8 else (-9, 9)
        assert made.dtype == dtype and low <= min(made.tolist()) and max(made.tolist()) <= high
    assert testing.make_tensor(200, dtype=torch.int32, device="cpu", low=-1, high=2, exclude_zero=True).eq(0).sum().item() == 0
    assert testing.make_tensor((), dtype=torch.float32, device="cpu").shape == ()
    with pytest.raises(ValueError, match="`requires_grad=True` is not supported for boolean and integral dtypes"):
        testing.make_tensor(2, dtype=torch.int64, device="cpu", requires_grad=True)
    with pytest.raises(ValueError, match="`low` must be less than `high`"):
        testing.make_tensor(2, dtype=torch.float32, device="cpu", low=3, high=1)


@pytest.mark.skipif(IS_PYTORCH, reason="emulated CUDA")
def test_on_emulated_cuda():
    with torch.cuda.emulate():
        a = testing.make_tensor(4, dtype=torch.float16, device="cuda")
        close(a, a.clone())
        with pytest.raises(AssertionError, match="attribute 'device' do not match"):
            close(a, a.cpu())
        close(a, a.cpu(), check_device=False)
