"""Why a step was skipped: which gradients were not finite, and where. Runs only after an overflow."""

from __future__ import annotations

import html
import itertools
import math
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .. import _C
from .._C import Tensor

__all__ = ["Culprit", "Explanation", "ScaledLosses", "SkipLog", "SkippedStep", "find_culprits", "parameter_name", "scale_text"]

_CHUNK = 1 << 20  # elements looked at together: bounds the memory that an explanation takes
_FP16_SMALLEST, _FP16_LARGEST, _FP32_LARGEST = 2.0**-24, 65504.0, 3.4028234663852886e38
_FAR = 2.0**8  # a scale this many times fp16's largest number is taken for the fault itself
_SMALL = 2.0**6  # no scale and no finite gradient up to here brings gradients near fp16's largest
_LONG_RUN, _LONG_FALL, _MARGIN = 8, 2.0**8, 16  # skips in a row, their fall of the scale, distance to fp16's largest
_SHOWN_CULPRITS = 6  # per step
_SHOWN_ENDS = 2  # steps at either end that the text shows in full


def scale_text(scale: float) -> str:
    """A scale in few characters: powers of two from 2^5 on (and below 2^-4) as such, others with six digits."""
    if math.isfinite(scale) and scale > 0:
        mantissa, exponent = math.frexp(scale)
        if mantissa == 0.5 and not -5 < exponent - 1 < 5:
            return f"2^{exponent - 1}"
    return f"{scale:g}"


@dataclass(frozen=True)
class Culprit:
    """One gradient with inf or NaN in it. Values are those of the unscaled gradient.

    Attributes:
        name: the parameter's name if the optimizer was made with ``named_parameters()``, else "group 0, parameter 3".
        group, index: position in ``optimizer.param_groups``.
        shape, dtype: of the gradient.
        nan, posinf, neginf: numbers of elements.
        first_index: index of the first element that is not finite.
        largest_finite: largest finite magnitude, 0.0 if there is none.
        underflow_share: share of the elements that are zero, or whose scaled value lies below 2^-24, fp16's smallest.
        kept_since: update of an earlier skipped step, if the very same tensor was not finite then either, first at the same place.
    """

    name: str
    group: int
    index: int
    shape: tuple[int, ...]
    dtype: str
    nan: int
    posinf: int
    neginf: int
    first_index: tuple[int, ...]
    largest_finite: float
    underflow_share: float
    kept_since: int | None = None

    def __str__(self) -> str:
        counts = ", ".join(f"{n} {what}" for n, what in ((self.nan, "nan"), (self.posinf, "+inf"), (self.neginf, "-inf")) if n)
        where = ", ".join(map(str, self.first_index))
        text = f"{self.name} {self.dtype} {self.shape}: {counts}, first at [{where}]; "
        if not self.some_finite:
            return text + "no value is finite"
        text += f"after unscaling, the largest finite is {self.largest_finite:.4g}"
        return text + (f"; {self.underflow_share:.1%} zero or below fp16's smallest" if self.underflow_share else "")

    @property
    def some_finite(self) -> bool:
        """Whether any element is finite."""
        return self.nan + self.posinf + self.neginf < math.prod(self.shape)

    @property
    def has_name(self) -> bool:
        """Whether `name` is more than a position."""
        return self.name != _position(self.group, self.index)


