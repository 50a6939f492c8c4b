"""What happened inside: which op ran in which dtype."""

from .op_report import OpReport, OpRow, op_report

__all__ = ["OpReport", "OpRow", "op_report"]
