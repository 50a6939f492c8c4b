"""The graph, the backward pass, hooks, grad modes and own functions, as a user meets them; and slopes at kinks."""

import gc
import math
import threading
import weakref

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

F = torch.nn.functional
INF, NAN = math.inf, math.nan


def leaf(values, dtype=None):
    return torch.tensor(values, dtype=dtype or torch.float64, requires_grad=True)


def slope(function, *values):
    """Gradients of sum(function(...)) for each argument, as lists."""
    inputs = [leaf(v) for v in values]
    found = torch.autograd.grad(function(*inputs).sum(), inputs)
    return [g.tolist() for g in found] if len(found) > 1 else found[0].tolist()


# ---- leaves, accumulation, order ----


def test_backward_writes_leaves_and_adds():
    x, w = leaf([1.0, 2.0]), leaf([3.0, -1.0])
    (x * w).sum().backward()
    assert x.grad.tolist() == [3.0, -1.0] and w.grad.tolist() == [1.0, 2.0]
    (x * x).sum().backward()
    assert x.grad.tolist() == [5.0, 3.0] and w.grad.tolist() == [1.0, 2.0]
    assert x.is_leaf and x.grad_fn is None and not x.grad.requires_grad


def test_one_tensor_used_several_times():
    x = leaf([2.0])
    y = x * x
    (y * y + y + x).backward()
    assert x.grad.tolist() == [4 * 8.0 + 4.0 + 1.0]


def test_gradient_argument_and_its_checks():
    x = leaf([[1.0, 2.0]])
    with pytest.raises(RuntimeError, match="grad can be implicitly created only for scalar outputs"):
        (x * 2).backward()
    (x * 2).backward(torch.tensor([[1.0, -1.0]], dtype=torch.float64))
    assert x.grad.tolist() == [[2.0, -2.0]]
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        (x * 2).backward(torch.ones(2, dtype=torch.float64))
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.ones(1).backward()


def test_gradients_have_the_dtype_and_shape_of_the_input():
    x, b = (
        torch.ones(3, 4, dtype=torch.float16, requires_grad=True),
        torch.ones(4, 1, 1, dtype=torch.float32, requires_grad=True),
    )
    (x * b).sum().backward()
    assert x.grad.dtype == torch.float16 and x.grad.tolist() == [[4.0] * 4] * 3
    assert b.grad.dtype == torch.float32 and b.grad.tolist() == [[[12.0]]] * 4


def test_uses_of_a_16_bit_tensor_add_up_in_16_bits():
    x = torch.tensor([1.0], dtype=torch.float16, requires_grad=True)
    (x * 2048.0 + x * 1.0).backward()  # 2049 is no half
    assert x.grad.tolist() == [2048.0]


