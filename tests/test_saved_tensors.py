"""saved_tensors_hooks: which tensors they are given, leaves among them, and what becomes of those in backward."""

import gc
import weakref

import pytest

import ampnative as torch
from ampnative.autograd.graph import allow_mutation_on_saved_tensors, save_on_cpu, saved_tensors_hooks


def leaf(*shape):
    return torch.ones(*shape or (3,), requires_grad=True)


def packed(f):
    """The tensors that pack is given while f() runs, and what f returns."""
    found = []
    with saved_tensors_hooks(lambda t: found.append(t) or t, lambda t: t):
        result = f()
    return found, result


@pytest.mark.parametrize(
    "f, shapes",
    [
        (lambda x, w: x * x, [(2, 24), (2, 24)]),
        (lambda x, w: x.exp(), [(2, 24)]),
        (lambda x, w: x.log(), [(2, 24)]),
        (lambda x, w: x * w, [(2, 24), (2, 24)]),
        (lambda x, w: x * w.detach(), [(2, 24)]),
        (lambda x, w: x + w, []),
        (lambda x, w: torch.mm(x, w.t()), [(2, 24), (24, 2)]),
        (lambda x, w: torch.nn.functional.gelu(x), [(2, 24)]),
        (lambda x, w: torch.maximum(x, w), [(2, 24), (2, 24)]),
    ],
)
def test_leaves_are_packed(f, shapes):
    found, y = packed(lambda: f(leaf(2, 24), leaf(2, 24)))
    assert sorted(tuple(t.shape) for t in found) == sorted(shapes)
    y.sum().backward()


def test_a_layer_packs_its_weight():
    layer, x = torch.nn.Linear(24, 4), leaf(2, 24)
    found, y = packed(lambda: layer(x))
    assert len(found) == 2 and found[0] is x and found[1].numel() == 96
    y.sum().backward()
    assert x.grad.shape == (2, 24) and layer.weight.grad.shape == (4, 24)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, y = packed(lambda: layer(x))
    assert [t.dtype for t in found] == [torch.bfloat16] * 2


def test_pack_can_tell_what_it_is_given():
    p, a = torch.nn.Parameter(torch.ones(3)), torch.ones(3)
    found, y = packed(lambda: ((p * p) * a).exp())
    assert found[0] is p and found[1] is p and found[2] is a
    assert [(t.requires_grad, t.is_leaf) for t in found[:3]] == [(True, True), (True, True), (False, True)]
    seen = []
    with saved_tensors_hooks(lambda t: seen.append((t.requires_grad, t.is_leaf, t.grad_fn)) or t, lambda t: t):
        y = (p * 2).exp().sin()
    assert seen[0] == (True, False, y.grad_fn.next_functions[0][0])
    assert [s[:2] for s in seen] == [(True, False)] * 2


KINDS = [
    (lambda t: t, lambda t: t),
    (lambda t: t.clone(), lambda t: t),
    (lambda t: t.detach().numpy().copy(), torch.from_numpy),
]


@pytest.mark.parametrize("pack, unpack", KINDS)
def test_second_derivatives_through_packed_leaves(pack, unpack):
    x, w = leaf(), leaf()
    with saved_tensors_hooks(pack, unpack):
        y = x * x * x
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (g2,) = torch.autograd.grad(g.sum(), x)
    assert g.tolist() == [3.0] * 3 and g2.tolist() == [6.0] * 3
    with saved_tensors_hooks(pack, unpack):
        y = x * w
    y.sum().backward(create_graph=True)
    s = (x.grad**2).sum()
    x.grad = w.grad = None
    s.backward()
    assert x.grad is None and w.grad.tolist() == [2.0] * 3


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x * 2


@pytest.mark.parametrize("f", [lambda x: x * x, Square.apply])
def test_writes_to_a_leaf_after_it_was_packed(f):
    """Hooks decide what backward sees; without them the write is found."""
    for (pack, unpack), want in zip([*KINDS, (None, None)], [4.0, 2.0, 2.0, None], strict=True):
        x = leaf()
        if pack:
            with saved_tensors_hooks(pack, unpack):
                y = f(x)
        else:
            y = f(x)
        with torch.no_grad():
            x.mul_(2)
        if want is None:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
        else:
            y.sum().backward()
            assert x.grad.tolist() == [want] * 3
    x = leaf()
    with allow_mutation_on_saved_tensors():
        y = f(x)
        with torch.no_grad():
            x.mul_(2)
        y.sum().backward()
    assert x.grad.tolist() == [2.0] * 3


def test_pack_must_not_write():
    with (
        saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t),
        pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in place"),
    ):
        leaf() * leaf()


@pytest.mark.parametrize("f", [lambda a, b: a / b, torch.maximum, torch.hypot, lambda a, b: a.max(), torch.atan2, torch.fmax])
def test_unpack_is_asked_once(f):
    store, asked = {}, []

    def pack(t):
        store[len(store)] = t
        return len(store) - 1

    def unpack(key):
        asked.append(key)
        return store[key]

    with saved_tensors_hooks(pack, unpack):
        y = f(leaf(), leaf())
    y.backward(torch.ones_like(y))
    assert asked and len(asked) == len(set(asked))


def test_a_leaf_saved_on_the_cpu_and_no_cycles():
    layer = torch.nn.Linear(3, 3)
    with save_on_cpu():
        y = layer(leaf(2, 3))
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[2.0] * 3] * 3
    gc.disable()
    try:
        found, y = packed(lambda: (leaf() * 2).exp())
        del found
        gone = weakref.ref(y)
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_an_unpack_hook_may_run_a_pass_over_its_own_graph():
    """That pass lets go of what the graph keeps: the outer one says so, and reads nothing of it."""
    a, box, junk = torch.ones(2, requires_grad=True), [], []

    def unpack(kept):
        if not junk:
            junk.append(0)
            torch.autograd.grad(box[0], a)
            junk.extend([tuple([1, 1, 1, 10, 0]) for _ in range(4000)])
        return kept

    with saved_tensors_hooks(lambda t: t.clone(), unpack):
        box.append((a * a).sum())
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(box[0], a)


@pytest.mark.parametrize("function", [torch.exp, torch.sqrt, lambda x: x.softmax(0)])
def test_a_pack_hook_cannot_differentiate_the_output_it_is_given(function):
    def pack(t):
        if t.grad_fn is not None:
            with torch.enable_grad():
                t.sum().backward()
        return t

    a = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="before all is saved"), saved_tensors_hooks(pack, lambda kept: kept):
        function(a)
    function(a).sum().backward()
    assert a.grad is not None
