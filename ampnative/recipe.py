"""The mixed-precision recipe: every section of it runs, checks what it claims, and is timed.

default precision -> autocast -> GradScaler -> all together -> clipping -> saving and resuming -> inference
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import ampnative as torch
from ampnative import nn, optim

from . import __config__, cpu, cuda
from .amp.explain import scale_text
from .serialization import load, save

__all__ = ["CheckFailed", "RecipeError", "end_timer_and_print", "make_model", "run", "start_timer"]

_PUBLISHED: dict[str, Any] = {"size": 4096, "batches": 50, "epochs": 3, "batch_sizes": [128, 256, 512, 513]}
_BUDGET = 35.0  # seconds that the default run may spend on timed training
_LEARNING_RATE = 0.001
_DIGITS_GOAL = 0.95
_DIGITS_EPOCHS = 30
_INIT_SCALE = 65536.0
_SHORTEST = 0.5  # seconds below which a comparison of times is noise


class RecipeError(Exception):
    """The request cannot be met; the text says why and what would help."""


class CheckFailed(Exception):
    """One of the recipe's assertions does not hold."""


def check(holds: bool, claim: str) -> None:
    """An assertion that ``python -O`` keeps."""
    if not holds:
        raise CheckFailed(claim)


# ---- the pieces of the published script ------------------------------------------------------------------------------


def make_model(in_size: int, out_size: int, num_layers: int) -> Any:
    """(num_layers - 1) times [Linear(in_size, in_size), ReLU], then Linear(in_size, out_size)."""
    layers: list[Any] = []
    for _ in range(num_layers - 1):
        layers += [nn.Linear(in_size, in_size), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(in_size, out_size))


@dataclass
class Timing:
    """Seconds, and the largest number of bytes in tensors meanwhile."""

    seconds: float
    peak_bytes: int


_started = 0.0
_device = "cpu"


def start_timer(device: str = "cpu") -> None:
    """Collect garbage, empty the allocator's cache, reset its peak, wait for the device, take the time."""
    global _started, _device
    _device = device
    memory = _memory(device)
    gc.collect()
    memory.empty_cache()
    memory.reset_peak_memory_stats()
    memory.synchronize()
    _started = time.perf_counter()


def end_timer_and_print(message: str, show: Callable[[str], Any] = print) -> Timing:
    """Wait for the device, then show the seconds since :func:`start_timer` and the peak memory of tensors."""
    memory = _memory(_device)
    memory.synchronize()
    timing = Timing(time.perf_counter() - _started, memory.max_memory_allocated())
    show(f"{message}: {_duration(timing.seconds)}{_time_note(_device)}, at most {timing.peak_bytes / 2**20:,.1f} MiB in tensors")
    return timing


def _duration(seconds: float) -> str:
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"


def _memory(device: str) -> Any:
    return cuda if device == "cuda" else cpu


def _time_note(device: str) -> str:
    return " (CPU time, CUDA emulated)" if device == "cuda" and cuda.is_emulated() else ""


# ---- plan ------------------------------------------------------------------------------------------------------------


@dataclass
class Plan:
    """What will run, after defaults were filled in."""

    device: str
    dtype: Any
    batch_sizes: list[int]
    size: int
    layers: int
    batches: int
    epochs: int
    init_scale: float
    seed: int
    left_out: list[str] = field(default_factory=list)  # by the program, not by the user
    asked_scale: float = _INIT_SCALE  # the timed runs' first scale, where `init_scale` is a working one

    @property
    def use_amp(self) -> bool:
        """Whether there is a 16-bit dtype to cast to."""
        return self.dtype is not torch.float32

    @property
    def use_scaler(self) -> bool:
        """Only float16 has so narrow a range that gradients need scaling."""
        return self.dtype is torch.float16

    @property
    def dtype_name(self) -> str:
        """"float16", "bfloat16" or "float32"."""
        return str(self.dtype).rpartition(".")[2]

    @property
    def autocast_name(self) -> str:
        """How the precision is called in what is printed."""
        return f"{self.dtype_name} autocast" if self.use_amp else "float32, which needs no autocast"


