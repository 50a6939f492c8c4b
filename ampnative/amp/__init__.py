"""Automatic mixed precision: autocast regions, gradient scaling, and what the scaler can tell about a run."""

from .arrays import has_inf_or_nan, scale_loss, unscale_gradients
from .autocast_mode import autocast, custom_bwd, custom_fwd, is_autocast_available
from .explain import Culprit, Explanation, SkippedStep
from .grad_scaler import GradScaler, OptState
from .history import HistoryRow, ScaleHistory
from .limits import ScaleFloorError, ScalerGroup
from .policies import op_policy, ops, result_dtype
from .registration import cast_args, register_op, wrap
from .status import StepStatus
from .still_scaled import warn_on_scaled_clip

__all__ = [
    "Culprit",
    "Explanation",
    "GradScaler",
    "HistoryRow",
    "OptState",
    "ScaleFloorError",
    "ScaleHistory",
    "ScalerGroup",
    "SkippedStep",
    "StepStatus",
    "autocast",
    "cast_args",
    "custom_bwd",
    "custom_fwd",
    "has_inf_or_nan",
    "is_autocast_available",
    "op_policy",
    "ops",
    "register_op",
    "result_dtype",
    "scale_loss",
    "unscale_gradients",
    "warn_on_scaled_clip",
    "wrap",
]
