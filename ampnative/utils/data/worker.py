"""Worker processes of a DataLoader.

Two pipes per worker: tasks go down, results come up. A task is (number, indices) and is answered by (number, kind, batch). The parent
waits for the pipes and for the processes themselves, so that a dead worker is noticed at once; a worker whose parent is gone reads
the end of its pipe. No lock is shared: a worker that is killed leaves nothing locked behind.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from ... import _C

DATA, ERROR, END = "data", "error", "end"  # END: a stream has no more
_RESUME = "resume"
_JOIN_SECONDS = 5.0
_parent_ends: list[Any] = []  # of this process's pipes: a forked worker closes them, or the ends would never be seen


class WorkerInfo:
    """What ``get_worker_info`` gives in a worker: ``id`` (from 0), ``num_workers``, ``seed`` and ``dataset`` (its copy)."""

    def __init__(self, id: int, num_workers: int, seed: int, dataset: Any) -> None:
        self.id, self.num_workers, self.seed, self.dataset = id, num_workers, seed, dataset

    def __repr__(self) -> str:
        return f"WorkerInfo(id={self.id}, num_workers={self.num_workers}, seed={self.seed}, dataset={self.dataset!r})"


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Of the worker that this process is; None in the main process."""
    return _info


# ---- in the worker ----


class _Sender(threading.Thread):
    """Writes results to the pipe, so that the worker goes on to the next batch while the parent is busy."""

    def __init__(self, pipe: Any) -> None:
        super().__init__(daemon=True)
        self.pipe: Any = pipe
        self.results: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def run(self) -> None:
        with contextlib.suppress(OSError):  # the parent does not listen any more
            while (result := self.results.get()) is not None:
                self.pipe.send_bytes(result)

    def put(self, number: int, kind: str, value: Any) -> None:
        self.results.put(pickle.dumps((number, kind, value), protocol=pickle.HIGHEST_PROTOCOL))

    def finish(self) -> None:
        self.results.put(None)
        self.join()


def _describe(worker: int) -> tuple[type, str]:
    """The exception that is being handled, as what the parent raises."""
    kind = sys.exc_info()[0]
    text = f"Caught {kind.__name__ if kind else 'error'} in DataLoader worker process {worker}.\nOriginal {traceback.format_exc()}"
    try:
        pickle.dumps(kind)
    except Exception:
        kind = RuntimeError
    return kind or RuntimeError, text


def _next_task(tasks: Any, parent: int) -> Any:
    """None when the parent has closed the pipe or is gone."""
    try:
        while not tasks.poll(_JOIN_SECONDS):
            if os.getppid() != parent:
                return None
        return tasks.recv()
    except (EOFError, OSError):
        return None


def seed_worker(seed: int, worker: int, base_seed: int) -> None:
    """The generators of ampnative, of Python and of NumPy; the numbers are those that PyTorch's workers draw."""
    random.seed(seed)
    _C.manual_seed(seed)
    entropy = [worker, base_seed & 0xFFFFFFFF, base_seed >> 32, 0]
    np.random.seed(np.random.SeedSequence(entropy).generate_state(4))


def work(
    worker: int,
    count: int,
    dataset: Any,
    make_fetch: Callable[[Any], Callable[[Any], Any]],
    init: Callable[[int], None] | None,
    base_seed: int,
    tasks: Any,
    results: Any,
    parent: int,
) -> None:
    """The worker's life: answer tasks until the parent closes the pipe."""
    global _info
    for end in _parent_ends:
        with contextlib.suppress(OSError):
            end.close()
    _parent_ends.clear()
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the parent too, and that ends its workers
    _C.set_num_threads(1)
    seed = base_seed + worker
    seed_worker(seed, worker, base_seed)
    _info = WorkerInfo(worker, count, seed, dataset)
    sender = _Sender(results)
    sender.start()
    failure = None
    fetch: Callable[[Any], Any] | None = None
    try:
        if init is not None:
            init(worker)
        fetch = make_fetch(dataset)
    except Exception:
        failure = _describe(worker)
    ended = False
    while (task := _next_task(tasks, parent)) is not None:
        number, indices = task
        if number == _RESUME:
            try:
                fetch, ended = make_fetch(dataset), False
            except Exception:
                failure = _describe(worker)
            continue
        if ended:
            sender.put(number, END, None)
            continue
        try:
            if failure is not None or fetch is None:
                sender.put(number, ERROR, failure)
                failure = None
            else:
                sender.put(number, DATA, fetch(indices))
        except StopIteration:
            ended = True
            sender.put(number, END, None)
        except Exception:
            sender.put(number, ERROR, _describe(worker))
    sender.finish()


