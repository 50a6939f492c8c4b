"""The record of what ``update()`` did to the loss scale: a ring buffer of packed rows."""

from __future__ import annotations

import operator
import os
import struct
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, overload

if TYPE_CHECKING:
    import numpy as np

__all__ = ["HistoryRow", "ScaleHistory"]

# One row as it lies in the buffer, without padding:  | step i64 | scale f32 | found_inf f32 | tracker i32 | action u8 |
_ROW = struct.Struct("=qffiB")
_ROW_SIZE, _pack_into = _ROW.size, _ROW.pack_into
_PACKED: Any = {"names": ["step", "scale", "found_inf", "tracker", "action"], "formats": ["=i8", "=f4", "=f4", "=i4", "u1"]}
_SHOWN: Any = {"names": _PACKED["names"], "formats": ["i8", "f4", "f4", "i4", "U8"]}

ACTIONS = ("keep", "grow", "backoff", "hold", "set")
KEEP, GROW, BACKOFF, HOLD, SET = range(len(ACTIONS))


class HistoryRow(NamedTuple):
    """One ``update()``: its number from 0, the scale and tracker after it, the sum of the inf flags it consumed, and
    what it did: "keep", "grow", "backoff", "hold" (a growth or backoff that fp32's range, a limit or
    hysteresis stopped), "set" (``update(new_scale)``)."""

    step: int
    scale: float
    found_inf: float
    tracker: int
    action: str


class ScaleHistory:
    """The last `capacity` updates of a scaler, oldest first. Iterates over :class:`HistoryRow`; ``np.asarray(history)``
    is a structured array with fields step (int64), scale (float32), found_inf (float32), tracker (int32), action (str:
    "keep", "grow", "backoff", "hold" or "set"). scale and tracker are those after the update: row 0 has not the initial
    scale, but what the first update made of it.

    Args:
        capacity: rows kept; 21 bytes each, taken up in blocks as they are needed.

    Raises:
        ValueError: capacity below 1.
    """

    def __init__(self, capacity: int = 4096) -> None:
        if capacity < 1:
            raise ValueError(f"capacity must be at least 1 row, got {capacity}")
        self._capacity = int(capacity)
        self._rows = bytearray()
        self._count = 0

    @property
    def capacity(self) -> int:
        """Rows kept before the oldest is overwritten."""
        return self._capacity

    @property
    def total(self) -> int:
        """Updates recorded so far, those that the buffer has forgotten included."""
        return self._count

    def append(self, scale: float, found_inf: float, tracker: int, action: int) -> None:
        """Record one update. `action` is an index into ACTIONS: keep, grow, backoff, hold, set (see :class:`HistoryRow`)."""
        count = self._count
        offset = count % self._capacity * _ROW_SIZE
        rows = self._rows
        if offset == len(rows):
            rows.extend(bytes(min(256, self._capacity - count) * _ROW.size))
        _pack_into(rows, offset, count, scale, found_inf, tracker, action)
        self._count = count + 1

    def append_row(self, row: HistoryRow) -> None:
        """Record what another history recorded, under the next number of this one."""
        self.append(row.scale, row.found_inf, row.tracker, ACTIONS.index(row.action))

    def clear(self) -> None:
        """Forget all rows; numbering starts at 0 again."""
        self._rows = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return min(self._count, self._capacity)

    def __iter__(self) -> Iterator[HistoryRow]:
        for number in range(self._count - len(self), self._count):
            yield self._row(number)

    @overload
    def __getitem__(self, index: SupportsIndex) -> HistoryRow: ...
    @overload
    def __getitem__(self, index: slice) -> list[HistoryRow]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> HistoryRow | list[HistoryRow]:
        """Row by position, 0 = the oldest kept, -1 = the newest; a list of rows for a slice."""
        size = len(self)
        if isinstance(index, slice):
            return [self._row(self._count - size + position) for position in range(*index.indices(size))]
        try:
            index = operator.index(index)
        except TypeError:
            raise TypeError(
                f"a history takes the position of a row or a slice of them, not {index!r} ({type(index).__name__}): columns are in "
                "numpy.asarray(history)"
            ) from None
        position = index + size if index < 0 else index
        if not 0 <= position < size:
            raise IndexError(f"row {index} of a history with {size} rows")
        return self._row(self._count - size + position)

    def _row(self, number: int) -> HistoryRow:
        step, scale, found_inf, tracker, action = _ROW.unpack_from(self._rows, number % self._capacity * _ROW.size)
        return HistoryRow(step, scale, found_inf, tracker, ACTIONS[action])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        import numpy as np

        if copy is False:
            raise ValueError("the history is a ring buffer: an array of it is always a copy")
        size = len(self)
        packed = np.frombuffer(bytes(self._rows[: size * _ROW.size]), dtype=np.dtype(_PACKED))
        packed = np.roll(packed, -(self._count % self._capacity) if self._count > self._capacity else 0)
        out = np.empty(size, dtype=np.dtype(_SHOWN))
        for name in ("step", "scale", "found_inf", "tracker"):
            out[name] = packed[name]
        out["action"] = np.array(ACTIONS)[packed["action"]]
        return out if dtype is None else out.astype(dtype)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write a header line and one line per row, its scale the one after the update; scale and found_inf with as many
        digits as fp32 needs."""
        import csv

        with open(path, "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(HistoryRow._fields)
            writer.writerows((r.step, repr(r.scale), repr(r.found_inf), r.tracker, r.action) for r in self)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write a list of objects, one per row, its scale the one after the update, as strict JSON: inf and NaN become
        the strings "inf", "-inf", "nan"."""
        import json

        rows = [{**r._asdict(), "scale": _strict(r.scale), "found_inf": _strict(r.found_inf)} for r in self]
        with open(path, "w", encoding="utf-8") as file:
            json.dump(rows, file, allow_nan=False, indent=0)
            file.write("\n")

    def plot(self, ax: Any = None) -> Any:
        """Draw scale over step on a logarithmic axis, skipped steps marked; returns the matplotlib Axes.

        Raises:
            ImportError: matplotlib is missing (``pip install matplotlib``).
        """
        if ax is None:
            try:
                import matplotlib.pyplot as plt
            except ImportError as error:
                raise ImportError("plot() needs matplotlib: pip install matplotlib") from error
            ax = plt.subplots()[1]
        rows = self.__array__()
        skipped = rows["found_inf"] != 0
        ax.step(rows["step"], rows["scale"], where="post", label="loss scale")
        ax.plot(rows["step"][skipped], rows["scale"][skipped], "x", label="skipped")
        if len(rows) and (rows["scale"] > 0).all():
            ax.set_yscale("log", base=2)
        ax.set_xlabel("update")
        ax.set_ylabel("loss scale")
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        shown = list(self)[-20:]
        head = "".join(f"<th>{name}</th>" for name in HistoryRow._fields)
        body = "".join(
            f"<tr><td>{r.step}</td><td>{r.scale:g}</td><td>{r.found_inf:g}</td><td>{r.tracker}</td>"
            f"<td>{r.action}</td></tr>"
            for r in shown
        )
        hidden = self._count - len(shown)
        caption = f"<caption>{hidden} earlier updates not shown</caption>" if hidden else ""
        return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def __repr__(self) -> str:
        last = f", last: {self[-1]}" if len(self) else ""
        return f"ScaleHistory({len(self)} of {self._count} updates kept{last})"


def _strict(value: float) -> float | str:
    return value if value - value == 0 else repr(value)
