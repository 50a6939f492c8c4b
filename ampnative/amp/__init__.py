"""Automatic mixed precision: autocast regions, gradient scaling, and what the scaler can tell about a run."""

from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .explain import Culprit, Explanation, SkippedStep
from .grad_scaler import GradScaler, OptState
from .history import HistoryRow, ScaleHistory
from .policies import op_policy, ops, result_dtype
from .status import StepStatus

__all__ = [
    "Culprit",
    "Explanation",
    "GradScaler",
    "HistoryRow",
    "OptState",
    "ScaleHistory",
    "SkippedStep",
    "StepStatus",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "is_autocast_available",
    "op_policy",
    "ops",
    "result_dtype",
]
