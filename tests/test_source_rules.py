"""The rules that keep the rooms of the source tree apart, as checks."""

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED_TOP = {
    "pyproject.toml",
    "setup.py",
    "MANIFEST.in",
    "csrc",
    "cuda",
    "ampnative",
    "tests",
    "notebooks",
    "README.md",
    "LICENSE",
}
MAX_LINES = 800

pytestmark = pytest.mark.skipif(not (ROOT / "csrc").is_dir(), reason="these checks read the source tree")


def tracked() -> list[str]:
    """Paths that are, or would be, part of the repository; without git every file except build results."""
    git = (
        subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
        if shutil.which("git")
        else None
    )
    if git and git.returncode == 0:
        return [p for p in git.stdout.split("\n") if p and (ROOT / p).is_file()]
    skipped = {".git", "build", ".venv", "__pycache__", "dist", ".hypothesis", ".pytest_cache", ".ruff_cache"}
    paths = [p.relative_to(ROOT) for p in ROOT.rglob("*") if p.is_file()]
    return [str(p) for p in paths if not skipped & set(p.parts) and ".egg-info" not in str(p) and p.suffix not in (".so", ".pyd")]


FILES = tracked()
C_FILES = [p for p in FILES if p.startswith(("csrc/", "cuda/")) and p.endswith((".c", ".h", ".def", ".cu", ".cuh"))]
HEADERS = [p for p in FILES if p.startswith("csrc/") and p.endswith(".h")]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def code(path: str) -> str:
    """C source with comments and string contents blanked out."""
    pattern = r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"'
    return re.sub(pattern, lambda m: '""' if m[0][0] == '"' else " " * len(m[0]), text(path), flags=re.S)


def using(pattern: str, within: str = "csrc/", source=code) -> set[str]:
    return {p for p in C_FILES if p.startswith(within) and re.search(pattern, source(p))}


def test_there_is_something_to_check():
    assert len(C_FILES) > 20 and any(p.endswith("ops.def") for p in C_FILES)


def test_python_only_in_the_glue():
    outside = {p for p in using(r"#\s*include\s*[<\"]Python\.h", source=text) if not p.startswith("csrc/python/")}
    assert not outside


def test_numpy_headers_only_in_array_c():
    assert using(r"#\s*include\s*[<\"]numpy/", source=text) <= {"csrc/python/array.c"}


def test_cpuid_only_in_cpu_features():
    assert using(r"#\s*include\s*<cpuid\.h>|__get_cpuid|__cpuid|__builtin_cpu_(supports|init)|_xgetbv", source=text) <= {
        "csrc/cpu/cpu_features.c"
    }


def test_dlopen_only_where_libraries_are_loaded():
    assert using(r"\bdl(open|sym|close)\s*\(") <= {"csrc/cuda/driver.c", "csrc/cuda/blaslt.c"}


def test_no_exit_abort_printf():
    calls = r"\b(exit|_exit|abort|printf|puts|putchar|fprintf|vprintf|perror|assert)\s*\("
    assert not using(calls)


def test_kernels_do_not_read_the_environment_except_through_features():
    """Settings travel in Call; the environment is read by the file that owns the setting."""
    assert not {p for p in using(r"\bgetenv\s*\(", "csrc/cpu/") if p not in ("csrc/cpu/cpu_features.c", "csrc/cpu/memory.c")}


def test_no_long_files():
    sources = [p for p in FILES if p.startswith(("csrc/", "cuda/", "ampnative/", "tests/")) and not p.startswith("tests/golden/")]
    lengths = {p: text(p).count("\n") for p in sources if p.endswith((".c", ".h", ".def", ".cu", ".cuh", ".py", ".pyi"))}
    assert not {p: n for p, n in lengths.items() if n > MAX_LINES and "/_C" not in p}  # _C's stub is generated


