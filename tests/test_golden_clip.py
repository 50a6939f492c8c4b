"""clip.json: gradient clipping: gradients, returned norms, errors.

Our rule where PyTorch's norm overflows though the true norm fits: norms are formed in fp32 (fp64 for fp64 gradients)
without overflow; the coefficient and the finiteness check use that norm; the returned tensor keeps the dtype PyTorch
gives it.
"""

import math

import numpy as np
from golden_tools import (
    IS_PYTORCH,
    array_from_bits,
    assert_bits,
    assert_close,
    bits,
    build,
    outcome,
    outcome_difference,
    records,
    shown,
    tensor_from_bits,
    torch,
)
from oracle import clip_coefficient, narrow, vector_norm

RANK = ["float16", "bfloat16", "float32", "float64"]


def promoted(names: list[str]) -> str:
    """The dtype in which norms of these dtypes meet."""
    return (
        "float32"
        if {"float16", "bfloat16"} <= set(names) and "float64" not in names
        else max(names, key=RANK.index, default="float32")
    )


def arguments(record) -> dict:
    """Keyword arguments, hexadecimal floats read."""
    return {key: float.fromhex(value) if isinstance(value, str) else value for key, value in record["kwargs"].items()}


def call(record, params, kwargs):
    given = [p.grad for p in params if p.grad is not None]
    utils = torch.nn.utils
    return {
        "clip_grad_norm_": lambda: utils.clip_grad_norm_(params, **kwargs),
        "clip_grad_norm_ per tensor": lambda: utils.clip_grad_norm_(params, **dict(kwargs, foreach=False)),
        "get_total_norm": lambda: utils.get_total_norm(given, **kwargs),
        "clip_grad_value_": lambda: utils.clip_grad_value_(params, **kwargs),
        "clip_grads_with_norm_": lambda: utils.clip_grads_with_norm_(
            params, kwargs["max_norm"], torch.tensor(kwargs["total_norm"])
        ),
    }[record["fn"]]()


def fitting_norm(record, kwargs) -> float | None:
    """The true total norm if the gradients are finite and PyTorch's overflowed though the true one fits; else None."""
    specs = [g for g in record["grads"] if g is not None]
    arrays = [array_from_bits(g["bits"], g["tensor"]) for g in specs]
    overflowed = "error" in record or (record.get("value") and not math.isfinite(_number(record["value"])))
    if (
        record["fn"] in ("clip_grad_value_", "clip_grads_with_norm_")
        or not overflowed
        or not all(np.isfinite(a.astype(np.float64)).all() for a in arrays)
    ):
        return None
    p = float(kwargs.get("norm_type", 2.0))
    total = vector_norm(np.array([vector_norm(a, p) for a in arrays]), p)
    formed_in = np.float64 if any(g["tensor"] == "float64" for g in specs) else np.float32
    return total if abs(total) <= float(np.finfo(formed_in).max) else None


def _number(spec) -> float:
    return float(array_from_bits(spec["bits"], spec["tensor"])[0])


@records("clip")
def test_clip(record):
    kwargs = arguments(record)
    params = []
    for g in record["grads"]:
        params.append(
            torch.nn.Parameter(torch.zeros(2) if g is None else torch.zeros(g["shape"], dtype=getattr(torch, g["tensor"])))
        )
        params[-1].grad = None if g is None else build(g)
    total = fitting_norm(record, kwargs)
    if total is not None:
        record.ours.append("a norm that fits does not overflow")
    got = outcome(lambda: call(record, params, kwargs), shown)
    out = [None if p.grad is None else bits(p.grad) for p in params]
    if total is not None and not IS_PYTORCH:
        check_fitting(record, kwargs, total, got, out)
    else:
        check_recorded(record, got, out)


def check_recorded(record, got, out):
    if "error" in record or record["value"] is None or record["exact"]:
        assert outcome_difference(got, record) is None, outcome_difference(got, record)
    else:
        assert "error" not in got, got
        value, want = got["value"], record["value"]
        assert (value["tensor"], value["shape"]) == (want["tensor"], want["shape"])
        assert_close(value["bits"], want["bits"], want["tensor"], record["rtol"], what="norm")
        assert outcome_difference(dict(got, value=0), dict(record, value=0)) is None
    for index, (g, mine, want) in enumerate(zip(record["grads"], out, record["out"], strict=True)):
        if g is None:
            assert mine is None and want is None
        elif record["exact"]:
            assert_bits(mine, want, g["tensor"], f"gradient {index}")
        else:
            assert_close(mine, want, g["tensor"], record["rtol"], what=f"gradient {index}")


def check_fitting(record, kwargs, total, got, out):
    assert "error" not in got and not got["warnings"], got
    dtype = promoted([g["tensor"] for g in record["grads"] if g is not None])
    assert (got["value"]["tensor"], got["value"]["shape"]) == (dtype, [])
    want = tensor_from_bits([0], dtype, [])
    with np.errstate(over="ignore"):
        returned = narrow(np.array([total]), dtype)
    assert_close(got["value"]["bits"], returned.view(f"u{want.element_size()}").tolist(), dtype, record["rtol"], what="norm")
    coefficient = 1.0 if record["fn"] == "get_total_norm" else clip_coefficient(kwargs["max_norm"], total)
    for index, (g, mine) in enumerate(zip(record["grads"], out, strict=True)):
        if g is not None:
            clipped = narrow(array_from_bits(g["bits"], g["tensor"]).astype(np.float64) * coefficient, g["tensor"])
            assert_close(
                mine,
                clipped.view(f"u{clipped.itemsize}").tolist(),
                g["tensor"],
                record["rtol"],
                what=f"gradient {index}",
            )
