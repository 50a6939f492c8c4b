"""Why a step was skipped: which gradients were not finite, and where. Runs only after an overflow."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._C import Tensor

__all__ = ["Culprit", "Explanation", "SkippedStep", "find_culprits", "parameter_name"]

_CHUNK = 1 << 20  # elements looked at together: bounds the memory that an explanation takes
_FP16_SMALLEST = 2.0**-24


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

    def __str__(self) -> str:
        counts = ", ".join(
            f"{n} {what}" for n, what in ((self.nan, "nan"), (self.posinf, "+inf"), (self.neginf, "-inf")) if n
        )
        where = ", ".join(map(str, self.first_index))
        return (
            f"{self.name} {self.dtype} {self.shape}: {counts}, first at [{where}]; largest finite "
            f"{self.largest_finite:.4g}, "
            f"{self.underflow_share:.1%} zero or below fp16's smallest"
        )


@dataclass
class SkippedStep:
    """One skipped step. `update` is the number of the ``update()`` that followed, as in the history, and `new_scale`
    the scale after it; both None until then. `culprits` may be empty, then `note` says why the step was skipped."""

    old_scale: float
    culprits: tuple[Culprit, ...]
    note: str = ""
    update: int | None = None
    new_scale: float | None = None

    def __str__(self) -> str:
        where = "the current step" if self.update is None else f"step {self.update}"
        change = f"{self.old_scale:g}"
        change += "; update() has not run yet" if self.new_scale is None else f" -> {self.new_scale:g}"
        lines = [f"{where} skipped, scale {change}"]
        lines += [f"    {culprit}" for culprit in self.culprits]
        if self.note:
            lines.append(f"    {self.note}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """The last skipped steps, oldest first, out of `total` skipped so far. ``str()`` gives text."""

    steps: tuple[SkippedStep, ...]
    total: int

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[SkippedStep]:
        return iter(self.steps)

    def __getitem__(self, index: int) -> SkippedStep:
        return self.steps[index]

    def __str__(self) -> str:
        if not self.total:
            return "no step was skipped"
        head = f"{self.total} skipped" + ("" if self.total == len(self.steps) else f", the last {len(self.steps)}:")
        return "\n".join([head, *map(str, self.steps)])


def parameter_name(group: Any, group_index: int, index: int) -> str:
    """Name of parameter `index` of a parameter group."""
    names = group.get("param_names") if isinstance(group, dict) else None
    if names is not None and index < len(names):
        return str(names[index])
    return f"group {group_index}, parameter {index}"


def find_culprits(optimizer: Any, scale: float, scaled: bool) -> tuple[Culprit, ...]:
    """Gradients of `optimizer` that hold inf or NaN.

    Args:
        scale: the loss scale they were made with.
        scaled: True while the gradients still carry that scale.
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
                found.append(_measure(name, group_index, index, gradient, values, narrow, scale, scaled))
    return tuple(found)


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


def _measure(
    name: str, group: int, index: int, gradient: Any, values: np.ndarray, narrow: bool, scale: float, scaled: bool
) -> Culprit:
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
