"""amp.result_dtype against what runs: every op of the table, every combination of dtypes, both devices, three states."""

import importlib
import itertools
import re
from pathlib import Path

import pytest

import ampnative as torch
from ampnative import _C, amp

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
DTYPES = FLOATS + (torch.int64,)
ROWS = {r["id"]: r for r in _C.op_rows()}


def ones(dtype, *shape, device):
    return torch.ones(shape, dtype=dtype, device=device)


def index(*shape, device):
    return torch.zeros(shape, dtype=torch.int64, device=device)


def mask(*shape, device):
    return torch.ones(shape, dtype=torch.bool, device=device)


class Form:
    """How a row is called: shapes of the tensors whose dtypes vary, and the call on them."""

    def __init__(self, shapes, call=None):
        self.shapes, self.call = shapes, call


M, V, B = (3, 3), (3,), (2, 3, 3)
# Rows that take more than matrices. A call gets the function, the tensors, and a device for the masks and indices it needs, which
# stand in the question too: as ("index", position) by their dtype.
FORMS = {
    "bmm": Form([B, B]),
    "baddbmm": Form([B, B, B]),
    "mv": Form([M, V]),
    "dot": Form([V, V]),
    "addmv": Form([V, M, V]),
    "outer": Form([V, V]),
    "linear": Form([M, M, V]),
    "scaled_dot_product_attention": Form([M, M, M]),
    "clamp": Form([M], lambda f, x, device: f(x, 0, 1)),
    "clamp_tensor": Form([M, M, M]),
    "masked_fill": Form([M, ()], lambda f, x, v, device: f(x, mask(*M, device=device), v)),
    "where": Form([M, M], lambda f, x, y, device: f(mask(*M, device=device), x, y)),
    "prod_dim": Form([M], lambda f, x, device: f(x, 0)),
    "sum_dim": Form([M], lambda f, x, device: f(x, 0)),
    "mean_dim": Form([M], lambda f, x, device: f(x, 0)),
    "max_dim": Form([M], lambda f, x, device: f(x, 0)),
    "min_dim": Form([M], lambda f, x, device: f(x, 0)),
    "any_dim": Form([M], lambda f, x, device: f(x, 0)),
    "all_dim": Form([M], lambda f, x, device: f(x, 0)),
    "var_unbiased": Form([M], lambda f, x, device: f(x, False)),
    "var_dim": Form([M], lambda f, x, device: f(x, 0)),
    "std_unbiased": Form([M], lambda f, x, device: f(x, False)),
    "std_dim": Form([M], lambda f, x, device: f(x, 0)),
    "logsumexp": Form([M], lambda f, x, device: f(x, 0)),
    "cumsum": Form([M], lambda f, x, device: f(x, 0)),
    "cumprod": Form([M], lambda f, x, device: f(x, 0)),
    "softmax": Form([M], lambda f, x, device: f(x, 0)),
    "log_softmax": Form([M], lambda f, x, device: f(x, 0)),
    "div_mode": Form([M, M], lambda f, x, y, device: f(x, y, rounding_mode="floor")),
    "nll_loss": Form([M, V], lambda f, x, w, device: f(x, index(3, device=device), w)),
    "cross_entropy": Form([M, V], lambda f, x, w, device: f(x, index(3, device=device), w)),
    "bce": Form([M, M, M]),
    "bce_logits": Form([M, M, M, M]),
    "view": Form([M], lambda f, x, device: x.view(9)),
    "reshape": Form([M], lambda f, x, device: f(x, (9,))),
    "as_strided": Form([M], lambda f, x, device: f(x, (2,), (1,))),
    "transpose": Form([M], lambda f, x, device: f(x, 0, 1)),
    "permute": Form([M], lambda f, x, device: f(x, (1, 0))),
    "squeeze_dim": Form([M], lambda f, x, device: f(x, 0)),
    "unsqueeze": Form([M], lambda f, x, device: f(x, 0)),
    "expand": Form([M], lambda f, x, device: x.expand(2, 3, 3)),
    "select": Form([M], lambda f, x, device: f(x, 0, 1)),
    "slice": Form([M], lambda f, x, device: f(x, 0, 0, 2, 1)),
    "narrow": Form([M], lambda f, x, device: f(x, 0, 0, 2)),
    "cat": Form([M, M, M], lambda f, *t, device: f(t)),
    "stack": Form([M, M, M], lambda f, *t, device: f(t)),
    "gather": Form([M], lambda f, x, device: f(x, 0, index(*M, device=device))),
    "scatter_add": Form([M, M], lambda f, x, y, device: f(x, 0, index(*M, device=device), y)),
    "index_select": Form([M], lambda f, x, device: f(x, 0, index(2, device=device))),
    "index": Form([M], lambda f, x, device: x[index(2, device=device)]),
    "index_put": Form([M, M], lambda f, x, y, device: f(x, [index(3, device=device)], y, 0, 1)),
    "flip": Form([M], lambda f, x, device: f(x, (0,))),
    "full_like": Form([M], lambda f, x, device: f(x, 2)),
    "new_full": Form([M], lambda f, x, device: x.new_full((2,), 3)),
    "new_empty": Form([M], lambda f, x, device: x.new_empty((2,))),
    "new_zeros": Form([M], lambda f, x, device: x.new_zeros((2,))),
    "new_ones": Form([M], lambda f, x, device: x.new_ones((2,))),
}
# Where a mask or an index stands among the tensors of the question.
SELECTORS = {
    "masked_fill": (1, torch.bool), "where": (0, torch.bool), "nll_loss": (1, torch.int64), "cross_entropy": (1, torch.int64),
    "gather": (1, torch.int64), "scatter_add": (1, torch.int64), "index_select": (1, torch.int64), "index": (1, torch.int64),
    "index_put": (1, torch.int64),
}  # fmt: skip
# The caller names the dtype; derivatives alone call the last two, with gradients of the output's dtype.
LEFT_OUT = {"attention", "view_dtype", "to_copy", "softmax_grad", "log_softmax_grad"}
# Integers ask for another answer: an argument decides, or probabilities are meant.
FLOATS_ONLY = {"div_mode", "cross_entropy"}

