"""Lists of small tensors are walked without references and counted ahead, larger ones are not: nobody can tell them apart."""

import gc
import itertools
import sys
import threading

import pytest

import ampnative as torch
from ampnative import _C

SIZES = [(100, 16), (40, 8192)]  # the second are over 512 KiB, and over 16 KiB each
KINDS = [("SGD", {"momentum": 0.9}), ("Adam", {}), ("AdamW", {"amsgrad": True}), ("NAdam", {})]


def parameters(count, n, **options):
    made = [torch.nn.Parameter(torch.full((n,), float(i % 7), **options)) for i in range(count)]
    for i, p in enumerate(made):
        p.grad = torch.full((n,), 1.0 + i % 5, **options)
    return made


def versions(tensors):
    return [t._version for t in tensors], [sys.getrefcount(t) for t in tensors]


@pytest.mark.parametrize("count, n", SIZES)
@pytest.mark.parametrize("name, options", KINDS)
def test_each_write_counts_once_and_no_reference_stays(name, options, count, n):
    params = parameters(count, n)
    optimizer = getattr(torch.optim, name)(params, lr=0.1, **options)
    optimizer.step()
    states = [value for p in params for value in optimizer.state[p].values()]
    grads = [p.grad for p in params]
    (before, references), (read, held) = versions(params + states), versions(grads)
    optimizer.step()
    assert versions(params + states) == ([v + 1 for v in before], references)
    assert versions(grads) == (read, held)
    assert all(float(optimizer.state[p]["step"]) == 2 for p in params if "step" in optimizer.state[p])
    optimizer.zero_grad(set_to_none=False)
    assert versions(grads) == ([v + 1 for v in read], held) and not any(g.any() for g in grads)


def scaler_for(optimizer):
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    scaler.scale(torch.ones(()))
    scaler.unscale_(optimizer)
    return scaler


@pytest.mark.parametrize("clipped", [False, True])
@pytest.mark.parametrize("count, n", SIZES)
def test_unscaling_and_clipping_count_once(count, n, clipped):
    params = parameters(count, n)
    if clipped:
        torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(torch.ones(1))], 1.0)  # somebody asks for norms
    grads = [p.grad for p in params]
    before, references = versions(grads)
    scaler_for(torch.optim.SGD(params, lr=0.1))
    assert versions(grads) == ([v + 1 for v in before], references)
    assert all(float(g[0]) == (1 + i % 5) / 2 for i, g in enumerate(grads))
    if clipped:
        total = torch.nn.utils.clip_grad_norm_(params, 1.0)
        squares = n * sum(((1 + i % 5) / 2) ** 2 for i in range(count))
        assert float(total) == pytest.approx(squares**0.5, rel=1e-6)
        assert versions(grads) == ([v + 2 for v in before], references)
        assert float(grads[0][0]) == pytest.approx(0.5 / squares**0.5, rel=1e-5)


@pytest.mark.parametrize("count, n", SIZES)
def test_a_gradient_of_two_parameters_has_no_norm(count, n):
    params = parameters(count, n)
    params[7].grad = params[31].grad
    torch.nn.utils.clip_grad_norm_([torch.nn.Parameter(torch.ones(1))], 1.0)
    scaler_for(torch.optim.SGD(params, lr=0.1))
    assert _C._kept_norm(params[7].grad) is None
    assert _C._kept_norm(params[8].grad) == pytest.approx(n**0.5 * (1 + 8 % 5) / 2, rel=1e-12)


@pytest.mark.parametrize("late", [2, 80])
def test_what_is_given_up_was_not_counted(late):
    params = parameters(100, 16)
    params[late] = torch.nn.Parameter(torch.ones(16, dtype=torch.bfloat16))
    params[late].grad = torch.ones(16, dtype=torch.bfloat16)
    grads = [p.grad for p in params]
    before = versions(grads)
    assert _C._unscale_groups([{"params": params}], torch.tensor(2.0)) is None
    assert versions(grads) == before
    grads[late].requires_grad_()
    assert not _C._zero_grads(params)
    assert versions(grads) == before and all(g.all() for g in grads)


def test_other_threads_may_drop_what_is_being_stepped():
    params = parameters(40, 1 << 16)
    optimizer = torch.optim.Adam(params, lr=1e-3)
    optimizer.step()
    done = threading.Event()

    def drop():
        while not done.is_set():
            for p in params:
                p.grad = torch.ones(1 << 16)

    other = threading.Thread(target=drop)
    other.start()
    try:
        for _ in range(30):
            optimizer.step()
    finally:
        done.set()
        other.join()
    assert all(torch.isfinite(p).all() for p in params)


