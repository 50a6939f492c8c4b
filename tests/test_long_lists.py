"""Steps over many small tensors take a short way as long as nothing is unusual: every case here gives what its tensors give alone."""

import sys
import warnings

import numpy as np
import pytest

import ampnative as torch
from ampnative import _C

KINDS = [("SGD", {}), ("SGD", {"momentum": 0.9, "nesterov": True}), ("Adam", {}), ("AdamW", {"amsgrad": True}), ("NAdam", {})]
COUNT = 70


def tensors(seed, dtype=torch.float32, device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(i % 4, 5) if i % 3 == 0 else (16,) for i in range(COUNT)]
    return [torch.randn(s, generator=generator).to(device, dtype) for s in shapes]


def parameters(dtype=torch.float32, device="cpu"):
    return [torch.nn.Parameter(t) for t in tensors(0, dtype, device)]


class Pair:
    """The same parameters in one optimizer and in one optimizer each."""

    def __init__(self, kind, options, dtype=torch.float32, device="cpu"):
        make = getattr(torch.optim, kind)
        self.together, self.alone = parameters(dtype, device), parameters(dtype, device)
        self.optimizer = make(self.together, lr=0.1, **options)
        self.others = [make([p], lr=0.1, **options) for p in self.alone]
        self.device, self.dtype, self.steps = device, dtype, 0

    def gradients(self, leave_out=lambda i: False):
        self.steps += 1
        for params in (self.together, self.alone):
            for i, (p, g) in enumerate(zip(params, tensors(self.steps, self.dtype, self.device), strict=True)):
                p.grad = None if leave_out(i) else g.to(p.dtype)

    def step(self):
        self.optimizer.step()
        for other in self.others:
            other.step()
        for p, q, other in zip(self.together, self.alone, self.others, strict=True):
            assert torch.equal(p, q)
            assert list(self.optimizer.state[p]) == list(other.state[q])
            for name, value in self.optimizer.state[p].items():
                assert torch.equal(value, other.state[q][name])


@pytest.fixture(params=KINDS, ids=lambda k: f"{k[0]}-{'-'.join(k[1])}")
def kind(request):
    return request.param


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_gradients_come_and_go(kind, dtype):
    pair = Pair(*kind, dtype=dtype)
    for leave_out in (lambda i: False, lambda i: i % 4 == 1, lambda i: i < 40, lambda i: True, lambda i: i == COUNT - 1):
        pair.gradients(leave_out)
        pair.step()


def test_a_parameter_that_starts_later(kind):
    pair = Pair(*kind)
    for late in (20, 20, -1, -1):
        pair.gradients(lambda i, late=late: i == late)
        pair.step()


def test_emulated_cuda(kind):
    with torch.cuda.emulate():
        pair = Pair(*kind, device="cuda")
        for _ in range(3):
            pair.gradients()
            pair.step()


def exchange(pair, change):
    for i, (p, q, other) in enumerate(zip(pair.together, pair.alone, pair.others, strict=True)):
        change(i, p, pair.optimizer)
        change(i, q, other)


def other_memory(i, p, _):
    if i % 5 == 0:
        p.data = p.detach() * 2


def other_layout(i, p, _):
    if p.dim() == 2 and i % 2 == 0:
        p.data = p.detach().t().contiguous().t()


def other_dtype(i, p, optimizer):
    if i == 30:
        p.data, p.grad = p.detach().double(), p.grad.double()
        for name, value in optimizer.state[p].items():
            optimizer.state[p][name] = value if name in ("step", "mu_product") else value.double()


def other_state(i, p, optimizer):
    if i % 7 == 0:
        for name, value in optimizer.state[p].items():
            optimizer.state[p][name] = value.clone()
    if i == 11:
        for value in optimizer.state[p].values():
            value.mul_(0.5)


def lost_state(i, p, optimizer):
    if i == 33:
        optimizer.state[p].clear()


def double_counter(i, p, optimizer):
    if i == 12 and "step" in optimizer.state[p]:
        optimizer.state[p]["step"] = optimizer.state[p]["step"].double() + 5


def sliced_gradient(i, p, _):
    if i % 6 == 1:
        p.grad = torch.stack([p.grad, p.grad * 3], -1)[..., 0]


def subclass_as_gradient(i, p, _):
    class Marked(torch.Tensor):
        pass

    if i == 50:
        p.grad = p.grad.as_subclass(Marked)


CHANGES = [other_memory, other_layout, other_dtype, other_state, lost_state, double_counter, sliced_gradient, subclass_as_gradient]


@pytest.mark.parametrize("change", CHANGES)
def test_what_changes_between_steps(kind, change):
    pair = Pair(*kind)
    for _ in range(2):
        pair.gradients()
        pair.step()
    for _ in range(2):
        pair.gradients()
        exchange(pair, change)
        pair.step()