# Families keep their forms in files of their own: policy_forms_<family>.py with FORMS, and SELECTORS, LEFT_OUT, FLOATS_ONLY where needed.
for _path in sorted(Path(__file__).parent.glob("policy_forms_*.py")):
    _family = importlib.import_module(_path.stem)
    FORMS |= {row: Form(*form) for row, form in _family.FORMS.items()}
    SELECTORS |= getattr(_family, "SELECTORS", {})
    LEFT_OUT |= getattr(_family, "LEFT_OUT", set())
    FLOATS_ONLY |= getattr(_family, "FLOATS_ONLY", set())


def tensors_of(row):
    return re.findall(r"(Tensor(?:\[\])?\??) (\w+)(=None)?", row["signature"].split("*, Tensor? out")[0].replace("Tensor? out=None", ""))


def called(row):
    for owner in (_C.functions, _C.nn):
        function = getattr(owner, row["name"], None)
        if function is not None and row["variants"] & (1 if owner is _C.functions else 8 | 16):
            return function
    name = row["name"]
    return lambda x, *rest: getattr(x, name)(*rest)


def askable():
    for row in ROWS.values():
        in_place_only = row["variants"] == 4
        if tensors_of(row) and not in_place_only and row["id"] not in LEFT_OUT:
            yield row["id"]


def form_of(row):
    return FORMS.get(row["id"]) or Form([M] * sum(not default for _, _, default in tensors_of(row)))


def outcome(function):
    try:
        result = function()
    except (RuntimeError, NotImplementedError, TypeError, IndexError, ValueError) as error:
        return type(error).__name__
    result = result[0] if isinstance(result, tuple) else result
    return result if isinstance(result, torch.dtype) else result.dtype


def agree(expected, actual, dtypes):
    if expected == actual:
        return True
    if isinstance(actual, str):  # refused: integers may lack a kernel, but floating dtypes refuse for what the question knows
        return isinstance(expected, str) or torch.int64 in dtypes
    return False


def combinations(op, count):
    if count <= 2:
        return list(itertools.product(FLOATS if op in FLOATS_ONLY else DTYPES, repeat=count))
    return list(itertools.product(FLOATS, repeat=count)) if count == 3 else list(itertools.product(FLOATS[:3], repeat=count))


def test_every_row_is_asked():
    assert len(list(askable())) > 150
    assert FORMS.keys() <= ROWS.keys() and SELECTORS.keys() <= ROWS.keys()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("op", list(askable()))
def test_the_answer_is_what_runs(op, device):
    row = ROWS[op]
    form, function = form_of(row), called(row)
    wrong = []
    with torch.cuda.emulate():
        for region in (None, torch.bfloat16, torch.float16):
            for dtypes in combinations(op, len(form.shapes)):
                asked = list(dtypes)
                if op in SELECTORS:
                    asked.insert(*SELECTORS[op])
                tensors = [ones(d, *s, device=device) for d, s in zip(dtypes, form.shapes)]
                with torch.autocast(device, dtype=region, enabled=region is not None):
                    expected = outcome(lambda a=asked: amp.result_dtype(row["name"], *a, device_type=device))
                    if form.call:
                        actual = outcome(lambda t=tensors: form.call(function, *t, device=device))
                    else:
                        actual = outcome(lambda t=tensors: function(*t))
                if not agree(expected, actual, dtypes):
                    wrong.append((region, dtypes, expected, actual))
    assert not wrong, f"{len(wrong)} of the answers are wrong: {wrong[:6]}"
