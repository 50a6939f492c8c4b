"""Samples joined into batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ... import _C
from ..._C import Tensor


def _refuse_dtype(array: np.ndarray) -> None:
    if array.dtype.kind in "SUO":
        raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {array.dtype}")


def default_collate(batch: Any) -> Any:
    """Joins samples: tensors, arrays and numbers are stacked in a new first dimension; dicts and sequences element by
    element.

    Python floats become float64, strings stay a list. TypeError for anything else, RuntimeError for sequences of
    unequal length.
    """
    first = batch[0]
    if isinstance(first, Tensor):
        return _C.functions.stack(list(batch), 0)
    if isinstance(first, np.ndarray):
        _refuse_dtype(first)
        return _C.tensor(np.stack(batch))
    if isinstance(first, np.generic):
        return _C.tensor(np.array(batch))
    if isinstance(first, float):
        return _C.tensor(batch, dtype=_C.float64)
    if isinstance(first, int):
        return _C.tensor(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _like(first, {key: default_collate([sample[key] for sample in batch]) for key in first})
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        return type(first)(*(default_collate(list(column)) for column in zip(*batch, strict=False)))
    if isinstance(first, (list, tuple)):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("each element in list of batch should be of equal size")
        return [default_collate(list(column)) for column in zip(*batch, strict=False)]
    raise TypeError(f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {type(first)}")


def default_convert(data: Any) -> Any:
    """What a DataLoader without batches does to a sample: arrays and NumPy numbers become tensors, inside dicts and sequences too."""
    if isinstance(data, np.ndarray):
        return data if data.dtype.kind in "SUO" else _C.as_tensor(data)
    if isinstance(data, np.generic):
        return _C.as_tensor(data)
    if isinstance(data, Mapping):
        return _like(data, {key: default_convert(value) for key, value in data.items()})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(default_convert(value) for value in data))
    if isinstance(data, (list, tuple)):
        return type(data)(default_convert(value) for value in data)
    return data


def _like(model: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """`items` as the mapping type of `model`, or as a dict if that type cannot be made of one."""
    same_type: Any = type(model)
    try:
        return items if same_type is dict else same_type(items)
    except TypeError:
        return items