def test_retain_graph_and_second_backward():
    x = leaf([2.0])
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_nodes_that_saved_nothing_run_twice():
    x = leaf([2.0])
    y = x + 1.0
    y.backward()
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_grad_returns_and_leaves_grad_alone():
    x, y, z = leaf([1.0, 2.0]), leaf([3.0, 4.0]), leaf([0.0])
    out = (x * y).sum()
    gx, gy = torch.autograd.grad(out, (x, y), retain_graph=True)
    assert gx.tolist() == [3.0, 4.0] and gy.tolist() == [1.0, 2.0] and x.grad is None
    with pytest.raises(RuntimeError, match="appears to not have been used in the graph"):
        torch.autograd.grad(out, (x, z), retain_graph=True)
    assert torch.autograd.grad(out, (x, z), retain_graph=True, allow_unused=True)[1] is None
    assert torch.autograd.grad(out, (x, z), retain_graph=True, materialize_grads=True)[1].tolist() == [0.0]
    with pytest.raises(ValueError, match="allow_unused"):
        torch.autograd.grad(out, x, allow_unused=False, materialize_grads=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(out, torch.ones(1))


def test_grad_of_inner_tensors_and_several_outputs():
    x = leaf([3.0])
    y = x * x
    z = y * 2.0
    assert torch.autograd.grad(z, y, retain_graph=True)[0].tolist() == [2.0]
    assert torch.autograd.grad((y, z), x, (torch.tensor([1.0], dtype=torch.float64), None))[0].tolist() == [18.0]


def test_backward_inputs():
    x, y = leaf([2.0]), leaf([3.0])
    (x * y).backward(inputs=[x])
    assert x.grad.tolist() == [3.0] and y.grad is None
    torch.autograd.backward([x * y, x + y], [None, torch.tensor([10.0], dtype=torch.float64)])
    assert x.grad.tolist() == [16.0] and y.grad.tolist() == [12.0]
    with pytest.raises(RuntimeError, match="cannot be empty"):
        torch.autograd.backward(x * y, inputs=[])


def test_create_graph_gives_second_and_third_derivatives():
    x = leaf([2.0])
    (first,) = torch.autograd.grad(x**4, x, create_graph=True)
    (second,) = torch.autograd.grad(first, x, create_graph=True)
    (third,) = torch.autograd.grad(second, x)
    assert (first.item(), second.item(), third.item()) == (32.0, 48.0, 48.0)
    x.grad = None
    (first,) = torch.autograd.grad((x**4).sum(), x, create_graph=True)
    (first**2).sum().backward()  # gradient penalty
    assert x.grad.item() == 2.0 * 32.0 * 48.0


def test_deep_graphs_run_and_die_without_recursion():
    x = leaf([1.0])
    y = x
    for _ in range(50_000):
        y = y + 0.0
    y.backward()
    assert x.grad.tolist() == [1.0]
    del y
    gc.collect()


def test_the_graph_dies_with_its_outputs():
    x = leaf([1.0])
    y = torch.exp(x)  # saves its own output
    node = y.grad_fn
    z = y * y
    gone = weakref.ref(z)
    gc.disable()
    try:
        del z
        assert gone() is None
    finally:
        gc.enable()
    assert node is not None


# ---- in place ----


def test_changed_saved_tensor_is_noticed():
    x, y = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    z = x * 1.0
    out = (z * y).sum()
    z.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_in_place_ops_are_recorded():
    x = leaf([1.0, 2.0])
    y = x * 3.0
    y.mul_(2.0)
    y[0] = 10.0
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 6.0]


def test_in_place_through_a_view_reaches_the_base():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    y = x * 1.0
    y[0].mul_(5.0)
    y.t()[1].zero_()
    y.sum().backward()
    assert x.grad.tolist() == [[5.0, 0.0], [1.0, 0.0]]


def test_as_strided_counts_from_the_storage():
    base = torch.arange(12, dtype=torch.float64).reshape(4, 3)
    weight = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)

    def found(x, *window):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(x.as_strided(*window), x, weight)[0].tolist()

    assert found(base[1:], (2, 2), (1, 1), 3) == [[1.0, 5.0, 4.0], [0.0] * 3, [0.0] * 3]
    assert found(base[1:], (2, 2), (1, 2)) == [[1.0, 3.0, 2.0], [4.0, 0.0, 0.0], [0.0] * 3]
    assert found(base[1:], (2, 2), (1, 2), 0) == [[4.0, 0.0, 0.0], [0.0] * 3, [0.0] * 3]  # the rest lies before the input
    assert found(base.t(), (2, 2), (1, 3), 1) == [[0.0] * 4, [1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 0.0, 0.0]]


def test_leaves_refuse_in_place():
    x = leaf([1.0])
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.add_(1.0)
    with torch.no_grad():
        x.add_(1.0)
    assert x.tolist() == [2.0]


# ---- hooks ----


def test_hooks_replace_gradients_and_can_be_removed():
    x = leaf([1.0, 2.0])
    y = x * 2.0
    seen = []
    handle = y.register_hook(lambda g: seen.append(g.tolist()))
    other = x.register_hook(lambda g: g * 10.0)
    y.sum().backward()
    assert seen == [[1.0, 1.0]] and x.grad.tolist() == [20.0, 20.0]
    handle.remove()
    other.remove()
    x.grad = None
    (x * 2.0).sum().backward()
    assert len(seen) == 1 and x.grad.tolist() == [2.0, 2.0]