@dataclass
class SkippedStep:
    """One skipped step. `update` is the number of the ``update()`` that followed, as in the history, and `new_scale`
    the scale after it; both None until then; `held` says what kept the scale, if something did. `culprits` may be empty,
    then `note` says why the step was skipped. `loss_finite`: whether the scaled losses that these gradients came from were finite;
    None if there were none, or nothing else than those and outputs of more than 4096 elements, which are not looked at.
    `loss_mixed`: some losses were finite and some not, and which of them these gradients came from is not known.
    `loss_overflowed`: a finite one was no longer finite when it was scaled. `float16`: whether a float16 gradient was on the way;
    None: not known. `optimizer` names it among those of the same update, "optimizer 0 (SGD)". `in_a_row` counts its skips without
    a good step between them, from the one at `first_scale` to this one; `good_update` and `good_scale`: its first step after this
    one whose gradients were finite, which ended a run of `run` skips; None and 1 until then."""

    old_scale: float
    culprits: tuple[Culprit, ...]
    note: str = ""
    update: int | None = None
    new_scale: float | None = None
    held: str = ""
    loss_finite: bool | None = None
    optimizer: str = ""
    loss_overflowed: bool = False
    in_a_row: int = 1
    first_scale: float | None = None
    good_update: int | None = None
    good_scale: float | None = None
    loss_mixed: bool = False
    run: int = 1
    float16: bool | None = None

    @property
    def cause(self) -> str:
        """What made the gradients overflow: where nothing proves it, what else it may have been. Empty without culprits."""
        if not self.culprits:
            return ""
        kept = [culprit.kept_since for culprit in self.culprits if culprit.kept_since is not None]
        if len(kept) < len(self.culprits):
            return self._own_cause()
        return (
            f"the same tensors were not finite at step {max(kept)} either: if nothing cleared them since (optimizer.zero_grad()), they "
            f"stay so whatever is added; else {self._own_cause()}"
        )

    def _own_cause(self) -> str:
        """For gradients that this step made."""
        if self.loss_finite is False and self.loss_mixed:
            return (
                "one of the losses was inf or NaN before it was scaled: if these gradients are its, no scale helps, look at the "
                "forward pass and the data; if not, the scale was too large or a derivative is not finite"
            )
        if self.loss_finite is False:
            return "the loss itself was inf or NaN before it was scaled: no scale helps, look at the forward pass and the data"
        if not any(culprit.posinf or culprit.neginf for culprit in self.culprits):
            what = "nan but no inf in the gradients" + (", and the loss was finite" if self.loss_finite else "")
            bits = "" if self.float16 is False else "16-bit "
            too_large = f"the scale was too large (a {bits}gradient overflowed on the way, and inf times 0 is NaN)"
            return f"{what}: {self._why(too_large, 'a derivative made NaN (autograd.detect_anomaly names it)', only_nan=True)}"
        some = any(culprit.some_finite for culprit in self.culprits)
        what = "inf in the scaled gradients" if some else "nothing but inf or NaN in the gradients below"
        if self.loss_finite and not some:
            what += ", though the loss was finite"
        return f"{what}: {self._why('the scale was too large', 'a derivative is inf by itself (sqrt or log at 0, say)')}"

    def _why(self, too_large: str, derivative: str, only_nan: bool = False) -> str:
        """Which of both it was, by what is known of the scale, of the gradients and of the steps before and after."""
        loss = "" if self.loss_finite else ", or the loss, a layer or the input held inf or NaN"
        if self.loss_finite and only_nan:
            loss = ", or the input held inf or NaN that the loss does not show"
        if self.loss_overflowed:
            return "the scale was far too large: the loss times it overflowed"
        if not abs(self.old_scale) > 1:
            return f"the scale does not enlarge them, so {derivative}{loss or ', or a gradient outgrew its 16 bits'}"
        largest = max(culprit.largest_finite for culprit in self.culprits) * abs(self.old_scale)
        if self.float16 is False and max(abs(self.old_scale), largest) * _FAR <= _FP32_LARGEST:
            return f"likely {derivative}{loss}, as no float16 gradient was on the way, and others hold far more than this scale"
        if max(abs(self.old_scale), largest) <= _SMALL:
            return f"likely {derivative}{loss}, as the scale and the finite gradients are far below float16's largest number"
        lower = self.good_scale is not None and self.good_scale < self.old_scale
        good = f"step {self.good_update} at {scale_text(self.good_scale or 0.0)} was good"
        # A few steps may have failed by their data alone: NaN without inf, or far from float16's largest number, is as likely to be that.
        near = max(abs(self.old_scale), largest) * _MARGIN > _FP16_LARGEST
        if lower and near and (self.run > 1 or not only_nan):
            return f"it seems that {too_large}, as {good}"
        fallen = self.first_scale is not None and self.old_scale * _LONG_FALL <= self.first_scale
        if self.in_a_row >= _LONG_RUN and fallen and max(self.old_scale, largest) * _MARGIN <= _FP16_LARGEST:
            return f"likely {derivative}{loss}, as the skips went on while the scale fell from {scale_text(self.first_scale or 0.0)}"
        if self.float16 is not False and self.old_scale >= _FAR * _FP16_LARGEST:
            return f"most likely {too_large}, as it is far above float16's largest number; else {derivative}{loss}"
        if lower:
            return f"{too_large}, or {derivative}{loss}, as {good}, but with other data"
        told = "min_scale keeps it from falling, which would tell" if self.held == "min_scale" else "then a lower one won't end the skips"
        return f"{too_large}, or {derivative}{loss}: {told}"

    def __str__(self) -> str:
        return self.text()

    def text(self, of: str = "") -> str:
        """Several lines; ``of`` stands behind the number of the step."""
        where = ("the current step" if self.update is None else f"step {self.update}") + of
        change = scale_text(self.old_scale)
        if self.new_scale is None:
            change += "; update() has not run yet"
        elif self.new_scale == self.old_scale:
            change += ", held" + (f" ({self.held})" if self.held else "")
        else:
            change += f" -> {scale_text(self.new_scale)}"
        lines = [f"{where} skipped, scale {change}" + (f" ({self.cause})" if self.cause else "")]
        lines += [f"    {culprit}" for culprit in self.culprits[:_SHOWN_CULPRITS]]
        if len(self.culprits) > _SHOWN_CULPRITS:
            lines.append(f"    and {len(self.culprits) - _SHOWN_CULPRITS} more")
        if self.note:
            lines.append(f"    {self.note}")
        return "\n".join(lines)