def _seconds_per_flop(plan: Plan, size: int, batch: int) -> float:
    """Measured on one small step in both precisions together."""
    total = 0.0
    for amp in (False, True):
        trainer = Trainer(plan, size, amp)
        data = trainer.random_batches(batch, 1)
        trainer.train(data, 1)
        start = time.perf_counter()
        trainer.train(data, 1)
        total += time.perf_counter() - start
    return total / _step_flops(batch, size, plan.layers)


def _step_flops(batch: int, size: int, layers: int) -> int:
    """Products of one training step: forward, weight gradients, and input gradients of all layers but the first."""
    return 2 * batch * size * size * (3 * layers - 1)


def make_plan(args: argparse.Namespace) -> Plan:
    """Fill in what the user left open so that the run takes about a minute, and note what that leaves out."""
    dtype = getattr(torch, args.dtype or ("float16" if args.device == "cuda" else "bfloat16"))
    plan = Plan(
        device=args.device,
        dtype=dtype,
        batch_sizes=args.batch_sizes or list(_PUBLISHED["batch_sizes"]),
        size=args.size or _PUBLISHED["size"],
        layers=args.layers or 3,
        batches=args.batches or _PUBLISHED["batches"],
        epochs=args.epochs or (_PUBLISHED["epochs"] if args.full else 1),
        init_scale=args.init_scale or _INIT_SCALE,
        asked_scale=args.init_scale or _INIT_SCALE,
        seed=args.seed,
    )
    if not args.full and not (args.size and args.batches):
        _fit_budget(plan, args)
    for name in ("size", "batches", "epochs", "batch_sizes"):
        value, published = getattr(plan, name), _PUBLISHED[name]
        if value != published and not getattr(args, name):
            plan.left_out.append(f"{name.replace('_', ' ')}: {_listed(value)} instead of {_listed(published)}")
    return plan


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


def _fit_budget(plan: Plan, args: argparse.Namespace) -> None:
    per_flop = _seconds_per_flop(plan, min(plan.size, 1024), min(max(plan.batch_sizes), 512))

    def seconds(size: int, batches: int) -> float:
        steps = batches * plan.epochs + 1  # one step warms up
        return per_flop * sum(_step_flops(batch, size, plan.layers) for batch in plan.batch_sizes) * steps

    wanted = args.batches or 1
    if not args.size:
        while plan.size > 128 and seconds(plan.size, wanted) > _BUDGET:
            plan.size //= 2
    if not args.batches:
        plan.batches = 1
        while plan.batches < _PUBLISHED["batches"] and seconds(plan.size, plan.batches + 1) <= _BUDGET:
            plan.batches += 1


# ---- training --------------------------------------------------------------------------------------------------------


