"""Memory growth of a process over many small AMP steps: python tests/bench/leak_check.py [--steps 10000]

Prints the growth of the resident set after a warm-up and exits with 1 if it is more than the limit.
"""

import argparse
import contextlib
import gc
import importlib
import os
import sys

LIMIT_BYTES = 2 * 1024 * 1024


def resident_bytes() -> int:
    """The resident set of this process (Linux)."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class AmpLoop:
    """A small model trained by the AMP recipe; every tenth step overflows and is skipped."""

    def __init__(self, lib):
        self.lib, nn = lib, lib.nn
        lib.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        self.optimizer = lib.optim.Adam(self.model.parameters(), lr=1e-3)
        self.scaler = lib.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=7)
        self.x, self.y, self.count = lib.randn(8, 8), lib.randn(8, 4), 0

    def step(self) -> None:
        lib = self.lib
        self.count += 1
        self.optimizer.zero_grad()
        with lib.autocast("cpu", dtype=lib.float16):
            loss = lib.nn.functional.mse_loss(self.model(self.x), self.y)
        self.scaler.scale(loss).backward()
        self.scaler.unscale_(self.optimizer)
        lib.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(self.optimizer)
        self.scaler.update(float("inf") if self.count % 10 == 9 else 1024.0 if self.count % 10 == 0 else None)
        with contextlib.suppress(RuntimeError):
            lib.mm(self.x, self.x[:3])  # a refused call must not leak either


def growth(lib, steps: int, warm_up: int) -> tuple[int, int]:
    """(resident bytes, Python blocks) that `steps` steps after `warm_up` steps added."""
    loop = AmpLoop(lib)
    for _ in range(warm_up):
        loop.step()
    gc.collect()
    resident, blocks = resident_bytes(), sys.getallocatedblocks()
    for _ in range(steps):
        loop.step()
    gc.collect()
    return resident_bytes() - resident, sys.getallocatedblocks() - blocks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--library", default="ampnative")
    args = parser.parse_args()
    resident, blocks = growth(importlib.import_module(args.library), args.steps, args.steps // 5)
    print(f"{args.steps} steps: resident set {resident / 1024:+.0f} KiB, Python blocks {blocks:+d}")
    return int(resident > LIMIT_BYTES)


if __name__ == "__main__":
    sys.exit(main())
