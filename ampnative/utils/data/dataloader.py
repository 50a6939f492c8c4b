"""DataLoader: batches of a data set, made in this process or by workers."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ... import cuda
from ..._C import Tensor, tensor
from .collate import default_collate, default_convert
from .dataset import IterableDataset, Subset, TensorDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed
from .worker import DATA, END, Workers, raise_again
from .worker import get_worker_info as get_worker_info


class _Fetch:
    """Indices -> batch, of a data set with numbered samples."""

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable[[Any], Any]) -> None:
        self.dataset, self.batched, self.collate_fn = dataset, batched, collate_fn

    def __call__(self, indices: Any) -> Any:
        if not self.batched:
            return self.collate_fn(self.dataset[indices])
        if self.collate_fn is default_collate:
            rows = _rows(self.dataset, indices)
            if rows is not None:
                return rows
        fetch_all = getattr(self.dataset, "__getitems__", None)
        return self.collate_fn(fetch_all(indices) if fetch_all else [self.dataset[i] for i in indices])


def _rows(dataset: Any, indices: Any) -> list[Tensor] | None:
    """The batch of a TensorDataset, or of subsets of one, in one call per tensor: what joining its samples would give. None if the
    samples have to be asked for one by one."""
    if not isinstance(indices, list):
        return None
    while type(dataset) is Subset:
        if set(map(type, indices)) != {int}:
            return None
        numbers = dataset.indices
        indices, dataset = [numbers[i] for i in indices], dataset.dataset
    plain = type(dataset) is TensorDataset and set(map(type, indices)) == {int}
    if not plain or any(type(t) is not Tensor for t in dataset.tensors):
        return None
    at = tensor(indices)
    return [t[at] for t in dataset.tensors]


class _StreamFetch:
    """The next batch of a stream, as many samples as there are indices. StopIteration at its end."""

    def __init__(self, dataset: Any, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> None:
        self.samples, self.batched, self.collate_fn, self.drop_last = iter(dataset), batched, collate_fn, drop_last
        self.ended = False

    def __call__(self, indices: Any) -> Any:
        if self.ended:
            raise StopIteration
        if not self.batched:
            return self.collate_fn(next(self.samples))
        batch = []
        for _ in indices:
            try:
                batch.append(next(self.samples))
            except StopIteration:
                self.ended = True
                break
        if not batch or (self.drop_last and self.ended):
            raise StopIteration
        return self.collate_fn(batch)


def _make_fetch(dataset: Any, stream: bool, batched: bool, collate_fn: Callable[[Any], Any], drop_last: bool) -> Any:
    return _StreamFetch(dataset, batched, collate_fn, drop_last) if stream else _Fetch(dataset, batched, collate_fn)


class DataLoader:
    """Iterates over batches of ``dataset``. With one seed (or ``generator``) the order, and what workers draw, is PyTorch's.

    Args:
        dataset: ``__getitem__`` and ``__len__``, or an IterableDataset.
        batch_size: samples per batch; None gives single samples.
        shuffle, sampler, batch_sampler: the order; at most one of them.
        num_workers: processes that load ahead, each with a copy of the data set; 0: this process does.
        collate_fn: list of samples -> batch.
        drop_last: without a smaller last batch.
        timeout: seconds to wait for a batch of a worker; 0: for ever.
        worker_init_fn: called with the worker's number in each worker, after seeding.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context of multiprocessing.
        prefetch_factor: batches that each worker prepares ahead (2).
        persistent_workers: keep the workers from one epoch to the next.
        in_order: False: whatever is ready first.
        pin_memory, pin_memory_device: accepted, no effect.

    A worker's exception is raised here with its traceback; a worker that dies is a RuntimeError.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        prefetch_factor = _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        stream = isinstance(dataset, IterableDataset)
        if stream:
            for name, given, unwanted in (
                ("shuffle", shuffle, shuffle not in (None, False)),
                ("sampler", sampler, sampler is not None),
                ("batch_sampler", batch_sampler, batch_sampler is not None),
            ):
                if unwanted:
                    raise ValueError(f"DataLoader with IterableDataset: expected unspecified {name} option, but got {name}={given}")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None:
            sampler = (
                _Forever() if stream else RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
            )
        if batch_size is not None and batch_sampler is None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.pin_memory, self.timeout, self.worker_init_fn = num_workers, pin_memory, timeout, worker_init_fn
        self.multiprocessing_context, self.prefetch_factor = multiprocessing_context, prefetch_factor
        self.persistent_workers, self.pin_memory_device, self.in_order = persistent_workers, pin_memory_device, in_order
        self.collate_fn = collate_fn or (default_convert if self.batch_sampler is None else default_collate)
        self._iterator: _WorkerIterator | None = None  # of persistent workers
        self._ready = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "multiprocessing_context":
            value = _as_context(value, self.num_workers)
        elif name in _FIXED and "_ready" in self.__dict__:
            raise ValueError(f"{name} attribute should not be set after {type(self).__name__} is initialized")
        super().__setattr__(name, value)

    def _index_batches(self) -> Any:
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    def _fetch_maker(self) -> Callable[[Any], Any]:
        return functools.partial(
            _make_fetch,
            stream=isinstance(self.dataset, IterableDataset),
            batched=self.batch_sampler is not None,
            collate_fn=self.collate_fn,
            drop_last=self.drop_last,
        )

    def __iter__(self) -> Iterator[Any]:
        if self.pin_memory and not cuda.is_available():
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=2,
            )
        if not self.num_workers:
            return _Iterator(self)
        if not self.persistent_workers:
            return _WorkerIterator(self)
        if self._iterator is None or not self._iterator.workers.processes:
            self._iterator = _WorkerIterator(self)
        else:
            self._iterator.begin_again()
        return self._iterator

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            n = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self._index_batches())


