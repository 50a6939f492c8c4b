"""Benchmarks against PyTorch, and against float32 of the library itself: ``ampnative bench``.

Each workload is written once, for any module with PyTorch's names. Libraries and workloads take turns in one run, so that a
slow moment of the machine hits all alike; what is printed is the best and the median round and the ratio of the bests.
Results are compared before anything is timed.
"""

from .run import main, measure
from .workloads import WORKLOADS, Workload

__all__ = ["WORKLOADS", "Workload", "main", "measure"]
