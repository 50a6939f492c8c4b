"""DataLoader with worker processes: order and random numbers of PyTorch 2.15.0, errors, death, clean-up; more data sets and samplers."""

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

data = torch.utils.data
DataLoader = data.DataLoader
forks = pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="workers get their data set by fork")
ours = pytest.mark.skipif(IS_PYTORCH, reason="our words, or quicker than PyTorch")
pytestmark = [forks, pytest.mark.filterwarnings("ignore:This DataLoader will create", "ignore:.*use of fork.*:DeprecationWarning")]


class Numbers(data.Dataset):
    def __init__(self, n, what=None):
        self.n, self.what = n, what

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.tensor(float(i)) if self.what is None else self.what(i)


class Stream(data.IterableDataset):
    """Each worker gives its share."""

    def __init__(self, n):
        self.n = n

    def __iter__(self):
        info = data.get_worker_info()
        return iter(range(info.id, self.n, info.num_workers) if info else range(self.n))


def plain(x):
    if isinstance(x, torch.Tensor):
        return x.tolist()
    return [plain(v) for v in x] if isinstance(x, (list, tuple)) else x


def epoch(*args, **kwargs):
    return [plain(batch) for batch in DataLoader(*args, **kwargs)]


def drawn(i):
    info = data.get_worker_info()
    return [i, torch.rand(1).item(), random.random(), np.random.rand(), info.id, torch.initial_seed() == info.seed]


# torch 2.15.0, seed 0: [index, torch.rand, random.random, numpy.random.rand, worker, ...] of samples in batches of two
DRAWN = [
    [[0, 4], [0.7821398973464966, 0.053598999977111816], [0.21315340548154382, 0.2764485855185723],
     [0.8371640508861415, 0.38757835109739946], [0, 0], [True, True]],
    [[3, 5], [0.6938178539276123, 0.29795897006988525], [0.7733861492043289, 0.1634220007200502],
     [0.6702704958690073, 0.07589687641367027], [1, 1], [True, True]],
    [[2, 1], [0.9887869358062744, 0.1948593258857727], [0.9257209527984, 0.6404354521419532],
     [0.37328033548445017, 0.8134918136402494], [0, 0], [True, True]],
]  # fmt: skip
AFTER = 0.30742281675338745


def test_order_and_random_numbers():
    torch.manual_seed(0)
    assert epoch(Numbers(6, drawn), batch_size=2, num_workers=2, shuffle=True) == DRAWN
    assert torch.rand(1).item() == AFTER


def test_generator_and_persistent_workers():
    """torch 2.15.0."""
    loader = DataLoader(Numbers(4), batch_size=2, num_workers=2, shuffle=True, generator=torch.Generator().manual_seed(5))
    assert [plain(b) for b in loader] == [[3.0, 1.0], [2.0, 0.0]] and [plain(b) for b in loader] == [[3.0, 1.0], [0.0, 2.0]]
    torch.manual_seed(0)
    loader = DataLoader(Numbers(4, drawn), batch_size=2, num_workers=2, shuffle=True, persistent_workers=True)
    first = [plain(b) for b in loader]
    assert [b[0] for b in first] == [[2, 1], [3, 0]] and torch.rand(1).item() == AFTER
    second = [plain(b) for b in loader]
    assert [b[0] for b in second] == [[0, 3], [2, 1]] and second[0][1] == [0.9887869358062744, 0.1948593258857727]
    assert torch.rand(1).item() == 0.8964447379112244


def test_persistent_workers_stay():
    loader = DataLoader(Numbers(6, lambda i: os.getpid()), batch_size=1, num_workers=2, persistent_workers=True)
    iterator = iter(loader)
    pids = {next(iterator).item(), next(iterator).item()}
    again = {b.item() for b in loader}  # the rest of the first epoch is thrown away
    assert again == pids and len(pids) == 2 and os.getpid() not in pids
    plainly = DataLoader(Numbers(4, lambda i: os.getpid()), num_workers=2)
    assert {b.item() for b in plainly} != {b.item() for b in plainly}