@dataclass(frozen=True, repr=False)
class Explanation:
    """The last skipped steps, oldest first, out of `total` skipped so far among `of` steps. ``str()`` gives text: the
    first and the last steps in full, those between in one line."""

    steps: tuple[SkippedStep, ...]
    total: int
    of: int | None = None

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[SkippedStep]:
        return iter(self.steps)

    def __getitem__(self, index: int) -> SkippedStep:
        return self.steps[index]

    def __str__(self) -> str:
        if not self.total:
            return "no step was skipped"
        steps, ends = self.steps, _SHOWN_ENDS
        lines = [self._head() + ("" if self.total == len(steps) else f", the last {len(steps)}:")]
        full = [step.text(f" of {step.optimizer}" if self.several and step.optimizer else "") for step in steps]
        if len(steps) <= 2 * ends + 1:
            lines += full
        else:
            lines += [*full[:ends], _summary(steps[ends:-ends]), *full[-ends:]]
        if not all(culprit.has_name for step in steps for culprit in step.culprits):
            lines.append("An optimizer made with model.named_parameters() gives names instead of positions.")
        return "\n".join(lines)

    __repr__ = __str__

    @property
    def several(self) -> bool:
        """Whether several optimizers skipped in the same update."""
        return len({step.update for step in self.steps}) < len(self.steps)

    def _head(self) -> str:
        what = "optimizer step" if self.several else "step"
        return f"{self.total} skipped" + ("" if self.of is None else f" of {self.of} {what}{'s' * (self.of != 1)}")

    def short(self) -> str:
        """One line: how many steps, which, how the scale moved, why."""
        return f"{self._head()}; {_summary(self.steps)}" if self.steps else str(self)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def _summary(steps: tuple[SkippedStep, ...]) -> str:
    """Several skipped steps in one line."""
    first, last = steps[0], steps[-1]
    numbers = list(dict.fromkeys(step.update for step in steps if step.update is not None))
    where = "the current step" if not numbers else f"step {numbers[0]}"
    if len(numbers) > 1:
        gaps = numbers[-1] - numbers[0] + 1 != len(numbers)
        where = f"steps {numbers[0]} to {numbers[-1]}" + (f" ({len(numbers)} of them)" if gaps else "")
    end = last.old_scale if last.new_scale is None else last.new_scale
    parts = [f"scale {scale_text(first.old_scale)} -> {scale_text(end)}", _names(steps), *_reasons(steps)]
    return f"{where}: " + "; ".join(filter(None, parts))


