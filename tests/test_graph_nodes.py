"""Nodes of the graph: names, edges, hooks on them, gradient edges, hooks on several tensors."""

import gc
import weakref

import pytest
from golden_tools import IS_PYTORCH, torch

F = torch.nn.functional
graph = torch.autograd.graph


def leaf(n=3):
    return torch.ones(n, requires_grad=True)


def test_a_node():
    x = leaf()
    y = x * 2
    node = y.grad_fn
    assert isinstance(node, graph.Node) and node.name() == "MulBackward0" and node is y.grad_fn
    (end, number), nothing = node.next_functions
    assert number == 0 and nothing == (None, 0)
    assert end.variable is x and end.next_functions == () and isinstance(end, graph.Node)
    assert end.name() == "torch::autograd::AccumulateGrad" and type(end).__name__ == "AccumulateGrad"
    assert node.next_functions[0][0] is end and graph.get_gradient_edge(x).node is end
    node.metadata["note"] = 1
    assert y.grad_fn.metadata == {"note": 1} and end.metadata == {}
    assert y.exp().grad_fn._sequence_nr() > node._sequence_nr()
    assert node.requires_grad and end.requires_grad
    assert repr(node).startswith("<MulBackward0 object at 0x")


NAMES = {
    "x + x": "Add", "x - x": "Sub", "x / x": "Div", "-x": "Neg", "x**2": "Pow", "x @ x": "Mm", "F.linear(x, x, x[0])": "Addmm",
    "x.sum()": "Sum", "x.mean()": "Mean", "x.t()": "T", "x.view(16)": "View", "x[0]": "Select", "x[0:2]": "Slice",
    "x[x > 0]": "Index", "torch.cat([x, x])": "Cat", "x.to(torch.float64)": "ToCopy", "F.relu(x)": "Relu", "F.gelu(x)": "Gelu",
    "F.softmax(x, 0)": "Softmax", "F.log_softmax(x, 0)": "LogSoftmax", "x.clone()": "Clone", "x.unsqueeze(0)": "Unsqueeze",
    "F.mse_loss(x, x.detach())": "MseLoss", "F.cross_entropy(x, torch.arange(4))": "NllLoss", "x.tanh()": "Tanh",
    "F.conv2d(x[None, None], x[None, None])": "Convolution", "x.expand(2, 4, 4)": "Expand", "F.selu(x)": "Elu",
    "F.batch_norm(x, None, None, training=True)": "NativeBatchNorm", "x.narrow(0, 0, 2)": "Slice", "F.logsigmoid(x)": "LogSigmoid",
}  # fmt: skip


@pytest.mark.parametrize("call", NAMES)
def test_names(call):
    x = torch.ones(4, 4, requires_grad=True)
    assert eval(call, {"x": x, "F": F, "torch": torch}).grad_fn.name() == NAMES[call] + "Backward0"


def test_sums_over_dims_have_the_second_name():
    x = torch.ones(4, 4, requires_grad=True)
    for y, name in ((x.sum(0), "Sum"), (x.mean(0), "Mean"), (x.prod(0), "Prod"), (x.max(), "Max"), (x.min(), "Min")):
        assert y.grad_fn.name() == name + "Backward1"


def test_hooks_around_a_node():
    x, log = leaf(), []
    y = x * 2
    after = y.grad_fn.register_hook(lambda made, given: log.append(("after", made, given)))
    before = y.grad_fn.register_prehook(lambda given: log.append(("before", given)))
    y.register_hook(lambda g: log.append(("tensor", g)))
    y.sum().backward(retain_graph=True)
    assert [entry[0] for entry in log] == ["tensor", "before", "after"]
    assert log[1][1][0].tolist() == [1, 1, 1] == log[2][2][0].tolist()
    assert log[2][1][0].tolist() == [2, 2, 2] and log[2][1][1] is None
    after.remove()
    before.remove()
    log.clear()
    y.sum().backward()
    assert [entry[0] for entry in log] == ["tensor"]