class Trainer:
    """A model, its optimizer and scaler; always made from the same seed, so that two of them start equal."""

    def __init__(self, plan: Plan, size: int, amp: bool) -> None:
        torch.manual_seed(plan.seed)
        self.device = plan.device
        self.dtype = plan.dtype
        self.use_amp = amp and plan.use_amp
        self.size = size
        self.model = make_model(size, size, plan.layers).to(plan.device)
        self.optimizer = optim.SGD(self.model.named_parameters(), lr=_LEARNING_RATE)
        self.scaler = torch.amp.GradScaler(plan.device, init_scale=plan.init_scale, enabled=self.use_amp and plan.use_scaler)
        self.loss_fn = nn.MSELoss()

    def random_batches(self, batch: int, count: int) -> list[tuple[Any, Any]]:
        """`count` pairs of normal random input and target, the same for every trainer of this size."""
        generator = torch.Generator().manual_seed(1234)
        shape = (batch, self.size)

        def draw() -> Any:
            return torch.randn(*shape, generator=generator).to(self.device)

        return [(draw(), draw()) for _ in range(count)]

    def autocast(self, enabled: bool = True) -> Any:
        """A region of the chosen precision, or one that does nothing."""
        if not self.use_amp:
            return torch.autocast(device_type=self.device, enabled=False)
        return torch.autocast(device_type=self.device, dtype=self.dtype, enabled=enabled)

    def step(self, inputs: Any, targets: Any, max_norm: float | None = None) -> Any:
        """One step in the order that the recipe teaches; returns the loss (not scaled)."""
        with self.autocast():
            loss = self.loss_fn(self.model(inputs), targets)
        self.scaler.scale(loss).backward()
        if max_norm is not None:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        return loss

    def warm_up(self, inputs: Any, targets: Any) -> None:
        """Forward and backward without a step: memory and threads are ready, the weights are as before."""
        with self.autocast():
            loss = self.loss_fn(self.model(inputs), targets)
        loss.backward()
        self.optimizer.zero_grad()

    def train(self, data: list[tuple[Any, Any]], epochs: int, tick: Callable[[], Any] = lambda: None) -> float:
        """All batches, `epochs` times; returns the last loss."""
        loss: Any = None
        for _ in range(epochs):
            for inputs, targets in data:
                loss = self.step(inputs, targets)
                tick()
        return float(loss.item())

    def state(self) -> dict[str, Any]:
        """The checkpoint that the recipe teaches: model, optimizer and scaler."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
        }

    def weights(self) -> list[Any]:
        """The parameters, detached; they share memory with the model."""
        return [parameter.detach() for parameter in self.model.parameters()]


def _same_bits(left: Trainer, right: Trainer) -> bool:
    return all(bool((a == b).all()) for a, b in zip(left.weights(), right.weights()))


# ---- the sections ----------------------------------------------------------------------------------------------------


@dataclass
class Section:
    """One part of the recipe and what it established."""

    name: str
    findings: list[str]


def _section_autocast(plan: Plan, size: int, batch: int) -> list[str]:
    trainer = Trainer(plan, size, amp=True)
    inputs, targets = trainer.random_batches(batch, 1)[0]
    with trainer.autocast():
        output = trainer.model(inputs)
        check(output.dtype is plan.dtype, f"output of a linear layer under autocast is {plan.dtype}, found {output.dtype}")
        loss = trainer.loss_fn(output, targets)
        check(loss.dtype is torch.float32, f"mse_loss under autocast is float32, found {loss.dtype}")
    check(not torch.is_autocast_enabled(plan.device), "autocast ends with its region")
    loss.backward()  # outside the region: each op runs in the dtype that its forward had
    dtypes = {parameter.grad.dtype for parameter in trainer.model.parameters()}
    check(dtypes == {torch.float32}, f"gradients have the parameters' dtype float32, found {dtypes}")
    if not plan.use_amp:
        return ["off for float32: output, loss and gradients float32"]
    return [f"output {plan.dtype_name}, loss float32, gradients float32"]


def _section_scaler(plan: Plan, size: int, batch: int) -> list[str]:
    if not plan.use_scaler:
        tiny = torch.tensor(2.0**-30, dtype=plan.dtype)
        check(float(tiny) != 0.0, f"2^-30 survives in {plan.dtype_name}")
        if not plan.use_amp:
            return ["float32 needs no scaler: 2^-30 survives"]
        return [f"{plan.dtype_name} has float32's exponent range: 2^-30 survives, no scaler is needed"]
    check(float(torch.tensor(2.0**-30).to(torch.float16)) == 0.0, "2^-30 vanishes in float16")
    trainer = Trainer(plan, size, amp=True)
    scale = trainer.scaler.get_scale()
    inputs, targets = trainer.random_batches(batch, 1)[0]
    before = [weight.clone() for weight in trainer.weights()]
    with trainer.autocast():
        loss = trainer.loss_fn(trainer.model(inputs), targets)
    scaled = trainer.scaler.scale(loss)
    close = math.isclose(scaled.item(), loss.item() * scale, rel_tol=2.0**-23)
    check(close, "scale(loss) is the loss times the scale")
    scaled.backward()
    trainer.scaler.step(trainer.optimizer)
    trainer.scaler.update()
    check(trainer.scaler.last_step is torch.amp.StepStatus.STEPPED, "a step with finite gradients is taken")
    check(any(not bool((a == b).all()) for a, b in zip(before, trainer.weights())), "a step changes the weights")
    asked = scale_text(plan.asked_scale)
    kept = float(torch.tensor(2.0**-30 * plan.asked_scale).to(torch.float16))
    fate = "still vanishes" if kept == 0.0 else "overflows" if math.isinf(kept) else "survives"
    other = "" if scale == plan.asked_scale else f" at scale {scale_text(scale)}, not the init scale"
    return [f"2^-30 vanishes in float16 and {fate} times {asked}", f"the optimizer stepped on unscaled gradients{other}"]


def _section_clipping(plan: Plan, size: int, batch: int) -> list[str]:
    max_norm = 0.1
    mixed, plain = Trainer(plan, size, amp=True), Trainer(plan, size, amp=False)
    norms = []
    for trainer in (mixed, plain):
        inputs, targets = trainer.random_batches(batch, 1)[0]
        with trainer.autocast():
            loss = trainer.loss_fn(trainer.model(inputs), targets)
        trainer.scaler.scale(loss).backward()
        trainer.scaler.unscale_(trainer.optimizer)
        norms.append(float(nn.utils.clip_grad_norm_(trainer.model.parameters(), max_norm=max_norm)))
        after = float(nn.utils.get_total_norm([p.grad for p in trainer.model.parameters()]))
        check(after <= max_norm * (1 + 1e-5), f"the norm after clipping is at most {max_norm}, found {after}")
        trainer.scaler.step(trainer.optimizer)
        trainer.scaler.update()
    if math.isfinite(norms[0]):
        close = abs(norms[0] - norms[1]) <= 0.02 * norms[1]
        check(close, f"max_norm means the same with and without a scaler: norms {norms[0]:.6g} and {norms[1]:.6g}")
    if not plan.use_amp:
        return [f"gradient norm {norms[0]:.4g}, clipped to at most {max_norm}"]
    return [f"gradient norm {norms[0]:.4g} mixed, {norms[1]:.4g} default, both clipped to {max_norm}"]


def _section_resume(plan: Plan, size: int, batch: int) -> list[str]:
    straight = Trainer(plan, size, amp=True)
    data = straight.random_batches(batch, 2)
    straight.train(data[:1], 1)
    with tempfile.TemporaryDirectory(prefix="ampnative-") as folder:
        path = os.path.join(folder, "checkpoint.ampnative")
        save(straight.state(), path)
        nbytes = os.path.getsize(path)
        checkpoint = load(path, map_location=plan.device)
    straight.train(data[1:], 1)

    resumed = Trainer(plan, size, amp=True)
    resumed.model.load_state_dict(checkpoint["model"])
    resumed.optimizer.load_state_dict(checkpoint["optimizer"])
    if resumed.scaler.is_enabled():
        resumed.scaler.load_state_dict(checkpoint["scaler"])
    resumed.train(data[1:], 1)
    check(_same_bits(straight, resumed), "a resumed run equals the uninterrupted one bit for bit")
    check(resumed.scaler.state_dict() == straight.scaler.state_dict(), "scale and tracker are resumed")

    without = Trainer(plan, size, amp=False)  # AMP -> no AMP: the scaler's state is ignored
    without.model.load_state_dict(checkpoint["model"])
    without.scaler.load_state_dict(checkpoint["scaler"])
    check(not without.scaler.is_enabled() and without.scaler.get_scale() == 1.0, "a disabled scaler ignores a saved state")
    if plan.use_scaler:  # no AMP -> AMP: an empty state is refused, a fresh scaler is right
        try:
            Trainer(plan, size, amp=True).scaler.load_state_dict(without.scaler.state_dict())
        except RuntimeError:
            pass
        else:
            check(False, "an enabled scaler refuses the empty state of a disabled one")
    return [f"checkpoint of {nbytes:,} bytes; the resumed run is bit-identical"]


def _section_inference(plan: Plan, size: int, batch: int) -> list[str]:
    trainer = Trainer(plan, size, amp=True)
    inputs, _ = trainer.random_batches(batch, 1)[0]
    with torch.no_grad(), trainer.autocast():
        mixed = trainer.model(inputs)
    with torch.no_grad():
        plain = trainer.model(inputs)
    check(
        mixed.dtype is plan.dtype and not mixed.requires_grad,
        f"inference under autocast gives {plan.dtype}, without a graph",
    )
    error = float((mixed.float() - plain).abs().max()) / float(plain.abs().max())
    bound = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 0.0}[plan.dtype_name]
    check(error <= bound, f"outputs agree with default precision within {bound} of the largest, found {error:.2g}")
    if not plan.use_amp:
        return ["no autocast: outputs are the same"]
    return [f"autocast alone, largest difference {error:.1e} of the largest output"]


_SECTIONS: list[tuple[str, Callable[[Plan, int, int], list[str]]]] = [
    ("autocast", _section_autocast),
    ("GradScaler", _section_scaler),
    ("clipping after unscale_", _section_clipping),
    ("saving and resuming", _section_resume),
    ("inference", _section_inference),
]


# ---- timed runs ------------------------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Default and mixed precision at one batch size."""

    batch_size: int
    default: Timing
    mixed: Timing
    default_loss: float
    mixed_loss: float
    steps: int
    scaler: Any

    @property
    def speed_up(self) -> float | None:
        """None where a run was too short to time."""
        return self.default.seconds / self.mixed.seconds if self.timed else None

    @property
    def timed(self) -> bool:
        """Whether both runs were long enough to compare."""
        return min(self.default.seconds, self.mixed.seconds) >= _SHORTEST

    @property
    def skipped(self) -> int:
        """Steps that the scaler skipped."""
        return self.scaler.explain().total


