"""Checkpoints that keep the results of some ops: which ones are asked about, kept and given back, and that gradients stay right."""

import gc
import importlib
import weakref

import pytest
from golden_tools import IS_PYTORCH, torch

ours = pytest.mark.skipif(IS_PYTORCH, reason="what ampnative does in its own way")
F = torch.nn.functional
C = importlib.import_module(torch.__name__ + ".utils.checkpoint")
P = C.CheckpointPolicy
aten = torch.ops.aten


def saving(policy, **options):
    return lambda: C.create_selective_checkpoint_contexts(policy, **options)


def keeping(*names):
    return lambda ctx, op, *args, **kwargs: P.MUST_SAVE if str(op).split(".")[1] in names else P.MUST_RECOMPUTE


def gradients(function, *inputs, **options):
    leaves = [t.detach().clone().requires_grad_() for t in inputs]
    out = C.checkpoint(function, *leaves, use_reentrant=False, **options) if options else function(*leaves)
    out.sum().backward()
    return [t.grad for t in leaves]


A = torch.tensor([[0.1, 0.7], [-0.4, 0.3]])
B = torch.tensor([[0.5, -0.2], [0.9, 0.6]])


def chain(a, b):
    return torch.sigmoid(torch.mm(a, b)).sin()


@pytest.mark.parametrize("policy", list(P) + [True, False, None])
def test_every_policy_gives_the_same_gradients(policy):
    asked = []

    def ask(ctx, op, *args, **kwargs):
        asked.append((ctx.is_recompute, str(op)))
        return policy

    got = gradients(chain, A, B, context_fn=saving(ask))
    assert asked == [(False, "aten.mm.default"), (False, "aten.sigmoid.default"), (False, "aten.sin.default")]
    for g, want in zip(got, gradients(chain, A, B), strict=True):
        assert torch.equal(g, want)


def test_lists_of_ops():
    got = gradients(chain, A, B, context_fn=saving([aten.mm.default, aten.sin.default]))
    for g, want in zip(got, gradients(chain, A, B), strict=True):
        assert torch.equal(g, want)
    with pytest.raises(ValueError, match="to be an OpOverload but got: mm of type"):
        C.create_selective_checkpoint_contexts(["mm"])
    with pytest.raises(TypeError, match="policy_fn_or_list must be either a function or a list of ops"):
        C.create_selective_checkpoint_contexts(3)


@pytest.mark.parametrize("kept, value", [((), 0.0), (("mm",), 1.0), (("sigmoid",), 0.0), (("mul",), 0.0)])
def test_what_is_kept_does_not_run_again(kept, value):
    """The operands are taken away between the runs: a product that is computed again is 0."""
    ones, weight, factor = torch.ones(1, 1), torch.ones(1, 1, requires_grad=True), torch.ones(1, 1, requires_grad=True)
    out = C.checkpoint(
        lambda a, w, f: torch.mm(a, w) * f, ones, weight, factor, use_reentrant=False, context_fn=saving(keeping(*kept))
    )
    weight.data.zero_()
    out.sum().backward()
    assert factor.grad.item() == value


def block(x, w1, w2):
    h = F.gelu(F.linear(x, w1))
    h = F.softmax(h.view(2, -1), -1).reshape(x.size(0), -1)
    return F.layer_norm(F.linear(h, w2), (2,)).tanh()


@pytest.mark.parametrize("kept", [(), ("mm",), ("mm", "gelu"), ("gelu", "native_layer_norm"), ("_softmax",)])
def test_a_block(kept):
    inputs = A.repeat(2, 1), A.repeat(2, 1), B.repeat(1, 2)
    got = gradients(block, *inputs, context_fn=saving(keeping(*kept)))
    for g, want in zip(got, gradients(block, *inputs), strict=True):
        torch.testing.assert_close(g, want)


