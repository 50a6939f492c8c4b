"""What the scaler's last ``step()`` did."""

from __future__ import annotations

import enum

__all__ = ["StepStatus"]


class StepStatus(enum.Enum):
    """Value of ``GradScaler.last_step``.

    STEPPED: the optimizer ran. SKIPPED: a gradient (or the scale's reciprocal) was inf or NaN, the parameters did not
    change. NO_GRADS: the optimizer had no gradient at all.
    """

    STEPPED = "stepped"
    SKIPPED = "skipped"
    NO_GRADS = "no_grads"
