"""Sequences of unequal lengths: padded, packed, and back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from ... import _C
from ..._C import Tensor, autocast

__all__ = [
    "PackedSequence",
    "invert_permutation",
    "pack_padded_sequence",
    "pack_sequence",
    "pad_packed_sequence",
    "pad_sequence",
    "unpack_sequence",
    "unpad_sequence",
]

_f = _C.functions


class _Packed(NamedTuple):
    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(_Packed):
    """Sequences, longest first, step after step: ``data`` (all steps' rows, features); ``batch_sizes`` (steps,) int64 on the CPU says
    how many sequences reach each step. Made by :func:`pack_padded_sequence` and :func:`pack_sequence`.

    ``sorted_indices`` says which sequence stands where, ``unsorted_indices`` undoes it; None: the order is the given one.
    """

    __slots__ = ()

    def __new__(
        cls,
        data: Tensor,
        batch_sizes: Tensor | None = None,
        sorted_indices: Tensor | None = None,
        unsorted_indices: Tensor | None = None,
    ) -> PackedSequence:
        if batch_sizes is None:
            data, batch_sizes = data
        if batch_sizes.device.type != "cpu":
            raise ValueError(
                "batch_sizes should always be on CPU. Instances of PackedSequence should never be created manually: use "
                "pack_sequence or pack_padded_sequence"
            )
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """As :meth:`Tensor.to` on the data; the indices follow to its device."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        indices = (None if i is None else i.to(data.device) for i in (self.sorted_indices, self.unsorted_indices))
        return type(self)(data, self.batch_sizes, *indices)

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with their data on cuda."""
        return self if self.is_cuda else self.to("cuda")

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same sequences with their data on the CPU."""
        return self.to("cpu")

    def double(self) -> PackedSequence:
        """The same sequences in float64."""
        return self.to(dtype=_C.float64)

    def float(self) -> PackedSequence:
        """The same sequences in float32."""
        return self.to(dtype=_C.float32)

    def half(self) -> PackedSequence:
        """The same sequences in float16."""
        return self.to(dtype=_C.float16)

    def bfloat16(self) -> PackedSequence:
        """The same sequences in bfloat16."""
        return self.to(dtype=_C.bfloat16)

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on cuda."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Always False: there is no pinned memory."""
        return False


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes a permutation of 0 .. n-1; None for None."""
    if permutation is None:
        return None
    inverse = _f.empty_like(permutation)
    inverse[permutation] = _f.arange(len(permutation), device=permutation.device)
    return inverse


def _sorted_lengths(lengths: list[int]) -> list[int]:
    """Positions of the lengths, longest first; equal ones keep their order."""
    return sorted(range(len(lengths)), key=lambda i: -lengths[i])


def pack_padded_sequence(
    input: Tensor, lengths: Tensor | Sequence[int], batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Packs ``input`` (steps, batch, ...), or (batch, steps, ...) with ``batch_first``, of which sequence ``i`` has ``lengths[i]`` steps.

    ``enforce_sorted``: the lengths must not grow (RuntimeError); otherwise the sequences are sorted here.
    """
    if isinstance(lengths, Tensor) and lengths.is_cuda:
        raise RuntimeError("'lengths' argument should be a 1D CPU int64 tensor, but got a cuda tensor: move it with .cpu()")
    sizes = [int(n) for n in (lengths.tolist() if isinstance(lengths, Tensor) else lengths)]
    order = None
    if not enforce_sorted:
        places = _sorted_lengths(sizes)
        order = _C.tensor(places, dtype=_C.int64, device=input.device)
        sizes = [sizes[i] for i in places]
        input = input.index_select(0 if batch_first else 1, order)
    steps_first = input.transpose(0, 1) if batch_first else input
    if steps_first.numel() == 0:
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != steps_first.size(1):
        raise RuntimeError(
            f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={steps_first.size(1)})"
        )
    if sizes[-1] <= 0 or min(sizes) <= 0:
        raise RuntimeError(
            "Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0"
        )
    if any(a < b for a, b in pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. Give enforce_sorted=False to let them "
            "be sorted"
        )
    if sizes[0] > steps_first.size(0):
        raise RuntimeError(f"pack_padded_sequence: the longest sequence has {sizes[0]} steps, but the input {steps_first.size(0)}")
    batch_sizes = [sum(n > t for n in sizes) for t in range(sizes[0])]
    return PackedSequence(_rows(steps_first, batch_sizes), _C.tensor(batch_sizes, dtype=_C.int64, device="cpu"), order, None)


