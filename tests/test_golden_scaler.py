"""scaler.json: loss-scaler sessions, call by call.

Every session is also played on a model (oracle.ScalerModel). The model follows our rules, so it says what must happen
from the point on where they part from PyTorch's; up to that point it must agree with the record, which keeps the model
honest.
"""

import copy
import itertools
import pickle
from functools import partial

import numpy as np
from golden_tools import (
    IS_PYTORCH,
    array_from_bits,
    build,
    normal,
    outcome,
    outcome_difference,
    promised_phrase,
    records,
    shown,
    torch,
)
from oracle import ScalerModel, inverse_scale

NOT_MODELLED = object()


class CountingOptimizer:
    """The least a scaler needs: param_groups and step(). Counts its steps and returns their number."""

    def __init__(self, params):
        self.param_groups = [{"params": params}]
        self.steps = 0

    def step(self, *args, **kwargs):
        self.steps += 1
        return self.steps


class Session:
    """A scaler and its optimizers, driven by recorded calls."""

    def __init__(self, record):
        self.scaler = torch.amp.GradScaler(**record["init"])
        self.optimizers = [
            CountingOptimizer([torch.nn.Parameter(torch.zeros(shape, dtype=getattr(torch, dtype))) for dtype, shape in params])
            for params in record["optimizers"]
        ]

    def call(self, op, *args):
        own = getattr(self, "do_" + op, None)
        return own(*args) if own else getattr(self.scaler, op)(*args)

    def do_scale(self, spec):
        result = self.scaler.scale(build(spec))
        return list(result) if type(result).__name__ == "map" else result

    def do_grad(self, index, value):
        for p in self.optimizers[index].param_groups[0]["params"]:
            p.grad = None if value == "none" else torch.full_like(p, float(value))

    def do_read_grad(self, index):
        return [p.grad for p in self.optimizers[index].param_groups[0]["params"]]

    def do_unscale_(self, index):
        return self.scaler.unscale_(self.optimizers[index])

    def do_step(self, index):
        return self.scaler.step(self.optimizers[index])

    def do_step_closure(self, index):
        return self.scaler.step(self.optimizers[index], closure=lambda: None)

    def do_update(self, spec=None):
        return self.scaler.update(*([] if spec is None else [build(spec)]))

    def do_pickle(self):
        self.scaler = pickle.loads(pickle.dumps(self.scaler))

    def do_deepcopy(self):
        self.scaler = copy.deepcopy(self.scaler)

    def do_fresh(self, init):
        state = self.scaler.state_dict()
        self.scaler = torch.amp.GradScaler(**init)
        self.scaler.load_state_dict(state)

    def do_run(self, pattern):
        rows = []
        for mark in pattern:
            self.scaler.scale(torch.ones(()))
            self.do_grad(0, {"i": "inf", "m": "-inf", "n": "nan"}.get(mark, 1.0))
            before = self.optimizers[0].steps
            if mark == "u":
                self.do_unscale_(0)
            self.do_step(0)
            self.scaler.update()
            rows.append(
                [
                    float(self.scaler.get_scale()).hex(),
                    self.scaler._get_growth_tracker(),
                    self.optimizers[0].steps - before,
                ]
            )
        return {"rows": rows}


def show(value):
    return value if isinstance(value, dict) and "rows" in value else shown(value)


def model_call(model, op, args, recorded):
    """The model's outcome; calls whose values it does not know or that only check arguments take the recorded one."""
    unknown = {"error": recorded["error"]} if "error" in recorded else {"value": NOT_MODELLED}
    if op in ("run", "unscale_", "step"):
        return getattr(model, op)(*args)
    if op == "grad":
        model.grad(*args)
        return {"value": None}
    if op == "scale":
        if "error" not in recorded and "[" in str(recorded["value"]) and "tensor" in str(recorded["value"]):
            model.create()
        return unknown
    if op == "update" and args:
        if _one_element(args[0]) and not args[0].get("requires_grad"):
            return model.update(float(array_from_bits(args[0]["bits"], args[0]["tensor"])[0]))
        return unknown if "error" in recorded else model.update(float.fromhex(next(iter(args[0].values()))))
    if op == "update":
        return model.update()
    if op == "state_dict":
        return {"value": shown(model.state_dict())}
    if op == "load_state_dict":
        return model.load_state_dict(*args)
    if op == "fresh":
        return model.fresh(*args)
    if op in ("pickle", "deepcopy"):
        return model.copy() if op == "pickle" or model.stages == {} else {"error": "AssertionError"}
    if op.startswith("set_"):
        model.factors[op.removeprefix("set_")] = args[0]
        return {"value": None}
    if op.startswith("get_") and op.removeprefix("get_") in model.factors:
        return {"value": shown(model.factors[op.removeprefix("get_")])}
    if op == "get_scale":
        return {"value": shown(model.get_scale())}
    return unknown