def _compare(plan: Plan, batch: int, show: Callable[[str], Any], tick: Callable[[], Any]) -> Comparison:
    timings, losses = [], []
    trainer = None
    for amp in (False, True):
        trainer = None  # lets the first model go before the second is measured
        trainer = Trainer(plan, plan.size, amp)
        data = trainer.random_batches(batch, plan.batches)
        trainer.warm_up(*data[0])
        tick()
        start_timer(plan.device)
        losses.append(trainer.train(data, plan.epochs, tick))
        name = "default precision" if not amp else f"mixed ({plan.dtype_name})" if plan.use_amp else "default precision again"
        timings.append(end_timer_and_print(f"batch {batch}, {name}", show))
    if trainer is not None and not trainer.scaler.explain().total and math.isfinite(losses[0]):
        check(
            abs(losses[0] - losses[1]) <= max(0.02 * abs(losses[0]), 1e-3),  # targets have variance 1
            f"both precisions reach the same loss within 2 %: {losses[0]:.6g} and {losses[1]:.6g}",
        )
    (default, mixed), (default_loss, mixed_loss) = timings, losses
    scaler = trainer.scaler if trainer else None
    return Comparison(batch, default, mixed, default_loss, mixed_loss, plan.batches * plan.epochs, scaler)


def run(args: argparse.Namespace, console: Any) -> int:
    """Run what the parsed command line asks for; prints to `console`; returns the exit code."""

    def show(text: str) -> None:
        console.print(text, soft_wrap=True, markup=False)

    if args.json and not os.path.isdir(os.path.dirname(os.path.abspath(args.json))):
        raise RecipeError(f"cannot write {args.json}: there is no such folder")
    if args.json and os.path.isdir(args.json):
        raise RecipeError(f"cannot write {args.json}: it is a folder")
    if args.device == "cuda" and not cuda.is_available():
        cuda.emulate()
        show("No GPU: CUDA's rules are emulated on the CPU. Every time below is a CPU time.")
    for option in _without_effect(args):
        print(f"ampnative: note: {option} has no effect on this run", file=sys.stderr)
    if args.data == "digits":
        return _run_digits(args, console)
    plan = make_plan(args)
    show(
        f"Model {plan.layers} x Linear({plan.size}), device {plan.device}, {plan.autocast_name}, "
        f"{plan.epochs} x {plan.batches} batches, {__config__._threads()}"
    )
    if plan.left_out:
        why = "Less than published" if args.size and args.batches else "Chosen so that the timed runs take about a minute on this machine"
        show(f"{why}: {'; '.join(plan.left_out)}.")
    section_size, section_batch = (plan.size, plan.batch_sizes[-1]) if args.full else (min(plan.size, 1024), min(plan.batch_sizes[0], 128))
    # The sections teach a working scale; only the timed runs try one that is too large.
    works = 1024.0 <= plan.init_scale <= _INIT_SCALE
    section_plan = replace(plan, init_scale=plan.init_scale if works else _INIT_SCALE)
    sections = []
    steps = 2 * len(plan.batch_sizes) * (plan.batches * plan.epochs + 1)
    with _progress(console, len(_SECTIONS) + steps) as tick:
        for name, function in _SECTIONS:
            sections.append(Section(name, function(section_plan, section_size, section_batch)))
            show(f"ok: {name}: {'; '.join(sections[-1].findings)}")
            tick()
        comparisons = [_compare(plan, batch, show, tick) for batch in plan.batch_sizes]
    if section_size != plan.size:
        plan.left_out.append(f"the checked sections ran at size {section_size} and batch {section_batch}")
    _print_table(plan, comparisons, console, show)
    _print_scales(plan, comparisons, show)
    if plan.left_out and not args.full:
        show("Left out of the published run (--full does it all):")
        for line in plan.left_out:
            show(f"  {line}")
    if args.json:
        _write_json(args.json, _report(plan, sections, comparisons))
    return 0


