"""The recipe runs, its checks bite, and its report says what happened."""

import json
import sys

import pytest

import ampnative as torch
from ampnative import cli, recipe
from ampnative.amp.history import ACTIONS

SMALL = ["--size", "32", "--batch-sizes", "8,9", "--batches", "3"]


def run(tmp_path, capsys, *args, code=0):
    path = tmp_path / "report.json"
    assert cli.main(["recipe", *args, "--json", str(path)]) == code
    captured = capsys.readouterr()
    return captured.out, json.loads(path.read_text(), parse_constant=pytest.fail)


@pytest.fixture(autouse=True)
def emulation_ends():
    with torch.cuda.emulate(torch.cuda.is_emulated()):
        yield


@pytest.mark.parametrize(
    ("device", "dtype"),
    [("cpu", None), ("cpu", "float16"), ("cpu", "float32"), ("cuda", None), ("cuda", "bfloat16"), ("cuda", "float32")],
)
def test_small_recipe(tmp_path, capsys, device, dtype):
    args = ["--device", device, *(["--dtype", dtype] if dtype else []), *SMALL]
    out, report = run(tmp_path, capsys, *args)
    expected = dtype or ("float16" if device == "cuda" else "bfloat16")
    assert report["dtype"] == expected and report["emulated"] is (device == "cuda")
    names = [s["name"] for s in report["sections"]]
    assert names == ["autocast", "GradScaler", "clipping after unscale_", "saving and resuming", "inference"]
    assert [r["batch_size"] for r in report["runs"]] == [8, 9]
    for r in report["runs"]:
        assert r["mixed_loss"] == pytest.approx(r["default_loss"], rel=0.02)
        assert r["steps"] == 3 and r["default_seconds"] > 0 and r["default_peak_bytes"] > 3 * 32 * 32 * 4
        assert [row["scale"] for row in r["scale_history"]] == ([65536.0] * 3 if expected == "float16" else [])
    assert "Left out of the published run" in out and "epochs: 1 instead of 3" in out and "size: 32 instead" not in out
    assert ("CUDA's rules are emulated on the CPU" in out) is (device == "cuda")
    timings = [line for line in out.splitlines() if line.startswith(("batch 8,", "batch 9,"))]
    assert len(timings) == 4 and all(("emulated" in line) is (device == "cuda") for line in timings)


def test_scale_that_is_too_large_is_explained(tmp_path, capsys):
    out, report = run(tmp_path, capsys, "--device", "cuda", "--init-scale", "1e9", *SMALL)
    for r in report["runs"]:
        assert [s["old_scale"] for s in r["skipped"]] == [1e9, 5e8, 2.5e8]
        assert r["skipped"][0]["new_scale"] == 5e8 and r["scale_history"][0]["action"] == "backoff"
        names = {c["name"] for s in r["skipped"] for c in s["culprits"]}
        assert names <= {"0.weight", "0.bias", "2.weight", "2.bias", "4.weight", "4.bias"} and "4.weight" in names
    assert out.count("  3 skipped of 3 steps; steps 0 to 2: scale 1e+09 -> 1.25e+08; ") == 2 and out.count("3 of 3\n") == 2
    assert "survives times 1e+09" in out and out.count("every step of the mixed run was skipped") == 2


@pytest.mark.parametrize(
    ("scale", "fate"), [("1", "still vanishes times 1;"), ("2e30", "overflows times 2e+30;"), ("4096", "survives times 2^12;")]
)
def test_scaler_section_speaks_of_the_init_scale(capsys, scale, fate):
    assert cli.main(["recipe", "--dtype", "float16", "--init-scale", scale, *SMALL]) == 0
    assert fate in capsys.readouterr().out


def test_scale_history_in_words():
    class Scaler:
        history = torch.amp.ScaleHistory()

    for scale, found, tracker in ((8192.0, 0, 1), (8192.0, 0, 2), (3000.0, 1, 0), (1500.0, 1, 0), (1500.0, 0, 1), (1500.0, 0, 2)):
        Scaler.history.append(scale, found, tracker, ACTIONS.index("backoff" if found else "keep"))
    words = "2^13 kept in steps 0 to 1; 3000 after step 2 (backoff); 1500 after step 3 (backoff), kept to step 5"
    assert recipe._scale_path(Scaler) == words


def test_float32_speaks_of_no_autocast(capsys):
    assert cli.main(["recipe", "--dtype", "float32", "--init-scale", "8", *SMALL]) == 0
    captured = capsys.readouterr()
    assert "float32 autocast" not in captured.out and "mixed" not in captured.out and "float32 twice" in captured.out
    assert captured.err == "ampnative: note: --init-scale has no effect on this run\n"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_513_rows_are_of_mixed_precision_only_where_there_is_one(dtype):
    from rich.console import Console

    timing, told = recipe.Timing(1.0, 1), []
    plan = recipe.make_plan(cli._parser().parse_args(["recipe", "--dtype", dtype, "--size", "8", "--batch-sizes", "512,513"]))
    comparisons = [recipe.Comparison(size, timing, timing, 1.0, 1.0, 3, torch.amp.GradScaler("cpu")) for size in (512, 513)]
    recipe._print_table(plan, comparisons, Console(quiet=True), told.append)
    assert told[-1].startswith("513 rows, not a multiple of 8, take 1.00 times as long as 512")
    assert (" in mixed precision" in told[-1]) == (dtype == "bfloat16")