def test_floating_point_flags():
    setup = text("setup.py")
    assert "-ffp-contract=off" in setup
    unsafe = "-Ofast|-f(fast|unsafe|finite|associative|reciprocal)-math|-fno-signed-zeros|use_fast_math|-march=native"
    build_files = ["setup.py", "pyproject.toml", *C_FILES]
    assert not {p for p in build_files if re.search(unsafe, text(p))}
    assert not using(r"_MM_SET_FLUSH_ZERO_MODE|_MM_SET_DENORMALS_ZERO_MODE|_mm_setcsr")
    assert not using(r"#\s*pragma\s+STDC\s+FP_CONTRACT\s+ON")
    # a file may ask for other loops, but only with options that change no value
    harmless = {"O2", "O3", "no-math-errno", "no-trapping-math", "no-unswitch-loops", "no-thread-jumps", "no-split-paths",
                "no-tree-loop-distribute-patterns", "no-tree-pre"}  # fmt: skip
    asked = [(p, m[1]) for p in C_FILES for m in re.finditer(r"#\s*pragma\s+GCC\s+optimize\s*\(([^)]*)\)", text(p))]
    assert not [(p, options) for p, options in asked if set(re.findall(r'"([^"]*)"', options)) - harmless]
    assert not using(r"__attribute__\s*\(\(\s*optimize")


def test_no_openmp():
    assert not using(r"#\s*pragma\s+omp|#\s*include\s*<omp\.h>", source=text)


@pytest.mark.parametrize("header", HEADERS)
def test_header_compiles_alone(header, tmp_path):
    """Each header includes what it needs. Only templates (included several times) have no guard."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if not compiler:
        pytest.skip("no C compiler")
    if not re.search(r"#\s*ifndef\s+\w+_H\b|#\s*pragma\s+once", text(header)):
        assert text(header).startswith("/*"), f"{header}: a template says at its top what it needs"
        assert using(rf'#\s*include\s*"(.*/)?{Path(header).name}"', source=text), f"{header}: nobody includes this template"
        return

    unit = tmp_path / "unit.c"
    unit.write_text(f'#include "{ROOT / header}"\nint unit;\n')
    flags = [
        "-std=c11",
        "-fsyntax-only",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-function",
        "-Wno-unused-const-variable",
        f"-I{ROOT / 'csrc'}",
        f"-I{ROOT / 'csrc/core'}",
        f"-I{ROOT / 'csrc/cpu'}",
        f"-I{ROOT / 'csrc/python'}",
    ]
    if header.startswith("csrc/python/"):
        flags += [f"-isystem{sysconfig.get_paths()['include']}", f"-isystem{np.get_include()}"]
    done = subprocess.run([compiler, *flags, str(unit)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[:3000]


def test_top_level():
    top = {p.split("/")[0] for p in FILES}
    assert not {p for p in top if not p.startswith(".")} - ALLOWED_TOP


def test_readme_table_names_existing_paths():
    """Each path in the rows of the table "to change X, edit Y" exists."""
    lines = text("README.md").split("\n")
    starts = [i for i, line in enumerate(lines) if re.match(r"\|.*to change.*\|.*edit.*\|", line, re.I)]
    assert starts, 'README.md has a table with the head "| to change | edit |"'
    rows = []
    for line in lines[starts[0] + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(line)
    assert len(rows) >= 5
    for row in rows:
        paths = [q for q in re.findall(r"`([^`\s]+)`", row.split("|")[2]) if "/" in q or "." in q]
        assert paths, f"no path in: {row}"
        missing = [q for q in paths if not list(ROOT.glob(q.rstrip("/")))]
        assert not missing, f"{missing} in: {row}"


def test_no_path_of_one_machine():
    found = {}
    pattern = re.compile("/(" + "work|root|home/\\w+|tmp/\\w" + ")/")
    for p in FILES:
        if p.startswith("tests/golden/") or not p.endswith(
            (
                ".py",
                ".pyi",
                ".c",
                ".h",
                ".def",
                ".md",
                ".toml",
                ".cu",
                ".txt",
                ".ipynb",
                "run",
                "lint",
                "sanitize",
                "full",
            )
        ):
            continue
        hits = [m[0] for m in pattern.finditer(text(p))]
        if hits:
            found[p] = hits[:3]
    assert not found


def test_no_unfinished_marks():
    marks = re.compile(r"\b(" + "|".join(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r")\b")
    assert not {p for p in FILES if p.endswith((".py", ".c", ".h", ".def", ".cu")) and marks.search(text(p))}


def test_recordings_are_small():
    assert not {p: (ROOT / p).stat().st_size for p in FILES if (ROOT / p).stat().st_size > 2_000_000}
