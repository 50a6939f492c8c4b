"""Timing, comparison and the table."""

from __future__ import annotations

import argparse
import importlib
import json
import multiprocessing
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import _C
from ..cli import Parser, count
from . import jax_rival, scaling
from .timing import in_turns, readable
from .workloads import WORKLOADS, Workload

__all__ = ["main", "measure"]

_RIVAL_NAMES = ("nn", "optim", "amp", "autocast", "bfloat16", "manual_seed")  # what tells a module with PyTorch's names


def _difference(a: Any, b: Any) -> float:
    """Largest difference of two results, relative to the largest magnitude."""
    import numpy as np

    x, y = (np.asarray(t.detach().float().numpy() if hasattr(t, "detach") else t, np.float64) for t in (a, b))
    return float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30)) if x.shape == y.shape else float("inf")


def measure(workload: Workload, libraries: list[Any], seconds: float) -> dict[str, Any]:
    """Best and median seconds of one repetition per library, the libraries taking turns for `seconds` each in all.

    Returns:
        {"name", "best": {library: s}, "median": {library: s}, "rounds", "difference" (of the results; None without), "error"}.
    """
    runs, results = {}, {}
    for lib in libraries:
        try:
            make = jax_rival.find(workload.name) if lib.__name__ == "jax" else workload.make
            runs[lib.__name__] = make(lib)
            results[lib.__name__] = runs[lib.__name__]()
        except (AttributeError, NotImplementedError) as error:
            return {"name": workload.name, "error": f"{lib.__name__}: {error}".split("\n")[0][:100]}
    compared = [r for r in results.values() if r is not None]
    difference = _difference(*compared) if len(compared) == 2 else None
    del results, compared
    times = in_turns(runs, seconds)
    return {
        "name": workload.name,
        "best": {name: min(t) / workload.repeats for name, t in times.items()},
        "median": {name: statistics.median(t) / workload.repeats for name, t in times.items()},
        "rounds": len(next(iter(times.values()))),
        "difference": difference,
    }


def _spin(stop: Any) -> None:
    n = 0
    while not stop.is_set():
        for _ in range(100_000):
            n = n * 3 & 0xFFFF


@contextmanager
def _neighbour(on: bool) -> Iterator[None]:
    """A process that keeps one core busy with integers."""
    if not on:
        yield
        return
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    process = context.Process(target=_spin, args=(stop,), daemon=True)
    process.start()
    time.sleep(1.0)
    try:
        yield
    finally:
        stop.set()
        process.join()


def _rate(workload: Workload, seconds: float) -> str:
    if workload.flops:
        return f"{workload.flops / seconds / 1e9:.0f} GF/s"
    return f"{workload.bytes / seconds / 1e9:.1f} GB/s" if workload.bytes else ""


_COPIED = 64 << 20  # bytes of each of the two buffers: larger than any cache


def ceilings() -> dict[str, float]:
    """What the machine reaches with the threads that are set: "fp32" and "bf16" operations per second from registers alone, "copy"
    bytes per second, read plus written, of a copy that no cache holds."""
    kinds = (("fp32",), ("bf16",), ("copy", _COPIED))
    return {kind[0]: max(_C._ceiling(*kind) for _ in range(3)) for kind in kinds}  # threads may be waking up


def _limits_line(limits: dict[str, float], who: str) -> str:
    return (
        f"limits of {who}: {limits['fp32'] / 1e9:.0f} GF/s in fp32, {limits['bf16'] / 1e9:.0f} GF/s in bf16 (registers only), "
        f"{limits['copy'] / 1e9:.0f} GB/s copied"
    )


def _share(workload: Workload, seconds: float, limits: dict[str, float]) -> str:
    if not workload.ceiling:
        return ""
    return f"{(workload.flops or workload.bytes) / seconds / limits[workload.ceiling]:.0%}"


def _line(workload: Workload, row: dict[str, Any], names: list[str], limits: dict[str, float]) -> str:
    if "error" in row:
        return f"{workload.name:34s}not run: {row['error']}"
    cells = "".join(f"{readable(row['best'][n]):>10s}{readable(row['median'][n]):>10s}" for n in names)
    text = f"{workload.name:34s}{cells}  {_rate(workload, row['best'][names[0]]):>11s}"
    text += f"{_share(workload, row['best'][names[0]], limits):>9s}"
    if len(names) == 2:
        ratio = row["best"][names[1]] / row["best"][names[0]]
        goal = ""
        if workload.goal is not None and names[1] != "jax":
            goal = f"  {'met' if ratio >= 0.95 * workload.goal else 'not met'} ({workload.goal:g})"
        text += f"{ratio:8.2f}x{goal}"
        if row["difference"] is not None and not row["difference"] <= workload.tolerance:
            text += f"  RESULTS DIFFER by {row['difference']:.2g}"
    return text