@pytest.mark.parametrize(("seconds", "expected"), [(0.4, None), (0.5, 1.0)])
def test_short_runs_are_not_compared(seconds, expected):
    timing = recipe.Timing(seconds, 1)
    assert recipe.Comparison(8, timing, timing, 1.0, 1.0, 3, None).speed_up == expected


def test_full_keeps_the_published_numbers():
    args = cli._parser().parse_args(["recipe", "--full"])
    plan = recipe.make_plan(args)
    assert (plan.size, plan.batches, plan.epochs, plan.layers) == (4096, 50, 3, 3)
    assert plan.batch_sizes == [128, 256, 512, 513] and plan.left_out == []


def test_default_plan_fits_its_budget(monkeypatch):
    monkeypatch.setattr(recipe, "_seconds_per_flop", lambda plan, size, batch: 1e-9)  # a slow machine: 1 GFLOP/s
    plan = recipe.make_plan(cli._parser().parse_args(["recipe"]))
    steps = plan.batches * plan.epochs + 1
    flops = sum(recipe._step_flops(b, plan.size, plan.layers) for b in plan.batch_sizes)
    assert plan.size < 4096 and flops * steps * 1e-9 <= recipe._BUDGET
    assert any(line.startswith("size:") for line in plan.left_out)
    monkeypatch.setattr(recipe, "_seconds_per_flop", lambda plan, size, batch: 1e-15)
    plan = recipe.make_plan(cli._parser().parse_args(["recipe"]))
    assert (plan.size, plan.batches) == (4096, 50)


def test_figures_of_the_published_net():
    assert recipe._step_flops(512, 4096, 3) == 2**37
    with torch.no_grad():
        model = recipe.make_model(16, 4, 3)
    assert [type(m).__name__ for m in model] == ["Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert model(torch.zeros(2, 16)).shape == (2, 4)


def test_timer_reports_the_peak(capsys):
    recipe.start_timer("cpu")
    block = torch.zeros(1 << 20)
    del block
    timing = recipe.end_timer_and_print("it took")
    assert timing.peak_bytes >= 4 << 20 and timing.seconds > 0
    assert capsys.readouterr().out.startswith("it took: ")


def test_failed_check_is_exit_code_1(capsys, monkeypatch):
    monkeypatch.setattr(recipe, "_SECTIONS", [("broken", lambda *args: recipe.check(False, "two is three"))])
    assert cli.main(["recipe", *SMALL]) == 1
    assert "two is three" in capsys.readouterr().err


def test_report_that_cannot_be_written(capsys, tmp_path):
    assert cli.main(["recipe", *SMALL, "--json", str(tmp_path / "none" / "x.json")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_digits_without_scikit_learn(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    assert cli.main(["recipe", "--data", "digits"]) == 2
    assert "pip install '.[data]'" in capsys.readouterr().err


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_digits_reach_95_percent(tmp_path, capsys, device):
    pytest.importorskip("sklearn", reason="the extra [data] is not installed")
    out, report = run(tmp_path, capsys, "--data", "digits", "--device", device)
    assert [r["precision"] for r in report["runs"]] == ["float32", "bfloat16 autocast", "float16 autocast + GradScaler"]
    assert all(r["accuracy"] >= 0.95 for r in report["runs"]), report["runs"]
    assert "test accuracy" in out


def test_digits_that_learn_nothing_fail(capsys, monkeypatch):
    pytest.importorskip("sklearn", reason="the extra [data] is not installed")
    learnt = recipe._train_digits
    monkeypatch.setattr(recipe, "_train_digits", lambda device, dtype, epochs, *rest: learnt(device, dtype, 1, *rest))
    assert cli.main(["recipe", "--data", "digits", "--dtype", "float16"]) == 1
    assert "reaches 95%" in capsys.readouterr().err


def test_digits_check_only_the_default_run(tmp_path, capsys):
    pytest.importorskip("sklearn", reason="the extra [data] is not installed")
    args = ["--data", "digits", "--dtype", "float16", "--init-scale", "1e30", "--epochs", "1", "--size", "8"]
    path = tmp_path / "report.json"
    assert cli.main(["recipe", *args, "--json", str(path)]) == 0
    captured = capsys.readouterr()
    names = [r["precision"] for r in json.loads(path.read_text())["runs"]]
    assert names == ["float32", "float16 autocast + GradScaler"]
    assert "accuracy not checked" in captured.out and "--size has no effect" in captured.err