def _one_element(spec):
    return "tensor" in spec and len(spec["bits"]) == 1


def reason_for_ours(op, args, recorded, scale_before):
    """Why our rule, not the record, holds for this call; None if the record does."""
    if op == "update" and args and _one_element(args[0]) and args[0]["shape"] and not args[0].get("requires_grad"):
        return (
            "update() takes a one-element tensor of any number of dimensions" if recorded.get("error") == "RuntimeError" else None
        )
    rows = [[float(scale_before).hex(), None, None], *recorded["value"]["rows"]] if op == "run" and "value" in recorded else []
    stepped = [float.fromhex(before[0]) for before, row in itertools.pairwise(rows) if row[2]]
    if op in ("step", "unscale_") and "error" not in recorded:
        stepped = [scale_before]
    with np.errstate(over="ignore"):
        bad = any(not np.isfinite(inverse_scale(s)) for s in stepped)
    return "a step at a scale without a finite reciprocal is skipped" if bad else None


@records("scaler")
def test_session(record):
    made = outcome(lambda: Session(record))
    session = made.pop("value", None)
    if "error" in record["made"]:
        assert outcome_difference(made, record["made"]) is None, outcome_difference(made, record["made"])
        return
    assert "error" not in made, made
    assert outcome_difference(dict(made, value=0), dict(record["made"], value=0)) is None, (made, record["made"])
    assert session.scaler.is_enabled() is record["made"]["enabled"]
    modelled = session.scaler.is_enabled() and record["init"]["device"] == "cpu"
    model = ScalerModel(record["init"], record["optimizers"]) if modelled else None
    for number, (op, want) in enumerate(zip(record["ops"], record["results"], strict=True)):
        where = f"call {number} {str(op)[:200]}"
        if model:
            reason = reason_for_ours(op[0], op[1:], want, model.get_scale())
            if reason:
                record.ours.append(reason)
            predicted = model_call(model, op[0], op[1:], want)
        got = outcome(partial(session.call, *op), show)
        scale, tracker = session.scaler.get_scale(), session.scaler._get_growth_tracker()
        if not record.ours or IS_PYTORCH:
            wrong = outcome_difference(got, want)
            assert wrong is None, f"{where}: {wrong}"
            assert (normal(shown(scale)), tracker) == (want["scale"], want["tracker"]), where
        if model and not (record.ours and IS_PYTORCH):
            check_model(model, predicted, got, scale, tracker, where)


def check_model(model, predicted, got, scale, tracker, where):
    """The library did what the model says."""
    assert got.get("error") == predicted.get("error"), f"{where}: got {got}, the rule says {predicted}"
    if "error" not in predicted and predicted["value"] is not NOT_MODELLED:
        assert got["value"] == predicted["value"], f"{where}: got {got['value']}, the rule says {predicted['value']}"
    # repr: NaN is equal to itself, 0.0 is not -0.0
    assert (repr(float(scale)), tracker) == (repr(float(model.get_scale())), model.get_tracker()), where


def test_promised_phrases_are_recognised():
    """The comparison of phrases cannot turn vacuous: the scaler's phrases count, PyTorch's own words do not."""
    assert promised_phrase("No inf checks were recorded prior to update")
    assert promised_phrase("value cannot be converted to type") == "value cannot be converted"
    assert promised_phrase("'str' object has no attribute 'type'") is None
