"""nn.utils.prune, and layers fused with the batch norm behind them."""

import importlib

import pytest
from golden_tools import torch

nn = torch.nn
prune = importlib.import_module(f"{torch.__name__}.nn.utils.prune")


def layer():
    """With the weights that PyTorch draws for seed 0."""
    torch.manual_seed(0)
    return nn.Linear(4, 3)


def test_l1_unstructured():
    module = layer()
    original, kept = module.weight, module.weight.detach().clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    assert prune.l1_unstructured(module, "weight", amount=0.3) is module and prune.is_pruned(module)
    mask = torch.tensor([[0.0, 1, 1, 1], [1, 1, 0, 1], [0, 1, 1, 0]])
    assert list(module.state_dict()) == ["bias", "weight_orig", "weight_mask"] and torch.equal(module.weight_mask, mask)
    assert module.weight_orig is original and torch.equal(module.weight, kept * mask)
    module(torch.ones(1, 4)).sum().backward()
    assert torch.equal(original.grad, mask)
    optimizer.step()
    module(torch.ones(1, 4))
    assert torch.allclose(module.weight, (kept - 0.1 * mask) * mask)
    other = prune.identity(nn.Linear(4, 3), "weight")
    other.load_state_dict(module.state_dict())
    assert torch.equal(other(torch.ones(2, 4)), module(torch.ones(2, 4)))
    prune.remove(module, "weight")
    assert list(module.state_dict()) == ["bias", "weight"] and not prune.is_pruned(module) and module.weight is original
    assert (module.weight == 0).sum().item() == 4


def masks(method, *args, seed=None, **options):
    module = layer()
    if seed is not None:
        torch.manual_seed(seed)
    return getattr(prune, method)(module, "weight", *args, **options).weight_mask.tolist()


def test_the_other_methods():
    """Recorded masks: with a seed the random ones are PyTorch's."""
    assert masks("random_unstructured", 5, seed=1) == [[0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
    assert masks("ln_structured", amount=0.5, n=2, dim=0) == [[1] * 4, [0] * 4, [0] * 4]
    assert masks("ln_structured", amount=2, n=float("inf"), dim=1) == [[0, 0, 1, 1]] * 3
    assert masks("random_structured", seed=2, amount=1, dim=1) == [[1, 0, 1, 1]] * 3
    assert masks("l1_unstructured", amount=2, importance_scores=torch.arange(12.0).view(3, 4))[0] == [0, 0, 1, 1]
    assert masks("l1_unstructured", amount=0.04) == [[1] * 4] * 3 and masks("l1_unstructured", amount=1.0) == [[0] * 4] * 3


def test_pruning_on_top_of_pruning():
    module = prune.custom_from_mask(layer(), "weight", torch.eye(3, 4))
    prune.l1_unstructured(module, "weight", amount=1)  # the smallest of the three left
    assert module.weight_mask.nonzero().tolist() == [[1, 1], [2, 2]]
    prune.ln_structured(module, "weight", amount=1, n=1, dim=1)  # channel 1 or 2: what is empty is not asked
    assert module.weight_mask.nonzero().tolist() == [[2, 2]] and len(module._forward_pre_hooks) == 1
    prune.remove(module, "weight")
    assert (module.weight != 0).nonzero().tolist() == [[2, 2]]


def test_global_unstructured():
    first, second = layer(), nn.Linear(3, 2)
    pairs = [(first, "weight"), (second, "weight"), (first, "bias")]
    values = torch.cat([getattr(m, name).detach().reshape(-1).abs() for m, name in pairs])
    prune.global_unstructured(pairs, pruning_method=prune.L1Unstructured, amount=0.4)
    found = torch.cat([getattr(m, name + "_mask").reshape(-1) for m, name in pairs])
    assert found.tolist() == [0 if i in values.argsort()[:8].tolist() else 1 for i in range(21)]
    scores = {(second, "weight"): torch.arange(6.0).view(2, 3) - 10}
    prune.global_unstructured([(second, "weight")], prune.L1Unstructured, importance_scores=scores, amount=1)
    for parameters, options, text in [
        (pairs, {"pruning_method": prune.RandomStructured, "amount": 0.4}, 'Only "unstructured" PRUNING_TYPE supported'),
        (3, {"pruning_method": prune.L1Unstructured, "amount": 0.4}, "parameters is not an Iterable"),
    ]:
        with pytest.raises(TypeError, match=text):
            prune.global_unstructured(parameters, **options)


def test_own_methods():
    class EverySecond(prune.BasePruningMethod):
        PRUNING_TYPE = "unstructured"

        def compute_mask(self, t, default_mask):
            mask = default_mask.clone()
            mask.view(-1)[::2] = 0
            return mask

    module = layer()
    EverySecond.apply(module, "bias")
    assert module.bias_mask.tolist() == [0, 1, 0]
    method = prune.L1Unstructured(2)
    t = torch.tensor([3.0, 1, 2, -5])
    assert method.prune(t).tolist() == [3, 0, 0, -5]
    method._tensor_name = "w"
    container = prune.PruningContainer(method)
    assert len(container) == 1 and container[0] is method and list(container) == [method] and len(prune.PruningContainer()) == 0
    other = prune.L1Unstructured(1)
    other._tensor_name = "x"
    with pytest.raises(ValueError, match="Can only add pruning methods acting on the parameter named 'w'"):
        container.add_pruning_method(other)
    with pytest.raises(TypeError, match="is not a BasePruningMethod subclass"):
        container.add_pruning_method(3)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda m: prune.remove(m, "bias"), ValueError, "has to be pruned before pruning can be removed"),
        (lambda m: prune.l1_unstructured(m, "weight", amount=-1), ValueError, r"either be a float in the range \[0, 1\]"),
        (lambda m: prune.l1_unstructured(m, "weight", amount=1.5), ValueError, r"either be a float in the range \[0, 1\]"),
        (lambda m: prune.l1_unstructured(m, "weight", amount="a"), TypeError, "Invalid type for amount: a. Must be int or float"),
        (lambda m: prune.l1_unstructured(m, "weight", amount=13), ValueError, "smaller than the number of parameters to prune=12"),
        (lambda m: prune.l1_unstructured(m, "nope", amount=1), AttributeError, "nope"),
        (lambda m: prune.ln_structured(m, "bias", amount=1, n=2, dim=0), ValueError, "only be applied to multidimensional tensors"),
        (lambda m: prune.ln_structured(m, "weight", amount=1, n=2, dim=2), IndexError, "Invalid index 2 for tensor of size"),
        (
            lambda m: prune.l1_unstructured(m, "weight", amount=1, importance_scores=torch.ones(2)),
            AssertionError,
            "importance_scores should have the same shape as parameter weight",
        ),
    ],
)
def test_prune_refuses(call, error, text):
    with pytest.raises(error, match=text):
        call(layer())


