"""DataLoader: batches of a data set, made in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ... import _C
from ..._C import Tensor
from .dataset import IterableDataset
from .sampler import BatchSampler, RandomSampler, SequentialSampler, draw_seed


def default_collate(batch: list[Any]) -> Any:
    """Joins samples: tensors, arrays and numbers are stacked in a new first dimension; dicts and sequences element by
    element.

    Python floats become float64, strings stay a list. TypeError for anything else, RuntimeError for sequences of
    unequal length.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _C.functions.stack(batch, 0)
    if isinstance(first, np.ndarray):
        if first.dtype.kind in "SUO":
            raise TypeError(f"default_collate: batch must contain tensors, arrays, numbers, dicts or lists; found {first.dtype}")
        return _C.tensor(np.stack(batch))
    if isinstance(first, np.generic):
        return _C.tensor(np.array(batch))
    if isinstance(first, float):
        return _C.tensor(batch, dtype=_C.float64)
    if isinstance(first, int):
        return _C.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        joined = {key: default_collate([sample[key] for sample in batch]) for key in first}
        same_type: Any = type(first)
        return joined if same_type is dict else same_type(joined)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(column)) for column in zip(*batch, strict=False)))
    if isinstance(first, (list, tuple)):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(column)) for column in zip(*batch, strict=False)]
    raise TypeError(f"default_collate: batch must contain tensors, arrays, numbers, dicts or lists; found {type(first)}")


class DataLoader:
    """Iterates over batches of ``dataset``.

    ``num_workers``, ``pin_memory`` and their kin are accepted; everything is loaded by the calling thread.
    ``batch_size=None`` gives single samples. With one seed (or generator) the order is PyTorch's.
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
        if num_workers < 0:
            raise ValueError("num_workers option should be non-negative; use num_workers=0 to disable multiprocessing.")
        if timeout < 0:
            raise ValueError("timeout option should be non-negative")
        stream = isinstance(dataset, IterableDataset)
        if stream and (shuffle or sampler is not None or batch_sampler is not None):
            raise ValueError("DataLoader with IterableDataset: expected unspecified shuffle, sampler and batch_sampler")
        if sampler is not None and shuffle:
            raise ValueError("sampler option is mutually exclusive with shuffle")
        if batch_sampler is not None:
            if batch_size != 1 or shuffle or sampler is not None or drop_last:
                raise ValueError("batch_sampler option is mutually exclusive with batch_size, shuffle, sampler, and drop_last")
            batch_size = None
        elif batch_size is None and drop_last:
            raise ValueError("batch_size=None option disables auto-batching and is mutually exclusive with drop_last")
        if sampler is None and not stream:
            sampler = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
        if batch_size is not None and batch_sampler is None:
            indices: Any = _Forever() if stream else sampler
            batch_sampler = BatchSampler(indices, batch_size, drop_last)
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.sampler, self.batch_sampler, self.generator = sampler, batch_sampler, generator
        self.num_workers, self.pin_memory, self.timeout, self.worker_init_fn = (
            num_workers,
            pin_memory,
            timeout,
            worker_init_fn,
        )
        self.multiprocessing_context, self.prefetch_factor = multiprocessing_context, prefetch_factor
        self.persistent_workers, self.pin_memory_device, self.in_order = persistent_workers, pin_memory_device, in_order
        self.collate_fn = collate_fn or (_as_is if self.batch_sampler is None else default_collate)

    def __iter__(self) -> Iterator[Any]:
        draw_seed(self.generator)  # PyTorch draws a seed for its workers here: keeps the random numbers in step
        return self._stream_batches() if isinstance(self.dataset, IterableDataset) else self._batches()

    def _batches(self) -> Iterator[Any]:
        if self.batch_sampler is None:
            for index in self.sampler:
                yield self.collate_fn(self.dataset[index])
            return
        fetch_all = getattr(self.dataset, "__getitems__", None)
        for indices in self.batch_sampler:
            yield self.collate_fn(fetch_all(indices) if fetch_all else [self.dataset[i] for i in indices])

    def _stream_batches(self) -> Iterator[Any]:
        samples = iter(self.dataset)
        if self.batch_sampler is None:
            for sample in samples:
                yield self.collate_fn(sample)
            return
        for indices in self.batch_sampler:
            batch = [sample for _, sample in zip(indices, samples, strict=False)]
            if not batch or (self.drop_last and len(batch) < len(indices)):
                return
            yield self.collate_fn(batch)

    def __len__(self) -> int:
        if isinstance(self.dataset, IterableDataset):
            n = len(self.dataset)  # type: ignore[arg-type]
            if self.batch_size is None:
                return n
            return n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        return len(self.sampler if self.batch_sampler is None else self.batch_sampler)


class _Forever:
    """Stands for the indices of a stream, which has none."""

    def __iter__(self) -> Iterator[None]:
        while True:
            yield None


def _as_is(sample: Any) -> Any:
    """What a DataLoader without batches does to a sample: arrays become tensors."""
    return _C.tensor(sample) if isinstance(sample, np.ndarray) else sample