def _without_effect(args: argparse.Namespace) -> list[str]:
    """Options that the user gave and the chosen run ignores."""
    ignored = ["size", "layers", "batches", "batch_sizes", "full"] if args.data == "digits" else []
    default = "float16" if args.device == "cuda" or args.data == "digits" else "bfloat16"
    if (args.dtype or default) != "float16":
        ignored.append("init_scale")
    return ["--" + name.replace("_", "-") for name in ignored if getattr(args, name)]


def _progress(console: Any, total: int) -> Any:
    """Context manager whose value advances a bar by one. The bar goes to stderr and appears on terminals only."""
    import contextlib

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    @contextlib.contextmanager
    def bar() -> Iterator[Callable[[], None]]:
        target = console if console.is_terminal else Console(stderr=True)
        if not target.is_terminal:
            yield lambda: None
            return
        columns = (TextColumn("training"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=target, transient=True) as progress:
            task = progress.add_task("training", total=total)
            yield lambda: progress.advance(task)

    return bar()


def _print_whole(table: Any, console: Any) -> None:
    """Print a table without cutting numbers off: where the terminal is too narrow, its own wrapping breaks the lines."""
    from rich.measure import Measurement

    width = console.width
    console.width = max(width, Measurement.get(console, console.options.update(width=1000), table).maximum)
    console.print(table, crop=False)
    console.width = width


def _print_table(plan: Plan, comparisons: list[Comparison], console: Any, show: Callable[[str], Any]) -> None:
    from rich import box
    from rich.table import Table

    note = _time_note(plan.device)
    title = f"{plan.dtype_name} autocast{' + GradScaler' if plan.use_scaler else ''} (amp) against float32 (fp32)"
    show("\n" + (title if plan.use_amp else "float32 twice: what differs is noise") + note)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    other = "amp" if plan.use_amp else "2nd"
    units = [f"{run} {unit}" for unit in ("s", "MiB", "loss") for run in ("fp32", other)]
    for column in ("batch", *units[:2], "speed-up", *units[2:], "skipped"):
        table.add_column(column, justify="right", no_wrap=True)
    for c in comparisons:
        table.add_row(
            str(c.batch_size),
            *(f"{run.seconds:.2f}" if run.seconds >= 0.005 else "<0.01" for run in (c.default, c.mixed)),
            "-" if c.speed_up is None else f"{c.speed_up:.2f}x",
            *(f"{run.peak_bytes / 2**20:,.1f}" if run.peak_bytes >= 1e5 else "<0.1" for run in (c.default, c.mixed)),
            *(f"{loss:.4f}" for loss in (c.default_loss, c.mixed_loss)),
            f"{c.skipped} of {c.steps}",
        )
    _print_whole(table, console)
    by_size = {c.batch_size: c for c in comparisons}
    if not all(c.timed for c in comparisons):
        show(f"speed-up -: too short to time, a run lasted less than {_SHORTEST} s.")
    for c in comparisons:
        if c.skipped == c.steps:
            show(f"Batch {c.batch_size}: every step of the mixed run was skipped, so it never changed the weights.")
    if 512 in by_size and 513 in by_size and by_size[512].timed and by_size[513].timed:
        cost = by_size[513].mixed.seconds / by_size[512].mixed.seconds
        show(f"513 rows, not a multiple of 8, take {cost:.2f} times as long as 512{' in mixed precision' * plan.use_amp}{note}.")


def _print_scales(plan: Plan, comparisons: list[Comparison], show: Callable[[str], Any]) -> None:
    if not plan.use_scaler:
        show(f"No loss scale: {plan.dtype_name} needs none.")
        return
    for c in comparisons:
        show(f"Loss scale at batch {c.batch_size}: {_scale_path(c.scaler)}")
        if c.skipped:
            show(f"  {c.scaler.explain().short()}")


def _scale_path(scaler: Any) -> str:
    """The history in words: runs of equal scale are folded."""
    parts: list[list[Any]] = []
    for row in scaler.history:
        if parts and parts[-1][0] == row.scale and row.action == "keep":
            parts[-1][2] = row.step
        else:
            parts.append([row.scale, row.step, row.step, row.action])
    texts = []
    for scale, first, last, action in parts:
        if action == "keep":
            texts.append(f"{scale_text(scale)} kept in step{f's {first} to' if last != first else ''} {last}")
        else:
            kept = f", kept to step {last}" if last != first else ""
            texts.append(f"{scale_text(scale)} after step {first} ({action}){kept}")
    return "; ".join(texts[:12]) + (f"; and {len(texts) - 12} more changes" if len(texts) > 12 else "")


# ---- digits ----------------------------------------------------------------------------------------------------------


def _load_digits() -> tuple[Any, Any]:
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise RecipeError("--data digits needs scikit-learn: from a clone of ampnative, pip install '.[data]'") from None
    data = load_digits()
    return torch.tensor(data.data / 16.0, dtype=torch.float32), torch.tensor(data.target, dtype=torch.int64)


def _train_digits(device: str, dtype: Any, epochs: int, init_scale: float, seed: int) -> dict[str, Any]:
    """A 64-128-64-10 classifier on 80 % of the data; accuracy on the rest."""
    from ampnative.utils.data import DataLoader, TensorDataset

    torch.manual_seed(seed)
    images, labels = _load_digits()
    order = torch.randperm(len(images))
    split = len(images) * 4 // 5
    train, test = order[:split], order[split:]
    use_amp = dtype is not torch.float32
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10)).to(device)
    optimizer = optim.Adam(model.named_parameters(), lr=2e-3)
    scaler = torch.amp.GradScaler(device, init_scale=init_scale, enabled=dtype is torch.float16)
    loss_fn = nn.CrossEntropyLoss()
    loader = DataLoader(TensorDataset(images[train], labels[train]), batch_size=64, shuffle=True)
    region = {"device_type": device, "enabled": use_amp, **({"dtype": dtype} if use_amp else {})}
    start_timer(device)
    loss: Any = None
    for _ in range(epochs):
        for inputs, targets in loader:
            with torch.autocast(**region):
                loss = loss_fn(model(inputs.to(device)), targets.to(device))
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
    _memory(device).synchronize()
    seconds = time.perf_counter() - _started
    with torch.no_grad(), torch.autocast(**region):
        guesses = model(images[test].to(device)).argmax(1)
    accuracy = float((guesses == labels[test].to(device)).float().mean())
    return {"seconds": seconds, "loss": loss.item(), "accuracy": accuracy, "scaler": scaler}