def test_any_kind_of_batch():
    kinds = [torch.ones(2, 3).t(), torch.ones(2, dtype=torch.bfloat16), torch.tensor(True), "text", 2.5, np.float32(1), {"a": [1, (2,)]}]
    first = next(iter(DataLoader(Numbers(2, lambda i: kinds), batch_size=2, num_workers=1)))
    want = data.default_collate([kinds, kinds])
    assert [getattr(a, "dtype", None) for a in first] == [getattr(a, "dtype", None) for a in want]
    assert plain(first[:6]) == plain(want[:6]) and plain(first[6]["a"]) == plain(want[6]["a"])
    big = torch.arange(1_000_000)
    got = epoch(Numbers(4, lambda i: i), num_workers=2, batch_size=None, collate_fn=lambda i: (big + i)[::499_999])
    assert got == [[i, 499_999 + i, 999_998 + i] for i in range(4)]


def test_samplers_and_batches():
    assert epoch(Numbers(4), batch_sampler=[[0, 1], [3]], num_workers=2) == [[0.0, 1.0], [3.0]]
    assert epoch(Numbers(4), sampler=[3, 1], num_workers=2) == [[3.0], [1.0]]
    assert epoch(Numbers(3), batch_size=None, num_workers=1) == [0.0, 1.0, 2.0]
    assert epoch(Numbers(0), num_workers=2) == []
    assert sorted(map(tuple, epoch(Numbers(8), batch_size=2, num_workers=2, in_order=False))) == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert len(epoch(Numbers(100), num_workers=2, batch_size=7, prefetch_factor=1)) == 15
    iterator = iter(DataLoader(Numbers(4), batch_size=2, num_workers=1))
    assert len(iterator) == 2 and iter(iterator) is iterator


def test_streams():
    assert epoch(Stream(9), batch_size=2, num_workers=2) == [[0, 2], [1, 3], [4, 6], [5, 7], [8]]
    assert epoch(Stream(9), batch_size=2, num_workers=2, drop_last=True) == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert epoch(Stream(3), batch_size=None, num_workers=2) == [0, 1, 2]
    loader = DataLoader(Stream(5), batch_size=2, num_workers=2, persistent_workers=True)
    assert [plain(b) for b in loader] == [plain(b) for b in loader] == [[0, 2], [1, 3], [4]]


def test_worker_info_and_init():
    seen = []

    def init(worker):
        info = data.get_worker_info()
        assert info.id == worker and info.num_workers == 2 and len(info.dataset) == 4
        info.dataset.what = lambda i: 10 * worker + i

    assert epoch(Numbers(4), num_workers=2, worker_init_fn=init) == [[0], [11], [2], [13]]
    assert data.get_worker_info() is None and seen == []


def fail(error, at=2):
    def what(i):
        if i == at:
            raise error
        return i

    return what


class Awkward(Exception):
    def __init__(self, a, b):
        super().__init__(a, b)


@pytest.mark.parametrize(
    "error, kind", [(ValueError("bad two"), ValueError), (KeyError("missing"), KeyError), (Awkward(1, 2), RuntimeError)]
)
def test_errors_come_with_their_traceback(error, kind):
    iterator = iter(DataLoader(Numbers(6, fail(error)), num_workers=2))
    assert next(iterator).item() == 0 and next(iterator).item() == 1
    with pytest.raises(kind) as caught:
        next(iterator)
    text = str(caught.value)
    assert f"Caught {type(error).__name__} in DataLoader worker process 0." in text and "in what\n" in text
    assert "raise error" in text and "Original Traceback (most recent call last):\n" in text
    assert next(iterator).item() == 3  # the loader goes on


def test_errors_of_init_and_of_what_cannot_be_sent():
    with pytest.raises(ZeroDivisionError, match="Caught ZeroDivisionError in DataLoader worker process"):
        epoch(Numbers(3), num_workers=1, worker_init_fn=lambda i: 1 / 0)
    if not IS_PYTORCH:
        with pytest.raises(Exception, match="(?s)in DataLoader worker process 0.*pickle"):
            epoch(Numbers(3, lambda i: lambda: None), num_workers=1, collate_fn=lambda b: b)


