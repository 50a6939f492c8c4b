"""The C functions that take lists of tensors: arguments and rules beyond the recordings."""

import math

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

unscale, update = torch._amp_foreach_non_finite_check_and_unscale_, torch._amp_update_scale_
pytestmark = pytest.mark.filterwarnings("ignore")


def scalar(value, dtype=None, device="cpu"):
    return torch.tensor(value, dtype=dtype or torch.float32, device=device)


@pytest.fixture
def cuda():
    if IS_PYTORCH:
        pytest.skip("PyTorch has no CUDA without a GPU")
    torch.cuda.emulate()
    yield "cuda"
    torch.cuda.emulate(False)


def test_unscale_multiplies_and_flags():
    grads = [
        torch.tensor([2.0, -4.0]),
        torch.tensor([8.0], dtype=torch.float64),
        torch.tensor([2.0], dtype=torch.bfloat16),
    ]
    found = scalar(0.0)
    versions = [g._version for g in grads]
    unscale(grads, found, scalar(0.5))
    assert [g.tolist() for g in grads] == [[1.0, -2.0], [4.0], [1.0]] and found.item() == 0.0
    assert IS_PYTORCH or all(g._version > v for g, v in zip(grads, versions, strict=True))
    unscale([torch.tensor([1.0, math.nan])], found, scalar(0.5))
    assert found.item() == 1.0
    unscale([torch.tensor([3e38])], found2 := scalar(2.0), scalar(2.0))
    assert found2.item() == 2.0


@pytest.mark.parametrize(
    "call, error, phrase",
    [
        (lambda: unscale([torch.ones(2)], torch.zeros(2), scalar(1.0)), RuntimeError, "1-element tensor"),
        (lambda: unscale([torch.ones(2)], scalar(0.0), torch.ones(2)), RuntimeError, "1-element tensor"),
        (lambda: unscale([torch.ones(2)], scalar(0.0), scalar(1.0, torch.float64)), RuntimeError, "float tensor"),
        (lambda: unscale([torch.ones(2)], scalar(0, torch.int32), scalar(1.0)), RuntimeError, "float tensor"),
        (lambda: unscale([torch.ones(1).expand(3)], scalar(0.0), scalar(2.0)), RuntimeError, "share|single memory"),
        (lambda: unscale([3], scalar(0.0), scalar(2.0)), TypeError, ""),
        (lambda: unscale(3, scalar(0.0), scalar(2.0)), TypeError, ""),
        (
            lambda: update(scalar(1.0, torch.float64), scalar(0, torch.int32), scalar(0.0), 2, 0.5, 3),
            RuntimeError,
            "float",
        ),
        (lambda: update(scalar(1.0), scalar(0, torch.int64), scalar(0.0), 2, 0.5, 3), RuntimeError, "int"),
        (
            lambda: update(torch.ones(2), scalar(0, torch.int32), scalar(0.0), 2, 0.5, 3),
            RuntimeError,
            "1-element tensor",
        ),
        (
            lambda: update(scalar(1.0), scalar(0, torch.int32), torch.ones(2), 2, 0.5, 3),
            RuntimeError,
            "1-element tensor",
        ),
    ],
)
def test_refused_arguments(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call()


def test_an_empty_list_is_not_checked():
    unscale([], torch.zeros(5, dtype=torch.int32), torch.zeros(5))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float8_e4m3fn", "float8_e5m2", "bool"])
def test_earlier_gradients_are_done_before_a_bad_dtype_raises(dtype):
    first, last = torch.tensor([4.0, math.inf]), torch.tensor([4.0])
    found = scalar(0.0)
    with pytest.raises(NotImplementedError):
        unscale([first, torch.zeros(2).to(getattr(torch, dtype)), last], found, scalar(0.5))
    assert first.tolist() == [2.0, math.inf] and last.tolist() == [4.0] and found.item() == 1.0


def test_update_returns_the_scale_itself():
    scale, tracker = scalar(4.0), scalar(1, torch.int32)
    assert update(scale, tracker, scalar(0.0), 2.0, 0.5, 2) is scale
    assert scale.item() == 8.0 and tracker.item() == 0
    update(scale, tracker, scalar(-1.0), 2.0, 0.25, 2)
    assert scale.item() == 2.0 and tracker.item() == 0


def test_cuda_narrows_doubles_before_the_test(cuda):
    """The largest double that rounds to a finite fp32 passes, the next one does not; on the CPU both do."""
    edge = float.fromhex("0x1.ffffffp127")
    for value, flag in ((math.nextafter(edge, 0), 0.0), (edge, 1.0), (-1e300, 1.0), (math.nan, 1.0)):
        found = scalar(0.0, device=cuda)
        grad = torch.tensor([[1.0, value]], dtype=torch.float64, device=cuda)
        unscale([grad.t()], found, scalar(0.5, device=cuda))
        assert found.item() == flag, value
        assert grad.tolist()[0][0] == 0.5
        on_cpu = scalar(0.0)
        unscale([torch.tensor([value], dtype=torch.float64)], on_cpu, scalar(0.5))
        assert on_cpu.item() == float(math.isnan(value))


def test_cuda_bfloat16_and_quirks(cuda, monkeypatch):
    grad, found = torch.ones(2, dtype=torch.bfloat16, device=cuda), scalar(0.0, device=cuda)
    unscale([grad], found, scalar(0.5, device=cuda))
    assert grad.tolist() == [0.5, 0.5]
    monkeypatch.setenv("AMPNATIVE_TORCH_QUIRKS", "1")
    told = ": not implemented for 'bfloat16' on cuda, as in PyTorch. Unset AMPNATIVE_TORCH_QUIRKS .*float64 or float16$"
    with pytest.raises(NotImplementedError, match=told):
        unscale([grad], found, scalar(0.5, device=cuda))
    assert grad.tolist() == [0.5, 0.5]


def test_devices_must_agree(cuda):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        unscale([torch.ones(2, device=cuda), torch.ones(2)], scalar(0.0, device=cuda), scalar(1.0, device=cuda))
    with pytest.raises(RuntimeError, match="must be on the CUDA device"):
        unscale([torch.ones(2, device=cuda)], scalar(0.0), scalar(1.0, device=cuda))
    with pytest.raises(RuntimeError, match="must be on the"):
        update(scalar(1.0, device=cuda), scalar(0, torch.int32), scalar(0.0, device=cuda), 2.0, 0.5, 3)


def test_cuda_compares_32_bits_of_the_interval(cuda):
    for device, grown in (("cpu", 1.0), (cuda, 2.0)):
        scale = scalar(1.0, device=device)
        update(scale, scalar(0, torch.int32, device), scalar(0.0, device=device), 2.0, 0.5, 2**32 + 1)
        assert scale.item() == grown


def test_one_optimizer_on_two_devices(cuda):
    ps = [torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2, device=cuda))]
    for make in (lambda: torch.optim.SGD(ps, lr=0.5, momentum=0.9), lambda: torch.optim.Adam(ps, lr=0.5)):
        optimizer = make()
        for p in ps:
            p.grad = torch.ones_like(p)
        optimizer.step()
    assert ps[0].tolist() == ps[1].tolist() != [1.0, 1.0]
    norm = torch.nn.utils.clip_grad_norm_(ps, 1.0)
    assert norm.item() == 2.0 and norm.device.type == "cpu" and np.allclose(ps[1].grad.tolist(), 0.5)