def test_retain_grad():
    x = leaf([1.0, 2.0])
    y = x * 2.0
    y.retain_grad()
    (y * y).sum().backward()
    assert y.grad.tolist() == [4.0, 8.0] and y.retains_grad


# ---- grad modes ----


def test_modes_as_context_managers_nest_and_survive_exceptions():
    assert torch.is_grad_enabled()
    with torch.no_grad():
        assert not torch.is_grad_enabled()
        with torch.enable_grad():
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
        with torch.set_grad_enabled(True):
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()
    with pytest.raises(KeyError), torch.no_grad():
        raise KeyError
    assert torch.is_grad_enabled()


def test_one_instance_entered_while_entered():
    region = torch.enable_grad()
    with torch.no_grad():
        with region:
            assert torch.is_grad_enabled()
        assert not torch.is_grad_enabled()
    if not IS_PYTORCH:  # there the second entry forgets what the first one saved
        region = torch.no_grad()
        with region, torch.enable_grad(), region:
            assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled()


def test_set_grad_enabled_works_at_once():
    torch.set_grad_enabled(False)
    assert not torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert torch.is_grad_enabled()


def test_decorators():
    @torch.no_grad()
    def called(a, *, b):
        return torch.is_grad_enabled(), a, b

    @torch.no_grad
    def bare():
        return torch.is_grad_enabled()

    @torch.set_grad_enabled(False)
    def switched():
        return torch.is_grad_enabled()

    @torch.inference_mode()
    def inferring():
        return torch.is_inference_mode_enabled(), torch.is_grad_enabled()

    assert torch.is_grad_enabled()
    assert called(1, b=2) == (False, 1, 2) and called.__name__ == "called"
    assert bare() is False and switched() is False and inferring() == (True, False)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()

    @torch.no_grad()
    def recursive(n):
        return [torch.is_grad_enabled()] + (recursive(n - 1) if n else [])

    assert recursive(3) == [False] * 4 and torch.is_grad_enabled()


def test_decorated_generators_switch_per_step():
    inside, closed = [], []

    @torch.no_grad()
    def numbers():
        try:
            for i in range(3):
                inside.append(torch.is_grad_enabled())
                got = yield i
                inside.append(got)
        except KeyError:
            inside.append(torch.is_grad_enabled())
            yield "caught"
        finally:
            closed.append(torch.is_grad_enabled())

    generator = numbers()
    assert next(generator) == 0 and torch.is_grad_enabled()
    assert generator.send("sent") == 1 and inside == [False, "sent", False]
    assert generator.throw(KeyError()) == "caught" and torch.is_grad_enabled()
    generator.close()
    assert closed == [False] and torch.is_grad_enabled()


def test_grad_mode_belongs_to_the_thread():
    seen = []
    with torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(torch.is_grad_enabled()))
        thread.start()
        thread.join()
    assert seen == [True]


def test_inference_tensors():
    x = leaf([1.0])
    with torch.inference_mode():
        y = x * 2.0
        assert y.is_inference() and not y.requires_grad and not torch.is_grad_enabled()
        with torch.inference_mode(False):
            assert torch.is_grad_enabled() and (x * 2.0).requires_grad
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        y.add_(1.0)
    with pytest.raises(RuntimeError, match=r"[Ii]nference"):
        (x * y).backward()
    (x * (y.clone() * 0.0 + 2.0)).backward()
    assert x.grad.tolist() == [2.0]


def test_detach_and_no_grad_results():
    x = leaf([1.0])
    assert not x.detach().requires_grad
    with torch.no_grad():
        y = x * 2.0
    assert not y.requires_grad and y.grad_fn is None and y.is_leaf


# ---- own functions ----


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor, w):
        assert not torch.is_grad_enabled()
        ctx.factor = factor
        ctx.save_for_backward(x, None, w)
        return x * factor * w

    @staticmethod
    def backward(ctx, g):
        x, nothing, w = ctx.saved_tensors
        assert nothing is None
        ctx_needs.append(ctx.needs_input_grad)
        return g * ctx.factor * w, None, g * ctx.factor * x


ctx_needs = []