def die(how, at=6):
    def what(i):
        if i == at:
            how()
        return i

    return what


@pytest.mark.parametrize(
    "how, cause",
    [(lambda: os.kill(os.getpid(), signal.SIGKILL), "killed by signal SIGKILL"), (lambda: os._exit(3), "exit code 3")],
)
def test_a_dead_worker_is_noticed(how, cause):
    start = time.monotonic()
    words = r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly" + ("" if IS_PYTORCH else ": " + cause)
    with pytest.raises(RuntimeError, match=words):
        epoch(Numbers(10, die(how)), batch_size=2, num_workers=2)
    assert time.monotonic() - start < (30 if IS_PYTORCH else 4)


@ours
def test_a_worker_killed_while_idle_is_noticed():
    loader = DataLoader(Numbers(40), num_workers=2, prefetch_factor=1)
    iterator = iter(loader)
    next(iterator)
    os.kill(iterator.workers.processes[1].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="exited unexpectedly: killed by signal SIGKILL"):
        list(iterator)
    assert list(iterator) == [] and len(list(loader)) == 40


@ours
def test_timeout():
    start = time.monotonic()
    with pytest.raises(RuntimeError, match="DataLoader timed out after 0.2 seconds"):
        epoch(Numbers(1, lambda i: time.sleep(0.6)), num_workers=1, timeout=0.2)
    assert time.monotonic() - start < 3


def children():
    return {p.pid for p in multiprocessing.active_children()}


def test_workers_end_with_their_iterator():
    before = children()
    iterator = iter(DataLoader(Numbers(100), num_workers=2))
    next(iterator)
    assert len(children() - before) == 2
    del iterator
    gc.collect()
    assert children() - before == set()
    full = list(DataLoader(Numbers(5), num_workers=2))
    assert len(full) == 5 and children() - before == set()


SCRIPT = """
import os, sys, time
import importlib
torch = importlib.import_module(sys.argv[1])
class D(torch.utils.data.Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i): return os.getpid()
it = iter(torch.utils.data.DataLoader(D(), num_workers=2, persistent_workers=True))
print(next(it).item(), next(it).item(), flush=True)
if sys.argv[2] == "killed":
    time.sleep(60)
"""


def alive(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


@ours
@pytest.mark.skipif(not os.path.isdir("/proc/self"), reason="looks into /proc")
@pytest.mark.parametrize("end", ["exits", "killed"])
def test_workers_do_not_outlive_their_parent(end):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, torch.__name__, end], stdout=subprocess.PIPE, text=True)
    pids = [int(p) for p in process.stdout.readline().split()]
    if end == "killed":
        assert all(alive(p) for p in pids)
        process.kill()
    assert process.wait(20) == (0 if end == "exits" else -signal.SIGKILL)
    process.stdout.close()
    deadline = time.monotonic() + 10
    while any(alive(p) for p in pids) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert len(pids) == 2 and not any(alive(p) for p in pids)