@pytest.mark.skipif(IS_PYTORCH, reason="names of our own")
def test_optimizer_lists_are_checked():
    sgd = torch._C._sgd_
    p, g = torch.ones(2), torch.ones(3)
    rest = (0.1, 0.0, 0.0, 0.0, False, False, False, 1.0)
    with pytest.raises(RuntimeError, match="different shapes"):
        sgd([p], [g], None, *rest)
    with pytest.raises(RuntimeError, match="entries in the gradients"):
        sgd([p], [], None, *rest)
    with pytest.raises(RuntimeError, match="float32 but its entry"):
        sgd([p], [torch.ones(2, dtype=torch.float16)], None, *rest)
    with pytest.raises(RuntimeError, match="share memory"):
        sgd([torch.ones(1).expand(2)], [torch.ones(2)], None, *rest)
    with pytest.raises(TypeError, match="takes 11 arguments"):
        sgd([p], [p])
    many = [torch.ones(3) for _ in range(100)]
    sgd(many, [torch.ones(3) for _ in range(100)], None, *rest)
    assert all(np.allclose(q.tolist(), 0.9) for q in many)


# ---- state of many parameters ----


def many(shape_of, count, dtype=None):
    generator = torch.Generator().manual_seed(0)
    params = [torch.randn(shape_of(i), generator=generator, dtype=dtype or torch.float32).requires_grad_() for i in range(count)]
    for p in params:
        p.grad = torch.randn(p.shape, generator=generator).to(p.dtype)
    return params


def shuffled_order(optimizer, params):
    for p in reversed(params):
        optimizer.state[p] = optimizer.state.pop(p)


def reversed_entries(optimizer, params):
    for p in params[::3]:
        optimizer.state[p] = dict(reversed(list(optimizer.state[p].items())))