def _run_digits(args: argparse.Namespace, console: Any) -> int:
    from rich import box
    from rich.table import Table

    epochs = args.epochs or _DIGITS_EPOCHS
    init_scale = args.init_scale or _INIT_SCALE
    by_default = epochs == _DIGITS_EPOCHS and init_scale == _INIT_SCALE
    runs: list[tuple[str, Any]] = [
        ("float32", torch.float32),
        ("bfloat16 autocast", torch.bfloat16),
        ("float16 autocast + GradScaler", torch.float16),
    ]
    if args.dtype:
        runs = [run for run in runs if run[1] in (torch.float32, getattr(torch, args.dtype))]
    note = _time_note(args.device)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in ("precision", "test accuracy", "last loss", "seconds", "skipped"):
        table.add_column(column, justify="left" if column == "precision" else "right")
    results = []
    with _progress(console, len(runs)) as tick:
        for name, dtype in runs:
            result = _train_digits(args.device, dtype, epochs, init_scale, args.seed)
            scaler = result.pop("scaler")
            explanation = scaler.explain()
            results.append({"precision": name, **result, "skipped": explanation.total})
            table.add_row(
                name,
                f"{result['accuracy']:.2%}",
                f"{result['loss']:.5f}",
                f"{result['seconds']:.2f}",
                f"{explanation.total} of {explanation.of}" if dtype is torch.float16 else "-",
            )
            if explanation.total:
                console.print(f"{name}: {explanation.short()}", soft_wrap=True, markup=False)
            tick()
    console.print(f"Digits, {epochs} epochs on {args.device}{note}", markup=False)
    _print_whole(table, console)
    if args.json:
        _write_json(
            args.json,
            {"data": "digits", "device": args.device, "emulated": cuda.is_emulated(), "epochs": epochs, "runs": results},
        )
    if not by_default:
        show = f"not checked: that is for {_DIGITS_EPOCHS} epochs at init scale {scale_text(_INIT_SCALE)}"
        console.print(f"{_DIGITS_GOAL:.0%} accuracy {show}", soft_wrap=True, markup=False)
    for result in results if by_default else ():
        check(
            result["accuracy"] >= _DIGITS_GOAL,
            f"{result['precision']} reaches {_DIGITS_GOAL:.0%} on digits, found {result['accuracy']:.2%}",
        )
    return 0