def _names(steps: tuple[SkippedStep, ...]) -> str:
    """The first parameters whose gradients were not finite."""
    found = list({culprit.name: culprit for step in steps for culprit in step.culprits}.values())
    shown, numbers = [], dict[int, list[str]]()
    for culprit in found[:3]:
        if culprit.has_name:
            shown.append(culprit.name)
        else:
            numbers.setdefault(culprit.group, []).append(str(culprit.index))
    for group, indices in numbers.items():
        shown.append(f"parameter{'s' * (len(indices) > 1)} {', '.join(indices)} of group {group}")
    return ", ".join(shown) + (f" and {len(found) - 3} more" if len(found) > 3 else "")


def _reasons(steps: tuple[SkippedStep, ...]) -> list[str]:
    """Why, and how often if for several reasons; which good step proved it is told once."""
    reasons = [step.cause or step.note for step in steps]
    last = {reason.partition(", as step ")[0]: reason for reason in reasons}
    counts = Counter(reason.partition(", as step ")[0] for reason in reasons)
    often = {kind: f" ({n} of {len(steps)})" if len(counts) > 1 and kind else "" for kind, n in counts.items()}
    return [reason + often[kind] for kind, reason in last.items()][:3]


class _Run:
    """The skips of one optimizer since its last good step. It is known by a weak reference; one that is gone, or takes none, and
    those of a copy, by their kind and the shapes of their parameters."""

    def __init__(self, optimizer: Any, maxlen: int | None) -> None:
        self.steps: deque[SkippedStep] = deque(maxlen=maxlen)
        self.skipped = 0  # in a row, by step()
        self.kind = _kind(optimizer)
        self.owner = _weak(optimizer)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "owner": None}

    @property
    def alive(self) -> Any:
        """The optimizer, or None."""
        return None if self.owner is None else self.owner()


def _kind(optimizer: Any) -> Any:
    shapes = [tuple(getattr(param, "shape", ())) for group in optimizer.param_groups for param in group["params"]]
    return type(optimizer).__qualname__, shapes


def _weak(optimizer: Any) -> Any:
    try:
        return weakref.ref(optimizer)
    except TypeError:
        return None


class SkipLog(deque[SkippedStep]):
    """The last skipped steps, oldest first. `runs` are those that no good step has ended, one per optimizer."""

    _MOST_GONE = 32  # runs of optimizers that are gone

    def __init__(self, steps: Iterable[SkippedStep] = (), maxlen: int | None = None) -> None:
        super().__init__(steps, maxlen)
        self._dropped = 0
        self.runs: list[_Run] = []
        self._latest: _Run | None = None

    def append(self, step: SkippedStep) -> None:
        self._dropped += len(self) == self.maxlen
        super().append(step)

    @property
    def total(self) -> int:
        """Of all skipped steps, also those that are no longer kept."""
        return self._dropped + len(self)

    def _run_of(self, optimizer: Any) -> _Run | None:
        for run in self.runs:
            if run.alive is optimizer:
                return run
        for run in self.runs:
            if run.alive is None and run.kind == _kind(optimizer):
                run.owner = _weak(optimizer)
                return run
        return None

    def _begun(self, optimizer: Any) -> _Run:
        run = self._run_of(optimizer)
        if run is None:
            run = _Run(optimizer, self.maxlen)
            gone = [old for old in self.runs if old.alive is None]
            self.runs = [old for old in self.runs if old not in gone[: -self._MOST_GONE]] + [run]
        return run

    def following(self, step: SkippedStep, optimizer: Any) -> SkippedStep:
        """`step` of `optimizer`, which was just skipped, with its place in the run."""
        run = self._begun(optimizer)
        before = run.steps[-1] if run.steps else None
        step.first_scale = step.old_scale
        if before is not None:
            step.in_a_row, step.first_scale = before.in_a_row + 1, before.first_scale
        run.steps.append(step)
        return step

    def stepped(self, optimizer: Any, skipped: bool) -> None:
        """What ``step()`` did: the number of skips in a row."""
        run = self._begun(optimizer) if skipped else self._run_of(optimizer)
        if run is not None:
            run.skipped = run.skipped + 1 if skipped else 0
        self._latest = run

    @property
    def in_a_row(self) -> int:
        """Skips in a row, of the optimizer that has most."""
        return max((run.skipped for run in self.runs if run is self._latest or run.alive is not None), default=0)

    def end_run(self, optimizer: Any, update: int, scale: float) -> None:
        """The gradients of `optimizer` in this update, made at this scale, were finite."""
        run = self._run_of(optimizer)
        if run is None:
            return
        for step in run.steps:
            step.good_update, step.good_scale, step.run = update, scale, run.steps[-1].in_a_row
        run.steps.clear()
        if not run.skipped:
            self.runs = [other for other in self.runs if other is not run]