def test_groups_that_grow_and_states_that_are_loaded(kind):
    name, options = kind
    finals = []
    for split in (False, True):
        params = parameters()
        make = getattr(torch.optim, name)
        optimizer = make(params[:30] if split else params, lr=0.1, **options)
        for step in range(4):
            if split and step == 1:
                optimizer.add_param_group({"params": params[30:], "lr": 0.1})
            elif split and step == 2:
                saved = optimizer.state_dict()
                optimizer = make([{"params": params[:30]}, {"params": params[30:]}], lr=5.0, **options)
                optimizer.load_state_dict(saved)
            for i, (p, g) in enumerate(zip(params, tensors(step), strict=True)):
                p.grad = None if step == 0 and i >= 30 else g
            optimizer.step()
        finals.append(params)
    assert all(torch.equal(a, b) for a, b in zip(*finals, strict=True))


def everything(optimizer, params):
    states = [optimizer.state[p][name] for p in params for name in optimizer.state[p]]
    return [*params, *[p.grad for p in params], *states]


def test_versions_and_references(kind):
    pair = Pair(*kind)
    pair.gradients()
    pair.step()
    params, optimizer = pair.together, pair.optimizer
    held = everything(optimizer, params)
    written = [t for t in held if not any(t is p.grad for p in params)]
    versions, counts = {id(t): t._version for t in held}, [sys.getrefcount(t) for t in held]
    optimizer.step()
    assert [sys.getrefcount(t) for t in held] == counts
    for t in held:
        assert t._version == versions[id(t)] + any(t is w for w in written)
    del t
    optimizer.zero_grad(set_to_none=False)
    assert all(p.grad._version == versions[id(p.grad)] + 1 and not p.grad.any() for p in params)
    assert [sys.getrefcount(t) for t in held] == counts


def read_only():
    array = np.ones(16, np.float32)
    array.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.from_numpy(array)


@pytest.mark.parametrize("row", [61, 67])  # tensors are looked at in blocks of 64
@pytest.mark.parametrize("where", ["momentum_buffer", "shape", "dtype", "no tensor", "parameter"])
def test_nothing_is_half_done_when_a_late_one_fails(where, row):
    params = parameters()
    optimizer = torch.optim.SGD(params, lr=0.1, momentum=0.9)
    for p, g in zip(params, tensors(1), strict=True):
        p.grad = g
    optimizer.step()
    late, state = params[row], optimizer.state[params[row]]
    if where == "momentum_buffer":
        state["momentum_buffer"] = read_only()
    elif where == "shape":
        state["momentum_buffer"] = torch.ones(4, 4)
    elif where == "dtype":
        state["momentum_buffer"] = torch.ones(16, dtype=torch.float64)
    elif where == "no tensor":
        state["momentum_buffer"] = 3.0
    else:
        late.data = read_only()
    held = [t for t in everything(optimizer, params) if isinstance(t, torch.Tensor)]
    before, versions, counts = [t.detach().clone() for t in held], [t._version for t in held], [sys.getrefcount(t) for t in held]
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(held, before, strict=True))
    assert [t._version for t in held] == versions and [sys.getrefcount(t) for t in held] == counts


def test_a_parameter_listed_twice_is_stepped_twice():
    finals = []
    for make in (lambda p: [p] * 40, lambda p: [p]):
        p = torch.nn.Parameter(torch.arange(16.0))
        p.grad = torch.ones(16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            optimizer = torch.optim.SGD(make(p), lr=0.125, momentum=0.5)
        optimizer.step()
        for _ in range(39 if len(optimizer.param_groups[0]["params"]) == 1 else 0):
            optimizer.state.clear()  # the first step of each is one of its own
            optimizer.step()
        finals.append(p)
    assert torch.equal(*finals)


def test_neighbours_in_memory_are_no_part_of_each_other():
    """Rows of one block, in order, in reverse, with gaps: what lies between stays."""
    for rows in (range(60), range(59, -1, -1), range(0, 60, 2)):
        block, grads = torch.ones(60, 16), torch.full((60, 16), 2.0)
        params = [torch.nn.Parameter(block[i]) for i in rows]
        for i, p in zip(rows, params, strict=True):
            p.grad = grads[i]
        optimizer = torch.optim.SGD(params, lr=0.5)
        optimizer.step()
        _C._list_scale_([p.grad for p in params], 3.0)
        want, scaled = np.ones((60, 16), np.float32), np.full((60, 16), 2.0, np.float32)
        want[list(rows)], scaled[list(rows)] = 0.0, 6.0
        assert np.array_equal(block.numpy(), want) and np.array_equal(grads.numpy(), scaled)
        optimizer.zero_grad(set_to_none=False)
        scaled[list(rows)] = 0.0
        assert np.array_equal(grads.numpy(), scaled)


def test_sixteen_bit_copies_among_small_ones():
    params = [torch.nn.Parameter(torch.randn(4096 if i % 9 == 0 else 16)) for i in range(40)]
    for optimizer in (torch.optim.SGD(params, lr=0.1, momentum=0.9), torch.optim.Adam(params, lr=0.1)):
        for asked in (params[::18], params[9::18], params):
            for p in params:
                p.grad = torch.ones_like(p)
            for p in asked:
                p.detach().bfloat16()
            optimizer.step()
            assert [_C._has_twin(p) for p in params] == [p.numel() == 4096 and any(p is q for q in asked) for p in params]
            for p in asked:
                assert torch.equal(p.detach().bfloat16(), p.detach().clone().bfloat16())
            optimizer.step()  # those that were taken have been asked for again
            _C._list_scale_(params, 1.5)
            assert not any(_C._has_twin(p) for p in params)
            optimizer.step()


def test_a_fused_step_divides_the_gradients(kind):
    name, options = kind
    if name == "NAdam":
        return
    plain, fused = Pair(name, options), Pair(name, {**options, "fused": True})
    for _ in range(2):
        for pair in (plain, fused):
            pair.gradients()
        scaled = [p.grad * 4 for p in fused.together]
        for p, g in zip(fused.together, scaled, strict=True):
            p.grad = g
        fused.optimizer.grad_scale, fused.optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
        versions = [g._version for g in scaled]
        fused.optimizer.step()
        plain.optimizer.step()
        assert all(torch.equal(a, b) for a, b in zip(fused.together, plain.together, strict=True))
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(fused.together, plain.together, strict=True))
        assert [g._version for g in scaled] == [v + 1 for v in versions]


