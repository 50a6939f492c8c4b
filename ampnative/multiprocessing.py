"""Python's multiprocessing under PyTorch's name, and ``spawn``. Tensors are copied from process to process, not shared."""

from __future__ import annotations

import multiprocessing
import sys
import traceback
from collections.abc import Callable
from multiprocessing import *  # noqa: F403
from multiprocessing.connection import wait
from typing import Any

from ._features import teach

__all__ = [
    *multiprocessing.__all__,
    "ProcessExitedException",
    "ProcessRaisedException",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]


class ProcessException(Exception):
    """A process of ``spawn`` failed: ``error_index`` says which, ``pid`` its process id."""

    def __init__(self, msg: str, error_index: int, pid: int | None) -> None:
        super().__init__(msg)
        self.msg, self.error_index, self.pid = msg, error_index, pid


class ProcessRaisedException(ProcessException):
    """It raised; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """It exited with ``exit_code``, or was killed by a signal (negative code)."""

    def __init__(self, msg: str, error_index: int, pid: int | None, exit_code: int | None) -> None:
        super().__init__(msg, error_index, pid)
        self.exit_code = exit_code


def get_all_sharing_strategies() -> set[str]:
    """{"file_system"}: accepted, without effect."""
    return {"file_system", "file_descriptor"}


def get_sharing_strategy() -> str:
    """"file_system"."""
    return "file_system"


def set_sharing_strategy(new_strategy: str) -> None:
    """Accepted, without effect: tensors are copied. ValueError for an unknown name."""
    if new_strategy not in get_all_sharing_strategies():
        raise ValueError(f"unknown sharing strategy {new_strategy!r}: {sorted(get_all_sharing_strategies())}")


def _run(function: Callable[..., Any], index: int, args: tuple, errors: Any) -> None:
    try:
        function(index, *args)
    except KeyboardInterrupt:
        pass
    except Exception:
        errors.send(traceback.format_exc())
        raise SystemExit(1) from None
    finally:
        errors.close()


class ProcessContext:
    """The processes of ``spawn(join=False)``."""

    def __init__(self, processes: list[Any], errors: list[Any]) -> None:
        self.processes, self._errors = processes, errors
        self._running = {p.sentinel: i for i, p in enumerate(processes)}

    def pids(self) -> list[int | None]:
        """The numbers of the processes, None for one that has not started."""
        return [p.pid for p in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Waits for a process to end; True when all have ended well. When one fails, the others are stopped and it raises."""
        if not self._running:
            return True
        for sentinel in wait(list(self._running), timeout):
            index = self._running.pop(sentinel)
            process = self.processes[index]
            process.join()
            if process.exitcode == 0:
                continue
            for other in self.processes:
                if other.is_alive():
                    other.terminate()
            for other in self.processes:
                other.join()
            if self._errors[index].poll():
                text = f"\n\n-- Process {index} terminated with the following error:\n{self._errors[index].recv()}"
                raise ProcessRaisedException(text, index, process.pid)
            how = f"exit code {process.exitcode}" if process.exitcode > 0 else f"signal {-process.exitcode}"
            raise ProcessExitedException(f"process {index} terminated with {how}", index, process.pid, process.exitcode)
        return not self._running


SpawnContext = ProcessContext


def start_processes(
    fn: Callable[..., Any],
    args: tuple = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """``fn(index, *args)`` in ``nprocs`` processes. With ``join``, waits for all; the first failure stops the others and raises
    ProcessRaisedException or ProcessExitedException. Without, returns a context with ``join()``.
    """
    context = multiprocessing.get_context(start_method)
    processes, errors = [], []
    for index in range(nprocs):
        reader, writer = context.Pipe(duplex=False)
        process = context.Process(target=_run, args=(fn, index, args, writer), daemon=daemon)  # type: ignore[attr-defined]
        process.start()
        writer.close()
        processes.append(process)
        errors.append(reader)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any], args: tuple = (), nprocs: int = 1, join: bool = True, daemon: bool = False, start_method: str = "spawn"
) -> ProcessContext | None:
    """:func:`start_processes` in fresh interpreters."""
    return start_processes(fn, args, nprocs, join, daemon, start_method)


teach(sys.modules[__name__], "multiprocessing")
