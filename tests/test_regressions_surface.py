"""Faults that were found at the edges of functions of the package, one test each."""

import importlib
import warnings

import pytest
from golden_tools import IS_PYTORCH, torch

prune = importlib.import_module(torch.__name__ + ".nn.utils.prune")


@pytest.mark.skipif(IS_PYTORCH, reason="PyTorch takes all memory for them")
def test_tensor_split_into_more_parts_than_memory_holds():
    with pytest.raises(RuntimeError, match="parts"):
        torch.tensor_split(torch.zeros(3), 10**18)
    assert len(torch.tensor_split(torch.zeros(3), 5)) == 5


def test_ldl_of_empty_matrices():
    assert [tuple(t.shape) for t in torch.linalg.ldl_factor(torch.zeros(0, 0))] == [(0, 0), (0,)]
    assert [tuple(t.shape) for t in torch.linalg.ldl_factor_ex(torch.zeros(2, 0, 0))] == [(2, 0, 0), (2, 0), (2,)]


def test_a_pruning_method_is_found_among_the_hooks():
    layer = torch.nn.Linear(3, 3)
    prune.l1_unstructured(layer, "weight", 0.3)
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.L1Unstructured)
    prune.random_unstructured(layer, "weight", 1)
    (hook,) = layer._forward_pre_hooks.values()
    assert isinstance(hook, prune.PruningContainer) and len(hook) == 2 and hook._tensor_name == "weight"
    with torch.no_grad():
        layer.weight_orig.fill_(2.0)
    layer(torch.zeros(1, 3))
    assert sorted(layer.weight.flatten().tolist()) == [0.0] * 4 + [2.0] * 5
    prune.remove(layer, "weight")
    assert not layer._forward_pre_hooks and not prune.is_pruned(layer)


def test_true_is_no_amount_to_prune():
    with pytest.raises(TypeError):
        prune.l1_unstructured(torch.nn.Linear(3, 3), "weight", True)


def test_lazy_layers_do_not_switch_gradients_off():
    with pytest.raises(ValueError, match="uninitialized parameter"):
        torch.nn.LazyLinear(3).requires_grad_(False)


def test_compile_refuses_what_pytorch_refuses():
    with pytest.raises(AssertionError, match="callable"):
        torch.compile(3)
    with pytest.raises(RuntimeError, match="Invalid backend"):
        torch.compile(torch.nn.Linear(1, 1), backend="nope")(torch.zeros(1, 1))
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        torch.compile(torch.nn.Linear(1, 1), mode="nope")
    with pytest.raises(RuntimeError, match="mode or options"):
        torch.compile(torch.nn.Linear(1, 1), mode="default", options={"a": 1})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.compile(torch.nn.Linear(1, 1), backend="eager", dynamic=True)(torch.zeros(1, 1)).shape == (1, 1)


@pytest.mark.parametrize("kind", [int, float, bool])
def test_python_types_are_no_tensor_types(kind):
    with pytest.raises(ValueError, match="invalid type"):
        torch.zeros(2).type(kind)


def test_conv_transpose_of_no_samples():
    x, w = torch.zeros(0, 2, 3, 3, requires_grad=True), torch.ones(2, 4, 2, 2, requires_grad=True)
    y = torch.nn.functional.conv_transpose2d(x, w, torch.ones(4))
    assert y.shape == (0, 4, 4, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape and w.grad.abs().sum() == 0


def test_densities_of_nothing_are_nan_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hist, edges = torch.histogram(torch.zeros(0), 3, density=True)
    assert hist.isnan().all() and edges.shape == (4,)


def test_frexp_into_given_tensors():
    mantissa, exponent = torch.empty(2), torch.empty(2, dtype=torch.int32)
    pair = torch.frexp(torch.tensor([3.0, 0.5]), out=(mantissa, exponent))
    assert mantissa.tolist() == [0.75, 0.5] and exponent.tolist() == [2, 0] and pair[0] is mantissa
    assert pair.exponent is exponent
    for out in ((torch.empty(1), torch.empty(1)), (torch.empty(1, dtype=torch.float64), exponent[:1])):
        with pytest.raises(RuntimeError):
            torch.frexp(torch.tensor([3.0]), out=out)
    with pytest.raises(TypeError):
        torch.frexp(torch.tensor([3.0]), out=torch.empty(1))