@pytest.mark.parametrize(
    "options, error, words",
    [
        ({"timeout": -1}, ValueError, "timeout option should be non-negative"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor option could only be specified in multiprocessing"),
        ({"prefetch_factor": -1, "num_workers": 1}, ValueError, "prefetch_factor option should be non-negative"),
        ({"persistent_workers": True}, ValueError, "persistent_workers option needs num_workers > 0"),
        ({"multiprocessing_context": "spawn"}, ValueError, r"can only be used with multi-process loading \(num_workers > 0\)"),
        ({"multiprocessing_context": "no", "num_workers": 1}, ValueError, "should specify a valid start method in"),
        ({"multiprocessing_context": 3, "num_workers": 1}, TypeError, "should be a valid context object or a string"),
    ],
)
def test_options(options, error, words):
    with pytest.raises(error, match=words):
        DataLoader(Numbers(3), **options)


def test_attributes():
    loader = DataLoader(Numbers(3), num_workers=1)
    assert loader.prefetch_factor == 2 and DataLoader(Numbers(3)).prefetch_factor is None
    with pytest.raises(ValueError, match="batch_size attribute should not be set after DataLoader is initialized"):
        loader.batch_size = 3
    with pytest.raises(ValueError, match="expected unspecified shuffle option, but got shuffle=True"):
        DataLoader(Stream(3), shuffle=True)
    with pytest.raises(ValueError, match="num_samples should be a positive integer value"):
        DataLoader(Numbers(0), shuffle=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        DataLoader(Numbers(3), num_workers=1000)
    assert "This DataLoader will create 1000 worker processes in total" in str(seen[0].message)


class Spawned(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, i):
        return float(i)


@pytest.mark.slow
def test_spawn():
    assert epoch(Spawned(), batch_size=2, num_workers=1, multiprocessing_context="spawn") == [[0.0, 1.0], [2.0, 3.0]]


# ---- data sets and samplers ----


def test_stack_chain_and_subset():
    stack = data.StackDataset(a=Numbers(3), b=Numbers(3, lambda i: -i))
    assert len(stack) == 3 and stack[2] == {"a": 2.0, "b": -2} and stack.__getitems__([0, 1])[1]["b"] == -1
    assert data.StackDataset(Numbers(3), [5, 6, 7])[1] == (1.0, 6)
    batch = next(iter(DataLoader(stack, batch_size=3)))
    assert batch["a"].tolist() == [0.0, 1.0, 2.0]
    with pytest.raises(ValueError, match="Size mismatch between datasets"):
        data.StackDataset(Numbers(3), Numbers(2))
    with pytest.raises(ValueError, match="At least one dataset"):
        data.StackDataset()
    assert list(data.ChainDataset([Stream(2), Stream(3)])) == [0, 1, 0, 1, 2] and list(Stream(2) + Stream(1)) == [0, 1, 0]
    with pytest.raises(AssertionError, match="does not support IterableDataset"):
        data.ConcatDataset([Stream(2)])
    assert data.default_convert({"a": np.ones(2), "b": ["x"]})["a"].tolist() == [1.0, 1.0]


class Many(Numbers):
    def __getitems__(self, indices):
        return [-i for i in indices]


def test_batches_are_fetched_at_once():
    assert epoch(Many(4), batch_size=2) == [[0, -1], [-2, -3]]
    assert epoch(data.Subset(Many(4), [3, 1]), batch_size=2) == [[-3, -1]]
    assert epoch(data.StackDataset(Many(2), Numbers(2)), batch_size=2) == [[[0, -1], [0.0, 1.0]]]


def test_weighted_random_sampler():
    """torch 2.15.0."""
    torch.manual_seed(0)
    assert list(data.WeightedRandomSampler([0.1, 0.9, 0.4, 0.7, 3.0, 0.6], 5)) == [5, 4, 4, 5, 4]
    assert list(data.WeightedRandomSampler([0.9, 0.4, 0.05, 0.2, 0.3, 0.1], 5, replacement=False)) == [1, 4, 0, 3, 5]
    assert torch.rand(1).item() == 0.39709991216659546


def test_weighted_random_sampler_errors():
    with pytest.raises(ValueError, match="num_samples should be a positive integer"):
        data.WeightedRandomSampler([1.0], 0)
    with pytest.raises(ValueError, match="replacement should be a boolean value"):
        data.WeightedRandomSampler([1.0], 1, replacement=3)
    with pytest.raises(ValueError, match="weights should be a 1d sequence"):
        data.WeightedRandomSampler([[1.0, 2.0]], 1)


def test_distributed_sampler():
    """torch 2.15.0."""
    shares = []
    for rank in range(3):
        sampler = data.DistributedSampler(Numbers(10), 3, rank, seed=4)
        sampler.set_epoch(2)
        shares.append(list(sampler))
    assert shares == [[0, 1, 9, 6], [7, 8, 2, 0], [5, 3, 4, 7]]
    assert list(data.DistributedSampler(Numbers(10), 3, 1, shuffle=False, drop_last=True)) == [1, 4, 7]
    with pytest.raises(ValueError, match="Invalid rank 5"):
        data.DistributedSampler(Numbers(10), 3, 5)