def test_hooks_replace_gradients():
    x = leaf()
    y = x * 2
    y.retain_grad()
    y.grad_fn.register_prehook(lambda given: (given[0] * 3,))
    y.grad_fn.register_hook(lambda made, given: tuple(None if g is None else g * 10 for g in made))
    y.sum().backward()
    assert x.grad.tolist() == [60, 60, 60] and y.grad.tolist() == [1, 1, 1]


def test_gradients_that_hooks_saw_are_not_computed_over():
    x, seen = leaf(), []
    y = torch.relu(x)
    y.grad_fn.register_hook(lambda made, given: seen.append(given[0]))
    (y * 3).sum().backward()
    x.grad.mul_(7)
    assert seen[0].tolist() == [3, 3, 3] and x.grad.tolist() == [21, 21, 21]


@pytest.mark.parametrize(
    "hook, error, match",
    [
        (lambda made, given: made[0], TypeError, "expected tuple, but hook returned"),
        (lambda made, given: made[:1], RuntimeError, r"has returned an incorrect number of values \(got 1, but expected 2\)"),
        (lambda made, given: (made[0][:2], None), RuntimeError, "hook '<lambda>' has changed the size of value"),
        (lambda made, given: (made[0].double(), None), RuntimeError, "hook '<lambda>' has changed the type of value"),
        (lambda made, given: (1, None), TypeError, "but hook returned 'int'"),
        (lambda made, given: 1 / 0, ZeroDivisionError, "division"),
    ],
)
def test_hooks_that_return_nonsense(hook, error, match):
    y = leaf() * 2
    y.grad_fn.register_hook(hook)
    with pytest.raises(error, match=match):
        y.sum().backward()


def test_a_hook_may_drop_gradients():
    x = leaf()
    y = x * 2
    y.grad_fn.register_hook(lambda made, given: (None, None))
    y.sum().backward()
    assert x.grad is None


def test_hooks_of_accumulators():
    x, log = leaf(), []
    y = x * 2
    end = y.grad_fn.next_functions[0][0]
    end.register_prehook(lambda given: log.append(("before", given[0].tolist(), x.grad)))
    end.register_hook(lambda made, given: log.append(("after", made, given[0].tolist(), x.grad.tolist())))
    x.register_hook(lambda g: log.append(("tensor", g.tolist())))
    x.register_post_accumulate_grad_hook(lambda t: log.append(("accumulated", t.grad.tolist())))
    y.sum().backward()
    two = [2, 2, 2]
    assert log == [("tensor", two), ("before", two, None), ("accumulated", two), ("after", (), two, two)]
    log.clear()
    torch.autograd.grad((x * 2).sum(), x)
    assert log == [("tensor", two)]
    end.register_prehook(lambda given: (given[0] * 5,))
    x.grad = None
    (x * 2).sum().backward()
    assert x.grad.tolist() == [10, 10, 10]


def test_the_ctx_answers_through_the_node():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.factor = 2
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.factor

    x = leaf()
    node = Twice.apply(x).grad_fn
    assert node.name() == "TwiceBackward" and node.factor == 2 and node.saved_tensors[0] is x
    assert node.next_functions[0][0].variable is x and isinstance(node, graph.Node)
    with pytest.raises(AttributeError):
        _ = node.nothing


def test_gradient_edges():
    x = leaf()
    y = x * 2
    at_y, at_x = graph.get_gradient_edge(y), graph.get_gradient_edge(x)
    assert at_y.node is y.grad_fn and at_y.output_nr == 0 and at_y._fields == ("node", "output_nr", "ownership_token")
    z = (y**2).sum()
    assert torch.autograd.grad(z, at_y, retain_graph=True)[0].tolist() == [4, 4, 4]
    for wanted in ((at_y, x), [at_y, at_x]):
        a, b = torch.autograd.grad(z, wanted, retain_graph=True)
        assert a.tolist() == [4, 4, 4] and b.tolist() == [8, 8, 8]
    (g,) = torch.autograd.grad(at_y, x, grad_outputs=torch.ones(3), retain_graph=True)
    assert g.tolist() == [2, 2, 2]
    torch.autograd.backward(graph.get_gradient_edge(z), retain_graph=True)
    z.backward(inputs=[at_x], retain_graph=True)
    assert x.grad.tolist() == [16, 16, 16]
    unused = graph.get_gradient_edge(leaf())
    assert torch.autograd.grad(z, unused, allow_unused=True, retain_graph=True) == (None,)
    with pytest.raises(RuntimeError, match="does not require gradients"):
        graph.get_gradient_edge(torch.ones(1))
    with pytest.raises(RuntimeError, match="only for scalar outputs|Mismatch"):
        torch.autograd.backward(at_y)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        torch.autograd.grad(at_y, x, grad_outputs=torch.ones(2))


