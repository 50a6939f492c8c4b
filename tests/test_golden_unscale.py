"""unscale.json, update_scale.json: the two kernels behind the scaler, bit by bit, and their slow twins."""

import numpy as np
from golden_tools import (
    array_from_bits,
    assert_bits,
    bits,
    outcome,
    outcome_difference,
    records,
    tensor_from_bits,
    torch,
)
from oracle import unscale, update_scale

LAYOUTS = {
    "contiguous": lambda base: base,
    "transposed": lambda base: base.T,
    "columns": lambda base: base[:, 1:3],
    "step2": lambda base: base[::2],
}


def view_of(base, layout):
    """The tensor handed to the op, as a view of the contiguous base."""
    return base.t() if layout == "transposed" else LAYOUTS[layout](base)


def fp32(pattern):
    return float(array_from_bits([pattern], "float32")[0])


@records("unscale")
def test_unscale(record):
    bases = [tensor_from_bits(g["in"], g["dtype"], g["shape"]) for g in record["grads"]]
    views = [view_of(base, g["layout"]) for base, g in zip(bases, record["grads"], strict=True)]
    found = tensor_from_bits([record["found_inf_in"]], "float32", [])
    inverse = tensor_from_bits([record["inv_scale"]], "float32", [])
    got = outcome(lambda: torch._amp_foreach_non_finite_check_and_unscale_(views, found, inverse))
    want = {key: record[key] for key in ("error", "phrase") if key in record} or {"value": None}
    assert outcome_difference(got, want) is None, outcome_difference(got, want)
    assert_bits(bits(found), [record["found_inf"]], "float32", "found_inf")
    for index, (base, g) in enumerate(zip(bases, record["grads"], strict=True)):
        assert_bits(bits(base), g["out"], g["dtype"], f"gradient {index}")
    assert bits(inverse) == [record["inv_scale"]]


@records("unscale", "row")
def test_twin_of_unscale(row):
    """The slow twin that other tests rely on agrees with the record."""
    bases = [array_from_bits(g["in"], g["dtype"]).reshape(g["shape"]).copy() for g in row["grads"]]
    views = [LAYOUTS[g["layout"]](base) for base, g in zip(bases, row["grads"], strict=True)]
    out, found = unscale(views, fp32(row["inv_scale"]), fp32(row["found_inf_in"]))
    for view, values in zip(views, out, strict=True):
        view[...] = values
    assert np.array_equal([found], [fp32(row["found_inf"])], equal_nan=True)
    for base, g in zip(bases, row["grads"], strict=True):
        patterns = base.reshape(-1).view({2: np.uint16, 4: np.uint32, 8: np.uint64}[base.itemsize]).tolist()
        assert_bits(patterns, g["out"], g["dtype"], "twin")


@records("update_scale")
def test_update_scale(record):
    scale = tensor_from_bits([record["scale"]], "float32", [])
    tracker = tensor_from_bits([record["tracker"]], "int32", [])
    found = tensor_from_bits([record["found_inf"]], "float32", [])
    factors = float.fromhex(record["growth"]), float.fromhex(record["backoff"]), record["interval"]
    got = outcome(lambda: torch._amp_update_scale_(scale, tracker, found, *factors) is scale)
    want = {key: record[key] for key in ("error", "phrase") if key in record} or {"value": True}
    assert outcome_difference(got, want) is None, outcome_difference(got, want)
    assert_bits(bits(scale), [record["new_scale"]], "float32", "scale")
    assert bits(tracker) == [record["new_tracker"]]
    assert bits(found) == [record["found_inf"]]


@records("update_scale", "row")
def test_twin_of_update_scale(row):
    """The slow twin that other tests rely on agrees with the record."""
    factors = float.fromhex(row["growth"]), float.fromhex(row["backoff"]), row["interval"]
    scale, tracker = update_scale(array_from_bits([row["scale"]], "float32")[0], row["tracker"], fp32(row["found_inf"]), *factors)
    assert_bits([int(np.array(scale).view(np.uint32))], [row["new_scale"]], "float32", "twin")
    assert tracker == row["new_tracker"]
