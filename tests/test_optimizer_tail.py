"""What the steps of the optimizer tail leave for each other: norms beside gradients, and one pass over lists of any sizes."""

import ctypes
import math
import types

import numpy as np
import pytest

import ampnative as torch
from ampnative import _C

clip, unscale = torch.nn.utils.clip_grad_norm_, torch._amp_foreach_non_finite_check_and_unscale_
SIZES = [0, 1, 2, 31, 32, 33, 511, 512, 513, 1000, 8191, 8192, 8193, 70001]


@pytest.fixture(autouse=True)
def _somebody_clips():
    clip([parameter(torch.ones(1))], 1.0)


def parameter(grad):
    p = torch.nn.Parameter(torch.zeros(grad.shape, dtype=grad.dtype))
    p.grad = grad
    return p


def values(n, dtype=torch.float32, seed=0):
    torch.manual_seed(seed)
    return torch.randn(n).to(dtype)


def unscaled(n=1000, dtype=torch.float32, factor=0.37):
    g = values(n, dtype)
    unscale([g], torch.zeros(()), torch.tensor(factor))
    return g


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("factor", [0.37, 1.0])
def test_the_norm_that_is_left_is_the_one_of_a_second_reading(dtype, factor):
    for n in SIZES:
        g = unscaled(n, dtype, factor)
        assert _C._kept_norm(g) == _C._list_norms([g.clone()], 2.0)[0]
        assert _C._list_norms([g], 2.0)[0] == _C._kept_norm(g)
        assert math.isclose(_C._kept_norm(g), np.linalg.norm(g.double().numpy()), rel_tol=1e-12)
    transposed = values(6).reshape(2, 3).T
    unscale([transposed, wide := values(3, torch.float64)], torch.zeros(()), torch.tensor(factor))
    assert _C._kept_norm(transposed) is None and _C._kept_norm(wide) is None


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_the_norm_of_what_is_not_finite(bad):
    g = values(700)
    g[699] = bad
    unscale([g], found := torch.zeros(()), torch.tensor(0.5))
    assert found.item() == 1.0
    norm = clip([parameter(g)], 1.0).item()
    assert math.isnan(norm) if math.isnan(bad) else norm == math.inf


def through_dlpack(g):
    np.from_dlpack(g)[3] = 50.0


def through_an_address(g):
    ctypes.cast(g.data_ptr(), ctypes.POINTER(ctypes.c_float))[3] = 50.0


WRITES = {
    "in place": lambda g: g.add_(1.0),
    "one element": lambda g: g.__setitem__(3, 50.0),
    "a view": lambda g: g[2:5].fill_(50.0),
    "a view of another shape": lambda g: g.view(10, 100)[0].zero_(),
    "data": lambda g: g.data.mul_(2.0),
    "detach": lambda g: g.detach().mul_(2.0),
    "copy_": lambda g: g.copy_(torch.ones(1000)),
    "out": lambda g: torch.exp(torch.ones(1000), out=g),
    "numpy": lambda g: g.numpy().__setitem__(3, 50.0),
    "asarray": lambda g: np.asarray(g).__setitem__(3, 50.0),
    "a buffer": lambda g: memoryview(g).__setitem__(3, 50.0),
    "dlpack": through_dlpack,
    "an address": through_an_address,
    "unscaling again": lambda g: unscale([g], torch.zeros(()), torch.tensor(0.5)),
    "clipping": lambda g: clip([parameter(g)], 1e-3),
    "a list of two": lambda g: _C._list_scale_([g, g], 2.0),
    "data replaced": lambda g: setattr(g, "data", torch.ones(1000)),
    "accumulation": lambda g: (parameter(g) * torch.ones(1000)).sum().backward(),
}


@pytest.mark.parametrize("name", WRITES)
def test_any_write_makes_the_norm_stale(name):
    g = unscaled()
    assert _C._kept_norm(g) is not None
    before = clip([parameter(g)], 1e9).item()
    g = unscaled()
    WRITES[name](g)
    again = np.linalg.norm(g.double().clone().numpy())
    assert not math.isclose(before, again, rel_tol=1e-6)
    assert clip([parameter(g)], 1e9).item() == pytest.approx(again, rel=1e-6)


