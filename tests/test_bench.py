"""The benchmark's frame: turns, comparison, table. Figures themselves are never tested."""

import json
import types

import pytest

import ampnative as torch
from ampnative import bench, cli
from ampnative.bench import run as bench_run
from ampnative.bench import scaling


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


@pytest.mark.parametrize("options", [[], ["--scaling"]])
def test_a_rival_without_the_names_of_pytorch_is_refused(capsys, options):
    with pytest.raises(SystemExit) as refusal:
        cli.main(["bench", "--rival", "numpy", *options])
    assert refusal.value.code == 2
    last = capsys.readouterr().err.splitlines()[0]
    assert last.startswith("ampnative bench: error: --rival numpy: a rival needs torch's names") and "no nn, optim, amp" in last


@pytest.mark.parametrize("options", ["--threads 0", "--threads two", "--seconds x", "--seconds -1", "--seconds nan"])
def test_numbers_that_make_no_sense_are_refused(capsys, options):
    with pytest.raises(SystemExit) as refusal:
        cli.main(["bench", *options.split()])
    told = capsys.readouterr().err.splitlines()
    assert refusal.value.code == 2 and len(told) == 2 and options.split()[0] in told[0] and "--help" in told[1]


SMALL = [w for w in bench.WORKLOADS if w.flops < 1e8 and not w.bytes]


@pytest.mark.parametrize("workload", SMALL, ids=lambda w: w.name)
def test_small_workloads_run(workload):
    assert "error" not in bench.measure(workload, [torch], 0.0)


# ---- limits ----


def test_limits_of_the_machine_are_positive_and_refuse_nonsense():
    limits = bench_run.ceilings()
    assert limits.keys() == {"fp32", "bf16", "copy"} and all(v > 1e7 for v in limits.values())
    assert torch._C._ceiling("copy", 1) > 0
    for wrong in (("fp64",), ("copy",), ("copy", -1)):
        with pytest.raises(ValueError, match="_ceiling"):
            torch._C._ceiling(*wrong)


def test_each_row_says_what_limits_it():
    kinds = {w.name: w.ceiling for w in bench.WORKLOADS}
    assert kinds["linear/bf16/4096x512x512"] == kinds["attention/4x8x512x64"] == "bf16"
    assert kinds["linear/fp16/4096x512x512"] == kinds["recipe/fp32/512"] == "fp32"
    assert kinds["tail/unscale/64M/1"] == "copy" and kinds["op/add/16"] == ""


def test_share_of_the_limit_is_printed_and_written(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench_run, "WORKLOADS", [tiny(), bench.Workload("none", tiny().make)])
    monkeypatch.setattr(bench_run, "ceilings", lambda: {"fp32": 1.0, "bf16": 2.0, "copy": 3.0})
    assert cli.main(["bench", "--seconds", "0.01", "--json", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "limits of 2 thread(s)" in lines[1] and lines[3].endswith("%") and not lines[4].endswith("%")
    told = json.loads((tmp_path / "out").read_text())
    assert told["ceilings"]["copy"] == 3.0 and [r["ceiling"] for r in told["rows"]] == ["fp32", ""]


# ---- scaling ----

TINY = dict(inner=1 << 16, outer=1 << 14, width=64, heads=1, each=8, count=5, batch=4)


def test_scaling_pairs_have_names_of_their_own_and_sizes_of_this_machine():
    names = [p.name for p in scaling.pairs()]
    assert len(set(names)) == len(names)
    assert {n.split("/")[0] for n in names} == {"double", "threads", "many", "batch"}
    assert all(level > 1 << 15 for level in scaling.cache_bytes())


@pytest.mark.parametrize("pair", scaling.pairs(**TINY), ids=lambda p: p.name)
def test_scaling_pairs_run(pair):
    before = torch.get_num_threads()
    figures = scaling.measure(pair, torch, before, 0.0)
    assert "error" not in figures and figures["base"] > 0 and figures["other"] > 0
    ratio = figures["base"] / figures["other"] if pair.speedup else figures["other"] / figures["base"] * pair.factor
    assert figures["value"] == ratio and torch.get_num_threads() == before


def test_what_is_wanted_of_a_figure():
    def pair(low, high):
        return scaling.Pair("p", tiny().make, tiny().make, low, high)

    assert scaling.met(pair(1.85, 2.15), 2.0) and not scaling.met(pair(1.85, 2.15), 2.2)
    assert scaling.met(pair(None, 1.3), 0.5) and not scaling.met(pair(1.7, None), 1.6) and scaling.met(pair(None, None), 9.0)


def test_scaling_table(monkeypatch, capsys, tmp_path):
    wanted = [
        scaling.Pair("double/a", tiny().make, tiny().make, 0.0, 1e9),
        scaling.Pair("many/b", tiny().make, tiny().make, None, 0.0),
        scaling.Pair("threads/c", tiny().make, lambda lib: lib.nn.functional.no_such_op, speedup=True),
    ]
    monkeypatch.setattr(scaling, "pairs", lambda: wanted)
    assert cli.main(["bench", "--scaling", "--seconds", "0.0", "--json", str(tmp_path / "out")]) == 0
    out = capsys.readouterr().out
    assert "0 to 1e+09: met" in out and "<= 0: not met" in out and "not run:" in out and "limits of 1 thread" in out
    rows = json.loads((tmp_path / "out").read_text())["rows"]
    assert [r["name"] for r in rows] == ["double/a", "many/b", "threads/c"] and rows[0]["ampnative"]["value"] > 0
    assert cli.main(["bench", "--scaling", "--list", "--only", "double"]) == 0
    assert capsys.readouterr().out.split() == ["double/a"]
    with pytest.raises(SystemExit):
        cli.main(["bench", "--scaling", "--rival", "jax"])


def test_a_report_that_cannot_be_written_is_refused_at_once(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(bench_run, "ceilings", lambda: pytest.fail("it ran"))
    for path, why in ((tmp_path / "no" / "x.json", "there is no such folder"), (tmp_path, "it is a folder")):
        with pytest.raises(SystemExit) as left:
            cli.main(["bench", "--json", str(path)])
        assert left.value.code == 2 and f"cannot write {path}: {why}" in capsys.readouterr().err
