"""How times grow: with the size inside one level of memory, with threads, with the number of tensors, with an odd batch."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .timing import in_turns, readable
from .workloads import DTYPES, Run, _filled, attention, convolution, linear, matmul, optimizer_step, softmax, unscale

__all__ = ["Pair", "pairs", "run"]

Make = Callable[[Any], Run]


class Pair(NamedTuple):
    """One line of the table: two workloads whose times are compared.

    Attributes:
        name: "kind/what/sizes".
        base, other: lib -> a function that runs it once.
        low, high: what time(other) / time(base) * factor should lie between; None: nothing is wanted, the line informs.
        factor: 512 / 513 where samples are to be compared.
        speedup: the figure is time(base) / time(other): what more threads bring.
        threads: of the base and of the other; 0: as many as the caller says.
    """

    name: str
    base: Make
    other: Make
    low: float | None = None
    high: float | None = None
    factor: float = 1.0
    speedup: bool = False
    threads: tuple[int, int] = (0, 0)


def cache_bytes() -> tuple[int, int]:
    """(second level, last level) of the first core; 1 and 32 MiB where the system does not say."""
    found: dict[int, int] = {}
    for index in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((index / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction" and size.endswith("K"):
                found[int(level)] = int(size[:-1]) << 10
        except (OSError, ValueError):
            continue
    return found.get(2, 1 << 20), max([found.get(3, 32 << 20), found.get(2, 0)])


# ---- workloads whose size is a number of elements ----


def _product(kind: str, width: int) -> Callable[[int], Make]:
    def sized(rows: int) -> Make:
        def make(lib: Any) -> Run:
            dtype = getattr(lib, DTYPES[kind])
            a, b = _filled(lib, rows, width, dtype=dtype), _filled(lib, width, width, dtype=dtype)
            return lambda: a @ b

        return make

    return sized


def _addition(n: int) -> Make:
    def make(lib: Any) -> Run:
        a, b, out = lib.rand(n), lib.rand(n), lib.zeros(n)
        return lambda: lib.add(a, b, out=out)

    return make


def _sum(n: int) -> Make:
    def make(lib: Any) -> Run:
        a = lib.rand(n)
        return lambda: a.sum()

    return make


def _softmax(n: int, width: int = 256) -> Make:
    def make(lib: Any) -> Run:
        x, out = lib.rand(max(n // width, 1), width), lib.zeros(max(n // width, 1), width)
        return lambda: lib.softmax(x, -1, out=out)

    return make


def _adamw(n: int) -> Make:
    return optimizer_step("AdamW", n, 1, fused=True)


_MEMORY = {"add": (_addition, 12), "sum": (_sum, 4), "softmax": (_softmax, 8), "adamw": (_adamw, 16)}  # bytes of an element


def _doublings(inner: int, outer: int, width: int) -> list[Pair]:
    """One thread: a half and a quarter of the second-level cache, and three and six times the last level."""
    rows = []
    for kind in ("bf16", "fp32"):
        sized = _product(kind, width)
        rows.append(Pair(f"double/product/{kind}/{width}", sized(width), sized(2 * width), 1.85, 2.15, threads=(1, 1)))
    for name, (sized, each) in _MEMORY.items():
        for level, nbytes in (("cache", inner // 4), ("memory", 3 * outer)):
            n = max(nbytes // each // 256 * 256, 256)
            rows.append(Pair(f"double/{name}/{level}/{n}", sized(n), sized(2 * n), 1.85, 2.15, threads=(1, 1)))
    return rows


# ---- threads ----


def _threads(outer: int, width: int, heads: int) -> list[Pair]:
    bound = [
        (f"product/bf16/{width}", matmul(width, "bf16")),
        (f"product/fp32/{width}", matmul(width, "fp32")),
        (f"linear/bf16/{width}x{width // 2}", linear(width, width // 2, width // 2, "bf16")),
        (f"linear/fp32/{width}x{width // 2}", linear(width, width // 2, width // 2, "fp32")),
        (f"attention/4x{heads}x{width // 4}x64", attention(4, heads, width // 4, 64, False)),
        (f"conv/bf16/{4 * heads}x64x56x56", convolution("bf16", 4 * heads)),
    ]
    rows = [Pair(f"threads/{name}", make, make, 1.7, None, speedup=True, threads=(1, 0)) for name, make in bound]
    for name, (sized, each) in _MEMORY.items():
        make = sized(max(3 * outer // each // 256 * 256, 256))
        rows.append(Pair(f"threads/{name}", make, make, speedup=True, threads=(1, 0)))
    make = softmax(4, heads, width // 4, width // 4)
    rows.append(Pair("threads/softmax_grad", make, make, speedup=True, threads=(1, 0)))
    return rows


# ---- many small tensors, odd batches ----


def _zero_grad(total: int, count: int) -> Make:
    def make(lib: Any) -> Run:
        parameters = [lib.nn.Parameter(lib.zeros(total // count)) for _ in range(count)]
        for p in parameters:
            p.grad = lib.zeros(total // count)
        optimizer = lib.optim.SGD(parameters, lr=0.0)
        return lambda: optimizer.zero_grad(set_to_none=False)

    return make


def _clip(total: int, count: int) -> Make:
    return unscale(total, count, True)


def _many(each: int, count: int) -> list[Pair]:
    kinds: dict[str, Callable[[int, int], Make]] = {
        "sgd_momentum": lambda n, k: optimizer_step("SGD", n, k, momentum=0.9),
        "adam": lambda n, k: optimizer_step("Adam", n, k),
        "adamw": lambda n, k: optimizer_step("AdamW", n, k),
        "unscale": unscale,
        "unscale_clip": _clip,
        "zero_grad": _zero_grad,
    }
    total = each * count
    return [
        Pair(f"many/{name}/{count}x{each}/{label}", make(total, 1), make(total, count), None, 1.3, threads=threads)
        for name, make in kinds.items()
        for label, threads in (("1 thread", (1, 1)), ("threads", (0, 0)))
    ]


def _odd_batches(batch: int, width: int) -> list[Pair]:
    return [
        Pair(
            f"batch/linear/{kind}/{batch + 1}:{batch}x{width}",
            linear(batch, width, width, kind),
            linear(batch + 1, width, width, kind),
            None,
            1.03,
            batch / (batch + 1),
        )
        for kind in DTYPES
    ]


def pairs(
    inner: int = 0, outer: int = 0, width: int = 2048, heads: int = 8, each: int = 1024, count: int = 1000, batch: int = 512
) -> list[Pair]:
    """All lines; sizes are for tests.

    Args:
        inner, outer: bytes of the second and the last level of cache; 0: this machine's.
        width: of large products; a quarter of it is the width of those whose doubling is timed.
        heads, each, count, batch: of attention, elements of a small tensor and their number, of the even batch.
    """
    here = cache_bytes()
    inner, outer = inner or here[0], outer or here[1]
    odd = _odd_batches(batch, width // 2)
    return [*_doublings(inner, outer, width // 4), *_threads(outer, width, heads), *_many(each, count), *odd]


# ---- table ----


def measure(pair: Pair, lib: Any, threads: int, seconds: float) -> dict[str, Any]:
    """{"base", "other" (best seconds), "value" (the ratio that is judged)} or {"error"}."""
    runs: dict[str, Run] = {}
    try:
        for name, make, count in (("base", pair.base, pair.threads[0]), ("other", pair.other, pair.threads[1])):
            runs[name] = _with_threads(lib, make(lib), count or threads)
            runs[name]()
        times = in_turns(runs, seconds)
    except (AttributeError, NotImplementedError, TypeError) as error:
        return {"error": str(error).split("\n")[0][:100]}
    finally:
        lib.set_num_threads(threads)
    base, other = min(times["base"]), min(times["other"])
    return {"base": base, "other": other, "value": base / other if pair.speedup else other / base * pair.factor}


def _with_threads(lib: Any, run: Run, count: int) -> Run:
    def counted() -> Any:
        lib.set_num_threads(count)
        return run()

    return counted


def _wanted(pair: Pair) -> str:
    if pair.low is not None and pair.high is not None:
        return f"{pair.low:g} to {pair.high:g}"
    return f">= {pair.low:g}" if pair.low is not None else f"<= {pair.high:g}" if pair.high is not None else ""


def met(pair: Pair, value: float) -> bool:
    """Whether a figure lies where it should."""
    return (pair.low is None or value >= pair.low) and (pair.high is None or value <= pair.high)


_LEGEND = """base and other: the times of two calls. ratio: other / base, per sample for batch/; base / other for threads/.
double/ twice the size in the same level of memory; threads/ one thread and all; many/ one tensor and as many numbers in a thousand;
batch/ 512 samples and 513."""


def run(chosen: list[Pair], libraries: list[Any], threads: int, seconds: float) -> list[dict[str, Any]]:
    """Prints the table, line by line; returns its rows: {"name", "low", "high", library: {"base", "other", "value"}}."""
    names = [lib.__name__ for lib in libraries]
    print(_LEGEND)
    print("".join([f"{'':46s}", *(f"{n[:20]:>20s}{'':7s}" for n in names)]).rstrip())
    print("".join([f"{'workload':46s}", *(f"{'base':>10s}{'other':>10s}{'ratio':>7s}" for _ in names), "  wanted"]))
    rows = []
    for pair in chosen:
        row: dict[str, Any] = {"name": pair.name, "low": pair.low, "high": pair.high}
        text = f"{pair.name:46s}"
        for lib, name in zip(libraries, names, strict=True):
            row[name] = figures = measure(pair, lib, threads, seconds)
            if "error" in figures:
                text += f"  not run: {figures['error']}"
            else:
                text += f"{readable(figures['base']):>10s}{readable(figures['other']):>10s}{figures['value']:7.2f}"
        if _wanted(pair) and "value" in row[names[0]]:
            text += f"  {_wanted(pair)}: {'met' if met(pair, row[names[0]]['value']) else 'not met'}"
        rows.append(row)
        print(text, flush=True)
    return rows
