"""Times of functions that take turns, and how a time is written."""

from __future__ import annotations

import gc
import time
from typing import Any

__all__ = ["in_turns", "readable"]

_ROUND = 2e-3  # seconds that one round of a small workload takes at least
_REST = 1e-2  # seconds after which the threads of the library whose turn it was sleep: OpenMP's spin for some 6 ms after a region
_WARM = 5e-2  # seconds of a run from which on caches that cooled meanwhile do not show


def _round(run: Any, count: int) -> float:
    begin = time.perf_counter()
    for _ in range(count):
        run()
    return (time.perf_counter() - begin) / count


def in_turns(runs: dict[Any, Any], seconds: float) -> dict[Any, list[float]]:
    """Seconds of one call of each function, many times over, the functions taking turns for `seconds` each in all.

    Before each turn the others' threads get the time to fall asleep, which else would hold a core; a short function then runs once
    untimed, to be as warm as in the middle of its turn.
    """
    counts = {}
    for name, run in runs.items():
        once = _round(run, 1)
        counts[name] = max(1, int(_ROUND / max(once, 1e-8)))
        if counts[name] > 1:
            counts[name] = max(1, int(_ROUND / max(_round(run, counts[name]), 1e-8)))
    times: dict[Any, list[float]] = {name: [] for name in runs}
    gc.collect()
    gc.disable()
    try:
        until = time.perf_counter() + seconds * len(runs)
        while len(times[next(iter(runs))]) < 3 or time.perf_counter() < until:
            for name, run in runs.items():
                if len(runs) > 1:
                    time.sleep(_REST)
                    if counts[name] > 1 or min(times[name], default=0.0) < _WARM:
                        run()
                times[name].append(_round(run, counts[name]))
    finally:
        gc.enable()
    return times


def readable(seconds: float) -> str:
    """Three digits and a unit."""
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * factor >= 1.0:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"
