"""Overhead of small calls: bench_overhead.py [--rival torch] [--repeats N] [--threads N] [--json FILE]

Every case is timed in rounds, all cases and libraries interleaved, so that a slow moment of the machine hits all alike.
A round calls a case often enough to last about a millisecond; the table shows the best and the median round, per call.
"""

import argparse
import importlib
import json
import platform
import statistics
import sys
import timeit
from collections.abc import Callable

ROUND_SECONDS = 1e-3


def make_mlp(lib, width: int, batch: int, autocast: bool) -> Callable[[], None]:
    """One training step of Linear-ReLU-Linear-ReLU-Linear: zero_grad, forward, MSE, backward, SGD."""
    nn = lib.nn
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-3)
    loss_of, x, y = nn.MSELoss(), lib.randn(batch, width), lib.randn(batch, width)

    def step():
        optimizer.zero_grad()
        loss_of(model(x), y).backward()
        optimizer.step()

    def mixed():
        optimizer.zero_grad()
        with lib.autocast("cpu", dtype=lib.bfloat16):
            loss = loss_of(model(x), y)
        loss.backward()
        optimizer.step()

    return mixed if autocast else step


def make_scaler(lib) -> Callable[[], None]:
    """scaler.step and scaler.update over a model of two small tensors with finite gradients."""
    model = lib.nn.Linear(4, 4)
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-3)
    scaler = lib.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**9)
    scaler.scale(model(lib.ones(4, 4)).sum()).backward()

    def step():
        scaler.step(optimizer)
        scaler.update()

    return step


REGION = """
with autocast("cpu", dtype=bfloat16):
    pass
"""

HUNDRED = "for _ in range(100): mm(h, h)"  # the difference in a region is what the policy decision adds, no cast being due


def cases(lib) -> dict[str, timeit.Timer]:
    """Name -> timer of one statement; the statement runs inline, so that a figure contains no call of a Python function
    but its own."""
    lib.manual_seed(0)
    names = {"a": lib.ones(16), "b": lib.ones(16), "w": lib.ones(16, requires_grad=True)}
    names |= {"autocast": lib.autocast, "bfloat16": lib.bfloat16, "mm": lib.mm, "h": lib.ones(2, 2, dtype=lib.bfloat16)}
    timers = {
        "add, 16 elements": timeit.Timer("a + b", globals=names),
        "add, 16 elements, recorded": timeit.Timer("w + b", globals=names),
        "autocast made, entered, left": timeit.Timer(REGION, globals=names),
        "100 x mm of 2x2 bf16": timeit.Timer(HUNDRED, globals=names),
        "the same in a region": timeit.Timer("with autocast('cpu', dtype=bfloat16):\n    " + HUNDRED, globals=names),
    }
    for width in (16, 64):
        for kind, autocast in (("fp32", False), ("bf16", True)):
            step = make_mlp(lib, width, width, autocast)
            timers[f"MLP step {width}x{width} batch {width} {kind}"] = timeit.Timer(step)
    timers["scaler step + update, 2 tensors"] = timeit.Timer(make_scaler(lib))
    return timers


def measure(libraries: list, repeats: int) -> dict[tuple[str, str], list[float]]:
    """(case, library) -> seconds per call of every round."""
    todo = {(name, lib.__name__): timer for lib in libraries for name, timer in cases(lib).items()}
    counts = {}
    for key, timer in todo.items():
        timer.timeit(20)
        counts[key] = max(1, int(ROUND_SECONDS * 10 / max(timer.timeit(10), 1e-8)))
    results = {key: [] for key in todo}
    for _ in range(repeats):
        for key, timer in todo.items():
            results[key].append(timer.timeit(counts[key]) / counts[key])  # timeit switches the collector off
    return results


def readable(t: float) -> str:
    return f"{t * 1e9:.0f} ns" if t < 1e-6 else f"{t * 1e6:.2f} us"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rival", help="a second library with the same names, timed in the same run, for example torch")
    parser.add_argument("--repeats", type=int, default=50)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", metavar="FILE", help="write all figures in seconds")
    args = parser.parse_args()

    libraries = [importlib.import_module(name) for name in ("ampnative", args.rival) if name]
    for lib in libraries:
        lib.set_num_threads(args.threads)
    loop = min(timeit.repeat("pass", number=1_000_000, repeat=5)) / 1_000_000
    results = measure(libraries, args.repeats)

    versions = ", ".join(f"{lib.__name__} {lib.__version__}" for lib in libraries)
    print(f"python {platform.python_version()}, {versions}, {args.threads} thread(s)")
    print(f"every figure contains the timing loop: {readable(loop)}")
    print(f"{'case':34s}" + "".join(f"{lib.__name__ + ' best':>18s}{'median':>12s}" for lib in libraries))
    for name in dict.fromkeys(case for case, _ in results):
        rows = [results[name, lib.__name__] for lib in libraries]
        print(f"{name:34s}" + "".join(f"{readable(min(r)):>18s}{readable(statistics.median(r)):>12s}" for r in rows))
    if args.json:
        figures = [
            {"case": case, "library": lib, "best": min(r), "median": statistics.median(r), "rounds": len(r)}
            for (case, lib), r in results.items()
        ]
        about = {"python": sys.version, "versions": versions, "threads": args.threads, "timing_loop": loop}
        with open(args.json, "w") as file:
            json.dump({**about, "figures": figures}, file, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