@dataclass
class _Judged:
    """What is known of the scaled losses with the numbers first to last."""

    first: int
    last: int
    bad: bool = False
    good: bool = False
    unknown: bool = False
    share: float = 0.0  # largest finite magnitude over the largest number of the dtype that the scaled one has

    def __add__(self, other: _Judged) -> _Judged:
        either = (self.bad or other.bad, self.good or other.good, self.unknown or other.unknown)
        return _Judged(min(self.first, other.first), max(self.last, other.last), *either, max(self.share, other.share))


_numbers = itertools.count(1)  # one for all scalers, whose losses may meet in a gradient


class ScaledLosses:
    """What was scaled since the last update. Values are kept, not graphs, and looked at when a step is skipped. Each has a number,
    which gradients made of it carry: a loss whose gradients were dropped is not taken for the cause."""

    _MOST = 64  # tensors; then they are looked at, to let go of them
    _MOST_JUDGED = 1024  # then those of the older half count as one
    _LARGEST = 4096  # elements of one that is kept

    def __init__(self) -> None:
        self._values: list[tuple[int, Tensor]] = []
        self._judged: list[_Judged] = []
        self._since: int | None = None  # the number of the first

    def clear(self) -> None:
        """An update has begun a new iteration."""
        self._values.clear()
        self._judged.clear()
        self._since = None

    def note(self, loss: Tensor) -> int:
        """The number of one that is scaled, of any shape."""
        number = next(_numbers) & 0xFFFFFFFF
        if self._since is None:
            self._since = number
        if loss.numel() > self._LARGEST:
            self._judged.append(_Judged(number, number, unknown=True))
        else:
            self._values.append((number, loss.detach().clone()))  # a view would hold what it is one of, and show what is written later
        if len(self._values) > self._MOST or len(self._judged) > self._MOST_JUDGED:
            self._look()
        return number

    def _look(self) -> None:
        for number, value in self._values:
            judged = _Judged(number, number, unknown=value.device.type == "meta")
            self._judged.append(judged)
            if judged.unknown:
                continue
            size = (value.abs() if value.dtype.is_complex else value).double().abs()
            judged.good = bool(_C.functions.isfinite(size).all())
            judged.bad = not judged.good
            if judged.good and size.numel():
                keeps = value.dtype.is_floating_point and (value.dim() or value.dtype is _C.float64)
                wide = value.dtype if keeps else _C.float32
                judged.share = size.max().item() / float(_C.finfo(wide).max)
        self._values.clear()
        if len(self._judged) > self._MOST_JUDGED:
            older = self._MOST_JUDGED // 2
            self._judged[:older] = [sum(self._judged[1:older], self._judged[0])]

    def judge(self, step: SkippedStep, gradients: Iterable[Any]) -> SkippedStep:
        """`step`, with what is known of the losses that its `gradients`, those that are not finite, came from."""
        self._look()
        marks = [_C._loss_marks(gradient) for gradient in gradients]
        verdicts = [self._judge_one(mark, abs(step.old_scale)) for mark in marks or [None]]
        finite = [verdict[0] for verdict in verdicts]
        step.loss_finite = False if False in finite else None if None in finite else True
        step.loss_mixed = step.loss_finite is False and any(mixed or one is not False for one, mixed, _ in verdicts)
        step.loss_overflowed = any(overflowed for _, _, overflowed in verdicts)
        half = [mark[4] if mark is not None else None for mark in marks]
        step.float16 = True if True in half else None if None in half or not half else False
        return step

    def _judge_one(self, mark: Any, scale: float) -> tuple[bool | None, bool, bool]:
        """Whether the losses of a gradient were finite, whether some were and others not and it is not known which it came from,
        and whether one that it came from overflowed when it was scaled."""
        first, last, sure, every, _ = mark or (0, 0xFFFFFFFF, False, False, False)
        known = [one for one in self._judged if not sure or (one.last >= first and one.first <= last)]
        if not known:
            return None, False, False
        # Certainly in it: the first and the last, and all if every number between them was counted.
        certain = [one for one in known if sure and one.first == one.last and (every or one.first in (first, last))]
        together = sum(known[1:], known[0])
        if mark is not None and self._since is not None and first < self._since:
            together.unknown = True  # one before the last update, which is forgotten
        bad = together.bad
        mixed = bad and (together.good or together.unknown) and not any(one.bad for one in certain)
        finite = False if bad else None if together.unknown else True
        shares = [one.share for one in certain]
        return finite, mixed, max(shares or [min(one.share for one in known)]) * scale > 1


