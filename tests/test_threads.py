"""Many Python threads at once: autocast state is each thread's own, precision settings are the process's, results are right."""

import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import ampnative as torch

SECONDS = 1.0  # for each test that runs threads
F32, BF16, F16 = torch.float32, torch.bfloat16, torch.float16
SETTERS = [
    lambda on: setattr(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", on),
    lambda on: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32" if on else "ieee"),
    lambda on: torch.set_float32_matmul_precision("high" if on else "highest"),
    lambda on: torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(on),
    lambda on: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16" if on else "ieee"),
]


@pytest.fixture(autouse=True)
def settings():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


class Work:
    """What one thread does over and over: integers small enough that every dtype and every setting gives the same product."""

    def __init__(self, number: int) -> None:
        rng = np.random.default_rng(number)
        x, w = rng.integers(-3, 4, (6, 5)), rng.integers(-3, 4, (4, 5))
        self.number = number
        self.rounds = 0
        self.product = x @ w.T
        self.w_grad = np.broadcast_to(x.sum(0), w.shape)
        self.x = torch.from_numpy(x.astype(np.float32))
        self.w = torch.from_numpy(w.astype(np.float32)).requires_grad_()

    def multiply(self, dtype):
        out = torch.nn.functional.linear(self.x, self.w)
        assert out.dtype is dtype, (out.dtype, dtype)
        assert np.array_equal(out.detach().to(F32).numpy(), self.product)
        return out

    def regions(self) -> None:
        outer, inner = (BF16, F16) if self.number % 2 else (F16, BF16)
        self.multiply(F32)
        with torch.autocast("cpu", dtype=outer):
            self.multiply(outer)
            with torch.autocast("cpu", dtype=inner, cache_enabled=bool(self.number & 2)):
                self.multiply(inner)
                with torch.autocast("cpu", enabled=False):
                    self.multiply(F32)
                self.multiply(inner)
            self.multiply(outer).sum().backward()
            assert torch.get_autocast_dtype("cpu") is outer
        assert self.w.grad.dtype is F32 and np.array_equal(self.w.grad.numpy(), self.w_grad)
        self.w.grad = None
        with pytest.raises(KeyError), torch.autocast("cpu", dtype=outer):
            raise KeyError
        with torch.no_grad():
            assert not self.multiply(F32).requires_grad

    def setters(self) -> None:
        for k, setter in enumerate(SETTERS):
            setter(bool((self.rounds + self.number // 4 + k) & 1))
        self.rounds += 1
        q = self.x.to(BF16)
        assert torch.nn.functional.scaled_dot_product_attention(q, q, q).dtype is BF16
        self.multiply(F32)

    def run(self) -> None:
        self.regions()
        if self.number % 4 == 0:
            self.setters()
        assert state() == CLEAN


def state():
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_autocast_enabled("cuda"),
        torch.get_autocast_dtype("cpu"),
        torch.get_autocast_dtype("cuda"),
        torch.is_autocast_cache_enabled(),
        torch.is_grad_enabled(),
    )


CLEAN = (False, False, BF16, F16, True, True)


def run_threads(work, count=8):
    """Calls work(number) in each thread until the time is up; returns the rounds and the failures."""
    rounds, failures = [0] * count, []
    end = time.monotonic() + SECONDS
    start = threading.Barrier(count)

    def body(number):
        try:
            start.wait()
            mine = work(number)
            while time.monotonic() < end and not failures:
                mine()
                rounds[number] += 1
        except BaseException as error:
            failures.append((number, error))

    threads = [threading.Thread(target=body, args=(n,)) for n in range(count)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failures:
        raise failures[0][1]
    return rounds


def restore_settings() -> None:
    for setter in SETTERS:
        setter(False)
    for node in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        node.fp32_precision = "none"
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = True


def test_regions_in_threads_do_not_meet():
    assert state() == CLEAN
    try:
        rounds = run_threads(lambda number: Work(number).run)
    finally:
        restore_settings()
    assert min(rounds) > 0 and state() == CLEAN
    assert torch.autocast_increment_nesting() == 1 and torch.autocast_decrement_nesting() == 0


def test_a_weight_shared_by_threads_in_different_regions():
    """The cache of weight casts belongs to no thread: each region gets its own dtype, and outer exits in one thread do not disturb the
    others."""
    w = torch.eye(8, requires_grad=True)
    x = torch.arange(64, dtype=F32).reshape(8, 8)
    kept = torch.nn.functional.linear(x, w).detach().numpy()

    def work(number):
        dtype = BF16 if number % 2 else F16

        def once():
            with torch.autocast("cpu", dtype=dtype):
                for _ in range(3):
                    out = torch.nn.functional.linear(x, w)
                    assert out.dtype is dtype and np.array_equal(out.detach().to(F32).numpy(), kept)
            assert state() == CLEAN

        return once

    assert min(run_threads(work)) > 0
    (torch.nn.functional.linear(x, w).sum()).backward()
    assert np.array_equal(w.grad.numpy(), np.broadcast_to(x.numpy().sum(0), (8, 8)))


def test_a_new_thread_starts_with_the_defaults():
    seen = []
    with torch.autocast("cpu", dtype=F16, cache_enabled=False), torch.no_grad():
        thread = threading.Thread(target=lambda: seen.append(state()))
        thread.start()
        thread.join()
    assert seen == [CLEAN]


def test_list_kernels_outlive_the_storage_that_another_thread_takes_away():
    """clip, unscale and SGD run without the GIL; `.data =` in another thread waits for them."""
    grad, param = torch.ones(300_000), torch.nn.Parameter(torch.ones(300_000))
    param.grad = grad
    optimizer = torch.optim.SGD([param], lr=0.0)
    until = time.monotonic() + SECONDS
    failures = []

    def kernels():
        try:
            while time.monotonic() < until:
                torch.nn.utils.clip_grad_norm_([param], 1e9)
                torch.amp.unscale_gradients([grad, grad], 1.0)
                optimizer.step()
        except Exception as error:
            failures.append(error)

    def replacing():
        while time.monotonic() < until:
            grad.data = torch.ones(300_000)
            param.data = torch.ones(300_000)

    threads = [threading.Thread(target=work) for work in (kernels, replacing)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and grad.sum().item() == 300_000 and param.sum().item() == 300_000


def test_passes_inside_passes_need_little_stack():
    code = """
import threading, ampnative as torch
told = []
def nest():
    x = torch.ones(2, requires_grad=True)
    y = x * 2
    def hook(g):
        with torch.enable_grad():
            nest()
    y.register_hook(hook)
    y.sum().backward()
def run():
    try:
        nest()
    except RecursionError:
        told.append(True)
threading.stack_size(1 << 20)
thread = threading.Thread(target=run)
thread.start()
thread.join()
assert told
"""
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("wrong", [1.5, True, "2", None, np.float32(2), 0, -1, 5000])
def test_numbers_of_threads_that_are_none_are_refused(wrong):
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="expects an? (positive )?int"):
        torch.set_num_threads(wrong)
    assert torch.get_num_threads() == before


def test_numbers_of_threads_beyond_an_int():
    before = torch.get_num_threads(), torch.get_num_interop_threads()
    for f in (torch.set_num_threads, torch.set_num_interop_threads):
        for wrong in (2**31, 2**40, -(2**70)):
            with pytest.raises(ValueError, match="32 bits"):
                f(wrong)
    assert (torch.get_num_threads(), torch.get_num_interop_threads()) == before
    torch.set_num_threads(np.int64(before[0]))
    assert torch.get_num_threads() == before[0]