def test_in_place_writes():
    def written(a, b):
        y = torch.mm(a, b)
        y.add_(1)
        return y.sin()

    want = gradients(written, A, B)
    with pytest.raises(RuntimeError, match="Tensor cached during selective activation checkpoint has been mutated"):
        gradients(written, A, B, context_fn=saving(keeping("mm")))
    got = gradients(written, A, B, context_fn=saving(keeping("mm", "add_", "sin"), allow_cache_entry_mutation=True))
    for g, expected in zip(got, want, strict=True):
        torch.testing.assert_close(g, expected)
    for g, expected in zip(gradients(written, A, B, context_fn=saving(keeping("sin"))), want, strict=True):
        torch.testing.assert_close(g, expected)


@ours
def test_in_place_writes_that_are_kept_alone():
    def written(a, b):
        y = torch.mm(a, b)
        y.add_(1)
        return y.sin()

    for g, want in zip(gradients(written, A, B, context_fn=saving(keeping("add_"))), gradients(written, A, B), strict=True):
        torch.testing.assert_close(g, want)


@ours
def test_random_numbers_are_drawn_again():
    """Otherwise those behind them would be others the second time."""

    def noisy(a, b):
        return (F.dropout(torch.mm(a, b), 0.5) * torch.rand_like(a)).exp() * torch.rand(2)

    torch.manual_seed(7)
    want = gradients(noisy, A, B)
    for policy in (True, False):
        torch.manual_seed(7)
        for g, expected in zip(gradients(noisy, A, B, context_fn=saving(lambda *_, p=policy, **__: p)), want, strict=True):
            assert torch.equal(g, expected)


def test_backward_once():
    a = A.clone().requires_grad_()
    y = C.checkpoint(chain, a, B, use_reentrant=False, context_fn=saving(keeping("mm")))
    y.sum().backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="Trying to backward an extra time"):
        y.sum().backward()


def test_reentrant_checkpoints_take_no_contexts():
    with pytest.raises(ValueError, match="only supported when use_reentrant=False"):
        C.checkpoint(chain, A, B, use_reentrant=True, context_fn=saving(keeping("mm")))


@ours
def test_autocast_attention_and_convolutions():
    asked = []

    def ask(ctx, op, *args, **kwargs):
        asked.append(str(op))
        return len(asked) % 2 == 0

    def network(x, w):
        h = F.conv2d(x, w)
        q = h.flatten(2).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).float().exp()

    x, w = torch.linspace(-1, 1, 2 * 3 * 4 * 4).reshape(2, 3, 4, 4), torch.linspace(-0.5, 0.5, 4 * 3 * 9).reshape(4, 3, 3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        got, want = gradients(network, x, w, context_fn=saving(ask)), gradients(network, x, w)
    for g, expected in zip(got, want, strict=True):
        assert torch.equal(g, expected)
    assert "aten.convolution.default" in asked and "aten._scaled_dot_product_flash_attention_for_cpu.default" in asked
    assert "aten._to_copy.default" in asked


@ours
def test_what_was_kept_is_released():
    seen = []

    def policy(ctx, op, *args, **kwargs):
        seen.extend(weakref.ref(t) for t in ctx.op_output)
        return True

    gradients(chain, A, B, context_fn=saving(policy))
    gc.collect()
    assert seen and all(ref() is None for ref in seen)


@ours
def test_nothing_stays_on_after_an_error():
    def failing(a, b):
        torch.mm(a, b)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        gradients(failing, A, B, context_fn=saving(keeping("mm")))
    calls = []
    with pytest.raises(ArithmeticError):
        gradients(chain, A, B, context_fn=saving(lambda *_, **__: calls.append(1) or exec("raise ArithmeticError")))
    torch.mm(A, B)
    assert len(calls) == 1
    with pytest.raises(RuntimeError, match="there is none to take away"):
        torch._C._pop_selector()


def test_names_of_ops():
    op = aten.mm.default
    assert op is aten.mm.default and str(op) == "aten.mm.default" and op in {op} and op.name() == "aten::mm"
    assert str(aten.mm) == "aten.mm" and repr(op) == "<OpOverload(op='aten.mm', overload='default')>"
    assert torch.equal(op(A, B), A @ B)
    with pytest.raises(AttributeError):
        _ = torch.ops.nothing_of_this_name.op
