"""Timing, comparison and the table."""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import jax_rival
from .workloads import WORKLOADS, Workload

__all__ = ["main", "measure"]

_ROUND = 2e-3  # seconds that one round of a small workload takes at least


def _difference(a: Any, b: Any) -> float:
    """Largest difference of two results, relative to the largest magnitude."""
    import numpy as np

    x, y = (np.asarray(t.detach().float().numpy() if hasattr(t, "detach") else t, np.float64) for t in (a, b))
    return float(np.abs(x - y).max() / max(np.abs(y).max(), 1e-30)) if x.shape == y.shape else float("inf")


def _round(run: Any, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count


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
    counts = {}
    for name, run in runs.items():
        once = _round(run, 1)
        counts[name] = max(1, int(_ROUND / max(once, 1e-8)))
        if counts[name] > 1:
            counts[name] = max(1, int(_ROUND / max(_round(run, counts[name]), 1e-8)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    try:
        until = time.perf_counter() + seconds * len(runs)
        while len(times[next(iter(runs))]) < 3 or time.perf_counter() < until:
            for name, run in runs.items():
                times[name].append(_round(run, counts[name]))
    finally:
        gc.enable()
    return {
        "name": workload.name,
        "best": {name: min(t) for name, t in times.items()},
        "median": {name: statistics.median(t) for name, t in times.items()},
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


def _readable(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def _rate(workload: Workload, seconds: float) -> str:
    if workload.flops:
        return f"{workload.flops / seconds / 1e9:.0f} GF/s"
    return f"{workload.bytes / seconds / 1e9:.1f} GB/s" if workload.bytes else ""


def _line(workload: Workload, row: dict[str, Any], names: list[str]) -> str:
    if "error" in row:
        return f"{workload.name:34s}not run: {row['error']}"
    cells = "".join(f"{_readable(row['best'][n]):>10s}{_readable(row['median'][n]):>10s}" for n in names)
    text = f"{workload.name:34s}{cells}  {_rate(workload, row['best'][names[0]]):>11s}"
    if len(names) == 2:
        ratio = row["best"][names[1]] / row["best"][names[0]]
        goal = ""
        if workload.goal is not None and names[1] != "jax":
            goal = f"  {'met' if ratio >= 0.95 * workload.goal else 'not met'} ({workload.goal:g})"
        text += f"{ratio:8.2f}x{goal}"
        if row["difference"] is not None and not row["difference"] <= workload.tolerance:
            text += f"  RESULTS DIFFER by {row['difference']:.2g}"
    return text


def main(argv: list[str] | None = None) -> int:
    """``ampnative bench``; returns the exit code: 1 if results of the two libraries differ by more than they may."""
    parser = argparse.ArgumentParser(prog="ampnative bench", description="Times training workloads, and compares with PyTorch or JAX.")
    parser.add_argument("--rival", metavar="MODULE", help="a library to time in the same run: torch, another module with its names, or jax")
    parser.add_argument("--only", metavar="TEXT", action="append", help="workloads whose name contains it; may be repeated")
    parser.add_argument("--threads", type=int, default=2, help="default 2")
    parser.add_argument("--seconds", type=float, default=1.0, help="per workload and library; default 1")
    parser.add_argument("--with-load", action="store_true", help="a busy process on one core beside it")
    parser.add_argument("--json", metavar="FILE", help="write all figures, in seconds")
    parser.add_argument("--list", action="store_true", help="print the names of the workloads")
    args = parser.parse_args(argv)
    chosen = [w for w in WORKLOADS if not args.only or any(text in w.name for text in args.only)]
    if not chosen:
        parser.error(f"no workload has {' or '.join(map(repr, args.only))} in its name: --list prints them")
    if args.list:
        print("\n".join(w.name for w in chosen))
        return 0
    try:
        libraries = [importlib.import_module(name) for name in ("ampnative", args.rival) if name]
    except ImportError as error:
        parser.error(f"--rival {args.rival}: {error}")
    for lib in libraries:
        if hasattr(lib, "set_num_threads"):  # JAX takes the machine's
            lib.set_num_threads(args.threads)
    names = [lib.__name__ for lib in libraries]
    versions = ", ".join(f"{lib.__name__} {lib.__version__}" for lib in libraries)
    print(f"{versions}, {args.threads} thread(s), Python {platform.python_version()}{', beside a busy process' * args.with_load}")
    head = "".join(f"{n[:10]:>10s}{'median':>10s}" for n in names)
    print(f"{'workload':34s}{head}  {'rate':>11s}" + "   ratio of bests" * (len(names) - 1))
    rows, wrong = [], 0
    with _neighbour(args.with_load):
        for workload in chosen:
            row = measure(workload, libraries, args.seconds)
            rows.append({**row, "flops": workload.flops, "bytes": workload.bytes, "goal": workload.goal})
            line = _line(workload, row, names)
            wrong += "DIFFER" in line
            print(line, flush=True)
    if args.json:
        with open(args.json, "w") as file:
            json.dump({"versions": versions, "threads": args.threads, "with_load": args.with_load, "rows": rows}, file, indent=1)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