def entries_between(optimizer, params):
    for p in params[::2]:
        optimizer.state[p] = {"note": 1, **optimizer.state[p]}


def strangers_between(optimizer, params):
    old = dict(optimizer.state)
    optimizer.state.clear()
    for i, (p, entries) in enumerate(old.items()):
        optimizer.state[f"stranger {i}"] = {}
        optimizer.state[p] = entries


def equal_keys_that_are_other_objects(optimizer, params):
    for p in params[10:20]:
        optimizer.state[p] = {"".join(list(key)): value for key, value in optimizer.state[p].items()}


def subclass_of_dict(optimizer, params):
    class Other(dict):
        pass

    for p in params[::5]:
        optimizer.state[p] = Other(optimizer.state[p])


@pytest.mark.parametrize(
    "disturb",
    [shuffled_order, reversed_entries, entries_between, strangers_between, equal_keys_that_are_other_objects, subclass_of_dict],
)
@pytest.mark.parametrize("kind, options", [("Adam", {"amsgrad": True}), ("SGD", {"momentum": 0.9}), ("NAdam", {})])
def test_state_is_found_however_its_dicts_are_ordered(kind, options, disturb):
    finals = []
    for change in (None, disturb):
        params = many(lambda i: (i % 5 + 1, i % 3 + 1), 50)
        groups = [{"params": params[:7]}, {"params": params[7:9]}, {"params": params[9:]}]
        optimizer = getattr(torch.optim, kind)(groups, lr=0.1, **options)
        for _ in range(3):
            optimizer.step()
            if change:
                change(optimizer, params)
        finals.append([p.detach().clone() for p in params])
        if kind != "SGD":
            assert all(optimizer.state[p]["step"].item() == 3 for p in params)
    assert all(torch.equal(a, b) for a, b in zip(*finals, strict=True))


def test_an_entry_that_is_no_tensor_is_named_and_nothing_is_written():
    params = many(lambda i: 3, 40)
    optimizer = torch.optim.Adam(params, lr=0.1)
    optimizer.step()
    before = [p.detach().clone() for p in params]
    optimizer.state[params[23]]["exp_avg"] = 1.5
    with pytest.raises((TypeError, AttributeError)):
        optimizer.step()
    assert IS_PYTORCH or all(torch.equal(a, b) for a, b in zip(params, before, strict=True))


@pytest.mark.parametrize("kind, options", [("Adam", {}), ("SGD", {"momentum": 0.9}), ("SGD", {})])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_long_list_steps_like_its_tensors_alone(kind, options, dtype):
    """Sizes around a page and a chunk; every third parameter is transposed."""
    sizes = [0, 1, 7, 1023, 1024, 1025, 8193]

    def make():
        params = many(lambda i: (sizes[i % 7],) if i % 3 else (9, 5), 60, dtype)
        for p in params[::3]:
            p.data, p.grad = p.data.t(), p.grad.t()
        return params

    together, alone = make(), make()
    optimizers = [getattr(torch.optim, kind)([p], lr=0.1, **options) for p in alone]
    optimizer = getattr(torch.optim, kind)(together, lr=0.1, **options)
    for _ in range(2):
        optimizer.step()
        for one in optimizers:
            one.step()
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_zero_grad_keeps_the_gradients_and_counts_the_write():
    params = many(lambda i: (i % 4, 3), 30) + many(lambda i: 5, 2, torch.bfloat16)
    params[3].grad = torch.full((3, 3), math.nan).t()
    params[5].grad = torch.ones(4, 6)[: params[5].shape[0], ::2] if params[5].shape[0] else params[5].grad
    params[6].grad = None
    grads, versions = [p.grad for p in params], [p.grad._version if p.grad is not None else 0 for p in params]
    torch.optim.SGD(params, lr=0.1).zero_grad(set_to_none=False)
    assert all(p.grad is g for p, g in zip(params, grads, strict=True))
    assert all(not g.any() and g._version > v for g, v in zip(grads, versions, strict=True) if g is not None)


def test_zero_grad_of_gradients_that_have_a_history():
    p = torch.ones(2, requires_grad=True)
    q = torch.ones(2, requires_grad=True)
    p.grad = (q * 2).detach()
    torch.autograd.grad((q * q).sum(), q, create_graph=True)
    (g,) = torch.autograd.grad((q * q).sum(), q, create_graph=True)
    q.grad = g
    torch.optim.SGD([p, q], lr=0.1).zero_grad(set_to_none=False)
    assert not p.grad.any() and not q.grad.any() and q.grad.grad_fn is None and not q.grad.requires_grad
