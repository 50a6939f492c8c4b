"""A report of the ops that a thread ran: names, dtypes, shapes, casts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import _C

__all__ = ["OpReport", "OpRow", "op_report"]

_SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}
# The ops that form a product themselves; matmul, addmv and the convolutions that users call reach one of these.
_PRODUCTS = {"mm", "bmm", "mv", "dot", "addmm", "addmm_", "baddbmm", "baddbmm_", "linear", "convolution", "_conv_input", "_conv_weight"}
_CAST = "_to_copy"


def _name(dtype: Any) -> str:
    return str(dtype).rpartition(".")[2]


@dataclass(frozen=True)
class OpRow:
    """One op that ran. Python numbers among its arguments are left out."""

    name: str
    """The op's name, in-place forms with "_"; "_to_copy" is a cast or a copy to another device."""
    given: tuple[_C.dtype, ...]
    """Dtypes of the tensor arguments, as the caller gave them."""
    dtypes: tuple[_C.dtype, ...]
    """The same as the op ran on them: after autocast."""
    shapes: tuple[_C.Size, ...]
    """Shapes of the tensor arguments."""
    results: tuple[_C.dtype, ...]
    """Dtypes of the tensor results; empty if it raised."""
    result_shapes: tuple[_C.Size, ...]
    device: str
    """Device type: "cpu", "cuda", "meta"."""
    backward: bool
    """Whether it ran inside a backward pass."""
    depth: int
    """0 for an op that the program called, 1 for an op or a cast inside that one, and so on."""
    error: str | None
    """Type name of the exception that it raised."""

    @property
    def is_cast(self) -> bool:
        """Whether it changed a tensor's dtype and nothing else."""
        return self.name == _CAST and self.error is None and self.dtypes != self.results

    @property
    def is_product(self) -> bool:
        """Whether it formed a matrix product or a convolution."""
        return self.name in _PRODUCTS and self.error is None

    def __str__(self) -> str:
        def one(dtype: Any, shape: Any) -> str:
            return f"{_SHORT.get(_name(dtype), _name(dtype))}{list(shape)}"

        ran = ", ".join(map(one, self.dtypes, self.shapes))
        to = f"raised {self.error}" if self.error else ", ".join(map(one, self.results, self.result_shapes)) or "no tensor"
        end = "  (backward)" if self.backward else ""
        if self.given != self.dtypes:
            end += "  given " + ", ".join(_SHORT.get(_name(d), _name(d)) for d in self.given)
        device = "" if self.device == "cpu" else f" {self.device}"
        return f"{'  ' * self.depth}{self.name}{device}: {ran} -> {to}{end}"


class OpReport:
    """``with debug.op_report() as r:`` notes every op of this thread, in the order in which they begin.

    Iteration gives an :class:`OpRow` per op, ``str(r)`` a line per op. Ops inside others (a product inside ``matmul``, the
    casts that autocast puts before an op) are rows of their own, with a greater ``depth``. Other threads are not watched.
    Reports nest: each sees everything that runs while it is open. One that is entered again goes on where it ended;
    entering it while it is open raises RuntimeError. While none is open, ops cost nothing more.
    """

    def __init__(self) -> None:
        self._sink: list[Any] = [False]

    def __enter__(self) -> OpReport:
        if self._sink[0]:
            raise RuntimeError("this report is open already: make another with debug.op_report()")
        self._sink[0] = True
        _C._observe_start(self._sink)
        return self

    def __exit__(self, *exc_info: object) -> None:
        _C._observe_stop(self._sink)

    def _rows(self) -> list[list[Any]]:
        return [row for row in self._sink[1:] if row[0] is not None]

    def __iter__(self) -> Iterator[OpRow]:
        for name, given, ran, results, device, backward, depth, error in self._rows():
            yield OpRow(
                name=name,
                given=tuple(d for d, _ in given),
                dtypes=tuple(d for d, _ in ran),
                shapes=tuple(s for _, s in ran),
                results=tuple(d for d, _ in results),
                result_shapes=tuple(s for _, s in results),
                device=device,
                backward=backward,
                depth=depth,
                error=error,
            )

    def __len__(self) -> int:
        return len(self._rows())

    @property
    def casts(self) -> dict[str, int]:
        """How often tensors changed their dtype: "float32>bfloat16 [3, 3]" -> count."""
        return dict(Counter(f"{_name(r.dtypes[0])}>{_name(r.results[0])} {list(r.shapes[0])}" for r in self if r.is_cast))

    @property
    def cast_count(self) -> int:
        """Number of casts; a kept cast that is used again counts once."""
        return sum(r.is_cast for r in self)

    @property
    def cache_hits(self) -> int:
        """How often autocast used a weight's kept cast again."""
        return sum(row[0] is None for row in self._sink[1:])

    @property
    def products(self) -> list[_C.dtype]:
        """Dtypes of the matrix products and convolutions, in order, those of backward passes included."""
        return [r.results[0] for r in self if r.is_product]

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no op ran"

    def __repr__(self) -> str:
        return f"<op report: {len(self)} ops, {self.cast_count} casts, {self.cache_hits} cache hits>"


def op_report() -> OpReport:
    """A report of the ops that run inside ``with``, see :class:`OpReport`."""
    return OpReport()
