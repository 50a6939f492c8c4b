"""Imported first: says what is wrong when the native core is missing."""

import os
import sys
from importlib import import_module
from itertools import pairwise
from pathlib import Path


def _is_command() -> bool:
    """Whether this process is `ampnative ...` or `python -m ampnative ...`, not a program that imports the package."""
    if sys.argv[:1] != ["-m"]:
        return os.path.basename(sys.argv[0]) == "ampnative" if sys.argv and sys.argv[0] else False
    given = sys.orig_argv
    return any(pair == ("-m", "ampnative") for pair in pairwise(given))


try:
    _core = import_module("ampnative._C")
except ImportError as error:
    if not (str(error).startswith("AMPNATIVE_") and _is_command()):
        raise
    print(f"ampnative: {error}", file=sys.stderr)
    sys.exit(2)

# Without the built extension, Python takes the folder of type stubs beside it for an empty package.
if not hasattr(_core, "Tensor"):
    raise ImportError(
        f"ampnative's native core is not built in {Path(__file__).parent}. In a clone, Python finds this source folder before the "
        "installed package: start it with `python -P`, use the `ampnative` command, or change to another folder"
    )
