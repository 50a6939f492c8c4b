"""How custom Functions are called: keywords, defaults, what ctx holds, what their nodes show."""

import pytest

import ampnative as torch


def function(forward, backward, **more):
    methods = {"forward": forward, "backward": backward, **more}
    return type("Own", (torch.autograd.Function,), {k: staticmethod(v) for k, v in methods.items()})


def leaf():
    return torch.ones(2, requires_grad=True)


def product(ctx, x, w=None, k=1):
    ctx.k, ctx.needs = k, ctx.needs_input_grad
    return x * k if w is None else x * w * k


def slopes(ctx, g):
    return (g, None if len(ctx.needs) > 1 and not ctx.needs[1] else g * 10, None)[: len(ctx.needs)]


FORMS = {
    "by position": (lambda x, w: ((x, w, 3.0), {}), 3),
    "all keywords": (lambda x, w: ((), {"k": 3.0, "w": w, "x": x}), 3),
    "in another order": (lambda x, w: ((x,), {"k": 3.0, "w": w}), 3),
    "fewer": (lambda x, w: ((), {"w": w, "x": x}), 2),
}


@pytest.mark.parametrize("name", FORMS)
def test_keywords_have_gradients_in_the_order_of_forward(name):
    form, count = FORMS[name]
    x, w = leaf(), leaf()
    args, kwargs = form(x, w)
    seen = []
    y = function(product, lambda ctx, g: seen.append(ctx.needs_input_grad) or slopes(ctx, g)).apply(*args, **kwargs)
    y.sum().backward()
    assert y.tolist() == [kwargs.get("k", 3.0 if len(args) > 2 else 1.0)] * 2
    assert x.grad.tolist() == [1.0] * 2 and w.grad.tolist() == [10.0] * 2
    assert seen == [(True, True, False)[:count]]


def test_defaults_between_the_arguments():
    x = leaf()
    y = function(product, lambda ctx, g: (g, None, None)).apply(x, k=4.0)
    y.sum().backward()
    assert y.tolist() == [4.0] * 2 and x.grad.tolist() == [1.0] * 2


@pytest.mark.parametrize(
    "args, kwargs, text",
    [
        ((1,), {"z": 3}, "unexpected keyword argument 'z'"),
        ((1,), {"x": 3}, "multiple values for argument 'x'"),
        ((), {"k": 3}, "missing a required argument: 'x'"),
        ((1,), {"ctx": 3}, "multiple values for argument 'ctx'"),
    ],
)
def test_arguments_that_forward_does_not_take(args, kwargs, text):
    with pytest.raises(TypeError, match=f"Own.apply.*{text}"):
        function(product, slopes).apply(*args, **kwargs)


@pytest.mark.parametrize("forward", [lambda ctx, x, *, k=1: x, lambda ctx, x, *r, k=1: x, lambda ctx, x, **k: x])
def test_keyword_only_parameters(forward):
    with pytest.raises(TypeError, match="does not take by position"):
        function(forward, slopes).apply(leaf(), k=3)
    function(forward, lambda ctx, g: g).apply(leaf()).sum().backward()


@pytest.mark.parametrize("form", [((), ()), ((None, 3.0), ()), ((None,), ("k",)), ((), ("w", "k"))])
def test_setup_context_gets_all_parameters(form):
    positional, named = form
    kwargs = {"w": None, "k": 3.0}
    seen, x = [], leaf()

    def setup(ctx, inputs, output):
        seen.append(inputs)

    own = function(lambda x, w=None, k=3.0: x * k, lambda ctx, g: (g * 3, None, None), setup_context=setup)
    y = own.apply(x, *positional, **{n: kwargs[n] for n in named})
    y.sum().backward()
    assert len(seen[0]) == 3 and seen[0][0] is x and seen[0][1:] == (None, 3.0)
    assert x.grad.tolist() == [3.0] * 2


def test_keyword_tensors_are_inputs():
    def dirty(ctx, x, w=None):
        w.mul_(2)
        ctx.mark_dirty(w)
        return w

    def given(ctx, x, w=None):
        return w

    for forward in (dirty, given):
        x = leaf()
        w = x * 1
        y = function(forward, lambda ctx, g: (None, g * 2)).apply(x, w=w)
        assert (y is w) == (forward is dirty)
        y.sum().backward()
        assert x.grad.tolist() == [2.0] * 2


# ---- ctx ----


def test_needs_input_grad_may_be_replaced():
    seen = []

    def forward(ctx, a):
        ctx.needs_input_grad = (False,)
        return a * 2

    function(forward, lambda ctx, g: seen.append(ctx.needs_input_grad) or g).apply(leaf()).sum().backward()
    assert seen == [(False,)]


@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("needed", [True, False])
def test_saved_tensors_after_apply(recorded, needed):
    contexts = []

    def forward(ctx, a):
        ctx.save_for_backward(a)
        assert ctx.saved_tensors[0] is a
        contexts.append(ctx)
        return a * 2

    with torch.set_grad_enabled(recorded):
        y = function(forward, lambda ctx, g: g).apply(torch.ones(2, requires_grad=needed))
    assert len(contexts[0].saved_tensors) == (recorded and needed) == y.requires_grad
    assert contexts[0].to_save is None


def test_backward_or_vjp():
    for name in ("backward", "vjp"):
        own = type("Own", (torch.autograd.Function,), {"forward": staticmethod(product), name: staticmethod(slopes)})
        x = leaf()
        own.apply(x).sum().backward()
        assert x.grad.tolist() == [1.0] * 2
    y = function(product, slopes, vjp=slopes).apply(leaf())
    with pytest.raises(RuntimeError, match="both 'backward' and 'vjp'.*Own"):
        y.sum().backward()
    y = type("Own", (torch.autograd.Function,), {"forward": staticmethod(product)}).apply(leaf())
    with pytest.raises(NotImplementedError, match="either the backward or vjp"):
        y.sum().backward()


# ---- nodes ----


def test_nodes_show_tensor_arguments():
    x, w = leaf(), leaf()
    own = function(lambda ctx, k, a, n, b, c: a * b, lambda ctx, g: (None, g, None, g * 3, None))
    y = own.apply(3, x, None, w, torch.ones(2))
    shown = [n for n, _ in y.grad_fn.next_functions]
    assert [getattr(n, "variable", None) for n in shown] == [x, w, None] and shown[2] is None
    seen = []
    y.grad_fn.register_hook(lambda inputs, outputs: seen.append(len(inputs)) or (inputs[0] * 2, inputs[1] * 5, None))
    y.sum().backward()
    assert seen == [3] and x.grad.tolist() == [2.0] * 2 and w.grad.tolist() == [15.0] * 2
