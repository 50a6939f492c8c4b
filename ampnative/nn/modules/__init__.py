"""The path under which PyTorch keeps its modules: everything of :mod:`ampnative.nn` that is a module class."""

from .. import *
from ..module import Module