def test_edges_of_outputs_behind_the_first():
    x = torch.arange(4.0).requires_grad_()
    _, high = torch.aminmax(x.reshape(2, 2), dim=0) if IS_PYTORCH else torch.sort(x)[0].split(2)
    edge = graph.get_gradient_edge(high)
    (g,) = torch.autograd.grad(high.sum(), edge)
    assert g.tolist() == [1, 1]
    with pytest.raises((IndexError, RuntimeError)):
        torch.autograd.grad(graph.GradientEdge(high.grad_fn, 99), x, grad_outputs=torch.ones(2))


def test_hooks_of_several_tensors():
    a, b, c = leaf(2), leaf(2), leaf(2)
    log = []
    handle = graph.register_multi_grad_hook((a, b, c), lambda grads: log.append([None if g is None else g.tolist() for g in grads]))
    one = [1.0, 1.0]
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    c.sum().backward()
    assert log == [[one, one, None], [one, one, one], [None, None, one]]
    handle.remove()
    (a * b).sum().backward()
    assert len(log) == 3
    first = []
    handle = graph.register_multi_grad_hook((a, b, c), first.append, mode="any")
    (a * b).sum().backward()
    (a * b * c).sum().backward()
    assert [g.tolist() for g in first] == [one, one]
    handle.remove()
    with pytest.raises(ValueError, match="Expects mode to be one of"):
        graph.register_multi_grad_hook((a,), print, mode="some")
    with pytest.raises(AssertionError, match="Expected gradient function to be set"):
        graph.register_multi_grad_hook((torch.ones(1),), print)


def test_hooks_of_several_tensors_where_not_all_are_asked_for():
    a, b = leaf(2), leaf(2)
    y, log = a * 2, []
    graph.register_multi_grad_hook((y, b), lambda grads: log.append([g is not None for g in grads]))
    (y + b).sum().backward(retain_graph=True)
    torch.autograd.grad((y + b).sum(), y)
    torch.autograd.grad((y + b).sum(), a, retain_graph=True)
    assert log == [[True, True], [True, False], [True, False]]


def test_at_the_end_of_a_pass():
    x, log = leaf(), []
    y = x * 2
    y.register_hook(lambda g: graph.queue_callback(lambda: log.append(x.grad.tolist())))
    y.sum().backward()
    assert log == [[2, 2, 2]]
    with pytest.raises(RuntimeError, match="Final callbacks can only be installed during backward pass"):
        graph.queue_callback(lambda: None)


def test_saved_tensors_may_be_written_to():
    t = leaf(2)
    with graph.allow_mutation_on_saved_tensors():
        b = t.clone()
        c = b**2
        b.mul_(2)
        c.sum().backward()
    assert t.grad.tolist() == [2, 2]


def test_writes_that_nobody_saw():
    t = torch.ones(2) * 1
    y = (t.requires_grad_() * 1).exp()
    graph.increment_version([t, y])
    assert t._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_do_not_keep_a_graph_alive():
    x = leaf()
    y = x * 2
    y.grad_fn.register_hook(lambda made, given, y=y: None)
    graph.get_gradient_edge(x).node.register_hook(lambda made, given, x=x: None)
    gone = weakref.ref(y), weakref.ref(x)
    del x, y
    gc.collect()
    assert IS_PYTORCH or [ref() for ref in gone] == [None, None]