def _write(path: str | None, told: dict[str, Any]) -> None:
    if path:
        with open(path, "w") as file:
            json.dump(told, file, indent=1)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return value


def main(argv: list[str] | None = None) -> int:
    """``ampnative bench``; returns the exit code: 1 if results of the two libraries differ by more than they may."""
    parser = Parser(prog="ampnative bench", description="Times training workloads, and compares with PyTorch or JAX.")
    parser.add_argument("--rival", metavar="MODULE", help="a library to time in the same run: torch, another module with its names, or jax")
    parser.add_argument("--only", metavar="TEXT", action="append", help="workloads whose name contains it; may be repeated")
    parser.add_argument("--threads", type=count, default=2, help="default 2")
    parser.add_argument("--seconds", type=_seconds, default=1.0, help="per workload and library; default 1")
    parser.add_argument("--with-load", action="store_true", help="a busy process on one core beside it")
    parser.add_argument(
        "--json",
        metavar="FILE",
        help="write every figure, in seconds: versions, threads, ceilings (operations or bytes per second) and rows, each with name, best "
        "and median (by library), rounds, difference (of the results) and goal (PyTorch's time over ours that is aimed "
        "at least at, or null), or error",
    )
    parser.add_argument("--scaling", action="store_true", help="how times grow with sizes, threads and the number of tensors, instead")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    args = parser.parse_args(argv)
    if args.json and (os.path.isdir(args.json) or not os.path.isdir(os.path.dirname(os.path.abspath(args.json)))):
        parser.error(f"cannot write {args.json}: {'it is a folder' if os.path.isdir(args.json) else 'there is no such folder'}")
    table = scaling.pairs() if args.scaling else WORKLOADS
    for text in args.only or []:
        if not any(text in w.name for w in table):
            parser.error(f"no workload has {text!r} in its name: --list prints them")
    chosen: list[Any] = [w for w in table if not args.only or any(text in w.name for text in args.only)]
    if args.list:
        print("\n".join(w.name for w in chosen))
        return 0
    if args.scaling and args.rival == "jax":
        parser.error("--scaling sets the number of threads, which JAX takes from the machine: use --rival torch, or none")
    try:
        libraries = [importlib.import_module(name) for name in ("ampnative", args.rival) if name]
    except ImportError as error:
        cure = f". Install it beside ampnative: {sys.executable} -m pip install {args.rival}" if error.name == args.rival else ""
        parser.error(f"--rival {args.rival}: {error}{cure}")
    missing = [] if args.rival in (None, "jax") else [name for name in _RIVAL_NAMES if not hasattr(libraries[-1], name)]
    if missing:
        parser.error(f"--rival {args.rival}: a rival needs torch's names (or is jax), and this one has no {', '.join(missing)}")
    for lib in libraries:
        if hasattr(lib, "set_num_threads"):  # JAX takes the machine's
            lib.set_num_threads(args.threads)
    names = [lib.__name__ for lib in libraries]
    versions = ", ".join(f"{lib.__name__} {lib.__version__}" for lib in libraries)
    limits = ceilings()
    print(f"{versions}, {args.threads} thread(s), Python {platform.python_version()}{', beside a busy process' * args.with_load}")
    print(_limits_line(limits, f"{args.threads} thread(s)"))
    if args.scaling:
        _C.set_num_threads(1)
        alone = ceilings()
        print(_limits_line(alone, "1 thread"))
        rows = scaling.run(chosen, libraries, args.threads, args.seconds)
        told = {"versions": versions, "threads": args.threads, "ceilings": limits, "ceilings_alone": alone, "rows": rows}
        _write(args.json, told)
        return 0
    head = "".join(f"{n[:10]:>10s}{'median':>10s}" for n in names)
    print(f"{'workload':34s}{head}  {'rate':>11s}{'of limit':>9s}" + "   ratio of bests" * (len(names) - 1))
    rows, wrong = [], 0
    with _neighbour(args.with_load):
        for workload in chosen:
            row = measure(workload, libraries, args.seconds)
            rows.append({**row, "flops": workload.flops, "bytes": workload.bytes, "goal": workload.goal, "ceiling": workload.ceiling})
            line = _line(workload, row, names, limits)
            wrong += "DIFFER" in line
            print(line, flush=True)
    _write(args.json, {"versions": versions, "threads": args.threads, "with_load": args.with_load, "ceilings": limits, "rows": rows})
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
