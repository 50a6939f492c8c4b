"""What a custom Function returns of memory that others see too: views, inputs as they were, the same tensor twice."""

import gc
import weakref

import pytest

import ampnative as torch

STALE = "is a view and its base or another view of its base has been modified inplace"
WRITTEN = "a view that a custom Function returned is being modified inplace"


def function(forward, backward):
    return type("Own", (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward)})


def unchanged(ctx, g):
    return g


first_row = torch.tensor([[1.0], [0.0], [0.0]])
RETURNED = {
    "view": function(lambda ctx, a: a.view(-1), lambda ctx, g: g.view(3, 4)),
    "view_as": function(lambda ctx, a: a.view_as(a), unchanged),
    "row": function(lambda ctx, a: a[0], lambda ctx, g: g.expand(3, 4) * first_row),
    "input": function(lambda ctx, a: a, unchanged),
}


def start():
    x = torch.ones(3, 4, requires_grad=True)
    return x, x * 1


@pytest.fixture(params=RETURNED)
def own(request):
    return RETURNED[request.param]


def write_base(a, y):
    a.mul_(3)


def write_sibling(a, y):
    a[0].mul_(3)


def write_unrecorded(a, y):
    with torch.no_grad():
        a.mul_(3)


def write_output_unrecorded(a, y):
    with torch.no_grad():
        y.mul_(3)


def write_detached(a, y):
    a.detach().mul_(3)


@pytest.mark.parametrize(
    "write", [write_base, write_sibling, write_unrecorded, write_output_unrecorded, write_detached], ids=lambda f: f.__name__
)
def test_history_ends_with_a_write_to_the_memory(own, write):
    _, a = start()
    y = own.apply(a)
    part, used = y[:1], y * 2
    write(a, y)
    for use in (lambda: y.sum(), lambda: y[:1], lambda: part.sum(), lambda: y.grad_fn, lambda: y.is_leaf, y.retain_grad):
        with pytest.raises(RuntimeError, match=STALE):
            use()
    with pytest.raises(RuntimeError, match=STALE):
        y.register_hook(lambda g: g)
    assert y.requires_grad and not y.detach().requires_grad
    with torch.no_grad():
        y.sum()
    used.sum().backward()  # recorded before


def test_a_view_of_before_counts_as_well(own):
    _, a = start()
    row = a[0]
    y = own.apply(a)
    row.mul_(3)
    with pytest.raises(RuntimeError, match=STALE):
        y.sum()


def test_the_base_keeps_its_history(own):
    x, a = start()
    own.apply(a)
    a.mul_(3)
    a.sum().backward()
    assert x.grad.tolist() == [[3.0] * 4] * 3


def test_what_was_returned_is_not_written_to(own):
    _, a = start()
    y = own.apply(a)
    part = y[:1]
    for t in (y, part):
        with pytest.raises(RuntimeError, match=WRITTEN):
            t.mul_(3)
    with pytest.raises(RuntimeError, match="detach"):
        y.detach_()
    assert a.tolist() == [[1.0] * 4] * 3


def test_without_writes_gradients_flow(own):
    x, a = start()
    y = own.apply(a)
    assert y._base is a and y is not a
    again = RETURNED["input"].apply(y)
    assert again._base is a
    again.sum().backward()
    assert x.grad[0].tolist() == [1.0] * 4
    a.data.mul_(3)  # counts no version
    y.sum()


def test_leaves_written_by_an_optimizer(own):
    x = torch.ones(3, 4, requires_grad=True)
    y = own.apply(x)
    y.sum().backward()
    torch.optim.SGD([x], lr=0.1).step()
    with pytest.raises(RuntimeError, match=STALE):
        y.sum()


def test_a_base_that_needs_no_gradient():
    scaled = function(lambda ctx, a, w: a.view(-1), lambda ctx, g: (None, g.sum().view(1)))
    a, w = torch.ones(3, 4), torch.ones(1, requires_grad=True)
    y = scaled.apply(a, w)
    with pytest.raises(RuntimeError, match=WRITTEN):
        y.mul_(3)
    a.mul_(3)
    with pytest.raises(RuntimeError, match=STALE):
        y.sum()


def test_views_of_what_forward_made():
    own = function(lambda ctx, a: (a * 2).view(-1), lambda ctx, g: 2 * g.view(3, 4))
    x, a = start()
    y = own.apply(a)
    with pytest.raises(RuntimeError, match=WRITTEN):
        y.mul_(3)
    a.mul_(3)
    y.sum().backward()
    assert x.grad[0].tolist() == [2.0] * 4


@pytest.mark.parametrize("forward", [lambda ctx, a: a.detach(), lambda ctx, a: a.clone()], ids=["detach", "clone"])
def test_what_is_no_view_may_be_written_to(forward):
    x, a = start()
    y = function(forward, unchanged).apply(a)
    a.mul_(3)
    y.mul_(5)
    y.sum().backward()
    assert x.grad[0].tolist() == [5.0] * 4


@pytest.mark.parametrize("order", [0, 1])
def test_dirty_inputs_beside_views_of_them(order):
    def forward(ctx, a):
        a.mul_(2)
        ctx.mark_dirty(a)
        return (a, a.view(-1))[:: 1 - 2 * order]

    def backward(ctx, *grads):
        g, h = grads[:: 1 - 2 * order]
        return 2 * g + 20 * h.view(3, 4)

    for k, slope in ((0, 2.0), (1, 20.0)):
        x, a = start()
        results = function(forward, backward).apply(a)[:: 1 - 2 * order]
        assert results[0] is a
        results[k].sum().backward()
        assert x.grad[0].tolist() == [slope] * 4


