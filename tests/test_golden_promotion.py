"""promotion.json: result dtypes of binary operators among tensors, 0-dim tensors and Python numbers."""

import operator
import warnings

from golden_tools import dtype_name, not_there, records, torch

OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "pow": operator.pow,
    "lt": operator.lt,
    "eq": operator.eq,
    "matmul": operator.matmul,
    "and": operator.and_,
    "add_": lambda a, b: a.clone().add_(b),
}
NUMBERS = {"bool": True, "int": 2, "float": 2.0, "complex": 2j}


def operand(spec):
    """['t', dtype] shape (2,), ['z', dtype] 0-dim, ['p', kind] a Python number, ['d', dtype] the dtype itself."""
    kind, name = spec
    if kind == "p":
        return NUMBERS[name]
    dtype = getattr(torch, name)
    return dtype if kind == "d" else torch.ones(2 if kind == "t" else (), dtype=dtype)


def result(op, left, right):
    """The result's dtype name or {"error": type}."""
    try:
        if op in ("result_type", "promote_types"):
            return dtype_name(getattr(torch, op)(operand(left), operand(right)))
        return dtype_name(OPERATORS[op](operand(left), operand(right)).dtype)
    except Exception as exc:
        return {"error": type(exc).__name__}


def without_dtype(rows) -> tuple[set, set]:
    """Operand pairs whose result dtype the library does not have, and those dtypes."""
    (types,) = [r["rows"] for r in rows if r["op"] == "result_type"]
    absent = [(str(a), str(b), want) for a, b, want in types if isinstance(want, str) and not hasattr(torch, want)]
    return {(a, b) for a, b, _ in absent}, {want for *_, want in absent}


@records("promotion")
def test_operator(record):
    pairs, dtypes = without_dtype(record.tables["records"])
    wrong, left_out = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for left, right, want in record["rows"]:
            got = result(record["op"], left, right)
            if got != want:
                if (str(left), str(right)) in pairs:
                    left_out += 1
                else:
                    wrong.append(f"{left} {record['op']} {right}: got {got}, expected {want}")
    assert not wrong, f"{len(wrong)} of {len(record['rows'])} rows differ:\n" + "\n".join(wrong[:40])
    if left_out:
        dtypes = ", ".join(sorted(dtypes))
        not_there(f"{dtypes} ({left_out} of {len(record['rows'])} rows of {record['op']}; the others agree)")
