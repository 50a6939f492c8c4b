"""The benchmark's frame: turns, comparison, table. Figures themselves are never tested."""

import json
import types

import pytest

import ampnative as torch
from ampnative import bench, cli
from ampnative.bench import run as bench_run


def rival(**changed):
    """Another module with PyTorch's names, of which some answer otherwise."""
    module = types.ModuleType("rival")
    module.__dict__.update({k: v for k, v in vars(torch).items() if not k.startswith("__")}, __version__="1", **changed)
    return module


def tiny(name="tiny", tolerance=0.0, goal=None):
    def make(lib):
        a = lib.ones(4)
        return lambda: lib.exp(a)

    return bench.Workload(name, make, flops=4.0, tolerance=tolerance, goal=goal)


def test_libraries_take_turns_and_results_are_compared():
    row = bench.measure(tiny(), [torch, rival()], 0.01)
    assert row["difference"] == 0.0 and row["rounds"] >= 3 and row["best"].keys() == {"ampnative", "rival"}
    assert all(0 < row["best"][n] <= row["median"][n] for n in row["best"])
    row = bench.measure(tiny(), [torch, rival(exp=lambda a: a.exp() * 1.5)], 0.01)
    assert row["difference"] == pytest.approx(1 / 3)


def test_a_workload_that_a_library_lacks_is_said_and_the_others_run(monkeypatch, capsys, tmp_path):
    missing = bench.Workload("missing", lambda lib: lib.nn.functional.no_such_op)
    monkeypatch.setattr(bench_run, "WORKLOADS", [missing, tiny(goal=1e-9)])
    assert cli.main(["bench", "--seconds", "0.01", "--json", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "not run: ampnative" in out and "GF/s" in out
    assert [r["name"] for r in json.loads((tmp_path / "out").read_text())["rows"]] == ["missing", "tiny"]


def test_results_that_differ_are_an_error(monkeypatch, capsys):
    monkeypatch.setattr(bench_run, "WORKLOADS", [tiny(goal=1e-9)])
    other = rival(exp=lambda a: a.exp() * 1.5)
    monkeypatch.setattr(bench_run.importlib, "import_module", lambda name: torch if name == "ampnative" else other)
    assert cli.main(["bench", "--seconds", "0.01", "--rival", "rival"]) == 1
    out = capsys.readouterr().out
    assert "RESULTS DIFFER by 0.33" in out and "met (1e-09)" in out


def test_names_can_be_chosen(capsys):
    assert cli.main(["bench", "--list", "--only", "tail/", "--only", "conv"]) == 0
    names = capsys.readouterr().out.split()
    assert "tail/unscale/64M/1000" in names and "conv/fp32/32x64x56x56" in names and len(names) < len(bench.WORKLOADS)
    with pytest.raises(SystemExit):
        cli.main(["bench", "--rival", "no_such_module_here"])


SMALL = [w for w in bench.WORKLOADS if w.flops < 1e8 and not w.bytes]


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_small_workloads_run(workload):
    assert "error" not in bench.measure(workload, [torch], 0.0)
