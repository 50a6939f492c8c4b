"""Types and names of graph nodes: what people print, and compare as text."""

import gc
import re
import weakref

import pytest
from golden_tools import IS_PYTORCH, torch

F = torch.nn.functional
X, W, T = torch.rand(4, 6, requires_grad=True), torch.rand(5, 6, requires_grad=True), torch.tensor([0, 1, 2, 3])
NAMES = {
    "AddBackward0": lambda: X + X,
    "RsubBackward1": lambda: 1 - X,
    "SubBackward0": lambda: X - 1,
    "MulBackward0": lambda: X * 2,
    "MmBackward0": lambda: F.linear(X, W),
    "AddmmBackward0": lambda: F.linear(X, W, W[:, 0]),
    "UnsafeViewBackward0": lambda: F.linear(X[None], W),
    "PowBackward0": lambda: X**2,
    "PowBackward1": lambda: X**X,
    "PowBackward2": lambda: 2**X,
    "ClampBackward1": lambda: X.clamp(min=0),
    "DivBackward2": lambda: torch.div(X, X, rounding_mode="floor"),
    "NllLossBackward0": lambda: F.cross_entropy(X, T),
    "SmoothL1LossBackward0": lambda: F.smooth_l1_loss(X, X),
    "HuberLossBackward0": lambda: F.huber_loss(X, X),
    "BinaryCrossEntropyWithLogitsBackward0": lambda: F.binary_cross_entropy_with_logits(X, X),
    "NativeLayerNormBackward0": lambda: F.layer_norm(X, (6,)),
    "NativeGroupNormBackward0": lambda: F.group_norm(X, 2),
    "StackBackward0": lambda: torch.stack([X, X]),
    "LogsumexpBackward0": lambda: X.logsumexp(1),
    "CopySlices": lambda: written(),
    "CopyBackwards": lambda: (X * 1).copy_(X),
    "IndexSelectBackward0": lambda: X.index_select(0, T),
    "LinalgInvExBackward0": lambda: torch.linalg.inv(X[:, :4] + 3 * torch.eye(4)),
}


def written():
    x = X * 1
    x[0] = 1
    return x


@pytest.mark.parametrize("name", NAMES)
def test_types_are_named_after_the_operation(name):
    node = NAMES[name]().grad_fn
    assert type(node).__name__ == name and node.name().split("::")[-1] == name
    assert str(type(node)) == f"<class '{name}'>" and re.match(rf"<{name} object at 0x[0-9a-f]+>$", repr(node))
    assert isinstance(node, torch.autograd.graph.Node)


def test_losses_print_as_one_operation():
    assert re.match(r"tensor\(\d\.\d+, grad_fn=<HuberLossBackward0>\)", repr(F.huber_loss(X, X + 1)))


def test_nodes_reached_from_others_have_types_too():
    y = (X * 2).exp()
    node = y.grad_fn.next_functions[0][0]
    assert type(node).__name__ == "MulBackward0" and type(node) is type((X * 3).grad_fn)
    end = node.next_functions[0][0]
    assert type(end).__name__ == "AccumulateGrad" and str(type(end)) == "<class 'AccumulateGrad'>"
    assert type(torch.autograd.graph.get_gradient_edge(y).node).__name__ == "ExpBackward0"


def test_the_backward_pass_goes_through_nodes_that_were_seen():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3
    z = (y.bfloat16().float() + y).sum()
    seen, todo = [], [z.grad_fn]
    while todo:
        node = todo.pop()
        seen.append(type(node).__name__)
        todo += [n for n, _ in node.next_functions if n is not None]
    assert {"SumBackward0", "ToCopyBackward0", "MulBackward0", "AccumulateGrad"} <= set(seen)
    z.backward()
    assert x.grad.tolist() == [6.0, 6.0]


class Mark:
    """What a node holds, and nobody else."""


def marked(y):
    y.grad_fn.metadata["mark"] = mark = Mark()
    return weakref.ref(mark)


def test_seen_nodes_are_freed_and_their_memory_taken_again():
    for _ in range(50):
        y = X
        for _ in range(20):
            y = torch.sin(y * 2)
            assert y.grad_fn is not None
        gone = marked(y)
        del y
        assert gone() is None
    made = [X + 1 for _ in range(300)]  # nodes of the pool: not named yet
    assert {type(y.grad_fn).__name__ for y in made} == {"AddBackward0"}


@pytest.mark.skipif(IS_PYTORCH, reason="PyTorch's nodes don't take part in Python's garbage collection")
def test_rings_through_nodes_are_found():
    ring = X + 1
    gone = marked(ring)
    ring.grad_fn.metadata["ring"] = ring
    del ring
    gc.collect()
    assert gone() is None


def test_custom_functions():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    y = Twice.apply(X)
    assert type(y.grad_fn).__name__ == "TwiceBackward" and y.grad_fn.name() == "TwiceBackward"


PARTS = {
    "SplitBackward0": lambda x: x.split(2),
    "SplitWithSizesBackward0": lambda x: x.split([1, 2, 1]),
    "UnbindBackward0": lambda x: x.unbind(1),
    "RepeatBackward0": lambda x: (x.repeat(2, 1),),
    "RollBackward0": lambda x: (x.roll(1),),
}


@pytest.mark.parametrize("name", PARTS)
def test_parts_are_outputs_of_one_operation(name):
    parts = PARTS[name](X)
    assert [type(p.grad_fn).__name__ for p in parts] == [name] * len(parts)
    assert [p.output_nr for p in parts] == list(range(len(parts)))
    joined = torch.cat(parts[::-1]) if name != "UnbindBackward0" else torch.stack(parts[::-1])
    if name != "UnbindBackward0":
        assert [nr for _, nr in joined.grad_fn.next_functions] == list(range(len(parts)))[::-1]
    edge = torch.autograd.graph.get_gradient_edge(parts[-1])
    assert edge.output_nr == len(parts) - 1
    y = (parts[-1] * 3).sum()
    assert torch.autograd.grad(y, edge, retain_graph=True)[0].tolist() == torch.autograd.grad(y, parts[-1])[0].tolist()


def test_chunks_and_iteration():
    first, second = X.chunk(2, dim=1)
    assert [nr for _, nr in (second * first).grad_fn.next_functions] == [1, 0]
    assert [(type(row.grad_fn).__name__, row.output_nr) for row in X] == [("UnbindBackward0", i) for i in range(4)]
    with torch.no_grad():
        assert [p.grad_fn for p in X.split(2)] == [None, None]