def test_inputs_returned_where_nothing_is_recorded():
    _, a = start()
    with torch.no_grad():
        y = RETURNED["input"].apply(a)
    assert y is not a and not y.requires_grad
    y.mul_(3)
    assert a[0].tolist() == [3.0] * 4
    plain, w = torch.ones(3, 4), torch.ones(1, requires_grad=True)
    y = RETURNED["input"].apply(plain)
    assert y is not plain and y._base is plain
    plain.mul_(w)
    y.sum().backward()
    assert w.grad.tolist() == [12.0]


# ---- the same tensor twice ----


def tens(ctx, g, h):
    return g * 10 + h


def twice(ctx, a):
    out = a * 1
    return out, out


def twice_dirty(ctx, a):
    a.mul_(1)
    ctx.mark_dirty(a)
    return a, a


def twice_view(ctx, a):
    out = a.view_as(a)
    return out, out


@pytest.mark.parametrize("forward", [twice, twice_dirty, twice_view])
@pytest.mark.parametrize("k", [0, 1])
def test_one_tensor_returned_twice_is_one_output(forward, k):
    x, a = start()
    results = function(forward, tens).apply(a)
    assert results[0] is results[1] and results[0].output_nr == 1
    results[k].sum().backward()
    assert x.grad[0].tolist() == [1.0] * 4


def test_an_input_returned_twice_is_two_outputs():
    x, a = start()
    y, z = function(lambda ctx, a: (a, a), tens).apply(a)
    assert y is not z
    (y + z).sum().backward()
    assert x.grad[0].tolist() == [11.0] * 4


def test_saved_output_returned_twice():
    def forward(ctx, a):
        out = a * 2
        ctx.save_for_backward(out)
        return out, out

    def backward(ctx, g, h):
        return g * 10 + h * ctx.saved_tensors[0]

    x, a = start()
    y, _ = function(forward, backward).apply(a)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(g.sum(), x)
    assert g[0].tolist() == [2.0] * 4 and second[0].tolist() == [2.0] * 4


# ---- inputs that forward changed ----


def scale_forward(ctx, k, w, a):
    ctx.save_for_backward(a.clone(), w)
    a.mul_(w).add_(k)
    ctx.mark_dirty(a)
    return a


def scale_backward(ctx, g):
    a, w = ctx.saved_tensors
    return None, (g * a).sum_to_size(w.shape), g * w


def power_forward(ctx, a):
    a.exp_()
    ctx.mark_dirty(a)
    ctx.save_for_backward(a)
    return a


scale = function(scale_forward, scale_backward)
power = function(power_forward, lambda ctx, g: g * ctx.saved_tensors[0])
VIEWS = {
    "row": lambda a: a[1],
    "rows": lambda a: a[1:],
    "columns": lambda a: a[:, 1:3],
    "transposed": lambda a: a.t()[1:],
    "view of a view": lambda a: a[1:][0][1:],
    "whole": lambda a: a[:],
}


def spread():
    x = (torch.arange(12.0).view(3, 4) / 5 + 0.3).requires_grad_()
    return x, x * 1


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_writes_to_views_are_writes_to_the_base(view):
    found = []
    for own in (True, False):
        x, a = spread()
        w = torch.tensor(1.5, requires_grad=True)
        v = view(a)
        if own:
            assert scale.apply(3, w, v) is v
        else:
            v.mul_(w).add_(3)
        v.mul_(2)
        (a * a).sum().backward()
        found.append((a.tolist(), x.grad, w.grad))
    assert found[0][0] == found[1][0]
    for got, true in zip(found[0][1:], found[1][1:], strict=True):
        assert torch.allclose(got, true)


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_second_derivatives_of_writes_to_views(view, hooked):
    found = []
    for own in (True, False):
        x, a = spread()
        v = view(a)
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone() if hooked else t, lambda t: t):
            power.apply(v) if own else v.exp_()
        (g,) = torch.autograd.grad((a * a).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad((g * g).sum(), x)
        found.append((g, second))
    for got, true in zip(*found, strict=True):
        assert torch.allclose(got, true)


def test_contexts_and_views_do_not_keep_each_other():
    _, a = spread()
    power.apply(a[1])
    gone = weakref.ref(a)
    gc.disable()
    try:
        del a
        assert gone() is None
    finally:
        gc.enable()


def test_the_saved_view_is_not_changed_before_backward():
    _, a = spread()
    v = power.apply(a[1])
    v.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        a.sum().backward()


def refuse_two():
    def forward(ctx, a):
        a.mul_(2)
        ctx.mark_dirty(a)
        return a, a.sum()

    return function(forward, None)


@pytest.mark.parametrize(
    "call, text",
    [
        (lambda x, a: power.apply(x[0]), "a view of a leaf Variable that requires grad"),
        (lambda x, a: refuse_two().apply(a[0]), "returns more than one tensor"),
        (lambda x, a: power.apply(RETURNED["row"].apply(a)), "a view that a custom Function returned"),
    ],
)
def test_writes_to_views_that_are_not_recorded(call, text):
    with pytest.raises(RuntimeError, match=text):
        call(*spread())


def test_retained_gradients_are_those_behind_the_write():
    x, a = spread()
    a.retain_grad()
    function(scale_forward, scale_backward).apply(3, torch.tensor(2.0), a)
    a.sum().backward()
    assert a.grad[0].tolist() == [1.0] * 4 and x.grad[0].tolist() == [2.0] * 4


def test_changed_and_not_differentiable():
    def forward(ctx, a):
        a.mul_(2)
        ctx.mark_dirty(a)
        ctx.mark_non_differentiable(a)
        return a

    _, a = spread()
    y = function(forward, None).apply(a)
    assert y is a and not a.requires_grad and a.is_leaf
