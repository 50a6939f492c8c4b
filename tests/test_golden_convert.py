"""convert.json: Tensor.to between floating dtypes, bit by bit; vector and scalar paths, contiguous and strided."""

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, array_from_bits, assert_bits, bits, differences, records, tensor_from_bits, torch
from oracle import round_once

WIDTH = {"float64": np.uint64, "float32": np.uint32, "float16": np.uint16, "bfloat16": np.uint16}


def exact(record) -> list[int]:
    """What one rounding in exact arithmetic gives, as patterns of the target."""
    values = array_from_bits(record["in"], record["from"]).astype(np.float64)
    rounded = np.array([round_once(float(v), record["to"]) for v in values])
    target = array_from_bits([], record["to"]).dtype
    narrow = rounded if record["to"] == "float64" else rounded.astype(np.float32).astype(target)  # exact: the value fits
    return narrow.view(WIDTH[record["to"]]).tolist()


def rounded_once(record) -> tuple[list[int], bool]:
    """The recorded patterns with one rounding where PyTorch's two give another value; whether there are such."""
    want = list(record["out"])
    for index, pattern in [*record["out_single_where_different"], *record.get("rounded_once_where_different", [])]:
        want[index] = pattern
    return want, bool(differences(want, record["out"], record["to"]))


def expected(record) -> list[int]:
    want, ours = rounded_once(record)
    if ours:
        record.ours.append("fp64 to 16 bits rounds once")
    return record["out"] if IS_PYTORCH else want


def test_expectation_is_one_rounding_everywhere():
    """Kept beside the replay: the exact twin itself rounds ties to even and overflows at the midpoint."""
    assert round_once(65519.99, "float16") == 65504.0 and round_once(65520.0, "float16") == np.inf
    assert round_once(1 + 2.0**-11, "float16") == 1.0 and round_once(1 + 2.0**-11 + 2.0**-40, "float16") == 1 + 2.0**-10
    assert round_once(2.0**-25, "float16") == 0.0 and round_once(2.0**-25 * 1.0001, "float16") == 2.0**-24


@records("convert")
def test_whole(record):
    with np.errstate(all="ignore"):
        once = exact(record)
    assert not differences(once, rounded_once(record)[0], record["to"]), "record and exact arithmetic disagree"
    want = expected(record)
    source = tensor_from_bits(record["in"], record["from"])
    got = source.to(getattr(torch, record["to"]))
    assert_bits(bits(got), want, record["to"], "whole")
    # the same values through every other second element of a wider tensor
    doubled = tensor_from_bits([v for v in record["in"] for _ in (0, 1)], record["from"])[::2]
    assert_bits(bits(doubled.to(getattr(torch, record["to"]))), want, record["to"], "strided")


@records("convert")
@pytest.mark.parametrize("length", [1, 7, 17])
def test_pieces(record, length):
    """Short tensors take the scalar tail of a vector kernel: same bits."""
    want = expected(record)
    for start in range(0, len(record["in"]), length):
        piece = slice(start, start + length)
        source = tensor_from_bits(record["in"][piece], record["from"])
        assert_bits(bits(source.to(getattr(torch, record["to"]))), want[piece], record["to"], f"from {start}")
