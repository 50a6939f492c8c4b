"""Imported first: says what is wrong when the native core is missing."""

from importlib import import_module
from pathlib import Path

# Without the built extension, Python takes the folder of type stubs beside it for an empty package.
if not hasattr(import_module("ampnative._C"), "Tensor"):
    raise ImportError(
        f"ampnative's native core is not built in {Path(__file__).parent}. In a clone, Python finds this source folder before the "
        "installed package: start it with `python -P`, use the `ampnative` command, or change to another folder"
    )