_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def _check_workers(num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool) -> int | None:
    if num_workers < 0:
        raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
    if timeout < 0:
        raise ValueError("timeout option should be non-negative")
    if num_workers == 0 and prefetch_factor is not None:
        raise ValueError(
            "prefetch_factor option could only be specified in multiprocessing: let num_workers > 0, or leave prefetch_factor at None"
        )
    if prefetch_factor is not None and prefetch_factor < 0:
        raise ValueError("prefetch_factor option should be non-negative")
    if persistent_workers and num_workers == 0:
        raise ValueError("persistent_workers option needs num_workers > 0")
    if hasattr(os, "sched_getaffinity") and num_workers > (cpus := len(os.sched_getaffinity(0))):
        warnings.warn(
            f"This DataLoader will create {num_workers} worker processes in total. Our suggested max number of worker in current "
            f"system is {cpus}: more of them only wait for each other",
            stacklevel=3,
        )
    return 2 if num_workers and prefetch_factor is None else prefetch_factor


def _as_context(value: Any, num_workers: int) -> Any:
    if value is None:
        return None
    import multiprocessing
    from multiprocessing.context import BaseContext

    if not num_workers:
        raise ValueError(
            f"multiprocessing_context can only be used with multi-process loading (num_workers > 0), but got num_workers={num_workers}"
        )
    if isinstance(value, str):
        if value not in multiprocessing.get_all_start_methods():
            raise ValueError(
                f"multiprocessing_context option should specify a valid start method in {multiprocessing.get_all_start_methods()!r}, "
                f"but got multiprocessing_context={value!r}"
            )
        return multiprocessing.get_context(value)
    if not isinstance(value, BaseContext):
        raise TypeError(
            "multiprocessing_context option should be a valid context object or a string specifying the start method, but got "
            f"multiprocessing_context={value}"
        )
    return value