# ---- report ----------------------------------------------------------------------------------------------------------


def _report(plan: Plan, sections: list[Section], comparisons: list[Comparison]) -> dict[str, Any]:
    from .cli import info

    return {
        "info": info(),
        "device": plan.device,
        "emulated": plan.device == "cuda" and cuda.is_emulated(),
        "dtype": plan.dtype_name,
        "size": plan.size,
        "layers": plan.layers,
        "batches": plan.batches,
        "epochs": plan.epochs,
        "seed": plan.seed,
        "left_out": plan.left_out,
        "sections": [{"name": section.name, "findings": section.findings} for section in sections],
        "runs": [_comparison_report(c) for c in comparisons],
    }


def _comparison_report(c: Comparison) -> dict[str, Any]:
    return {
        "batch_size": c.batch_size,
        "steps": c.steps,
        "default_seconds": c.default.seconds,
        "mixed_seconds": c.mixed.seconds,
        "speed_up": c.speed_up,
        "default_peak_bytes": c.default.peak_bytes,
        "mixed_peak_bytes": c.mixed.peak_bytes,
        "default_loss": c.default_loss,
        "mixed_loss": c.mixed_loss,
        "scale_history": [row._asdict() for row in c.scaler.history],
        "skipped": [
            {
                "update": step.update,
                "old_scale": step.old_scale,
                "new_scale": step.new_scale,
                "note": step.note,
                "culprits": [vars(culprit) for culprit in step.culprits],
            }
            for step in c.scaler.explain()
        ],
    }


def _strict(value: Any) -> Any:
    """`value` with inf and NaN as strings: JSON has no such numbers."""
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    return value


def _write_json(path: str, report: dict[str, Any]) -> None:
    text = json.dumps(_strict(report), allow_nan=False, indent=2)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise RecipeError(f"cannot write {path}: {error.strerror}") from None
