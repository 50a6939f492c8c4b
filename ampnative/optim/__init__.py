"""Optimizers and learning-rate schedulers."""

from . import lr_scheduler
from .adam import Adam
from .adamw import AdamW
from .nadam import NAdam
from .optimizer import Optimizer
from .sgd import SGD

__all__ = ["SGD", "Adam", "AdamW", "NAdam", "Optimizer", "lr_scheduler"]