def test_an_array_made_before_unscaling_can_still_write():
    g = values(100)
    array = g.numpy()
    unscale([g], torch.zeros(()), torch.tensor(0.5))
    array[:] = 3.0
    assert clip([parameter(g)], 1e9).item() == 30.0
    borrowed = torch.from_numpy(array)
    unscale([borrowed], torch.zeros(()), torch.tensor(0.5))
    array[:] = 3.0
    assert clip([parameter(borrowed)], 1e9).item() == 30.0


def test_memory_that_is_listed_twice_has_no_norm():
    g = values(100)
    unscale([g, g], torch.zeros(()), torch.tensor(0.5))
    assert _C._kept_norm(g) is None
    g = values(100)
    unscale([g, g[:50]], torch.zeros(()), torch.tensor(0.5))
    assert _C._kept_norm(g) is None


def test_other_views_of_the_memory_do_not_get_its_norm():
    g = unscaled(1000)
    assert _C._kept_norm(g.view(10, 100)) == _C._kept_norm(g)  # all of it, in order
    for view in (g[:999], g[1:], g.view(10, 100).T, g.view(torch.int32), g.view(torch.float16)):
        assert _C._kept_norm(view) is None


def test_norms_are_formed_only_while_they_are_asked_for():
    for _ in range(20):
        g = unscaled()
    assert _C._kept_norm(g) is None
    clip([parameter(g)], 1e9)
    assert _C._kept_norm(unscaled()) is not None


# ---- clipping ----