def parameter_name(group: Any, group_index: int, index: int) -> str:
    """Name of parameter `index` of a parameter group."""
    names = group.get("param_names") if isinstance(group, dict) else None
    if names is not None and index < len(names):
        return str(names[index])
    return _position(group_index, index)


def _position(group: int, index: int) -> str:
    return f"group {group}, parameter {index}"


def find_culprits(optimizer: Any, scale: float, scaled: bool, update: int) -> tuple[Culprit, ...]:
    """Gradients of `optimizer` that hold inf or NaN.

    Args:
        scale: the loss scale they were made with.
        scaled: True while the gradients still carry that scale.
        update: number of the update that follows. It is left in the gradients, which knows them when they come again.
    """
    found = []
    for group_index, group in enumerate(optimizer.param_groups):
        for index, param in enumerate(group["params"]):
            gradient = param.grad
            if gradient is None:
                continue
            values, narrow = _flat(gradient)
            if not all(np.isfinite(part).all() for part in _parts(values, narrow)):
                name = parameter_name(group, group_index, index)
                culprit = _measure(name, group_index, index, gradient, values, narrow, scale, scaled)
                found.append(_compared(culprit, gradient, update))
    return tuple(found)


def _compared(culprit: Culprit, gradient: Any, update: int) -> Culprit:
    """With what the tensor says of itself from an earlier step."""
    if not isinstance(gradient, Tensor):
        return culprit
    since, where = getattr(gradient, "_not_finite", (None, None))
    gradient._not_finite = (update, culprit.first_index)  # type: ignore[attr-defined]
    return replace(culprit, kept_since=since) if where == culprit.first_index and since != update else culprit


def _flat(gradient: Any) -> tuple[np.ndarray, bool]:
    """All elements in order, and whether CUDA's rule (fp64 is tested as fp32) applies."""
    if isinstance(gradient, Tensor):
        narrow = gradient.device.type == "cuda"
        return gradient.detach().cpu().contiguous().numpy().reshape(-1), narrow
    return np.asarray(gradient).reshape(-1), False


def _parts(values: np.ndarray, narrow: bool) -> Iterator[np.ndarray]:
    wide = np.float64 if values.dtype == np.float64 and not narrow else np.float32
    for start in range(0, values.size, _CHUNK):
        with np.errstate(over="ignore", invalid="ignore"):
            yield values[start : start + _CHUNK].astype(wide)


def _measure(name: str, group: int, index: int, gradient: Any, values: np.ndarray, narrow: bool, scale: float, scaled: bool) -> Culprit:
    nan = posinf = neginf = small = seen = 0
    first = None
    largest = 0.0
    to_scaled, to_true = (1.0, 1.0 / scale if scale else 1.0) if scaled else (scale, 1.0)
    for part in _parts(values, narrow):
        finite = np.isfinite(part)
        nan += int(np.isnan(part).sum())
        posinf += int(np.isposinf(part).sum())
        neginf += int(np.isneginf(part).sum())
        if first is None and not finite.all():
            first = seen + int(np.argmin(finite))
        size = np.abs(part[finite]).astype(np.float64)
        if size.size:
            largest = max(largest, float(size.max()))
            small += int((size * abs(to_scaled) < _FP16_SMALLEST).sum())
        seen += part.size
    shape = tuple(gradient.shape)
    first_index = tuple(int(i) for i in np.unravel_index(first or 0, shape)) if shape else ()
    dtype = str(gradient.dtype).rpartition(".")[2]
    share = small / seen if seen else 0.0
    return Culprit(name, group, index, shape, dtype, nan, posinf, neginf, first_index, largest * abs(to_true), share)
