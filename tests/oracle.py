"""Slow, obvious twins of what the library computes, in NumPy float64 and exact fractions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np

F32 = np.float32
BF16 = np.dtype(ml_dtypes.bfloat16)
FORMATS = {
    "float16": (10, -14, 65504.0),
    "bfloat16": (7, -126, float(ml_dtypes.finfo(BF16).max)),
    "float32": (23, -126, float(np.finfo(F32).max)),
}
DTYPES = {"float16": np.dtype(np.float16), "bfloat16": BF16, "float32": np.dtype(F32), "float64": np.dtype(np.float64)}


def round_once(x: float, fmt: str) -> float:
    """The value of `fmt` nearest to x, ties to even, in exact arithmetic; half a step above the largest: inf."""
    if math.isnan(x) or math.isinf(x) or x == 0 or fmt == "float64":
        return x
    mantissa, smallest, largest = FORMATS[fmt]
    exponent = max(math.frexp(abs(x))[1] - 1, smallest)
    unit = Fraction(2) ** (exponent - mantissa)
    value = round(Fraction(abs(x)) / unit) * unit  # round() of a Fraction takes ties to even
    return math.copysign(math.inf if value > largest else float(value), x)


def narrow(values: np.ndarray, fmt: str) -> np.ndarray:
    """An array rounded once, element by element, to `fmt`."""
    rounded = np.array([round_once(float(v), fmt) for v in np.asarray(values, dtype=np.float64).reshape(-1)])
    return (
        rounded.astype(F32).astype(DTYPES[fmt]).reshape(np.shape(values))
        if fmt != "float64"
        else rounded.reshape(np.shape(values))
    )


def inverse_scale(scale: float) -> np.float32:
    """fp64 reciprocal, rounded once to fp32."""
    with np.errstate(all="ignore"):
        return F32(np.float64(1) / np.float64(F32(scale)))


def update_scale(
    scale: float, tracker: int, found_inf: float, growth: float, backoff: float, interval: int
) -> tuple[np.float32, int]:
    """One step of the loss-scale rule: fp64 product, one rounding to fp32, growth to inf not applied, int32 tracker."""
    with np.errstate(all="ignore"):
        if found_inf != 0:
            return F32(np.float64(scale) * backoff), 0
        successor = (tracker + 1 + 2**31) % 2**32 - 2**31
        if successor != interval:
            return F32(scale), successor
        grown = F32(np.float64(scale) * growth)
        return (grown if np.isfinite(grown) else F32(scale)), 0


def unscale(grads: list[np.ndarray], inverse: float, found_inf: float = 0.0) -> tuple[list[np.ndarray], float]:
    """Every gradient times `inverse` in its compute type (fp32 for 16 bits); flag 1 if one was not finite before."""
    out = []
    with np.errstate(all="ignore"):
        for g in grads:
            compute = np.float64 if g.dtype == np.float64 else F32
            wide = g.astype(compute)
            found_inf = 1.0 if not np.isfinite(wide).all() else found_inf
            out.append(g.copy() if inverse == 1 else (wide * compute(inverse)).astype(g.dtype))
    return out, found_inf


def vector_norm(values: np.ndarray, p: float) -> float:
    """The p-norm in float64, scaled by the largest magnitude so that no power overflows."""
    a = np.abs(np.asarray(values).astype(np.float64)).reshape(-1)
    if a.size == 0:
        return 0.0
    if p == math.inf:
        return float(a.max())
    if p == -math.inf:
        return float(a.min())
    if p == 0:
        return float(np.count_nonzero(a))
    largest = float(a.max())
    if largest == 0 or not math.isfinite(largest) or p < 0:
        with np.errstate(all="ignore"):
            return float((a**p).sum() ** (1 / p))
    return largest * float(((a / largest) ** p).sum() ** (1 / p))


def clip_coefficient(max_norm: float, total: float) -> float:
    """max_norm / (total + 1e-6), at most 1."""
    return min(1.0, max_norm / (total + 1e-6))


class ScalerModel:
    """What a GradScaler on "cpu" does, call by call, with our rules: a step at a scale without a finite reciprocal is
    skipped, and a one-element new scale may have any number of dimensions. Calls come as in the recordings and give
    {"value"} or {"error"}."""

    FACTORS = ("growth_factor", "backoff_factor", "growth_interval")

    def __init__(self, init: dict, parameters: list[list[list]]):
        self.parameters = parameters
        self.grads: list[list[np.ndarray] | None] = [None] * len(parameters)
        self.steps = [0] * len(parameters)
        self._start(init)

    def _start(self, init):
        self.factors = {"growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2000} | {
            k: v for k, v in init.items() if k in self.FACTORS
        }
        self.first_scale, self.first_tracker = init.get("init_scale", 65536.0), 0
        self.scale, self.tracker = None, None
        self.stages: dict[int, tuple[str, float | None]] = {}

    def get_scale(self) -> float:
        return self.first_scale if self.scale is None else float(self.scale)

    def get_tracker(self) -> int:
        return self.first_tracker if self.tracker is None else self.tracker

    def create(self) -> dict:
        """The first scale() that meets a tensor makes scale and tracker."""
        if self.scale is None:
            with np.errstate(over="ignore"):
                scale = F32(self.first_scale)
            if math.isfinite(self.first_scale) and not np.isfinite(scale):
                return {"error": "RuntimeError"}
            self.scale, self.tracker = scale, self.first_tracker
        return {"value": None}

    def grad(self, index: int, value) -> None:
        self.grads[index] = (
            None
            if value == "none"
            else [np.full(shape, float(value)).astype(DTYPES[dtype]) for dtype, shape in self.parameters[index]]
        )

    def unscale_(self, index: int) -> dict:
        stage, _ = self.stages.get(index, ("READY", None))
        if self.scale is None:
            return {"error": "AssertionError"}
        if stage != "READY":
            return {"error": "RuntimeError"}
        grads = self.grads[index] or []
        if any(g.dtype == np.float16 for g in grads):
            self.stages[index] = ("READY", None)
            return {"error": "ValueError"}
        inverse = inverse_scale(self.scale)
        found = None
        if grads:
            self.grads[index], found = unscale(grads, inverse, 0.0 if np.isfinite(inverse) else 1.0)
        self.stages[index] = ("UNSCALED", found)
        return {"value": None}

    def step(self, index: int) -> dict:
        if self.scale is None:
            return {"error": "AssertionError"}
        if self.stages.get(index, ("READY", None))[0] == "STEPPED":
            return {"error": "RuntimeError"}
        if self.stages.get(index, ("READY", None))[0] == "READY":
            done = self.unscale_(index)
            if "error" in done:
                return done
        found = self.stages[index][1]
        if found is None:
            return {"error": "AssertionError"}
        self.steps[index] += found == 0
        self.stages[index] = ("STEPPED", found)
        return {"value": self.steps[index] if found == 0 else None}

    def update(self, new_scale: float | None = None) -> dict:
        if self.scale is None:
            return {"error": "AssertionError"}
        if new_scale is not None:
            self.scale = F32(new_scale)
        else:
            found = [f for _, f in self.stages.values() if f is not None]
            if not found:
                return {"error": "AssertionError"}
            self.scale, self.tracker = update_scale(
                self.scale, self.tracker, sum(found), *(self.factors[k] for k in self.FACTORS)
            )
        self.stages = {}
        return {"value": None}

    def run(self, pattern: str) -> dict:
        """Rows of [scale, tracker, stepped], one for each mark of the pattern."""
        rows = []
        for mark in pattern:
            if "error" in (done := self.create()):
                return done
            self.grad(0, {"i": "inf", "m": "-inf", "n": "nan"}.get(mark, 1.0))
            before = self.steps[0]
            for call in ([self.unscale_] if mark == "u" else []) + [self.step]:
                done = call(0)
                if "error" in done:
                    return done
            self.update()
            rows.append([self.get_scale().hex(), self.get_tracker(), self.steps[0] - before])
        return {"value": {"rows": rows}}

    def state_dict(self) -> dict:
        return {"scale": self.get_scale(), **self.factors, "_growth_tracker": self.get_tracker()}

    def load_state_dict(self, state: dict) -> dict:
        if not state:
            return {"error": "RuntimeError"}
        for key in ("scale", *self.FACTORS, "_growth_tracker"):
            if key not in state:
                return {"error": "KeyError"}
            if key == "scale":
                self.first_scale, self.scale = state[key], None if self.scale is None else F32(state[key])
            elif key == "_growth_tracker":
                self.first_tracker, self.tracker = state[key], None if self.tracker is None else state[key]
            else:
                self.factors[key] = state[key]
        return {"value": None}

    def copy(self) -> dict:
        """Pickling: allowed between iterations; the copy starts from the current scale and tracker."""
        if self.stages:
            return {"error": "AssertionError"}
        self.first_scale, self.first_tracker, self.scale, self.tracker = (
            self.get_scale(),
            self.get_tracker(),
            None,
            None,
        )
        return {"value": None}

    def fresh(self, init: dict) -> dict:
        """A new scaler, loaded from the old one's state."""
        state = self.state_dict()
        self._start(init)
        return self.load_state_dict(state)