@pytest.mark.parametrize("max_norm", [0.5, 1e9, 0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("counts", [[5], [3, 0, 4000, 1], [17] * 60])
def test_the_short_way_and_the_long_way_give_the_same_bits(counts, max_norm):
    short = [parameter(values(n, seed=i)) for i, n in enumerate(counts)]
    long = [types.SimpleNamespace(grad=p.grad.clone()) for p in short]
    versions = [p.grad._version for p in short]
    a, b = clip(short, max_norm), clip(long, max_norm)
    assert a.item() == b.item() and a.dtype is b.dtype and a.shape == b.shape
    assert a.item() == torch.nn.utils.get_total_norm([values(n, seed=i) for i, n in enumerate(counts)]).item()
    for p, q in zip(short, long, strict=True):
        assert p.grad.numpy().tobytes() == q.grad.numpy().tobytes()
    assert all(p.grad._version > v for p, v in zip(short, versions, strict=True))


def test_a_coefficient_that_is_one_in_the_compute_type_changes_nothing():
    raw = np.array([0x7F800001, 0x3F800000], np.uint32)  # a signalling NaN would be made quiet
    g = torch.from_numpy(raw.view(np.float32))
    _C._list_scale_([g], 1.0 - 2.0**-26)
    assert raw[0] == 0x7F800001
    _C._list_scale_([g], 1.0 - 2.0**-24)
    assert raw[1] == 0x3F7FFFFF
    both = [torch.ones(1, dtype=torch.float64), torch.ones(1)]
    _C._list_scale_(both, 1.0 - 2.0**-40)
    assert both[0].item() == 1.0 - 2.0**-40 and both[1].item() == 1.0


def test_gradients_stay_if_only_a_finite_norm_is_wanted():
    p = parameter(torch.tensor([math.inf, 2.0]))
    with pytest.raises(RuntimeError, match="non-finite"):
        clip([p], 1.0, error_if_nonfinite=True)
    assert p.grad.tolist() == [math.inf, 2.0]


def test_norms_together():
    join = _C._join_norms
    assert join([]) == 0.0 and join([3.0]) == 3.0 and join([3.0, 4.0]) == 5.0 and join([0.0, 0.0]) == 0.0
    assert join([math.inf, 1.0]) == math.inf and math.isnan(join([math.inf, math.nan]))
    for size in (1e300, 1.0, 1e-300, 5e-324):
        assert math.isclose(join([3 * size, 4 * size]), 5 * size, rel_tol=1e-15)
    norms = np.abs(np.random.default_rng(0).standard_normal(5000)).tolist()
    assert math.isclose(join(norms), math.hypot(*norms), rel_tol=3e-16)


def test_clipping_after_unscaling_by_a_scaler():
    """The number of the clip, and the gradients after it, are those of gradients that were never scaled."""
    for n in (7, 5000):
        a, b = (torch.nn.Parameter(values(n)) for _ in range(2))
        scaler, optimizer = torch.amp.GradScaler("cpu", init_scale=1024.0), torch.optim.SGD([a], lr=0.1)
        (b * values(n, seed=1)).sum().backward()
        scaler.scale((a * values(n, seed=1)).sum()).backward()
        scaler.unscale_(optimizer)
        assert _C._kept_norm(a.grad) is not None
        assert clip([a], 0.5).item() == clip([b], 0.5).item()
        assert a.grad.tolist() == b.grad.tolist()
        assert clip([a], 1e9).item() == pytest.approx(0.5, rel=1e-6)


# ---- optimizers ----

OPTIMIZERS = {
    "sgd": lambda ps, **kw: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01, **kw),
    "nesterov": lambda ps, **kw: torch.optim.SGD(ps, lr=0.1, momentum=0.9, nesterov=True, **kw),
    "adam": lambda ps, **kw: torch.optim.Adam(ps, lr=0.1, weight_decay=0.01, **kw),
    "adamw": lambda ps, **kw: torch.optim.AdamW(ps, lr=0.1, amsgrad=True, **kw),
}


def trained(make, sizes, together=True, threads=2, **kwargs):
    torch.set_num_threads(threads)
    try:
        ps = [torch.nn.Parameter(values(n, seed=i)) for i, n in enumerate(sizes)]
        optimizers = [make(ps, **kwargs)] if together else [make([p], **kwargs) for p in ps]
        for step in range(3):
            for i, p in enumerate(ps):
                p.grad = values(p.numel(), seed=100 * step + i)
            for optimizer in optimizers:
                optimizer.step()
        return [p.detach().numpy().tobytes() for p in ps]
    finally:
        torch.set_num_threads(2)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lists_fused_or_not_and_threads_give_the_same_bits(name):
    make, sizes = OPTIMIZERS[name], [1, 33, 8193, 0, 511, 70001, *[5] * 40]
    want = trained(make, sizes)
    assert trained(make, sizes, together=False) == want
    assert trained(make, sizes, fused=True) == want
    assert trained(make, sizes, threads=1) == want and trained(make, sizes, threads=3) == want


def test_entries_that_are_missing_are_made_and_others_told():
    p, q = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = torch.optim.AdamW([p, q], lr=0.1)
    p.grad = torch.ones(2)
    optimizer.step()
    q.grad = torch.ones(2)
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 2.0 and optimizer.state[q]["step"].item() == 1.0
    optimizer.param_groups[0]["amsgrad"] = True
    optimizer.step()
    assert optimizer.state[q]["max_exp_avg_sq"].tolist() == optimizer.state[q]["exp_avg_sq"].tolist()
    mean = optimizer.state[q]["exp_avg"]
    optimizer.state[q]["exp_avg"] = 3.0
    before = p.tolist()
    with pytest.raises(TypeError, match="exp_avg.*parameter 1 must be a Tensor, not float"):
        optimizer.step()
    assert p.tolist() == before and optimizer.state[p]["step"].item() == 3.0
    optimizer.state[q]["exp_avg"] = mean
    for key in ("step", "exp_avg", "exp_avg_sq"):
        kept = optimizer.state[q].pop(key)
        with pytest.raises(KeyError, match=f"{key}: the state of a parameter of shape .2,. has .* but not this"):
            optimizer.step()
        assert p.tolist() == before and optimizer.state[p]["step"].item() == 3.0 and key not in optimizer.state[q]
        optimizer.state[q][key] = kept
    optimizer.state[q].clear()
    optimizer.step()
    assert optimizer.state[p]["step"].item() == 4.0 and optimizer.state[q]["step"].item() == 1.0


# ---- copies that are larger than caches ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_large_copies_have_the_bits_of_small_ones(dtype):
    n = (1 << 24) + 77
    x = torch.arange(n).float() * 1e-3
    for start in (0, 1, 13):
        y = torch.zeros(n + 64, dtype=dtype)
        y[start : start + n].copy_(x)
        for at in (0, 5_000_001, n - 200):
            assert y[start + at : start + at + 200].tolist() == x[at : at + 200].to(dtype).tolist()
        assert y[:start].tolist() == [0.0] * start and y[start + n :].tolist() == [0.0] * (64 - start)
    back = y[13 : 13 + n].float()
    assert torch.equal(back[-1000:], y[13 + n - 1000 : 13 + n].float())
    shifted = torch.arange(n).float()
    shifted[1:].copy_(shifted[1:])
    assert torch.equal(shifted[-1000:], torch.arange(n - 1000, n).float())


# ---- 16-bit copies of weights, made by the optimizer ----


def stepped(make, dtype=torch.bfloat16, n=5000, cast=lambda p, dtype: p.detach().to(dtype)):
    p = torch.nn.Parameter(values(n))
    p.grad = values(n, seed=1)
    optimizer = make([p])
    cast(p, dtype)
    optimizer.step()
    return p, optimizer


def bits(t):
    return t.detach().view(torch.int16).tolist()


def fresh(p, dtype):
    return p.detach().clone().to(dtype)


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_next_cast_takes_what_the_step_wrote(name, dtype):
    for n in (4096, 8193, 70001):
        p, optimizer = stepped(OPTIMIZERS[name], dtype, n)
        assert _C._has_twin(p)
        cast = p.detach().to(dtype)
        assert bits(cast) == bits(fresh(p, dtype)) and not _C._has_twin(p)
        cast.zero_()  # it is the caller's own
        assert bits(p.detach().to(dtype)) == bits(fresh(p, dtype))
        optimizer.step()
        assert _C._has_twin(p)
        optimizer.step()  # nobody took it
        assert not _C._has_twin(p)


WEIGHT_WRITES = {
    "in place": lambda p: p.detach().add_(1.0),
    "data": lambda p: p.data.mul_(2.0),
    "a view": lambda p: p.detach()[3:5].fill_(9.0),
    "numpy": lambda p: p.detach().numpy().__setitem__(3, 50.0),
    "dlpack": lambda p: np.from_dlpack(p.detach()).__setitem__(3, 50.0),
    "an address": through_an_address,
    "data replaced": lambda p: setattr(p, "data", torch.ones(5000)),
}


@pytest.mark.parametrize("name", WEIGHT_WRITES)
def test_a_write_to_the_weight_makes_its_copy_stale(name):
    p, _ = stepped(OPTIMIZERS["adamw"])
    before = bits(fresh(p, torch.bfloat16))
    WEIGHT_WRITES[name](p)
    assert bits(p.detach().to(torch.bfloat16)) == bits(fresh(p, torch.bfloat16)) != before


def test_other_casts_do_not_get_the_copy():
    p, _ = stepped(OPTIMIZERS["sgd"])
    assert torch.equal(p.detach().to(torch.float16), fresh(p, torch.float16))
    assert torch.equal(p.detach()[1:].to(torch.bfloat16), fresh(p, torch.bfloat16)[1:])
    assert torch.equal(p.detach().double(), p.detach().clone().double())
    square = p.detach().view(50, 100).to(torch.bfloat16)
    assert square.shape == (50, 100) and square.is_contiguous() and bits(square.view(-1)) == bits(fresh(p, torch.bfloat16))


def test_a_parameter_that_is_stepped_twice_or_not_cast_has_no_copy():
    p = torch.nn.Parameter(values(5000))
    p.grad = values(5000, seed=1)
    with pytest.warns(UserWarning, match="duplicate"):
        optimizer = torch.optim.SGD([p, p], lr=0.1)
    p.detach().to(torch.bfloat16)
    optimizer.step()
    assert not _C._has_twin(p)
    q, optimizer = stepped(OPTIMIZERS["sgd"], cast=lambda p, dtype: None)
    assert not _C._has_twin(q)


def test_training_under_autocast_is_the_same_with_copies():
    """Against weights that NumPy has seen, which get none."""
    losses = []
    for seen in (False, True):
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 64))
        if seen:
            arrays = [p.detach().numpy() for p in model.parameters()]
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        x, found = values(32 * 64).view(32, 64), []
        for _ in range(4):
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = (model(x) - x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
            assert _C._has_twin(model[0].weight) is not seen
        losses.append((found, [p.tolist() for p in model.parameters()]))
    assert losses[0] == losses[1] and arrays
