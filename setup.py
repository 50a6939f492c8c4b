"""Builds ampnative._C from csrc/, one compiler process per core."""

import os
import subprocess
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy
from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent.resolve()

# Contraction off: results must not depend on whether the compiler fuses a multiply with an add. Where fused arithmetic is wanted it is
# called by name. Base objects stay plain x86-64; wide code sits behind function targets.
FLAGS = [
    "-std=c11", "-O2", "-ffp-contract=off", "-fvisibility=hidden", "-fno-math-errno", "-fno-trapping-math",
    "-Wall", "-Wextra", "-Wshadow", "-Wconversion",
    "-falign-functions=64",  # where a change elsewhere moved the driver's functions, a small op took up to a fifth longer
    "-g0",  # interpreters built with -g would treble the size
]  # fmt: skip

# Taken where the compiler knows them. GCC clears a few hundred bytes by a string instruction, whose start costs what a small op does. A
# call into the interpreter goes straight through its table of addresses: 4 % of a step that is all overhead.
WANTED = ["-mmemset-strategy=vector_loop:1024:noalign,libcall:-1:noalign", "-fno-plt"]


def sources() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for p in (ROOT / "csrc").rglob("*.c"))


def headers() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for pattern in ("*.h", "*.def") for p in (ROOT / "csrc").rglob(pattern))


class ParallelBuild(build_ext):
    """setuptools compiles one file after the other; here they go to a pool."""

    def knows(self, flag: str) -> bool:
        command = [self.compiler.compiler_so[0], flag, "-fsyntax-only", "-x", "c", os.devnull]
        return subprocess.run(command, capture_output=True).returncode == 0

    def build_extension(self, ext: Extension) -> None:
        compile_one = self.compiler.compile
        ext.extra_compile_args += [flag for flag in WANTED if self.knows(flag)]

        def compile_all(files, output_dir=None, **options):
            jobs = int(os.environ.get("AMPNATIVE_BUILD_JOBS", os.cpu_count() or 1))
            with ThreadPoolExecutor(max(jobs, 1)) as pool:
                objects = list(pool.map(lambda f: compile_one([f], output_dir=output_dir, **options), files))
            return [o for part in objects for o in part]

        self.compiler.compile = compile_all
        super().build_extension(ext)


extra = os.environ.get("AMPNATIVE_CFLAGS", "").split()
# Setuptools compares times, not flags: what was built with others must not be taken for it.
build_base = f"build/flags-{zlib.crc32(' '.join(extra).encode()):08x}" if extra else "build"
setup(
    options={"build": {"build_base": build_base}},
    ext_modules=[
        Extension(
            "ampnative._C",
            sources=sources(),
            depends=headers(),
            include_dirs=[numpy.get_include()],
            define_macros=[("NPY_NO_DEPRECATED_API", "NPY_2_0_API_VERSION"), ("NPY_TARGET_VERSION", "NPY_2_0_API_VERSION")],
            extra_compile_args=FLAGS + extra,
            extra_link_args=extra + (["-lm", "-pthread"] if sys.platform != "win32" else []),
        )
    ],
    cmdclass={"build_ext": ParallelBuild},
)