def test_a_subclass_may_have_a_step_of_its_own():
    class Counting(torch.optim.SGD):
        seen = 0

        def step(self, closure=None):
            self.seen += 1
            return super().step(closure)

    params = parameters()
    optimizer = Counting(params, lr=0.1)
    for p, g in zip(params, tensors(1), strict=True):
        p.grad = g
    before = [p.detach().clone() for p in params]
    optimizer.step()
    assert optimizer.seen == 1
    for p, b in zip(params, before, strict=True):
        assert np.allclose(p.detach().numpy(), (b - 0.1 * p.grad).numpy(), rtol=1e-6, atol=1e-7)


def test_a_read_only_gradient_is_read_but_not_divided():
    params = parameters()
    optimizer = torch.optim.SGD(params, lr=0.1, fused=True)
    for p, g in zip(params, tensors(1), strict=True):
        p.grad = g
    params[61].grad = read_only()
    optimizer.step()
    before = [t.detach().clone() for t in everything(optimizer, params)]
    optimizer.grad_scale, optimizer.found_inf = torch.tensor(4.0), torch.tensor(0.0)
    with pytest.raises(RuntimeError, match="read-only"):
        optimizer.step()
    assert all(torch.equal(a, b) for a, b in zip(everything(optimizer, params), before, strict=True))


def swapped_entries(state, params):
    for p in params[::2]:
        state[p] = {name: state[p][name] for name in sorted(state[p], key=lambda n: (n != "step", -len(n)))}


def swapped_owners(state, params):
    for p in params[1:20:3]:  # the first stays where it is
        state[p] = state.pop(p)


@pytest.mark.parametrize("disturb", [swapped_entries, swapped_owners])
def test_states_of_one_shape_are_not_mistaken_for_each_other(kind, disturb):
    name, options = kind
    finals = []
    for change in (False, True):
        params = [torch.nn.Parameter(t) for t in torch.randn(60, 16, generator=torch.Generator().manual_seed(0))]
        optimizer = getattr(torch.optim, name)(params, lr=0.1, **options)
        for step in range(3):
            for i, p in enumerate(params):
                p.grad = torch.full((16,), 0.1 * i + step - 2)
            optimizer.step()
            if change and optimizer.state:
                disturb(optimizer.state, params)
        finals.append(params)
    assert all(torch.equal(a, b) for a, b in zip(*finals, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parameters_without_a_gradient_get_no_state(kind, dtype):
    pair = Pair(*kind, dtype=dtype)
    for _ in range(3):
        pair.gradients(lambda i: i % 2)
        pair.optimizer.step()
        assert all(p.grad is not None for p in pair.optimizer.state)
        pair.optimizer.load_state_dict(pair.optimizer.state_dict())


def test_gradients_in_the_memory_of_other_parameters_are_read_in_turn():
    """The parameters lie side by side, and so do their gradients: what a step writes is what the next gradient holds."""
    memory = torch.tensor([1.0, 10.0, 100.0])
    params = [torch.nn.Parameter(memory[i : i + 1]) for i in (1, 2)]
    for i, p in enumerate(params):
        p.grad = memory[i : i + 1]
    torch.optim.SGD(params, lr=1.0).step()
    assert memory.tolist() == [1.0, 9.0, 91.0]
