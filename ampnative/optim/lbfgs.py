"""L-BFGS: quasi-Newton steps from the last few gradients, for problems whose loss can be evaluated again and again."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from .. import _C
from .._C import Tensor
from ..autograd.grad_mode import enable_grad, no_grad
from .optimizer import Optimizer, check_non_negative

_Evaluate = Callable[[float], tuple[float, Tensor]]
_STATE = ("d", "t", "old_dirs", "old_stps", "ro", "H_diag", "prev_flat_grad", "prev_loss")


class LBFGS(Optimizer):
    """One ``step(closure)`` makes up to ``max_iter`` iterations; the closure clears the gradients, computes the loss, calls
    backward and returns the loss. One parameter group only. The direction comes from the last ``history_size`` steps.

    ``line_search_fn="strong_wolfe"``: the length of a step satisfies the strong Wolfe conditions, else it is ``lr``. ``max_eval``:
    limit on evaluations per step (1.25 * max_iter). It ends early when no gradient is above ``tolerance_grad`` or the change is
    below ``tolerance_change``. Computed in the parameters' dtype, in fp32 for 16-bit parameters.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 1,
        max_iter: int = 20,
        max_eval: int | None = None,
        tolerance_grad: float = 1e-7,
        tolerance_change: float = 1e-9,
        history_size: int = 100,
        line_search_fn: str | None = None,
        *,
        maximize: bool = False,
    ) -> None:
        check_non_negative("learning rate", lr)
        super().__init__(
            params,
            dict(
                lr=lr,
                max_iter=max_iter,
                max_eval=max_iter * 5 // 4 if max_eval is None else max_eval,
                tolerance_grad=tolerance_grad,
                tolerance_change=tolerance_change,
                history_size=history_size,
                line_search_fn=line_search_fn,
                maximize=maximize,
            ),
        )
        if len(self.param_groups) != 1:
            raise ValueError("LBFGS doesn't support per-parameter options (parameter groups)")

    def _flat_grad(self) -> Tensor:
        group = self.param_groups[0]
        parts = [(p.grad if p.grad is not None else _C.functions.zeros_like(p)).detach().reshape(-1) for p in group["params"]]
        flat = _C.functions.cat([_wide(part) for part in parts])
        return -flat if group["maximize"] else flat

    def _move(self, start: list[Tensor], length: float, direction: Tensor) -> None:
        """Parameters = start + length * direction."""
        offset = 0
        for param, value in zip(self.param_groups[0]["params"], start, strict=True):
            part = direction[offset : offset + param.numel()].reshape(param.shape)
            param.copy_(_wide(value).add(part, alpha=length))
            offset += param.numel()

    def _evaluate(self, closure: Callable[[], Any]) -> tuple[float, Tensor]:
        with enable_grad():
            loss = _number(closure())
        return (-loss if self.param_groups[0]["maximize"] else loss), self._flat_grad()

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Up to ``max_iter`` iterations. Returns the loss before them. TypeError without a closure."""
        if closure is None:
            raise TypeError("LBFGS.step() needs a closure that computes the loss again: step(closure)")
        with no_grad():
            with enable_grad():
                first_loss = closure()
            self._iterate(closure, _number(first_loss))
        return first_loss

    def _iterate(self, closure: Callable[[], Any], loss: float) -> None:
        group = self.param_groups[0]
        state = self.state[group["params"][0]]
        state.setdefault("func_evals", 0)
        state.setdefault("n_iter", 0)
        loss = -loss if group["maximize"] else loss
        gradient = self._flat_grad()
        evaluations, done = 1, 0
        state["func_evals"] += 1
        if _largest(gradient) <= group["tolerance_grad"]:
            return
        memory = _Memory({key: state.get(key) for key in _STATE}, group["history_size"])
        while done < group["max_iter"]:
            done += 1
            state["n_iter"] += 1
            direction = memory.direction(gradient, state["n_iter"] == 1)
            memory.gradient, memory.loss = gradient.clone(), loss
            length = float(group["lr"])
            if state["n_iter"] == 1:
                length *= min(1.0, 1.0 / gradient.abs().sum().item())
            slope = gradient.dot(direction).item()
            if slope > -group["tolerance_change"]:
                memory.length = length
                break
            start = [p.detach().clone() for p in group["params"]]
            more = 0
            search = group["line_search_fn"]
            if search not in (None, "strong_wolfe"):
                raise RuntimeError(f"only 'strong_wolfe' is supported as line_search_fn, not {search!r}")
            if search is not None:

                def evaluate(t: float, start: list[Tensor] = start, direction: Tensor = direction) -> tuple[float, Tensor]:
                    self._move(start, t, direction)
                    return self._evaluate(closure)

                budget = max(group["max_eval"] - evaluations, 0)
                found = _strong_wolfe(evaluate, length, direction, loss, gradient, slope, budget)
                loss, gradient, length, more = found
                self._move(start, length, direction)
            else:
                self._move(start, length, direction)
                if done != group["max_iter"]:  # the last gradient would not be used
                    loss, gradient = self._evaluate(closure)
                    more = 1
            memory.length = length
            evaluations += more
            state["func_evals"] += more
            if evaluations >= group["max_eval"] or _largest(gradient) <= group["tolerance_grad"]:
                break
            if _largest(direction) * length <= group["tolerance_change"] or abs(loss - memory.loss) < group["tolerance_change"]:
                break
        state.update(memory.as_state())


def _wide(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (_C.float16, _C.bfloat16) else tensor


def _number(loss: Any) -> float:
    return float(loss.detach() if isinstance(loss, Tensor) else loss)


def _largest(tensor: Tensor) -> float:
    return tensor.abs().max().item()


class _Memory:
    """The last steps (s) and changes of the gradient (y), which stand for the inverse Hessian."""

    def __init__(self, state: dict[str, Any], size: int) -> None:
        self.size = size
        self.d, self.length, self.gradient, self.loss = state["d"], state["t"], state["prev_flat_grad"], state["prev_loss"]
        if isinstance(self.d, Tensor):  # a loaded state came in the parameters' dtype
            self.d = _wide(self.d)
        if isinstance(self.gradient, Tensor):
            self.gradient = _wide(self.gradient)
        self.ys: list[Tensor] = [_wide(y) for y in state["old_dirs"] or []]
        self.ss: list[Tensor] = [_wide(s) for s in state["old_stps"] or []]
        self.ro: list[Any] = state["ro"] or []
        self.scale: Any = 1 if state["H_diag"] is None else state["H_diag"]

    def as_state(self) -> dict[str, Any]:
        values = (self.d, self.length, self.ys, self.ss, self.ro, self.scale, self.gradient, self.loss)
        return dict(zip(_STATE, values, strict=True))

    def direction(self, gradient: Tensor, first: bool) -> Tensor:
        """Where to go from here: downhill at first, then -H * gradient."""
        if first:
            self.ys, self.ss, self.ro, self.scale = [], [], [], 1
            self.d = -gradient
            return self.d
        self._learn(gradient - self.gradient, self.d * self.length)
        weights: list[Any] = [None] * len(self.ys)
        q = -gradient
        for i in reversed(range(len(self.ys))):
            weights[i] = self.ss[i].dot(q) * self.ro[i]
            q = q.add(self.ys[i] * weights[i], alpha=-1.0)
        r = q * self.scale
        for i in range(len(self.ys)):
            r = r + self.ss[i] * (weights[i] - self.ys[i].dot(r) * self.ro[i])
        self.d = r
        return r

    def _learn(self, y: Tensor, s: Tensor) -> None:
        curvature = y.dot(s)
        if curvature.item() <= 1e-10:  # it would spoil the positive definiteness
            return
        if len(self.ys) == self.size:
            del self.ys[0], self.ss[0], self.ro[0]
        self.ys.append(y)
        self.ss.append(s)
        self.ro.append(1.0 / curvature)
        self.scale = curvature / y.dot(y)


def _ratio(a: float, b: float) -> float:
    """a / b, where b may be 0, as slopes that agree make it: infinite then, and NaN for 0 / 0."""
    return a / b if b else math.copysign(math.inf, a) * math.copysign(1.0, b) if a else math.nan


def _cubic_minimum(x1: float, f1: float, g1: float, x2: float, f2: float, g2: float, bounds: tuple[float, float] | None = None) -> float:
    """Where the cubic through two points with these values and slopes is smallest, within the bounds (of the points by default)."""
    low, high = bounds if bounds is not None else (min(x1, x2), max(x1, x2))
    d1 = g1 + g2 - 3 * (f1 - f2) / (x1 - x2)
    square = d1 * d1 - g1 * g2
    if not square >= 0:
        return (low + high) / 2.0
    d2 = math.sqrt(square)
    if x1 <= x2:
        position = x2 - (x2 - x1) * _ratio(g2 + d2 - d1, g2 - g1 + 2 * d2)
    else:
        position = x1 - (x1 - x2) * _ratio(g1 + d2 - d1, g1 - g2 + 2 * d2)
    return min(max(position, low), high)


class _Point:
    """A length of the step, with loss, gradient and slope along the direction there."""

    __slots__ = ("gradient", "loss", "slope", "t")

    def __init__(self, t: float, loss: float, gradient: Tensor, slope: float) -> None:
        self.t, self.loss, self.gradient, self.slope = t, loss, gradient, slope


_DECREASE, _FLATTEN, _CLOSEST = 1e-4, 0.9, 1e-9


def _strong_wolfe(
    evaluate: _Evaluate, t: float, direction: Tensor, loss: float, gradient: Tensor, slope: float, budget: int
) -> tuple[float, Tensor, float, int]:
    """A length whose loss has come down enough (by 1e-4 of the slope) and whose slope is flat enough (0.9 of it): first an interval
    that contains one, then cubic interpolation inside, with up to ``budget`` evaluations after the first. Returns (loss, gradient, length,
    evaluations).
    """

    def at(t: float) -> _Point:
        value, g = evaluate(t)
        return _Point(t, value, g, g.dot(direction).item())

    def too_high(p: _Point) -> bool:
        return p.loss > loss + _DECREASE * p.t * slope

    size = _largest(direction)
    before, here = _Point(0.0, loss, gradient, slope), at(t)
    evaluations, trials, bracket = 1, 0, []
    while trials < budget:
        if too_high(here) or (trials > 1 and here.loss >= before.loss):
            bracket = [before, here]
            break
        if abs(here.slope) <= -_FLATTEN * slope:
            return here.loss, here.gradient, here.t, evaluations
        if here.slope >= 0:
            bracket = [before, here]
            break
        bounds = (here.t + 0.01 * (here.t - before.t), here.t * 10)
        t = _cubic_minimum(before.t, before.loss, before.slope, here.t, here.loss, here.slope, bounds)
        before, here = here, at(t)
        evaluations += 1
        trials += 1
    if trials == budget:
        bracket = [_Point(0.0, loss, gradient, slope), here]

    low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
    stalled = False
    while trials < budget:
        a, b = bracket
        if abs(b.t - a.t) * size < _CLOSEST:
            break
        t = _cubic_minimum(a.t, a.loss, a.slope, b.t, b.loss, b.slope)
        left, right = min(a.t, b.t), max(a.t, b.t)
        margin = 0.1 * (right - left)
        if min(right - t, t - left) < margin:  # too close to an end: allowed once, then it must move inwards
            if stalled or t >= right or t <= left:
                t = right - margin if abs(t - right) < abs(t - left) else left + margin
                stalled = False
            else:
                stalled = True
        else:
            stalled = False
        here = at(t)
        evaluations += 1
        trials += 1
        if too_high(here) or here.loss >= bracket[low].loss:
            bracket[high] = here
            low, high = (0, 1) if bracket[0].loss <= bracket[1].loss else (1, 0)
            continue
        flat = abs(here.slope) <= -_FLATTEN * slope
        if not flat and here.slope * (bracket[high].t - bracket[low].t) >= 0:
            bracket[high] = bracket[low]
        bracket[low] = here
        if flat:
            break
    best = bracket[low]
    return best.loss, best.gradient, best.t, evaluations