def test_function_with_ctx():
    x, w = leaf([1.0, 2.0]), leaf([3.0, 4.0])
    y = Scaled.apply(x, 2.0, w)
    assert type(y.grad_fn).__name__ == "ScaledBackward" if IS_PYTORCH else "ScaledBackward" in repr(y.grad_fn)
    y.sum().backward()
    assert x.grad.tolist() == [6.0, 8.0] and w.grad.tolist() == [2.0, 4.0]
    assert ctx_needs.pop() == (True, False, True)
    Scaled.apply(x, 2.0, w.detach()).sum().backward()
    assert ctx_needs.pop() == (True, False, False) and w.grad.tolist() == [2.0, 4.0]
    assert not Scaled.apply(x.detach(), 2.0, w.detach()).requires_grad


def test_function_second_derivative_and_release():
    x, w = leaf([2.0]), leaf([3.0])
    y = Scaled.apply(x, 2.0, w)
    (gx,) = torch.autograd.grad(y, x, create_graph=True)
    (gxw,) = torch.autograd.grad(gx, w, retain_graph=True)
    assert gx.tolist() == [6.0] and gxw.tolist() == [2.0]
    y.backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_function_with_setup_context_and_several_outputs():
    class Both(torch.autograd.Function):
        @staticmethod
        def forward(x):
            return x * 2.0, "label", x * 3.0

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.label = output[1]

        @staticmethod
        def backward(ctx, g1, label, g2):
            assert ctx.label == "label" and label is None
            return g1 * 2.0 + g2 * 3.0

    x = leaf([1.0])
    a, label, b = Both.apply(x)
    assert label == "label"
    (b * 5.0).backward(retain_graph=True)  # a's gradient is undefined: zeros
    assert x.grad.tolist() == [15.0]
    (a + b).backward()
    assert x.grad.tolist() == [20.0]


def test_function_without_materialized_gradients():
    class Raw(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1.0, x * 2.0

        @staticmethod
        def backward(ctx, g1, g2):
            assert g1 is None
            return g2 * 2.0

    x = leaf([1.0])
    Raw.apply(x)[1].backward()
    assert x.grad.tolist() == [2.0]


def test_function_saves_its_output_without_a_cycle():
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx, g):
            (y,) = ctx.saved_tensors
            return g * y

    x = leaf([0.5])
    assert torch.autograd.gradcheck(Exp.apply, (x,)) and torch.autograd.gradgradcheck(Exp.apply, (x,))
    y = Exp.apply(x)
    gone = weakref.ref(y)
    gc.disable()
    try:
        del y
        assert gone() is None
    finally:
        gc.enable()


def test_function_mark_dirty():
    class AddOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            x.add_(1.0)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 7.0

    x = leaf([1.0])
    y = x * 2.0
    z = AddOne.apply(y)
    assert z is y and z.tolist() == [3.0]
    z.backward()
    assert x.grad.tolist() == [14.0]
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        AddOne.apply(leaf([1.0]))


def test_function_mark_non_differentiable():
    class Sort(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            largest = torch.argmax(x)
            hint = x * 0.0
            ctx.mark_non_differentiable(largest, hint)
            return x * 2.0, largest, hint

        @staticmethod
        def backward(ctx, g, g_largest, g_hint):
            return g * 2.0

    x = leaf([1.0, 5.0])
    y, largest, hint = Sort.apply(x)
    assert y.requires_grad and not largest.requires_grad and not hint.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_function_returning_its_input():
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, g):
            return g * 3.0

    x = leaf([1.0])
    y = Same.apply(x)
    assert y is not x and x.is_leaf and x.requires_grad
    y.backward()
    assert x.grad.tolist() == [3.0]


@pytest.mark.parametrize(
    "returned, message", [((1, 2, 3), "incorrect number of gradients"), ((None,), "incorrect number of gradients")]
)
def test_function_wrong_number_of_gradients(returned, message):
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x + y

        @staticmethod
        def backward(ctx, g):
            return returned

    with pytest.raises(RuntimeError, match=message):
        Bad.apply(leaf([1.0]), leaf([1.0])).backward()