class _Forever:
    """Stands for the indices of a stream, which has none."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


class _Iterator:
    """One epoch, loaded by this process. The base of the one with workers."""

    def __init__(self, loader: DataLoader) -> None:
        self.loader = loader
        self.base_seed = draw_seed(loader.generator)  # drawn without workers too: the random numbers stay in step
        self.fetch = None if loader.num_workers else loader._fetch_maker()(loader.dataset)
        self._begin()

    def _begin(self) -> None:
        self.index_batches = iter(self.loader._index_batches())

    def __iter__(self) -> Iterator[Any]:
        return self

    def __len__(self) -> int:
        return len(self.loader)

    def __next__(self) -> Any:
        assert self.fetch is not None
        return self.fetch(next(self.index_batches))


class _WorkerIterator(_Iterator):
    """One epoch (or, with persistent workers, one after the other), loaded by processes.

    Tasks are numbered and dealt out in turn, ``prefetch_factor`` ahead per worker. Results that come too early wait in ``early``.
    """

    def __init__(self, loader: DataLoader) -> None:
        import multiprocessing

        super().__init__(loader)
        context = loader.multiprocessing_context or multiprocessing
        self.workers = Workers(
            context, loader.num_workers, loader.dataset, loader._fetch_maker(), loader.worker_init_fn, self.base_seed
        )
        self._deal_first()

    def begin_again(self) -> None:
        """The next epoch of persistent workers. What is still under way of the last one is taken in and thrown away."""
        while self.owner:
            number, _, _ = self._receive()
            self.owner.pop(number, None)
        self._begin()
        self.workers.resume()
        self._deal_first()

    def _deal_first(self) -> None:
        self.sent = self.wanted = 0
        self.turn = 0
        self.owner: dict[int, int] = {}  # tasks under way -> worker
        self.early: dict[int, tuple[str, Any]] = {}
        self.active = list(range(self.loader.num_workers))
        for _ in range((self.loader.prefetch_factor or 0) * self.loader.num_workers):
            self._deal()

    def _deal(self) -> None:
        """One more task to the worker whose turn it is, if there are indices left."""
        if not self.active:
            return
        try:
            indices = next(self.index_batches)
        except StopIteration:
            return
        while self.turn not in self.active:
            self.turn = (self.turn + 1) % self.loader.num_workers
        worker = self.turn
        if not self.loader.in_order:
            loads = {w: sum(owner == w for owner in self.owner.values()) for w in self.active}
            worker = min(loads, key=lambda w: loads[w])
        self.turn = (self.turn + 1) % self.loader.num_workers
        self.owner[self.sent] = worker
        self.workers.send(worker, self.sent, indices)
        self.sent += 1

    def _receive(self) -> tuple[int, str, Any]:
        try:
            return self.workers.receive(set(self.owner.values()), self.loader.timeout)
        except BaseException:
            self.workers.shutdown()
            raise

    def __next__(self) -> Any:
        if not self.workers.processes:
            raise StopIteration
        if not self.owner and not self.early:
            self._deal()  # prefetch_factor 0
        while self.owner or self.early:
            if not self.loader.in_order and self.early:
                self.wanted = next(iter(self.early))
            if self.wanted not in self.early:
                if self.loader.in_order and self.wanted not in self.owner:
                    self.wanted += 1  # what an ended stream was asked for
                    continue
                number, kind, value = self._receive()
                worker = self.owner.pop(number)
                if kind == END:
                    self._retire(worker)
                    continue
                self.early[number] = (kind, value)
                continue
            kind, value = self.early.pop(self.wanted)
            self.wanted += 1
            self._deal()
            if kind == DATA:
                return value
            raise_again(*value)
        if not self.loader.persistent_workers:
            self.workers.shutdown()
        raise StopIteration

    def _retire(self, worker: int) -> None:
        """A stream's end: the others get the tasks from now on."""
        if worker in self.active:
            self.active.remove(worker)
            self._deal()

    def __del__(self) -> None:
        if "workers" in self.__dict__:
            self.workers.shutdown()
