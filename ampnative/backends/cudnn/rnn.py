"""Recurrent layers on "cuda": `fp32_precision`. A module, so that other names can be assigned, as in PyTorch."""

from __future__ import annotations

from .. import _settings

fp32_precision: str  # for type checkers; the class gives the value


class _Rnn(_settings.SettingsModule):
    fp32_precision = _settings.node(
        "cuda",
        "rnn",
        'Precision of fp32 recurrent layers: "ieee", "tf32" or "none" (inherit). Reads what is in effect. Raises RuntimeError '
        "for another string, TypeError for no string.",
    )


_settings.become(__name__, _Rnn)
