"""State checks around every test, and the count of golden records at the end of the run."""

import collections
import gc
import os
import sys

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("default", deadline=None, print_blob=True)
settings.register_profile("long", deadline=None, print_blob=True, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

NAME = os.environ.get("AMPNATIVE_TEST_MODULE", "ampnative")
STATES = ("as recorded", "ours instead", "not yet", "failed")
golden_states: dict[str, dict[int, int]] = collections.defaultdict(dict)  # file -> record -> the worst state of its tests
golden_reasons: dict[str, set] = collections.defaultdict(set)  # line -> records


def process_state() -> dict:
    """Thread and process state that a test must leave as it found it."""
    lib = sys.modules.get(NAME)
    if lib is None or not hasattr(lib, "is_grad_enabled"):
        return {}
    seen = {"grad mode": lib.is_grad_enabled(), "default dtype": str(lib.get_default_dtype())}
    for device in ("cpu", "cuda"):
        seen[f"autocast {device}"] = lib.is_autocast_enabled(device)
        seen[f"autocast dtype {device}"] = str(lib.get_autocast_dtype(device))
    seen["autocast cache"] = lib.is_autocast_cache_enabled()
    seen["autocast nesting"] = lib.autocast_increment_nesting() - 1
    lib.autocast_decrement_nesting()
    if hasattr(lib, "is_inference_mode_enabled"):
        seen["inference mode"] = lib.is_inference_mode_enabled()
    if hasattr(getattr(lib, "cuda", None), "is_emulated"):
        seen["emulation"] = lib.cuda.is_emulated()
    if hasattr(lib._C, "_precision_state"):
        seen["precision settings"] = lib._C._precision_state()
    return seen


@pytest.fixture(autouse=True, scope="module")
def collections_are_quick():
    """gc.collect(), which many tests call, need not walk pytest's own thousands of tests and reports, which live to the end."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def away_from_the_sources(tmp_path_factory):
    """Tests run in an empty folder: a process that they start must not import the source tree (where nothing is built)
    in place of the installed package."""
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("cwd"))
    yield
    os.chdir(before)


@pytest.fixture(autouse=True)
def state_is_left_alone():
    """Autocast, grad mode, default dtype, precision settings and emulation are the same before and after every test."""
    before = process_state()
    yield
    after = process_state()
    changed = {k: (before[k], after[k]) for k in before if before[k] != after[k]}
    assert not changed, f"the test changed process or thread state (before, after): {changed}"


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    record = getattr(getattr(item, "callspec", None), "params", {}).get("record")
    if not hasattr(record, "file"):
        return
    if report.when != "call" and report.passed:
        return
    state = 3 if report.failed else 2 if report.skipped else 1 if record.ours else 0
    seen = golden_states[record.file]
    seen[record.index] = max(state, seen.get(record.index, 0))
    if report.skipped:
        golden_reasons[f"{record.file}: not yet: {report.longrepr[2].removeprefix('Skipped: ')}"].add(record.index)
    for reason in record.ours if report.passed else []:
        golden_reasons[f"{record.file}: ours instead: {reason}"].add(record.index)


def pytest_terminal_summary(terminalreporter):
    if not golden_states:
        return
    terminalreporter.section("golden records")
    width = max(map(len, golden_states)) + 1
    terminalreporter.write_line(f"{'':{width}s}" + "".join(f"{state:>22s}" for state in STATES))
    for file, seen in sorted(golden_states.items()):
        counts = collections.Counter(seen.values())
        terminalreporter.write_line(f"{file:{width}s}" + "".join(f"{counts[state]:22d}" for state in range(len(STATES))))
    for line, which in sorted(golden_reasons.items()):
        terminalreporter.write_line(f"  {line} ({len(which)})")