# ---- in the parent ----


def raise_again(kind: type, text: str) -> None:
    """The worker's exception, with its traceback as the message. RuntimeError if the type cannot be made of a message."""
    if issubclass(kind, KeyError):
        text = _Readable(text)
    try:
        error = kind(text)
    except Exception:
        raise RuntimeError(text) from None
    raise error


class _Readable(str):
    """KeyError shows the repr of its argument: lines stay lines."""

    def __repr__(self) -> str:
        return str(self)


class Workers:
    """``count`` processes. ``send`` gives a task to one of them, ``receive`` waits for any result."""

    def __init__(
        self, context: Any, count: int, dataset: Any, make_fetch: Any, init: Callable[[int], None] | None, base_seed: int
    ) -> None:
        from multiprocessing.connection import wait

        import numpy.random  # noqa: F401 - once here instead of in every forked worker

        self._wait = wait
        self.parent = os.getpid()
        self.processes: list[Any] = []
        self.tasks: list[Any] = []
        self.results: list[Any] = []
        try:
            for worker in range(count):
                self._start(context, worker, count, dataset, make_fetch, init, base_seed)
        except BaseException:
            self.shutdown()
            raise

    def _start(self, context: Any, worker: int, count: int, dataset: Any, make_fetch: Any, init: Any, base_seed: int) -> None:
        task_reader, task_writer = context.Pipe(duplex=False)
        result_reader, result_writer = context.Pipe(duplex=False)
        self.tasks.append(task_writer)
        self.results.append(result_reader)
        _parent_ends.extend((task_writer, result_reader))
        try:
            process = context.Process(
                target=work,
                args=(worker, count, dataset, make_fetch, init, base_seed, task_reader, result_writer, os.getpid()),
                daemon=True,
            )
            process.start()
            self.processes.append(process)
        finally:
            task_reader.close()
            result_writer.close()

    def send(self, worker: int, number: Any, indices: Any) -> None:
        """Give a worker the task ``number``: to load ``indices``. RuntimeError if one of the workers died."""
        try:
            self.tasks[worker].send((number, indices))
        except OSError:
            self._fail_for_dead()
            raise

    def resume(self) -> None:
        """Streams begin anew."""
        for worker in range(len(self.processes)):
            self.send(worker, _RESUME, None)

    def receive(self, waited_for: Iterable[int], timeout: float) -> tuple[int, str, Any]:
        """The next result of one of the workers in `waited_for`. RuntimeError if one of them died, or nothing came within
        `timeout` seconds (0: wait for ever).
        """
        waited = list(waited_for)
        pipes = [self.results[w] for w in waited]
        sentinels = [self.processes[w].sentinel for w in waited]
        deadline = time.monotonic() + timeout if timeout > 0 else None
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0)
            ready = self._wait(pipes + sentinels, left)
            for pipe in pipes:
                if pipe in ready:
                    try:
                        return pickle.loads(pipe.recv_bytes())
                    except (EOFError, OSError):
                        self._fail_for_dead()
                        raise RuntimeError("DataLoader worker closed its pipe without an answer") from None
            if ready:
                self._fail_for_dead()
            if deadline is not None and time.monotonic() >= deadline:
                raise RuntimeError(f"DataLoader timed out after {timeout:g} seconds")

    def _fail_for_dead(self) -> None:
        for process in self.processes:
            process.join(0.2)
        dead = [p for p in self.processes if not p.is_alive()]
        if not dead:
            return
        pids, causes = ", ".join(str(p.pid) for p in dead), ", ".join(sorted({_cause(p.exitcode) for p in dead}))
        raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly: {causes}")

    def shutdown(self) -> None:
        """Ends all workers: by closing the pipes, and by force those that do not stop within a few seconds."""
        if os.getpid() != self.parent:  # a forked worker has inherited this object: they are not its children
            return
        for end in (*self.tasks, *self.results):
            with contextlib.suppress(OSError):
                end.close()
            with contextlib.suppress(ValueError):
                _parent_ends.remove(end)
        self.tasks, self.results = [], []
        deadline = time.monotonic() + _JOIN_SECONDS
        for process in self.processes:
            process.join(max(deadline - time.monotonic(), 0))
            if process.is_alive():
                process.kill()
                process.join()
        self.processes = []


def _cause(exitcode: int | None) -> str:
    if exitcode is not None and exitcode < 0:
        return f"killed by signal {signal.Signals(-exitcode).name}"
    return f"exit code {exitcode}"