def _rows(steps_first: Tensor, batch_sizes: list[int]) -> Tensor:
    """The first batch_sizes[t] rows of each step t, one after the other."""
    batch = steps_first.size(1)
    if all(b == batch for b in batch_sizes):
        return steps_first[: len(batch_sizes)].reshape(-1, *steps_first.shape[2:])
    kept = [t * batch + i for t, b in enumerate(batch_sizes) for i in range(b)]
    flat = steps_first.reshape(-1, *steps_first.shape[2:])
    return flat.index_select(0, _C.tensor(kept, dtype=_C.int64, device=flat.device))


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded tensor (steps, batch, ...), or (batch, steps, ...), in the sequences' given order, and their lengths (batch,) int64.

    ``total_length``: pad to so many steps, at least those of the longest sequence (ValueError).
    """
    batch_sizes = sequence.batch_sizes.tolist()
    steps = len(batch_sizes)
    if total_length is not None:
        if total_length < steps:
            raise ValueError(
                "Expected total_length to be at least the length of the longest sequence in input, but got "
                f"total_length={total_length} and max sequence length being {steps}"
            )
        steps = total_length
    data, batch = sequence.data, batch_sizes[0]
    filler, at = data.size(0), 0  # the row of padding behind the data
    rows: list[int] = []
    for b in batch_sizes:
        rows += [*range(at, at + b), *[filler] * (batch - b)]
        at += b
    rows += [filler] * (steps * batch - len(rows))
    with autocast(data.device.type, enabled=False):  # these are copies, no cat of the user's
        filled = _f.cat([data, data.new_full((1, *data.shape[1:]), padding_value)]) if filler in rows else data
    padded = filled.index_select(0, _C.tensor(rows, dtype=_C.int64, device=data.device)).reshape(steps, batch, *data.shape[1:])
    lengths = _C.tensor([sum(b > i for b in batch_sizes) for i in range(batch)], dtype=_C.int64, device="cpu")
    padded = padded.transpose(0, 1) if batch_first else padded
    back = sequence.unsorted_indices
    if back is not None:
        return padded.index_select(0 if batch_first else 1, back), lengths[back.cpu()]
    return padded, lengths


def pad_sequence(
    sequences: Sequence[Tensor] | Tensor, batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences (length, ...) as one padded tensor (steps, batch, ...), or (batch, steps, ...), in the first one's dtype."""
    if not isinstance(sequences, (Tensor, Iterable)):
        raise RuntimeError(f"pad_sequence: Expected iterable for input sequences, but got arg of type: {type(sequences)}")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f"Expected padding_side to be one of left or right, but got {padding_side}.")
    sequences = list(sequences.unbind(0) if isinstance(sequences, Tensor) else sequences)
    if not sequences:
        raise RuntimeError("pad_sequence: received an empty list of sequences")
    for i, sequence in enumerate(sequences):
        if not isinstance(sequence, Tensor):
            raise TypeError(f"pad_sequence: expected Tensor as element {i} in argument 0, but got {type(sequence).__name__}")
    first = sequences[0]
    if first.dim() == 0:
        raise RuntimeError("pad_sequence: sequences need at least one dimension, their length")
    longest, rest = max(s.size(0) for s in sequences), first.shape[1:]
    rows = []
    with autocast(first.device.type, enabled=False):  # these are copies, no cat and stack of the user's
        for s in sequences:
            row, missing = s.to(first.dtype), longest - s.size(0)
            if missing:
                fill = first.new_full((missing, *rest), padding_value)
                row = _f.cat([row, fill] if padding_side == "right" else [fill, row])
            rows.append(row)
        return _f.stack(rows, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The sequences of a padded tensor, a list of (length, ...)."""
    by_sequence = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [s[:n] for s, n in zip(by_sequence.unbind(0), lengths.tolist(), strict=True)]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Packs a list of (length, ...) tensors, longest first unless ``enforce_sorted`` is off."""
    return pack_padded_sequence(pad_sequence(sequences), [s.size(0) for s in sequences], enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences of a packed one, in their given order."""
    return unpad_sequence(*pad_packed_sequence(packed_sequences, batch_first=True), batch_first=True)