def test_function_trailing_none_and_wrong_types():
    class Trailing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            return given

    x = leaf([1.0])
    given = (torch.ones(1, dtype=torch.float64), None, None)
    Trailing.apply(x).backward()
    assert x.grad.tolist() == [1.0]
    given = 5
    with pytest.raises((TypeError, RuntimeError), match=r"expected Variable|expected.*but got int"):
        Trailing.apply(x).backward()


def test_function_version_check():
    x = leaf([1.0])
    y = x * 1.0
    z = Scaled.apply(y, 2.0, leaf([1.0]))
    y.add_(1.0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_function_misuse():
    with pytest.raises(TypeError, match="can only save variables"):
        type("F", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: ctx.save_for_backward(3))}).apply(
            leaf([1.0])
        )
    empty = type("E", (torch.autograd.Function,), {"forward": staticmethod(lambda ctx, x: x * 1.0)})
    with pytest.raises(NotImplementedError, match="implement either the backward or vjp"):
        empty.apply(leaf([1.0])).backward()
    with pytest.raises(NotImplementedError, match="implement the forward"):
        torch.autograd.Function.apply(leaf([1.0]))


def test_once_differentiable():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, g):
            assert not torch.is_grad_enabled()
            (x,) = ctx.saved_tensors
            return 2.0 * x * g

    x = leaf([3.0])
    Once.apply(x).backward()
    assert x.grad.tolist() == [6.0]
    (g,) = torch.autograd.grad(Once.apply(x), x, torch.ones(1, dtype=torch.float64, requires_grad=True), create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        g.backward()


def test_exceptions_in_backward_pass_through():
    class Fails(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Fails.apply(leaf([1.0])).backward()
    assert torch.is_grad_enabled()


# ---- kinks, poles and ties ----


def test_slopes_at_kinks():
    assert slope(torch.relu, [0.0, -0.0, 1.0, -1.0]) == [0.0, 0.0, 1.0, 0.0]
    assert slope(torch.abs, [0.0, -2.0]) == [0.0, -1.0]
    assert slope(lambda x: torch.clamp(x, -1.0, 1.0), [-1.0, 1.0, 2.0, -3.0, 0.5]) == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert slope(lambda x: torch.clamp(x, -1.0, 1.0), [NAN]) == [0.0]
    assert slope(lambda x: F.leaky_relu(x, 0.5), [0.0]) == [0.5]
    assert slope(lambda x: F.smooth_l1_loss(x, torch.zeros(3, dtype=torch.float64), reduction="sum"), [0.0, 1.0, -2.0]) == [
        0.0,
        1.0,
        -1.0,
    ]


def test_ties_share():
    assert slope(torch.max, [1.0, 3.0, 3.0]) == [0.0, 0.5, 0.5]
    assert slope(lambda x: torch.amax(x, 1), [[2.0, 2.0], [1.0, 0.0]]) == [[0.5, 0.5], [1.0, 0.0]]
    assert slope(lambda x: torch.max(x, 0)[0], [3.0, 3.0, 1.0]) in ([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
    assert slope(torch.maximum, [1.0, 2.0], [1.0, 1.0]) == [[0.5, 1.0], [0.5, 0.0]]
    assert slope(torch.minimum, [1.0, 2.0], [1.0, 1.0]) == [[0.5, 0.0], [0.5, 1.0]]
    x, y = [1.0, NAN, 2.0, NAN], [1.0, 1.0, NAN, NAN]
    for function in (torch.fmax, torch.fmin):
        assert slope(function, x, y) == [[0.5, 0.0, 1.0, 1.0], [0.5, 1.0, 0.0, 0.0]]
    for function in (torch.maximum, torch.minimum):
        assert slope(function, x, y) == [[0.5, 1.0, 1.0, 1.0], [0.5, 1.0, 1.0, 1.0]]
    assert slope(torch.max, x) == [0.0, 0.5, 0.0, 0.5]


def test_powers_at_zero():
    assert slope(lambda x: x**0, [0.0, INF, NAN]) == [0.0, 0.0, 0.0]
    assert slope(lambda x: x**1, [0.0, 2.0]) == [1.0, 1.0]
    assert slope(lambda x: x**2, [0.0]) == [0.0]
    assert slope(torch.pow, [0.0, 0.0, 2.0], [0.0, 2.0, 0.0]) == [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, pytest.approx(math.log(2.0))],
    ]
    assert slope(lambda e: torch.tensor(0.0, dtype=torch.float64) ** e, [0.0, 1.0]) == [0.0, 0.0]


def test_products_with_zeros():
    assert slope(torch.prod, [2.0, 0.0, 3.0]) == [0.0, 6.0, 0.0]
    assert slope(torch.prod, [0.0, 0.0, 3.0]) == [0.0, 0.0, 0.0]
    assert slope(lambda x: torch.prod(x, 1), [[2.0, 0.0], [1.0, 4.0]]) == [[0.0, 2.0], [4.0, 1.0]]
    assert slope(lambda x: torch.cumprod(x, 0), [2.0, 0.0, 3.0]) == [1.0, 8.0, 0.0]


def test_norms_and_deviations_at_zero():
    assert slope(torch.norm, [0.0, 0.0]) == [0.0, 0.0]
    assert slope(lambda x: torch.norm(x, 1), [0.0, -2.0]) == [0.0, -1.0]
    assert slope(lambda x: torch.norm(x, INF), [3.0, -3.0, 1.0]) == [0.5, -0.5, 0.0]
    assert slope(lambda x: torch.norm(x, 1.5), [0.0, 4.0]) == [0.0, pytest.approx(1.0, rel=1e-15)]
    assert slope(torch.std, [2.0, 2.0]) == [0.0, 0.0]
    assert slope(torch.atan2, [0.0], [0.0]) == [[0.0], [0.0]]


def test_masks_stop_nan():
    """The branch not taken gives 0, whatever its slope is."""
    assert slope(lambda x: torch.where(x > 0.0, torch.log(x.clamp(min=1e-300)), x), [-1.0, 2.0]) == [1.0, 0.5]
    x = leaf([1.0, 2.0])
    y = x.masked_fill(torch.tensor([True, False]), 0.0)
    y.backward(torch.tensor([NAN, 1.0], dtype=torch.float64))
    assert x.grad.tolist() == [0.0, 1.0]
    x = leaf([-1.0, 1.0])
    torch.relu(x).backward(torch.tensor([INF, 1.0], dtype=torch.float64))
    assert x.grad.tolist() == [0.0, 1.0]


def test_zero_gradients():
    for function in (
        torch.floor,
        torch.sign,
        lambda x: x.clone().zero_(),
        lambda x: x.clone().uniform_(),
        lambda x: torch.bernoulli(x.clamp(0, 1)),
    ):
        assert slope(function, [0.3, -1.5]) == [0.0, 0.0]


# ---- losses ----


def test_cross_entropy_values_and_slopes():
    x, t = [[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]], [1, 0]
    p = np.exp(np.array(x)) / np.exp(np.array(x)).sum(1, keepdims=True)
    expected = (p - np.eye(3)[t]) / 2
    np.testing.assert_allclose(slope(lambda a: F.cross_entropy(a, torch.tensor(t)), x), expected, rtol=1e-12, atol=1e-15)
    value = F.cross_entropy(leaf(x), torch.tensor(t)).item()
    assert value == pytest.approx(-np.log(p[[0, 1], t]).mean(), rel=1e-14)


@pytest.mark.parametrize("loss", [F.nll_loss, F.cross_entropy])
def test_class_targets_are_checked(loss):
    x = torch.zeros(3, 4)
    with pytest.raises(IndexError, match="Target 7 is out of bounds"):
        loss(x, torch.tensor([0, 1, 7]))
    with pytest.raises(IndexError, match="Target -1 is out of bounds"):
        loss(x, torch.tensor([0, 1, -1]))
    with pytest.raises(ValueError, match=r"Expected input batch_size \(3\) to match target batch_size \(2\)"):
        loss(x, torch.tensor([0, 1]))
    with pytest.raises(RuntimeError, match="expected target dtype to be Long or Byte"):
        loss(x, torch.tensor([0.0, 1.0, 2.0]))
    with pytest.raises(RuntimeError, match="defined either for all 4 classes"):
        loss(x, torch.tensor([0, 1, 2]), weight=torch.ones(3))
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        loss(x, torch.tensor([0, 1, 2]), reduction="average")
    assert math.isnan(loss(x, torch.tensor([-100, -100, -100])).item())
    assert loss(x, torch.tensor([-100, -100, -100]), reduction="sum").item() == 0.0


def test_cross_entropy_arguments():
    x = torch.zeros(3, 4)
    with pytest.raises(RuntimeError, match=r"label_smoothing must be between 0.0 and 1.0"):
        F.cross_entropy(x, torch.tensor([0, 1, 2]), label_smoothing=1.5)
    with pytest.raises(RuntimeError, match="Expected floating point type for target"):
        F.cross_entropy(x, torch.ones(3, 4, dtype=torch.int64))
    with pytest.raises(RuntimeError, match="ignore_index is not supported"):
        F.cross_entropy(x, torch.ones(3, 4), ignore_index=1)
    with pytest.raises(RuntimeError, match="multi-target not supported"):
        F.cross_entropy(x, torch.ones(3, 5))


def test_other_losses_arguments():
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match="negative values for beta"):
        F.smooth_l1_loss(x, x, beta=-1.0)
    with pytest.raises(RuntimeError, match="non-positive values for delta"):
        F.huber_loss(x, x, delta=0.0)
    with pytest.raises(RuntimeError, match="between 0 and 1"):
        F.binary_cross_entropy(x + 2.0, x)
    with pytest.raises(ValueError, match="not a valid value for reduction"):
        F.mse_loss(x, x, reduction="average")


def test_binary_cross_entropy_at_the_ends():
    assert slope(
        lambda x: F.binary_cross_entropy(x, torch.tensor([1.0, 0.0], dtype=torch.float64), reduction="sum"), [0.0, 1.0]
    ) == [pytest.approx(-1e12, rel=1e-7), pytest.approx(1e12, rel=1e-7)]
    assert F.binary_cross_entropy(leaf([0.0]), torch.ones(1, dtype=torch.float64)).item() == 100.0
    assert slope(
        lambda x: F.binary_cross_entropy_with_logits(x, torch.ones(2, dtype=torch.float64), reduction="sum"),
        [-1e4, 1e4],
    ) == [-1.0, 0.0]


def test_logsumexp_and_norm_extremes():
    assert torch.logsumexp(torch.tensor([1e300, 1e300], dtype=torch.float64), 0).item() == pytest.approx(1e300)
    assert torch.logsumexp(torch.tensor([-INF, -INF]), 0).item() == -INF
    assert torch.logsumexp(torch.tensor([INF, 1.0]), 0).item() == INF
    assert torch.logsumexp(torch.zeros(0, 2), 0).tolist() == [-INF, -INF]
    if not IS_PYTORCH:
        assert torch.norm(torch.ones(2, 2), "nuc").item() == pytest.approx(2)
    with pytest.raises(RuntimeError, match="not supported"):
        torch.norm(torch.ones(2, 2), "frobenius")


def test_as_strided_of_memory_listed_twice():
    """Elements at one place share the gradient of that place, so that who expanded one number gets it once. Values are PyTorch's."""
    x, w = torch.arange(3.0).requires_grad_(), torch.tensor([1.0, 2.0, 3.0])
    (first,) = torch.autograd.grad(x.expand(3, 3).as_strided((3,), (1,)), x, w)
    (second,) = torch.autograd.grad(x.unfold(0, 2, 1).as_strided((3,), (1,)), x, w)
    assert first.tolist() == second.tolist() == [1.0, 2.0, 3.0]
    leaf = torch.arange(3.0).expand(2, 3).detach().requires_grad_()
    (shared,) = torch.autograd.grad((leaf.as_strided((3,), (1,)) ** 2 * w).sum(), leaf, create_graph=True)
    assert shared.tolist() == [[0.0, 2.0, 6.0]] * 2
    (twice,) = torch.autograd.grad(shared.sum(), leaf)
    assert twice.tolist() == [[1.0, 2.0, 3.0]] * 2