@pytest.mark.slow  # a sanitizer has an allocator of its own
@pytest.mark.parametrize("n", [256, 1024, 5000])
def test_what_is_made_one_after_the_other_lies_side_by_side(n):
    """Whatever was freed before, in whatever order."""
    holes = [torch.empty(n) for _ in range(2000)]  # that other tests left are filled
    for order in (1, -1, 7):
        made = [torch.empty(n) for _ in range(1000)]
        for i in range(1000):
            made[i * order % 1000] = None
        params = [torch.nn.Parameter(torch.empty(n)) for _ in range(300)]
        places = [p.data_ptr() for p in params]
        steps = [b - a for a, b in itertools.pairwise(places)]
        assert sum(0 < step < 4 * n + 4 * n // 4 + 512 for step in steps) > 280
    assert len(holes) == 2000


@pytest.fixture
def few_objects():
    """Collections look at what the test makes alone: after thousands of tests each would take long."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.mark.usefixtures("few_objects")
@pytest.mark.parametrize("which", ["zero", "unscale"])
def test_an_exception_does_not_count_in_gradients_that_died_meanwhile(which):
    refused = 0
    for shift in range(14):
        params = parameters(300, 10)
        params[-1].grad = torch.ones(1).expand(10)  # refused
        made = []

        class Clears:
            def __del__(self, params=params, made=made):
                for p in params:
                    p.grad = None
                made.extend(torch.ones(10) for _ in range(400))

        gc.disable()
        gc.collect()
        thresholds = gc.get_threshold()
        try:
            cycle = Clears()
            cycle.me = cycle
            del cycle
            padding = [[] for _ in range(20)]
            gc.set_threshold(max(1, gc.get_count()[0] - 3 + shift), 1000, 1000)
            try:
                raise KeyError
            except KeyError:  # an exception within one is made at once, and wakes the collector
                gc.enable()
                if which == "zero":
                    try:
                        _C._zero_grads(params)
                    except RuntimeError:
                        refused += 1
                else:
                    assert _C._unscale_groups([{"params": params}], torch.tensor(2.0)) is None
        finally:
            gc.set_threshold(*thresholds)
            gc.enable()
            gc.collect()
        assert made and {t._version for t in made} == {0} and len(padding) == 20
    assert refused > 0 or which != "zero"


def test_keys_that_run_code_do_not_change_the_lists_under_way():
    params = parameters(30, 10)
    calls = []

    class Key:
        def __hash__(self):
            return hash("params")

        def __eq__(self, other):
            calls.append(other)
            if len(calls) in (2, 3):
                params.extend(parameters(5000, 10))
            return False

    flag = _C._unscale_groups([{Key(): 1, "params": params}], torch.tensor(2.0))
    assert flag.item() == 0 and calls and all(p.grad.tolist()[0] == (1.0 + i % 5) / 2 for i, p in enumerate(params[:30]))


def many_times(make, times=120):
    """Races show now and then."""
    return all(make() for _ in range(times))


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_memory_of_two_parameters_is_stepped_twice_in_order(name):
    n = 300_000

    def step():
        first, second = (torch.nn.Parameter(torch.zeros(n)) for _ in range(2))
        second.data = first.data
        first.grad, second.grad = torch.full((n,), 1.0), torch.full((n,), 4.0)
        optimizer = getattr(torch.optim, name)([first, second], lr=0.5)
        optimizer.step()
        return bool((first == first[0]).all()) and (name == "Adam" or first[0].item() == -2.5)

    assert many_times(step)


def test_a_gradient_of_two_parameters_is_unscaled_twice():
    def unscale():
        grad = torch.ones(300_000)
        params = [torch.nn.Parameter(torch.zeros(300_000)) for _ in range(2)]
        params[0].grad = params[1].grad = grad
        scaler_for(torch.optim.SGD(params, lr=0.0))
        return bool((grad == 0.25).all())

    assert many_times(unscale)


def test_overlapping_memory_is_scaled_in_the_order_of_the_list():
    values = torch.ones(600_000)
    parts = [values[:400_000], values[200_000:], values.view(600, 1000).t()[1]]

    def scale():
        values.fill_(1.0)
        _C._list_scale_(parts, 0.5)
        want = torch.ones(600_000)
        for part in (want[:400_000], want[200_000:], want.view(600, 1000).t()[1]):
            part *= 0.5
        return torch.equal(values, want)

    assert many_times(scale)


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_a_gradient_that_is_another_parameter_is_read_before_or_after_it_is_written(name):
    def result(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            params = [torch.nn.Parameter(torch.full((50_000,), float(i + 1))) for i in range(4)]
            for i, param in enumerate(params):
                param.grad = params[i - 1].detach()
            getattr(torch.optim, name)(params, lr=0.5).step()
        finally:
            torch.set_num_threads(before)
        return torch.cat([param.detach() for param in params])

    want = result(1)
    assert many_times(lambda: torch.equal(result(3), want), 60)
    if name == "SGD":
        assert want.view(4, 50_000)[:, 0].tolist() == [-1.0, 2.5, 1.75, 3.125]


def test_a_gradient_of_several_parameters_that_a_fused_step_divides():
    """Fused steps divide gradients by the scale where they lie: each time once more."""

    def step():
        grad = torch.ones(300_000)
        params = [torch.nn.Parameter(torch.zeros(300_000)) for _ in range(3)]
        for param in params:
            param.grad = grad
        scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
        scaler.scale(torch.ones(()))
        scaler.step(torch.optim.SGD(params, lr=1.0, fused=True))
        return [param.detach().unique().tolist() for param in params] == [[-0.25], [-0.0625], [-0.015625]]

    assert many_times(step, 40)


def test_a_gradient_that_is_a_shifted_view_of_its_parameter():
    def result(threads):
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        try:
            memory = torch.arange(300_008.0)
            param = torch.nn.Parameter(memory[:300_000])
            param.grad = memory[1:300_001]
            torch.optim.SGD([param], lr=0.5).step()
        finally:
            torch.set_num_threads(before)
        return param.detach().clone()

    want = result(1)
    assert many_times(lambda: torch.equal(result(2), want), 40)