@pytest.mark.parametrize(
    ("kind", "norm", "shape"),
    [("Conv1d", "BatchNorm1d", (2, 3, 6)), ("Conv2d", "BatchNorm2d", (2, 3, 6, 6)), ("ConvTranspose2d", "BatchNorm2d", (2, 3, 5, 5))],
)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("affine", [True, False])
def test_fusion_of_convolutions(kind, norm, shape, bias, affine):
    conv, bn = getattr(nn, kind)(3, 4, 3, bias=bias), getattr(nn, norm)(4, affine=affine)
    bn(torch.randn(8, 4, *shape[2:]) * 2 + 1)
    if affine:
        nn.init.normal_(bn.weight)
        nn.init.normal_(bn.bias)
    x = torch.randn(shape)
    with pytest.raises(AssertionError, match="Fusion only for eval!"):
        nn.utils.fuse_conv_bn_eval(conv, bn)
    conv.eval(), bn.eval()
    before = conv.weight.detach().clone()
    fused = nn.utils.fuse_conv_bn_eval(conv, bn, transpose="Transpose" in kind)
    assert type(fused) is type(conv) and torch.equal(conv.weight, before)
    torch.testing.assert_close(fused(x), bn(conv(x)), rtol=1e-4, atol=1e-5)
    assert fused.weight.requires_grad and fused.bias.requires_grad == bias


def test_fusion_of_linear_layers():
    linear, bn = nn.Linear(3, 4).eval(), nn.BatchNorm1d(4)
    bn(torch.randn(9, 4) * 3)
    x = torch.randn(5, 3)
    torch.testing.assert_close(nn.utils.fuse_linear_bn_eval(linear, bn.eval())(x), bn(linear(x)))
    with pytest.raises(AssertionError, match="To fuse, linear.out_features == bn.num_features or bn.num_features == 1"):
        nn.utils.fuse_linear_bn_eval(linear, nn.BatchNorm1d(2).eval())
    half = nn.Linear(3, 4, dtype=torch.bfloat16)
    weight, bias = nn.utils.fuse_linear_bn_weights(half.weight, None, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias)
    assert weight.dtype == bias.dtype == torch.bfloat16
